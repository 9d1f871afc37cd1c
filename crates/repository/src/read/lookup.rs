//! Finding a path in a snapshot.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_catalog::tree::find_entry;
use strongroom_catalog::{Entry, Recipe, Snapshot};

use super::chunk_reader::ChunkReader;
use crate::error::RepositoryError;

/// What a path in a snapshot leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The top of the snapshot.
    Root {
        /// The tree of `/`.
        tree: Recipe,
        /// Part of its content is not in its tree.
        partial: bool,
    },
    /// Anything below it.
    Entry {
        /// The entry.
        entry: Box<Entry>,
        /// Its whole path, without a leading slash.
        path: Vec<u8>,
    },
}

impl Found {
    /// The top of a snapshot.
    pub fn root(snapshot: &Snapshot) -> Self {
        Self::Root { tree: snapshot.root.clone(), partial: snapshot.root_partial }
    }
}

/// What a path leads to. Slashes at its ends make no difference; links are not followed.
pub fn find_path(
    snapshot: &Snapshot,
    path: &[u8],
    reader: &ChunkReader,
) -> Result<Found, RepositoryError> {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|n| !n.is_empty()).collect();
    let as_path = || PathBuf::from(std::ffi::OsStr::from_bytes(path));
    let missing = || RepositoryError::NoSuchPath { path: as_path(), snapshot: snapshot.id };
    let mut found = Found::root(snapshot);
    for (depth, name) in names.iter().enumerate() {
        let tree = match &found {
            Found::Root { tree, .. } => tree,
            Found::Entry { entry, .. } => entry.tree().ok_or_else(missing)?,
        };
        let entry = find_entry(tree, name, reader)?.ok_or_else(missing)?;
        found = Found::Entry { entry: Box::new(entry), path: names[..=depth].join(&b'/') };
    }
    Ok(found)
}
