//! Files that have several names.

use std::collections::HashMap;

use strongroom_base::Timestamp;
use strongroom_catalog::{Metadata, Recipe};

/// Content of files that have several names, so that it is read once.
#[derive(Default)]
pub struct LinkedFiles {
    contents: HashMap<(u64, u64, Timestamp), (Recipe, u64)>,
}

impl LinkedFiles {
    /// Beyond so many, further ones are read once a name: their chunks are known by then.
    const FILES_MAX: usize = 100_000;

    fn key(metadata: &Metadata) -> (u64, u64, Timestamp) {
        (metadata.device, metadata.inode, metadata.ctime)
    }

    /// Keeps the content of a file that has further names.
    pub fn put(&mut self, metadata: &Metadata, content: &Recipe) {
        if metadata.links > 1 && self.contents.len() < Self::FILES_MAX {
            self.contents.insert(Self::key(metadata), (content.clone(), metadata.links - 1));
        }
    }

    /// The content of a file whose other name was stored before.
    pub fn take(&mut self, metadata: &Metadata) -> Option<Recipe> {
        if metadata.links < 2 {
            return None;
        }
        let key = Self::key(metadata);
        let (content, names_left) = self.contents.get_mut(&key)?;
        *names_left -= 1;
        let content = content.clone();
        if *names_left == 0 {
            self.contents.remove(&key);
        }
        Some(content)
    }
}
