//! Mirrors: what they remove, in which order, and from which places they remove nothing.

use strongroom_repository::Collections;
use strongroom_testkit::Heard;

use super::*;

/// A mirror removes snapshots before what they need, and says how far it is.
#[test]
fn a_mirror_removes_snapshots_before_arenas() {
    let (world, made) = history(61);
    let place = Arc::new(RecordingBackend::new(Arc::new(MemoryBackend::new())));
    let target: Arc<dyn Backend> = place.clone();
    copy(&*world.objects, &*target).unwrap();
    forget(&world.open(), &[made[0].0]).unwrap();
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    copy(&*world.objects, &*target).unwrap();
    let plan = plan_mirror(&world.open(), &target).unwrap();
    place.take();
    let listener = Listener::new();
    let outcome = mirror(&world.open(), &target, &plan, &listener, &Cancel::new()).unwrap();
    let calls = place.take();
    let removed = calls.iter().filter(|call| call.kind == CallKind::Remove);
    let are_arenas: Vec<bool> = removed.map(|call| call.folder() == "arenas").collect();
    assert!(are_arenas.is_sorted() && are_arenas.contains(&true) && are_arenas.contains(&false));
    let (count, progress) = (plan.remove.len() as u64, listener.last_progress());
    assert_eq!(
        (outcome.removed, progress.files, progress.files_total),
        (count, count, Some(count))
    );
}

/// A place of these objects whose prune is killed at a call, and whether it came to its end before.
pub fn prune_killed_at(
    world: &World,
    source: &Objects,
    at: u64,
) -> (Arc<MemoryBackend>, Repository, bool) {
    let objects = Arc::new(MemoryBackend::from_snapshot(source.clone()));
    let repository = world.open_over(objects.clone()).unwrap();
    let faulty = Arc::new(FaultyBackend::new(objects.clone(), FaultPlan::crash(at)));
    let killed = world.open_over(faulty);
    let done = killed.and_then(|killed| prune(&killed, &ALL, &Silent, &Cancel::new()));
    (objects, repository, done.is_ok())
}

/// A prune that is killed has removed a part of what its verdict names. A mirror of that place
/// is whole, and misses nothing that is not accounted for in it; the next one, once the prune has ended,
/// removes the rest.
#[test]
fn kept_p_m1_a_mirror_of_a_place_whose_prune_has_not_ended() {
    let (world, kept) = history(665);
    for seed in [6651, 6652] {
        world.mutate(seed);
        world.backup();
    }
    let replica = MemoryBackend::new();
    copy(&*world.objects, &replica).unwrap();
    let gone: Vec<SnapshotId> = kept.iter().map(|(id, _)| *id).collect();
    forget(&world.open(), &gone).unwrap();
    let (source, replica) = (world.objects.snapshot(), replica.snapshot());
    let (mut at, mut left_something) = (0, 0);
    loop {
        let (objects, repository, is_done) = prune_killed_at(&world, &source, at);
        let target = Arc::new(MemoryBackend::from_snapshot(replica.clone()));
        let place: Arc<dyn Backend> = target.clone();
        let what = format!("killed at {at}");
        let mirrored = mirror_all(&repository, &place).unwrap();
        let copied = world.open_over(target.clone()).unwrap();
        let found = check_all(&copied);
        assert!(found.is_sound() && found.missing_sequences.is_empty(), "{what}: {found:?}");
        // Either all of a collection, its verdict included, or nothing of it.
        let has_verdict = names_in(&target.snapshot(), "collections").len() >= 2;
        assert_eq!(mirrored.removed > 0, has_verdict, "{what}: {mirrored:?}");
        let here = names_in(&objects.snapshot(), "snapshots").len();
        left_something += usize::from(names_in(&target.snapshot(), "snapshots").len() > here);

        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        mirror_all(&repository, &place).unwrap();
        for folder in ["arenas", "snapshots", "forgotten", "collections"] {
            let names = |objects: &MemoryBackend| -> BTreeSet<_> {
                let names = names_in(&objects.snapshot(), folder).into_iter();
                // One that was killed after the end has left the plan, which does not count.
                names.filter(|name| !name.file().contains(".plan")).collect()
            };
            assert_eq!(names(&target), names(&objects), "{what}: {folder}");
        }
        assert!(check_all(&copied).is_sound(), "{what}");
        if is_done {
            break;
        }
        at += 5;
    }
    assert!(at > 20 && left_something > 0, "{at} {left_something}");
}

/// An arena that a prune took came back with a snapshot that was made in the replica, and was lost again. Once that
/// snapshot is forgotten, and until the prune of it has ended, it is in the replica, and so is what it needs.
#[test]
fn what_a_snapshot_needs_that_is_going_stays_in_a_mirror() {
    let world = World::bare(667);
    let replica = Arc::new(MemoryBackend::new());
    let (once, later) = (noise(1, 60_000), noise(2, 60_000));
    world.write("file", &once);
    let first = (world.backup().snapshot.id, world.image());
    copy(&*world.objects, &*replica).unwrap();
    world.write("file", &later);
    let second = (world.backup().snapshot.id, world.image());
    let repository = world.open();
    forget(&repository, &[first.0]).unwrap();
    let pruned = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap().carried;
    assert!(pruned.arenas_removed > 0, "{pruned:?}");
    world.write("file", &once);
    let there = world.open_over(replica.clone()).unwrap();
    let made = crate::world::run(&there, &crate::world::options(&world.tree()), &Silent).unwrap();
    let kept = [first, second, (made.snapshot.id, world.image())];
    copy(&*replica, &*world.objects).unwrap();
    let dead: Vec<String> =
        Collections::read(&repository).unwrap().dead().map(|arena| arena.to_string()).collect();
    for name in names_in(&world.objects.snapshot(), "arenas") {
        if dead.iter().any(|arena| name.file().starts_with(arena)) {
            world.objects.remove(&name).unwrap();
        }
    }
    forget(&repository, &[kept[2].0]).unwrap();
    let (source, replica) = (world.objects.snapshot(), replica.snapshot());
    let (mut at, mut stayed) = (0, 0);
    loop {
        let (objects, repository, is_done) = prune_killed_at(&world, &source, at);
        let what = format!("killed at {at}");
        let target = Arc::new(MemoryBackend::from_snapshot(replica.clone()));
        let place: Arc<dyn Backend> = target.clone();
        copy(&*objects, &*place).unwrap();
        let plan = plan_mirror(&repository, &place).unwrap();
        let listener = Listener::new();
        let _ = mirror(&repository, &place, &plan, &listener, &Cancel::new());
        let is_said = |said: &Heard| said.message.contains("until the open collection");
        if listener.problems().iter().any(is_said) {
            assert_eq!(plan.open, Some(2), "{what}");
            stayed += 1;
        }
        check_complete(&world, target.clone(), &kept, &what);
        let copied = world.open_over(target.clone()).unwrap();
        assert!(check_all(&copied).is_sound(), "{what}");

        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        mirror_all(&repository, &place).unwrap();
        for folder in ["arenas", "snapshots"] {
            let names = |objects: &MemoryBackend| names_in(&objects.snapshot(), folder);
            assert_eq!(names(&target), names(&objects), "{what}: {folder}");
        }
        if is_done {
            break;
        }
        at += 2;
    }
    assert!(at > 20 && stayed > 0, "{at} {stayed}");
}

#[test]
fn a_replica_with_writers_of_its_own_is_not_mirrored() {
    let (world, _) = history(680);
    let target: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    copy(&*world.objects, &*target).unwrap();
    let there = world.open_over(target.clone()).unwrap();
    world.mutate(689);
    let options = crate::world::options(&world.tree());
    let own = crate::world::run(&there, &options, &Silent).unwrap().snapshot.id;
    let image = world.image();
    let error = mirror_all(&world.open(), &target).unwrap_err();
    assert!(matches!(error, RepositoryError::NotMirrored { .. }), "{error}");
    // The other way it is no replica that lacks something, but one that has more.
    copy(&*target, &*world.objects).unwrap();
    world.assert_holds(&world.open(), own, &image, "both ways");
    mirror_all(&world.open(), &target).unwrap();
    world.assert_holds(&there, own, &image, "in the replica");
}

/// A mirror that is killed at any call leaves a replica that is complete, and goes on.
#[test]
fn a_mirror_that_is_killed_at_any_call_goes_on() {
    let (world, kept) = history(690);
    let repository = world.open();
    let before: Arc<MemoryBackend> = Arc::new(MemoryBackend::new());
    copy(&*world.objects, &*before).unwrap();
    forget(&repository, &[kept[0].0]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let before = before.snapshot();
    let mut at = 0;
    loop {
        let objects = Arc::new(MemoryBackend::from_snapshot(before.clone()));
        let faulty: Arc<dyn Backend> =
            Arc::new(FaultyBackend::new(objects.clone(), FaultPlan::crash(at)));
        let done = mirror_all(&repository, &faulty);
        check_complete(&world, objects.clone(), &kept, &format!("killed at {at}"));
        if done.is_ok() {
            break;
        }
        let target: Arc<dyn Backend> = objects.clone();
        mirror_all(&repository, &target).unwrap();
        check_complete(&world, objects, &kept, &format!("killed at {at}, and again"));
        at += 1;
    }
    assert!(at > 20, "{at}");
}
