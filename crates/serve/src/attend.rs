//! One connection, from its greeting to its end.
//!
//! The connection's thread receives frames. Uploads wait on the disk until they are whole; every
//! other request is a job. A few threads do the jobs and answer, so that a long read does not keep a
//! short question waiting. A client that does not take its answers holds up only its own threads.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_backend::{Backend, BackendError, ObjectName, Operation, Refusal, read_all};
use strongroom_remote::wire::{
    DONE, FAILED, Frame, PART, PART_BYTES_MAX, Request, WireError, greeting, pack_failure,
    pack_promises, receive_greeting,
};

use crate::limits::Limits;
use crate::listing::Listing;
use crate::rights::Verb;
use crate::room::{Room, Visitor};
use crate::upload::Upload;

/// Threads that answer one connection.
const WORKERS: usize = 4;
/// The stack of a connection's threads. They need little, and there are many.
pub(crate) const STACK_BYTES: usize = 256 << 10;
/// Jobs that wait for them; then the connection is not read.
const JOBS_MAX: usize = 32;
/// Objects of one connection that may be on their way in at a time.
const UPLOADS_MAX: usize = 32;

/// Where visitors are let in.
pub trait Door: Sync {
    /// The room that a token opens, and what its owner may do there.
    fn enter(&self, token: &str, room: &str) -> Result<Entrance, BackendError>;
}

/// What a token opens.
#[derive(Clone)]
pub struct Entrance {
    /// The room.
    pub room: Arc<Room>,
    /// Who was let in.
    pub visitor: Visitor,
}

/// A request whose bytes are all here.
enum Job {
    Ask(u32, Request),
    Store(u32, Upload),
}

/// What answers: every frame leaves whole.
struct Answers<'a> {
    // A plain mutex: held while one frame is sent.
    sending: Mutex<&'a mut (dyn Write + Send)>,
}

/// Serves one connection until its other side ends it. `entered` is called when the visitor was let
/// in: until then, little patience is right.
pub fn attend(
    receiving: &mut dyn Read,
    sending: &mut (dyn Write + Send),
    door: &dyn Door,
    limits: &Limits,
    entered: impl FnOnce(&Visitor),
) -> io::Result<()> {
    sending.write_all(&greeting())?;
    sending.flush()?;
    receive_greeting(receiving)?;
    let answers = Answers { sending: Mutex::new(sending) };
    let Some(frame) = Frame::receive(receiving)? else { return Ok(()) };
    let number = frame.request;
    let Request::Enter { token, room } = Request::unpack(frame)? else {
        return Err(WireError::Frame("it comes before the entrance").into());
    };
    let entrance = match door.enter(&token, &room) {
        Ok(entrance) => entrance,
        Err(error) => return answers.fail(number, &error),
    };
    drop(token);
    answers.done(number, &pack_promises(&entrance.room.promises()))?;
    entered(&entrance.visitor);
    let is_gone = AtomicBool::new(false);
    let visit = Visit { entrance: &entrance, answers: &answers, limits, is_gone: &is_gone };
    let (jobs, waiting) = sync_channel(JOBS_MAX);
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        let mut workers = 0;
        let outcome = visit.receive(receiving, &jobs, || {
            if workers == WORKERS {
                return Ok(());
            }
            let started = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || visit.work(&waiting));
            workers += usize::from(started.is_ok());
            // With one thread less it takes longer.
            if workers == 0 { started.map(drop) } else { Ok(()) }
        });
        // What was asked for is answered to the end.
        drop(jobs);
        outcome
    })
}

/// A visitor at work.
#[derive(Clone, Copy)]
struct Visit<'a> {
    entrance: &'a Entrance,
    answers: &'a Answers<'a>,
    limits: &'a Limits,
    /// An answer did not reach the client.
    is_gone: &'a AtomicBool,
}

impl Visit<'_> {
    /// Receives frames and makes jobs of them. `wanted` is called before each job.
    fn receive(
        &self,
        receiving: &mut dyn Read,
        jobs: &SyncSender<Job>,
        mut wanted: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut uploads: HashMap<u32, Upload> = HashMap::new();
        let mut give = |job| {
            wanted()?;
            jobs.send(job).map_err(|_| io::Error::other("the threads that answer have ended"))
        };
        while let Some(frame) = Frame::receive(receiving)? {
            let number = frame.request;
            match Request::unpack(frame)? {
                Request::Enter { .. } => {
                    return Err(WireError::Frame("it enters a second time").into());
                }
                Request::Create { name, bytes } => {
                    self.begin(&mut uploads, number, name, bytes, false)?;
                }
                Request::Replace { name, bytes } => {
                    self.begin(&mut uploads, number, name, bytes, true)?;
                }
                // The rest of an upload that was refused may be on its way still.
                Request::Part(part) => match uploads.get_mut(&number).map(|up| up.push(&part)) {
                    None | Some(Ok(true)) => {}
                    Some(Ok(false)) => {
                        return Err(WireError::Frame("more came than was announced").into());
                    }
                    Some(Err(error)) => {
                        let name = uploads.remove(&number).expect("it was just found").name;
                        let error = BackendError::io(Operation::Write, &name, error);
                        self.answers.fail(number, &error)?;
                    }
                },
                // It waits for answers that it does not get: it had better connect again.
                request if request.is_question() && self.is_gone.load(Ordering::Relaxed) => {
                    return Err(io::Error::other("an answer did not reach the client"));
                }
                request => give(Job::Ask(number, request))?,
            }
            if uploads.get(&number).is_some_and(Upload::is_whole) {
                let upload = uploads.remove(&number).expect("it was just found");
                give(Job::Store(number, upload))?;
            }
        }
        Ok(())
    }

    fn begin(
        &self,
        uploads: &mut HashMap<u32, Upload>,
        number: u32,
        name: ObjectName,
        bytes: u64,
        replaces: bool,
    ) -> io::Result<()> {
        if uploads.len() >= UPLOADS_MAX || uploads.contains_key(&number) {
            return Err(WireError::Frame("too many objects at a time").into());
        }
        let Entrance { room, visitor } = self.entrance;
        let begun = room.may_store(visitor, &name, bytes, replaces).and_then(|()| {
            Upload::new(name.clone(), replaces, bytes, room.path())
                .map_err(|error| BackendError::io(Operation::Write, &name, error))
        });
        match begun {
            Ok(upload) => {
                uploads.insert(number, upload);
                Ok(())
            }
            Err(error) => self.answers.fail(number, &error),
        }
    }

    /// Does jobs until there are no more.
    fn work(&self, jobs: &Mutex<Receiver<Job>>) {
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            let (number, outcome) = match job {
                // No answer would reach it, and hundreds of questions may wait.
                Job::Ask(_, request)
                    if request.is_question() && self.is_gone.load(Ordering::Relaxed) =>
                {
                    continue;
                }
                Job::Ask(number, request) => (number, self.answer(number, request)),
                Job::Store(number, upload) => (number, self.store(upload).map(|()| Vec::new())),
            };
            let sent = match outcome {
                Ok(body) => self.answers.done(number, &body),
                Err(Stop::Failed(error)) => self.answers.fail(number, &error),
                Err(Stop::Gone(error)) => Err(error),
            };
            // If the client is gone, what else it wants to be changed is done all the same.
            if sent.is_err() {
                self.is_gone.store(true, Ordering::Relaxed);
            }
        }
    }

    fn store(&self, upload: Upload) -> Result<(), Stop> {
        let Entrance { room, visitor } = self.entrance;
        let (name, replaces) = (upload.name.clone(), upload.replaces);
        let _allowance = self.limits.take(usize::try_from(upload.bytes).unwrap_or(usize::MAX));
        let bytes = upload
            .into_bytes()
            .map_err(|error| BackendError::io(Operation::Write, &name, error))?;
        Ok(room.store(visitor, &name, &bytes, replaces)?)
    }

    fn answer(&self, number: u32, request: Request) -> Result<Vec<u8>, Stop> {
        let Entrance { room, visitor } = self.entrance;
        let flag = |is: bool| Ok(vec![u8::from(is)]);
        match request {
            Request::IsThere => flag(room.is_there()?),
            Request::Make => room.make(visitor).map(|()| Vec::new()).map_err(Stop::from),
            Request::Size { name } => Ok(room.size(visitor, &name)?.to_le_bytes().to_vec()),
            Request::Read { name, offset, bytes } => {
                room.allow_reading(visitor, &name, offset, bytes)?;
                self.send_part_by_part(number, &name, offset, bytes)
            }
            Request::List { folder } => {
                let listing = {
                    let _turn = self.limits.turn_of_token(&visitor.name);
                    let _turn_in_room = self.limits.turn_of_room(room.name());
                    let _allowance = self.limits.take_listing(room.objects_listed());
                    let infos = room.list(visitor, &folder)?;
                    Listing::of(infos, room.path(), self.limits.keep(&visitor.name))
                };
                let listing = listing.map_err(|source| BackendError::Io {
                    operation: Operation::List,
                    what: folder,
                    source,
                })?;
                let sent = listing.each(|part| self.answers.send(number, PART, part));
                sent.map(|()| Vec::new()).map_err(Stop::Gone)
            }
            Request::HoldsAtMost { folder } => flag(room.backend()?.holds_at_most(&folder)?),
            Request::Remove { name } => {
                room.remove(visitor, &name).map(|()| Vec::new()).map_err(Stop::from)
            }
            // What it finds is of this machine, and of no living writer.
            Request::Sweep => Ok((room.backend()?.sweep()? as u64).to_le_bytes().to_vec()),
            Request::Copy { from, to } => {
                room.allow(visitor, Verb::Replace, &to)?;
                Ok(room.backend()?.copy(&from, &to).map(|()| Vec::new())?)
            }
            Request::Retain { name, until } => {
                room.allow(visitor, Verb::Retain, &name)?;
                Ok(room.backend()?.retain(&name, until).map(|()| Vec::new())?)
            }
            Request::Prove { name, challenge } => {
                room.allow(visitor, Verb::See, &name)?;
                let backend = room.backend()?;
                let bytes = backend.size(&name)?;
                let _allowance = self.limits.take(usize::try_from(bytes).unwrap_or(usize::MAX));
                Ok(room.prove(visitor, &name, &read_all(&*backend, &name)?, &challenge)?)
            }
            Request::Enter { .. }
            | Request::Create { .. }
            | Request::Replace { .. }
            | Request::Part(_) => unreachable!("these are no questions"),
        }
    }

    /// Sends a part of an object without holding more than a frame of it.
    fn send_part_by_part(
        &self,
        number: u32,
        name: &ObjectName,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, Stop> {
        let backend = self.entrance.room.backend()?;
        let mut sent = 0;
        while sent < bytes {
            let wanted = usize::try_from(bytes - sent).unwrap_or(usize::MAX).min(PART_BYTES_MAX);
            let part = backend.read(name, offset.saturating_add(sent), wanted)?;
            sent += part.len() as u64;
            let is_last = part.len() < wanted;
            self.answers.send(number, PART, &part).map_err(Stop::Gone)?;
            if is_last {
                break;
            }
        }
        Ok(Vec::new())
    }
}

/// Why a request has no answer of its own.
enum Stop {
    /// It failed.
    Failed(BackendError),
    /// The client is gone.
    Gone(io::Error),
}

impl From<BackendError> for Stop {
    fn from(error: BackendError) -> Self {
        Self::Failed(error)
    }
}

impl Answers<'_> {
    fn send(&self, number: u32, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(body.len() + 16);
        Frame::pack(number, kind, body, &mut frame);
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        sending.write_all(&frame)?;
        sending.flush()
    }

    /// The body may be longer than a frame: then it goes in parts.
    fn done(&self, number: u32, body: &[u8]) -> io::Result<()> {
        if body.len() <= PART_BYTES_MAX {
            return self.send(number, DONE, body);
        }
        for part in body.chunks(PART_BYTES_MAX) {
            self.send(number, PART, part)?;
        }
        self.send(number, DONE, &[])
    }

    fn fail(&self, number: u32, error: &BackendError) -> io::Result<()> {
        self.send(number, FAILED, &pack_failure(error))
    }
}

/// The refusal of a client that may not enter.
pub(crate) fn not_let_in(refusal: Refusal, answer: &str) -> BackendError {
    BackendError::Refused {
        operation: Operation::Open,
        what: "the room".to_owned(),
        refusal,
        answer: answer.to_owned(),
    }
}
