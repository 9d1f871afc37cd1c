//! EVICT and LOAD on the side of the client: commands that list the buckets they mean.

use strongroom_bucket::KeyRange;

use super::{Client, Eviction, Outcome, Phase, Problem, Task, holder_of};
use crate::message::{
    Acknowledgement, BucketNumber, Content, Cut, NodeId, PARTS_MAX, Part, State, Verb,
};
use crate::union::{Holder, Union};

impl Client {
    /// The cut that is evicted or loaded, and its buckets.
    fn listed(&self) -> Option<(Cut, Vec<Part>)> {
        match (&self.task, &self.committed) {
            (Task::Evict { cut, parts } | Task::Load { cut, parts }, _) => {
                Some((*cut, parts.clone()))
            }
            (_, Some((cut, parts))) => Some((*cut, parts.iter().map(|part| part.part).collect())),
            _ => None,
        }
    }

    /// Lists those that have not answered, in as many commands as they need.
    pub(super) fn send_parts(&mut self) {
        let Some((cut, mut parts)) = self.listed() else { return };
        parts.retain(|part| !self.answers.contains_key(&holder(part)));
        for parts in parts.chunks(PARTS_MAX) {
            let parts = parts.to_vec();
            match self.phase {
                Phase::Loading => {
                    self.send(Verb::Load { cut, parts }, self.options.store_ms, Vec::new());
                }
                _ => self.send(Verb::Evict { cut, parts }, self.options.deadline_ms, Vec::new()),
            }
        }
    }

    /// An answer to EVICT or LOAD.
    pub(super) fn take_listed(&mut self, answer: &Acknowledgement) {
        let Some((_, parts)) = self.listed() else { return };
        if answer.state == State::Refused {
            if parts.iter().any(|part| part.node == answer.node) {
                self.note(answer, answer.reason.clone());
                self.begin_again();
            }
            return;
        }
        if !self.note_listed(answer) {
            return;
        }
        let is_complete = parts.iter().all(|part| self.answers.contains_key(&holder(part)));
        if self.phase == Phase::Evicting {
            if is_complete {
                self.end_eviction("it has not answered");
            }
        } else if self.not_loaded().is_empty() {
            self.loaded();
        } else if is_complete {
            self.end_period();
        }
    }

    /// Remembers an answer of a listed bucket, if it is its last. Returns whether it is.
    pub(super) fn note_listed(&mut self, answer: &Acknowledgement) -> bool {
        let Some((_, parts)) = self.listed() else { return false };
        let is_final = match self.phase {
            Phase::Loading => matches!(answer.state, State::Loaded | State::Failed),
            // It is late, and may be evicted later.
            Phase::Evicting if answer.state == State::Evicting => !answer.reason.is_empty(),
            _ => matches!(answer.state, State::Evicted | State::Changed | State::Failed),
        };
        let part = holder_of(answer).filter(|it| parts.iter().any(|part| holder(part) == *it));
        let Some(part) = part.filter(|_| is_final) else { return false };
        if !answer.reason.is_empty() {
            self.note(answer, answer.reason.clone());
        }
        self.answers.insert(part, answer.clone());
        true
    }

    /// Keys that are neither loaded nor in memory already, in buckets of no part.
    pub(super) fn not_loaded(&self) -> Vec<KeyRange> {
        let parts = self.listed().map_or_else(Vec::new, |(_, parts)| parts);
        let mut claims = self.present(|bucket| parts.iter().all(|part| part.bucket != bucket));
        // One that turned out to be filled keeps what it has.
        let is_there = |answer: &Acknowledgement| {
            let is_left = answer.state == State::Failed;
            answer.state == State::Loaded
                || is_left && answer.description.content == Content::Filled
        };
        let loaded = self.answers.values().filter(|answer| is_there(answer));
        claims.extend(loaded.filter_map(|answer| self.claim_of(answer)));
        Union::of(&claims).gaps
    }

    fn loaded(&mut self) {
        let Some((cut, _)) = self.listed() else { return };
        let answers = std::mem::take(&mut self.answers).into_values();
        let loaded = answers.filter(|answer| answer.state == State::Loaded).collect();
        self.finish(Outcome::Loaded { cut, answers: loaded });
    }

    /// All have answered, or the time is over, or the run is cancelled; `unanswered` is what is said of
    /// those that have not answered. The cut is committed in any case.
    pub(super) fn end_eviction(&mut self, unanswered: &str) {
        let Some((_, parts)) = self.listed() else { return };
        let mut eviction = Eviction::default();
        for part in parts {
            let answer = self.answers.get(&holder(&part));
            if answer.is_some_and(|answer| answer.state == State::Evicted) {
                eviction.evicted.push(part);
                continue;
            }
            let (node, bucket) = (part.node, Some(part.bucket));
            let known = self.problems.get(&(node, bucket)).or(self.problems.get(&(node, None)));
            let reason = match (answer.map(|answer| answer.state), known) {
                (Some(State::Changed), _) => "it changed since it was stored".to_owned(),
                (_, Some(problem)) => problem.reason.clone(),
                _ => unanswered.to_owned(),
            };
            let state = answer.map_or(State::Idle, |answer| answer.state);
            eviction.left.push(Problem { node, bucket, state, reason });
        }
        let outcome = match self.committed.take() {
            Some((cut, parts)) => Outcome::Stored { cut, parts, eviction: Some(eviction) },
            None => Outcome::Evicted(eviction),
        };
        self.finish(outcome);
    }

    /// Another node loads a bucket, from the next command on.
    pub(super) fn moved(&mut self, bucket: BucketNumber, node: NodeId) {
        if let Task::Load { parts, .. } = &mut self.task {
            for part in parts.iter_mut().filter(|part| part.bucket == bucket) {
                part.node = node;
            }
        }
    }
}

fn holder(part: &Part) -> Holder {
    Holder { bucket: part.bucket, node: part.node }
}
