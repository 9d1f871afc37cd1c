//! Repair: within parity everything is as it was; beyond it the rest is kept, what is lost is
//! named, and the next backup heals it.

mod recovered;
mod spared;

use std::collections::BTreeSet;
use std::sync::Arc;

use strongroom_arena::envelope::format::HEADER_BYTES;
use strongroom_arena::{ArenaContent, ArenaName, envelope};
use strongroom_backend::{MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_repository::{Repository, RepositoryError, list_snapshots};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{
    CallKind, Calls, Change, FaultKind, FaultPlan, FaultyBackend, Random, noise,
};
use strongroom_upkeep::{RepairOutcome, forget, plan_repair, prune, repair, repair_objects};

use crate::damage::{Scene, Structure, check_readable, each_damage, is_within_parity, scene};
use crate::verify::{check_all, lost, named};
use crate::world::{ALL, World, options, run};

fn run_repair(repository: &Repository) -> Result<RepairOutcome, RepositoryError> {
    let plan = plan_repair(repository.backend(), &Silent, &Cancel::new())?;
    repair(repository, &plan, &Silent, &Cancel::new())
}

/// The objects of a repaired copy, and what the repair reported.
pub fn repaired(
    world: &World,
    objects: &Objects,
) -> (Arc<MemoryBackend>, Repository, RepairOutcome) {
    let backend = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
    let repository = world.open_over(backend.clone()).unwrap();
    let outcome = run_repair(&repository).unwrap();
    (backend, repository, outcome)
}

#[test]
fn what_is_sound_is_left_alone() {
    let scene = scene(170);
    let (backend, _, outcome) = repaired(&scene.world, &scene.base);
    assert_eq!((outcome.repaired, outcome.rescued, outcome.lost.len()), (0, 0, 0));
    assert!(backend.snapshot() == scene.base);
}

#[test]
fn within_parity_everything_is_as_it_was() {
    let scene = scene(171);
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let copied = matches!(structure, Structure::Config | Structure::KeySlot);
        if !(is_within_parity(change) || change == Change::Swapped || copied) {
            return;
        }
        let (backend, repository, outcome) = repaired(&scene.world, objects);
        assert_eq!(outcome.lost, [], "{what}");
        assert_eq!(outcome.affected, [], "{what}");
        let differing: Vec<ObjectName> = backend
            .snapshot()
            .into_iter()
            .filter(|(name, bytes)| scene.base.get(name) != Some(bytes))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(differing, [], "{what}");
        assert!(check_all(&repository).is_sound(), "{what}");
    });
}

#[test]
fn any_shards_as_many_as_there_is_parity() {
    let scene = scene(172);
    let mut random = Random::new(172);
    for round in 0..4 {
        let mut objects = scene.base.clone();
        let mut shards = 0;
        for bytes in objects.values_mut() {
            let header = envelope::peek(bytes).unwrap();
            let layout = header.layout();
            let mut chosen = BTreeSet::new();
            while chosen.len() < header.parity_shards as usize {
                chosen.insert(random.below(header.shards() as u64) as usize);
            }
            shards += chosen.len() as u64;
            for shard in chosen {
                let size = header.shard_bytes();
                let range = match shard.checked_sub(header.data_shards()) {
                    None => {
                        let start = HEADER_BYTES + shard * size;
                        start..(start + size).min(layout.first_table)
                    }
                    Some(parity) => {
                        layout.parity + parity * size..layout.parity + (parity + 1) * size
                    }
                };
                let noise = random.noise(range.len());
                let same = bytes[range.clone()] == noise[..];
                bytes[range].copy_from_slice(&noise);
                assert!(!same);
            }
        }
        // Without a key: the objects are enough.
        let backend = MemoryBackend::from_snapshot(objects.clone());
        let plan = plan_repair(&backend, &Silent, &Cancel::new()).unwrap();
        let outcome = repair_objects(&backend, &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.shards, shards, "round {round}");
        assert_eq!(outcome.repaired, scene.base.len() as u64);
        assert!(backend.snapshot() == scene.base);
        // Everything can be read even before the repair.
        let repository = scene.world.open_objects(&objects).unwrap();
        let whole = check_readable(&scene, &repository, "before the repair");
        assert_eq!(whole, scene.kept.len());
    }
}

#[test]
fn one_shard_too_many_is_named() {
    let world = World::new(173);
    let id = world.backup().snapshot.id;
    let base = world.objects.snapshot();
    for name in names_in(&base, "arenas") {
        let mut objects = base.clone();
        let bytes = objects.get_mut(&name).unwrap();
        let header = envelope::peek(bytes).unwrap();
        for shard in 0..=header.parity_shards as usize {
            // Not the first shards: those that hold the head with the arena's key stay whole.
            let at = HEADER_BYTES + (shard + 1) * header.shard_bytes();
            bytes[at] ^= 1;
        }
        let (_, repository, outcome) = repaired(&world, &objects);
        assert_eq!(named(&outcome.affected), lost(&repository, &[id]), "{name}");
        assert_eq!((outcome.repaired, outcome.rescued + outcome.lost.len() as u64), (0, 1));
        let after = check_all(&repository);
        assert_eq!(named(&after.affected), named(&outcome.affected), "{name}");
        if outcome.rescued == 1 {
            assert!(after.faults.is_empty(), "what was saved is a sound arena");
        }
        // The source still has it: the next backup heals every snapshot that shows it.
        let next = run(&repository, &options(&world.tree()), &Silent).unwrap();
        let image = world.image();
        world.assert_holds(&repository, next.snapshot.id, &image, &format!("healed {name}"));
        // A tree that was written before some directory above it changed is not written again.
        if name.file().as_bytes()[0] < b'8' {
            world.assert_holds(&repository, id, &image, &format!("the old one healed, {name}"));
        }
    }
}

/// Every damage: what is named is what is lost, and the next backup heals what the source has.
#[test]
fn beyond_parity_is_named_and_healed() {
    let mut scene = scene(174);
    // The current tree is a version too, so that it can heal.
    scene.kept.push((scene.world.backup().snapshot.id, scene.world.image()));
    scene.base = {
        let mut base = scene.world.objects.snapshot();
        base.extend(scene.base.into_iter().filter(|(name, _)| name.folder() == "sessions"));
        base
    };
    let ids: Vec<SnapshotId> = scene.kept.iter().map(|(id, _)| *id).collect();
    let (last, now) = scene.kept.last().unwrap().clone();
    let mut affected = 0;
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let (_, repository, outcome) = repaired(&scene.world, objects);
        assert_eq!(named(&outcome.affected), lost(&repository, &ids), "{what}");
        affected += outcome.affected.len();
        check_readable(&scene, &repository, &what);
        let next = run(&repository, &options(&scene.world.tree()), &Silent)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        scene.world.assert_holds(&repository, next.snapshot.id, &now, &what);
        let list = list_snapshots(&repository).unwrap();
        if list.snapshots.iter().any(|snapshot| snapshot.id == last)
            && structure == Structure::DataArena
        {
            scene.world.assert_holds(&repository, last, &now, &format!("healed: {what}"));
        }
    });
    assert!(affected > 20);
}

#[test]
fn a_repair_that_is_cut_short_is_taken_up_again() {
    let scene = scene(175);
    let mut objects = scene.base.clone();
    let names: Vec<ObjectName> = objects.keys().cloned().collect();
    for (place, name) in names.iter().enumerate().step_by(2) {
        let change = [Change::FlipBit(300), Change::LastByte, Change::Appended][place / 2 % 3];
        change.on_object(&mut objects, name);
    }
    taken_up_again_wherever_cut(&scene, &objects);
}

/// Three arenas go round, and two snapshots change places.
#[test]
fn putting_back_what_was_swapped_loses_nothing_when_cut_short() {
    let scene = scene(178);
    let mut objects = scene.base.clone();
    let arenas = names_in(&objects, "arenas");
    let snapshots = names_in(&objects, "snapshots");
    let pairs =
        [(&arenas[0], &arenas[1]), (&arenas[1], &arenas[2]), (&snapshots[0], &snapshots[1])];
    for (one, other) in pairs {
        let (first, second) = (objects[one].clone(), objects[other].clone());
        objects.insert(one.clone(), second);
        objects.insert(other.clone(), first);
    }
    taken_up_again_wherever_cut(&scene, &objects);
}

/// One read that lies, whichever it is, does not make a repair remove what can be read.
#[test]
fn a_read_that_lies_makes_no_repair_lose_anything() {
    let world = World::new(180);
    let id = world.backup().snapshot.id;
    let mut objects = world.objects.snapshot();
    let data = names_in(&objects, "arenas").into_iter().filter(is_of_data);
    let damaged = data.max_by_key(|name| objects[name].len()).unwrap();
    Change::Scratch(300, 3000).on_object(&mut objects, &damaged);
    let before = lost(&world.open_objects(&objects).unwrap(), &[id]);
    let mut losses = 0;
    for kind in [FaultKind::Zeros, FaultKind::Short, FaultKind::FlipBit] {
        for at in 0.. {
            let calls = Calls::of(&[CallKind::Read]).within("arenas");
            let backend = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
            let plan = FaultPlan::hiccup(calls, at, kind);
            let faulty = Arc::new(FaultyBackend::new(backend.clone(), plan));
            let repository = world.open_over(faulty.clone()).unwrap();
            losses += run_repair(&repository).map_or(0, |outcome| outcome.lost.len());
            let repository = world.open_over(backend).unwrap();
            assert_eq!(lost(&repository, &[id]), before, "{kind:?} at read {at}");
            if faulty.fired() == 0 {
                break;
            }
        }
    }
    assert!(losses > 0, "some reads differed");
}

fn taken_up_again_wherever_cut(scene: &Scene, objects: &Objects) {
    for plan in [FaultPlan::crash, FaultPlan::crash_after] {
        for at in 0.. {
            let backend = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
            let faulty = Arc::new(FaultyBackend::new(backend.clone(), plan(at)));
            let _ = scene
                .world
                .open_over(faulty.clone())
                .and_then(|repository| run_repair(&repository));
            let repository = scene.world.open_over(backend.clone()).unwrap();
            run_repair(&repository).unwrap();
            assert!(backend.snapshot() == scene.base, "cut short at call {at}");
            if faulty.fired() == 0 {
                break;
            }
        }
    }
}

/// Two writers at the same time store the same chunks; then the arenas of either one are lost.
#[test]
fn a_chunk_that_is_stored_twice_is_read_from_either_place() {
    let world = World::new(179);
    // Neither writer sees what the other has stored.
    let before = world.objects.snapshot();
    let first = world.backup();
    let alone = world.objects.snapshot();
    let other = Arc::new(MemoryBackend::from_snapshot(before));
    let repository = world.open_over(other.clone()).unwrap();
    let second = run(&repository, &options(&world.tree()), &Silent).unwrap();
    let twice: Objects = alone.into_iter().chain(other.snapshot()).collect();
    for lost in [world.objects.snapshot(), other.snapshot()] {
        for change in [Change::Removed, Change::Zeros] {
            let mut objects = twice.clone();
            // Trees name the places of what they hold, so no tree is stored twice.
            for name in names_in(&lost, "arenas").into_iter().filter(is_of_data) {
                change.on_object(&mut objects, &name);
            }
            let repository = world.open_objects(&objects).unwrap();
            let what = format!("{change:?}");
            for id in [first.snapshot.id, second.snapshot.id] {
                world.assert_holds(&repository, id, &world.image(), &what);
            }
            assert_eq!(named(&check_all(&repository).affected), BTreeSet::new(), "{what}");
        }
    }
}

/// The same, and the other writer's arenas are there in a later generation too, which has less.
#[test]
fn a_chunk_is_read_from_any_generation_of_another_arena() {
    let world = World::bare(178);
    for file in 0..4 {
        world.write(&format!("file{file}"), &noise(1780 + file, 20_000));
    }
    let (before, image) = (world.objects.snapshot(), world.image());
    let first = world.backup().snapshot.id;
    let mut objects = world.objects.snapshot();
    let of_first: Vec<_> = names_in(&objects, "arenas").into_iter().filter(is_of_data).collect();
    let other = Arc::new(MemoryBackend::from_snapshot(before));
    let repository = world.open_over(other.clone()).unwrap();
    let second = run(&repository, &options(&world.tree()), &Silent).unwrap().snapshot.id;
    objects.extend(other.snapshot());
    for file in [0, 2] {
        std::fs::remove_file(world.tree().join(format!("file{file}"))).unwrap();
    }
    run(&repository, &options(&world.tree()), &Silent).unwrap();
    forget(&repository, &[second]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let rewritten = other
        .snapshot()
        .into_iter()
        .filter(|(name, _)| ArenaName::of(name).is_some_and(|name| name.generation > 0));
    let rewritten: Objects = rewritten.collect();
    assert!(!rewritten.is_empty());
    objects.extend(rewritten);
    of_first.iter().for_each(|name| drop(objects.remove(name)));
    for id in [first, second] {
        world.assert_holds(&world.open_objects(&objects).unwrap(), id, &image, "of all of them");
    }
}

fn is_of_data(name: &ObjectName) -> bool {
    ArenaContent::of(ArenaName::of(name).unwrap().id) == ArenaContent::Data
}

/// One copy is beyond parity, the other within it: both become what they were.
#[test]
fn a_damaged_copy_is_good_enough() {
    let scene = scene(176);
    for folder in ["", "keys"] {
        let names = names_in(&scene.base, folder);
        for (bad, worse) in [(0, 1), (1, 0)] {
            for change in [Change::Removed, Change::Empty, Change::Half, Change::Zeros] {
                let mut objects = scene.base.clone();
                Change::FlipBit(400).on_object(&mut objects, &names[bad]);
                change.on_object(&mut objects, &names[worse]);
                let (backend, _, outcome) = repaired(&scene.world, &objects);
                let what = format!("{change:?} of {}", names[worse]);
                assert_eq!((outcome.repaired, outcome.lost.len()), (2, 0), "{what}");
                assert!(backend.snapshot() == scene.base, "{what}");
            }
        }
    }
}

/// If both copies are lost, they are not made from what is damaged.
#[test]
fn a_lost_copy_is_no_source() {
    let scene = scene(177);
    let names = names_in(&scene.base, "keys");
    let mut objects = scene.base.clone();
    objects.remove(&names[0]);
    Change::Empty.on_object(&mut objects, &names[1]);
    let backend = MemoryBackend::from_snapshot(objects.clone());
    let plan = plan_repair(&backend, &Silent, &Cancel::new()).unwrap();
    let outcome = repair_objects(&backend, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.repaired, 0);
    assert!(outcome.lost.contains(&names[1]));
    assert!(backend.snapshot() == objects);
}

/// Rubbish is taken away only if it is certain that nothing needs it.
#[test]
fn kept_o5_rubbish_stays_if_something_may_need_it() {
    type Spoil = fn(&mut Objects);
    let world = World::new(182);
    world.backup();
    let rubbish = ObjectName::parse("arenas/0123456789abcdef0123456789abcdef.0").unwrap();
    let cases: [(&str, Spoil, bool); 4] = [
        ("alone", |_| {}, true),
        (
            "beside an arena that is needed and damaged",
            |objects| {
                let arena = names_in(objects, "arenas").into_iter().rfind(is_of_data).unwrap();
                Change::Zeros.on_object(objects, &arena);
            },
            false,
        ),
        (
            "beside a snapshot that cannot be read",
            |objects| {
                let snapshot = names_in(objects, "snapshots").remove(0);
                Change::Zeros.on_object(objects, &snapshot);
            },
            false,
        ),
        (
            "while a backup that began has not ended",
            |objects| {
                let session = "sessions/0123456789abcdef0123456789abcdef";
                objects.insert(ObjectName::parse(session).unwrap(), b"torn".to_vec());
            },
            false,
        ),
    ];
    for (what, spoil, is_taken) in cases {
        let mut objects = world.objects.snapshot();
        objects.insert(rubbish.clone(), vec![7; 3000]);
        spoil(&mut objects);
        let before: BTreeSet<ObjectName> = objects.keys().cloned().collect();
        let (backend, repository, outcome) = repaired(&world, &objects);
        assert_eq!(outcome.taken_away, u64::from(is_taken), "{what}");
        assert_eq!(outcome.lost.contains(&rubbish), !is_taken, "{what}");
        let after = backend.snapshot();
        assert_eq!(!after.contains_key(&rubbish), is_taken, "{what}");
        let gone = before.into_iter().filter(|name| !after.contains_key(name));
        assert_eq!(gone.filter(|name| *name != rubbish).collect::<Vec<_>>(), [], "{what}");
        assert_eq!(check_all(&repository).is_sound(), is_taken, "{what}");
    }
}
