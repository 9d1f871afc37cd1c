//! The numbers that were used last: a cache with a fixed number of places.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

/// A set that forgets what was used longest ago.
#[derive(Debug, Default)]
pub struct Recent {
    capacity: usize,
    places: HashMap<u32, u32, BuildHasherDefault<Mixer>>,
    entries: Vec<Entry>,
    /// The entry used last, and the one used longest ago.
    first: u32,
    last: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u32,
    before: u32,
    after: u32,
}

impl Recent {
    /// An empty set with room for `capacity` numbers.
    pub fn new(capacity: u64) -> Self {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX).min(NONE as usize - 1);
        Self { capacity, first: NONE, last: NONE, ..Self::default() }
    }

    /// Whether a number is in it; if so, it is now the one used last.
    pub fn uses(&mut self, key: u32) -> bool {
        let Some(&place) = self.places.get(&key) else { return false };
        self.unlink(place);
        self.link_first(place);
        true
    }

    /// Puts a number in.
    pub fn put(&mut self, key: u32) {
        if self.capacity == 0 || self.uses(key) {
            return;
        }
        let entry = Entry { key, before: NONE, after: NONE };
        let place = if self.entries.len() < self.capacity {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let oldest = self.last;
            self.unlink(oldest);
            self.places.remove(&self.entries[oldest as usize].key);
            self.entries[oldest as usize] = entry;
            oldest
        };
        self.places.insert(key, place);
        self.link_first(place);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
        (self.first, self.last) = (NONE, NONE);
    }

    fn unlink(&mut self, place: u32) {
        let Entry { before, after, .. } = self.entries[place as usize];
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.after = after,
            None => self.first = after,
        }
        match self.entries.get_mut(after as usize) {
            Some(entry) => entry.before = before,
            None => self.last = before,
        }
    }

    fn link_first(&mut self, place: u32) {
        let next = self.first;
        let entry = &mut self.entries[place as usize];
        (entry.before, entry.after) = (NONE, next);
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.before = place,
            None => self.last = place,
        }
        self.first = place;
    }
}

/// Numbers are spread by one multiplication: they come from this program, not from an attacker.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    #[test]
    fn it_forgets_in_the_order_of_a_list() {
        let mut random = Random::new(14);
        for capacity in [0, 1, 2, 7, 40] {
            let (mut recent, mut list) = (Recent::new(capacity), Vec::new());
            let mut found = 0;
            for step in 0..4_000 {
                if step % 1_000 == 999 {
                    recent.clear();
                    list.clear();
                }
                let key = random.below(60) as u32;
                let place = list.iter().position(|other| *other == key);
                if random.once_in(2) {
                    assert_eq!(recent.uses(key), place.is_some(), "capacity {capacity}");
                    found += u32::from(place.is_some());
                    if let Some(place) = place {
                        list.remove(place);
                        list.push(key);
                    }
                } else if capacity > 0 {
                    recent.put(key);
                    if let Some(place) = place {
                        list.remove(place);
                    } else if list.len() as u64 == capacity {
                        list.remove(0);
                    }
                    list.push(key);
                }
            }
            assert!(capacity == 0 || found > 10, "capacity {capacity}");
        }
    }
}
