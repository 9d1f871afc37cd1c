//! The regions of memory that a snapshot has, and where their marks are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::Cancel;
use strongroom_catalog::{Entry, Metadata, Recipe, Snapshot};
use strongroom_repository::{
    ChunkReader, Found, Repository, SnapshotEvent, SnapshotWalk, find_path,
};

use crate::error::EngineError;

/// The folder of a snapshot that has the marks of its regions, at their paths.
pub const MARKS_FOLDER: &str = ".strongroom-marks";

/// At most this many files and folders are looked at for regions.
const ENTRIES_MAX: u64 = 1 << 16;
/// The longest path that Linux opens.
const PATH_BYTES_MAX: usize = 4096;

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
/// There is no such path, the repository cannot be read, or it was cancelled; or there are
/// [more](EngineError::NoRegions) files and folders than any folder of regions has.
pub fn regions_of(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
    cancel: &Cancel,
) -> Result<Vec<StoredRegion>, EngineError> {
    let reader = ChunkReader::for_restore(repository, &snapshot.domain, CacheLimits::default())?;
    let found = find_path(snapshot, path, &reader)?;
    let marks = marks_path(Path::new("/"));
    let mut regions = Vec::new();
    let mut entries = 0;
    let mut walk = SnapshotWalk::new(&found, &reader, cancel);
    while let Some(event) = walk.next()? {
        let (at, entry) = match event {
            SnapshotEvent::Enter(directory) => (directory.path, None),
            SnapshotEvent::Leaf { path, entry } => (path, Some(entry)),
            SnapshotEvent::Leave { .. } => continue,
            SnapshotEvent::Lost { error, .. } => return Err(error.into()),
        };
        entries += 1;
        // A few chunks can be a tree without end, with paths of any length.
        if entries > ENTRIES_MAX || at.len() > PATH_BYTES_MAX {
            return Err(EngineError::NoRegions { path: Path::new("/").join(as_path(path)) });
        }
        match entry {
            Some(entry) => regions.extend(region(at, entry, &snapshot.domain)),
            // The marks are passed over unless the walk begins there.
            None if entries > 1 && as_path(at) == marks => walk.skip(),
            None => {}
        }
    }
    Ok(regions)
}

/// The names of the folders that are directly in a folder of a snapshot.
///
/// # Errors
///
/// There is no such path, the repository cannot be read, or it was cancelled; or there are
/// [more](EngineError::NoRegions) names in it than any folder of regions has.
pub fn folders_in(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
    cancel: &Cancel,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let reader = ChunkReader::for_restore(repository, &snapshot.domain, CacheLimits::default())?;
    let found = find_path(snapshot, path, &reader)?;
    let mut names = Vec::new();
    let mut entries = 0;
    let mut walk = SnapshotWalk::new(&found, &reader, cancel);
    while let Some(event) = walk.next()? {
        let name = match event {
            SnapshotEvent::Enter(directory) if entries > 0 => {
                directory.entry.map(|entry| entry.name.clone())
            }
            SnapshotEvent::Enter(_) | SnapshotEvent::Leaf { .. } => None,
            SnapshotEvent::Leave { .. } => continue,
            SnapshotEvent::Lost { error, .. } => return Err(error.into()),
        };
        entries += 1;
        if entries > ENTRIES_MAX {
            return Err(EngineError::NoRegions { path: Path::new("/").join(as_path(path)) });
        }
        if let Some(name) = name {
            names.push(name);
            walk.skip();
        }
    }
    Ok(names)
}

/// The region at a path of a snapshot; none if there is something else.
///
/// # Errors
///
/// There is no such path, or the repository cannot be read.
pub fn region_at(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
) -> Result<Option<StoredRegion>, EngineError> {
    let reader = ChunkReader::for_restore(repository, &snapshot.domain, CacheLimits::default())?;
    Ok(match find_path(snapshot, path, &reader)? {
        Found::Root { .. } => None,
        Found::Entry { entry, path } => region(&path, &entry, &snapshot.domain),
    })
}

fn region(path: &[u8], entry: &Entry, domain: &str) -> Option<StoredRegion> {
    let content = entry.content()?.clone();
    let path = Path::new("/").join(as_path(path));
    Some(StoredRegion {
        path,
        content,
        metadata: entry.metadata.clone(),
        domain: domain.to_owned(),
    })
}

fn as_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
