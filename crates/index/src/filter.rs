//! A binary fuse filter of eight bits: a set of 64-bit keys, fixed when built, that never denies a
//! member and affirms one stranger in 256, in about nine bits a key.
//!
//! Source: Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022, three
//! places a key. A key has three places in an array of bytes; their exclusive or is the key's
//! fingerprint. Building means finding an order in which each key has a place that no later one
//! needs, by removing keys that are alone in some place until none is left.

/// Seeds tried before the filter is built to affirm everything. One fails in fewer than 1 of 100
/// cases for distinct keys, so this many fail only through a fault.
const ATTEMPTS_MAX: u64 = 100;

/// The filter.
///
/// Invariant: `fingerprints` is empty (then everything is affirmed), or has
/// `(ranges + 2) · range_length` bytes with `ranges >= 1` and `range_length` a power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    seed: u64,
    range_length: u32,
    fingerprints: Vec<u8>,
}

/// The three places of a key and its fingerprint.
struct Places {
    at: [usize; 3],
    fingerprint: u8,
}

impl Filter {
    /// The longest range: places are 18 bits of the hash.
    const RANGE_LENGTH_MAX: u32 = 1 << 18;

    /// The filter that affirms `keys`, which may repeat and are used up.
    pub(crate) fn build(keys: &mut Vec<u64>) -> Filter {
        keys.sort_unstable();
        keys.dedup();
        let (range_length, length) = shape(keys.len());
        for attempt in 0..ATTEMPTS_MAX {
            let mut filter =
                Filter { seed: mix(attempt), range_length, fingerprints: vec![0; length] };
            if filter.fill(keys) {
                return filter;
            }
        }
        Filter { seed: 0, range_length, fingerprints: Vec::new() }
    }

    /// The filter of these parts, as [`Filter::parts`] gave them; `None` if no filter has them.
    pub(crate) fn from_parts(seed: u64, range_length: u32, fingerprints: &[u8]) -> Option<Filter> {
        let shaped = range_length.is_power_of_two()
            && range_length <= Filter::RANGE_LENGTH_MAX
            && fingerprints.len().is_multiple_of(range_length as usize)
            && fingerprints.len() / range_length as usize >= 3;
        (shaped || fingerprints.is_empty()).then(|| Filter {
            seed,
            range_length,
            fingerprints: fingerprints.to_vec(),
        })
    }

    /// The seed, the length of a range, and the fingerprints.
    pub(crate) fn parts(&self) -> (u64, u32, &[u8]) {
        (self.seed, self.range_length, &self.fingerprints)
    }

    /// Whether `key` may be a member; `false` is certain.
    pub(crate) fn may_contain(&self, key: u64) -> bool {
        if self.fingerprints.is_empty() {
            return true;
        }
        let places = self.places(mix(key.wrapping_add(self.seed)));
        let found = places.at.iter().fold(0, |found, at| found ^ self.fingerprints[*at]);
        found == places.fingerprint
    }

    /// Where the key that is hashed to `hash` has its places.
    #[inline]
    fn places(&self, hash: u64) -> Places {
        let length = self.range_length as usize;
        let mask = length - 1;
        let begins = self.fingerprints.len() - 2 * length;
        let first = ((u128::from(hash) * begins as u128) >> 64) as usize;
        Places {
            at: [
                first,
                (first + length) ^ ((hash >> 18) as usize & mask),
                (first + 2 * length) ^ (hash as usize & mask),
            ],
            fingerprint: (hash ^ (hash >> 32)) as u8,
        }
    }

    /// Sets the fingerprints for distinct `keys`; `false` if this seed does not allow it.
    fn fill(&mut self, keys: &[u64]) -> bool {
        // How many keys still have each place, and the exclusive or of their hashes.
        let mut users = vec![(0u32, 0u64); self.fingerprints.len()];
        for key in keys {
            let hash = mix(key.wrapping_add(self.seed));
            for at in self.places(hash).at {
                users[at].0 += 1;
                users[at].1 ^= hash;
            }
        }
        let mut alone: Vec<u32> =
            (0..users.len()).filter(|at| users[*at].0 == 1).map(|at| at as u32).collect();
        let mut removed = Vec::with_capacity(keys.len());
        while let Some(place) = alone.pop() {
            let (count, hash) = users[place as usize];
            if count != 1 {
                continue;
            }
            removed.push((hash, place));
            for at in self.places(hash).at {
                users[at].0 -= 1;
                users[at].1 ^= hash;
                if users[at].0 == 1 {
                    alone.push(at as u32);
                }
            }
        }
        // The place at which a key was alone is free to make its exclusive or come out right once
        // all keys removed later are set.
        for (hash, place) in removed.iter().rev() {
            let places = self.places(*hash);
            self.fingerprints[*place as usize] = 0;
            let others = places.at.iter().fold(0, |found, at| found ^ self.fingerprints[*at]);
            self.fingerprints[*place as usize] = places.fingerprint ^ others;
        }
        removed.len() == keys.len()
    }
}

/// The length of a range and of the array for `count` keys, by the formulas of the paper. Filters
/// keep their shape, so these may change.
fn shape(count: usize) -> (u32, usize) {
    let keys = count.max(2) as f64;
    let exponent = (keys.ln() / 3.33f64.ln() + 2.25).floor() as u32;
    let range_length = (1 << exponent).min(Filter::RANGE_LENGTH_MAX);
    let slack = (0.875 + 0.25 * 1e6f64.ln() / keys.ln()).max(1.125);
    let ranges = ((keys * slack) as usize).div_ceil(range_length as usize).max(3);
    (range_length, ranges * range_length as usize)
}

/// A bijection that spreads every bit over all (the finaliser of MurmurHash3).
#[inline]
fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ (key >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ (key >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strangers_percent(filter: &Filter, count: u64) -> f64 {
        let affirmed = (0..count).filter(|n| filter.may_contain(mix(*n ^ (1 << 60)))).count();
        100.0 * affirmed as f64 / count as f64
    }

    #[test]
    fn members_of_every_small_size() {
        for count in (0..400).chain([1000, 5000, 70_000]) {
            let keys: Vec<u64> = (0..count).map(mix).collect();
            let filter = Filter::build(&mut keys.clone());
            assert!(keys.iter().all(|key| filter.may_contain(*key)), "{count}");
            let (seed, range_length, fingerprints) = filter.parts();
            assert!(!fingerprints.is_empty());
            assert_eq!(Filter::from_parts(seed, range_length, fingerprints), Some(filter));
        }
    }

    #[test]
    fn size_and_false_positives() {
        let mut keys: Vec<u64> = (0..400_000).map(mix).collect();
        let filter = Filter::build(&mut keys);
        let bits = filter.parts().2.len() as f64 * 8.0 / keys.len() as f64;
        assert!(bits < 9.6, "{bits:.2} bits a key");
        let percent = strangers_percent(&filter, 400_000);
        assert!((0.3..0.5).contains(&percent), "{percent:.2} %");
    }

    /// Keys as bad as can be: all alike, in sequence, differing in the high bits only.
    #[test]
    fn bad_keys_end() {
        for keys in
            [vec![7; 100_000], (0..100_000).collect(), (0..60_000).map(|n| n << 48).collect()]
        {
            let filter = Filter::build(&mut keys.clone());
            assert!(keys.iter().all(|key| filter.may_contain(*key)));
            assert!(!filter.parts().2.is_empty());
        }
    }

    /// Keys that no seed can place, given as if distinct: the filter refuses instead of looping.
    #[test]
    fn repeated_keys_are_refused_by_fill() {
        let (range_length, length) = shape(4);
        let mut filter = Filter { seed: 1, range_length, fingerprints: vec![0; length] };
        assert!(!filter.fill(&[5, 5, 6, 7]));
    }

    #[test]
    fn impossible_parts_are_refused() {
        for (range_length, bytes) in [(3, 9), (0, 9), (4, 8), (4, 13), (1 << 19, 3 << 19)] {
            assert_eq!(Filter::from_parts(0, range_length, &vec![0; bytes]), None);
        }
    }
}
