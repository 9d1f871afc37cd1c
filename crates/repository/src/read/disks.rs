//! Which files of a snapshot are disks of machines: those called `NAME.raw` in a folder of the top,
//! where a backup of disks puts them.

use strongroom_catalog::{Entry, Recipe, Snapshot, TreeReader};

use super::chunk_reader::ChunkReader;
use super::lookup::{Found, find_path};
use crate::error::RepositoryError;

/// How the name of a disk's file ends.
pub const DISK_SUFFIX: &str = ".raw";

/// A disk of a machine in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDisk {
    /// Its path, with a leading slash.
    pub path: Vec<u8>,
    /// Its bytes.
    pub content: Recipe,
    /// The domain whose snapshot names them; empty for the owner's.
    pub domain: String,
}

/// The disks that a path means: the file itself, those in a machine's folder, or those of all
/// machines.
///
/// # Errors
///
/// There is no such path, or trees on the way cannot be read.
pub fn find_disks(
    snapshot: &Snapshot,
    path: &[u8],
    reader: &ChunkReader,
) -> Result<Vec<StoredDisk>, RepositoryError> {
    let mut disks = Vec::new();
    match find_path(snapshot, path, reader)? {
        Found::Root { tree, .. } => {
            for machine in folders(&tree, reader)? {
                if let Some(tree) = machine.tree() {
                    let above = [b"/", &machine.name[..]].concat();
                    disks.extend(disks_in(&above, tree, &snapshot.domain, reader)?);
                }
            }
        }
        Found::Entry { entry, path } => {
            let path = [b"/", &path[..]].concat();
            if let Some(content) = entry.content() {
                let (content, domain) = (content.clone(), snapshot.domain.clone());
                disks.push(StoredDisk { path, content, domain });
            } else if let Some(tree) = entry.tree() {
                disks.extend(disks_in(&path, tree, &snapshot.domain, reader)?);
            }
        }
    }
    Ok(disks)
}

fn folders(tree: &Recipe, reader: &ChunkReader) -> Result<Vec<Entry>, RepositoryError> {
    let mut entries = TreeReader::new(tree, reader);
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        if entry.tree().is_some() {
            found.push(entry);
        }
    }
    Ok(found)
}

fn disks_in(
    above: &[u8],
    tree: &Recipe,
    domain: &str,
    reader: &ChunkReader,
) -> Result<Vec<StoredDisk>, RepositoryError> {
    let mut entries = TreeReader::new(tree, reader);
    let mut disks = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        if let Some(content) = entry.content()
            && entry.name.ends_with(DISK_SUFFIX.as_bytes())
        {
            let path = [above, b"/", &entry.name].concat();
            let (content, domain) = (content.clone(), domain.to_owned());
            disks.push(StoredDisk { path, content, domain });
        }
    }
    Ok(disks)
}
