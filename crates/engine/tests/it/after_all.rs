//! Snapshots that a collection took, that are back from another copy of the repository, and that the owner
//! keeps after all: to every verb they are as the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_arena::ArenaName;
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_repository::objects::copy_of;
use strongroom_repository::{Collections, RepositoryError, snapshot_object};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{Image, RecordingBackend, noise};
use strongroom_upkeep::{
    forget, mirror, plan_mirror, plan_recovery, plan_repair, preview_mirror, prune, remember,
    repair, replicate,
};

use crate::repair_from::repair_from;
use crate::replicate::mirrored::prune_killed_at;
use crate::verify::check_all;
use crate::world::{ALL, World, options, run, snapshot_ids};

/// A repository and its replica, with a snapshot that a collection took, back in both.
struct Scene {
    world: World,
    replica: Arc<dyn Backend>,
    back: SnapshotId,
    kept: Vec<(SnapshotId, Image)>,
}

fn copy(source: &dyn Backend, target: &dyn Backend) {
    let done = replicate(source, target, &Silent, &Cancel::new()).unwrap();
    assert_eq!((done.lost, done.conflicts), (vec![], vec![]));
}

impl Scene {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let mut kept = Vec::new();
        let own = noise(seed, 400_000);
        world.write("only in the first", &own);
        for night in 0..3 {
            kept.push((world.backup().snapshot.id, world.image()));
            world.mutate(seed + 1 + night);
            let _ = std::fs::remove_file(world.tree().join("only in the first"));
        }
        let back = kept[0].0;
        let replica: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        copy(&*world.objects, &*replica);
        let repository = world.open();
        forget(&repository, &[back]).unwrap();
        let pruned = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        assert!(pruned.carried.arenas_removed > 0, "{pruned:?}");
        // The owner has thought better of it, and knows of a disk that still has it.
        let other = world.open_over(replica.clone()).unwrap();
        forget(&other, &[back]).unwrap();
        remember(&other, &[back]).unwrap();
        copy(&*replica, &*world.objects);
        assert!(Collections::read(&repository).unwrap().took(back));
        Self { world, replica, back, kept }
    }

    /// Every snapshot is there, and holds what it held.
    #[track_caller]
    fn check(&self, backend: Arc<dyn Backend>, what: &str) {
        let repository = self.world.open_over(backend).unwrap();
        let mut ids = snapshot_ids(&repository);
        let mut expected: Vec<_> = self.kept.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected, "{what}");
        for (id, image) in &self.kept {
            self.world.assert_holds(&repository, *id, image, what);
        }
        let found = check_all(&repository);
        assert!(found.is_sound(), "{what}: {:?}", found.affected);
    }

    fn here(&self) -> Arc<dyn Backend> {
        self.world.objects.clone()
    }

    /// The arenas that the verdict took.
    fn dead(&self) -> Vec<ObjectName> {
        let collections = Collections::read(&self.world.open()).unwrap();
        let dead: Vec<String> = collections.dead().map(|arena| arena.to_string()).collect();
        let names = names_in(&self.world.objects.snapshot(), "arenas");
        names.into_iter().filter(|name| dead.iter().any(|id| name.file().starts_with(id))).collect()
    }
}

#[test]
fn a_mirror_leaves_it() {
    let scene = Scene::new(1200);
    scene.check(scene.here(), "here");
    for night in 0..2 {
        let repository = scene.world.open();
        let rehearsed = preview_mirror(&repository, &scene.replica).unwrap();
        copy(&*scene.world.objects, &*scene.replica);
        let plan = plan_mirror(&repository, &scene.replica).unwrap();
        assert_eq!((&rehearsed.remove, &plan.remove), (&vec![], &vec![]), "night {night}");
        mirror(&repository, &scene.replica, &plan, &Silent, &Cancel::new()).unwrap();
        scene.check(scene.replica.clone(), "in the replica");
        // Nor does a collection here take it.
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        scene.check(scene.here(), "here, after a prune");
    }
    // Once it is forgotten again, it goes from both.
    let repository = scene.world.open();
    forget(&repository, &[scene.back]).unwrap();
    copy(&*scene.world.objects, &*scene.replica);
    let plan = plan_mirror(&repository, &scene.replica).unwrap();
    let snapshot = snapshot_object(scene.back);
    assert!(plan.remove.iter().any(|info| info.name == snapshot), "{:?}", plan.remove);
}

#[test]
fn what_it_loses_is_found_and_comes_back() {
    let scene = Scene::new(1210);
    let whole = scene.world.objects.snapshot();
    let dead = scene.dead();
    assert!(dead.len() > 1, "{dead:?}");
    let lose = |names: &[ObjectName]| {
        let mut left: Objects = whole.clone();
        names.iter().for_each(|name| _ = left.remove(name).unwrap());
        let place: Arc<dyn Backend> = Arc::new(MemoryBackend::from_snapshot(left));
        place
    };
    let snapshot = snapshot_object(scene.back);
    let mut rows: Vec<Vec<ObjectName>> = dead.iter().map(|name| vec![name.clone()]).collect();
    rows.push(dead.clone());
    rows.push(vec![snapshot.clone()]);
    rows.push(dead.iter().chain([&snapshot]).cloned().collect());
    for lost in rows {
        let place = lose(&lost);
        let repository = scene.world.open_over(place.clone()).unwrap();
        let found = check_all(&repository);
        let is_named = found.affected.iter().any(|affected| affected.snapshot == scene.back)
            || found.lost_snapshots.iter().any(|lost| lost.id == scene.back);
        assert!(is_named, "{lost:?}");
        let mirrored = plan_mirror(&repository, &scene.replica)
            .and_then(|plan| mirror(&repository, &scene.replica, &plan, &Silent, &Cancel::new()));
        let is_refused = matches!(mirrored, Err(RepositoryError::NotMirrored { .. }));
        assert!(is_refused || mirrored.is_ok_and(|done| done.removed == 0), "{lost:?}");
        scene.check(scene.replica.clone(), "in the replica");
        repair_from(&scene.world, &place, std::slice::from_ref(&scene.replica), true).unwrap();
        scene.check(place, &format!("{lost:?} came back"));
    }
}

/// Removes these between any two calls of a prune, which comes to its end nevertheless; the others stay.
fn prune_while_they_go(
    world: &World,
    whole: &Objects,
    going: &[ObjectName],
    kept: &[&(SnapshotId, Image)],
) {
    for at in 0.. {
        let objects = Arc::new(MemoryBackend::from_snapshot(whole.clone()));
        let (calls, shelf, names) = (Arc::new(AtomicU64::new(0)), objects.clone(), going.to_vec());
        let counted = calls.clone();
        let acting = RecordingBackend::acting(objects.clone(), move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) == at {
                names.iter().for_each(|name| _ = shelf.remove(name));
            }
        });
        let repository = world.open_over(Arc::new(acting)).unwrap();
        let done = prune(&repository, &ALL, &Silent, &Cancel::new());
        done.unwrap_or_else(|error| panic!("call {at}: {error}"));
        if calls.load(Ordering::Relaxed) <= at {
            assert!(at > 50, "{at} calls");
            return;
        }
        let repository = world.open_over(objects).unwrap();
        for (id, image) in kept {
            world.assert_holds(&repository, *id, image, &format!("call {at}"));
        }
    }
}

/// A snapshot's object, and the wishes about it.
fn all_about(id: SnapshotId, objects: &Objects) -> Vec<ObjectName> {
    let names = objects.keys().filter(|name| name.as_str().contains(&id.to_string()));
    let names: Vec<ObjectName> = names.cloned().collect();
    assert!(names.contains(&snapshot_object(id)) && names.len() > 1, "{names:?}");
    names
}

/// The collector that decided, and that was overtaken, may carry out its verdict at last: what of it is
/// gone meanwhile, a prune beside it comes to its end.
#[test]
fn what_an_overtaken_collector_removes_stops_no_prune() {
    let scene = Scene::new(1240);
    let kept: Vec<_> = scene.kept.iter().filter(|(id, _)| *id != scene.back).collect();
    let mut whole = scene.world.objects.snapshot();
    let going = [all_about(scene.back, &whole), scene.dead()].concat();
    prune_while_they_go(&scene.world, &whole, &going, &kept);
    whole.remove(&snapshot_object(scene.back)).unwrap();
    prune_while_they_go(&scene.world, &whole, &scene.dead(), &kept);
}

/// A prune that has found a verdict, and reckons with it, comes to its end beside such a collector, too.
#[test]
fn what_an_overtaken_collector_removes_stops_no_prune_that_found_a_verdict() {
    let scene = Scene::new(1250);
    let world = &scene.world;
    let [_, forgotten, kept] = &scene.kept[..] else { unreachable!() };
    forget(&world.open(), &[forgotten.0]).unwrap();
    let before = world.objects.snapshot();
    let mut killed = (0..).map(|at| prune_killed_at(world, &before, at));
    let (objects, ..) = killed
        .find(|(_, repository, _)| {
            let open = Collections::read(repository).unwrap().open;
            open.is_some_and(|open| open.decided && !open.selection.slots.is_empty())
        })
        .unwrap();
    let whole = objects.snapshot();
    let going = [all_about(scene.back, &whole), scene.dead()].concat();
    prune_while_they_go(world, &whole, &going, &[kept]);
}

/// A verdict took an arena, and a backup into the replica, which still had it, brought it back: if the
/// repository loses it again, the replica's is what there is of it.
#[test]
fn a_mirror_leaves_what_a_backup_into_the_replica_needs_of_it() {
    let world = World::new(1230);
    world.write("only in the first", &noise(1230, 400_000));
    let first = world.backup().snapshot.id;
    let replica: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    copy(&*world.objects, &*replica);
    std::fs::remove_file(world.tree().join("only in the first")).unwrap();
    world.backup();
    forget(&world.open(), &[first]).unwrap();
    let pruned = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(pruned.carried.arenas_removed > 0, "{pruned:?}");
    world.write("only in the first", &noise(1230, 400_000));
    let other = world.open_over(replica.clone()).unwrap();
    let image = world.image();
    let again = run(&other, &options(&world.tree()), &Silent).unwrap().snapshot.id;
    copy(&*replica, &*world.objects);
    let check = |place: Arc<dyn Backend>, what: &str| {
        world.assert_holds(&world.open_over(place).unwrap(), again, &image, what);
    };
    check(world.objects.clone(), "it came back");
    let collections = Collections::read(&world.open()).unwrap();
    let dead: Vec<_> = collections.dead().collect();
    let mut left = world.objects.snapshot();
    left.retain(|name, _| !ArenaName::of(name).is_some_and(|arena| dead.contains(&arena.id)));
    let place: Arc<dyn Backend> = Arc::new(MemoryBackend::from_snapshot(left));
    let repository = world.open_over(place.clone()).unwrap();
    let plan = plan_mirror(&repository, &replica).unwrap();
    assert!(plan.remove.iter().any(|info| info.name.folder() == "arenas"), "{plan:?}");
    let error = mirror(&repository, &replica, &plan, &Silent, &Cancel::new()).unwrap_err();
    assert!(matches!(error, RepositoryError::NotMirrored { .. }), "{error}");
    check(replica.clone(), "in the replica");
    repair_from(&world, &place, std::slice::from_ref(&replica), true).unwrap();
    check(place, "the repository has it from there");
}

/// Of a snapshot whose object was removed, and that no wish gives up, everything else stays.
#[test]
fn without_its_object_what_it_needs_stays() {
    let scene = Scene::new(1220);
    scene.world.objects.remove(&snapshot_object(scene.back)).unwrap();
    let repository = scene.world.open();
    let before = scene.dead();
    let pruned = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(pruned.lost, [scene.back]);
    assert_eq!(scene.dead(), before);
    let mut plan = plan_repair(&*scene.world.objects, &Silent, &Cancel::new()).unwrap();
    plan_recovery(&repository, &mut plan, &Silent, &Cancel::new()).unwrap();
    repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
    scene.check(scene.here(), "committed again");
}

/// Forgotten again, it is gone, and the next prune frees its room although nothing else goes.
#[test]
fn it_is_forgotten_for_good() {
    let scene = Scene::new(1230);
    let repository = scene.world.open();
    forget(&repository, &[scene.back]).unwrap();
    assert_eq!(remember(&repository, &[scene.back]).unwrap(), [scene.back]);
    let pruned = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(pruned.carried.removed_bytes > 300_000, "{pruned:?}");
    assert_eq!(scene.dead(), []);
    let again = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(again.collection, None, "{again:?}");
}

/// What a copy that was used apart has decided is not decided here by a repair from it.
#[test]
fn a_repair_from_a_copy_used_apart_takes_over_nothing() {
    let scene = Scene::new(1240);
    let [first, second] = [scene.kept[1].0, scene.kept[2].0];
    let ours = scene.here();
    // One copy that has decided otherwise under the same number, and one that has decided more.
    let other = scene.world.open_over(scene.replica.clone()).unwrap();
    forget(&other, &[first]).unwrap();
    prune(&other, &ALL, &Silent, &Cancel::new()).unwrap();
    let more: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    copy(&*ours, &*more);
    let later = scene.world.open_over(more.clone()).unwrap();
    forget(&later, &[second]).unwrap();
    prune(&later, &ALL, &Silent, &Cancel::new()).unwrap();
    for replica in [&scene.replica, &more] {
        let place: Arc<dyn Backend> =
            Arc::new(MemoryBackend::from_snapshot(scene.world.objects.snapshot()));
        repair_from(&scene.world, &place, std::slice::from_ref(replica), true).unwrap();
        scene.check(place, "after the repair");
    }
    // Nor does what it decided take the place of a verdict that was lost here.
    let place: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    copy(&*scene.here(), &*place);
    let here = scene.world.open_over(place.clone()).unwrap();
    forget(&here, &[second]).unwrap();
    prune(&here, &ALL, &Silent, &Cancel::new()).unwrap();
    forget(&other, &[scene.back]).unwrap();
    prune(&other, &ALL, &Silent, &Cancel::new()).unwrap();
    let verdict = ObjectName::new("collections", "2.verdict");
    for object in [verdict.clone(), copy_of(&verdict)] {
        assert!(scene.replica.size(&object).is_ok());
        place.remove(&object).unwrap();
    }
    repair_from(&scene.world, &place, std::slice::from_ref(&scene.replica), true).unwrap();
    assert!(place.size(&verdict).is_err());
    assert!(place.size(&snapshot_object(scene.back)).is_ok());
}
