//! The connection of a bucket with the agent: it is made again when it was lost, and its thread reads
//! what comes (`heard.rs`).
//!
//! Locks are taken in this order: `connecting`, `regions`, `state`. No lock is held while a callback
//! runs or a call waits, except `connecting`, until the agent has answered what is registered again.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::connected::{Connected, greet};
use crate::error::BucketError;
use crate::message::FromProgram;
use crate::region::Regions;
use crate::state::{Answer, Held, State, Task};

/// How long after a failed attempt the connection is tried again, unless a call does it before.
const RETRY: Duration = Duration::from_secs(1);

/// What the handle of a bucket and its threads share.
#[derive(Debug)]
pub struct Link {
    pub socket: PathBuf,
    pub file: String,
    pub number: u32,
    regions: Mutex<Regions>,
    /// Held while a connection is made.
    connecting: Mutex<()>,
    state: Mutex<State>,
    /// Anything in the state changed.
    changed: Condvar,
}

impl Link {
    pub fn new(socket: PathBuf, file: String, number: u32) -> Self {
        Self {
            socket,
            file,
            number,
            regions: Mutex::default(),
            connecting: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the state changed.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until the state changes.
    pub fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects unless there is a connection, registers everything again, and waits until the agent has
    /// taken or refused each area. Other calls wait until that is done. Returns the number of the
    /// connection: a call sends on no other one, since the agent may not know all areas there.
    pub fn connect(&self) -> Result<u64, BucketError> {
        let _connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connected) = &self.state().connection {
            return Ok(connected.number);
        }
        let socket = greet(&self.socket, &self.file, self.number)?;
        let mut state = self.state();
        state.connections += 1;
        let connected = Connected::new(socket, state.connections);
        state.connection = Some(connected.clone());
        drop(state);
        // From here on its thread reads the answers.
        self.notify();
        self.register_again(&connected)?;
        self.await_registered(connected.number)?;
        Ok(connected.number)
    }

    /// Sends a message that has no answer.
    pub fn post(&self, connection: u64, message: &FromProgram) -> Result<(), BucketError> {
        self.connected(connection)?.send(message, None)
    }

    /// Sends a message if the connection is still there. One that cannot be written to ends, and its
    /// thread notices.
    pub fn answer(&self, connection: u64, message: &FromProgram) {
        drop(self.post(connection, message));
    }

    /// A number for a request, whose answer is awaited.
    pub fn number(&self) -> u32 {
        self.state().number()
    }

    /// Sends a request that has a number.
    pub fn send(
        &self,
        connection: u64,
        request: u32,
        message: &FromProgram,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), BucketError> {
        let connected = self.connected(connection);
        let sent = connected.and_then(|connected| connected.send(message, descriptor));
        sent.inspect_err(|_| self.forget_answer(request))
    }

    /// Waits for the answer to a request.
    pub fn await_answer(&self, request: u32) -> Answer {
        let mut state = self.state();
        loop {
            match state.answers.get(&request) {
                Some(None) => state = self.wait(state),
                Some(Some(_)) => {
                    return state.answers.remove(&request).flatten().unwrap_or(Answer::Gone);
                }
                None => return Answer::Gone,
            }
        }
    }

    /// No call waits for the answer to a request.
    pub fn forget_answer(&self, request: u32) {
        self.state().answers.remove(&request);
    }

    /// Waits until shadows and memory may change, and claims them.
    pub fn hold(&self, holder: Held) {
        let mut state = self.state();
        while state.held.is_some() {
            state = self.wait(state);
        }
        state.held = Some(holder);
    }

    /// The same for a call of a callback, unless the agent has them. Returns whether it has them.
    pub fn hold_unless_agent(&self) -> bool {
        let mut state = self.state();
        while state.held == Some(Held::Call) {
            state = self.wait(state);
        }
        let is_free = state.held.is_none();
        if is_free {
            state.held = Some(Held::Call);
        }
        is_free
    }

    /// The same for an epoch of a connection. Returns false if it is over before that: the agent may let
    /// the program go on for a call that has shadows and memory, and that waits for this thread.
    pub fn hold_for(&self, connection: u64, epoch: u64) -> bool {
        let mut state = self.state();
        while !state.is_over(connection, epoch) {
            if state.held.is_none() {
                state.held = Some(Held::Epoch(epoch));
                return true;
            }
            state = self.wait(state);
        }
        false
    }

    /// Frees shadows and memory if `holder` has them.
    pub fn release(&self, holder: Held) {
        let mut state = self.state();
        if state.held == Some(holder) {
            state.held = None;
        }
        drop(state);
        self.notify();
    }

    /// Ends the connection and the threads.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        if let Some(connected) = &state.connection {
            connected.end();
        }
        drop(state);
        self.notify();
    }

    /// What the thread of the connection does: it ends when the bucket is closed.
    pub fn attend(&self) {
        while let Some(connected) = self.next_connection() {
            while let Some(message) = connected.receive() {
                self.take(connected.number, message);
            }
            self.lose(&connected);
        }
    }

    /// The connection of this number, unless it is lost.
    fn connected(&self, connection: u64) -> Result<Connected, BucketError> {
        let connected = self.state().connection.clone();
        let connected = connected.filter(|connected| connected.number == connection);
        connected.ok_or(BucketError::AgentGone)
    }

    /// The connection, as soon as there is one. `None` if the bucket is closed.
    fn next_connection(&self) -> Option<Connected> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(connected) = &state.connection {
                return Some(connected.clone());
            }
            state = self.wait(state);
        }
    }

    /// The next task of the thread of callbacks. `None` if the bucket is closed. A program that only
    /// answers the agent calls nothing, so this thread connects again for it.
    pub fn next_task(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            // A program that closes its bucket is not called any more.
            if state.is_closed {
                return None;
            }
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.connection.is_some() || !state.has_owner {
                state = self.wait(state);
                continue;
            }
            let waited = self.changed.wait_timeout(state, RETRY);
            let (waiting, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = waiting;
            if waited.timed_out() && state.connection.is_none() && !state.is_closed {
                drop(state);
                // It is tried again, and the next call reports why it fails.
                drop(self.connect());
                state = self.state();
            }
        }
    }

    /// Sends all that was registered before. The answers are read later. Callbacks come last: before
    /// them the agent does not begin anything.
    fn register_again(&self, connected: &Connected) -> Result<(), BucketError> {
        let mut regions = self.regions();
        // The agent before may have ended while it filled shadows.
        regions.look_for_holes();
        for (area, region) in &regions.0 {
            let mut state = self.state();
            state.requests = state.requests.wrapping_add(1);
            let request = state.requests;
            state.registering.insert(request, area.clone());
            drop(state);
            connected.send(&region.message(request, area), Some(region.file()))?;
        }
        drop(regions);
        let state = self.state();
        let (range, has_callbacks) = (state.range.clone(), state.has_owner);
        drop(state);
        if let Some((range, split_version)) = range {
            connected.send(&FromProgram::Range { range, split_version }, None)?;
        }
        if has_callbacks {
            connected.send(&FromProgram::Callbacks { has_callbacks }, None)?;
        }
        Ok(())
    }

    /// Waits for the answers to what was registered again. Without them a call would store the areas
    /// that the agent has, and not those of the program.
    fn await_registered(&self, connection: u64) -> Result<(), BucketError> {
        let mut state = self.state();
        loop {
            let is_there = state.connection.as_ref().is_some_and(|it| it.number == connection);
            if state.is_closed || !is_there {
                return Err(BucketError::AgentGone);
            }
            if state.registering.is_empty() {
                return Ok(());
            }
            state = self.wait(state);
        }
    }
}
