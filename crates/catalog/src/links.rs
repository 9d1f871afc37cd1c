//! Which names of a snapshot are one file, and a bounded table of files that have more names.
//!
//! A device and an inode number do not identify a file: a file system gives the number of a removed
//! file to the next new one, and a file may change between the readings of two of its names. Names
//! are joined only if everything that the snapshot says of them, except the name, is the same.

use std::collections::BTreeMap;

use strongroom_base::Timestamp;

use crate::entry::{Entry, EntryKind, Metadata};
use crate::format::put_entry;

/// An inode in one of its states: each change of the inode, also its reuse, sets its ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeState {
    /// The device, as `st_dev`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The last change of the inode.
    pub ctime: Timestamp,
}

/// What all entries of one snapshot that are names of one file have in common, and no other entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey {
    inode: InodeState,
    /// A hash of the kind, the recipe and the metadata.
    rest: [u8; LinkKey::REST_BYTES],
}

/// Files of which further names are expected, by a key that their names share.
///
/// A file is dropped with its last name. At most `files_max` are kept; the names of any other file
/// are treated as separate files.
#[derive(Debug)]
pub struct LinkTable<K, V> {
    files: BTreeMap<K, Known<V>>,
    files_max: usize,
}

#[derive(Debug)]
struct Known<V> {
    value: V,
    names_left: u64,
}

impl Metadata {
    /// The inode, in the state in which it was read.
    pub fn inode_state(&self) -> InodeState {
        InodeState { device: self.device, inode: self.inode, ctime: self.ctime }
    }
}

impl LinkKey {
    const REST_BYTES: usize = 16;

    /// The key of an entry; `None` if it is a directory or its file has no other name.
    pub fn of(entry: &Entry) -> Option<Self> {
        if entry.metadata.links < 2 || matches!(entry.kind, EntryKind::Directory { .. }) {
            return None;
        }
        let nameless = Entry { name: Vec::new(), ..entry.clone() };
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &nameless);
        let mut rest = [0; Self::REST_BYTES];
        rest.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..Self::REST_BYTES]);
        Some(Self { inode: entry.metadata.inode_state(), rest })
    }
}

impl<K: Ord, V: Clone> LinkTable<K, V> {
    /// An empty table.
    pub fn new(files_max: usize) -> Self {
        Self { files: BTreeMap::new(), files_max }
    }

    /// Records the first of a file's `names`. Returns false if there is no room for it.
    pub fn insert(&mut self, key: K, names: u64, value: V) -> bool {
        let has_room = self.files.len() < self.files_max;
        if has_room {
            self.files.insert(key, Known { value, names_left: names.saturating_sub(1) });
        }
        has_room
    }

    /// True if further names of the file are expected.
    pub fn holds(&self, key: &K) -> bool {
        self.files.contains_key(key)
    }

    /// True if no further names are expected.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What was recorded for the file, if this is a further name of it.
    pub fn take(&mut self, key: &K) -> Option<V> {
        let known = self.files.get_mut(key)?;
        known.names_left = known.names_left.saturating_sub(1);
        if known.names_left == 0 {
            return self.files.remove(key).map(|known| known.value);
        }
        Some(known.value.clone())
    }
}

impl<V> LinkTable<LinkKey, V> {
    /// True if a file is expected to have further names with the device and inode of this key, but
    /// it is another file or was read in another state.
    pub fn holds_another(&self, key: &LinkKey) -> bool {
        let InodeState { device, inode, .. } = key.inode;
        let bound = |ctime, rest| LinkKey { inode: InodeState { device, inode, ctime }, rest };
        let first = bound(Timestamp(i64::MIN), [0; LinkKey::REST_BYTES]);
        let last = bound(Timestamp(i64::MAX), [0xff; LinkKey::REST_BYTES]);
        self.files.range(first..=last).any(|(other, _)| other != key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Xattr;
    use crate::reference::{ChunkRef, Recipe};

    fn file(name: &[u8], bytes: u64) -> Entry {
        let content = Recipe { depth: 0, refs: vec![ChunkRef::hole(bytes)] };
        let ctime = Timestamp(5);
        let metadata =
            Metadata { device: 1, inode: 7, ctime, links: 2, size: bytes, ..Metadata::default() };
        Entry { name: name.to_vec(), kind: EntryKind::File { content }, metadata }
    }

    /// A change that makes another file of an entry.
    type Change = fn(&mut Entry);

    #[test]
    fn names_are_one_file_only_if_all_else_agrees() {
        let key = LinkKey::of(&file(b"a", 1));
        assert_eq!(key, LinkKey::of(&file(b"b", 1)));
        let changes: [Change; 7] = [
            |entry| entry.metadata.device = 2,
            |entry| entry.metadata.inode = 8,
            |entry| entry.metadata.ctime = Timestamp(6),
            |entry| entry.metadata.mode = 0o600,
            |entry| entry.kind = EntryKind::Fifo,
            |entry| entry.kind = file(b"", 2).kind,
            |entry| entry.metadata.xattrs.push(Xattr { name: b"x".to_vec(), value: Vec::new() }),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = file(b"b", 1);
            change(&mut other);
            assert!(LinkKey::of(&other).is_some());
            assert_ne!(key, LinkKey::of(&other), "{number}");
        }
        let mut single = file(b"a", 1);
        single.metadata.links = 1;
        assert_eq!(LinkKey::of(&single), None);
    }

    #[test]
    fn a_file_is_kept_until_its_last_name() {
        let mut table = LinkTable::new(2);
        assert!(table.insert(1, 3, "one"));
        assert!(table.insert(2, 2, "two"));
        assert!(!table.insert(3, 2, "three"), "there is no room");
        assert_eq!(
            [table.take(&1), table.take(&1), table.take(&1)],
            [Some("one"), Some("one"), None]
        );
        assert!(table.insert(3, 2, "three"));
        assert_eq!([table.take(&3), table.take(&3)], [Some("three"), None]);
    }

    #[test]
    fn a_reused_inode_is_noticed() {
        let mut table = LinkTable::new(9);
        let key = LinkKey::of(&file(b"a", 1)).unwrap();
        table.insert(key, 2, ());
        assert!(!table.holds_another(&key));
        let mut other = file(b"b", 1);
        other.metadata.ctime = Timestamp(6);
        assert!(table.holds_another(&LinkKey::of(&other).unwrap()));
        other.metadata.inode = 8;
        assert!(!table.holds_another(&LinkKey::of(&other).unwrap()));
    }
}
