//! Which segments to merge, and the merged stream of several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Key, Record, Result};

/// Segments are merged four at a time or more.
const MERGE_SEGMENTS_MIN: usize = 4;

/// From which segment on the newest ones should be merged into one, given the records of each,
/// oldest first.
///
/// Only neighbours in age may be merged, so that newer records stay newer. The merge takes the
/// longest run of newest segments whose oldest has at most a third of the records of the rest: four
/// of like size, or a small one before a big one. So a record is rewritten about once for each
/// fourfold growth, and `n` flushes of one size leave at most three segments for each power of four
/// in `n`.
pub(crate) fn due(records: &[u64]) -> Option<usize> {
    let mut begin = None;
    let mut newer = 0u64;
    for (at, count) in records.iter().enumerate().rev() {
        if records.len() - at >= MERGE_SEGMENTS_MIN && count.saturating_mul(3) <= newer {
            begin = Some(at);
        }
        newer += count;
    }
    begin
}

/// A stream of records in the order of their keys, each key once.
pub(crate) type Source<'a> = Box<dyn Iterator<Item = Result<Record>> + 'a>;

/// The records of several sources, oldest source first, in the order of their keys; of equal keys
/// that of the newest source.
pub(crate) struct Merge<'a> {
    sources: Vec<Source<'a>>,
    /// The next record of each source that has one: the least key first, then the newest source.
    heads: BinaryHeap<Reverse<Head>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: Key,
    source: Reverse<usize>,
    location: crate::Location,
}

impl<'a> Merge<'a> {
    /// Begins to merge `sources`.
    pub(crate) fn new(sources: Vec<Source<'a>>) -> Result<Merge<'a>> {
        let heads = BinaryHeap::with_capacity(sources.len());
        let mut merge = Merge { sources, heads };
        for source in 0..merge.sources.len() {
            merge.pull(source)?;
        }
        Ok(merge)
    }

    fn pull(&mut self, source: usize) -> Result<()> {
        if let Some(record) = self.sources[source].next().transpose()? {
            let Record { key, location } = record;
            self.heads.push(Reverse(Head { key, source: Reverse(source), location }));
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<Option<Record>> {
        let Some(Reverse(head)) = self.heads.pop() else {
            return Ok(None);
        };
        self.pull(head.source.0)?;
        Ok(Some(Record { key: head.key, location: head.location }))
    }

    fn advance(&mut self) -> Result<Option<Record>> {
        let newest = self.pop()?;
        if let Some(record) = newest {
            while self.heads.peek().is_some_and(|Reverse(head)| head.key == record.key) {
                self.pop()?;
            }
        }
        Ok(newest)
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.advance().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;

    #[test]
    fn when_merges_are_due() {
        let cases: [(&[u64], Option<usize>); 9] = [
            (&[], None),
            (&[1, 1, 1], None),
            (&[1, 1, 1, 1], Some(0)),
            (&[4, 1, 1, 1], None),
            (&[4, 1, 1, 1, 1], Some(1)),
            (&[4, 4, 4, 1, 1, 1, 1], Some(0)),
            (&[1000, 1, 1, 1, 900], Some(1)),
            (&[1, 1000, 1, 1, 1], Some(0)),
            (&[100, 1, 1, 1, 1, 1], Some(1)),
        ];
        for (records, expected) in cases {
            assert_eq!(due(records), expected, "{records:?}");
        }
    }

    /// Whatever the sizes, the number of segments stays logarithmic.
    #[test]
    fn few_segments_stay() {
        let mut state = 1u64;
        for shift in [60, 54, 48] {
            let mut segments = Vec::new();
            for _ in 0..20_000 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                segments.push(1 + (state >> shift).leading_zeros() as u64 % 3 * (state >> shift));
                while let Some(begin) = due(&segments) {
                    let merged = segments.split_off(begin).iter().sum();
                    segments.push(merged);
                }
                assert!(segments.len() < 40, "{segments:?}");
            }
        }
    }

    #[test]
    fn the_newest_of_equal_keys() {
        let source = |keys: &'static [u8], location| -> Source<'static> {
            Box::new(
                keys.iter()
                    .map(move |key| Ok(Record { key: [*key; 32], location: Location(location) })),
            )
        };
        let sources = vec![source(&[1, 2, 5], 0), source(&[2, 3], 1), source(&[2, 5, 9], 2)];
        let merged: Vec<(u8, u64)> = Merge::new(sources)
            .unwrap()
            .map(|record| record.map(|record| (record.key[0], record.location.0)).unwrap())
            .collect();
        assert_eq!(merged, [(1, 0), (2, 2), (3, 1), (5, 2), (9, 2)]);
    }
}
