//! The snapshots of before: which of them a backup takes unchanged files over from, and which
//! sequence its own snapshot gets.

use std::cmp::Ordering;

use strongroom_base::{Monitor, Timestamp};
use strongroom_catalog::{Recipe, Snapshot, TreeReader};
use strongroom_repository::{ChunkReader, Repository, greatest_sequence, list_snapshots};

use super::BackupOptions;
use crate::error::EngineError;

/// Clocks of two machines may differ by so much without a word, in nanoseconds: ten minutes.
const CLOCK_DIFFERENCE_MAX: i64 = 600 * 1_000_000_000;

/// What was known of the repository's snapshots when a backup began.
pub struct History {
    /// Oldest first; none for a key that may only store.
    snapshots: Vec<Snapshot>,
    greatest_sequence: u64,
    domain: String,
}

impl History {
    /// Reads it.
    pub fn read(repository: &Repository) -> Result<Self, EngineError> {
        let snapshots = match repository.keys.can_read() {
            true => list_snapshots(repository)?.snapshots,
            false => Vec::new(),
        };
        let greatest_sequence = greatest_sequence(repository, &snapshots)?;
        let domain = repository.secret.domain_name().to_owned();
        Ok(Self { snapshots, greatest_sequence, domain })
    }

    /// The sequence of the next snapshot.
    pub fn next_sequence(&self) -> u64 {
        self.greatest_sequence.saturating_add(1)
    }

    /// The snapshot with the latest time that a clock of before gave, if that is later than `now`
    /// by more than clocks may differ: one of the two clocks is wrong.
    pub fn dated_after(&self, now: Timestamp) -> Option<&Snapshot> {
        let latest = self.snapshots.iter().max_by_key(|snapshot| snapshot.started)?;
        let limit = now.0.saturating_add(CLOCK_DIFFERENCE_MAX);
        (latest.started.0 > limit).then_some(latest)
    }

    /// The parent: the one that was asked for, else the newest snapshot of the same host and paths,
    /// and of those a complete one if there is any.
    pub fn into_parent(self, options: &BackupOptions, paths: &[Vec<u8>]) -> Option<Snapshot> {
        if let Some(id) = options.parent {
            return self.snapshots.into_iter().find(|snapshot| snapshot.id == id);
        }
        // Another domain may have claimed this host.
        let fits = |snapshot: &Snapshot| {
            let same = snapshot.host == options.host && snapshot.paths == paths;
            same && snapshot.domain == self.domain
        };
        let mut fitting: Vec<Snapshot> = self.snapshots.into_iter().filter(fits).collect();
        match fitting.iter().rposition(|snapshot| !snapshot.partial) {
            Some(place) => Some(fitting.swap_remove(place)),
            None => fitting.pop(),
        }
    }
}

/// The parent's counterpart of a directory, read along with the walk.
pub struct ParentDirectory<'r> {
    entries: Option<TreeReader<'r, ChunkReader>>,
    /// The entry at hand comes after all that were asked for.
    is_ahead: bool,
}

impl<'r> ParentDirectory<'r> {
    /// The directory of this tree; of nothing where there is none.
    pub fn new(tree: Option<&Recipe>, reader: &'r ChunkReader) -> Self {
        Self { entries: tree.map(|tree| TreeReader::new(tree, reader)), is_ahead: false }
    }

    /// The tree, at the entry of a name that comes after all asked for before. A tree that cannot
    /// be read counts as none: its files are read again, and that heals it.
    pub fn find(
        &mut self,
        name: &[u8],
        monitor: &dyn Monitor,
    ) -> Option<&TreeReader<'r, ChunkReader>> {
        loop {
            if !self.is_ahead && !self.advance(monitor) {
                return None;
            }
            let order = self.entries.as_ref()?.entry().name.as_slice().cmp(name);
            self.is_ahead = order == Ordering::Greater;
            match order {
                Ordering::Less => {}
                Ordering::Equal => return self.entries.as_ref(),
                Ordering::Greater => return None,
            }
        }
    }

    fn advance(&mut self, monitor: &dyn Monitor) -> bool {
        let Some(entries) = &mut self.entries else { return false };
        let advanced = entries.advance().unwrap_or_else(|error| {
            monitor.detail(&format!("the parent's tree cannot be read: {error}"));
            false
        });
        if !advanced {
            self.entries = None;
        }
        advanced
    }
}
