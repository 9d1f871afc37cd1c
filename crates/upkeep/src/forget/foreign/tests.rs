//! The year of forgeries, without a repository: a machine makes a snapshot each night, a thief of its
//! key adds any others, and the owner forgets by rules each week. Then what each rule keeps of a series,
//! to the snapshot and the nanosecond.

use std::collections::BTreeSet;

use proptest::prelude::*;
use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Arrivals, Look};

use super::super::look::{DAY, new_look};
use super::super::policy::{Alarm, Circumstances, Judged, Periods, Policy};

const HOUR: i64 = DAY / 24;
const MINUTE: i64 = HOUR / 60;
const DAYS: i64 = 365;
/// The day of the theft: what is usual has been learnt.
const THEFT: i64 = 22;

/// Months of thirty days, years of twelve months, some hours east of Greenwich.
fn periods_at(east: i64) -> impl Fn(Timestamp) -> Periods {
    move |time| {
        let local = time.0 + east * HOUR;
        let day = local.div_euclid(DAY);
        let (week, month) = (day.div_euclid(7), day.div_euclid(30));
        Periods { hour: time.0.div_euclid(HOUR), day, week, month, year: month.div_euclid(12) }
    }
}

/// A snapshot that exists, and what is known of it.
#[derive(Debug, Clone)]
struct Stored {
    snapshot: Snapshot,
    /// When it was stored.
    stored: i64,
    is_genuine: bool,
}

fn snapshot(number: u64, started: i64, domain: &str, files: u64) -> Snapshot {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    let mut snapshot = Snapshot::empty(SnapshotId(id));
    snapshot.sequence = number;
    snapshot.started = Timestamp(started);
    snapshot.ended = Timestamp(started.saturating_add(5 * MINUTE));
    snapshot.domain = domain.to_owned();
    snapshot.host = domain.to_owned();
    snapshot.stats.files = files;
    snapshot.stats.bytes = files * 1000;
    snapshot
}

/// The machine's own: one a night, at about two in the morning.
fn genuine(domain: &str, east: i64, first_number: u64) -> Vec<Stored> {
    let night = |day: i64| {
        let jitter = (day * 7919).rem_euclid(170) - 85;
        let started = day * DAY + 2 * HOUR + jitter * MINUTE - east * HOUR;
        let files = 1000 + (day * 31).rem_euclid(200) as u64;
        let snapshot = snapshot(first_number + day as u64, started, domain, files);
        Stored { snapshot, stored: started + 5 * MINUTE, is_genuine: true }
    };
    (0..DAYS).map(night).collect()
}

/// A snapshot that the thief makes.
#[derive(Debug, Clone)]
struct Forged {
    /// When it is stored.
    stored: i64,
    /// What time it claims.
    claimed: i64,
    /// Of how many files.
    files: u64,
    is_partial: bool,
    is_another_series: bool,
}

fn forged() -> impl Strategy<Value = Forged> {
    let stored = THEFT * DAY..DAYS * DAY;
    // Near the truth, in the last days, or anything.
    let back = prop_oneof![
        6 => 0..2 * HOUR,
        6 => 0..8 * DAY,
        3 => -2 * DAY..0,
        1 => -400 * DAY..400 * DAY,
        1 => Just(-(1_i64 << 61)),
    ];
    let files =
        prop_oneof![8 => 900_u64..1300, 1 => Just(0), 1 => any::<u32>().prop_map(u64::from)];
    (stored, back, files, prop::bool::weighted(0.1), prop::bool::weighted(0.1)).prop_map(
        |(stored, back, files, is_partial, is_another_series)| Forged {
            stored,
            claimed: stored.saturating_sub(back),
            files,
            is_partial,
            is_another_series,
        },
    )
}

/// One extra snapshot on many days, each as like the machine's as can be.
fn careful_thief() -> impl Strategy<Value = Vec<Forged>> {
    let one = |(day, minute): (i64, i64)| Forged {
        stored: day * DAY + minute * MINUTE,
        claimed: day * DAY + minute * MINUTE,
        files: 1100,
        is_partial: false,
        is_another_series: false,
    };
    prop::collection::vec((THEFT..DAYS, 0..24 * 60_i64).prop_map(one), 0..300)
}

fn rules() -> impl Strategy<Value = Policy> {
    let counts = (0..40_u32, 0..30_u32, 0..10_u32, 0..6_u32, 0..14_u32, 0..3_u32);
    (counts, prop::option::of(0..40 * DAY)).prop_map(|(counts, within)| {
        let (last, hourly, daily, weekly, monthly, yearly) = counts;
        Policy { last, hourly, daily, weekly, monthly, yearly, within, labels: Vec::new() }
    })
}

/// What the rules keep of snapshots that are all believed, said in the plainest way: each rule goes
/// through the snapshots from the newest on, and keeps the first that it meets of each period.
fn plain(
    policy: &Policy,
    times: &BTreeSet<i64>,
    periods: &dyn Fn(Timestamp) -> Periods,
) -> BTreeSet<i64> {
    let newest_first: Vec<i64> = times.iter().rev().copied().collect();
    let mut kept: BTreeSet<i64> = newest_first.iter().take(policy.last as usize).copied().collect();
    type Rule = (u32, fn(Periods) -> i64);
    let rules: [Rule; 5] = [
        (policy.hourly, |p| p.hour),
        (policy.daily, |p| p.day),
        (policy.weekly, |p| p.week),
        (policy.monthly, |p| p.month),
        (policy.yearly, |p| p.year),
    ];
    for (count, period) in rules {
        let mut met = BTreeSet::new();
        for time in &newest_first {
            if met.len() < count as usize && met.insert(period(periods(Timestamp(*time)))) {
                kept.insert(*time);
            }
        }
    }
    if let (Some(within), Some(newest)) = (policy.within, newest_first.first()) {
        kept.extend(newest_first.iter().filter(|time| newest - **time <= within));
    }
    kept
}

/// A year of weekly forgetting.
struct Year<'y> {
    policy: &'y Policy,
    quarantine: i64,
    periods: &'y dyn Fn(Timestamp) -> Periods,
    arrivals: Arrivals,
    present: Vec<Stored>,
    /// What the plain rules have left of the machine's own.
    reference: BTreeSet<i64>,
    /// How many were removed.
    removed: usize,
    was_frozen: bool,
}

fn kept(judged: &[Judged<'_>], domain: &str) -> Vec<(SnapshotId, Vec<&'static str>)> {
    let of_domain = judged.iter().filter(|judged| judged.snapshot.domain == domain);
    of_domain.map(|judged| (judged.snapshot.id, judged.kept_by.clone())).collect()
}

impl Year<'_> {
    /// What is stored of these by now, and not yet present, is; then the owner forgets.
    fn look(&mut self, new: &[Stored], now: i64) -> Result<(), TestCaseError> {
        self.present.extend_from_slice(new);
        let laptop = |stored: &&Stored| stored.is_genuine && stored.snapshot.domain == "laptop";
        self.reference.extend(new.iter().filter(laptop).map(|stored| stored.snapshot.started.0));
        self.reference = plain(self.policy, &self.reference, self.periods);
        let mut snapshots: Vec<&Snapshot> = self.present.iter().map(|s| &s.snapshot).collect();
        snapshots.sort_by_key(|snapshot| snapshot.order());
        let foreign: Vec<&Snapshot> =
            snapshots.iter().filter(|snapshot| !snapshot.domain.is_empty()).copied().collect();
        let look = new_look(&foreign, &self.arrivals, Timestamp(now));
        self.arrivals.push(&look);
        let circumstances = Circumstances {
            arrivals: &self.arrivals,
            now: Timestamp(now),
            quarantine: self.quarantine,
            periods: self.periods,
        };
        let judged = self.policy.judge(&snapshots, &circumstances);
        self.check_others(&snapshots, &judged, &circumstances)?;
        let gone: BTreeSet<SnapshotId> = judged
            .iter()
            .filter(|judged| judged.kept_by.is_empty())
            .map(|judged| judged.snapshot.id)
            .collect();
        let of_series = |judged: &&Judged<'_>| judged.snapshot.host == "laptop";
        let is_frozen = judged.iter().filter(of_series).any(|judged| judged.alarm.is_some());
        if is_frozen {
            let of_series = judged.iter().filter(of_series);
            prop_assert!(of_series.clone().all(|judged| judged.kept_by == ["frozen"]));
        }
        prop_assert!(is_frozen || !self.was_frozen, "only the owner ends it");
        self.was_frozen = is_frozen;
        self.removed += gone.len();
        self.present.retain(|stored| !gone.contains(&stored.snapshot.id));
        let left: BTreeSet<i64> =
            self.present.iter().filter(laptop).map(|stored| stored.snapshot.started.0).collect();
        let lost: Vec<&i64> = self.reference.difference(&left).collect();
        prop_assert!(
            lost.is_empty(),
            "at day {}: of days {:?}",
            now / DAY,
            lost.iter().map(|time| **time as f64 / DAY as f64).collect::<Vec<_>>()
        );
        Ok(())
    }

    /// What the laptop's thief does changes nothing for another machine and for the owner.
    fn check_others(
        &self,
        snapshots: &[&Snapshot],
        judged: &[Judged<'_>],
        circumstances: &Circumstances<'_>,
    ) -> Result<(), TestCaseError> {
        for domain in ["", "server"] {
            let alone: Vec<&Snapshot> =
                snapshots.iter().filter(|s| s.domain == domain).copied().collect();
            let alone = self.policy.judge(&alone, circumstances);
            prop_assert_eq!(kept(judged, domain), kept(&alone, domain));
            prop_assert!(alone.iter().all(|judged| judged.alarm.is_none()));
        }
        Ok(())
    }
}

/// Returns how many snapshots were removed, and whether the series is frozen in the end.
fn year(
    policy: &Policy,
    east: i64,
    quarantine: i64,
    thief: &[Forged],
) -> Result<(usize, bool), TestCaseError> {
    let periods = periods_at(east);
    let mut all = genuine("laptop", east, 0);
    all.extend(genuine("server", east, 10_000));
    all.extend(genuine("", east, 20_000));
    for (number, forged) in thief.iter().enumerate() {
        let mut made = snapshot(30_000 + number as u64, forged.claimed, "laptop", forged.files);
        made.partial = forged.is_partial;
        if forged.is_another_series {
            made.host = "laptop/server".to_owned();
        }
        all.push(Stored { snapshot: made, stored: forged.stored, is_genuine: false });
    }
    let mut year = Year {
        policy,
        quarantine,
        periods: &periods,
        arrivals: Arrivals::default(),
        present: Vec::new(),
        reference: BTreeSet::new(),
        removed: 0,
        was_frozen: false,
    };
    let mut before = i64::MIN;
    for week in 1..=DAYS / 7 {
        let now = week * 7 * DAY + 12 * HOUR - east * HOUR;
        let new: Vec<Stored> = all
            .iter()
            .filter(|stored| stored.stored > before && stored.stored <= now)
            .cloned()
            .collect();
        year.look(&new, now)?;
        before = now;
    }
    Ok((year.removed, year.was_frozen))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_year_of_forgeries_removes_nothing_that_the_rules_would_keep(
        policy in rules(),
        east in -11..12_i64,
        quarantine in prop_oneof![Just(0), 0..8 * DAY],
        thief in prop::collection::vec(forged(), 0..40),
    ) {
        year(&policy, east, quarantine, &thief)?;
    }

    /// No alarm is raised for long by such a thief, so it is the rules themselves that keep.
    #[test]
    fn a_thief_who_adds_a_few_a_day_displaces_nothing(
        policy in rules(),
        east in -11..12_i64,
        quarantine in prop_oneof![Just(0), Just(3 * DAY)],
        thief in careful_thief(),
    ) {
        year(&policy, east, quarantine, &thief)?;
    }
}

#[test]
fn without_a_thief_the_rules_work_and_no_alarm_is_raised() {
    let policy = Policy { daily: 7, weekly: 4, monthly: 12, ..Policy::default() };
    let (removed, is_frozen) = year(&policy, 1, 3 * DAY, &[]).unwrap();
    assert!(!is_frozen);
    // Of three times 365: first and last of each, and what is too young.
    assert!(removed > 3 * 310, "{removed} were removed");
}

/// A night's backup was stopped, and the thief adds a complete one.
#[test]
fn a_forged_complete_snapshot_replaces_no_incomplete_one() {
    let mut all = genuine("laptop", 0, 0);
    all.truncate(40);
    all[39].snapshot.partial = true;
    let time = all[39].stored + HOUR;
    all.push(Stored {
        snapshot: snapshot(9999, time, "laptop", 1000),
        stored: time,
        is_genuine: false,
    });
    let snapshots: Vec<&Snapshot> = all.iter().map(|stored| &stored.snapshot).collect();
    let mut arrivals = Arrivals::default();
    arrivals.push(&new_look(&snapshots[..20], &arrivals, Timestamp(20 * DAY)));
    arrivals.push(&new_look(&snapshots, &arrivals, Timestamp(40 * DAY)));
    let (now, periods) = (Timestamp(50 * DAY), periods_at(0));
    let circumstances =
        Circumstances { arrivals: &arrivals, now, quarantine: 3 * DAY, periods: &periods };
    let judged = Policy { last: 1, ..Policy::default() }.judge(&snapshots, &circumstances);
    assert_eq!(judged[39].kept_by, ["incomplete, and none follows"]);
    assert_eq!(judged[40].kept_by, ["last"]);
    assert_eq!(judged.iter().filter(|judged| judged.kept_by.is_empty()).count(), 39);
}

/// Judges one machine's year of nights, and what is added to it, seen day by day.
fn alarms(added: &[(i64, i64, u64)]) -> Vec<Alarm> {
    let mut arrivals = Arrivals::default();
    let mut all: Vec<Stored> = genuine("laptop", 0, 0).into_iter().take(60).collect();
    for (number, (stored, claimed, files)) in (5000..).zip(added) {
        let snapshot = snapshot(number, *claimed, "laptop", *files);
        all.push(Stored { snapshot, stored: *stored, is_genuine: false });
    }
    let snapshots: Vec<&Snapshot> = all.iter().map(|stored| &stored.snapshot).collect();
    for day in 0..60 {
        let now = day * DAY + 12 * HOUR;
        let present = all.iter().filter(|stored| stored.stored <= now);
        let present: Vec<&Snapshot> = present.map(|stored| &stored.snapshot).collect();
        arrivals.push(&new_look(&present, &arrivals, Timestamp(now)));
    }
    let now = Timestamp(60 * DAY);
    let periods = periods_at(0);
    let circumstances =
        Circumstances { arrivals: &arrivals, now, quarantine: 3 * DAY, periods: &periods };
    let judged = Policy { daily: 7, ..Policy::default() }.judge(&snapshots, &circumstances);
    judged.iter().filter_map(|judged| judged.alarm).collect()
}

#[test]
fn each_kind_of_forgery_raises_its_alarm() {
    let at = |day: i64, hour: i64| day * DAY + hour * HOUR;
    let seen = Timestamp(at(50, 12));
    assert_eq!(alarms(&[]), []);
    assert_eq!(alarms(&[(at(50, 5), at(50, 5), 1000)]), [], "one more is no alarm");
    assert_eq!(alarms(&[(at(50, 5), at(9, 5), 1000)]), [Alarm::Dated { seen }]);
    assert_eq!(alarms(&[(at(50, 5), at(52, 5), 1000)]), [Alarm::Dated { seen }]);
    assert_eq!(alarms(&[(at(50, 5), i64::MAX, 1000)]), [Alarm::Dated { seen }]);
    assert_eq!(alarms(&[(at(50, 5), at(50, 5), 99)]), [Alarm::Shrunken]);
    let many: Vec<(i64, i64, u64)> =
        (3..7).map(|hour| (at(50, hour), at(50, hour), 1000)).collect();
    assert_eq!(alarms(&many), [Alarm::TooMany { count: 5, usual: 1 }; 5]);
    assert_eq!(alarms(&many[1..]), []);
}

/// What the rules say of snapshots that were seen as soon as they were stored, in their order.
fn said(policy: &Policy, made: &[Snapshot], now: i64, quarantine: i64) -> Vec<Vec<&'static str>> {
    said_beside(&[], policy, made, now, quarantine)
}

/// The same if the owner has accepted some.
fn said_beside(
    accepted: &[SnapshotId],
    policy: &Policy,
    made: &[Snapshot],
    now: i64,
    quarantine: i64,
) -> Vec<Vec<&'static str>> {
    let mut arrivals = Arrivals::default();
    for (before, snapshot) in made.iter().enumerate() {
        let present: Vec<&Snapshot> = made[..=before].iter().collect();
        arrivals.push(&new_look(&present, &arrivals, snapshot.ended));
    }
    let time = made.last().unwrap().ended;
    arrivals.push(&Look { time, accepted: accepted.to_vec(), ..Look::default() });
    let (now, periods) = (Timestamp(now), periods_at(0));
    let circumstances = Circumstances { arrivals: &arrivals, now, quarantine, periods: &periods };
    let all: Vec<&Snapshot> = made.iter().collect();
    policy.judge(&all, &circumstances).into_iter().map(|judged| judged.kept_by).collect()
}

/// Snapshots of these days, each at these minutes after two.
fn made(days: impl IntoIterator<Item = i64>, minutes: &[i64]) -> Vec<Snapshot> {
    let times = days
        .into_iter()
        .flat_map(|day| minutes.iter().map(move |minute| day * DAY + 2 * HOUR + minute * MINUTE));
    (1..).zip(times).map(|(number, time)| snapshot(number, time, "laptop", 1000)).collect()
}

/// Places of those that are kept, which are their days where there is one a day.
fn kept_days(said: &[Vec<&str>]) -> Vec<usize> {
    (0..said.len()).filter(|place| !said[*place].is_empty()).collect()
}

#[test]
fn a_series_is_left_alone_until_it_is_known_what_is_usual() {
    let policy = Policy { daily: 2, ..Policy::default() };
    let made = made(0..14, &[0]);
    let known = made[0].ended.0 + 14 * DAY;
    assert_eq!(said(&policy, &made, known - 1, 0), [["new series"]; 14]);
    assert_eq!(kept_days(&said(&policy, &made, known, 0)), [12, 13]);
}

#[test]
fn quarantine_ends_to_the_nanosecond() {
    let policy = Policy { daily: 1, ..Policy::default() };
    let made = made(0..30, &[0]);
    let ends = made[29].ended.0 + 3 * DAY;
    let said_then = said(&policy, &made, ends - 1, 3 * DAY);
    assert_eq!((&said_then[28][..], &said_then[29][..]), (&["daily"][..], &["quarantine"][..]));
    let said_then = said(&policy, &made, ends, 3 * DAY);
    assert_eq!((&said_then[28][..], &said_then[29][..]), (&[][..], &["daily"][..]));
}

/// Three a night are usual here: of each of the last days the first and the last stay. An unusual day stays
/// whole, if something of it does, and nine are far too many.
#[test]
fn a_day_with_more_than_usual_is_kept_whole_or_not_at_all() {
    let policy = Policy { daily: 2, ..Policy::default() };
    let usual = made(0..20, &[0, 30, 60]);
    let said_of = |made: &[Snapshot]| said(&policy, made, 25 * DAY, 0);
    let day = |said: &[Vec<&'static str>], first: usize, count: usize| {
        said[first..first + count].iter().map(|by| by.join(", ")).collect::<Vec<_>>()
    };
    assert_eq!(day(&said_of(&usual), 57, 3), ["daily", "", "daily"]);
    assert!(day(&said_of(&usual), 51, 3).iter().all(String::is_empty));

    let with = |count: i64, at: i64| {
        let minutes: Vec<i64> = (0..count).map(|number| number * 10).collect();
        let mut all = usual.clone();
        all.retain(|snapshot| snapshot.started.0.div_euclid(DAY) != at);
        let unusual = made([at], &minutes).into_iter();
        all.extend(unusual.map(|it| snapshot(1000 + it.sequence, it.started.0, "laptop", 1000)));
        all.sort_by_key(|snapshot| snapshot.started);
        all
    };
    let whole = ["daily", "unusual day", "unusual day", "unusual day", "daily"];
    assert_eq!(day(&said_of(&with(5, 19)), 57, 5), whole);
    assert!(day(&said_of(&with(5, 17)), 51, 5).iter().all(String::is_empty));
    assert_eq!(day(&said_of(&with(8, 19)), 58, 6), ["unusual day"; 6]);
    assert!(said_of(&with(9, 19)).iter().all(|by| by == &["frozen"]));
}

/// Of each hour the first and the last, for as many hours as are asked for.
#[test]
fn hours_are_counted_over_days() {
    let policy = Policy { hourly: 5, ..Policy::default() };
    let said = said(&policy, &made(0..20, &[0, 20, 40, 120]), 25 * DAY, 0);
    let of_day = |day: usize| said[4 * day..4 * day + 4].iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!((of_day(19), of_day(18)), (vec![1, 0, 1, 1], vec![1, 0, 1, 1]));
    assert_eq!((of_day(17), of_day(16)), (vec![0, 0, 0, 1], vec![0; 4]));
}

/// What comes after a pause that is longer than the time makes none of those before it too old.
#[test]
fn a_pause_makes_none_too_old() {
    let policy = Policy { within: Some(3 * DAY), ..Policy::default() };
    let kept = |last: Option<i64>| {
        let made = made((0..20).chain(last), &[0]);
        kept_days(&said(&policy, &made, 40 * DAY, 0))
    };
    assert_eq!(kept(None), [16, 17, 18, 19]);
    assert_eq!(kept(Some(22)), [19, 20], "as long as the time");
    assert_eq!(kept(Some(30)), [16, 17, 18, 19, 20]);
}

#[test]
fn what_is_incomplete_is_kept_until_a_complete_one_follows() {
    let policy = Policy { last: 1, ..Policy::default() };
    let mut made = made(0..20, &[0]);
    for day in [10, 18, 19] {
        made[day].partial = true;
    }
    let said = said(&policy, &made, 25 * DAY, 0);
    assert_eq!(kept_days(&said), [17, 18, 19]);
    assert_eq!((&said[17], &said[18]), (&vec!["last"], &vec!["incomplete, and none follows"]));
}

/// A snapshot that lacks a source takes the place of no other one, but beside them it is kept; if the owner
/// says that it is right, it counts as they do.
#[test]
fn what_lacks_a_source_stays_beside_what_has_all() {
    let policy = Policy { daily: 3, ..Policy::default() };
    let mut made = made(0..20, &[0]);
    made[17].missing.insert(b"/srv".to_vec(), Vec::new());
    let lacking = said(&policy, &made, 25 * DAY, 0);
    assert_eq!(kept_days(&lacking), [16, 17, 18, 19]);
    assert!(lacking[16..].iter().all(|by| by == &["daily"]));
    let accepted = said_beside(&[made[17].id], &policy, &made, 25 * DAY, 0);
    assert_eq!(kept_days(&accepted), [17, 18, 19]);
}
