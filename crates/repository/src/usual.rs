//! How much the snapshots of a series usually have, and which of them have far less: a mount that is
//! gone, a program that failed, an empty disk. Why: `docs/design/0019-retention.md`.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::{Snapshot, SnapshotStats};

use crate::arrivals::{Arrivals, SeriesId};

/// How many earlier snapshots say how large the next one is.
const SIZES: usize = 5;
/// A snapshot with less than one part in this many of the files or bytes is doubted.
const SHRINKING: u64 = 10;
/// Fewer bytes than this are not much: a note of a few lines may become one of a few words.
const MUCH_BYTES: u64 = 4096;

/// How many files and bytes the last snapshots of a series had, the newest last.
#[derive(Debug, Clone, Default)]
pub struct Usual {
    last: Vec<[u64; 2]>,
}

impl Usual {
    /// Takes note of a snapshot. What was stopped, or lacks a source, says nothing.
    pub fn add(&mut self, snapshot: &Snapshot) {
        if !snapshot.partial && snapshot.missing.is_empty() {
            self.last.push([snapshot.stats.files, snapshot.stats.bytes]);
        }
    }

    /// Files and bytes: the medians of the last ones. None before the first.
    pub fn files_and_bytes(&self) -> Option<[u64; 2]> {
        let last = &self.last[self.last.len().saturating_sub(SIZES)..];
        let median = |which: usize| {
            let mut sizes: Vec<u64> = last.iter().map(|sizes| sizes[which]).collect();
            sizes.sort_unstable();
            sizes.get(sizes.len() / 2).copied()
        };
        Some([median(0)?, median(1)?])
    }

    /// Whether these are far fewer files or bytes than usual.
    pub fn is_far_above(&self, stats: &SnapshotStats) -> bool {
        let Some([files, bytes]) = self.files_and_bytes() else { return false };
        let fell = |now: u64, usual: u64| now.saturating_mul(SHRINKING) < usual;
        let has_lost_all = stats.bytes == 0 && bytes > 0;
        fell(stats.files, files) || has_lost_all || bytes >= MUCH_BYTES && fell(stats.bytes, bytes)
    }
}

/// What is known of a series of the owner's own domain: its writers are believed, so its snapshots
/// say all of it.
#[derive(Debug, Clone, Default)]
pub struct OwnSeries {
    /// What the next one is compared with.
    pub usual: Usual,
    /// Those that have far less than the ones before them, oldest first. What is like them is
    /// doubted too, until the owner accepts one: then that is usual.
    pub doubted: BTreeSet<SnapshotId>,
    /// Those that lack a source and were not accepted.
    pub lacking: BTreeSet<SnapshotId>,
}

impl OwnSeries {
    /// Of these snapshots of one series, oldest first.
    pub fn of<'s>(snapshots: impl IntoIterator<Item = &'s Snapshot>, arrivals: &Arrivals) -> Self {
        let mut series = Self::default();
        let snapshots: Vec<&Snapshot> = snapshots.into_iter().collect();
        let settled = settled(&snapshots, arrivals);
        // How much there was before what was accepted does not matter any more.
        let accepted = snapshots[..settled].last().filter(|last| arrivals.is_accepted(last.id));
        if let Some(snapshot) = accepted {
            let whole = Snapshot { missing: BTreeMap::new(), ..(*snapshot).clone() };
            series.usual.add(&whole);
        }
        for snapshot in &snapshots[settled..] {
            if !snapshot.missing.is_empty() {
                series.lacking.insert(snapshot.id);
            }
            // What was taken over from another program was looked at there.
            let is_judged = !snapshot.partial && snapshot.origin.is_none();
            if is_judged && series.usual.is_far_above(&snapshot.stats) {
                series.doubted.insert(snapshot.id);
            } else {
                series.usual.add(snapshot);
            }
        }
        series
    }

    /// Whether it matters what the owner has accepted.
    pub fn has_doubts(&self) -> bool {
        !self.doubted.is_empty() || !self.lacking.is_empty()
    }
}

/// How many of the snapshots of a series, oldest first, are the last that the owner accepted or older. If that
/// one is gone, its time says so, but of those alone that come first: a clock may have been wrong since.
fn settled(snapshots: &[&Snapshot], arrivals: &Arrivals) -> usize {
    let Some(first) = snapshots.first() else { return 0 };
    let is_accepted = |snapshot: &&Snapshot| arrivals.is_accepted(snapshot.id);
    let up_to_accepted = snapshots.iter().rposition(is_accepted).map_or(0, |place| place + 1);
    let last = accepted_last(SeriesId::of(first), arrivals);
    let is_older = |snapshot: &&&Snapshot| last.is_some_and(|last| snapshot.started < last);
    up_to_accepted.max(snapshots.iter().take_while(is_older).count())
}

/// The time of the newest snapshot of a series that the owner accepted: that one may be gone.
fn accepted_last(series: SeriesId, arrivals: &Arrivals) -> Option<Timestamp> {
    let seen = arrivals.of_series(series).map(|seen| seen.arrival);
    let accepted = seen.filter(|arrival| arrivals.is_accepted(arrival.snapshot));
    accepted.map(|arrival| arrival.time).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::{Arrival, Look};

    const DAY: i64 = 86_400_000_000_000;

    fn night(number: u8, files: u64, bytes: u64) -> Snapshot {
        let stats = SnapshotStats { files, bytes, ..SnapshotStats::default() };
        let started = Timestamp(i64::from(number) * DAY);
        Snapshot { started, stats, ..Snapshot::empty(SnapshotId([number; 16])) }
    }

    fn accept(arrivals: &mut Arrivals, snapshot: &Snapshot) {
        let (series, time) = (SeriesId::of(snapshot), snapshot.started);
        let arrival = Arrival { snapshot: snapshot.id, series, time, doubt: None };
        let accepted = vec![snapshot.id];
        arrivals.push(&Look { time, arrivals: vec![arrival], accepted, ..Look::default() });
    }

    fn doubted(nights: &[Snapshot], arrivals: &Arrivals) -> Vec<u8> {
        OwnSeries::of(nights, arrivals).doubted.iter().map(|id| id.0[0]).collect()
    }

    #[test]
    fn what_fell_from_much_to_little_is_doubted_until_it_is_accepted() {
        let mut arrivals = Arrivals::default();
        let mut nights: Vec<Snapshot> = (1..=6).map(|n| night(n, 1000, 1 << 20)).collect();
        nights.push(night(7, 101, 1 << 19));
        assert_eq!(doubted(&nights, &arrivals), []);
        nights.push(night(8, 0, 0));
        nights.push(night(9, 1000, 1 << 20));
        nights.push(Snapshot { partial: true, ..night(10, 0, 0) });
        nights.extend((11..20).map(|n| night(n, 3, 100)));
        let all: Vec<u8> = [8].into_iter().chain(11..20).collect();
        assert_eq!(doubted(&nights, &arrivals), all, "all, however many there are");
        // What is older than one that is right is settled too, and what comes is compared with it.
        accept(&mut arrivals, &nights[14]);
        assert_eq!(doubted(&nights, &arrivals), []);
        nights.push(night(20, 0, 0));
        assert_eq!(doubted(&nights, &arrivals), [20]);
        // When rules have removed the one that was accepted, what is older counts as little as before.
        nights.remove(14);
        assert_eq!(doubted(&nights, &arrivals), [20]);
        nights.retain(|night| night.id.0[0] != 20);
        assert_eq!(doubted(&nights[10..], &arrivals), []);
    }

    /// A machine without a battery dates a night before what was accepted.
    #[test]
    fn a_clock_that_was_wrong_settles_nothing() {
        let mut arrivals = Arrivals::default();
        let mut nights: Vec<Snapshot> = (11..=15).map(|n| night(n, 1000, 1 << 20)).collect();
        accept(&mut arrivals, &nights[2]);
        nights.extend([night(16, 0, 0), Snapshot { started: Timestamp(0), ..night(17, 0, 0) }]);
        nights.extend([night(18, 0, 0), night(19, 1000, 1 << 20)]);
        assert_eq!(doubted(&nights, &arrivals), [16, 17, 18]);
        nights.remove(2);
        assert_eq!(doubted(&nights, &arrivals), [16, 17, 18], "it is gone");
    }

    #[test]
    fn little_may_become_less() {
        let arrivals = Arrivals::default();
        for ([files, bytes], [then_files, then_bytes], is_doubted) in [
            ([1, 4095], [1, 1], false),
            ([1, 4096], [1, 409], true),
            ([1, 40], [1, 0], true),
            ([10, 10], [1, 1], false),
            ([11, 10], [1, 1], true),
            ([1, 0], [0, 0], true),
            ([0, 0], [0, 0], false),
        ] {
            let nights = [night(1, files, bytes), night(2, then_files, then_bytes)];
            assert_eq!(!doubted(&nights, &arrivals).is_empty(), is_doubted, "{nights:?}");
        }
    }

    #[test]
    fn a_source_that_is_missing_says_nothing_of_sizes() {
        let mut arrivals = Arrivals::default();
        let short =
            Snapshot { missing: [(b"/b".to_vec(), Vec::new())].into(), ..night(2, 900, 900) };
        let nights = [night(1, 1000, 1000), short.clone(), night(3, 1000, 1000)];
        let found = OwnSeries::of(&nights, &arrivals);
        assert_eq!((found.doubted.len(), found.lacking.len()), (0, 1));
        assert!(found.has_doubts());
        accept(&mut arrivals, &short);
        let found = OwnSeries::of(&nights, &arrivals);
        assert!(!found.has_doubts());
        assert_eq!(found.usual.files_and_bytes(), Some([1000, 1000]));
    }
}
