//! Inode numbers, and the few things that must be remembered for them.
//!
//! A number itself says which node it is, so nothing is kept for a file:
//!
//! ```text
//! 63 62 | 61 …                24 | 23 …        0
//!  0  0 | number of a directory or link above the snapshots, from 1 (the root) on
//!  0  1 | directory (38 bits)    | 0                    a directory of a snapshot
//!  0  1 | directory (38 bits)    | place in it, plus 1  anything else in that directory
//!  1  0 | linked (62 bits)                              a file with several names
//! ```
//!
//! A directory's 38 bits are a keyed hash of where it is; so it has the same number when the kernel
//! forgot it and asks again. Only for directories and for files with several names is a record
//! kept, of 24 or 32 bytes: where they are. What they hold is read again when it is asked for.
//!
//! Invariants:
//! - a record is kept as long as the kernel knows its number, or another record leads to it;
//! - so from every number that the kernel knows there is a way up to a snapshot.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_base::SnapshotId;
use strongroom_catalog::{Entry, LinkKey, Snapshot};

const PLACE_BITS: u32 = 24;
const PLACES: u64 = 1 << PLACE_BITS;
const DIRECTORY_BITS: u32 = 38;
const DIRECTORIES: u64 = 1 << DIRECTORY_BITS;
const TAG_STORED: u64 = 1 << 62;
const TAG_LINKED: u64 = 1 << 63;

/// What an inode number denotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// Something above the snapshots.
    Top(u64),
    /// A directory of a snapshot, by its 38 bits.
    Directory(u64),
    /// An entry of a directory that is not a directory itself.
    Leaf {
        /// The directory, by its 38 bits.
        directory: u64,
        /// The place among its entries.
        place: u32,
    },
    /// A file with several names, or one at a place that does not fit into a number.
    Linked(u64),
}

impl Node {
    /// What a number denotes.
    pub fn of(inode: u64) -> Self {
        if inode & TAG_LINKED != 0 {
            return Self::Linked(inode & !TAG_LINKED);
        }
        if inode & TAG_STORED == 0 {
            return Self::Top(inode);
        }
        let directory = (inode & !TAG_STORED) >> PLACE_BITS;
        match inode & (PLACES - 1) {
            0 => Self::Directory(directory),
            // Below 2^24 by the mask.
            place => Self::Leaf { directory, place: (place - 1) as u32 },
        }
    }

    /// Its number.
    pub fn inode(self) -> u64 {
        match self {
            Self::Top(number) => number,
            Self::Directory(directory) => TAG_STORED | (directory << PLACE_BITS),
            Self::Leaf { directory, place } => {
                TAG_STORED | (directory << PLACE_BITS) | (u64::from(place) + 1)
            }
            Self::Linked(number) => TAG_LINKED | number,
        }
    }
}

/// Where a directory of a snapshot is.
#[derive(Clone)]
pub enum Origin {
    /// It is the snapshot's `/`.
    Top {
        /// The number of the directory that shows it.
        above: u64,
        /// The snapshot.
        snapshot: Arc<Snapshot>,
    },
    /// It is an entry.
    Child(Place),
}

/// A place among the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The directory, by its 38 bits.
    pub directory: u64,
    /// The place in it.
    pub place: u32,
}

/// The directory in which something is found, as far as numbers depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Parent {
    /// Its 38 bits.
    pub number: u64,
    /// The 38 bits of its snapshot's `/`, which depend on where the mount shows the snapshot.
    pub root: u64,
}

/// How a snapshot's `/` is called, for the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootName {
    /// The number of the directory that shows it.
    pub above: u64,
    /// Its name there.
    pub name: Vec<u8>,
}

/// What identifies a file that is not identified by a place in a directory.
#[derive(Hash)]
enum FileKey {
    /// One of several names of a file of this snapshot.
    Joined { root: u64, link: LinkKey },
    /// A place beyond those that fit into a number.
    Beyond(Place),
}

struct Root {
    key: RootKey,
    name: Vec<u8>,
    above: u64,
    snapshot: Arc<Snapshot>,
    uses: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct RootKey {
    path: Vec<u8>,
    snapshot: SnapshotId,
}

struct Child {
    parent: u64,
    place: u32,
    /// References of the kernel, and records that lead here. At its largest value it stays.
    uses: u32,
}

impl Child {
    fn at(&self) -> Place {
        Place { directory: self.parent, place: self.place }
    }
}

/// A file with several names, by one of them.
struct Linked {
    at: Place,
    uses: u32,
    /// More of the key's hash: with the number it makes 95 bits.
    check: u32,
}

/// What is remembered of the nodes that the kernel knows.
#[derive(Default)]
pub struct Nodes {
    hasher: RandomState,
    // A plain mutex: held for map operations.
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    roots: HashMap<u64, Root>,
    children: HashMap<u64, Child>,
    linked: HashMap<u64, Linked>,
}

impl Nodes {
    /// Where the directory with these 38 bits is, if the kernel knows it.
    pub fn origin(&self, number: u64) -> Option<Origin> {
        let records = self.records();
        if let Some(child) = records.children.get(&number) {
            return Some(Origin::Child(child.at()));
        }
        let root = records.roots.get(&number)?;
        Some(Origin::Top { above: root.above, snapshot: root.snapshot.clone() })
    }

    /// Where one name of the file of this number is, if the kernel knows it.
    pub fn linked(&self, number: u64) -> Option<Place> {
        self.records().linked.get(&number).map(|linked| linked.at)
    }

    /// The kernel gets to know a snapshot's `/`, shown under a name in the directory at a path.
    pub fn acquire_root(
        &self,
        path: &[u8],
        above: u64,
        name: &[u8],
        snapshot: &Arc<Snapshot>,
    ) -> Node {
        let key = RootKey { path: path.to_vec(), snapshot: snapshot.id };
        let mut number = self.directory_hash(&key);
        let mut records = self.records();
        loop {
            if !records.children.contains_key(&number) {
                match records.roots.entry(number) {
                    Slot::Vacant(free) => {
                        let (name, snapshot) = (name.to_vec(), snapshot.clone());
                        free.insert(Root { key, name, above, snapshot, uses: 1 });
                        return Node::Directory(number);
                    }
                    Slot::Occupied(mut known) if known.get().key == key => {
                        count_use(&mut known.get_mut().uses);
                        return Node::Directory(number);
                    }
                    Slot::Occupied(_) => {}
                }
            }
            number = (number + 1) & (DIRECTORIES - 1);
        }
    }

    /// The kernel gets to know an entry.
    pub fn acquire(&self, parent: Parent, place: u32, entry: &Entry) -> Node {
        let at = Place { directory: parent.number, place };
        if entry.is_directory() {
            return self.acquire_directory(at);
        }
        match file_key(parent, at, entry) {
            Some(key) => self.acquire_linked(&key, at),
            None => Node::Leaf { directory: at.directory, place },
        }
    }

    fn acquire_directory(&self, at: Place) -> Node {
        let mut number = self.directory_hash(&at);
        let mut records = self.records();
        loop {
            if !records.roots.contains_key(&number) {
                match records.children.entry(number) {
                    Slot::Vacant(free) => {
                        free.insert(Child { parent: at.directory, place: at.place, uses: 1 });
                        records.lead_to(at.directory);
                        return Node::Directory(number);
                    }
                    Slot::Occupied(mut known) if known.get().at() == at => {
                        count_use(&mut known.get_mut().uses);
                        return Node::Directory(number);
                    }
                    Slot::Occupied(_) => {}
                }
            }
            number = (number + 1) & (DIRECTORIES - 1);
        }
    }

    fn acquire_linked(&self, key: &FileKey, at: Place) -> Node {
        let mut number = self.linked_hash(key);
        let check = self.hasher.hash_one((key, "check")) as u32;
        let mut records = self.records();
        loop {
            match records.linked.entry(number) {
                Slot::Vacant(free) => {
                    free.insert(Linked { at, uses: 1, check });
                    records.lead_to(at.directory);
                    return Node::Linked(number);
                }
                Slot::Occupied(mut known) if known.get().check == check => {
                    count_use(&mut known.get_mut().uses);
                    return Node::Linked(number);
                }
                Slot::Occupied(_) => number = (number + 1) & !TAG_LINKED,
            }
        }
    }

    /// The number of an entry that the kernel does not get to know. If two directories have the
    /// same hash, and only then, it may differ from the number that the kernel would be given.
    pub fn peek(&self, parent: Parent, place: u32, entry: &Entry) -> Node {
        let at = Place { directory: parent.number, place };
        if entry.is_directory() {
            return Node::Directory(self.directory_hash(&at));
        }
        match file_key(parent, at, entry) {
            Some(key) => Node::Linked(self.linked_hash(&key)),
            None => Node::Leaf { directory: at.directory, place },
        }
    }

    /// The number of a snapshot's `/` that the kernel does not get to know.
    pub fn peek_root(&self, path: &[u8], snapshot: SnapshotId) -> Node {
        let key = RootKey { path: path.to_vec(), snapshot };
        Node::Directory(self.directory_hash(&key))
    }

    /// The kernel drops this many of its references to a node.
    pub fn forget(&self, node: Node, lookups: u64) {
        let lookups = u32::try_from(lookups).unwrap_or(u32::MAX);
        match node {
            Node::Top(_) | Node::Leaf { .. } => {}
            Node::Directory(number) => self.records().let_go(number, lookups),
            Node::Linked(number) => {
                let mut records = self.records();
                let Some(linked) = records.linked.get_mut(&number) else { return };
                if is_unused(&mut linked.uses, lookups) {
                    let at = linked.at;
                    records.linked.remove(&number);
                    records.let_go(at.directory, 1);
                }
            }
        }
    }

    /// How many records are kept.
    pub fn count(&self) -> usize {
        let records = self.records();
        records.roots.len() + records.children.len() + records.linked.len()
    }

    /// The names of all snapshots that the kernel knows.
    pub fn root_names(&self) -> Vec<RootName> {
        let records = self.records();
        let name = |root: &Root| RootName { above: root.above, name: root.name.clone() };
        records.roots.values().map(name).collect()
    }

    fn directory_hash(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key) & (DIRECTORIES - 1)
    }

    fn linked_hash(&self, key: &FileKey) -> u64 {
        self.hasher.hash_one(key) & !TAG_LINKED
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // Every change is whole before anything can panic.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Another record leads to this directory.
    fn lead_to(&mut self, number: u64) {
        if let Some(child) = self.children.get_mut(&number) {
            count_use(&mut child.uses);
        } else if let Some(root) = self.roots.get_mut(&number) {
            count_use(&mut root.uses);
        }
    }

    /// Takes off uses of a directory. Without any it no longer uses the one above it.
    fn let_go(&mut self, number: u64, uses: u32) {
        let (mut number, mut uses) = (number, uses);
        while let Some(child) = self.children.get_mut(&number) {
            if !is_unused(&mut child.uses, uses) {
                return;
            }
            let above = child.parent;
            self.children.remove(&number);
            (number, uses) = (above, 1);
        }
        if let Some(root) = self.roots.get_mut(&number)
            && is_unused(&mut root.uses, uses)
        {
            self.roots.remove(&number);
        }
    }
}

fn count_use(uses: &mut u32) {
    *uses = uses.saturating_add(1);
}

/// Takes off uses, and returns true if none is left. A count that was at its end says nothing.
fn is_unused(uses: &mut u32, fewer: u32) -> bool {
    if *uses != u32::MAX {
        *uses = uses.saturating_sub(fewer);
    }
    *uses == 0
}

/// What identifies an entry that may have other names; `None` for a file of one name.
fn file_key(parent: Parent, at: Place, entry: &Entry) -> Option<FileKey> {
    if let Some(link) = LinkKey::of(entry) {
        return Some(FileKey::Joined { root: parent.root, link });
    }
    let is_beyond = u64::from(at.place) + 1 >= PLACES;
    is_beyond.then_some(FileKey::Beyond(at))
}

#[cfg(test)]
mod tests {
    use strongroom_catalog::{EntryKind, Metadata, Recipe};

    use super::*;

    #[test]
    fn a_number_tells_what_it_stands_for() {
        for node in [
            Node::Top(1),
            Node::Top((1 << 62) - 1),
            Node::Directory(0),
            Node::Directory(DIRECTORIES - 1),
            Node::Leaf { directory: 0, place: 0 },
            Node::Leaf { directory: DIRECTORIES - 1, place: PLACES as u32 - 2 },
            Node::Linked(0),
            Node::Linked(u64::MAX >> 1),
        ] {
            assert_eq!(Node::of(node.inode()), node, "{node:?}");
        }
    }

    fn entry(name: &str, kind: EntryKind, links: u64) -> Entry {
        let metadata = Metadata { inode: 7, device: 1, links, ..Metadata::default() };
        Entry { name: name.as_bytes().to_vec(), kind, metadata }
    }

    #[test]
    fn what_the_kernel_forgets_is_forgotten_and_numbered_the_same_again() {
        let nodes = Nodes::default();
        let snapshot = Arc::new(Snapshot::empty(SnapshotId([1; 16])));
        let root = nodes.acquire_root(b"ids", 2, b"01", &snapshot);
        assert_eq!(nodes.acquire_root(b"ids", 2, b"01", &snapshot), root);
        assert_ne!(nodes.acquire_root(b"snapshot", 3, b"01", &snapshot), root);
        let Node::Directory(number) = root else { panic!("a root is a directory") };
        assert!(matches!(nodes.origin(number), Some(Origin::Top { above: 2, .. })));
        let parent = Parent { number, root: number };
        let tree = || EntryKind::Directory { tree: Recipe::default(), partial: false };
        let child = nodes.acquire(parent, 5, &entry("d", tree(), 2));
        assert_eq!(nodes.peek(parent, 5, &entry("d", tree(), 2)), child);
        let one = nodes.acquire(parent, 6, &entry("a", EntryKind::Fifo, 2));
        let two = nodes.acquire(parent, 7, &entry("b", EntryKind::Fifo, 2));
        assert_eq!(one, two, "two names of one inode");
        let alone = nodes.acquire(parent, 8, &entry("c", EntryKind::Fifo, 1));
        assert_eq!(alone, Node::Leaf { directory: number, place: 8 });
        assert_eq!(nodes.count(), 4);
        nodes.forget(one, 2);
        nodes.forget(child, 1);
        nodes.forget(alone, 1);
        nodes.forget(root, 1);
        assert_eq!(nodes.count(), 2);
        nodes.forget(root, 1);
        assert!(nodes.origin(number).is_none());
        assert_eq!(nodes.acquire_root(b"ids", 2, b"01", &snapshot), root);
    }

    #[test]
    fn the_way_up_stays_as_long_as_anything_needs_it() {
        let nodes = Nodes::default();
        let snapshot = Arc::new(Snapshot::empty(SnapshotId([1; 16])));
        let Node::Directory(root) = nodes.acquire_root(b"ids", 2, b"01", &snapshot) else {
            panic!("a root is a directory")
        };
        let tree = || EntryKind::Directory { tree: Recipe::default(), partial: false };
        let mut numbers = vec![root];
        for depth in 0..10_000 {
            let parent = Parent { number: numbers[depth], root };
            let Node::Directory(number) = nodes.acquire(parent, 1, &entry("d", tree(), 2)) else {
                panic!("a tree is a directory")
            };
            numbers.push(number);
        }
        let deepest = Parent { number: numbers[10_000], root };
        let file = nodes.acquire(deepest, 0, &entry("a", EntryKind::Fifo, 2));
        // In the order that the kernel never takes.
        numbers.iter().for_each(|number| nodes.forget(Node::Directory(*number), 1));
        assert_eq!(nodes.count(), 10_002);
        nodes.forget(file, 1);
        assert_eq!(nodes.count(), 0);
        assert_eq!(nodes.root_names(), []);
    }

    #[test]
    fn a_record_is_small() {
        let pair = |record: usize| size_of::<u64>() + record;
        assert_eq!(pair(size_of::<Child>()), 24);
        assert_eq!(pair(size_of::<Linked>()), 32);
    }
}
