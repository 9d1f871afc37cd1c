//! Which segments to merge, and the merged stream of several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::{Key, Record, Result, key_prefix};

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
///
/// The oldest of all is merged already when it has at most three times the records of the rest, so
/// it holds most of them. Look-ups read the heads of the largest segments from the file; this
/// leaves one such segment, or two, for some three more rewrites of each record ("lazy levelling":
/// Dayan and Idreos, "Dostoevsky", SIGMOD 2018).
pub(crate) fn due(records: &[u64]) -> Option<usize> {
    let mut begin = None;
    let mut newer = 0u64;
    for (at, count) in records.iter().enumerate().rev() {
        let is_small = match at {
            0 => *count <= newer.saturating_mul(3),
            _ => count.saturating_mul(3) <= newer,
        };
        if records.len() - at >= MERGE_SEGMENTS_MIN && is_small {
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
    /// Of the key: its other bytes hardly ever decide.
    prefix: u64,
    key: Key,
    source: Reverse<usize>,
    location: crate::Value,
}

impl Head {
    fn new(source: usize, Record { key, location }: Record) -> Reverse<Head> {
        Reverse(Head { prefix: key_prefix(&key), key, source: Reverse(source), location })
    }
}

impl<'a> Merge<'a> {
    /// Begins to merge `sources`.
    pub(crate) fn new(mut sources: Vec<Source<'a>>) -> Result<Merge<'a>> {
        let mut heads = BinaryHeap::with_capacity(sources.len());
        for (at, source) in sources.iter_mut().enumerate() {
            heads.extend(source.next().transpose()?.map(|record| Head::new(at, record)));
        }
        Ok(Merge { sources, heads })
    }

    /// Takes the least record; the next of its source takes its place.
    fn pop(&mut self) -> Result<Option<Record>> {
        let Some(mut least) = self.heads.peek_mut() else {
            return Ok(None);
        };
        let Reverse(Head { key, source: Reverse(source), location, .. }) = *least;
        match self.sources[source].next().transpose()? {
            Some(record) => *least = Head::new(source, record),
            None => drop(PeekMut::pop(least)),
        }
        Ok(Some(Record { key, location }))
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
    use crate::Value;

    #[test]
    fn when_merges_are_due() {
        let cases: [(&[u64], Option<usize>); 11] = [
            (&[], None),
            (&[1, 1, 1], None),
            (&[1, 1, 1, 1], Some(0)),
            (&[9, 1, 1, 1], Some(0)),
            (&[10, 1, 1, 1], None),
            (&[99, 4, 1, 1, 1], None),
            (&[99, 4, 1, 1, 1, 1], Some(2)),
            (&[99, 4, 4, 4, 1, 1, 1, 1], Some(1)),
            (&[9999, 1000, 1, 1, 1, 900], Some(2)),
            (&[1, 1000, 1, 1, 1], Some(0)),
            (&[100, 1, 1, 1, 1, 1], Some(1)),
        ];
        for (records, expected) in cases {
            assert_eq!(due(records), expected, "{records:?}");
        }
    }

    /// The number of segments stays logarithmic for any sizes.
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
                    .map(move |key| Ok(Record { key: [*key; 32], location: Value(location) })),
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
