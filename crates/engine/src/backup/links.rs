//! Files that have several names.

use std::collections::HashMap;

use strongroom_base::regimes::{Regime, reached};
use strongroom_catalog::{InodeState, Metadata, Recipe, Xattr};

/// Content of files that have several names, so that it is read once, and all names of a file agree in
/// the places of its chunks: only then are they one file to a reader.
pub struct LinkedFiles {
    files: HashMap<InodeState, File>,
    files_max: usize,
    is_full: bool,
}

/// A file of which names are to come, or wait until its content was read.
struct File {
    /// None as long as it is being read.
    linked: Option<Linked>,
    names_left: u64,
}

/// What a file's names share, beside what the walk reports of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// Its content.
    pub content: Recipe,
    /// Its extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Whether these could not be read.
    pub is_unread: bool,
}

/// The content with which a name of an unchanged file is stored, so that all names of the file agree.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// The content that the parent has.
    AsBefore,
    /// The content that was stored under a name that came earlier: in other places than the parent's, or with other
    /// attributes, because these could not be read of one of the names.
    As(Linked),
    /// The content that is being read under a name that came earlier.
    ToCome,
}

impl LinkedFiles {
    /// None yet. Of files beyond `files_max` each name is read by itself: their chunks are known by then,
    /// but not always in the same places.
    pub fn new(files_max: usize) -> Self {
        Self { files: HashMap::new(), files_max, is_full: false }
    }

    /// True if another name of the file was begun before; else this one is from now on.
    pub fn is_begun(&mut self, metadata: &Metadata) -> bool {
        if metadata.links < 2 {
            return false;
        }
        let key = metadata.inode_state();
        if self.files.contains_key(&key) {
            return true;
        }
        if self.files.len() >= self.files_max {
            reached(Regime::LinksFull);
            self.is_full = true;
        } else {
            self.files.insert(key, File { linked: None, names_left: metadata.links - 1 });
        }
        false
    }

    /// What an unchanged file is stored with, of which the parent has this content. The parent need not
    /// have all its names, nor the same places for each: then they would not be one file any more.
    pub fn join(&mut self, metadata: &Metadata, is_unread: bool, content: &Recipe) -> Joined {
        if !self.is_begun(metadata) {
            self.put(metadata, is_unread, content);
            return Joined::AsBefore;
        }
        if self.files.get(&metadata.inode_state()).is_some_and(|file| file.linked.is_none()) {
            return Joined::ToCome;
        }
        // Names that do not agree would not be one file any more.
        let is_other =
            |linked: &Linked| linked.content != *content || linked.is_unread || is_unread;
        self.take(metadata).filter(is_other).map_or(Joined::AsBefore, Joined::As)
    }

    /// Keeps what a file that was begun is.
    pub fn put(&mut self, metadata: &Metadata, is_unread: bool, content: &Recipe) {
        if let Some(file) = self.files.get_mut(&metadata.inode_state()) {
            let (content, xattrs) = (content.clone(), metadata.xattrs.clone());
            file.linked = Some(Linked { content, xattrs, is_unread });
        }
    }

    /// What was stored of a file under its other name; none if that could not be read. A file is dropped
    /// with its last name.
    pub fn take(&mut self, metadata: &Metadata) -> Option<Linked> {
        let key = metadata.inode_state();
        let file = self.files.get_mut(&key)?;
        file.names_left = file.names_left.saturating_sub(1);
        if file.names_left == 0 {
            return self.files.remove(&key)?.linked;
        }
        file.linked.clone()
    }

    /// Whether there were more files than are remembered.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}
