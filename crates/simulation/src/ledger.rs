//! What was promised: which backups were acknowledged, which snapshots a person asked to forget, and
//! what was reported. The judge compares it with what there is in the end.

use std::sync::Arc;

use strongroom_base::SnapshotId;

/// A backup that was begun.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// What it stores.
    pub content: Arc<[u8]>,
    /// What its writer reported.
    pub report: Report,
    /// What a person wished.
    pub wish: Wish,
    /// How often that changed.
    pub wishes: u32,
    /// A wish to keep it was sent and not answered: it may come later than one to forget it.
    pub is_wanted_back: bool,
}

/// What a writer reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Nothing: it is at work, or was killed, or does not know.
    Nothing,
    /// The snapshot is there.
    Committed(SnapshotId),
    /// There is no snapshot.
    Failed(String),
}

/// What a person wished for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Keep,
    /// That it be forgotten, or not after all, and that was not answered.
    Asked,
    /// That it be forgotten, and that was answered.
    Forget,
    /// That it be kept after all, and that was answered.
    TakenBack,
}

/// All attempts, by the number that is their snapshot's label.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The attempts.
    pub attempts: Vec<Attempt>,
    /// What went wrong.
    pub losses: Vec<String>,
    /// What was done, for the summary.
    pub counts: Counts,
}

/// What schedules did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Backups that were acknowledged.
    pub commits: u64,
    /// Backups that found their session ended by a collector.
    pub fenced: u64,
    /// Backups that do not know whether they committed.
    pub unknown: u64,
    /// Backups that stored a chunk as a delta.
    pub with_deltas: u64,
    /// Verdicts.
    pub verdicts: u64,
    /// Slots that they name; an arena that goes whole counts once.
    pub slots: u64,
    /// Snapshots that they forgot.
    pub forgotten: u64,
    /// Wishes that were taken back.
    pub taken_back: u64,
    /// Collections that waited for a session.
    pub waited: u64,
    /// Snapshots that were read back.
    pub read_back: u64,
}

impl Counts {
    /// Adds those of another schedule.
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.fenced += other.fenced;
        self.unknown += other.unknown;
        self.with_deltas += other.with_deltas;
        self.verdicts += other.verdicts;
        self.slots += other.slots;
        self.forgotten += other.forgotten;
        self.taken_back += other.taken_back;
        self.waited += other.waited;
        self.read_back += other.read_back;
    }
}

impl Attempt {
    /// A backup that begins.
    pub fn new(content: Vec<u8>) -> Self {
        let (report, wish) = (Report::Nothing, Wish::Keep);
        Self { content: content.into(), report, wish, wishes: 0, is_wanted_back: false }
    }

    /// Changes the wish.
    pub fn wish(&mut self, wish: Wish) {
        self.wish = wish;
        self.wishes += 1;
    }

    /// Whether a verdict may name its snapshot.
    pub fn may_go(&self) -> bool {
        matches!(self.wish, Wish::Asked | Wish::Forget)
    }

    /// Its snapshot, if it was acknowledged.
    pub fn committed(&self) -> Option<SnapshotId> {
        match self.report {
            Report::Committed(id) => Some(id),
            _ => None,
        }
    }
}

impl Ledger {
    /// The label of the next attempt.
    pub fn begin(&mut self, content: Vec<u8>) -> usize {
        self.attempts.push(Attempt::new(content));
        self.attempts.len() - 1
    }

    /// Takes note of something that must not be.
    pub fn lose(&mut self, what: String) {
        self.losses.push(what);
    }
}
