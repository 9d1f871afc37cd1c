//! Sessions that a prune finds: for which it waits, which it ends, and what comes late of those that are over.

use std::sync::atomic::AtomicI64;

use strongroom_backend::LocalBackend;
use strongroom_repository::{Surroundings, session_object};
use strongroom_testkit::Fault;
use strongroom_upkeep::Carried;

use super::*;
use crate::retention::SetClock;

/// A prune does not go on with a collection that waits.
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

/// The patience of a prune is with the age of a session: an older one is ended, and so is one that began in
/// the future.
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

/// A world in which a program has begun to write and has not gone on, and the name of its session.
fn with_open_session(seed: u64) -> (History, SnapshotId) {
    let history = History::new(seed, &[0]);
    let id = {
        let writer = history.world.open();
        let session = Session::begin(&writer, "host").unwrap();
        let id = session.id;
        std::mem::forget(session);
        id
    };
    (history, id)
}

/// A session whose snapshot is there has ended, even if its program was killed before it said so; and so
/// has one that goes while it is looked at.
#[test]
fn a_prune_does_not_wait_for_what_has_ended() {
    let (history, id) = with_open_session(27);
    let world = &history.world;
    let objects = || Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let outcome = collect(&world.open_over(objects()).unwrap()).unwrap();
    assert_eq!(outcome.waiting.iter().map(|session| session.id).collect::<Vec<_>>(), [id]);

    // It is one of a backup that went through.
    let (kept, _) = history.kept[0];
    let killed = objects();
    let session = &world.objects.snapshot()[&session_object(id)];
    killed.remove(&session_object(id)).unwrap();
    killed.create(&session_object(kept), session).unwrap();
    let outcome = collect(&world.open_over(killed).unwrap()).unwrap();
    assert!(outcome.waiting.is_empty() && outcome.ended.is_empty(), "{outcome:?}");
    assert_eq!(outcome.snapshots.len(), 1);

    // It ends between the listing and the look.
    let (going, name) = (objects(), format!("snapshots/{id}"));
    let place = going.clone();
    let acting = RecordingBackend::acting(going, move |call| {
        if call.kind == CallKind::Size && call.name == name {
            place.remove(&session_object(id)).unwrap();
        }
    });
    let outcome = collect(&world.open_over(Arc::new(acting)).unwrap()).unwrap();
    assert!(outcome.waiting.is_empty() && outcome.ended.is_empty(), "{outcome:?}");

    // What cannot be known is not guessed.
    let plan =
        FaultPlan::lasting(Calls::of(&[CallKind::Size]).within("snapshots"), 0, FaultKind::Io);
    let faulty = Arc::new(FaultyBackend::new(objects(), plan));
    assert!(collect(&world.open_over(faulty).unwrap()).is_err());
}

/// A session that is ended may be gone before it is removed; one that cannot be removed is an error.
#[test]
fn the_session_that_a_prune_ends_is_removed() {
    let (history, id) = with_open_session(28);
    let world = &history.world;
    let impatient = PruneOptions { patience: Duration::ZERO, ..ALL };
    let objects = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let place = objects.clone();
    let acting = RecordingBackend::acting(objects, move |call| {
        if call.kind == CallKind::Remove && call.name == format!("sessions/{id}") {
            place.remove(&session_object(id)).unwrap();
        }
    });
    let repository = world.open_over(Arc::new(acting)).unwrap();
    let outcome = prune(&repository, &impatient, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.ended, outcome.snapshots.len()), (vec![id], 1));

    let plan =
        FaultPlan::lasting(Calls::of(&[CallKind::Remove]).within("sessions"), 0, FaultKind::Io);
    let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan));
    let repository = world.open_over(faulty).unwrap();
    assert!(prune(&repository, &impatient, &Silent, &Cancel::new()).is_err());
}

/// A directory in the place of a session stops no prune, which ends the session. One in the place of its snapshot
/// may be anything, and then nothing is decided.
#[test]
fn a_directory_in_the_place_of_a_session_stops_no_prune() {
    let (history, id) = with_open_session(39);
    let world = &history.world;
    for is_snapshot_too in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("repository");
        let place = Arc::new(LocalBackend::create(&path).unwrap());
        for (name, bytes) in world.objects.snapshot() {
            place.create(&name, &bytes).unwrap();
        }
        let session = path.join(session_object(id).as_str());
        std::fs::remove_file(&session).unwrap();
        std::fs::create_dir(&session).unwrap();
        if is_snapshot_too {
            std::fs::create_dir(path.join(format!("snapshots/{id}"))).unwrap();
        }
        let outcome = collect(&world.open_over(place).unwrap());
        assert!(session.exists(), "it may hold anything");
        match outcome {
            Ok(outcome) => assert_eq!((outcome.ended, is_snapshot_too), (vec![id], false)),
            Err(error) => assert!(is_snapshot_too, "{error}"),
        }
    }
}

/// Found by the simulation, seed 1795865469982 at 1a7ea80e: a session was ended, its create came a second
/// time, and an arena of its own came late, whose deltas had lost their bases meanwhile. It counted as one
/// that may still commit, so no prune was possible any more. Seed 1796011287678 at e5f8e0c1: its own writer
/// had ended it. Anyone who may store can make the like up.
#[test]
fn what_comes_late_of_a_session_that_is_over_stops_no_prune() {
    for by_its_writer in [false, true] {
        check_what_comes_late(by_its_writer);
    }
}

fn check_what_comes_late(by_its_writer: bool) {
    let world = World::bare(35);
    grow(&world.tree(), 35, TREE);
    let first = world.backup().snapshot.id;
    mutate(&world.tree(), 35, TREE);
    // Its answers are lost, from the commit on.
    let before = world.objects.snapshot();
    let elsewhere = Arc::new(MemoryBackend::from_snapshot(before.clone()));
    let lost = |kind, folder: &str| Fault {
        calls: Calls::of(&[kind]).within(folder),
        at: 0,
        lasting: true,
        kind: FaultKind::Io,
    };
    let faults = vec![lost(CallKind::Create, "snapshots"), lost(CallKind::Remove, "sessions")];
    let faulty = Arc::new(FaultyBackend::new(elsewhere.clone(), FaultPlan { faults }));
    let mut again = options(&world.tree());
    again.pack.deltas = true;
    assert!(run(&world.open_over(faulty).unwrap(), &again, &Silent).is_err());
    let late = elsewhere.snapshot();
    let [session] = &names_in(&late, "sessions")[..] else { panic!("one session") };

    // Of the first one nothing stays.
    if !by_its_writer {
        world.objects.create(session, &late[session]).unwrap();
    }
    std::fs::remove_dir_all(world.tree()).unwrap();
    grow(&world.tree(), 36, TREE);
    let second = world.backup().snapshot.id;
    forget(&world.open(), &[first]).unwrap();
    let impatient = PruneOptions { patience: Duration::ZERO, ..ALL };
    let outcome = prune(&world.open(), &impatient, &Silent, &Cancel::new()).unwrap();
    let ended = usize::from(!by_its_writer);
    assert_eq!((outcome.ended.len(), outcome.snapshots.len()), (ended, 1));

    world.objects.create(session, &late[session]).unwrap();
    let came = differing(&late, &before, "arenas");
    for (name, _) in &came {
        world.objects.create(name, &late[*name]).unwrap();
    }
    let mut kept = second;
    if by_its_writer {
        // It counts as one that is at work, until another collection ends it.
        assert_eq!(collect(&world.open()).unwrap().carried, Carried::default());
        forget(&world.open(), &[second]).unwrap();
        kept = world.backup().snapshot.id;
        let outcome = prune(&world.open(), &impatient, &Silent, &Cancel::new()).unwrap();
        assert_eq!((outcome.ended.len(), outcome.snapshots.len()), (1, 1));
    }
    let outcome = collect(&world.open()).unwrap();
    assert_eq!(outcome.carried.arenas_removed, came.len() as u64);
    world.assert_holds(&world.open(), kept, &world.image(), "in the end");
    check_sound(&world.open(), "in the end");
}
