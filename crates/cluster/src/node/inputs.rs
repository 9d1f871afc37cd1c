//! What results of effects, and what programs do, mean for a node.

use super::buckets::{Bucket, Step};
use super::replies::About;
use super::rounds::{Kind, Round};
use super::{Node, NodeEffect, NodeInput, Then};
use crate::message::{BucketNumber, Content, Description, Epoch, State};
use crate::record::Kept;

/// Buckets of one file on a node at most: a round remembers each that took part in it.
const BUCKETS_MAX: usize = 4_096;

impl Node {
    pub(super) fn take(&mut self, input: NodeInput) {
        match input {
            NodeInput::Persisted { number } => self.persisted(number),
            NodeInput::NotPersisted { number, reason } => self.not_persisted(number, &reason),
            NodeInput::Attached { bucket, description } => self.attached(bucket, description),
            NodeInput::Described { bucket, description } => self.described(bucket, description),
            NodeInput::Detached { bucket } => self.detached(bucket),
            NodeInput::Quiesced { bucket, epoch, description } => {
                if self.is_at(bucket, epoch, |step| *step == Step::Quiescing) {
                    self.quiesced(bucket, description);
                }
            }
            NodeInput::Captured { bucket, epoch, description } => {
                if self.is_at(bucket, epoch, |step| *step == Step::Capturing) {
                    self.captured(bucket, epoch, &description);
                }
            }
            NodeInput::Stored { bucket, epoch, snapshot } => {
                if self.is_at(bucket, epoch, |step| *step == Step::Storing) {
                    self.entry(bucket).snapshot = Some(snapshot);
                    self.step(bucket, Step::Saving(State::Stored));
                    self.keep(bucket, epoch, Kept::Stored { epoch, snapshot }, State::Stored);
                }
            }
            NodeInput::Compared { bucket, epoch, is_equal } => {
                self.compared(bucket, epoch, is_equal);
            }
            NodeInput::Freed { bucket, epoch } => self.freed(bucket, epoch),
            NodeInput::Loaded { bucket, epoch, description } => {
                self.loaded(bucket, epoch, description);
            }
            NodeInput::Failed { bucket, epoch, reason } => self.failed(bucket, epoch, reason),
        }
    }

    fn is_at(&self, number: BucketNumber, epoch: Epoch, step: impl Fn(&Step) -> bool) -> bool {
        let bucket = self.buckets.get(&number).filter(|bucket| bucket.epoch == epoch);
        bucket.is_some_and(|bucket| step(&bucket.step))
    }

    fn entry(&mut self, number: BucketNumber) -> &mut Bucket {
        self.buckets.entry(number).or_insert_with(|| Bucket::new(Epoch::default()))
    }

    fn persisted(&mut self, number: u64) {
        while self.writes.front().is_some_and(|write| write.number <= number) {
            let Some(write) = self.writes.pop_front() else { return };
            self.highest = self.highest.max(write.epoch);
            match write.then {
                Then::Begin(round) => self.begin(round),
                Then::Reach(bucket, epoch, state) => {
                    if self.is_at(bucket, epoch, |step| *step == Step::Saving(state)) {
                        self.step(bucket, Step::Rests(state));
                    }
                }
                Then::Nothing => {}
            }
        }
    }

    fn not_persisted(&mut self, number: u64, reason: &str) {
        let Some(at) = self.writes.iter().position(|write| write.number == number) else { return };
        let Some(write) = self.writes.remove(at) else { return };
        let reason = format!("the node's record could not be written: {reason}");
        match write.then {
            Then::Reach(bucket, epoch, state) => {
                if self.is_at(bucket, epoch, |step| *step == Step::Saving(state)) {
                    self.step(bucket, Step::Failed(reason));
                }
            }
            // The epoch is used up, whether or not the disk has it: a client takes a higher one.
            Then::Begin(round) => {
                let about = About::Node { epoch: round.epoch, state: State::Refused, reason };
                self.reply(round.controller, round.run, about);
            }
            Then::Nothing => {}
        }
    }

    fn attached(&mut self, number: BucketNumber, description: Description) {
        if self.buckets.len() >= BUCKETS_MAX && !self.buckets.contains_key(&number) {
            return;
        }
        if self.buckets.get(&number).is_some_and(|bucket| bucket.is_attached) {
            self.detached(number);
        }
        // What the record says of a bucket without a program is over once it has one again.
        match self.record.kept.get(&number) {
            Some(Kept::Evicted(_)) => _ = self.record.kept.remove(&number),
            Some(Kept::Loaded(_)) if description.range.is_none() => {
                self.record.kept.remove(&number);
            }
            _ => {}
        }
        let bucket = self.entry(number);
        bucket.is_attached = true;
        bucket.description = description;
        if bucket.step == Step::Rests(State::Evicted) {
            bucket.step = Step::Rests(State::Idle);
        }
        if self.round.as_ref().is_some_and(Round::is_storing) {
            self.quiesce(number);
        }
    }

    fn described(&mut self, number: BucketNumber, description: Description) {
        let Some(bucket) = self.buckets.get_mut(&number) else { return };
        let is_stopped = bucket.step.is_timed() && bucket.step != Step::Quiescing;
        let is_same = is_same_part(&bucket.stopped, &description);
        bucket.description = description;
        if is_stopped && !is_same {
            self.fail(number, "its program changed its range while it was stopped");
        }
    }

    fn detached(&mut self, number: BucketNumber) {
        let Some(bucket) = self.buckets.get_mut(&number) else { return };
        bucket.is_attached = false;
        bucket.description.content = Content::Unknown;
        if bucket.step.is_timed() {
            self.fail(number, "its program ended");
        }
        self.forget_gone();
    }

    /// Programs may come and go with any number of buckets: of those that are gone, only what a round
    /// or the record knows is kept.
    pub(super) fn forget_gone(&mut self) {
        let epoch = self.round.as_ref().map(|round| round.epoch);
        let kept = &self.record.kept;
        self.buckets.retain(|number, bucket| {
            let is_of_round = epoch == Some(bucket.epoch) || bucket.step.is_busy();
            bucket.is_attached || is_of_round || kept.contains_key(number)
        });
    }

    fn quiesced(&mut self, number: BucketNumber, description: Description) {
        let is_valid = description.range.as_ref().is_none_or(|range| range.is_valid());
        let is_empty = description.range.is_some() && description.content == Content::Empty;
        let bucket = self.entry(number);
        bucket.stopped = description.clone();
        bucket.description = description;
        if !is_valid {
            return self.fail(number, "its program gave a range that holds no key");
        }
        let Some(round) = &self.round else { return };
        let epoch = round.epoch;
        match (round.kind, self.record.kept.get(&number)) {
            (Kind::Evict(cut), Some(Kept::Stored { epoch: stored, snapshot }))
                if *stored == cut.epoch =>
            {
                let snapshot = *snapshot;
                self.step(number, Step::Comparing(cut));
                self.effects.push(NodeEffect::Compare { bucket: number, epoch, snapshot });
            }
            // Zeros are nothing that anybody wants back in the place of what was stored.
            (Kind::Store { takes_empty: false }, _) if is_empty => {
                self.release(number);
                self.step(number, Step::Rests(State::Empty));
            }
            (Kind::Store { .. }, _) => self.step(number, Step::Rests(State::Ready)),
            _ => self.fail(number, "it is not stored here for this cut"),
        }
    }

    /// The program goes on at once: what it held is copied.
    fn captured(&mut self, number: BucketNumber, epoch: Epoch, description: &Description) {
        let bucket = self.entry(number);
        if !is_same_part(&bucket.stopped, description) {
            return self.fail(number, "its program changed its range while it was stopped");
        }
        bucket.stopped.bytes = description.bytes;
        self.effects.push(NodeEffect::Resume { bucket: number });
        self.effects.push(NodeEffect::Store { bucket: number, epoch });
        self.step(number, Step::Storing);
    }

    fn compared(&mut self, number: BucketNumber, epoch: Epoch, is_equal: bool) {
        let bucket = self.buckets.get(&number).filter(|bucket| bucket.epoch == epoch);
        let Some(Step::Comparing(cut)) = bucket.map(|bucket| bucket.step.clone()) else { return };
        if is_equal {
            let by_ms = self.now_ms + self.round.as_ref().map_or(0, |round| round.wait_ms).max(1);
            self.step(number, Step::Freeing { cut, by_ms });
            return self.effects.push(NodeEffect::Free { bucket: number, epoch });
        }
        self.release(number);
        self.step(number, Step::Rests(State::Changed));
    }

    fn freed(&mut self, number: BucketNumber, epoch: Epoch) {
        let bucket = self.buckets.get_mut(&number).filter(|bucket| bucket.epoch == epoch);
        let Some(bucket) = bucket else { return };
        let Step::Freeing { cut, .. } = bucket.step else { return };
        bucket.is_attached = false;
        bucket.description.content = Content::Unknown;
        self.step(number, Step::Saving(State::Evicted));
        self.keep(number, epoch, Kept::Evicted(cut), State::Evicted);
    }

    fn loaded(&mut self, number: BucketNumber, epoch: Epoch, description: Description) {
        let bucket = self.buckets.get_mut(&number).filter(|bucket| bucket.epoch == epoch);
        let Some(bucket) = bucket else { return };
        let Step::Loading(cut) = bucket.step else { return };
        bucket.is_attached = true;
        bucket.description = description;
        self.step(number, Step::Saving(State::Loaded));
        self.keep(number, epoch, Kept::Loaded(cut), State::Loaded);
    }

    fn failed(&mut self, number: BucketNumber, epoch: Epoch, reason: String) {
        if !self.is_at(number, epoch, |_| true) {
            return;
        }
        match self.buckets[&number].step {
            Step::Freeing { .. } => {
                self.effects.push(NodeEffect::Resume { bucket: number });
                self.step(number, Step::Failed(reason));
            }
            Step::Rests(State::Ready) | Step::Loading(_) | Step::Storing => {
                self.fail(number, reason);
            }
            Step::Quiescing | Step::Capturing | Step::Comparing(_) => self.fail(number, reason),
            _ => {}
        }
    }
}

/// Whether two descriptions are of the same keys. Bytes may differ: they are counted by capturing.
fn is_same_part(one: &Description, other: &Description) -> bool {
    one.range == other.range && one.split_version == other.split_version
}
