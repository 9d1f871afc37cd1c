//! An xor filter of eight bits in a fixed number of bytes: a set of up to 3060 keys of 64 bits,
//! fixed when built. It never denies a member, affirms one stranger in 256, and takes ten bits a
//! key.
//!
//! Source: Graf and Lemire, "Xor Filters: Faster and Smaller Than Bloom and Cuckoo Filters", 2020.
//! A key has a place in each third of the bytes; the exclusive or of the three is the key's
//! fingerprint. Building means finding an order in which each key has a place that no later one
//! needs, by removing keys that are alone in some place until none is left. The filter is small
//! enough for the processor's cache while it is built, and asking it needs no second read.

/// The length of a filter, which is in the head of a partition.
pub(crate) const FILTER_BYTES: usize = 3828;

/// The length of a third.
const THIRD: usize = FILTER_BYTES / 3;
/// Seeds tried before the filter is built to affirm everything. One in twenty fails for
/// 3060 distinct keys, so this many fail only through a fault.
const ATTEMPTS_MAX: u64 = 100;
/// The seed of the filter that affirms everything.
const AFFIRMS_ALL: u64 = 0;

const _: () = assert!(FILTER_BYTES == 3 * THIRD && FILTER_BYTES < 1 << 16);

/// The bytes of a filter.
pub(crate) type FilterBytes = [u8; FILTER_BYTES];

/// Makes the filter that affirms `keys`, which may repeat and are sorted here. Returns its seed and
/// its bytes.
pub(crate) fn build(keys: &mut Vec<u64>) -> (u64, FilterBytes) {
    keys.sort_unstable();
    keys.dedup();
    for attempt in 1..=ATTEMPTS_MAX {
        let seed = mix(attempt);
        if let Some(bytes) = fill(keys, seed) {
            return (seed, bytes);
        }
    }
    (AFFIRMS_ALL, [0; FILTER_BYTES])
}

/// Whether `key` may be a member; `false` is certain.
pub(crate) fn may_contain(seed: u64, bytes: &FilterBytes, key: u64) -> bool {
    let hash = hash(key, seed);
    let found = places(hash).iter().fold(0, |found, at| found ^ bytes[*at]);
    found == fingerprint(hash) || seed == AFFIRMS_ALL
}

/// The bytes for distinct `keys`; `None` if this seed does not allow it.
fn fill(keys: &[u64], seed: u64) -> Option<FilterBytes> {
    // How many keys still have each place, and the exclusive or of their hashes.
    let mut users = [(0u32, 0u64); FILTER_BYTES];
    for key in keys {
        let hash = hash(*key, seed);
        for at in places(hash) {
            users[at].0 += 1;
            users[at].1 ^= hash;
        }
    }
    let mut alone: Vec<u16> =
        (0..FILTER_BYTES as u16).filter(|at| users[usize::from(*at)].0 == 1).collect();
    let mut removed = Vec::with_capacity(keys.len());
    while let Some(place) = alone.pop() {
        let (count, hash) = users[usize::from(place)];
        if count != 1 {
            continue;
        }
        removed.push((hash, usize::from(place)));
        for at in places(hash) {
            users[at].0 -= 1;
            users[at].1 ^= hash;
            if users[at].0 == 1 {
                alone.push(at as u16);
            }
        }
    }
    if removed.len() != keys.len() {
        return None;
    }
    // The place at which a key was alone is free to make its exclusive or come out right once all
    // keys removed later are set.
    let mut bytes = [0; FILTER_BYTES];
    for (hash, place) in removed.iter().rev() {
        let others = places(*hash).iter().fold(0, |found, at| found ^ bytes[*at]);
        bytes[*place] = fingerprint(*hash) ^ others;
    }
    Some(bytes)
}

/// Where a key has its places: sixteen bits of its hash for each third.
#[inline]
fn places(hash: u64) -> [usize; 3] {
    let place = |third: usize| (((hash >> (16 * third)) as usize % (1 << 16)) * THIRD) >> 16;
    [place(0), THIRD + place(1), 2 * THIRD + place(2)]
}

/// What the exclusive or at its places is.
#[inline]
fn fingerprint(hash: u64) -> u8 {
    (hash >> 56) as u8
}

#[inline]
fn hash(key: u64, seed: u64) -> u64 {
    mix(key.wrapping_add(seed))
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
    use crate::format::PARTITION_RECORDS_MAX;

    fn affirms_all(keys: &[u64], filter: &(u64, FilterBytes)) -> bool {
        keys.iter().all(|key| may_contain(filter.0, &filter.1, *key))
    }

    #[test]
    fn members_of_every_size() {
        for count in (0..200).chain([1000, 2000, 3000, PARTITION_RECORDS_MAX as u64]) {
            let keys: Vec<u64> = (0..count).map(|n| mix(n ^ count << 32)).collect();
            let filter = build(&mut keys.clone());
            assert_ne!(filter.0, AFFIRMS_ALL, "{count}");
            assert!(affirms_all(&keys, &filter), "{count}");
        }
    }

    /// One stranger in 256 is affirmed, and few sets of keys need a second seed.
    #[test]
    fn full_filters() {
        const FILTERS: u64 = 300;
        let (mut first_seeds, mut affirmed) = (0, 0);
        for filter in 0..FILTERS {
            let of_filter = |n: u64| mix(filter << 32 | n);
            let mut keys = (0..PARTITION_RECORDS_MAX as u64).map(of_filter).collect();
            let (seed, bytes) = build(&mut keys);
            first_seeds += u64::from(seed == mix(1));
            let strangers = (1 << 20..(1 << 20) + 1000).map(of_filter);
            affirmed += strangers.filter(|key| may_contain(seed, &bytes, *key)).count() as u64;
        }
        assert!(first_seeds * 10 >= FILTERS * 9, "{first_seeds} of {FILTERS}");
        let percent = affirmed as f64 * 100.0 / (FILTERS * 1000) as f64;
        assert!((0.35..0.43).contains(&percent), "{percent:.2} %");
    }

    /// Keys as bad as can be: all alike, in sequence, differing in the high bits only.
    #[test]
    fn bad_keys_end() {
        for keys in [vec![7; 3000], (0..3000).collect(), (0..3000).map(|n| n << 48).collect()] {
            let filter = build(&mut keys.clone());
            assert!(affirms_all(&keys, &filter));
            assert_ne!(filter.0, AFFIRMS_ALL);
        }
    }

    /// Keys that no seed can place: too many, or given as if distinct.
    #[test]
    fn impossible_keys_end() {
        let mut keys: Vec<u64> = (0..2 * FILTER_BYTES as u64).map(mix).collect();
        let filter = build(&mut keys);
        assert_eq!(filter.0, AFFIRMS_ALL);
        assert!(affirms_all(&[1, 2, 3], &filter));
        assert_eq!(fill(&[5, 5, 6, 7], 1), None);
    }
}
