//! Which bytes of a volume nothing needs.
//!
//! Invariants:
//! - a set bit means that every byte of its unit is free;
//! - the map has at most [`MAP_BYTES_MAX`] bytes: on a large volume the units grow, and what is free
//!   beside something used in the same unit counts as used.

use std::ops::Range;

/// The most bytes that a map takes. With units of 4 KiB this is enough for 1 TiB.
const MAP_BYTES_MAX: u64 = 32 << 20;

/// The free bytes of a volume: at first none; they are added, and what is in use is subtracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeMap {
    unit_bytes: u64,
    volume_bytes: u64,
    words: Vec<u64>,
}

impl FreeMap {
    /// A map without free bytes, in units of `unit_bytes` (a power of two) or larger ones.
    pub(crate) fn new(volume_bytes: u64, unit_bytes: u64) -> Self {
        let mut unit_bytes = unit_bytes.max(512).next_power_of_two();
        while volume_bytes.div_ceil(unit_bytes) > MAP_BYTES_MAX * 8 {
            unit_bytes *= 2;
        }
        let words = volume_bytes.div_ceil(unit_bytes).div_ceil(64);
        Self { unit_bytes, volume_bytes, words: vec![0; words as usize] }
    }

    /// Calls the whole units in a range of bytes free.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let end = range.end.min(self.volume_bytes);
        let first = range.start.div_ceil(self.unit_bytes);
        self.change(first..end / self.unit_bytes, |word, mask| word | mask);
    }

    /// Notes that a range of bytes of the volume is needed: every unit that it touches is no longer
    /// free.
    pub fn keep(&mut self, range: Range<u64>) {
        let end = range.end.min(self.volume_bytes).div_ceil(self.unit_bytes);
        self.change(range.start / self.unit_bytes..end, |word, mask| word & !mask);
    }

    fn change(&mut self, units: Range<u64>, change: impl Fn(u64, u64) -> u64) {
        let mut unit = units.start;
        while unit < units.end {
            let bits = (64 - unit % 64).min(units.end - unit);
            let mask = (u64::MAX >> (64 - bits)) << (unit % 64);
            if let Some(word) = self.words.get_mut((unit / 64) as usize) {
                *word = change(*word, mask);
            }
            unit += bits;
        }
    }

    /// The free ranges, in bytes of the volume, in ascending order; neighbours are one range.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut unit = 0;
        std::iter::from_fn(move || {
            let start = self.next(unit, true)?;
            let end = self.next(start, false).unwrap_or(self.words.len() as u64 * 64);
            unit = end;
            Some(start * self.unit_bytes..end * self.unit_bytes)
        })
    }

    /// The first unit from `unit` on that is free, or that is not.
    fn next(&self, unit: u64, free: bool) -> Option<u64> {
        let mut mask = u64::MAX << (unit % 64);
        let first = usize::try_from(unit / 64).ok()?;
        for (index, &word) in self.words.iter().enumerate().skip(first) {
            let bits = if free { word } else { !word } & mask;
            if bits != 0 {
                return Some(index as u64 * 64 + u64::from(bits.trailing_zeros()));
            }
            mask = u64::MAX;
        }
        None
    }

    /// How many bytes are free.
    pub fn bytes(&self) -> u64 {
        let units: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        units * self.unit_bytes
    }
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    #[test]
    fn it_agrees_with_a_plain_list_of_units() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let units = 1 + random.below(300);
            let bytes = units * 1024 + random.below(1024);
            let mut map = FreeMap::new(bytes, 1024);
            let mut plain = vec![false; units as usize];
            for _ in 0..20 {
                let (a, b) = (random.below(bytes + 2000), random.below(bytes + 2000));
                let range = a.min(b)..a.max(b);
                let adds = random.once_in(2);
                for (unit, free) in plain.iter_mut().enumerate() {
                    let (start, end) = (unit as u64 * 1024, unit as u64 * 1024 + 1024);
                    if adds && range.start <= start && end <= range.end {
                        *free = true;
                    } else if !adds && range.start < end && start < range.end {
                        *free = false;
                    }
                }
                if adds { map.add(range) } else { map.keep(range) }
            }
            let mut found = vec![false; units as usize];
            for range in map.ranges() {
                assert!(range.start < range.end && range.end <= bytes, "seed {seed}");
                found[(range.start / 1024) as usize..(range.end / 1024) as usize].fill(true);
            }
            assert_eq!(found, plain, "seed {seed}");
            assert_eq!(map.bytes() / 1024, plain.iter().filter(|free| **free).count() as u64);
        }
    }

    #[test]
    fn a_large_volume_has_large_units() {
        let mut map = FreeMap::new(64 << 40, 4096);
        assert_eq!(map.words.len() * 8, MAP_BYTES_MAX as usize);
        map.add(4096..1 << 30);
        map.keep((1 << 20) + 1..(1 << 20) + 2);
        let ranges: Vec<_> = map.ranges().collect();
        assert_eq!(ranges, [256 << 10..1 << 20, (1 << 20) + (256 << 10)..1 << 30]);
    }
}
