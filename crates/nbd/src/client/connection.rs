//! Requests in flight, and the thread that receives their replies.
//!
//! A request waits under its cookie. The thread takes what it expects out of the list while it
//! receives a chunk for it, so that no lock is held while it waits for bytes. It is also the one that
//! watches the clock: it wakes at each tick of the socket, and ends the connection if a request is
//! overdue. However it ends, all requests end with it.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Awaited, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::ClientOptions;
use super::reply::{ChunkHead, Reply, Wanted};
use crate::allowance::Allowance;
use crate::error::Cause;
use crate::stream::{Filled, Receiver, Stream};
use crate::wire::{
    CHUNK_MAGIC, Fields, ProtocolError, Request, SIMPLE_HEAD_BYTES, SIMPLE_MAGIC, chunk, command,
};

/// How long the farewell may take to be sent.
const FAREWELL: Duration = Duration::from_millis(100);

/// A connection after its handshake.
pub struct Connection {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A request in flight.
pub struct Ticket(Awaited<Result<Reply, Cause>>);

struct Shared {
    stream: Stream,
    // A plain mutex: held while one request is sent.
    sending: Mutex<()>,
    // A plain mutex: held for a few look-ups.
    state: Mutex<State>,
    allowance: Allowance,
    /// The same as `state.broken.is_some()`, for threads that wait for room.
    is_broken: AtomicBool,
    silence_limit: Duration,
    request_limit: Duration,
}

#[derive(Default)]
struct State {
    /// Why nothing can be asked any more.
    broken: Option<Cause>,
    cookie_next: u64,
    waiting: HashMap<u64, Waiting>,
}

struct Waiting {
    since: Stopwatch,
    /// What it takes of the allowance.
    bytes: usize,
    /// The thread has it while it receives a chunk.
    wanted: Option<Wanted>,
    done: SyncSender<Result<Reply, Cause>>,
}

impl Connection {
    pub fn start(
        stream: Stream,
        receiver: Receiver,
        options: &ClientOptions,
    ) -> Result<Self, Cause> {
        let shared = Arc::new(Shared {
            stream,
            sending: Mutex::default(),
            state: Mutex::default(),
            allowance: Allowance::new(options.requests_max, options.bytes_max),
            is_broken: AtomicBool::new(false),
            silence_limit: options.silence_limit,
            request_limit: options.request_limit,
        });
        let listening =
            Listening { shared: shared.clone(), receiver, heard: Cell::new(Stopwatch::start()) };
        let name = "nbd replies".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || listening.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sends a request, as soon as there is room for it. Its cookie is chosen here.
    pub fn begin(
        &self,
        mut request: Request,
        payload: &[u8],
        wanted: Wanted,
    ) -> Result<Ticket, Cause> {
        let shared = &self.shared;
        let carries_data = matches!(request.command, command::READ | command::WRITE);
        let bytes = if carries_data { request.length as usize } else { 0 };
        if !shared.allowance.take(bytes, &|| shared.is_broken.load(Ordering::Acquire)) {
            return Err(shared.why_broken());
        }
        // One place, so that the thread never waits for the caller.
        let (done, awaited) = sync_channel(1);
        let waiting = Waiting { since: Stopwatch::start(), bytes, wanted: Some(wanted), done };
        request.cookie = shared.enlist(waiting)?;
        let sent = {
            let _sending = shared.sending.lock().unwrap_or_else(PoisonError::into_inner);
            let limit = shared.request_limit;
            let head = shared.stream.send(&request.pack(), limit);
            head.and_then(|()| shared.stream.send(payload, limit))
        };
        if let Err(error) = sent {
            shared.break_off(error.into());
        }
        Ok(Ticket(awaited))
    }
}

impl Ticket {
    /// Waits for the reply.
    pub fn wait(self) -> Result<Reply, Cause> {
        self.0.recv().unwrap_or(Err(Cause::Closed))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Replies that are still on their way are not received.
        self.shared.farewell();
        self.shared.break_off(Cause::Closed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Adds a request to those that wait, and returns its cookie.
    fn enlist(&self, waiting: Waiting) -> Result<u64, Cause> {
        let mut state = self.state();
        if let Some(cause) = state.broken.clone() {
            drop(state);
            self.allowance.give(waiting.bytes);
            return Err(cause);
        }
        let cookie = state.cookie_next;
        state.cookie_next += 1;
        state.waiting.insert(cookie, waiting);
        Ok(cookie)
    }

    /// Takes out what a request expects.
    fn borrow(&self, cookie: u64) -> Result<Wanted, ProtocolError> {
        let mut state = self.state();
        let waiting = state.waiting.get_mut(&cookie);
        let wanted = waiting.and_then(|waiting| waiting.wanted.take());
        wanted.ok_or(ProtocolError("a reply belongs to no request"))
    }

    fn put_back(&self, cookie: u64, wanted: Wanted) {
        if let Some(waiting) = self.state().waiting.get_mut(&cookie) {
            waiting.wanted = Some(wanted);
        }
    }

    /// Ends a request.
    fn finish(&self, cookie: u64, outcome: Result<Reply, Cause>) {
        let Some(waiting) = self.state().waiting.remove(&cookie) else { return };
        self.allowance.give(waiting.bytes);
        // Who asked may wait no more.
        let _ = waiting.done.send(outcome);
    }

    /// Ends the connection and all requests. The first cause counts.
    fn break_off(&self, cause: Cause) {
        let waiting = {
            let mut state = self.state();
            state.broken.get_or_insert(cause.clone());
            self.is_broken.store(true, Ordering::Release);
            std::mem::take(&mut state.waiting)
        };
        self.stream.shutdown(Shutdown::Both);
        for (_, waiting) in waiting {
            self.allowance.give(waiting.bytes);
            let _ = waiting.done.send(Err(cause.clone()));
        }
    }

    fn farewell(&self) {
        if self.state().broken.is_some() {
            return;
        }
        let request =
            Request { flags: 0, command: command::DISC, cookie: u64::MAX, offset: 0, length: 0 };
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.stream.send(&request.pack(), FAREWELL);
    }

    fn why_broken(&self) -> Cause {
        self.state().broken.clone().unwrap_or(Cause::Closed)
    }

    /// True if a request waits too long, or the server is silent for too long.
    fn is_overdue(&self, heard: Stopwatch) -> bool {
        let state = self.state();
        let oldest = state.waiting.values().map(|waiting| waiting.since.elapsed()).max();
        oldest.is_some_and(|oldest| {
            oldest > self.request_limit || oldest.min(heard.elapsed()) > self.silence_limit
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that receives.
struct Listening {
    shared: Arc<Shared>,
    receiver: Receiver,
    /// Since bytes came last.
    heard: Cell<Stopwatch>,
}

impl Listening {
    fn run(mut self) {
        loop {
            if let Err(cause) = self.reply() {
                self.shared.break_off(cause);
                return;
            }
        }
    }

    /// Receives a simple reply, or a chunk.
    fn reply(&mut self) -> Result<(), Cause> {
        let mut head = [0; SIMPLE_HEAD_BYTES];
        self.fill(&mut head)?;
        let mut fields = Fields(&head);
        let magic = fields.u32()?;
        if magic == SIMPLE_MAGIC {
            let (error, cookie) = (fields.u32()?, fields.u64()?);
            let mut wanted = self.shared.borrow(cookie)?;
            wanted.take_simple(error, &mut |into| self.fill(into))?;
            self.shared.finish(cookie, wanted.finish()?);
            return Ok(());
        }
        if magic != CHUNK_MAGIC {
            return Err(ProtocolError("a reply has the wrong magic number").into());
        }
        let (flags, kind, cookie) = (fields.u16()?, fields.u16()?, fields.u64()?);
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let is_last = flags & chunk::DONE != 0;
        let head = ChunkHead { kind, is_last, length: Fields(&length).u32()? };
        let mut wanted = self.shared.borrow(cookie)?;
        wanted.take_chunk(head, &mut |into| self.fill(into))?;
        if is_last {
            self.shared.finish(cookie, wanted.finish()?);
        } else {
            self.shared.put_back(cookie, wanted);
        }
        Ok(())
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), Cause> {
        let mut before = 0;
        let filled = self.receiver.fill(into, &mut |received| {
            if received > before {
                before = received;
                self.heard.set(Stopwatch::start());
            }
            !self.shared.is_overdue(self.heard.get())
        })?;
        self.heard.set(Stopwatch::start());
        if filled == Filled::Ended { Err(Cause::Closed) } else { Ok(()) }
    }
}

impl Drop for Listening {
    /// Also if the thread panics: no request may wait for it.
    fn drop(&mut self) {
        self.shared.break_off(Cause::Closed);
    }
}
