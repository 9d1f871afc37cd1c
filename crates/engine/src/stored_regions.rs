//! The regions of memory that a snapshot has, and where their marks are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_catalog::{Entry, Metadata, Recipe, Snapshot, TreeReader};
use strongroom_repository::{ChunkReader, Found, Repository, find_path};

use crate::error::EngineError;

/// The folder of a snapshot that has the marks of its regions, at their paths.
pub const MARKS_FOLDER: &str = ".strongroom-marks";

/// Where the marks of a region are in a snapshot.
pub fn marks_path(region: &Path) -> PathBuf {
    Path::new("/").join(MARKS_FOLDER).join(region.strip_prefix("/").unwrap_or(region))
}

/// A region in a snapshot.
#[derive(Debug, Clone)]
pub struct StoredRegion {
    /// Its path in the snapshot.
    pub path: PathBuf,
    /// Its bytes.
    pub content: Recipe,
    /// Whom it belonged to.
    pub metadata: Metadata,
    /// The domain whose snapshot names it; empty for the owner's.
    pub domain: String,
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
    let reader = ChunkReader::for_restore(repository, &snapshot.domain, CacheLimits::default())?;
    let mut regions = Vec::new();
    match find_path(snapshot, path, &reader)? {
        Found::Root { tree, .. } => {
            list(Path::new("/"), &tree, &snapshot.domain, &reader, &mut regions)?;
        }
        Found::Entry { entry, path } => {
            let path = Path::new("/").join(as_path(&path));
            match entry.tree() {
                Some(tree) => list(&path, tree, &snapshot.domain, &reader, &mut regions)?,
                None => add(path, &entry, &snapshot.domain, &mut regions),
            }
        }
    }
    Ok(regions)
}

fn list(
    above: &Path,
    tree: &Recipe,
    domain: &str,
    reader: &ChunkReader,
    regions: &mut Vec<StoredRegion>,
) -> Result<(), EngineError> {
    let mut entries = TreeReader::new(tree, reader);
    while let Some(entry) = entries.next_entry()? {
        let path = above.join(as_path(&entry.name));
        match entry.tree() {
            _ if path == Path::new("/").join(MARKS_FOLDER) => {}
            Some(tree) => list(&path, tree, domain, reader, regions)?,
            None => add(path, &entry, domain, regions),
        }
    }
    Ok(())
}

fn add(path: PathBuf, entry: &Entry, domain: &str, regions: &mut Vec<StoredRegion>) {
    let Some(content) = entry.content().cloned() else { return };
    let (metadata, domain) = (entry.metadata.clone(), domain.to_owned());
    regions.push(StoredRegion { path, content, metadata, domain });
}

fn as_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
