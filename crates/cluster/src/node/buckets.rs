//! One bucket on a node: how far it is, and how it is let go.

use strongroom_base::SnapshotId;

use super::replies::Among;
use super::{Node, NodeEffect};
use crate::message::{
    Acknowledgement, BucketNumber, Content, Cut, Description, Epoch, RunId, State,
};
use crate::record::Kept;

/// What a node knows of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    /// Whether a program has it.
    pub is_attached: bool,
    /// What its program said last.
    pub description: Description,
    /// What its program said when it stopped in this epoch.
    pub stopped: Description,
    pub step: Step,
    /// The epoch that the step belongs to.
    pub epoch: Epoch,
    /// What it was stored as.
    pub snapshot: Option<SnapshotId>,
}

/// What a client hears of a program that does not end its callback. Nothing can be undone: it may have
/// freed a part.
const LATE: &str = "its program has not freed it before the deadline, and may still do so";

/// How far a bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// It is in this state, and no effect is under way.
    Rests(State),
    /// It failed, or what was asked is refused.
    Failed(String),
    Quiescing,
    Capturing,
    Storing,
    Comparing(Cut),
    Freeing {
        cut: Cut,
        /// From then on it is late.
        by_ms: u64,
    },
    Loading(Cut),
    /// It reaches this state when the record is on the disk.
    Saving(State),
}

impl Step {
    pub fn state(&self) -> State {
        match self {
            Self::Rests(state) => *state,
            Self::Failed(_) => State::Failed,
            Self::Quiescing => State::Preparing,
            Self::Capturing => State::Ready,
            Self::Storing | Self::Saving(State::Stored) => State::Captured,
            Self::Comparing(_) | Self::Freeing { .. } | Self::Saving(State::Evicted) => {
                State::Evicting
            }
            Self::Loading(_) | Self::Saving(_) => State::Loading,
        }
    }

    /// Whether the program is stopped, or being stopped, and goes on at the deadline.
    pub fn is_timed(&self) -> bool {
        matches!(
            self,
            Self::Quiescing | Self::Rests(State::Ready) | Self::Capturing | Self::Comparing(_)
        )
    }

    /// Whether it must end before another round can have the bucket: memory is half free or half
    /// loaded.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Freeing { .. } | Self::Loading(_))
            || matches!(self, Self::Saving(State::Evicted | State::Loaded))
    }

    /// Whether a client waits for this.
    pub fn is_news(&self) -> bool {
        matches!(self, Self::Rests(_) | Self::Failed(_) | Self::Storing)
    }
}

impl Bucket {
    /// One that a record has and no program so far.
    pub fn kept(kept: Kept) -> Self {
        let (state, epoch, snapshot) = match kept {
            Kept::Stored { epoch, snapshot } => (State::Stored, epoch, Some(snapshot)),
            Kept::Evicted(cut) => (State::Evicted, cut.epoch, None),
            Kept::Loaded(cut) => (State::Loaded, cut.epoch, None),
        };
        Self { step: Step::Rests(state), snapshot, ..Self::new(epoch) }
    }

    pub fn new(epoch: Epoch) -> Self {
        Self {
            is_attached: false,
            description: Description::default(),
            stopped: Description::default(),
            step: Step::Rests(State::Idle),
            epoch,
            snapshot: None,
        }
    }

    /// Whether clients hear of it.
    pub fn is_shown(&self) -> bool {
        self.is_attached || self.step.is_busy() || self.step.state() == State::Evicted
    }

    /// Whether it is known to hold keys, and what belongs to them.
    pub fn is_full(&self) -> bool {
        let Description { range, content, .. } = &self.description;
        self.is_attached && range.is_some() && *content == Content::Filled
    }

    /// Begins an epoch with nothing captured.
    pub fn enter(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.snapshot = None;
        self.stopped = self.description.clone();
    }
}

impl Node {
    /// Undoes what a round did to a bucket: the program goes on, and a copy that is not stored is
    /// forgotten. The bucket needs a step from the caller.
    pub(super) fn release(&mut self, number: BucketNumber) {
        let Some(bucket) = self.buckets.get(&number) else { return };
        let epoch = bucket.epoch;
        if matches!(bucket.step, Step::Capturing | Step::Storing) {
            self.effects.push(NodeEffect::Drop { bucket: number, epoch });
        }
        if bucket.step.is_timed() && bucket.is_attached {
            self.effects.push(NodeEffect::Resume { bucket: number });
        }
    }

    /// Releases a bucket, and says why.
    pub(super) fn fail(&mut self, number: BucketNumber, reason: impl Into<String>) {
        self.release(number);
        self.step(number, Step::Failed(reason.into()));
    }

    /// What is said of a bucket.
    pub(super) fn acknowledgement(
        &self,
        run: RunId,
        number: BucketNumber,
        among: Among,
    ) -> Option<Acknowledgement> {
        let bucket = self.buckets.get(&number)?;
        let state = bucket.step.state();
        let is_of_stop = matches!(
            state,
            State::Ready | State::Captured | State::Stored | State::Evicting | State::Evicted
        );
        let description = if is_of_stop { &bucket.stopped } else { &bucket.description };
        let reason = match &bucket.step {
            Step::Failed(reason) => reason.clone(),
            Step::Freeing { by_ms, .. } if *by_ms <= self.now_ms => LATE.to_owned(),
            _ => String::new(),
        };
        // One that is held up answers for the round that waits for it.
        let is_held_up = among == Among::Round && self.held_up().contains(&number);
        let round = self.round.as_ref().filter(|_| is_held_up);
        let epoch = round.map_or(bucket.epoch, |round| round.epoch);
        Some(Acknowledgement {
            bucket: Some(number),
            buckets: self.count(among),
            description: description.clone(),
            snapshot: bucket.snapshot.filter(|_| state == State::Stored),
            ..self.own_acknowledgement(run, epoch, state, reason)
        })
    }

    /// How many buckets are answered for.
    fn count(&self, among: Among) -> u16 {
        let count = match among {
            Among::All => self.buckets.values().filter(|bucket| bucket.is_shown()).count(),
            Among::Round => self.members().len() + self.held_up().len(),
        };
        u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// What the node says of itself.
    pub(super) fn own_acknowledgement(
        &self,
        run: RunId,
        epoch: Epoch,
        state: State,
        reason: String,
    ) -> Acknowledgement {
        Acknowledgement {
            run,
            epoch,
            node: self.options.node,
            highest: self.highest,
            bucket: None,
            buckets: 0,
            state,
            description: Description::default(),
            snapshot: None,
            reason,
        }
    }
}
