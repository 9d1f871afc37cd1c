//! Whether the ranges of buckets cover all keys exactly once (SDDS-2002, §2.1).
//!
//! Of two buckets that claim the same keys, or the same number, the one with the higher split
//! version is believed: the other has not heard of the split yet, and is asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use strongroom_bucket::KeyRange;

use crate::message::{BucketNumber, NodeId};

/// A bucket on a node: in a sound file, there is one for each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// The bucket.
    pub bucket: BucketNumber,
    /// The node that has it.
    pub node: NodeId,
}

/// What a bucket says that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The bucket and its node.
    pub holder: Holder,
    /// Its keys.
    pub range: KeyRange,
    /// How many splits led to this range.
    pub split_version: u64,
}

/// Two buckets that claim the same keys, or have the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The keys that both claim; those of the doubted one if they share only the number.
    pub range: KeyRange,
    /// The one that is to be asked again.
    pub doubted: Holder,
    /// The other one, which is doubted as well if the split versions are equal.
    pub other: Holder,
}

/// What is missing from, and what is too much in, the keys that buckets claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Union {
    /// Ranges that no believed bucket claims, in order.
    pub gaps: Vec<KeyRange>,
    /// Claims that contradict each other.
    pub overlaps: Vec<Overlap>,
    /// Ranges that no bucket claims, believed or not, in order.
    pub unclaimed: Vec<KeyRange>,
}

impl Overlap {
    /// Each of these pairs once: of two that are both doubted, there are two overlaps.
    pub fn once(overlaps: &[Self]) -> Vec<&Self> {
        let is_first = |at: usize, overlap: &Self| {
            let same = |other: &Self| {
                (other.doubted, other.other) == (overlap.other, overlap.doubted)
                    && other.range == overlap.range
            };
            !overlaps[..at].iter().any(same)
        };
        let pairs = overlaps.iter().enumerate();
        pairs.filter(|(at, overlap)| is_first(*at, overlap)).map(|(_, overlap)| overlap).collect()
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, doubted, other } = self;
        write!(f, "{range} (bucket {} on node {} and ", other.bucket, other.node)?;
        write!(f, "bucket {} on node {})", doubted.bucket, doubted.node)
    }
}

impl Union {
    /// Of these claims.
    pub fn of(claims: &[Claim]) -> Self {
        let mut sorted: Vec<&Claim> =
            claims.iter().filter(|claim| claim.range.is_valid()).collect();
        sorted.sort_by(|a, b| (&a.range.low, a.holder).cmp(&(&b.range.low, b.holder)));
        let mut overlaps = Vec::new();
        for (first, second) in contradictions(&sorted) {
            overlaps.extend(doubts(first, second));
        }
        let doubted: BTreeSet<Holder> = overlaps.iter().map(|overlap| overlap.doubted).collect();
        let believed = sorted.iter().filter(|claim| !doubted.contains(&claim.holder));
        let gaps = gaps(believed.map(|claim| &claim.range));
        Self { gaps, overlaps, unclaimed: Self::unclaimed(claims) }
    }

    /// Whether all keys are claimed exactly once.
    pub fn is_whole(&self) -> bool {
        self.gaps.is_empty() && self.overlaps.is_empty()
    }

    /// Keys that no claim has, believed or not.
    pub fn unclaimed(claims: &[Claim]) -> Vec<KeyRange> {
        let mut ranges: Vec<&KeyRange> = claims.iter().map(|claim| &claim.range).collect();
        ranges.retain(|range| range.is_valid());
        ranges.sort();
        gaps(ranges.into_iter())
    }

    /// Who is to be asked again.
    pub fn doubted(&self) -> BTreeSet<Holder> {
        self.overlaps.iter().map(|overlap| overlap.doubted).collect()
    }
}

/// Pairs that share keys or a number, of claims sorted by their first key.
fn contradictions<'c>(sorted: &[&'c Claim]) -> Vec<(&'c Claim, &'c Claim)> {
    let mut pairs = Vec::new();
    let mut open: Vec<&Claim> = Vec::new();
    let mut by_number: BTreeMap<BucketNumber, Vec<&Claim>> = BTreeMap::new();
    for &claim in sorted {
        open.retain(|earlier| earlier.range.meets(&claim.range));
        pairs.extend(open.iter().map(|earlier| (*earlier, claim)));
        let same = by_number.entry(claim.holder.bucket).or_default();
        let apart = same.iter().filter(|earlier| !earlier.range.meets(&claim.range));
        pairs.extend(apart.map(|earlier| (*earlier, claim)));
        same.push(claim);
        open.push(claim);
    }
    pairs
}

/// The lower split version is doubted; if they are equal, both are.
fn doubts(first: &Claim, second: &Claim) -> Vec<Overlap> {
    let doubt = |doubted: &Claim, other: &Claim| Overlap {
        range: shared(&doubted.range, &other.range).unwrap_or_else(|| doubted.range.clone()),
        doubted: doubted.holder,
        other: other.holder,
    };
    match first.split_version.cmp(&second.split_version) {
        std::cmp::Ordering::Less => vec![doubt(first, second)],
        std::cmp::Ordering::Greater => vec![doubt(second, first)],
        std::cmp::Ordering::Equal => vec![doubt(first, second), doubt(second, first)],
    }
}

fn shared(a: &KeyRange, b: &KeyRange) -> Option<KeyRange> {
    let high = match (&a.high, &b.high) {
        (Some(a), Some(b)) => Some(a.min(b).clone()),
        (one, None) | (None, one) => one.clone(),
    };
    a.meets(b).then(|| KeyRange { low: a.low.clone().max(b.low.clone()), high })
}

/// What is between ranges that are sorted by their first keys.
fn gaps<'r>(ranges: impl Iterator<Item = &'r KeyRange>) -> Vec<KeyRange> {
    let mut gaps = Vec::new();
    // The first key that no range has claimed so far; `None` behind the last key.
    let mut next = Some(Vec::new());
    for range in ranges {
        let Some(low) = next.take() else { break };
        next = range.high.clone().map(|high| high.max(low.clone()));
        if low < range.low {
            gaps.push(KeyRange { low, high: Some(range.low.clone()) });
        }
    }
    gaps.extend(next.map(|low| KeyRange { low, high: None }));
    gaps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(bucket: u32, low: &str, high: &str, split_version: u64) -> Claim {
        let high = (!high.is_empty()).then(|| high.as_bytes().to_vec());
        let holder = Holder { bucket: BucketNumber(bucket), node: NodeId([bucket as u8; 16]) };
        Claim { holder, range: KeyRange { low: low.as_bytes().to_vec(), high }, split_version }
    }

    fn shown(union: &Union) -> (String, String) {
        let gaps = union.gaps.iter().map(KeyRange::interval).collect::<Vec<_>>().join(" ");
        let overlap =
            |o: &Overlap| format!("{}>{} {}", o.other.bucket, o.doubted.bucket, o.range.interval());
        let overlaps = union.overlaps.iter().map(overlap).collect::<Vec<_>>().join(" ");
        (gaps, overlaps)
    }

    #[test]
    fn gaps_and_overlaps_are_named() {
        let cases: [(&[Claim], &str, &str); 9] = [
            (&[], "[, )", ""),
            (&[claim(1, "", "", 0)], "", ""),
            (&[claim(2, "m", "", 0), claim(1, "", "m", 7)], "", ""),
            (&[claim(1, "b", "m", 0), claim(2, "p", "x", 0)], "[, b) [m, p) [x, )", ""),
            // A split of which the source has not heard.
            (&[claim(1, "", "", 1), claim(2, "m", "", 2)], "[, m)", "2>1 [m, )"),
            (&[claim(1, "", "p", 3), claim(2, "m", "", 3)], "[, )", "2>1 [m, p) 1>2 [m, p)"),
            // A bucket that came back after all of it was loaded elsewhere.
            (
                &[claim(1, "", "", 1), claim(2, "", "m", 2), claim(3, "m", "", 2)],
                "",
                "2>1 [, m) 3>1 [m, )",
            ),
            // The same bucket on two nodes, with ranges that do not meet.
            (&[claim(1, "", "m", 1), claim(1, "m", "", 2)], "[, m)", "1>1 [, m)"),
            // A range without keys claims nothing.
            (&[claim(1, "", "m", 1), claim(2, "x", "c", 2)], "[m, )", ""),
        ];
        for (claims, gaps, overlaps) in cases {
            let mut claims = claims.to_vec();
            if claims.len() == 2 && claims[0].holder == claims[1].holder {
                claims[1].holder.node = NodeId([9; 16]);
            }
            let union = Union::of(&claims);
            assert_eq!(shown(&union), (gaps.to_owned(), overlaps.to_owned()), "{claims:?}");
            assert_eq!(union.is_whole(), gaps.is_empty() && overlaps.is_empty());
        }
    }

    proptest! {
        /// By asking each of 256 keys: how many claim it.
        #[test]
        fn a_union_is_whole_exactly_if_each_key_is_claimed_once(
            ends in prop::collection::vec((0_u8..20, 0_u8..21, 0_u64..3), 0..6),
        ) {
            let claims: Vec<Claim> = ends.iter().enumerate().map(|(index, (low, high, version))| {
                let text = |end: u8| if end == 0 { vec![] } else { vec![end] };
                let range = KeyRange { low: text(*low), high: (*high < 20).then(|| vec![*high]) };
                let bucket = BucketNumber(u32::try_from(index).expect("few"));
                let holder = Holder { bucket, node: NodeId([0; 16]) };
                Claim { holder, range, split_version: *version }
            }).filter(|claim| claim.range.is_valid()).collect();
            let union = Union::of(&claims);
            let holders = |key: u8| {
                let key = if key == 0 { vec![] } else { vec![key] };
                claims.iter().filter(|claim| claim.range.contains(&key)).count()
            };
            prop_assert_eq!(union.is_whole(), (0..20).all(|key| holders(key) == 1));
            let doubted = union.doubted();
            let unclaimed = Union::unclaimed(&claims);
            for key in 0..20_u8 {
                let bytes = if key == 0 { vec![] } else { vec![key] };
                let believed = claims.iter()
                    .filter(|claim| !doubted.contains(&claim.holder) && claim.range.contains(&bytes))
                    .count();
                prop_assert!(believed <= 1);
                let is_gap = union.gaps.iter().any(|gap| gap.contains(&bytes));
                prop_assert_eq!(is_gap, believed == 0);
                let is_unclaimed = unclaimed.iter().any(|gap| gap.contains(&bytes));
                prop_assert_eq!(is_unclaimed, holders(key) == 0);
            }
        }
    }
}
