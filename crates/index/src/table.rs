//! The table in memory: the newest records, by key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::{Key, Location, Record, key_prefix};

/// Bytes that a slot of the hash map takes: key, location and one control byte.
const SLOT_BYTES: usize = size_of::<(Key, Location)>() + 1;

/// The newest records.
#[derive(Default)]
pub(crate) struct Table {
    records: HashMap<Key, Location, BuildHasherDefault<KeyHasher>>,
}

impl Table {
    /// Where `key` is.
    pub(crate) fn get(&self, key: &Key) -> Option<Location> {
        self.records.get(key).copied()
    }

    /// Puts `key` at `location`, wherever it was before.
    pub(crate) fn insert(&mut self, key: Key, location: Location) {
        self.records.insert(key, location);
    }

    /// Drops the records whose location is not kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(Location) -> bool) {
        self.records.retain(|_, location| keep(*location));
    }

    /// Drops all records. Their memory is kept for the next ones.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }

    /// How many records it holds.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The records in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self
            .records
            .iter()
            .map(|(key, location)| Record { key: *key, location: *location })
            .collect();
        // Of random keys the first eight bytes decide nearly always.
        records.sort_unstable_by(|a, b| {
            key_prefix(&a.key).cmp(&key_prefix(&b.key)).then_with(|| a.key.cmp(&b.key))
        });
        records
    }

    /// The memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A hash map of the standard library fills seven eighths of a power of two.
        match self.records.capacity() {
            0 => 0,
            capacity => (capacity * 8 / 7).next_power_of_two() * SLOT_BYTES,
        }
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
        let hash = BuildHasherDefault::<KeyHasher>::default().hash_one(key);
        assert_eq!(hash, 0x1716_1514_1312_1110);
    }

    #[test]
    fn sorted_by_all_bytes() {
        let mut table = Table::default();
        let random = RandomState::new();
        for n in 0..2000u64 {
            let mut key = [0; 32];
            key[0] = (n % 3) as u8;
            key[16..24].copy_from_slice(&random.hash_one(n).to_le_bytes());
            table.insert(key, Location(n));
        }
        let records = table.sorted();
        assert_eq!(records.len(), 2000);
        assert!(records.is_sorted_by(|a, b| a.key < b.key));
    }
}
