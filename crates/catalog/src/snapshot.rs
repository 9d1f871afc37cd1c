//! Snapshots: what one backup kept.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};

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
    /// Those at and below the paths of which something is not in it that was expected: they could
    /// not be reached or read, or they were empty and were not so before. With each some of the names
    /// that were in it: it is there again if most of them are.
    pub missing: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
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
    /// What is promised of regions of memory in it; nothing is said of anything else.
    pub guarantee: Option<Guarantee>,
    /// Whether the attributes of root (`trusted.`) were listed to its writer. To a process without
    /// that right they are as if they did not exist.
    pub lists_trusted: bool,
}

/// What is promised of a region of memory that was stored while it was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    /// How much is promised: the more, the greater. A newer program may know more.
    pub promise: u64,
    /// How it was brought about.
    pub method: u64,
    /// Which of the chunks that were kept have been compared with their fingerprints: one more than
    /// in the parent, and after the last again 0.
    pub turn: u64,
}

impl Guarantee {
    /// A promise, where nothing has been compared yet.
    pub const fn new(promise: u64, method: u64) -> Self {
        Self { promise, method, turn: 0 }
    }

    /// Nothing: its parts are of different times.
    pub const FUZZY: u64 = 0;
    /// Of each region, all bytes were so at one instant; a program may have been in the middle of a
    /// change. Of what was read twice, as far as nothing changed and changed back.
    pub const BYTES: u64 = 1;
    /// The same, and the programs were stopped at it.
    pub const FROZEN: u64 = 2;
    /// The same, and their owner says that no change was under way.
    pub const EXACT: u64 = 3;

    /// All of it was read twice, and was the same.
    pub const READ_TWICE: u64 = 0;
    /// The file system held on to it.
    pub const HELD: u64 = 1;
    /// Its programs were in a frozen control group.
    pub const CONTROL_GROUP: u64 = 2;
    /// The virtual machine was stopped.
    pub const MACHINE_STOPPED: u64 = 3;
    /// Its owner was asked to hold still.
    pub const OWNER: u64 = 4;

    /// What is promised, in a word.
    pub fn word(&self) -> &'static str {
        match self.promise {
            Self::FUZZY => "fuzzy",
            // Two readings do not see what was undone between them.
            Self::BYTES if self.method == Self::READ_TWICE => "settled",
            Self::BYTES => "bytes",
            Self::FROZEN => "frozen",
            Self::EXACT => "exact",
            _ => "unknown",
        }
    }

    /// How it was brought about, in a few words.
    pub fn how(&self) -> &'static str {
        match self.method {
            Self::READ_TWICE => "read twice",
            Self::HELD => "held by the file system",
            Self::CONTROL_GROUP => "control group frozen",
            Self::MACHINE_STOPPED => "machine stopped",
            Self::OWNER => "by its owner",
            _ => "in a way that a newer program knows",
        }
    }
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
    /// The order of the snapshots of one domain, from the oldest to the newest; of several,
    /// [`sort_oldest_first`] sorts them. If the writers of two did not know of
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
            missing: BTreeMap::new(),
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
            guarantee: None,
            lists_trusted: false,
        }
    }
}

/// Sorts snapshots of any domains, the oldest first. Each domain counts its own snapshots, so numbers say nothing
/// between domains: there it counts when snapshots were begun. One that is dated ahead of the next of its domain
/// was made with a wrong clock, and is as old as that.
pub fn sort_oldest_first<S: Borrow<Snapshot>>(snapshots: &mut [S]) {
    snapshots.sort_by(|one, other| {
        let (one, other) = (one.borrow(), other.borrow());
        one.domain.cmp(&other.domain).then_with(|| one.order().cmp(&other.order()))
    });
    let mut begun: HashMap<SnapshotId, Timestamp> = HashMap::new();
    let mut next: Option<&Snapshot> = None;
    for snapshot in snapshots.iter().rev().map(Borrow::borrow) {
        let later = next.filter(|next| next.domain == snapshot.domain).map(|next| begun[&next.id]);
        begun.insert(snapshot.id, later.map_or(snapshot.started, |it| it.min(snapshot.started)));
        next = Some(snapshot);
    }
    snapshots.sort_by_key(|snapshot| (begun[&snapshot.borrow().id], snapshot.borrow().order()));
}
