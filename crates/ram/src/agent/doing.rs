//! What can be done with a bucket, and how far it is.

use std::sync::Arc;

use strongroom_base::SnapshotId;
use strongroom_bucket::KeyRange;
use strongroom_cluster::Epoch;

use super::gate::Gate;
use crate::about::{About, VersionText};
use crate::counts::Counted;
use crate::keeper::Areas;

/// The keys of a bucket, and how many splits led to them.
pub type Keys = (Option<KeyRange>, u64);

/// What can be done with a bucket.
#[derive(Debug, Clone)]
pub enum Work {
    /// Its program wants a version stored.
    Version {
        /// The number of its request.
        request: u32,
        /// What it is called.
        version: VersionText,
        /// The areas, as they were when it was asked for: the program may have registered others since,
        /// which it never copied for this version.
        areas: Arc<Areas>,
        /// The keys that the bucket had then.
        keys: Keys,
    },
    /// Its program wants areas filled.
    Load {
        /// The number of its request.
        request: u32,
        /// From this version.
        version: VersionText,
        /// The areas; all if there are none.
        areas: Vec<String>,
    },
    /// Its program wants to be rid of it.
    Evict {
        /// The number of its request.
        request: u32,
    },
    /// A round stores it.
    Round(Epoch),
    /// A round wants its program to hold still, to evict it.
    HoldStill(Epoch),
    /// A round loads it.
    RoundLoad {
        /// The round.
        epoch: Epoch,
        /// From this snapshot.
        snapshot: SnapshotId,
    },
}

/// What is done with a bucket.
pub struct Doing {
    /// Which job does it.
    pub job: u64,
    /// What it is.
    pub work: Work,
    /// Lets the job go on, or ends it.
    pub gate: Arc<Gate>,
    /// It is one of its user's, once it has a job. One after the other, and what looks beside it, are one.
    pub counted: Option<Arc<Counted>>,
    /// The areas that the job works on.
    pub areas: Arc<Areas>,
    /// The areas are shadows that do not change until they are captured.
    pub is_copy: bool,
    /// Its program said that it holds still.
    pub is_still: bool,
    /// The job that looks whether the areas hold anything.
    pub looking: Option<u64>,
    /// What a round does as soon as no store reads the areas.
    pub next: Option<Next>,
    /// Its program was asked to free its memory.
    pub is_freeing: bool,
    /// It was captured, and its program heard of it.
    pub is_captured: bool,
    /// Its program went on after it held still by this question, and waits to hear that its shadows are
    /// no longer read.
    pub reading: Option<u64>,
    /// What was stored, for an eviction.
    pub stored: Option<SnapshotId>,
    /// What was loaded.
    pub loaded: Option<Box<About>>,
}

/// What has the areas for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// They are filled from a snapshot.
    Fill(SnapshotId),
    /// They are freed.
    Free,
}

impl Doing {
    /// A beginning.
    pub fn new(job: u64, work: Work, gate: Arc<Gate>, is_copy: bool) -> Self {
        Self {
            job,
            work,
            gate,
            counted: None,
            areas: Arc::default(),
            is_copy,
            is_still: false,
            looking: None,
            next: None,
            is_freeing: false,
            is_captured: false,
            reading: None,
            stored: None,
            loaded: None,
        }
    }

    /// Whether it is a round's store.
    pub fn is_storing(&self, epoch: Epoch) -> bool {
        matches!(self.work, Work::Round(of) if of == epoch)
    }

    /// Whether it is a round's eviction.
    pub fn is_evicting(&self, epoch: Epoch) -> bool {
        matches!(self.work, Work::HoldStill(of) if of == epoch)
    }
}

impl Work {
    /// Whether a round wants it, and not the program.
    pub fn is_of_round(&self) -> bool {
        matches!(self, Self::Round(_) | Self::HoldStill(_) | Self::RoundLoad { .. })
    }
}
