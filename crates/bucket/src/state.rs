//! What a bucket's threads and calls share and change, under one lock.
//!
//! - [`State::held`] says who relies on shadows and memory not to change. Only its holder, or the end
//!   of the connection, frees it.
//! - A request has an entry in the answers from before it is sent until its call took the answer.

use std::collections::{BTreeMap, VecDeque};
use std::thread::ThreadId;

use crate::connected::Connected;
use crate::error::{AreaFault, BucketError};
use crate::message::AreaSize;
use crate::range::KeyRange;
use crate::stores::Stores;

/// What changes.
#[derive(Debug, Default)]
pub struct State {
    pub connection: Option<Connected>,
    /// Connections that were made so far.
    pub connections: u64,
    pub is_closed: bool,
    pub requests: u32,
    pub answers: BTreeMap<u32, Option<Answer>>,
    /// Who relies on shadows and memory not to change.
    pub held: Option<Held>,
    /// The connection and the epoch in which the agent let the program go on last.
    pub resumed: Option<(u64, u64)>,
    /// What was stored and is not known to be committed.
    pub stores: Stores,
    /// Areas that are being registered again, by request.
    pub registering: BTreeMap<u32, String>,
    /// Areas that the agent did not take again, and why.
    pub not_taken: BTreeMap<String, String>,
    pub range: Option<(KeyRange, u64)>,
    pub has_owner: bool,
    /// The program asked for its eviction on this connection, and waits.
    pub evicting: Option<u64>,
    /// What the thread of callbacks has to do.
    pub tasks: VecDeque<Task>,
    pub callback_thread: Option<ThreadId>,
}

/// Who relies on shadows and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A call that has no request yet.
    Call,
    /// The agent, for a request.
    Request(u32),
    /// The agent, since the program holds still or was copied.
    Epoch(u64),
}

/// What answers a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Done, or captured.
    Done,
    Failed(String),
    Found(Option<u64>, Vec<AreaSize>),
    /// The connection ended.
    Gone,
}

/// What the thread of callbacks has to do.
#[derive(Debug)]
pub struct Task {
    /// The connection from which it came.
    pub connection: u64,
    pub what: What,
}

/// What a task is.
#[derive(Debug, Clone)]
pub enum What {
    Quiesce(u64),
    /// With the keys that were stored.
    Load(u64, Option<(KeyRange, u64)>),
    Resume {
        epoch: u64,
        is_reading: bool,
    },
    Evict(u64),
    /// The connection ended.
    Lost,
}

impl State {
    pub fn number(&mut self) -> u32 {
        self.requests = self.requests.wrapping_add(1);
        self.answers.insert(self.requests, None);
        self.requests
    }

    pub fn free(&mut self, holder: Held) {
        if self.held == Some(holder) {
            self.held = None;
        }
    }

    /// Whether the agent has let the program go on in an epoch, or is gone.
    pub fn is_over(&self, connection: u64, epoch: u64) -> bool {
        let is_there = self.connection.as_ref().is_some_and(|it| it.number == connection);
        !is_there || self.resumed.is_some_and(|(of, last)| of == connection && last >= epoch)
    }

    pub fn resolve(&mut self, request: u32, answer: Answer) {
        if let Some(awaited) = self.answers.get_mut(&request) {
            awaited.get_or_insert(answer);
        }
    }

    pub fn fail(&mut self, request: u32, reason: String) {
        self.free(Held::Request(request));
        if let Some(area) = self.registering.remove(&request) {
            self.not_taken.insert(area, reason.clone());
        }
        self.stores.failed(request, &reason);
        self.resolve(request, Answer::Failed(reason));
    }

    /// Whether the agent knows all areas.
    pub fn check_taken(&self) -> Result<(), BucketError> {
        match self.not_taken.first_key_value() {
            Some((area, reason)) => {
                Err(BucketError::area(area, AreaFault::NotTaken(reason.clone())))
            }
            None => Ok(()),
        }
    }
}
