//! The directories of snapshots, by number: what was opened last is kept, the rest is opened again.

use std::sync::Arc;

use strongroom_base::ByteCache;
use strongroom_catalog::{Recipe, Snapshot};

use super::lanes::Lanes;
use super::nodes::{Nodes, Origin, Parent, Place};
use crate::chunks::Failure;

/// A directory of a snapshot.
pub struct Directory {
    /// Its number, and that of its snapshot's `/`.
    pub at: Parent,
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Its entries.
    pub tree: Recipe,
    /// Where it is; none for a snapshot's `/`.
    place: Option<Place>,
}

/// Why a directory cannot be opened.
pub enum Unopened {
    /// The kernel does not know it any more.
    Forgotten,
    /// What is above it cannot be read: this directory.
    Above(Arc<Directory>, Failure),
}

/// Opens directories.
pub struct Directories {
    opened: ByteCache<u64, Arc<Directory>>,
}

impl Directories {
    /// None is open yet. Those that are take at most this many bytes; each takes some 300.
    pub fn new(bytes_max: usize) -> Self {
        Self { opened: ByteCache::new(bytes_max) }
    }

    /// The directory of a number that the kernel knows, opened again from the nearest one above it
    /// that is open.
    pub fn get(
        &self,
        number: u64,
        nodes: &Nodes,
        lanes: &Lanes,
    ) -> Result<Arc<Directory>, Unopened> {
        let mut way = Vec::new();
        let mut at = number;
        let mut directory = loop {
            let origin = nodes.origin(at).ok_or(Unopened::Forgotten)?;
            // A number may have been given to another directory since.
            let open = self.opened.get(&at).filter(|open| open.is_at(&origin));
            match (open, origin) {
                (Some(open), _) => break open,
                (None, Origin::Top { snapshot, .. }) => {
                    break self.keep(Directory::top(at, snapshot));
                }
                (None, Origin::Child(place)) => {
                    way.push((at, place));
                    at = place.directory;
                }
            }
        };
        for (number, place) in way.into_iter().rev() {
            let lane = lanes.of(&directory.snapshot.domain);
            let entry = lane.and_then(|lane| lane.listings.entry(&directory.tree, place.place));
            let entry = entry.map_err(|failure| Unopened::Above(directory.clone(), failure))?;
            let tree = entry.as_ref().and_then(|entry| entry.tree()).ok_or(Unopened::Forgotten)?;
            directory = self.keep(Directory {
                at: Parent { number, root: directory.at.root },
                snapshot: directory.snapshot.clone(),
                tree: tree.clone(),
                place: Some(place),
            });
        }
        Ok(directory)
    }

    fn keep(&self, directory: Directory) -> Arc<Directory> {
        let directory = Arc::new(directory);
        let bytes = size_of::<Directory>() + directory.tree.heap_bytes();
        self.opened.put(directory.at.number, directory.clone(), bytes);
        directory
    }
}

impl Directory {
    /// A snapshot's `/`.
    fn top(number: u64, snapshot: Arc<Snapshot>) -> Self {
        let tree = snapshot.root.clone();
        Self { at: Parent { number, root: number }, snapshot, tree, place: None }
    }

    fn is_at(&self, origin: &Origin) -> bool {
        match origin {
            Origin::Top { snapshot, .. } => self.place.is_none() && self.snapshot.id == snapshot.id,
            Origin::Child(place) => self.place == Some(*place),
        }
    }
}
