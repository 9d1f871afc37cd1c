//! What programs ask for, and what the agent asks of them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use strongroom_base::{Severity, SnapshotId};
use strongroom_bucket::{AreaSize, FromProgram, PROTOCOL, ToProgram};

use strongroom_source::memory::MemoryFile;

use super::bucket::{Bucket, Doing, Version, Work};
use super::jobs::{Gate, Job, JobEvent};
use super::{Agent, Program};
use crate::about::{About, VersionText};
use crate::keeper::{Area, Areas, BucketName, Keeper, version_label};

/// The name of the version as which a program's own eviction stores its bucket.
const EVICTED: &str = "evicted";

impl Agent {
    /// A program says something.
    pub(super) fn hear(&mut self, program: u64, message: FromProgram, descriptor: Option<OwnedFd>) {
        if let FromProgram::Hello { protocol, file, bucket } = message {
            return self.hello(program, protocol, BucketName { file, number: bucket });
        }
        let known = self.programs.get(&program).and_then(|program| program.bucket.clone());
        let Some(name) = known else {
            return self.end(program, "a program did not say which bucket it has");
        };
        match message {
            FromProgram::Hello { .. } => {}
            FromProgram::Region { request, area, bytes, base, .. } => {
                self.region(&name, request, area, bytes, base, descriptor);
            }
            FromProgram::Forget { request, area } => {
                let Some(bucket) = self.buckets.get_mut(&name) else { return };
                bucket.areas.remove(&area);
                bucket.tell(&ToProgram::Done { request });
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
            FromProgram::Store { request, name: called, version, is_copy, areas } => {
                let version = VersionText { name: called, version };
                let Some(bucket) = self.buckets.get_mut(&name) else { return };
                let key = (version.name.clone(), version.version);
                bucket.versions.insert(key, Version::Storing(Vec::new()));
                self.enqueue(&name, Work::Version { request, version, areas }, is_copy);
            }
            FromProgram::Wait { request, name: called, version } => {
                self.wait_for(&name, request, called, version);
            }
            FromProgram::Test { request, name: called, at_most } => {
                self.test(&name, request, called, at_most);
            }
            FromProgram::Load { request, name: called, version, areas } => {
                let version = VersionText { name: called, version };
                self.enqueue(&name, Work::Load { request, version, areas }, false);
            }
            FromProgram::Evict { request, is_copy } => {
                self.enqueue(&name, Work::Evict { request }, is_copy);
            }
        }
    }

    fn hello(&mut self, number: u64, protocol: u32, name: BucketName) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        let connection = program.connection.clone();
        let refusal = if protocol != PROTOCOL {
            Some(format!("it speaks version {PROTOCOL} of the protocol, not {protocol}"))
        } else if let Some(other) = self.buckets.get(&name) {
            if other.is_left() {
                return self.successors.push((number, name));
            }
            let pid = other.connection.peer().pid;
            Some(format!("the process {pid} has it; end that first"))
        } else {
            None
        };
        if let Some(reason) = refusal {
            // The program may be gone.
            let _ = connection.send(&ToProgram::Refused { reason });
            return connection.end();
        }
        if program.bucket.is_some() {
            return self.end(number, "a program has named two buckets on one connection");
        }
        program.bucket = Some(name.clone());
        let bucket = Bucket::new(connection);
        bucket.tell(&ToProgram::Welcome { protocol: PROTOCOL });
        self.buckets.insert(name, bucket);
    }

    fn region(
        &mut self,
        name: &BucketName,
        request: u32,
        area: String,
        bytes: u64,
        base: Option<u64>,
        descriptor: Option<OwnedFd>,
    ) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        // A message about an area comes with one, or it is not passed on.
        let Some(descriptor) = descriptor else { return };
        let file = File::from(descriptor);
        let taken = match MemoryFile::of(&file, bytes) {
            Ok(_) => {
                bucket.areas.insert(area, Area { file: Arc::new(file), bytes, base });
                ToProgram::Done { request }
            }
            Err(error) => {
                let reason = format!("the area {area} cannot be read: {error}");
                ToProgram::Failed { request, reason }
            }
        };
        bucket.tell(&taken);
    }

    /// The program of a connection is gone: so are its bucket, and what was waiting for it. A program
    /// that waited for the bucket has it now.
    pub(super) fn lose(&mut self, number: u64) {
        let Some(Program { bucket: Some(name), .. }) = self.programs.remove(&number) else {
            return;
        };
        if let Some(bucket) = self.buckets.remove(&name) {
            bucket.give_up();
            if let Some(doing) = &bucket.round {
                let ended = Err("its program ended".to_owned());
                self.round_ended(&name, &doing.work, None, ended);
            }
            if bucket.is_attached {
                self.detached(&name);
            }
        }
        let successors = self.successors.extract_if(.., |(_, wanted)| *wanted == name);
        for (number, name) in successors.collect::<Vec<_>>() {
            self.hello(number, PROTOCOL, name);
        }
    }

    fn end(&mut self, program: u64, why: &str) {
        self.say(Severity::Warning, why);
        if let Some(program) = self.programs.get(&program) {
            program.connection.end();
        }
    }

    /// Something is to be done with a bucket, after what is being done.
    pub(super) fn enqueue(&mut self, name: &BucketName, work: Work, is_copy: bool) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.waiting.push_back((work, is_copy));
        self.go_on(name);
    }

    /// Begins what can begin of what waits.
    fn go_on(&mut self, name: &BucketName) {
        let number = self.number();
        let (keeper, events) = (self.keeper.clone(), self.events.clone());
        let now = u64::try_from(keeper.now().0).unwrap_or_default();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some((work, is_copy)) = bucket.next() else { return };
        let gate = Arc::new(Gate::default());
        bucket.begin(Doing::new(number, work.clone(), gate.clone(), is_copy));
        let job = |areas: Areas| Job { keeper, bucket: name.clone(), areas, number, events };
        let newest = bucket.newest;
        match work {
            Work::Version { version, areas, .. } => {
                let areas = match bucket.chosen(&areas) {
                    Ok(areas) => areas,
                    Err(reason) => return self.ended(name, number, Err(reason)),
                };
                let label = version_label(&version.name, version.version);
                let about = bucket.about(name, &areas, None, Some(version));
                job(areas).store_version(about, newest, vec![label]);
            }
            Work::Evict { .. } => {
                // The newest is the one of the latest time.
                let version = VersionText { name: EVICTED.to_owned(), version: now };
                let label = version_label(EVICTED, now);
                let areas = bucket.areas.clone();
                let about = bucket.about(name, &areas, None, Some(version));
                job(areas).store_version(about, newest, vec![label]);
            }
            Work::Load { version, areas, .. } => {
                job(bucket.areas.clone()).load_version(version.name, version.version, areas);
            }
            Work::Round(epoch) => job(bucket.areas.clone()).store_round(gate, epoch, newest),
            Work::HoldStill(_) | Work::RoundLoad { .. } => self.ask_to_hold_still(name, number),
        }
        // A call and a round may both be able to begin.
        self.go_on(name);
    }

    /// Asks the program of a bucket to hold still for a round.
    fn ask_to_hold_still(&mut self, name: &BucketName, job: u64) {
        let epoch = self.number();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if !bucket.has_callbacks {
            let reason = "its program has no callback, so it cannot be asked to hold still";
            return self.ended(name, job, Err(reason.to_owned()));
        }
        let Some(doing) = bucket.doing(job) else { return };
        doing.question = Some(epoch);
        bucket.quiesced = Some(epoch);
        bucket.tell(&ToProgram::Quiesce { epoch });
    }

    /// A job has come further.
    pub(super) fn job(&mut self, name: &BucketName, number: u64, event: JobEvent) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.doing(number) else { return };
        match event {
            JobEvent::Scanned => self.ask_to_hold_still(name, number),
            JobEvent::Captured => {
                doing.is_captured = true;
                match doing.work {
                    Work::Version { request, .. } => bucket.tell(&ToProgram::Captured { request }),
                    Work::Round(epoch) => {
                        let (question, is_copy) = (doing.question, doing.is_copy);
                        self.round_captured(name, epoch, question.filter(|_| is_copy));
                    }
                    _ => {}
                }
            }
            JobEvent::Stored(outcome) => self.stored(name, number, outcome),
            JobEvent::Compared(outcome) => self.compared(name, number, outcome),
            JobEvent::Loaded(Ok(about)) => self.filled(name, number, about),
            JobEvent::Loaded(Err(reason)) => self.ended(name, number, Err(reason)),
        }
    }

    fn stored(&mut self, name: &BucketName, job: u64, outcome: Result<SnapshotId, String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let snapshot = match outcome {
            Ok(snapshot) => snapshot,
            Err(reason) => return self.ended(name, job, Err(reason)),
        };
        bucket.newest = Some(snapshot);
        let Some(doing) = bucket.doing(job) else { return };
        doing.stored = Some(snapshot);
        // What is stored whole is compared before it is freed.
        if let Work::Evict { .. } = doing.work {
            return self.compare(name, job, snapshot);
        }
        self.ended(name, job, Ok(()));
    }

    /// Compares a bucket that holds still with what was stored of it.
    pub(super) fn compare(&mut self, name: &BucketName, number: u64, stored: SnapshotId) {
        let (keeper, events) = (self.keeper.clone(), self.events.clone());
        let Some(bucket) = self.buckets.get(name) else { return };
        let areas = bucket.areas.clone();
        let about = bucket.about(name, &areas, None, None);
        Job { keeper, bucket: name.clone(), areas, number, events }.compare(stored, about);
    }

    fn compared(&mut self, name: &BucketName, job: u64, outcome: Result<bool, String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.doing(job) else { return };
        match (doing.work.clone(), outcome) {
            (Work::HoldStill(epoch), outcome) => self.round_compared(name, epoch, outcome),
            (_, Ok(true)) => self.free(name),
            (_, Ok(false)) => {
                let reason = "its memory changed while it was stored: nothing was freed";
                self.ended(name, job, Err(reason.to_owned()));
            }
            (_, Err(reason)) => self.ended(name, job, Err(reason)),
        }
    }

    /// Asks a program, which holds still, to free its memory.
    pub(super) fn free(&mut self, name: &BucketName) {
        let question = self.number();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let epoch = *bucket.quiesced.get_or_insert(question);
        bucket.tell(&ToProgram::Evict { epoch });
    }

    fn freed(&mut self, name: &BucketName, epoch: u64, outcome: Result<(), String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let doing = bucket.round.as_ref().or(bucket.call.as_ref());
        let Some(job) = doing.map(|doing| doing.job).filter(|_| bucket.quiesced == Some(epoch))
        else {
            return;
        };
        if let Err(reason) = outcome {
            let reason = format!("its program keeps its memory: {reason}");
            return self.ended(name, job, Err(reason));
        }
        // It was let go by being asked to free its memory.
        bucket.quiesced = None;
        bucket.areas.clear();
        bucket.range = None;
        self.ended(name, job, Ok(()));
    }

    /// The areas of a bucket were filled. In a round, its program is to look at them.
    fn filled(&mut self, name: &BucketName, job: u64, about: Box<About>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let quiesced = bucket.quiesced;
        let Some(doing) = bucket.doing(job) else { return };
        match (&doing.work, quiesced) {
            (Work::RoundLoad { snapshot, .. }, Some(epoch)) => {
                let snapshot = *snapshot;
                doing.loaded = Some(about);
                bucket.newest = Some(snapshot);
                bucket.tell(&ToProgram::Load { epoch });
            }
            // The program called, and looks by itself.
            _ => self.ended(name, job, Ok(())),
        }
    }

    /// A program has looked at what was loaded.
    fn used(&mut self, name: &BucketName, epoch: u64, outcome: Result<(), String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.round.as_mut().filter(|_| bucket.quiesced == Some(epoch)) else {
            return;
        };
        let (job, about) = (doing.job, doing.loaded.take());
        // A program that knows of no ranges has the one that was stored.
        if let (Some(about), None) = (about, &bucket.range) {
            bucket.range = about.range.and_then(|range| range.range());
            bucket.split_version = about.split_version;
        }
        let outcome = outcome.map_err(|why| format!("its program cannot use it: {why}"));
        self.ended(name, job, outcome);
    }

    /// A program holds still, or does not.
    fn quiesced(
        &mut self,
        name: &BucketName,
        epoch: u64,
        is_copy: bool,
        outcome: Result<(), String>,
    ) {
        let (keeper, events) = (self.keeper.clone(), self.events.clone());
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.round.as_mut().filter(|_| bucket.quiesced == Some(epoch)) else {
            return;
        };
        let number = doing.job;
        if let Err(reason) = outcome {
            bucket.quiesced = None;
            let reason = format!("its program does not hold still: {reason}");
            return self.ended(name, number, Err(reason));
        }
        doing.is_copy = is_copy;
        match doing.work.clone() {
            Work::RoundLoad { snapshot, .. } => {
                let areas = bucket.areas.clone();
                let job = Job { keeper, bucket: name.clone(), areas, number, events };
                job.load(Vec::new(), snapshot);
            }
            Work::Round(epoch) | Work::HoldStill(epoch) => self.round_quiesced(name, epoch),
            _ => {}
        }
    }

    /// What a job did has ended: the program goes on, and hears of it if it asked.
    pub(super) fn ended(&mut self, name: &BucketName, job: u64, outcome: Result<(), String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.take(job) else { return };
        doing.gate.close();
        match &doing.work {
            Work::Version { request, version, .. } => {
                let (request, is_captured) = (*request, doing.is_captured);
                self.version_ended(name, request, version, is_captured, outcome);
            }
            Work::Load { request, .. } | Work::Evict { request } => {
                // Of an eviction, the program was asked to free its memory, and not to hold still.
                bucket.quiesced = None;
                bucket.tell(&answer(*request, outcome));
            }
            work => {
                bucket.resume(false);
                self.round_ended(name, work, doing.stored, outcome);
            }
        }
        self.go_on(name);
    }

    fn version_ended(
        &mut self,
        name: &BucketName,
        request: u32,
        version: &VersionText,
        is_captured: bool,
        outcome: Result<(), String>,
    ) {
        if let Err(reason) = &outcome {
            self.say(Severity::Warning, &format!("{name} was not stored: {reason}"));
        }
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if let (Err(reason), false) = (&outcome, is_captured) {
            bucket.tell(&ToProgram::Failed { request, reason: reason.clone() });
        }
        let key = (version.name.clone(), version.version);
        let before = bucket.versions.insert(key, Version::Ended(outcome.clone()));
        if let Some(Version::Storing(waiting)) = before {
            for request in waiting {
                bucket.tell(&answer(request, outcome.clone()));
            }
        }
    }

    fn wait_for(&mut self, name: &BucketName, request: u32, called: String, version: u64) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        match bucket.versions.get_mut(&(called.clone(), version)) {
            Some(Version::Storing(waiting)) => waiting.push(request),
            Some(Version::Ended(outcome)) => {
                let outcome = outcome.clone();
                bucket.tell(&answer(request, outcome));
            }
            // It was stored before the program connected.
            None => self.look(name, "wait", move |keeper, name| {
                let found = keeper.newest(name, &called, Some(version));
                let outcome = match found {
                    Ok(Some((found, _))) if found == version => Ok(()),
                    Ok(_) => Err("it was never stored".to_owned()),
                    Err(error) => Err(error.to_string()),
                };
                answer(request, outcome)
            }),
        }
    }

    fn test(&self, name: &BucketName, request: u32, called: String, at_most: Option<u64>) {
        self.look(name, "test", move |keeper, name| {
            let found = keeper.newest(name, &called, at_most).and_then(|found| {
                let Some((version, snapshot)) = found else { return Ok((None, Vec::new())) };
                let areas = keeper.about(name, snapshot)?.areas.into_iter();
                let areas = areas.map(|area| AreaSize { area: area.name, bytes: area.bytes });
                Ok((Some(version), areas.collect()))
            });
            match found {
                Ok((version, areas)) => ToProgram::Found { request, version, areas },
                Err(error) => ToProgram::Failed { request, reason: error.to_string() },
            }
        });
    }

    /// Answers a program after a look into the repository, on a thread of its own.
    fn look(
        &self,
        name: &BucketName,
        what: &str,
        look: impl FnOnce(&Keeper, &BucketName) -> ToProgram + Send + 'static,
    ) {
        let Some(bucket) = self.buckets.get(name) else { return };
        let (keeper, name) = (self.keeper.clone(), name.clone());
        let connection = bucket.connection.clone();
        let answer = move || {
            if connection.send(&look(&keeper, &name)).is_err() {
                connection.end();
            }
        };
        if thread::Builder::new().name(what.to_owned()).spawn(answer).is_err() {
            bucket.connection.end();
        }
    }
}

fn answer(request: u32, outcome: Result<(), String>) -> ToProgram {
    match outcome {
        Ok(()) => ToProgram::Done { request },
        Err(reason) => ToProgram::Failed { request, reason },
    }
}
