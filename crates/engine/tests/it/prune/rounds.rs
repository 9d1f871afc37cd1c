//! What one call of `prune` comes to: how many collections it carries out, for whom it waits, what its
//! sums say.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;

use strongroom_repository::{Surroundings, session_object};
use strongroom_upkeep::Carried;

use super::*;
use crate::retention::SetClock;

fn differing<'o>(some: &'o Objects, others: &Objects, folder: &str) -> Vec<(&'o ObjectName, u64)> {
    let of_folder = some.iter().filter(|(name, _)| name.folder() == folder);
    let missing = of_folder.filter(|(name, _)| !others.contains_key(*name));
    missing.map(|(name, object)| (name, object.len() as u64)).collect()
}

/// The sums of a prune are what these two states differ in.
#[track_caller]
fn check_sums(before: &Objects, after: &Objects, carried: Carried) {
    let id = |name: &ObjectName| name.file().split('.').next().unwrap().to_owned();
    let (gone, new) = (differing(before, after, "arenas"), differing(after, before, "arenas"));
    let left: BTreeSet<String> = names_in(after, "arenas").iter().map(id).collect();
    let removed: BTreeSet<String> = gone.iter().map(|(name, _)| id(name)).collect();
    let bytes = |arenas: &[(&ObjectName, u64)]| arenas.iter().map(|(_, bytes)| bytes).sum();
    let expected = Carried {
        snapshots: differing(before, after, "snapshots").len() as u64,
        arenas_removed: removed.difference(&left).count() as u64,
        arenas_rewritten: new.len() as u64,
        rewritten_bytes: bytes(&new),
        removed_bytes: bytes(&gone),
        ..Carried::default()
    };
    assert_eq!(carried, expected);
}

/// What was forgotten since is not left for the next night.
#[test]
fn a_prune_that_ends_an_earlier_one_goes_on_with_the_next() {
    let history = History::new(21, &[0, 2]);
    let world = &history.world;
    let repository = world.open();
    let session = Session::begin(&repository, "host").unwrap();
    assert_eq!(collect(&repository).unwrap().waiting.len(), 1);
    drop(session);
    let (later, _) = history.kept[0];
    forget(&repository, &[later]).unwrap();

    let before = world.objects.snapshot();
    let outcome = collect(&repository).unwrap();
    let after = world.objects.snapshot();
    assert_eq!(outcome.collection, Some(2));
    let gone: BTreeSet<SnapshotId> = outcome.snapshots.iter().map(|going| going.id).collect();
    let forgotten = history.forgotten.iter().copied().chain([later]).collect();
    assert_eq!(gone, forgotten);
    assert!(outcome.carried.arenas_removed > 0 && outcome.carried.arenas_rewritten > 0);
    check_sums(&before, &after, outcome.carried);
    let collections = Collections::read(&repository).unwrap();
    assert_eq!((collections.last, collections.open), (2, None));
}

/// It does not go on with what it waits for.
#[test]
fn a_prune_that_waits_for_a_session_looks_once() {
    let history = History::new(22, &[0]);
    let world = &history.world;
    let writer = world.open();
    let _session = Session::begin(&writer, "host").unwrap();
    assert_eq!(collect(&writer).unwrap().waiting.len(), 1);
    let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
    let repository = world.open_over(recording.clone()).unwrap();
    recording.take();
    assert_eq!(collect(&repository).unwrap().waiting.len(), 1);
    let calls = recording.take();
    let looks = calls.iter().filter(|call| call.kind == CallKind::List && call.name == "sessions");
    assert_eq!(looks.count(), 1);
}

/// A limit of time ends the call, not only the collection: of an arena a night, each night does one.
#[test]
fn a_prune_that_is_late_does_not_begin_again() {
    let history = History::new(23, &[1, 2, 3, 4]);
    let hasty = PruneOptions { time_max: Some(Duration::ZERO), ..ALL };
    let mut left = None;
    let mut times = 0;
    loop {
        let world = &history.world;
        let before = world.objects.snapshot();
        let outcome = prune(&world.open(), &hasty, &Silent, &Cancel::new()).unwrap();
        let carried = Carried { arenas_left: 0, ..outcome.carried };
        check_sums(&before, &world.objects.snapshot(), carried);
        if outcome.carried.arenas_left == 0 {
            break;
        }
        if let Some(left) = left {
            assert_eq!(outcome.carried.arenas_left + 1, left);
        }
        left = Some(outcome.carried.arenas_left);
        times += 1;
    }
    assert!(times > 2, "{times}");
}

/// Of what earlier verdicts removed, a late operation has brought something back.
#[test]
fn what_comes_back_is_removed_by_the_next_prune() {
    let history = History::new(24, &[0, 1, 2]);
    let world = &history.world;
    let before = world.objects.snapshot();
    collect(&world.open()).unwrap();
    let after = world.objects.snapshot();
    let id = |name: &ObjectName| name.file().split('.').next().unwrap().to_owned();
    let left: BTreeSet<String> = names_in(&after, "arenas").iter().map(id).collect();
    let (arenas, snapshots) =
        (differing(&before, &after, "arenas"), differing(&before, &after, "snapshots"));
    let back: Vec<&ObjectName> = arenas.iter().chain(&snapshots).map(|(name, _)| *name).collect();
    for name in &back {
        world.objects.create(name, &before[*name]).unwrap();
    }
    forget(&world.open(), &[history.kept[0].0]).unwrap();
    let full = world.objects.snapshot();
    let outcome = collect(&world.open()).unwrap();
    let swept = world.objects.snapshot();
    check_sums(&full, &swept, outcome.carried);
    let whole = |name: &&&ObjectName| name.folder() == "snapshots" || !left.contains(&id(name));
    assert!(back.iter().filter(whole).count() > snapshots.len(), "no arena was removed whole");
    for name in back.iter().filter(whole) {
        assert!(!swept.contains_key(*name), "{name} is there");
    }
}

/// Its patience is with an age: what is older is ended, and so is what began in the future.
#[test]
fn patience_with_a_session_ends_with_its_age() {
    const BEGUN: i64 = 5000;
    let patience = Duration::from_nanos(60);
    for (now, is_ended) in [
        (BEGUN, false),
        (BEGUN + 60, false),
        (BEGUN + 61, true),
        (BEGUN - 60, false),
        (BEGUN - 61, true),
    ] {
        let history = History::new(25, &[0]);
        let clock = Arc::new(SetClock(AtomicI64::new(BEGUN)));
        let surroundings = Surroundings { clock: clock.clone(), ..history.world.surroundings() };
        let repository = Repository::open(surroundings, PASSPHRASE).unwrap();
        let session = Session::begin(&repository, "host").unwrap();
        clock.0.store(now, Ordering::Relaxed);
        let options = PruneOptions { patience, ..ALL };
        let outcome = prune(&repository, &options, &Silent, &Cancel::new()).unwrap();
        let waiting: Vec<SnapshotId> = outcome.waiting.iter().map(|session| session.id).collect();
        let (ended, waited) =
            if is_ended { (vec![session.id], vec![]) } else { (vec![], vec![session.id]) };
        assert_eq!((outcome.ended, waiting), (ended, waited), "at {now}");
        let is_there = history.world.objects.snapshot().contains_key(&session_object(session.id));
        assert_eq!(is_there, !is_ended, "at {now}");
    }
}
