//! Reading with replicas: with any loss here, everything can be read.

use std::sync::Arc;

use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{Cancel, Silent};
use strongroom_repository::WithReplicas;
use strongroom_testkit::RecordingBackend;
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{CallKind, Calls, Change, FaultKind, FaultPlan, FaultyBackend};
use strongroom_upkeep::{forget, plan_repair, prune, repair, replicate};

use crate::damage::{check_readable, each_damage, scene};
use crate::world::{ALL, World, snapshot_ids};

fn replica_of(objects: &Objects) -> Arc<MemoryBackend> {
    let target = Arc::new(MemoryBackend::new());
    let source = MemoryBackend::from_snapshot(objects.clone());
    replicate(&source, &*target, &Silent, &Cancel::new()).unwrap();
    target
}

fn together(objects: &Objects, replicas: Vec<Arc<dyn Backend>>) -> Arc<WithReplicas> {
    Arc::new(WithReplicas::new(Arc::new(MemoryBackend::from_snapshot(objects.clone())), replicas))
}

#[test]
fn any_damage_of_any_object() {
    let scene = scene(840);
    let replica: Arc<dyn Backend> = replica_of(&scene.base);
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let repository = scene.world.open_over(together(objects, vec![replica.clone()]));
        let repository = repository.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(check_readable(&scene, &repository, &what), scene.kept.len(), "{what}");
    });
}

#[test]
fn all_is_lost_but_a_name() {
    let scene = scene(841);
    let replica: Arc<dyn Backend> = replica_of(&scene.base);
    let mut cases = vec![Objects::new()];
    for folder in ["arenas", "snapshots", "keys", ""] {
        let mut objects = scene.base.clone();
        objects.retain(|name, _| name.folder() != folder);
        cases.push(objects);
        let mut objects = scene.base.clone();
        for name in names_in(&scene.base, folder) {
            Change::Zeros.on_object(&mut objects, &name);
        }
        cases.push(objects);
    }
    for (place, objects) in cases.iter().enumerate() {
        let together = together(objects, vec![replica.clone()]);
        let repository = scene.world.open_over(together).unwrap();
        let whole = check_readable(&scene, &repository, &format!("case {place}"));
        assert_eq!(whole, scene.kept.len(), "case {place}");
        assert_eq!(snapshot_ids(&repository).len(), scene.kept.len());
    }
}

/// Each of two replicas has a half, one of them behind a place that fails now and then.
#[test]
fn replicas_that_are_damaged_themselves() {
    let scene = scene(842);
    let mut halves = [scene.base.clone(), scene.base.clone()];
    for (place, name) in names_in(&scene.base, "arenas").iter().enumerate() {
        Change::ALL[place % 11].on_object(&mut halves[place % 2], name);
    }
    let [one, two] = halves.map(|half| Arc::new(MemoryBackend::from_snapshot(half)));
    let silent = FaultPlan::lasting(Calls::all(), 0, FaultKind::Io);
    let silent: Arc<dyn Backend> = Arc::new(FaultyBackend::new(one.clone(), silent));
    let mut objects = scene.base.clone();
    objects.retain(|name, _| name.folder() != "arenas");
    let repository = scene.world.open_over(together(&objects, vec![silent, one, two])).unwrap();
    assert_eq!(check_readable(&scene, &repository, "halves"), scene.kept.len());
}

/// What a rescue or a rewriting has left of an arena is here, and is damaged or has fewer slots; the
/// replica has all of it, in a generation of before.
#[test]
fn kept_o13_an_older_generation_in_a_replica_is_used() {
    for case in ["rescued", "rewritten and damaged"] {
        let world = World::new(845);
        let old = world.backup().snapshot.id;
        world.mutate(846);
        let new = world.backup().snapshot.id;
        let image = world.image();
        let replica: Arc<dyn Backend> = replica_of(&world.objects.snapshot());
        let before = names_in(&world.objects.snapshot(), "arenas");
        if case == "rescued" {
            for name in &before {
                let mut object = world.objects.snapshot()[name].clone();
                let middle = object.len() / 4..object.len() / 4 * 3;
                object[middle].fill(0xa5);
                world.objects.replace(name, &object).unwrap();
            }
            let repository = world.open();
            let plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
            repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
        } else {
            forget(&world.open(), &[old]).unwrap();
            prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
            for name in names_in(&world.objects.snapshot(), "arenas") {
                let length = world.objects.snapshot()[&name].len();
                world.objects.replace(&name, &vec![0xa5; length]).unwrap();
            }
        }
        let after = names_in(&world.objects.snapshot(), "arenas");
        assert!(after.iter().any(|name| !before.contains(name)), "{case}: none is in a later one");
        let with = together(&world.objects.snapshot(), vec![replica]);
        let repository = world.open_over(with).unwrap();
        world.assert_holds(&repository, new, &image, case);
    }
}

#[test]
fn a_replica_is_not_read_for_what_is_here() {
    let world = World::new(843);
    let old = world.backup().snapshot.id;
    world.mutate(844);
    let new = world.backup().snapshot.id;
    let image = world.image();
    // It keeps the arenas as they were before a collection.
    let replica = replica_of(&world.objects.snapshot());
    forget(&world.open(), &[old]).unwrap();
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    let recording = Arc::new(RecordingBackend::new(replica));
    let with = together(&world.objects.snapshot(), vec![recording.clone()]);
    let repository = world.open_over(with.clone()).unwrap();
    recording.take();
    world.assert_holds(&repository, new, &image, "beside a replica");
    assert_eq!(snapshot_ids(&repository), [new]);
    let calls = recording.take();
    assert!(calls.iter().all(|call| call.kind != CallKind::Read), "{calls:?}");
    assert_eq!(with.helped(), 0);
}
