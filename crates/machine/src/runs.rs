//! Ranges of a disk, gathered from what a server says of its blocks, in bounded memory.

use std::ops::Range;

use strongroom_nbd::{NbdError, StatusRun};

/// At most this many ranges are kept of a disk: 16 MiB.
pub const RANGES_MAX: usize = 1 << 20;
/// If there are more, gaps of this size are closed first.
const GAP_BYTES: u64 = 64 << 10;

/// The ranges whose flags `is_wanted`, sorted and apart from each other. If there are more than
/// `ranges_max`, the smallest gaps between them are closed, so that the result covers more, never
/// less.
pub fn gather(
    runs: impl Iterator<Item = Result<StatusRun, NbdError>>,
    is_wanted: impl Fn(u32) -> bool,
    ranges_max: usize,
) -> Result<Vec<Range<u64>>, NbdError> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut gap = 0;
    for run in runs {
        let run = run?;
        if !is_wanted(run.flags) {
            continue;
        }
        push(&mut ranges, run.range, gap);
        while ranges.len() > ranges_max.max(1) {
            gap = (gap * 2).max(GAP_BYTES);
            let before = std::mem::take(&mut ranges);
            for range in before {
                push(&mut ranges, range, gap);
            }
        }
    }
    Ok(ranges)
}

/// Adds a range behind the others, or lengthens the last one if the gap is no larger than `gap`.
fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>, gap: u64) {
    match ranges.last_mut() {
        Some(last) if range.start.saturating_sub(last.end) <= gap => {
            last.end = last.end.max(range.end);
        }
        _ => ranges.push(range),
    }
}

/// Adds everything from `start` to `end` to ranges that are sorted.
pub fn add_tail(ranges: &mut Vec<Range<u64>>, start: u64, end: u64) {
    if start >= end {
        return;
    }
    let kept = ranges.partition_point(|range| range.start < start);
    ranges.truncate(kept);
    push(ranges, start..end, 0);
    if let Some(last) = ranges.last_mut() {
        last.end = last.end.max(end);
    }
}

/// Adds ranges to others; both are sorted, and so is the result.
pub fn add(ranges: &mut Vec<Range<u64>>, more: Vec<Range<u64>>) {
    let mut all = std::mem::take(ranges);
    all.extend(more);
    all.sort_unstable_by_key(|range| range.start);
    all.into_iter().for_each(|range| push(ranges, range, 0));
}

/// The next of sorted ranges from `offset` on.
pub fn next(ranges: &[Range<u64>], offset: u64) -> Option<Range<u64>> {
    let place = ranges.partition_point(|range| range.end <= offset);
    let range = ranges.get(place)?;
    Some(range.start.max(offset)..range.end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What byte is covered by ranges.
    fn covered(ranges: &[Range<u64>], end: u64) -> Vec<bool> {
        (0..end).map(|at| ranges.iter().any(|range| range.contains(&at))).collect()
    }

    proptest! {
        #[test]
        fn ranges_cover_what_is_wanted(
            lengths in proptest::collection::vec((1u64..300_000, 0u32..2), 0..60),
            ranges_max in 1usize..20,
            tail in 0u64..40_000,
        ) {
            // In units of 4 KiB, so that the reference stays small.
            let unit = 4096;
            let mut at = 0;
            let mut runs = Vec::new();
            for (bytes, flags) in lengths {
                let end = at + bytes.div_ceil(unit);
                runs.push(Ok(StatusRun { range: at * unit..end * unit, flags }));
                at = end;
            }
            let wanted: Vec<Range<u64>> = runs
                .iter()
                .filter_map(|run| run.as_ref().ok())
                .filter(|run| run.flags == 1)
                .map(|run| run.range.start / unit..run.range.end / unit)
                .collect();
            let exact = gather(runs.clone().into_iter(), |flags| flags == 1, 1000).unwrap();
            let scaled: Vec<_> =
                exact.iter().map(|range| range.start / unit..range.end / unit).collect();
            prop_assert_eq!(covered(&scaled, at), covered(&wanted, at));

            let mut few = gather(runs.into_iter(), |flags| flags == 1, ranges_max).unwrap();
            prop_assert!(few.len() <= ranges_max);
            let start = tail.min(at);
            add_tail(&mut few, start * unit, at * unit);
            let scaled: Vec<_> =
                few.iter().map(|range| range.start / unit..range.end / unit).collect();
            let (had, has) = (covered(&wanted, at), covered(&scaled, at));
            for (place, (had, has)) in had.into_iter().zip(has).enumerate() {
                prop_assert!(has || !(had || place as u64 >= start));
            }
            prop_assert!(few.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn added_ranges_are_sorted_and_apart() {
        let mut ranges = vec![10..20, 30..40];
        add(&mut ranges, vec![0..5, 15..32, 50..60, 60..61]);
        assert_eq!(ranges, [0..5, 10..40, 50..61]);
    }

    #[test]
    fn the_next_range_is_found() {
        let ranges = [10..20, 30..40];
        assert_eq!(next(&ranges, 0), Some(10..20));
        assert_eq!(next(&ranges, 15), Some(15..20));
        assert_eq!(next(&ranges, 20), Some(30..40));
        assert_eq!(next(&ranges, 40), None);
    }
}
