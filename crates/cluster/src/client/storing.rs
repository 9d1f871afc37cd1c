//! PREPARE and CUT on the side of the client: from the first answer to the committed cut.

use strongroom_base::SnapshotId;

use super::{
    Client, ClientEffect, ClusterError, Outcome, Phase, Problem, StoredPart, Task, holder_of,
    is_captured,
};
use crate::message::{Acknowledgement, BucketNumber, Cut, Part, State, Verb};
use crate::union::Union;

/// How often PREPARE is sent while claims contradict each other. Programs are stopped meanwhile, so
/// a split that is half done ends only if they go on.
const DOUBTFUL_SENDS_MAX: u32 = 3;

impl Client {
    pub(super) fn send_prepare(&mut self) {
        let union = Union::of(&self.claims(|_| true));
        if !union.overlaps.is_empty() {
            self.doubtful_sends += 1;
            if self.doubtful_sends > DOUBTFUL_SENDS_MAX {
                self.overlaps = union.overlaps;
                return self.begin_again();
            }
        }
        let doubted = union.doubted();
        // By number: another node may claim the same bucket.
        let is_doubted = |bucket| doubted.iter().any(|holder| holder.bucket == bucket);
        let believed = self.answers.keys().filter(|holder| !is_doubted(holder.bucket));
        let answered: Vec<BucketNumber> = believed.map(|holder| holder.bucket).collect();
        self.overlaps = union.overlaps;
        let left_ms = self.period_end_ms.saturating_sub(self.now_ms);
        let deadline_ms = u32::try_from(left_ms).unwrap_or(self.options.deadline_ms);
        self.send(Verb::Prepare, deadline_ms, answered);
    }

    /// Who has reached the state need not answer again.
    pub(super) fn send_cut(&mut self, reached: State) {
        let is_done =
            |answer: &Acknowledgement| answer.state == reached || answer.state == State::Stored;
        let done = self.answers.iter().filter(|(_, answer)| is_done(answer));
        let answered = done.map(|(holder, _)| holder.bucket).collect();
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
                if Union::of(&self.claims(|_| true)).is_whole() {
                    self.overlaps.clear();
                    // A bucket without keys is stopped as well; there is nothing to capture.
                    self.answers.retain(|_, answer| answer.description.range.is_some());
                    self.enter(Phase::Cutting);
                }
            }
            _ => {}
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
        let Some(member) = holder_of(answer).and_then(|holder| self.answers.get_mut(&holder))
        else {
            return;
        };
        let is_same = member.description.range == answer.description.range
            && member.description.split_version == answer.description.split_version;
        match answer.state {
            State::Failed | State::Refused => self.lose(answer, answer.reason.clone()),
            State::Captured | State::Stored if !is_same => {
                self.lose(answer, "its range is not the one that it was ready with".to_owned());
            }
            State::Captured | State::Stored => {
                if member.state != State::Stored {
                    member.clone_from(answer);
                }
                self.advance();
            }
            _ => {}
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
