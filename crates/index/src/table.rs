//! The table in memory: the newest records, by key.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::{Key, Record, Value, key_prefix};

/// Bytes that a slot of the hash set takes: the record and one control byte.
const SLOT_BYTES: usize = size_of::<Entry>() + 1;

/// The newest records.
#[derive(Default)]
pub(crate) struct Table {
    entries: HashSet<Entry, BuildHasherDefault<KeyHasher>>,
}

/// A record that is found by its key alone.
#[derive(Clone, Copy)]
struct Entry(Record);

impl Table {
    /// Where `key` is.
    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        self.entries.get(key).map(|entry| entry.0.location)
    }

    /// Puts `key` at `location`, wherever it was before.
    pub(crate) fn insert(&mut self, key: Key, location: Value) {
        self.entries.replace(Entry(Record { key, location }));
    }

    /// Drops the records whose location is not kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(Value) -> bool) {
        self.entries.retain(|entry| keep(entry.0.location));
    }

    /// Drops all records. Their memory is kept for the next ones.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// How many records it holds.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The records in the order of their keys. Takes 16 bytes of memory for each, and no copy.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = Record> + use<'_> {
        // Of random keys the first eight bytes decide nearly always.
        let mut records: Vec<(u64, &Record)> =
            self.entries.iter().map(|entry| (key_prefix(&entry.0.key), &entry.0)).collect();
        records.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
        records.into_iter().map(|(_, record)| *record)
    }

    /// The memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A hash set of the standard library fills seven eighths of a power of two.
        match self.entries.capacity() {
            0 => 0,
            capacity => (capacity * 8 / 7).next_power_of_two() * SLOT_BYTES,
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl Borrow<Key> for Entry {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

/// Takes eight bytes of the key for its hash: the key is a hash already.
///
/// They are not those by which segments are sorted nor those that filters take, so that no table,
/// filter or file is filled in the order of another.
#[derive(Default)]
struct KeyHasher {
    hash: u64,
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let [word @ .., _, _, _, _, _, _, _, _] = bytes
            && let Some(word) = word.last_chunk::<8>()
        {
            self.hash = u64::from_le_bytes(*word);
        }
    }

    /// The length of the array, which is always the same.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn eight_bytes_of_the_key_are_the_hash() {
        let key: Key = std::array::from_fn(|at| at as u8);
        let hasher = BuildHasherDefault::<KeyHasher>::default();
        assert_eq!(hasher.hash_one(key), 0x1716_1514_1312_1110);
        let entry = Entry(Record { key, location: Value(5) });
        assert_eq!(hasher.hash_one(entry), hasher.hash_one(key));
    }

    #[test]
    fn a_key_is_there_once() {
        let mut table = Table::default();
        for location in [3, 9, 4] {
            table.insert([1; 32], Value(location));
        }
        assert_eq!((table.len(), table.get(&[1; 32])), (1, Some(Value(4))));
        assert_eq!(table.get(&[2; 32]), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any distribution will do")]
    fn sorted_by_all_bytes() {
        let mut table = Table::default();
        let random = RandomState::new();
        for n in 0..2000u64 {
            let mut key = [0; 32];
            key[0] = (n % 3) as u8;
            key[16..24].copy_from_slice(&random.hash_one(n).to_le_bytes());
            table.insert(key, Value(n));
        }
        let records: Vec<Record> = table.sorted().collect();
        assert_eq!(records.len(), 2000);
        assert!(records.is_sorted_by(|a, b| a.key < b.key));
    }
}
