//! Regions of memory are put back: of each only the pages that differ are written.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor};
use strongroom_catalog::{Entry, Metadata, Recipe, Snapshot, TreeReader};
use strongroom_repository::{ChunkReader, Found, Repository, find_path};

use super::disk::{DiskOutcome, restore_stream};
use crate::backup::region::MARKS_FOLDER;
use crate::error::EngineError;

/// A region in a snapshot.
#[derive(Debug, Clone)]
pub struct StoredRegion {
    /// Its path in the snapshot.
    pub path: PathBuf,
    /// Its bytes.
    pub content: Recipe,
    /// Whom it belonged to.
    pub metadata: Metadata,
}

/// The regions at a path of a snapshot and below it.
///
/// # Errors
///
/// There is no such path, or the repository cannot be read.
pub fn regions_of(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
) -> Result<Vec<StoredRegion>, EngineError> {
    let reader = ChunkReader::for_restore(repository, CacheLimits::default())?;
    let mut regions = Vec::new();
    match find_path(snapshot, path, &reader)? {
        Found::Root { tree, .. } => list(Path::new("/"), &tree, &reader, &mut regions)?,
        Found::Entry { entry, path } => {
            let path = Path::new("/").join(as_path(&path));
            match entry.tree() {
                Some(tree) => list(&path, tree, &reader, &mut regions)?,
                None => add(path, &entry, &mut regions),
            }
        }
    }
    Ok(regions)
}

fn list(
    above: &Path,
    tree: &Recipe,
    reader: &ChunkReader,
    regions: &mut Vec<StoredRegion>,
) -> Result<(), EngineError> {
    let mut entries = TreeReader::new(tree, reader);
    while let Some(entry) = entries.next_entry()? {
        let path = above.join(as_path(&entry.name));
        match entry.tree() {
            _ if path == Path::new("/").join(MARKS_FOLDER) => {}
            Some(tree) => list(&path, tree, reader, regions)?,
            None => add(path, &entry, regions),
        }
    }
    Ok(())
}

fn add(path: PathBuf, entry: &Entry, regions: &mut Vec<StoredRegion>) {
    let Some(content) = entry.content().cloned() else { return };
    regions.push(StoredRegion { path, content, metadata: entry.metadata.clone() });
}

fn as_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Puts a region into `target`, a file that is open for reading and writing, and as long as the
/// region or empty.
///
/// # Errors
///
/// The target cannot be written; the repository cannot be read. What is damaged there is a problem,
/// and named.
pub fn load_region(
    repository: &Repository,
    region: &StoredRegion,
    target: &File,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DiskOutcome, EngineError> {
    restore_stream(repository, &region.content, target, monitor, cancel)
}
