//! Snapshots: what one backup kept.

use strongroom_base::{SnapshotId, Timestamp};

use crate::reference::Recipe;

/// What one backup kept, and where and when it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name: that of the session that made it.
    pub id: SnapshotId,
    /// One more than the greatest sequence that its writer knew of. It orders snapshots; clocks do
    /// not, because they may be wrong.
    pub sequence: u64,
    /// When the backup began. Dates on the command line mean this one.
    pub started: Timestamp,
    /// When it was committed.
    pub ended: Timestamp,
    /// The name of the domain that made it; empty for the owner's.
    pub domain: String,
    /// The machine. When a snapshot of another domain than the owner's is read, this begins with
    /// that domain's name: a domain speaks only for itself.
    pub host: String,
    /// Who ran the backup.
    pub user: String,
    /// The paths that were to be backed up, absolute, any bytes.
    pub paths: Vec<Vec<u8>>,
    /// Labels that the user gave it.
    pub labels: Vec<String>,
    /// The snapshot from which unchanged files were taken over.
    pub parent: Option<SnapshotId>,
    /// The tree of `/`.
    pub root: Recipe,
    /// Whether the backup was stopped before its end.
    pub partial: bool,
    /// As an entry's `partial`: part of the content of `/` is not in its tree.
    pub root_partial: bool,
    /// Its numbers.
    pub stats: SnapshotStats,
    /// Name and version of the program that made it.
    pub program: String,
    /// What it holds that a collector must know, by number; a reader may pass over it.
    pub features: Vec<u64>,
    /// The greatest collection that its writer knew of; 0 if there was none.
    pub seen: u64,
    /// The snapshot of another program that it was taken over from.
    pub origin: Option<Origin>,
}

/// A snapshot of another program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The program: `restic`, `borg`.
    pub program: String,
    /// What that program calls its repository.
    pub repository: String,
    /// What it calls the snapshot.
    pub snapshot: String,
}

/// What a snapshot of any kind says of itself: also one that a newer program made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotHead {
    /// What it holds: 0 a file tree; others are unknown to this program.
    pub kind: u64,
    /// When the backup began.
    pub started: Timestamp,
    /// See [`Snapshot::sequence`].
    pub sequence: u64,
    /// See [`Snapshot::domain`].
    pub domain: String,
    /// Features that a reader must know, by number. This program knows none.
    pub required: Vec<u64>,
}

/// The numbers of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotStats {
    /// Entries that are not directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes of content that were not in the repository before.
    pub bytes_new: u64,
    /// Bytes that the repository grew by, metadata and parity included.
    pub bytes_stored: u64,
    /// Entries that could not be kept, or only in part.
    pub problems: u64,
}

impl Snapshot {
    /// The order of snapshots, from the oldest to the newest. If the writers of two did not know of
    /// each other, the one that began later is the newer. What the owner took over from another
    /// program is older than all that was made here, whenever it was taken over.
    pub fn order(&self) -> (u64, Timestamp, SnapshotId) {
        let taken_over = self.origin.is_some() && self.domain.is_empty();
        let sequence = if taken_over { 0 } else { self.sequence };
        (sequence, self.started, self.id)
    }

    /// Whether the path, or a directory above it, was to be backed up.
    pub fn holds(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        self.paths.iter().any(|kept| {
            let kept = kept.strip_prefix(b"/").unwrap_or(kept);
            let kept = kept.strip_suffix(b"/").unwrap_or(kept);
            let rest = path.strip_prefix(kept);
            kept.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// A snapshot of nothing.
    pub fn empty(id: SnapshotId) -> Self {
        Self {
            id,
            sequence: 0,
            started: Timestamp::default(),
            ended: Timestamp::default(),
            domain: String::new(),
            host: String::new(),
            user: String::new(),
            paths: Vec::new(),
            labels: Vec::new(),
            parent: None,
            root: Recipe::default(),
            partial: false,
            root_partial: false,
            stats: SnapshotStats::default(),
            program: String::new(),
            features: Vec::new(),
            seen: 0,
            origin: None,
        }
    }
}
