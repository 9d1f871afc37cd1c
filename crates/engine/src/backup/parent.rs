//! The snapshot that a backup takes unchanged files over from.

use std::cmp::Ordering;

use strongroom_base::Monitor;
use strongroom_catalog::{Recipe, Snapshot, TreeReader};
use strongroom_repository::{ChunkReader, Repository, list_snapshots};

use super::BackupOptions;
use crate::error::EngineError;

/// The newest snapshot of the same host and paths; a complete one where there is any.
pub fn find_parent(
    repository: &Repository,
    options: &BackupOptions,
    paths: &[Vec<u8>],
) -> Result<Option<Snapshot>, EngineError> {
    if repository.keys.private_key.is_none() {
        return Ok(None);
    }
    let snapshots = list_snapshots(repository)?.snapshots;
    if let Some(id) = options.parent {
        return Ok(snapshots.into_iter().find(|snapshot| snapshot.id == id));
    }
    let mut fitting: Vec<Snapshot> = snapshots
        .into_iter()
        .filter(|snapshot| snapshot.host == options.host && snapshot.paths == paths)
        .collect();
    let complete = fitting.iter().rposition(|snapshot| !snapshot.partial);
    Ok(match complete {
        Some(place) => Some(fitting.swap_remove(place)),
        None => fitting.pop(),
    })
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
    /// be read is as good as none: its files are read again, and that heals it.
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
