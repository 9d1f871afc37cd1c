//! Rules beside a thief of a put-only key, through a real repository.
//!
//! The property itself, for any rules and any forgeries: `crates/upkeep/src/forget/foreign/tests.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use strongroom_base::{Cancel, Clock, Silent, SnapshotId, Timestamp};
use strongroom_repository::objects::ARRIVALS_FOLDER;
use strongroom_repository::{Arrivals, Repository, RepositoryError, Surroundings, list_snapshots};
use strongroom_testkit::Image;
use strongroom_testkit::damage::names_in;
use strongroom_upkeep::{
    Alarm, ForgetOptions, Judged, NewAccess, Periods, Policy, PruneOptions, VerifyDepth, accept,
    add_key, forget, judge, prune, verify,
};

use crate::world::{LAPTOP, PASSPHRASE, World, options, run, snapshot_ids};

const HOUR: i64 = 3600 * 1_000_000_000;
const DAY: i64 = 24 * HOUR;

/// Rules of many people.
const POLICY: Policy = Policy {
    last: 1,
    hourly: 0,
    daily: 7,
    weekly: 5,
    monthly: 12,
    yearly: 0,
    within: None,
    labels: Vec::new(),
};

/// Months of thirty days.
fn periods(time: Timestamp) -> Periods {
    let day = time.0.div_euclid(DAY);
    let (week, month) = (day.div_euclid(7), day.div_euclid(30));
    Periods { hour: time.0.div_euclid(HOUR), day, week, month, year: month.div_euclid(12) }
}

/// Shows what it was set to.
pub struct SetClock(pub AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// A repository with a machine that has a put-only key, and a clock for all.
struct Year {
    world: World,
    clock: Arc<SetClock>,
    owner: Repository,
    laptop: Repository,
}

impl Year {
    fn new(seed: u64) -> Self {
        let world = World::bare(seed);
        let clock = Arc::new(SetClock(AtomicI64::new(0)));
        add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
        let open = |passphrase| {
            let surroundings = Surroundings { clock: clock.clone(), ..world.surroundings() };
            Repository::open(surroundings, passphrase).unwrap()
        };
        let (owner, laptop) = (open(PASSPHRASE), open(LAPTOP));
        Self { world, clock, owner, laptop }
    }

    /// Backs the tree up, with this in it, when the clock shows this.
    fn back_up(&self, repository: &Repository, time: i64, content: &str) -> SnapshotId {
        self.clock.0.store(time, Ordering::Relaxed);
        let _ = std::fs::remove_dir_all(self.world.tree());
        std::fs::create_dir_all(self.world.tree()).unwrap();
        for (name, line) in content.lines().enumerate() {
            self.world.write(&name.to_string(), line.as_bytes());
        }
        let host = "laptop".to_owned();
        let mut options = options(&self.world.tree());
        options.host = host;
        run(repository, &options, &Silent).unwrap().snapshot.id
    }

    /// Applies the rules and collects, when the clock shows this. Returns the alarms.
    fn forget(&self, time: i64) -> Vec<(SnapshotId, Alarm)> {
        self.clock.0.store(time, Ordering::Relaxed);
        let list = list_snapshots(&self.owner).unwrap();
        let options = ForgetOptions {
            policy: &POLICY,
            quarantine: 3 * DAY,
            periods: &periods,
            is_rehearsal: false,
        };
        let all: Vec<_> = list.snapshots.iter().collect();
        let judged = judge(&self.owner, &list, &all, &options).unwrap();
        let goes = |judged: &&Judged<'_>| judged.kept_by.is_empty();
        let going: Vec<SnapshotId> = judged.iter().filter(goes).map(|j| j.snapshot.id).collect();
        forget(&self.owner, &going).unwrap();
        let outcome =
            prune(&self.owner, &PruneOptions::default(), &Silent, &Cancel::new()).unwrap();
        assert!(outcome.waiting.is_empty());
        judged.iter().filter_map(|judged| Some((judged.snapshot.id, judged.alarm?))).collect()
    }
}

/// What the rules keep of snapshots that are all believed.
fn plain(times: &BTreeSet<i64>) -> BTreeSet<i64> {
    let mut kept: BTreeSet<i64> = times.iter().rev().take(1).copied().collect();
    for (count, days) in [(POLICY.daily, 1), (POLICY.weekly, 7), (POLICY.monthly, 30)] {
        let mut met = BTreeSet::new();
        for time in times.iter().rev() {
            if met.len() < count as usize && met.insert(time.div_euclid(days * DAY)) {
                kept.insert(*time);
            }
        }
    }
    kept
}

/// What a night's snapshot has in it.
fn content(day: i64) -> String {
    format!("thesis\nphotos\nday {day}\nletters\nmusic")
}

/// A machine backs up each night. From the hundredth day on, a thief of its key adds snapshots of the
/// same paths: at first such as the machine's, then empty ones, and ones of other times.
#[test]
fn a_year_of_forgeries_through_a_real_repository() {
    let year = Year::new(70);
    let mut nights: Vec<(i64, SnapshotId, Image)> = Vec::new();
    let mut reference: BTreeSet<i64> = BTreeSet::new();
    let (mut forged, mut frozen_since, mut own) = (0, None, 0);
    for day in 0..364 {
        let time = |hour: i64| day * DAY + hour * HOUR;
        let id = year.back_up(&year.laptop, time(2), &content(day));
        nights.push((time(2), id, year.world.image()));
        reference.insert(time(2));
        if day % 14 == 3 {
            year.back_up(&year.owner, time(3), &content(day));
            own += 1;
        }
        let forgeries: &[(i64, &str)] = match day {
            0..100 => &[],
            // Around the machine's own, so that it is neither the first nor the last of its day.
            100..320 if day % 3 == 0 => &[(1, "ransom\n\n\n\n"), (23, "ransom\n\n\n\n")],
            320..364 if day % 20 == 10 => &[(4, "")],
            320..364 if day % 20 == 0 => &[(-200 * 24, "ransom\n\n\n\n"), (400 * 24, "")],
            _ => &[],
        };
        for (hour, content) in forgeries {
            year.back_up(&year.laptop, time(*hour), content);
            forged += 1;
        }
        if day % 7 == 6 {
            let before = snapshot_ids(&year.owner).len();
            let alarms = year.forget(time(24));
            reference = plain(&reference);
            let left = snapshot_ids(&year.owner);
            let is_left =
                |time: &i64| nights.iter().any(|(at, id, _)| at == time && left.contains(id));
            assert!(reference.iter().all(is_left), "day {day}");
            assert_eq!(!alarms.is_empty(), day > 320, "day {day}: {alarms:?}");
            if !alarms.is_empty() {
                frozen_since = frozen_since.or(Some((day, before)));
            }
        }
    }
    assert!(forged > 90, "{forged} were forged");
    let left = snapshot_ids(&year.owner);
    let (day, before) = frozen_since.unwrap();
    assert!(day < 330 && before < 160, "on day {day} there were {before}");
    let own_left = list_snapshots(&year.owner).unwrap().snapshots;
    let own_left = own_left.iter().filter(|snapshot| snapshot.domain.is_empty()).count();
    assert!(own_left < own, "the owner's go by the rules all the same: {own_left} of {own}");
    for (_, id, image) in nights.iter().filter(|(time, ..)| reference.contains(time)) {
        year.world.assert_holds(&year.owner, *id, image, "after a year");
    }
    let outcome = verify(&year.owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.is_sound(), "{:?}", outcome.faults);
    assert!(left.len() > reference.len());
}

#[test]
fn the_owner_ends_an_alarm_by_accepting_or_forgetting() {
    let year = Year::new(71);
    for day in 0..40 {
        let files = if day < 30 { content(day) } else { String::new() };
        year.back_up(&year.laptop, day * DAY + 2 * HOUR, &files);
        let alarms = year.forget(day * DAY + 3 * HOUR);
        assert_eq!(!alarms.is_empty(), day >= 30, "day {day}");
    }
    let now = 40 * DAY;
    let suspicious: Vec<SnapshotId> = year.forget(now).into_iter().map(|(id, _)| id).collect();
    assert_eq!(suspicious.len(), 10);
    let list = list_snapshots(&year.owner).unwrap();
    accept(&year.owner, &list, &suspicious[..1]).unwrap();
    assert_eq!(year.forget(now).len(), 9);
    forget(&year.owner, &suspicious[1..9]).unwrap();
    accept(&year.owner, &list, &suspicious[9..]).unwrap();
    assert_eq!(year.forget(now), []);
    // It is not doubted again for what was accepted.
    year.back_up(&year.laptop, now + 2 * HOUR, "");
    assert_eq!(year.forget(now + 3 * HOUR), []);
}

/// A rehearsal records no look.
#[test]
fn a_rehearsal_says_of_nothing_that_it_arrived() {
    let year = Year::new(153);
    year.back_up(&year.laptop, DAY, "one");
    let list = list_snapshots(&year.owner).unwrap();
    let all: Vec<_> = list.snapshots.iter().collect();
    for is_rehearsal in [true, false] {
        let options =
            ForgetOptions { policy: &POLICY, quarantine: 3 * DAY, periods: &periods, is_rehearsal };
        judge(&year.owner, &list, &all, &options).unwrap();
        let looks = names_in(&year.world.objects.snapshot(), ARRIVALS_FOLDER);
        assert_eq!(looks.is_empty(), is_rehearsal);
    }
}

/// From much to little, in the owner's own domain and without any other: an alarm until it is accepted.
#[test]
fn the_owner_s_own_alarm_ends_when_it_is_accepted() {
    let year = Year::new(155);
    let much: String = (0..300).map(|line| format!("{line} of many lines\n")).collect();
    for day in 1..=5 {
        year.back_up(&year.owner, day * DAY, &much);
    }
    let little = year.back_up(&year.owner, 6 * DAY, "one");
    assert_eq!(year.forget(7 * DAY), [(little, Alarm::Shrunken)]);
    assert_eq!(snapshot_ids(&year.owner).len(), 6, "nothing is forgotten meanwhile");
    accept(&year.owner, &list_snapshots(&year.owner).unwrap(), &[little]).unwrap();
    assert_eq!(year.forget(7 * DAY), []);
}

/// A snapshot of their own that the owner accepts is noted, and no other of theirs.
#[test]
fn what_is_accepted_alone_is_noted() {
    let year = Year::new(154);
    let [one, other] = [1, 2].map(|day| year.back_up(&year.owner, day * DAY, "one"));
    accept(&year.owner, &list_snapshots(&year.owner).unwrap(), &[one]).unwrap();
    let arrivals = Arrivals::read(&year.owner).unwrap();
    assert!(arrivals.seen(one).is_some() && arrivals.is_accepted(one));
    assert!(arrivals.seen(other).is_none() && !arrivals.is_accepted(other));
}

/// Looks are of the owner, and no put-only client reads or makes them.
#[test]
fn only_the_owner_says_what_arrived_when() {
    let year = Year::new(72);
    let id = year.back_up(&year.laptop, DAY, &content(1));
    assert_eq!(names_in(&year.world.objects.snapshot(), ARRIVALS_FOLDER).len(), 0);
    year.forget(DAY + HOUR);
    let looks = names_in(&year.world.objects.snapshot(), ARRIVALS_FOLDER);
    assert_eq!(looks.len(), 1);
    year.forget(2 * DAY);
    assert_eq!(names_in(&year.world.objects.snapshot(), ARRIVALS_FOLDER), looks, "nothing is new");
    let seen = Arrivals::read(&year.owner).unwrap().seen(id).unwrap();
    assert_eq!((seen.at, seen.arrival.time), (Timestamp(DAY + HOUR), Timestamp(DAY)));
    // Those of another owner do not count, and names that are taken are passed over.
    let other = Year::new(73);
    other.back_up(&other.laptop, 7 * DAY, &content(7));
    other.forget(7 * DAY + HOUR);
    let of_other = other.world.objects.snapshot();
    let theirs = of_other[&names_in(&of_other, ARRIVALS_FOLDER)[0]].clone();
    let second = strongroom_backend::ObjectName::new(ARRIVALS_FOLDER, 3 * DAY + HOUR);
    let backend: &dyn strongroom_backend::Backend = &*year.world.objects;
    backend.create(&second, &theirs).unwrap();
    let next = year.back_up(&year.laptop, 3 * DAY, &content(3));
    year.forget(3 * DAY + HOUR);
    assert_eq!(names_in(&year.world.objects.snapshot(), ARRIVALS_FOLDER).len(), 3);
    assert!(Arrivals::read(&year.owner).unwrap().seen(next).is_some());
    assert!(matches!(Arrivals::read(&year.laptop), Err(RepositoryError::PutOnly)));
    // One that is lost: what it saw is seen again, and doubted.
    backend.remove(&looks[0]).unwrap();
    let alarms: Vec<SnapshotId> = year.forget(4 * DAY).into_iter().map(|(id, _)| id).collect();
    assert_eq!(alarms, [id]);
}
