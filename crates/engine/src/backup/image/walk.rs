//! A walk through the files of a volume, sorted by name, as trees are.

use std::collections::HashSet;
use std::ops::ControlFlow;

use strongroom_disk::{FileSystem, Node, NodeKind};

/// Directories may be nested this deep: a path of the kernel is no longer.
const DEPTH_MAX: usize = 4096;

/// What is found.
pub enum Found {
    /// A directory begins.
    Enter {
        /// Its name; empty for the root.
        name: Vec<u8>,
        /// What it is.
        node: Box<Node>,
    },
    /// Something in the deepest directory.
    Leaf {
        /// Its name.
        name: Vec<u8>,
        /// Its inode.
        inode: u64,
        /// What it is.
        node: Box<Node>,
    },
    /// The deepest directory ends.
    Leave,
    /// Something in the deepest directory, or the rest of it, cannot be read.
    Lost {
        /// Its name; empty if it is not known.
        name: Vec<u8>,
        /// Why.
        why: String,
    },
}

/// The walk.
pub struct Walk<'v> {
    files: &'v dyn FileSystem,
    /// Names that are still to come in each directory that is open, the next one last.
    frames: Vec<Vec<(Vec<u8>, u64)>>,
    /// Directories that were entered: one that is entered again is a circle, or a lie.
    seen: HashSet<u64>,
    /// What of a directory that was just entered could not be listed.
    lost: Option<String>,
    begun: bool,
}

impl<'v> Walk<'v> {
    /// From the root on.
    pub fn new(files: &'v dyn FileSystem) -> Self {
        Self { files, frames: Vec::new(), seen: HashSet::new(), lost: None, begun: false }
    }

    /// The directory that is open.
    fn list(&mut self, inode: u64) {
        let mut names = Vec::new();
        let listed = self.files.entries(inode, &mut |entry| {
            names.push((entry.name.to_vec(), entry.inode));
            ControlFlow::Continue(())
        });
        self.lost = listed.err().map(|error| error.to_string());
        names.sort_unstable();
        // A name that is there twice is damage: the first stays.
        names.dedup_by(|one, other| one.0 == other.0);
        names.reverse();
        self.frames.push(names);
    }

    fn enter(&mut self, name: Vec<u8>, inode: u64, node: Box<Node>) -> Found {
        self.seen.insert(inode);
        self.list(inode);
        Found::Enter { name, node }
    }

    fn begin(&mut self) -> Found {
        let root = self.files.root();
        match self.files.node(root) {
            Ok(node) => self.enter(Vec::new(), root, Box::new(node)),
            Err(error) => Found::Lost { name: Vec::new(), why: error.to_string() },
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if !self.begun {
            self.begun = true;
            return Some(self.begin());
        }
        if let Some(why) = self.lost.take() {
            return Some(Found::Lost { name: Vec::new(), why });
        }
        let Some((name, inode)) = self.frames.last_mut()?.pop() else {
            self.frames.pop();
            return Some(Found::Leave);
        };
        let node = match self.files.node(inode) {
            Ok(node) => Box::new(node),
            Err(error) => return Some(Found::Lost { name, why: error.to_string() }),
        };
        if node.kind != NodeKind::Directory {
            return Some(Found::Leaf { name, inode, node });
        }
        if self.seen.contains(&inode) || self.frames.len() >= DEPTH_MAX {
            let why = "it is a directory that was met before, or is nested too deep".to_owned();
            return Some(Found::Lost { name, why });
        }
        Some(self.enter(name, inode, node))
    }
}
