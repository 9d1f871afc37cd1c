//! A run that is cancelled: it sends ABORT a few times, so that programs go on before their deadline,
//! and ends. It does not while it commits: what is committed is reported.

use super::{Client, ClientEffect, Outcome, Phase};
use crate::message::Verb;

/// How many times a run that is cancelled sends ABORT, which no node answers.
const CANCEL_SENDS: u32 = 3;

impl Client {
    /// Ends the run early. The caller calls it for as long as it wants that: a cut that is being
    /// committed is not given up.
    pub fn cancel(&mut self, now_ms: u64) -> Vec<ClientEffect> {
        self.go_to(now_ms);
        match self.phase {
            Phase::Committing | Phase::Cancelling { .. } | Phase::Finished => {}
            // No node has heard of this epoch. Of one before, ABORT was sent.
            Phase::Asking { .. } | Phase::Keeping => self.end_cancelled(),
            _ => self.enter(Phase::Cancelling { sends_left: CANCEL_SENDS }),
        }
        std::mem::take(&mut self.effects)
    }

    pub(super) fn send_abort(&mut self, sends_left: u32) {
        self.send(Verb::Abort, 0, Vec::new());
        self.phase = Phase::Cancelling { sends_left: sends_left - 1 };
    }

    /// Ends a run that was cancelled. What was freed, and what is committed, is reported.
    pub(super) fn end_cancelled(&mut self) {
        if self.is_before_eviction() {
            self.finish(Outcome::Cancelled);
        } else {
            self.end_eviction("the run was cancelled before it answered");
        }
    }
}
