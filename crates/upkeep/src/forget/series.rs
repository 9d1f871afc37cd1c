//! What becomes of snapshots by rules, each series for itself.
//!
//! Snapshots of one domain, one host and the same paths are a series. Those of the owner's domain
//! are believed what they say of themselves, those of other domains are not.

use std::collections::BTreeMap;

use strongroom_catalog::Snapshot;

use super::policy::{Circumstances, Judged, Policy};
use super::{foreign, own};

/// What the snapshots of a series have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series<'s> {
    /// The domain.
    pub domain: &'s str,
    /// The host.
    pub host: &'s str,
    /// The paths.
    pub paths: &'s [Vec<u8>],
}

impl<'s> Series<'s> {
    /// That of a snapshot.
    pub fn of(snapshot: &'s Snapshot) -> Self {
        let Snapshot { domain, host, paths, .. } = snapshot;
        Self { domain, host, paths }
    }
}

impl Policy {
    /// What becomes of these snapshots, which come oldest first; in the same order.
    pub fn judge<'s>(
        &self,
        snapshots: &[&'s Snapshot],
        circumstances: &Circumstances<'_>,
    ) -> Vec<Judged<'s>> {
        let mut judged: Vec<Judged<'s>> =
            snapshots.iter().map(|snapshot| Judged::new(snapshot)).collect();
        let mut series: BTreeMap<Series<'_>, Vec<usize>> = BTreeMap::new();
        for (place, snapshot) in snapshots.iter().copied().enumerate() {
            series.entry(Series::of(snapshot)).or_default().push(place);
        }
        for (series, mut places) in series {
            if series.domain.is_empty() {
                places.reverse();
                own::judge_series(self, &mut judged, &places, circumstances);
            } else {
                foreign::judge_series(self, &mut judged, &places, circumstances);
            }
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use strongroom_base::SnapshotId;
    use strongroom_base::Timestamp;
    use strongroom_catalog::SnapshotStats;
    use strongroom_repository::{Arrivals, Look};

    use super::super::policy::{Alarm, Periods};
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000_000;

    /// Months of thirty days, years of twelve months.
    fn periods(time: Timestamp) -> Periods {
        let day = time.0.div_euclid(24 * HOUR);
        let (week, month) = (day.div_euclid(7), day.div_euclid(30));
        Periods { hour: time.0.div_euclid(HOUR), day, week, month, year: month.div_euclid(12) }
    }

    fn at(hour: i64) -> Snapshot {
        let (started, id) = (Timestamp(hour * HOUR), SnapshotId(i128::from(hour).to_le_bytes()));
        Snapshot { started, host: "a".to_owned(), ..Snapshot::empty(id) }
    }

    /// The hours of what is kept, and by what.
    fn kept(policy: &Policy, snapshots: &[Snapshot]) -> Vec<(i64, Vec<&'static str>)> {
        let snapshots: Vec<&Snapshot> = snapshots.iter().collect();
        let (arrivals, now) = (Arrivals::default(), Timestamp::LATEST);
        let circumstances =
            Circumstances { arrivals: &arrivals, now, quarantine: 0, periods: &periods };
        let judged = policy.judge(&snapshots, &circumstances).into_iter();
        let kept = judged.filter(|judged| !judged.kept_by.is_empty());
        kept.map(|judged| (judged.snapshot.started.0 / HOUR, judged.kept_by)).collect()
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_last_periods() {
        let snapshots: Vec<Snapshot> = (0..24 * 40).step_by(6).map(at).collect();
        let newest = 24 * 40 - 6;
        let last = Policy { last: 2, ..Policy::default() };
        assert_eq!(kept(&last, &snapshots), [(newest - 6, vec!["last"]), (newest, vec!["last"])]);
        let daily = Policy { daily: 2, ..Policy::default() };
        let expected = [(newest - 24, vec!["daily"]), (newest, vec!["daily"])];
        assert_eq!(kept(&daily, &snapshots), expected);
        let monthly = Policy { monthly: 9, ..Policy::default() };
        let expected = [(30 * 24 - 6, vec!["monthly"]), (newest, vec!["monthly"])];
        assert_eq!(kept(&monthly, &snapshots), expected);
        let both = Policy { daily: 1, weekly: 1, within: Some(6 * HOUR), ..Policy::default() };
        let expected = [(newest - 6, vec!["within"]), (newest, vec!["daily", "weekly", "within"])];
        assert_eq!(kept(&both, &snapshots), expected);
    }

    /// Said in another way: a rule about COUNT periods keeps a snapshot if no newer one is in its
    /// period, and newer ones are in fewer than COUNT others.
    fn is_kept(policy: &Policy, hours: &BTreeSet<i64>, hour: i64) -> bool {
        let newer = || hours.iter().copied().filter(|other| *other > hour);
        let is_last_of = |count: u32, period: fn(Periods) -> i64| {
            let of = |hour: i64| period(periods(Timestamp(hour * HOUR)));
            let others: BTreeSet<i64> = newer().map(of).collect();
            !others.contains(&of(hour)) && others.len() < count as usize
        };
        newer().count() < policy.last as usize
            || is_last_of(policy.hourly, |p| p.hour)
            || is_last_of(policy.daily, |p| p.day)
            || is_last_of(policy.weekly, |p| p.week)
            || is_last_of(policy.monthly, |p| p.month)
            || is_last_of(policy.yearly, |p| p.year)
            || policy.within.is_some_and(|within| {
                let age = |of: &i64| (of - hour) * HOUR;
                let newest_two: Vec<&i64> = hours.iter().rev().take(2).collect();
                match newest_two[..] {
                    [newest, before] if age(newest) - age(before) > within => age(before) <= within,
                    [newest, ..] => age(newest) <= within,
                    [] => false,
                }
            })
    }

    proptest! {
        #[test]
        fn rules_keep_what_they_say(
            hours in prop::collection::btree_set(-9000..9000_i64, 0..60),
            counts in (0..5_u32, 0..20_u32, 0..20_u32, 0..10_u32, 0..10_u32, 0..4_u32),
            within in prop::option::of(0..3000 * HOUR),
        ) {
            let (last, hourly, daily, weekly, monthly, yearly) = counts;
            let labels = Vec::new();
            let policy = Policy { last, hourly, daily, weekly, monthly, yearly, within, labels };
            let snapshots: Vec<Snapshot> = hours.iter().copied().map(at).collect();
            let found: Vec<i64> = kept(&policy, &snapshots).into_iter().map(|(hour, _)| hour).collect();
            let expected: Vec<i64> =
                hours.iter().copied().filter(|hour| is_kept(&policy, &hours, *hour)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// The hours of what is kept, and by what, now and with what was accepted.
    fn judged(
        policy: &Policy,
        snapshots: &[Snapshot],
        now: Timestamp,
        arrivals: &Arrivals,
    ) -> Vec<(i64, Vec<&'static str>, Option<Alarm>)> {
        let snapshots: Vec<&Snapshot> = snapshots.iter().collect();
        let circumstances = Circumstances { arrivals, now, quarantine: 0, periods: &periods };
        let judged = policy.judge(&snapshots, &circumstances).into_iter();
        judged.map(|one| (one.snapshot.started.0 / HOUR, one.kept_by, one.alarm)).collect()
    }

    /// Two nights without the mount, and two snapshots are to be kept: nothing may go.
    #[test]
    fn kept_1_4_what_fell_from_much_to_little_freezes_the_owners_series_too() {
        let sized = |day: i64, files| {
            let stats = SnapshotStats { files, bytes: files * 100, ..SnapshotStats::default() };
            Snapshot { stats, ..at(24 * day) }
        };
        let nights = [sized(1, 500), sized(2, 500), sized(3, 0), sized(4, 0), sized(5, 400)];
        let other = Snapshot { host: "b".to_owned(), ..sized(6, 0) };
        let all = [&nights[..], &[other]].concat();
        let policy = Policy { last: 2, ..Policy::default() };
        let (now, mut arrivals) = (Timestamp::LATEST, Arrivals::default());
        let found = judged(&policy, &all, now, &arrivals);
        let frozen = || vec!["frozen"];
        let alarm = Some(Alarm::Shrunken);
        let expected = [
            (24, frozen(), None),
            (48, frozen(), None),
            (72, frozen(), alarm),
            (96, frozen(), alarm),
            (120, frozen(), None),
            (144, vec!["last"], None),
        ];
        assert_eq!(found, expected);
        // The owner says that the second of them is right.
        let accepted = vec![nights[3].id];
        arrivals.push(&Look { accepted, ..Look::default() });
        let kept: Vec<i64> = judged(&policy, &nights, now, &arrivals)
            .into_iter()
            .filter(|(_, kept_by, _)| !kept_by.is_empty())
            .map(|(hour, ..)| hour)
            .collect();
        assert_eq!(kept, [96, 120]);
    }

    #[test]
    fn kept_1_4_what_lacks_a_source_takes_no_place_of_what_has_it() {
        let without =
            |day: i64| Snapshot { missing: [(b"/b".to_vec(), Vec::new())].into(), ..at(24 * day) };
        let policy = Policy { last: 1, daily: 1, ..Policy::default() };
        let lacking = [at(0), at(24), without(2), without(3)];
        let (arrivals, now) = (Arrivals::default(), Timestamp::LATEST);
        let kept = |snapshots: &[Snapshot]| -> Vec<(i64, Vec<&'static str>)> {
            let all = judged(&policy, snapshots, now, &arrivals).into_iter();
            all.filter(|one| !one.1.is_empty()).map(|one| (one.0, one.1)).collect()
        };
        let why = || vec!["lacks a source, and none follows"];
        let expected = [(24, vec!["last", "daily"]), (48, why()), (72, why())];
        assert_eq!(kept(&lacking), expected);
        let again = [&lacking[..], &[at(96)]].concat();
        assert_eq!(kept(&again), [(96, vec!["last", "daily"])]);
    }

    /// A clock that was wrong once must not cost a place for ever, nor make all others too old.
    #[test]
    fn kept_h9_what_is_dated_in_the_future_takes_no_place() {
        let day = 24;
        let of_2262 = Snapshot { started: Timestamp::LATEST, ..at(0) };
        let snapshots = [at(day), of_2262, at(2 * day), at(3 * day)];
        let (now, arrivals) = (Timestamp(3 * day * HOUR), Arrivals::default());
        let kept = |policy: &Policy, snapshots: &[Snapshot]| -> Vec<Vec<&'static str>> {
            judged(policy, snapshots, now, &arrivals).into_iter().map(|one| one.1).collect()
        };
        let policy = Policy { daily: 2, last: 2, ..Policy::default() };
        let found = kept(&policy, &snapshots);
        let ahead = || vec!["dated in the future"];
        assert_eq!(found, [vec![], ahead(), vec!["last", "daily"], vec!["last", "daily"]]);
        let policy = Policy { within: Some(2 * day * HOUR), ..Policy::default() };
        assert_eq!(kept(&policy, &snapshots[..2]), [vec!["within"], ahead()]);
        assert_eq!(
            kept(&policy, &snapshots),
            [vec!["within"], ahead(), vec!["within"], vec!["within"]]
        );
    }

    #[test]
    fn each_series_has_its_own_and_incomplete_ones_wait_for_the_next() {
        let other = Snapshot { host: "b".to_owned(), ..at(1) };
        let partial = |hour| Snapshot { partial: true, ..at(hour) };
        let labelled = Snapshot { labels: vec!["gold".to_owned()], ..at(2) };
        let snapshots = [at(0), other, labelled, partial(3), at(4), partial(5)];
        let labels = vec!["gold".to_owned()];
        let policy = Policy { last: 1, labels, ..Policy::default() };
        let expected = [
            (1, vec!["last"]),
            (2, vec!["label"]),
            (4, vec!["last"]),
            (5, vec!["incomplete, and none follows"]),
        ];
        assert_eq!(kept(&policy, &snapshots), expected);
        assert!(Policy::default().is_empty() && !policy.is_empty());
    }
}
