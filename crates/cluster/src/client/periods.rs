//! Epochs, rounds and deadlines on the side of the client: when a round begins, when it is given up,
//! and what is missing when the time is over.

use std::collections::BTreeSet;

use strongroom_bucket::KeyRange;

use super::{BACKOFF_MS, Client, ClientEffect, ClusterError, Phase, Problem, Task, is_captured};
use crate::message::{Epoch, NodeId, State, Verb};
use crate::union::{Claim, Union};

/// What is said of a node that may have keys that no answer has named.
const SILENT: &str = "it does not say what it has, and that may be keys that others have as well: \
    start its agent, or leave it out with --without if it is lost";

impl Client {
    pub(super) fn period_ms(&self) -> u32 {
        match self.task {
            Task::Status | Task::Store { .. } if self.committed.is_none() => {
                self.options.deadline_ms
            }
            _ => self.options.store_ms,
        }
    }

    pub(super) fn is_before_eviction(&self) -> bool {
        self.committed.is_none() && !matches!(self.task, Task::Evict { .. })
    }

    /// Takes an epoch above all that are known. It is on the disk before it is used.
    pub(super) fn take_epoch(&mut self) {
        let Some(next) = self.highest.max(self.epoch).0.checked_add(1) else {
            return self.give_up(ClusterError::EpochsUsedUp { file: self.file.clone() });
        };
        self.epoch = Epoch(next);
        self.phase = Phase::Keeping;
        self.effects.push(ClientEffect::KeepEpoch(self.epoch));
    }

    /// The epoch is kept: its round begins.
    pub(super) fn begin(&mut self) {
        self.answers.clear();
        self.roll.clear();
        self.begun_at_ms = self.now_ms;
        if self.period_end_ms == u64::MAX {
            self.period_end_ms = self.now_ms + u64::from(self.period_ms());
        }
        self.doubtful_sends = 0;
        let phase = match self.task {
            Task::Evict { .. } => Phase::Evicting,
            Task::Load { .. } => Phase::Loading,
            Task::Status | Task::Store { .. } if self.committed.is_some() => Phase::Evicting,
            Task::Status | Task::Store { .. } => Phase::Preparing,
        };
        self.enter(phase);
    }

    /// Gives a round up, and begins another one after a while.
    pub(super) fn begin_again(&mut self) {
        if self.is_before_eviction() && self.epoch > Epoch::default() {
            self.send(Verb::Abort, 0, Vec::new());
        }
        let wait_ms = u64::from(self.rest_ms) + self.chance.up_to(self.rest_ms);
        let rest_max_ms = BACKOFF_MS.1.min(self.options.deadline_ms / 4);
        self.rest_ms = (self.rest_ms * 2).min(rest_max_ms);
        self.phase = Phase::Resting { until_ms: self.now_ms + wait_ms };
    }

    /// Nodes are asked again what they have.
    pub(super) fn ask(&mut self) {
        self.known.clear();
        self.roll.clear();
        let until_ms = self.now_ms + u64::from(self.options.ask_ms);
        self.enter(Phase::Asking { until_ms });
    }

    /// Some nodes have not said what they have. They are waited for until the deadline, while no program
    /// is stopped.
    pub(super) fn await_silent(&mut self) {
        if self.now_ms >= self.period_end_ms {
            return self.end_period();
        }
        self.period_end_ms = self.now_ms + u64::from(self.options.deadline_ms);
        self.phase = Phase::Asking { until_ms: self.period_end_ms };
    }

    /// Names nodes of which not all is known.
    fn note_silent(&mut self) {
        let silent = self.silent().into_iter().chain(self.roll.incomplete());
        for node in silent.collect::<BTreeSet<NodeId>>() {
            let reason = SILENT.to_owned();
            let problem = Problem { node, bucket: None, state: State::Idle, reason };
            self.problems.entry((node, None)).or_insert(problem);
        }
    }

    /// The deadline passed: what is missing is recovered if another one follows.
    pub(super) fn end_period(&mut self) {
        let missing = self.missing();
        if matches!(self.task, Task::Store { .. }) {
            self.note_silent();
        }
        if self.periods_left <= 1 {
            let problems = std::mem::take(&mut self.problems).into_values().collect();
            let overlaps = Union::of(&self.heard_claims()).overlaps;
            let file = self.file.clone();
            return self.give_up(ClusterError::Incomplete { file, missing, overlaps, problems });
        }
        self.periods_left -= 1;
        for range in missing {
            if self.recovered.insert(range.clone()) {
                self.effects.push(ClientEffect::Recover(range));
            }
        }
        self.rest_ms = BACKOFF_MS.0;
        self.begin_again();
        self.asks_again = matches!(self.task, Task::Store { .. });
        self.heard.clear();
        self.period_end_ms = u64::MAX;
    }

    /// What was claimed in this period.
    fn heard_claims(&self) -> Vec<Claim> {
        self.heard.values().cloned().collect()
    }

    /// Keys that were not heard of in this period; if all were, those that the present round lacks,
    /// unless it is young.
    pub(super) fn missing(&self) -> Vec<KeyRange> {
        if self.phase == Phase::Loading || matches!(self.task, Task::Load { .. }) {
            return self.not_loaded();
        }
        if let Phase::Asking { .. } = self.phase {
            return Union::unclaimed(&self.present(|_| true));
        }
        let unheard = Union::unclaimed(&self.heard_claims());
        let age_ms = self.now_ms - self.begun_at_ms;
        let is_young = age_ms < u64::from(self.options.deadline_ms / 2);
        if !unheard.is_empty() || is_young {
            return unheard;
        }
        match self.phase {
            Phase::Preparing => Union::unclaimed(&self.claims(|_| true)),
            Phase::Cutting => Union::unclaimed(&self.claims(is_captured)),
            _ => Vec::new(),
        }
    }
}
