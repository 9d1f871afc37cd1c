//! Ranges that will not be read again, gathered until they are whole clusters of the store.
//!
//! QEMU forgets what is within a range only as far as it covers clusters; of smaller ranges nothing
//! would ever be forgotten.

use std::collections::BTreeMap;
use std::ops::Range;

/// The filter copies this many bytes at once, at multiples of it.
pub const CLUSTER_BYTES: u64 = 64 << 10;
/// More fragments than this are not remembered; their clusters stay in the store.
const FRAGMENTS_MAX: usize = 1 << 16;

/// Fragments of clusters that wait for their neighbours.
#[derive(Debug)]
pub struct Released {
    size: u64,
    /// Start and end of each. They do not touch.
    fragments: BTreeMap<u64, u64>,
}

impl Released {
    /// For a disk of this size.
    pub fn new(size: u64) -> Self {
        Self { size, fragments: BTreeMap::new() }
    }

    /// Adds a range, and returns the clusters that are whole now. The first cluster of a disk is never
    /// among them: by reading it one finds out whether the instant still exists.
    pub fn add(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        let (mut start, mut end) = (range.start.max(CLUSTER_BYTES), range.end.min(self.size));
        if start >= end {
            return None;
        }
        // What touches it, the one in front and those behind.
        while let Some((&from, &to)) = self.fragments.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.fragments.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        let first = start.next_multiple_of(CLUSTER_BYTES);
        let last = if end == self.size { end } else { end - end % CLUSTER_BYTES };
        let whole = (first < last).then_some(first..last);
        let rests = match &whole {
            Some(whole) => [start..whole.start, whole.end..end],
            None => [start..end, end..end],
        };
        for rest in rests {
            if !rest.is_empty() && self.fragments.len() < FRAGMENTS_MAX {
                self.fragments.insert(rest.start, rest.end);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIT: u64 = CLUSTER_BYTES / 4;

    proptest! {
        #[test]
        fn whole_clusters_come_once_and_all(
            ranges in proptest::collection::vec((0u64..70, 1u64..20), 0..40),
            units in 1u64..70,
        ) {
            let size = units * UNIT - 5;
            let mut released = Released::new(size);
            let mut given = [false; 70];
            let mut had = [false; 70];
            for (start, length) in ranges {
                for unit in start..(start + length).min(70) {
                    given[unit as usize] = true;
                }
                if let Some(whole) = released.add(start * UNIT..(start + length) * UNIT) {
                    prop_assert!(whole.start % CLUSTER_BYTES == 0 && whole.end <= size);
                    prop_assert!(whole.end % CLUSTER_BYTES == 0 || whole.end == size);
                    for unit in whole.start / UNIT..whole.end.div_ceil(UNIT) {
                        had[unit as usize] = true;
                    }
                }
            }
            for cluster in 0..units.div_ceil(4) {
                let inside = cluster * 4..(cluster * 4 + 4).min(units);
                let is_whole = inside.clone().all(|unit| given[unit as usize]) && cluster > 0;
                for unit in inside {
                    prop_assert_eq!(had[unit as usize], is_whole, "unit {}", unit);
                }
            }
        }
    }
}
