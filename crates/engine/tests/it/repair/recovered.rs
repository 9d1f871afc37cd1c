//! Snapshots that were removed or are damaged, while an object of their session is still there.

use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use strongroom_backend::Backend;
use strongroom_repository::{
    Collections, Session, Surroundings, Wishes, session_object, snapshot_object,
};
use strongroom_testkit::{Image, Listener, RecordingBackend};
use strongroom_upkeep::{PruneOptions, may_recover, plan_recovery, plan_removals};

use super::*;
use crate::copies::versions;
use crate::retention::SetClock;
use crate::world::{PASSPHRASE, snapshot_ids};

/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// Ends every session that is there.
const IMPATIENT: PruneOptions = PruneOptions { patience: Duration::ZERO, ..ALL };

/// A repair as the program does it.
fn recover(repository: &Repository) -> Result<RepairOutcome, RepositoryError> {
    let mut plan = plan_repair(repository.backend(), &Silent, &Cancel::new())?;
    plan_removals(repository, &mut plan)?;
    if may_recover(repository)? {
        plan_recovery(repository, &mut plan, &Silent, &Cancel::new())?;
    }
    repair(repository, &plan, &Silent, &Cancel::new())
}

/// Leaves the session of a snapshot as one that was killed.
fn leave_session(world: &World, id: SnapshotId, sequence: u64) {
    let repository = world.open();
    std::mem::forget(Session::resume(&repository, id, sequence, "host").unwrap());
}

#[track_caller]
fn assert_kept(world: &World, repository: &Repository, kept: &(SnapshotId, Image), when: &str) {
    assert!(snapshot_ids(repository).contains(&kept.0), "{when}");
    world.assert_holds(repository, kept.0, &kept.1, when);
}

/// A repair that commits a lost snapshot again is killed, and a prune that has no patience comes before the
/// next one.
#[test]
fn no_prune_ends_the_session_of_a_recovery() {
    let world = World::new(720);
    let made = versions(&world, 4);
    world.objects.remove(&snapshot_object(made[1].0)).unwrap();
    let mut cut = 0;
    for at in 0.. {
        let backend = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
        let faulty = Arc::new(FaultyBackend::new(backend.clone(), FaultPlan::crash_after(at)));
        let _ = world.open_over(faulty.clone()).and_then(|repository| recover(&repository));
        if faulty.fired() == 0 {
            break;
        }
        if names_in(&backend.snapshot(), "sessions").is_empty() {
            continue;
        }
        cut += 1;
        let when = format!("cut short at {at}");
        let repository = world.open_over(backend.clone()).unwrap();
        forget(&repository, &[made[0].0]).unwrap();
        let outcome = prune(&repository, &IMPATIENT, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.ended, [], "{when}");
        let waits = outcome.waiting.iter().map(|session| session.id).collect::<Vec<_>>();
        // A repair that finds a collection lets it go on, and the next one commits.
        for _ in 0..2 {
            recover(&repository).unwrap();
            prune(&repository, &IMPATIENT, &Silent, &Cancel::new()).unwrap();
        }
        recover(&repository).unwrap();
        assert_kept(&world, &repository, &made[1], &format!("{when}, {waits:?}"));
        assert!(!snapshot_ids(&repository).contains(&made[0].0), "{when}");
        assert!(Collections::read(&repository).unwrap().open.is_none(), "{when}");
    }
    assert!(cut > 0, "a session was left");
}

/// A backup was killed after its commit, so its session is still there, perhaps as rubbish; later its snapshot
/// is removed. What it needs is not condemned either while its writer may be at work.
#[test]
fn no_prune_ends_a_session_that_has_committed() {
    for (is_rubbish, was_planned_before) in [(false, false), (true, false), (false, true)] {
        check_a_session_that_has_committed(is_rubbish, was_planned_before);
    }
}

fn check_a_session_that_has_committed(is_rubbish: bool, was_planned_before: bool) {
    let world = World::new(721);
    let made = versions(&world, 4);
    leave_session(&world, made[1].0, 2);
    if is_rubbish {
        world.objects.replace(&session_object(made[1].0), &[0x5c; 300]).unwrap();
    }
    world.objects.remove(&snapshot_object(made[1].0)).unwrap();
    forget(&world.open(), &[made[0].0]).unwrap();
    if was_planned_before {
        let outcome = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
        assert_eq!((outcome.waiting.len(), outcome.lost.len()), (1, 0), "it may be at work");
    }
    let clock = Arc::new(SetClock(AtomicI64::new(30 * DAY)));
    let surroundings = Surroundings { clock, ..world.surroundings() };
    let repository = Repository::open(surroundings, PASSPHRASE).unwrap();
    let patient = PruneOptions { patience: PruneOptions::default().patience, ..ALL };
    let listener = Listener::new();
    let outcome = prune(&repository, &patient, &listener, &Cancel::new()).unwrap();
    let waiting: Vec<SnapshotId> = outcome.waiting.iter().map(|session| session.id).collect();
    assert_eq!((outcome.ended, waiting), (vec![], vec![made[1].0]));
    let session = format!("session {} is not ended", made[1].0.short());
    assert!(listener.problems().iter().any(|heard| heard.message.starts_with(&session)));
    let repaired = recover(&repository).unwrap();
    assert_eq!(repaired.recover_later, [made[1].0], "the collection is open");
    let outcome = prune(&repository, &patient, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.ended.len(), outcome.waiting.len()), (0, 0));
    assert_eq!(recover(&repository).unwrap().recovered, 1);
    assert_kept(&world, &repository, &made[1], "committed again");
}

/// What is forgotten has no proof that counts: its session is ended, and it goes.
#[test]
fn the_session_of_a_removed_snapshot_ends_once_it_is_forgotten() {
    let world = World::new(722);
    let made = versions(&world, 4);
    leave_session(&world, made[1].0, 2);
    world.objects.remove(&snapshot_object(made[1].0)).unwrap();
    forget(&world.open(), &[made[0].0, made[1].0]).unwrap();
    let outcome = prune(&world.open(), &IMPATIENT, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.ended, outcome.waiting.len()), (vec![made[1].0], 0));
    let outcome = prune(&world.open(), &IMPATIENT, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.lost.len(), outcome.waiting.len()), (0, 0));
    for kept in &made[2..] {
        assert_kept(&world, &world.open(), kept, "the others stay");
    }
}

/// The same session, and then the snapshot is not removed but overwritten: nothing else can be created there,
/// so it is as lost as without the session.
#[test]
fn a_session_does_not_hide_that_its_snapshot_is_rubbish() {
    let world = World::new(723);
    let made = versions(&world, 4);
    leave_session(&world, made[1].0, 2);
    world.objects.replace(&snapshot_object(made[1].0), &[0x5c; 300]).unwrap();
    assert!(may_recover(&world.open()).unwrap());
    assert_eq!(check_all(&world.open()).lost_snapshots.len(), 1);
    assert_eq!(recover(&world.open()).unwrap().recovered, 1);
    assert_kept(&world, &world.open(), &made[1], "committed again");
    forget(&world.open(), &[made[0].0]).unwrap();
    let outcome = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.snapshots.len(), 1);
    assert_kept(&world, &world.open(), &made[1], "after a prune");
}

/// A backup is at work and has stored its trees. Rubbish among the remarks does not make a lost snapshot of
/// it: forgetting that would forget what is acknowledged later.
#[test]
fn rubbish_among_the_remarks_makes_no_lost_snapshot() {
    for is_at_work in [true, false] {
        let world = World::new(724);
        let made = versions(&world, 3);
        let last = made[2].0;
        world.objects.remove(&snapshot_object(last)).unwrap();
        if is_at_work {
            leave_session(&world, last, 3);
        }
        let before = check_all(&world.open()).lost_snapshots;
        let rubbish = ObjectName::new("remarks", format!("{last}.1"));
        world.objects.create(&rubbish, &[0x5c; 100]).unwrap();
        assert!(Wishes::read(&world.open()).unwrap().hold(last).is_some(), "it may be a hold");
        assert_eq!(check_all(&world.open()).lost_snapshots, before, "{is_at_work}");
        assert!(before.iter().all(|lost| !lost.was_committed), "{is_at_work}");
        assert_eq!(may_recover(&world.open()).unwrap(), !is_at_work);
        forget(&world.open(), &[made[0].0]).unwrap();
        let outcome = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.lost.is_empty(), is_at_work);
        assert_eq!(outcome.waiting.len(), usize::from(is_at_work));
    }
}

/// Two repairs commit one lost snapshot again. The one that comes second goes on.
#[test]
fn a_snapshot_that_another_repair_has_recovered_ends_no_repair() {
    let world = World::new(725);
    let made = versions(&world, 3);
    let name = snapshot_object(made[1].0);
    world.objects.remove(&name).unwrap();
    let beside = world.open();
    let is_first = AtomicBool::new(true);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_commit = call.kind == CallKind::Create && call.name == name.as_str();
        if is_commit && is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(recover(&beside).unwrap().recovered, 1);
        }
    });
    let repository = world.open_over(Arc::new(acting)).unwrap();
    let outcome = recover(&repository).unwrap();
    assert_eq!((outcome.recovered, outcome.affected.len()), (1, 0));
    assert_kept(&world, &world.open(), &made[1], "committed again");
    assert!(names_in(&world.objects.snapshot(), "sessions").is_empty());
}
