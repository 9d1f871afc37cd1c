//! A cache bounded by the bytes that it holds: what was used least recently goes first.
//!
//! Invariants:
//! - the counted bytes are the sum of all entries' bytes;
//! - they are at most the bound, unless a single entry is larger: that one is kept alone, as
//!   the caller who made it is about to use it again.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::regimes::{Regime, reached_if};

/// A cache for many threads.
pub struct ByteCache<K: Hash + Eq, V> {
    bytes_max: usize,
    // A plain mutex: held for a map operation, never while a value is made.
    kept: Mutex<Kept<K, V>>,
}

struct Kept<K: Hash + Eq, V> {
    entries: LruCache<K, Weighed<V>>,
    bytes: usize,
}

struct Weighed<V> {
    value: V,
    bytes: usize,
}

impl<K: Hash + Eq, V> ByteCache<K, V> {
    /// What each entry takes besides the value's own heap: key and value, the two links of the
    /// list, the allocator's header, and a place in a hash table that is half full.
    pub const ENTRY_BYTES: usize = size_of::<K>() + size_of::<Weighed<V>>() + 16 + 16 + 20;

    /// An empty cache that holds at most `bytes_max`, or one larger entry.
    pub fn new(bytes_max: usize) -> Self {
        let kept = Kept { entries: LruCache::unbounded(), bytes: 0 };
        Self { bytes_max, kept: Mutex::new(kept) }
    }

    /// A clone of a key's value, which counts as used now.
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.kept().entries.get(key).map(|entry| entry.value.clone())
    }

    /// Keeps a value that has this many bytes on the heap, and returns the one that the key had.
    pub fn put(&self, key: K, value: V, heap_bytes: usize) -> Option<V> {
        let bytes = heap_bytes.saturating_add(Self::ENTRY_BYTES);
        let mut evicted = Vec::new();
        let mut kept = self.kept();
        kept.bytes = kept.bytes.saturating_add(bytes);
        let replaced = kept.entries.push(key, Weighed { value, bytes }).map(|(_, old)| old);
        kept.bytes -= replaced.as_ref().map_or(0, |old| old.bytes);
        while kept.bytes > self.bytes_max && kept.entries.len() > 1 {
            let Some((_, oldest)) = kept.entries.pop_lru() else { break };
            kept.bytes -= oldest.bytes;
            evicted.push(oldest);
        }
        reached_if(!evicted.is_empty(), Regime::CacheEvicted);
        // What is let go may be large: its memory is freed after the lock.
        drop(kept);
        replaced.map(|old| old.value)
    }

    /// Forgets a key, and returns its value.
    pub fn remove(&self, key: &K) -> Option<V> {
        let mut kept = self.kept();
        let entry = kept.entries.pop(key)?;
        kept.bytes -= entry.bytes;
        Some(entry.value)
    }

    /// Forgets all keys of which this is true. It looks at every key.
    pub fn remove_if(&self, is_stale: impl Fn(&K) -> bool)
    where
        K: Clone,
    {
        let keys: Vec<K> = self
            .kept()
            .entries
            .iter()
            .map(|(key, _)| key)
            .filter(|k| is_stale(k))
            .cloned()
            .collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// Bytes that are held, as they were counted.
    pub fn bytes(&self) -> usize {
        self.kept().bytes
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        // Nothing panics between the change of the map and that of the count.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Cache = ByteCache<u32, u32>;

    /// A cache for `entries` entries of 100 bytes.
    fn cache_for(entries: usize) -> Cache {
        Cache::new(entries * (100 + Cache::ENTRY_BYTES))
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = cache_for(3);
        (0..3).for_each(|key| assert_eq!(cache.put(key, key * 10, 100), None));
        assert_eq!(cache.get(&0), Some(0), "and is used by that");
        cache.put(3, 30, 100);
        let found: Vec<_> = (0..4).map(|key| cache.get(&key)).collect();
        assert_eq!(found, [Some(0), None, Some(20), Some(30)]);
    }

    #[test]
    fn bytes_are_counted_whatever_happens_to_the_entries() {
        let cache = cache_for(4);
        (0..4).for_each(|key| assert_eq!(cache.put(key, 0, 100), None));
        let full = cache.bytes();
        assert_eq!(full, 4 * (100 + Cache::ENTRY_BYTES));
        assert_eq!(cache.put(2, 1, 60), Some(0));
        assert_eq!((cache.get(&2), cache.bytes()), (Some(1), full - 40), "replaced");
        assert_eq!(cache.remove(&2), Some(1));
        assert_eq!(cache.remove(&2), None);
        assert_eq!(cache.bytes(), 3 * (100 + Cache::ENTRY_BYTES));
        cache.remove_if(|key| *key < 3);
        assert_eq!((cache.get(&3), cache.bytes()), (Some(0), 100 + Cache::ENTRY_BYTES));
        cache.remove(&3);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn one_entry_beyond_the_bound_is_kept_alone() {
        let cache = cache_for(2);
        (0..2).for_each(|key| assert_eq!(cache.put(key, 0, 100), None));
        cache.put(7, 7, 1 << 30);
        assert_eq!([cache.get(&0), cache.get(&1), cache.get(&7)], [None, None, Some(7)]);
        cache.put(1, 1, 100);
        assert_eq!([cache.get(&1), cache.get(&7)], [Some(1), None]);
        assert_eq!(cache.bytes(), 100 + Cache::ENTRY_BYTES);
    }
}
