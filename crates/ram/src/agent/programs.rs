//! Programs that connect, what they register, and how they are lost. What they ask for is carried out
//! in `calls.rs`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use strongroom_base::Severity;
use strongroom_bucket::served::Connection;
use strongroom_bucket::{AREAS_MAX, FromProgram, PROTOCOL, ToProgram};
use strongroom_cluster::Content;

use super::bucket::Bucket;
use super::doing::Work;
use super::jobs::Look;
use super::speaker::Speaker;
use super::users::file_of;
use super::{Agent, Program, Taken};
use crate::about::VersionText;
use crate::keeper::{Area, BucketName};
use crate::opened::{Closers, Opened};

impl Agent {
    /// A program says something.
    pub(super) fn hear(&mut self, program: u64, message: FromProgram, taken: Option<Taken>) {
        if let FromProgram::Hello { protocol, file, bucket } = message {
            return self.greet(program, protocol, file, bucket);
        }
        // What it said before its connection was ended may still be on its way.
        let Some(known) = self.programs.get(&program) else { return };
        let Some(name) = known.bucket.clone() else {
            return self.end(program, "a program did not say which bucket it has");
        };
        match message {
            FromProgram::Hello { .. } => {}
            FromProgram::Region { request, area, bytes, base, is_private } => {
                self.region(&name, request, area, (bytes, base, is_private), taken);
            }
            FromProgram::Forget { request, area } => {
                let Some(bucket) = self.buckets.get_mut(&name) else { return };
                if bucket.areas.contains_key(&area) {
                    Arc::make_mut(&mut bucket.areas).remove(&area);
                }
                bucket.tell(ToProgram::Done { request });
            }
            FromProgram::Callbacks { has_callbacks } => {
                let Some(bucket) = self.buckets.get_mut(&name) else { return };
                bucket.has_callbacks = has_callbacks;
                self.attach(&name);
            }
            FromProgram::Range { range, split_version } => {
                let Some(bucket) = self.buckets.get_mut(&name) else { return };
                (bucket.range, bucket.split_version) = (Some(range), split_version);
                self.attach(&name);
            }
            FromProgram::Quiesced { epoch, is_copy, outcome } => {
                self.quiesced(&name, epoch, is_copy, outcome);
            }
            FromProgram::Loaded { epoch, outcome } => self.used(&name, epoch, outcome),
            FromProgram::Evicted { epoch, outcome } => self.freed(&name, epoch, outcome),
            request => self.request(&name, request),
        }
        if self.buckets.get(&name).is_some_and(Bucket::is_flooded) {
            self.end(program, &format!("the program of {name} asks for too much at once"));
        }
    }

    /// A program asks for something that takes long.
    fn request(&mut self, name: &BucketName, message: FromProgram) {
        match message {
            FromProgram::Store { request, name: called, version, is_copy, areas } => {
                let version = VersionText { name: called, version };
                let Some(bucket) = self.buckets.get_mut(name) else { return };
                bucket.versions.begin(&version);
                match bucket.chosen(&areas) {
                    Ok(areas) => {
                        let keys = bucket.keys();
                        let work = Work::Version { request, version, areas, keys };
                        self.enqueue(name, work, is_copy);
                    }
                    Err(reason) => {
                        self.version_ended(name, request, &version, false, Err(reason));
                    }
                }
            }
            FromProgram::Wait { request, name: called, version } => {
                self.wait_for(name, request, VersionText { name: called, version });
            }
            FromProgram::Test { request, name: called, at_most } => {
                self.look(name, Look::Test { request, name: called, at_most });
            }
            FromProgram::Load { request, name: called, version, areas } => {
                self.give_way(name);
                let version = VersionText { name: called, version };
                self.enqueue(name, Work::Load { request, version, areas }, false);
            }
            FromProgram::Evict { request, is_copy } => {
                self.give_way(name);
                self.enqueue(name, Work::Evict { request }, is_copy);
            }
            _ => {}
        }
    }

    /// The first message of a program: the file is that of its user.
    fn greet(&mut self, number: u64, protocol: u32, file: String, bucket: u32) {
        let Some(program) = self.programs.get(&number) else { return };
        let connection = program.connection.clone();
        match file_of(connection.peer().uid, self.user, file) {
            Ok(file) => self.hello(number, protocol, BucketName { file, number: bucket }),
            Err(reason) => turn_away(&connection, reason),
        }
    }

    fn hello(&mut self, number: u64, protocol: u32, name: BucketName) {
        let Some(program) = self.programs.get(&number) else { return };
        if program.bucket.is_some() {
            return self.end(number, "a program has named two buckets on one connection");
        }
        let connection = program.connection.clone();
        let refusal = if protocol != PROTOCOL {
            Some(format!("it speaks version {PROTOCOL} of the protocol, not {protocol}"))
        } else if let Some(other) = self.buckets.get(&name) {
            // What the program before has said is heard to its end, such as a store.
            if other.speaker.connection().is_over() {
                return self.successors.push((number, name));
            }
            Some(match other.speaker.connection().peer().pid {
                Some(pid) => format!("the process {pid} has it; end that first"),
                None => "a process of another PID namespace has it; end that first".to_owned(),
            })
        } else {
            None
        };
        if let Some(reason) = refusal {
            return turn_away(&connection, reason);
        }
        let speaker = match Speaker::start(connection) {
            Ok(speaker) => Arc::new(speaker),
            Err(error) => return self.end(number, &format!("{name} is not taken: {error}")),
        };
        if let Some(program) = self.programs.get_mut(&number) {
            program.bucket = Some(name.clone());
        }
        speaker.say(ToProgram::Welcome { protocol: PROTOCOL });
        let torn = self.torn(&name);
        self.buckets.insert(name, Bucket::new(speaker, torn));
    }

    fn region(
        &mut self,
        name: &BucketName,
        request: u32,
        area: String,
        (bytes, base, is_private): (u64, Option<u64>, bool),
        taken: Option<Taken>,
    ) {
        // A message about an area comes with one, or it is not passed on.
        let Some(taken) = taken else { return };
        let Some(user) = self.buckets.get(name).map(Bucket::user) else { return };
        let (areas, areas_max) = (self.open_areas.all(), self.limits.areas);
        let is_share_used = self.open_areas.of(user) >= self.share_of(user, areas_max);
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let is_new = !bucket.areas.contains_key(&area);
        let before = bucket.areas.get(&area).map_or(0, |area| area.bytes);
        // What is replaced stays open for the stores that have it.
        let is_shared = Arc::strong_count(&bucket.areas) > 1;
        let is_kept = bucket
            .areas
            .get(&area)
            .is_none_or(|area| is_shared || Arc::strong_count(&area.file) > 1);
        let bytes_all = (bucket.bytes() - before).saturating_add(bytes);
        let refusal = if is_new && bucket.areas.len() >= AREAS_MAX {
            Some(format!("a bucket has {AREAS_MAX} areas at most"))
        } else if is_kept && is_share_used && areas < areas_max {
            Some(format!("user {user} has as many areas open here as one user may have"))
        } else if is_kept && areas >= areas_max {
            Some(format!(
                "the agent can have {areas_max} areas open: raise its limit of open files \
                 (LimitNOFILE=, ulimit -n)"
            ))
        } else if i64::try_from(bytes_all).is_err() {
            Some("a bucket has less than 2^63 bytes".to_owned())
        } else {
            None
        };
        let answer = match (refusal, taken.0) {
            (None, Ok(opened)) => {
                let file = Arc::new(opened.counted(self.open_areas.count(user)));
                let registered = Area { file, bytes, base, is_private };
                Arc::make_mut(&mut bucket.areas).insert(area, registered);
                if bucket.content == Content::Empty {
                    bucket.content = Content::Unknown;
                }
                ToProgram::Done { request }
            }
            (Some(reason), _) | (None, Err(reason)) => {
                let reason = format!("the area {area} is not taken: {reason}");
                ToProgram::Failed { request, reason }
            }
        };
        bucket.tell(answer);
    }

    /// The program of a connection is gone: so are its bucket, and what was waiting for it. A program
    /// that waited for the bucket has it now.
    pub(super) fn lose(&mut self, number: u64) {
        let Some(Program { bucket: Some(name), .. }) = self.programs.remove(&number) else {
            return;
        };
        let Some(bucket) = self.buckets.remove(&name) else { return };
        bucket.give_up();
        bucket.speaker.end();
        for work in bucket.of_round() {
            let ended = Err("its program ended".to_owned());
            self.round_ended(&name, &work, None, ended);
        }
        if bucket.is_attached {
            self.detached(&name);
        }
        let successors = self.successors.extract_if(.., |(_, wanted)| *wanted == name);
        for (number, name) in successors.collect::<Vec<_>>() {
            self.hello(number, PROTOCOL, name);
        }
    }

    pub(super) fn end(&mut self, program: u64, why: &str) {
        let Some(known) = self.programs.get_mut(&program).filter(|known| !known.is_ended) else {
            return;
        };
        known.is_ended = true;
        known.connection.end();
        self.say_of_programs(Severity::Warning, why);
    }
}

const NO_DESCRIPTOR: &str = "the agent has no file descriptor left: raise its limit of open files \
    (LimitNOFILE=, ulimit -n)";

/// Looks at what a program hands over, on the thread that listens to it: a file system of its own may
/// keep that one waiting.
pub(super) fn take_area(
    message: &FromProgram,
    descriptor: Option<OwnedFd>,
    user: u32,
    closers: &Closers,
) -> Option<Taken> {
    let FromProgram::Region { bytes, is_private, .. } = message else { return None };
    let Some(descriptor) = descriptor else {
        return Some(Taken(Err(NO_DESCRIPTOR.to_owned())));
    };
    let taken = Opened::take(File::from(descriptor), *bytes, user, closers);
    let taken = taken.map_err(|error| format!("it cannot be read: {error}"));
    Some(Taken(taken.and_then(|opened| match *is_private && !opened.is_of_fixed_length() {
        true => Err("a private area is a memory file, sealed against shrinking and growing".into()),
        false => Ok(opened),
    })))
}

/// The end of a connection that was not let in.
pub(super) fn turn_away(connection: &Connection, reason: String) {
    // The program may be gone. It is the first that it hears, so it does not fill its socket.
    let _ = connection.send(&ToProgram::Refused { reason });
    connection.end();
}
