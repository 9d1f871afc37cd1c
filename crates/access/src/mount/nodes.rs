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
//! A directory's 38 bits are a keyed hash of its place, so it has the same number if the kernel
//! forgot it and asks again. The table has entries only for directories and for files with several
//! names, and only as long as the kernel remembers them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use strongroom_base::SnapshotId;
use strongroom_catalog::{Entry, LinkKey, Recipe, Snapshot};

use super::shape::Shape;

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

/// A directory of a snapshot.
pub struct Directory {
    /// Its 38 bits.
    pub number: u64,
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The 38 bits of the snapshot's `/`, which distinguish the places at which the mount shows it.
    pub root: u64,
    /// Where it is.
    pub origin: Origin,
    /// Its entries.
    pub tree: Recipe,
    /// Which chunk of the tree holds which entries, once that was needed.
    pub shape: OnceLock<Arc<Shape>>,
}

/// Where a directory of a snapshot is.
pub enum Origin {
    /// It is the snapshot's `/`.
    Top {
        /// The number of the directory that shows it.
        above: u64,
    },
    /// It is an entry.
    Child {
        /// Of this directory.
        parent: Arc<Directory>,
        /// At this place.
        place: u32,
    },
}

/// A file that is not identified by a place in one directory.
#[derive(Clone)]
pub struct LinkedFile {
    /// The directory of one of its names.
    pub directory: Arc<Directory>,
    /// The place of that name.
    pub place: u32,
}

/// What identifies a file that is not identified by a place in a directory.
#[derive(Clone, PartialEq, Eq, Hash)]
enum FileKey {
    /// One of several names of a file of this snapshot.
    Joined { root: u64, link: LinkKey },
    /// A place beyond those that fit into a number.
    Beyond { directory: u64, place: u32 },
}

/// Something that is remembered as long as the kernel knows it.
struct Known<K, V> {
    key: K,
    value: V,
    lookups: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum DirectoryKey {
    Top { path: Vec<u8>, snapshot: SnapshotId },
    Child { parent: u64, place: u32 },
}

type Table<K, V> = HashMap<u64, Known<K, V>>;

/// What is remembered of the nodes that the kernel knows.
#[derive(Default)]
pub struct Nodes {
    hasher: RandomState,
    // Plain mutexes: held for a map operation.
    directories: Mutex<Table<DirectoryKey, Arc<Directory>>>,
    linked: Mutex<Table<FileKey, LinkedFile>>,
}

impl Nodes {
    /// The directory with these 38 bits, if the kernel knows it.
    pub fn directory(&self, number: u64) -> Option<Arc<Directory>> {
        lock(&self.directories).get(&number).map(|known| known.value.clone())
    }

    /// The file with several names of this number, if the kernel knows it.
    pub fn linked(&self, number: u64) -> Option<LinkedFile> {
        lock(&self.linked).get(&number).map(|known| known.value.clone())
    }

    /// The kernel gets to know a snapshot's `/`.
    pub fn acquire_root(&self, path: &[u8], above: u64, snapshot: &Arc<Snapshot>) -> Node {
        let key = DirectoryKey::Top { path: path.to_vec(), snapshot: snapshot.id };
        self.acquire_directory(key, |number| Directory {
            number,
            snapshot: snapshot.clone(),
            root: number,
            origin: Origin::Top { above },
            tree: snapshot.root.clone(),
            shape: OnceLock::new(),
        })
    }

    /// The kernel gets to know an entry.
    pub fn acquire(&self, parent: &Arc<Directory>, place: u32, entry: &Entry) -> Node {
        if let Some(tree) = entry.tree() {
            let key = DirectoryKey::Child { parent: parent.number, place };
            return self.acquire_directory(key, |number| Directory {
                number,
                snapshot: parent.snapshot.clone(),
                root: parent.root,
                origin: Origin::Child { parent: parent.clone(), place },
                tree: tree.clone(),
                shape: OnceLock::new(),
            });
        }
        let Some(key) = file_key(parent, place, entry) else {
            return Node::Leaf { directory: parent.number, place };
        };
        let start = self.hasher.hash_one(&key) & !TAG_LINKED;
        let file = || LinkedFile { directory: parent.clone(), place };
        let (number, _) = acquire(&self.linked, start, u64::MAX >> 1, key, |_| file());
        Node::Linked(number)
    }

    /// The number of an entry that the kernel does not get to know. If two directories have the
    /// same hash, and only then, it may differ from the number that the kernel would be given.
    pub fn peek(&self, parent: &Directory, place: u32, entry: &Entry) -> Node {
        if entry.is_directory() {
            let key = DirectoryKey::Child { parent: parent.number, place };
            return Node::Directory(self.directory_hash(&key));
        }
        match file_key(parent, place, entry) {
            Some(key) => Node::Linked(self.hasher.hash_one(&key) & !TAG_LINKED),
            None => Node::Leaf { directory: parent.number, place },
        }
    }

    /// The number of a snapshot's `/` that the kernel does not get to know.
    pub fn peek_root(&self, path: &[u8], snapshot: SnapshotId) -> Node {
        let key = DirectoryKey::Top { path: path.to_vec(), snapshot };
        Node::Directory(self.directory_hash(&key))
    }

    /// The kernel drops this many of its references to a node.
    pub fn forget(&self, node: Node, lookups: u64) {
        match node {
            Node::Top(_) | Node::Leaf { .. } => {}
            // The dropped directory may be the last of a chain: it is dropped after the lock.
            Node::Directory(number) => drop(forget(&self.directories, number, lookups)),
            Node::Linked(number) => drop(forget(&self.linked, number, lookups)),
        }
    }

    fn acquire_directory(&self, key: DirectoryKey, make: impl FnOnce(u64) -> Directory) -> Node {
        let start = self.directory_hash(&key);
        let directories = &self.directories;
        let make = |number| Arc::new(make(number));
        let (number, _) = acquire(directories, start, DIRECTORIES - 1, key, make);
        Node::Directory(number)
    }

    fn directory_hash(&self, key: &DirectoryKey) -> u64 {
        self.hasher.hash_one(key) & (DIRECTORIES - 1)
    }
}

/// What identifies an entry that may have other names; `None` for a file of one name.
fn file_key(parent: &Directory, place: u32, entry: &Entry) -> Option<FileKey> {
    if let Some(link) = LinkKey::of(entry) {
        return Some(FileKey::Joined { root: parent.root, link });
    }
    let is_beyond = u64::from(place) + 1 >= PLACES;
    is_beyond.then_some(FileKey::Beyond { directory: parent.number, place })
}

/// Finds the value of this key, or makes it, at the first free number from `start` on.
fn acquire<K: PartialEq, V: Clone>(
    table: &Mutex<Table<K, V>>,
    start: u64,
    mask: u64,
    key: K,
    make: impl FnOnce(u64) -> V,
) -> (u64, V) {
    let mut table = lock(table);
    let mut number = start;
    loop {
        match table.get_mut(&number) {
            None => {
                let value = make(number);
                table.insert(number, Known { key, value: value.clone(), lookups: 1 });
                return (number, value);
            }
            Some(known) if known.key == key => {
                known.lookups += 1;
                return (number, known.value.clone());
            }
            Some(_) => number = (number + 1) & mask,
        }
    }
}

fn forget<K, V>(table: &Mutex<Table<K, V>>, number: u64, lookups: u64) -> Option<V> {
    let mut table = lock(table);
    let known = table.get_mut(&number)?;
    known.lookups = known.lookups.saturating_sub(lookups);
    if known.lookups > 0 {
        return None;
    }
    table.remove(&number).map(|known| known.value)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use strongroom_catalog::{EntryKind, Metadata};

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

    fn remembered(nodes: &Nodes) -> usize {
        lock(&nodes.directories).len() + lock(&nodes.linked).len()
    }

    #[test]
    fn what_the_kernel_forgets_is_forgotten_and_numbered_the_same_again() {
        let nodes = Nodes::default();
        let snapshot = Arc::new(Snapshot::empty(SnapshotId([1; 16])));
        let root = nodes.acquire_root(b"ids", 2, &snapshot);
        assert_eq!(nodes.acquire_root(b"ids", 2, &snapshot), root);
        assert_ne!(nodes.acquire_root(b"snapshot", 2, &snapshot), root);
        let Node::Directory(number) = root else { panic!("a root is a directory") };
        let directory = nodes.directory(number).expect("it was acquired");
        let tree = || EntryKind::Directory { tree: Recipe::default(), partial: false };
        let child = nodes.acquire(&directory, 5, &entry("d", tree(), 2));
        assert_eq!(nodes.peek(&directory, 5, &entry("d", tree(), 2)), child);
        let one = nodes.acquire(&directory, 6, &entry("a", EntryKind::Fifo, 2));
        let two = nodes.acquire(&directory, 7, &entry("b", EntryKind::Fifo, 2));
        assert_eq!(one, two, "two names of one inode");
        let alone = nodes.acquire(&directory, 8, &entry("c", EntryKind::Fifo, 1));
        assert_eq!(alone, Node::Leaf { directory: number, place: 8 });
        assert_eq!(remembered(&nodes), 4);
        nodes.forget(one, 2);
        nodes.forget(child, 1);
        nodes.forget(alone, 1);
        nodes.forget(root, 1);
        assert_eq!(remembered(&nodes), 2);
        nodes.forget(root, 1);
        assert!(nodes.directory(number).is_none());
        assert_eq!(nodes.acquire_root(b"ids", 2, &snapshot), root);
    }
}
