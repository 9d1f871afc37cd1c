//! PREPARE and CUT on the side of the client: from the first answer to the committed cut.

use std::collections::BTreeSet;

use strongroom_base::SnapshotId;

use super::{
    Client, ClientEffect, ClusterError, Outcome, Phase, Problem, StoredPart, Task, holder_of,
    is_captured,
};
use crate::message::{Acknowledgement, Cut, NodeId, Part, State, Verb};
use crate::union::Union;

/// How often PREPARE is sent while claims contradict each other. Programs are stopped meanwhile, so
/// a split that is half done ends only if they go on.
const DOUBTFUL_SENDS_MAX: u32 = 3;

/// Why a bucket that has keys is not stored.
const EMPTY: &str = "it is empty: load it with `strongroom ram cluster load`, or store its zeros with \
    --accept-empty";
const LATE_CLAIM: &str =
    "it claims keys that other buckets have, and said so only after the others";

impl Client {
    pub(super) fn send_prepare(&mut self) {
        let union = Union::of(&self.claims(|_| true));
        if !union.overlaps.is_empty() {
            self.doubtful_sends += 1;
            if self.doubtful_sends > DOUBTFUL_SENDS_MAX {
                return self.begin_again();
            }
        }
        let doubted = union.doubted();
        let is_doubted = |node| doubted.iter().any(|holder| holder.node == node);
        let answered = self.roll.answered(|node| !is_doubted(node));
        let left_ms = self.period_end_ms.saturating_sub(self.now_ms);
        let deadline_ms = u32::try_from(left_ms).unwrap_or(self.options.deadline_ms);
        let verb = if self.options.takes_empty { Verb::PrepareAll } else { Verb::Prepare };
        self.send(verb, deadline_ms, answered);
    }

    /// Nodes whose buckets have all reached the state need not answer again.
    pub(super) fn send_cut(&mut self, reached: State) {
        let is_done =
            |answer: &Acknowledgement| answer.state == reached || answer.state == State::Stored;
        let late = self.answers.values().filter(|answer| !is_done(answer));
        let late: BTreeSet<NodeId> = late.map(|answer| answer.node).collect();
        let answered = self.roll.answered(|node| !late.contains(&node));
        self.send(Verb::Cut, self.options.deadline_ms, answered);
    }

    /// An answer to PREPARE.
    pub(super) fn take_ready(&mut self, answer: &Acknowledgement) {
        match (answer.state, holder_of(answer)) {
            (State::Refused | State::Failed, _) => {
                self.note(answer, answer.reason.clone());
                self.begin_again();
            }
            (State::Ready, Some(holder)) => {
                self.problems.remove(&(answer.node, answer.bucket));
                self.answers.insert(holder, answer.clone());
                self.roll.note(answer, true);
                self.cut_if_all_is_heard();
            }
            (State::Empty, Some(_)) => {
                self.note(answer, EMPTY.to_owned());
                self.roll.note(answer, true);
                self.cut_if_all_is_heard();
            }
            // An earlier round has freed it meanwhile: it holds nothing.
            (State::Evicted, Some(_)) => {
                self.roll.note(answer, true);
                self.cut_if_all_is_heard();
            }
            // Its program does not hold still yet, or the node has none.
            _ => {
                self.roll.note(answer, false);
                self.cut_if_all_is_heard();
            }
        }
    }

    /// A claim that comes later could contradict those that are here, so each node is heard to its end.
    fn cut_if_all_is_heard(&mut self) {
        let is_all_heard = self.silent().is_empty() && self.roll.incomplete().next().is_none();
        if is_all_heard && Union::of(&self.claims(|_| true)).is_whole() {
            // A bucket without keys is stopped as well; there is nothing to capture.
            self.answers.retain(|_, answer| answer.description.range.is_some());
            self.enter(Phase::Cutting);
        }
    }

    /// An answer to CUT. Only those count that were in the union when CUT was sent.
    pub(super) fn take_stored(&mut self, answer: &Acknowledgement) {
        if answer.bucket.is_none() {
            let is_member = self.answers.keys().any(|holder| holder.node == answer.node);
            if answer.state == State::Refused && is_member {
                self.lose(answer, answer.reason.clone());
            }
            return;
        }
        let Some(holder) = holder_of(answer) else { return };
        let Some(member) = self.answers.get(&holder) else {
            // The union is whole, so all that it claims, another bucket has.
            if self.claim_of(answer).is_some() {
                return self.lose(answer, LATE_CLAIM.to_owned());
            }
            self.roll.note(answer, true);
            return self.advance();
        };
        let is_same = member.description.range == answer.description.range
            && member.description.split_version == answer.description.split_version;
        match answer.state {
            State::Failed | State::Refused => self.lose(answer, answer.reason.clone()),
            State::Captured | State::Stored if !is_same => {
                self.lose(answer, "its range is not the one that it was ready with".to_owned());
            }
            State::Captured | State::Stored => {
                self.roll.note(answer, true);
                if member.state != State::Stored {
                    self.answers.insert(holder, answer.clone());
                }
                self.advance();
            }
            _ => self.roll.note(answer, false),
        }
    }

    /// A bucket of the union did not capture or store.
    fn lose(&mut self, answer: &Acknowledgement, reason: String) {
        self.note(answer, reason);
        if self.phase == Phase::Storing {
            return self.not_stored();
        }
        self.begin_again();
    }

    fn advance(&mut self) {
        // A bucket that joined just before CUT has said nothing yet.
        if self.roll.incomplete().next().is_some() {
            return;
        }
        if self.phase == Phase::Cutting && self.answers.values().all(is_captured) {
            self.period_end_ms = self.now_ms + u64::from(self.options.store_ms);
            self.enter(Phase::Storing);
        }
        let parts: Option<Vec<StoredPart>> = self.answers.values().map(stored_part).collect();
        if let (Phase::Storing, Some(parts)) = (self.phase, parts) {
            self.phase = Phase::Committing;
            self.effects.push(ClientEffect::Commit { epoch: self.epoch, parts });
        }
    }

    /// The time to store is over, or a bucket said that it cannot.
    pub(super) fn not_stored(&mut self) {
        let late = self.answers.values().filter(|answer| answer.state != State::Stored);
        let late: Vec<Acknowledgement> = late.cloned().collect();
        for answer in late {
            if !self.problems.contains_key(&(answer.node, answer.bucket)) {
                self.note(&answer, "it has not said that it is stored".to_owned());
            }
        }
        let problems: Vec<Problem> = std::mem::take(&mut self.problems).into_values().collect();
        let (file, epoch) = (self.file.clone(), self.epoch);
        self.give_up(ClusterError::NotStored { file, epoch, problems });
    }

    pub(super) fn committed(&mut self, snapshot: SnapshotId) {
        let cut = Cut { epoch: self.epoch, snapshot };
        let parts: Vec<StoredPart> = self.answers.values().filter_map(stored_part).collect();
        self.problems.clear();
        if self.task == (Task::Store { evicts: true }) {
            self.committed = Some((cut, parts));
            self.period_end_ms = u64::MAX;
            return self.take_epoch();
        }
        self.finish(Outcome::Stored { cut, parts, eviction: None });
    }
}

fn stored_part(answer: &Acknowledgement) -> Option<StoredPart> {
    let (bucket, snapshot) = (answer.bucket?, answer.snapshot?);
    let part = Part { bucket, node: answer.node, snapshot };
    let is_stored = answer.state == State::Stored;
    let description = answer.description.clone();
    is_stored.then_some(StoredPart { part, description })
}
