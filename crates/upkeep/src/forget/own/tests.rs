//! Nights of one machine in the owner's domain, without a repository.

use std::collections::BTreeMap;

use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::{Origin, Snapshot};
use strongroom_repository::Arrivals;

use super::super::look::DAY;
use super::super::policy::{Circumstances, Periods, Policy};

const NONE: Policy = Policy {
    last: 0,
    hourly: 0,
    daily: 0,
    weekly: 0,
    monthly: 0,
    yearly: 0,
    within: None,
    labels: Vec::new(),
};

/// Months of thirty days.
fn periods(time: Timestamp) -> Periods {
    let day = time.0.div_euclid(DAY);
    let (week, month) = (day.div_euclid(7), day.div_euclid(30));
    Periods { hour: time.0.div_euclid(DAY / 24), day, week, month, year: month.div_euclid(12) }
}

/// What a night is in a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Whole,
    Lacking,
    Partial,
    Imported,
}

fn night(number: u8, day: i64, kind: Kind) -> Snapshot {
    let mut snapshot = Snapshot::empty(SnapshotId([number; 16]));
    snapshot.sequence = u64::from(number);
    snapshot.started = Timestamp(day * DAY);
    (snapshot.stats.files, snapshot.stats.bytes) = (1000, 1_000_000);
    match kind {
        Kind::Whole => {}
        Kind::Lacking => snapshot.missing = BTreeMap::from([(b"/home".to_vec(), Vec::new())]),
        Kind::Partial => snapshot.partial = true,
        Kind::Imported => {
            snapshot.origin = Some(Origin {
                program: "restic".to_owned(),
                repository: String::new(),
                snapshot: number.to_string(),
            });
        }
    }
    snapshot
}

/// The numbers of those that are kept, when the clock shows this day.
fn kept(policy: &Policy, nights: &[Snapshot], today: i64) -> Vec<u8> {
    let circumstances = Circumstances {
        arrivals: &Arrivals::default(),
        now: Timestamp(today * DAY),
        quarantine: 0,
        periods: &periods,
    };
    let all: Vec<&Snapshot> = nights.iter().collect();
    let judged = policy.judge(&all, &circumstances);
    let kept = judged.iter().filter(|judged| !judged.kept_by.is_empty());
    let mut kept: Vec<u8> = kept.map(|judged| judged.snapshot.id.0[0]).collect();
    kept.sort_unstable();
    kept
}

/// A source was away for weeks. When it is back, what was backed up meanwhile is thinned like all else, and takes
/// no place of what is whole.
#[test]
fn nights_that_lacked_a_source_are_kept_by_the_rules_once_it_is_back() {
    let mut nights: Vec<Snapshot> =
        (0..31).map(|day| night(day, i64::from(day), Kind::Lacking)).collect();
    nights[0] = night(0, 0, Kind::Whole);
    nights[3].labels = vec!["gold".to_owned()];
    nights[4] = night(4, 4, Kind::Partial);
    nights[4].labels = vec!["gold".to_owned()];
    nights.push(night(31, 31, Kind::Whole));
    let daily = Policy { daily: 7, ..NONE };
    assert_eq!(kept(&daily, &nights, 31), [0, 25, 26, 27, 28, 29, 30, 31]);
    let label = Policy { last: 1, labels: vec!["gold".to_owned()], ..NONE };
    assert_eq!(kept(&label, &nights, 31), [3, 4, 31]);
    let last = Policy { last: 2, ..NONE };
    assert_eq!(kept(&last, &nights, 31), [0, 30, 31]);
    // While it is away, all of them are kept.
    assert_eq!(kept(&last, &nights[..31], 30).len(), 31);
}

/// One night under a clock that is two years ahead, for the backup and for the rules.
#[test]
fn one_night_of_a_wrong_clock_makes_no_other_too_old() {
    let mut nights: Vec<Snapshot> =
        (0..40).map(|day| night(day, i64::from(day), Kind::Whole)).collect();
    nights.push(night(40, 800, Kind::Whole));
    let within = Policy { within: Some(30 * DAY), ..NONE };
    let expected: Vec<u8> = (9..=40).collect();
    assert_eq!(kept(&within, &nights, 800), expected);
    // When the clock is right again, the one of the future takes no place.
    nights.push(night(41, 40, Kind::Whole));
    let expected: Vec<u8> = (10..=41).collect();
    assert_eq!(kept(&within, &nights, 40), expected);
}

/// What was taken over from another program is judged by its time, like what was made here.
#[test]
fn what_was_taken_over_counts_by_its_time() {
    let mut nights: Vec<Snapshot> =
        (1..4).map(|number| night(number, i64::from(number), Kind::Whole)).collect();
    nights.extend((4..10).map(|number| night(number, i64::from(number), Kind::Imported)));
    let last = Policy { last: 3, ..NONE };
    assert_eq!(kept(&last, &nights, 10), [7, 8, 9]);
}
