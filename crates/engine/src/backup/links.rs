//! Files that have several names.

use std::collections::{HashMap, HashSet};

use strongroom_base::Timestamp;
use strongroom_catalog::{Metadata, Recipe, Xattr};

type Key = (u64, u64, Timestamp);

/// Content of files that have several names, so that it is read once.
#[derive(Default)]
pub struct LinkedFiles {
    begun: HashSet<Key>,
    contents: HashMap<Key, Linked>,
}

/// What a file's names share, beside what the walk tells of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// Its content.
    pub content: Recipe,
    /// Its extended attributes.
    pub xattrs: Vec<Xattr>,
    names_left: u64,
}

impl LinkedFiles {
    /// Beyond so many, further ones are read once a name: their chunks are known by then.
    const FILES_MAX: usize = 100_000;

    fn key(metadata: &Metadata) -> Key {
        (metadata.device, metadata.inode, metadata.ctime)
    }

    /// True where another name of the file was begun before; else this one is from now on.
    pub fn is_begun(&mut self, metadata: &Metadata) -> bool {
        if metadata.links < 2 {
            return false;
        }
        let key = Self::key(metadata);
        if self.begun.len() < Self::FILES_MAX {
            !self.begun.insert(key)
        } else {
            self.begun.contains(&key)
        }
    }

    /// Keeps what a file that has further names is.
    pub fn put(&mut self, metadata: &Metadata, content: &Recipe) {
        if metadata.links > 1 && self.contents.len() < Self::FILES_MAX {
            let (content, xattrs) = (content.clone(), metadata.xattrs.clone());
            let linked = Linked { content, xattrs, names_left: metadata.links - 1 };
            self.contents.insert(Self::key(metadata), linked);
        }
    }

    /// What a file is whose other name was stored before; none where that could not be read.
    pub fn take(&mut self, metadata: &Metadata) -> Option<Linked> {
        let key = Self::key(metadata);
        let linked = self.contents.get_mut(&key)?;
        linked.names_left -= 1;
        if linked.names_left == 0 { self.contents.remove(&key) } else { Some(linked.clone()) }
    }
}
