//! The snapshot that a backup takes unchanged files over from.

use strongroom_base::Monitor;
use strongroom_catalog::{Entry, Recipe, Snapshot, TreeReader};

use super::BackupOptions;
use crate::chunk_reader::ChunkReader;
use crate::error::EngineError;
use crate::repository::Repository;
use crate::snapshots::list_snapshots;

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
    next: Option<Entry>,
}

impl<'r> ParentDirectory<'r> {
    /// The directory of this tree; of nothing where there is none.
    pub fn new(tree: Option<&Recipe>, reader: &'r ChunkReader) -> Self {
        Self { entries: tree.map(|tree| TreeReader::new(tree, reader)), next: None }
    }

    /// The entry found last, as it stands in the parent's tree.
    pub fn found_bytes(&self) -> &[u8] {
        self.entries.as_ref().map_or(&[], |entries| entries.last_bytes())
    }

    /// The entry of a name that comes after all asked for before. A tree that cannot be read is
    /// as good as none: its files are read again, and that heals it.
    pub fn find(&mut self, name: &[u8], monitor: &dyn Monitor) -> Option<Entry> {
        loop {
            if let Some(next) = self.next.take_if(|next| next.name.as_slice() <= name) {
                if next.name == name {
                    return Some(next);
                }
            } else if self.next.is_some() {
                return None;
            }
            match self.entries.as_mut()?.next_entry() {
                Ok(Some(entry)) => self.next = Some(entry),
                Ok(None) => {
                    self.entries = None;
                    return None;
                }
                Err(error) => {
                    monitor.detail(&format!("the parent's tree cannot be read: {error}"));
                    self.entries = None;
                    return None;
                }
            }
        }
    }
}
