//! Files that have several names.

use std::collections::HashSet;

use strongroom_base::regimes::{Regime, reached_if};
use strongroom_catalog::{InodeState, LinkTable, Metadata, Recipe, Xattr};

/// Content of files that have several names, so that it is read once.
pub struct LinkedFiles {
    begun: HashSet<InodeState>,
    files_max: usize,
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

/// The content with which a name of an unchanged file is stored, so that all names of the file agree.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// The content that the parent has.
    AsBefore,
    /// The content under a name that came earlier, in other places than the parent's.
    As(Linked),
    /// The content that is being read under a name that came earlier.
    ToCome,
}

impl LinkedFiles {
    /// None yet. Files beyond `files_max` are read once for each name: their chunks are known by
    /// then.
    pub fn new(files_max: usize) -> Self {
        Self { begun: HashSet::new(), files_max, contents: LinkTable::new(files_max) }
    }

    /// True if another name of the file was begun before; else this one is from now on.
    pub fn is_begun(&mut self, metadata: &Metadata) -> bool {
        if metadata.links < 2 {
            return false;
        }
        let key = metadata.inode_state();
        reached_if(self.begun.len() >= self.files_max, Regime::LinksFull);
        if self.begun.len() < self.files_max {
            !self.begun.insert(key)
        } else {
            self.begun.contains(&key)
        }
    }

    /// What an unchanged file is stored with, of which the parent has this content. The parent need not
    /// have all its names, nor the same places for each: then they would not be one file any more.
    pub fn join(&mut self, metadata: &Metadata, content: &Recipe) -> Joined {
        if metadata.links < 2 {
            return Joined::AsBefore;
        }
        match self.contents.take(&metadata.inode_state()) {
            Some(linked) if linked.content == *content => return Joined::AsBefore,
            Some(linked) => return Joined::As(linked),
            None => {}
        }
        if self.is_begun(metadata) {
            return Joined::ToCome;
        }
        self.put(metadata, content);
        Joined::AsBefore
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
