//! Answers that wait for their time. What an answer says is decided when it is sent, so that it is
//! never older than the node.

use std::net::SocketAddr;

use crate::message::{BucketNumber, Epoch, RunId, State};

/// Answers that wait at most. Replayed commands could ask for any number.
const REPLIES_MAX: usize = 4_096;

/// An answer that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub due_ms: u64,
    pub to: SocketAddr,
    pub run: RunId,
    pub about: About,
}

/// What an answer is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    Bucket(BucketNumber, Among),
    Node { epoch: Epoch, state: State, reason: String },
}

/// Which buckets of a node are answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    /// All that are here, or were freed.
    All,
    /// Buckets that take part in the present round, or keep it waiting.
    Round,
}

/// All of a node.
#[derive(Debug, Default)]
pub(super) struct Replies(Vec<Reply>);

impl Replies {
    /// Adds an answer, unless the same one waits already.
    pub fn schedule(&mut self, due_ms: u64, to: SocketAddr, run: RunId, about: About) {
        let is_same = |reply: &Reply| reply.to == to && reply.run == run && reply.about == about;
        if self.0.len() < REPLIES_MAX && !self.0.iter().any(is_same) {
            self.0.push(Reply { due_ms, to, run, about });
        }
    }

    /// Removes those whose time has come.
    pub fn take_due(&mut self, now_ms: u64) -> Vec<Reply> {
        if self.0.iter().all(|reply| reply.due_ms > now_ms) {
            return Vec::new();
        }
        let (due, later) = self.0.drain(..).partition(|reply| reply.due_ms <= now_ms);
        self.0 = later;
        due
    }

    pub fn earliest_ms(&self) -> Option<u64> {
        self.0.iter().map(|reply| reply.due_ms).min()
    }
}
