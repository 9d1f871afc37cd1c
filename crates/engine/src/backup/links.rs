//! Files that have several names.

use std::collections::HashSet;

use strongroom_catalog::{InodeState, LinkTable, Metadata, Recipe, Xattr};

/// Content of files that have several names, so that it is read once.
pub struct LinkedFiles {
    begun: HashSet<InodeState>,
    contents: LinkTable<InodeState, Linked>,
}

/// What a file's names share, beside what the walk reports of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// Its content.
    pub content: Recipe,
    /// Its extended attributes.
    pub xattrs: Vec<Xattr>,
}

impl Default for LinkedFiles {
    fn default() -> Self {
        Self { begun: HashSet::new(), contents: LinkTable::new(Self::FILES_MAX) }
    }
}

impl LinkedFiles {
    /// Files beyond this many are read once for each name: their chunks are known by then.
    const FILES_MAX: usize = 100_000;

    /// True if another name of the file was begun before; else this one is from now on.
    pub fn is_begun(&mut self, metadata: &Metadata) -> bool {
        if metadata.links < 2 {
            return false;
        }
        let key = metadata.inode_state();
        if self.begun.len() < Self::FILES_MAX {
            !self.begun.insert(key)
        } else {
            self.begun.contains(&key)
        }
    }

    /// Keeps what a file that has further names is.
    pub fn put(&mut self, metadata: &Metadata, content: &Recipe) {
        if metadata.links > 1 {
            let linked = Linked { content: content.clone(), xattrs: metadata.xattrs.clone() };
            self.contents.insert(metadata.inode_state(), metadata.links, linked);
        }
    }

    /// What was stored of a file under its other name; none if that could not be read.
    pub fn take(&mut self, metadata: &Metadata) -> Option<Linked> {
        self.contents.take(&metadata.inode_state())
    }
}
