//! Walking a snapshot, or a part of it: depth first, names sorted.

use strongroom_catalog::{Entry, Recipe, TreeReader};

use super::chunk_reader::ChunkReader;
use super::lookup::Found;
use crate::error::RepositoryError;

/// A walk through a snapshot's trees, entry by entry.
pub struct SnapshotWalk<'r> {
    reader: &'r ChunkReader,
    /// The top, if it is an entry itself.
    top: Option<Entry>,
    levels: Vec<(TreeReader<'r, ChunkReader>, usize)>,
    path: Vec<u8>,
    descend: Option<Recipe>,
}

impl<'r> SnapshotWalk<'r> {
    /// A walk from `found` down; if that is an entry, it comes first.
    pub fn new(found: &Found, reader: &'r ChunkReader) -> Self {
        let mut walk =
            Self { reader, top: None, levels: Vec::new(), path: Vec::new(), descend: None };
        match found {
            Found::Root { tree, .. } => walk.descend = Some(tree.clone()),
            Found::Entry { entry, path } => {
                walk.path.push(b'/');
                walk.path.extend_from_slice(path);
                walk.top = Some((**entry).clone());
            }
        }
        walk
    }

    /// The path of the last entry, with a leading slash.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// How deep below the top the last entry is.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The next entry. A directory comes before its content.
    #[expect(clippy::should_implement_trait, reason = "the walk is asked about its last entry")]
    pub fn next(&mut self) -> Result<Option<Entry>, RepositoryError> {
        if let Some(entry) = self.top.take() {
            self.descend = entry.tree().cloned();
            return Ok(Some(entry));
        }
        if let Some(tree) = self.descend.take() {
            self.levels.push((TreeReader::new(&tree, self.reader), self.path.len()));
        }
        while let Some((entries, path_bytes)) = self.levels.last_mut() {
            self.path.truncate(*path_bytes);
            if let Some(entry) = entries.next_entry()? {
                self.path.push(b'/');
                self.path.extend_from_slice(&entry.name);
                self.descend = entry.tree().cloned();
                return Ok(Some(entry));
            }
            self.levels.pop();
        }
        Ok(None)
    }

    /// Skips the content of the last entry, a directory.
    pub fn skip_content(&mut self) {
        self.descend = None;
    }
}
