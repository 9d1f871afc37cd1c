//! What a repair leaves alone: everything that can be read today, or may be tomorrow.

use strongroom_backend::Backend;
use strongroom_repository::{
    ArenaSlots, InitOptions, Selection, SlotSets, Wishes, create_plan, snapshot_object,
};
use strongroom_testkit::{Gives, RefusingBackend, WithholdingBackend};
use strongroom_upkeep::{
    NewAccess, PruneOptions, VerifyDepth, add_key, may_recover, plan_recovery, remove_key,
    replicate, verify,
};

use super::*;
use crate::copies::fronts::with_other_blocks;
use crate::copies::versions;
use crate::damage::wipe_front;
use crate::repair_from::repair_from;
use crate::world::{LAPTOP, PASSPHRASE, init_options, snapshot_ids};

/// A world of one file of several blocks, and the arena of its data. The first half of the file is in no
/// snapshot any more.
fn with_dead_blocks(seed: u64) -> (World, SnapshotId, ArenaName) {
    let world = World::bare(seed);
    world.write("one", &noise(seed, 60_000));
    world.write("two", &noise(seed + 1, 60_000));
    let first = world.backup().snapshot.id;
    std::fs::remove_file(world.tree().join("one")).unwrap();
    let second = world.backup().snapshot.id;
    forget(&world.open(), &[first]).unwrap();
    let none = PruneOptions { unused_percent_max: 100, ..PruneOptions::default() };
    prune(&world.open(), &none, &Silent, &Cancel::new()).unwrap();
    let arenas = names_in(&world.objects.snapshot(), "arenas");
    let data = arenas.into_iter().filter(is_of_data);
    let arena = data.filter_map(|name| ArenaName::of(&name)).next().unwrap();
    (world, second, arena)
}

/// The places in an object at which something can be damaged beyond parity so that what is needed is whole.
fn damaged_where_nothing_is_needed(world: &World, id: SnapshotId, arena: ArenaName) -> Objects {
    let objects = world.objects.snapshot();
    let length = objects[&arena.object()].len();
    let whole = lost(&world.open(), &[id]);
    for begin in (2_000..length - 20_000).step_by(4_000) {
        let mut damaged = objects.clone();
        damaged.get_mut(&arena.object()).unwrap()[begin..begin + 14_000].fill(0x5c);
        if lost(&world.open_objects(&damaged).unwrap(), &[id]) == whole {
            return damaged;
        }
    }
    panic!("something is needed everywhere");
}

/// An arena beyond parity of which a snapshot reads what is left: if it cannot be rescued, for some reason,
/// it stays.
#[test]
fn what_is_left_of_an_arena_that_is_not_rescued_stays() {
    let (world, id, arena) = with_dead_blocks(700);
    let damaged = damaged_where_nothing_is_needed(&world, id, arena);
    let whole = lost(&world.open(), &[id]);
    // Rubbish under the last number is in no rescue's way.
    let mut objects = damaged.clone();
    let last = ArenaName { generation: u32::MAX, ..arena };
    objects.insert(last.object(), vec![0x5c; 16]);
    let (backend, repository, outcome) = repaired(&world, &objects);
    assert_eq!((outcome.rescued, outcome.affected.len()), (1, 0), "{outcome:?}");
    assert_eq!(lost(&repository, &[id]), whole);
    assert!(!backend.snapshot().contains_key(&last.object()), "it is taken away");

    // One read that differs, whichever it is, and it is not rescued in that run.
    let mut kept = 0;
    for at in 0.. {
        let backend = Arc::new(MemoryBackend::from_snapshot(damaged.clone()));
        let calls = Calls::of(&[CallKind::Read]).within("arenas");
        let plan = FaultPlan::hiccup(calls, at, FaultKind::FlipBit);
        let faulty = Arc::new(FaultyBackend::new(backend.clone(), plan));
        let repository = world.open_over(faulty.clone()).unwrap();
        let outcome = run_repair(&repository);
        kept += usize::from(outcome.is_ok_and(|outcome| !outcome.lost.is_empty()));
        let repository = world.open_over(backend).unwrap();
        assert_eq!(lost(&repository, &[id]), whole, "read {at} differs");
        if faulty.fired() == 0 {
            break;
        }
    }
    assert!(kept > 0, "in one run it is left");
}

/// A repair that commits a lost snapshot again, and is cut short at any call: the next one does, and it is
/// held.
#[test]
fn a_recovery_is_taken_up_again_wherever_cut() {
    let world = World::new(701);
    let made = versions(&world, 3);
    let removed = made[1].0;
    world.objects.remove(&snapshot_object(removed)).unwrap();
    let run = |repository: &Repository| -> Result<RepairOutcome, RepositoryError> {
        let mut plan = plan_repair(repository.backend(), &Silent, &Cancel::new())?;
        if may_recover(repository)? {
            plan_recovery(repository, &mut plan, &Silent, &Cancel::new())?;
        }
        repair(repository, &plan, &Silent, &Cancel::new())
    };
    let mut cut = 0;
    for plan in [FaultPlan::crash, FaultPlan::crash_after] {
        for at in 0.. {
            let backend = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
            let faulty = Arc::new(FaultyBackend::new(backend.clone(), plan(at)));
            let _ = world.open_over(faulty.clone()).and_then(|repository| run(&repository));
            let repository = world.open_over(backend.clone()).unwrap();
            cut += usize::from(!names_in(&backend.snapshot(), "sessions").is_empty());
            run(&repository).unwrap();
            let when = format!("cut short at {at}");
            assert!(snapshot_ids(&repository).contains(&removed), "{when}");
            assert!(Wishes::read(&repository).unwrap().hold(removed).is_some(), "{when}");
            if faulty.fired() == 0 {
                break;
            }
        }
    }
    assert!(cut > 0, "a session was left");
}

/// The only bytes of one object are in the place of another, and the replica's copy of that one is damaged.
#[test]
fn what_is_in_the_place_of_another_is_not_written_over() {
    let world = World::new(702);
    let made = versions(&world, 3);
    let whole = world.objects.snapshot();
    let names = names_in(&whole, "arenas");
    for (place, name) in names.iter().enumerate() {
        let other = &names[(place + 1) % names.len()];
        let mut replica = whole.clone();
        replica.get_mut(name).unwrap().fill(0);
        let replica: Arc<dyn Backend> = Arc::new(MemoryBackend::from_snapshot(replica));
        let mut objects = whole.clone();
        let object = objects.remove(name).unwrap();
        objects.insert(other.clone(), object);
        let backend = Arc::new(MemoryBackend::from_snapshot(objects));
        let here: Arc<dyn Backend> = backend.clone();
        let replica = [replica];
        repair_from(&world, &here, &replica, true).unwrap();
        assert!(backend.snapshot()[name] == whole[name], "{name} was in the place of {other}");
        repair_from(&world, &here, &replica, true).unwrap();
        for (id, image) in &made {
            world.assert_holds(&world.open_over(here.clone()).unwrap(), *id, image, name.as_str());
        }
    }
}

/// Rubbish under the name of a key slot that was withdrawn brings it back from no replica.
#[test]
fn rubbish_brings_no_withdrawn_key_back() {
    let world = World::new(703);
    world.backup();
    let repository = world.open();
    let cost = init_options().cost;
    let slot = add_key(&repository, LAPTOP, "second", NewAccess::Full, cost).unwrap();
    let copied = MemoryBackend::new();
    replicate(&*world.objects, &copied, &Silent, &Cancel::new()).unwrap();
    let before = names_in(&copied.snapshot(), "keys");
    remove_key(&repository, slot).unwrap();
    let after = names_in(&world.objects.snapshot(), "keys");
    let replica: [Arc<dyn Backend>; 1] = [Arc::new(copied)];
    for with_key in [true, false] {
        for rubbish in [&[0x5c; 16][..], &[]] {
            let mut objects = world.objects.snapshot();
            for name in before.iter().filter(|name| !after.contains(name)) {
                objects.insert(name.clone(), rubbish.to_vec());
            }
            let here: Arc<dyn Backend> = Arc::new(MemoryBackend::from_snapshot(objects));
            repair_from(&world, &here, &replica, with_key).unwrap();
            let opened = world.open_with(world.over(here), LAPTOP);
            assert!(opened.is_err(), "with a key: {with_key}");
        }
    }
}

/// One of two generations of an arena waits in an archive: everything else is verified and repaired.
#[test]
fn an_archived_generation_ends_neither_verify_nor_repair() {
    let (world, id, arena) = with_dead_blocks(704);
    let mut objects = world.objects.snapshot();
    let planted = ArenaName { generation: 1, ..arena };
    objects.insert(planted.object(), vec![0x5c; 16]);
    let snapshot = snapshot_object(id);
    Change::FlipBit(500).on_object(&mut objects, &snapshot);
    let archived = arena.object();
    let gives = move |name: &ObjectName| match *name == archived {
        true => Gives::Archived,
        false => Gives::All,
    };
    let backend = Arc::new(MemoryBackend::from_snapshot(objects));
    let place = Arc::new(WithholdingBackend::new(backend.clone(), gives));
    let repository = world.open_over(place).unwrap();
    let found = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
    assert!(found.faults.iter().any(|(name, _)| *name == snapshot), "{:?}", found.faults);
    let outcome = run_repair(&repository).unwrap();
    assert_eq!(outcome.repaired, 1, "{outcome:?}");
    assert!(backend.snapshot()[&arena.object()] == world.objects.snapshot()[&arena.object()]);
}

/// Rubbish beside the damaged generation of an arena is no other generation, whose domain would be asked.
#[test]
fn rubbish_keeps_no_damaged_generation_from_being_rescued() {
    let (world, id, _) = with_dead_blocks(705);
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(&world.open(), &all, &Silent, &Cancel::new()).unwrap();
    let whole = world.objects.snapshot();
    let names = names_in(&whole, "arenas").into_iter().filter(is_of_data);
    let mut later =
        names.filter_map(|name| ArenaName::of(&name)).filter(|name| name.generation > 0);
    let arena = later.next().expect("one was rewritten");
    let mut objects = whole.clone();
    let object = objects.get_mut(&arena.object()).unwrap();
    assert!(wipe_front(object));
    let above = ArenaName { generation: arena.generation + 1, ..arena };
    let first_tried = arena.rewritten(&objects[&arena.object()]).unwrap();
    for rubbish in [above, first_tried] {
        objects.insert(rubbish.object(), vec![0x5c; 16]);
    }
    assert_eq!(lost(&world.open_objects(&objects).unwrap(), &[id]).len(), 1);
    let (backend, repository, outcome) = repaired(&world, &objects);
    assert_eq!((outcome.rescued, outcome.affected.len()), (1, 0), "{outcome:?}");
    assert_eq!(lost(&repository, &[id]).len(), 0);
    for rubbish in [above, first_tried] {
        assert!(!backend.snapshot().contains_key(&rubbish.object()), "the rubbish is gone");
    }
}

/// Rubbish as a further generation of an arena, and a copy of another arena's object, are taken away; also
/// while a collection names the arena.
#[test]
fn rubbish_beside_an_arena_is_taken_away_while_a_collection_names_it() {
    for is_open in [false, true] {
        let (world, id, arena) = with_dead_blocks(707);
        let names = names_in(&world.objects.snapshot(), "arenas");
        let other = names.iter().find(|name| **name != arena.object()).unwrap();
        let copied = world.objects.snapshot()[other].clone();
        let planted = [(7, copied), (9, vec![0x5c; 16])];
        for (generation, bytes) in &planted {
            let name = ArenaName { generation: *generation, ..arena };
            world.objects.create(&name.object(), bytes).unwrap();
        }
        if is_open {
            let slots = [(arena.id, ArenaSlots::Runs(vec![(0, 1)]))].into();
            let plan = Selection { snapshots: Vec::new(), slots: SlotSets(slots) };
            assert!(create_plan(&world.open(), 1, &plan).unwrap());
        }
        let whole = world.objects.snapshot();
        let (backend, repository, outcome) = repaired(&world, &whole);
        assert_eq!((outcome.taken_away, outcome.lost.len()), (2, 0), "{is_open}: {outcome:?}");
        assert_eq!(lost(&repository, &[id]).len(), 0);
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        prune(&repository, &all, &Silent, &Cancel::new()).unwrap();
        assert_eq!(lost(&repository, &[id]).len(), 0);
        drop(backend);
    }
}

/// What the medium refuses is replaced by a copy that proves to be it, and by no other.
#[test]
fn what_the_medium_refuses_is_replaced_by_nothing_forged() {
    let (world, id, arena) = with_dead_blocks(706);
    let whole = world.objects.snapshot();
    let forged = with_other_blocks(&world.open(), arena, &whole[&arena.object()]);
    for (is_forged, copy) in [(true, forged), (false, whole[&arena.object()].clone())] {
        let mut replica = whole.clone();
        replica.insert(arena.object(), copy);
        let replica: [Arc<dyn Backend>; 1] = [Arc::new(MemoryBackend::from_snapshot(replica))];
        let backend = Arc::new(MemoryBackend::from_snapshot(whole.clone()));
        let bytes = whole[&arena.object()].len() as u64;
        let medium =
            Arc::new(RefusingBackend::with_bad(backend.clone(), &arena.object(), 0..bytes));
        let here: Arc<dyn Backend> = medium.clone();
        repair_from(&world, &here, &replica, true).unwrap();
        assert_eq!(medium.still_bad().is_empty(), !is_forged, "written again only if it is right");
        let repository = world.open_over(backend).unwrap();
        assert_eq!(lost(&repository, &[id]).len(), 0, "forged: {is_forged}");
    }
}

/// At a place of another machine a directory has taken the place of an object that has a copy: it is named, and
/// the repair goes on.
#[test]
fn a_directory_in_the_place_of_an_object_ends_no_repair() {
    let world = World::new(707);
    world.backup();
    let names = names_in(&world.objects.snapshot(), "keys");
    let key = names.iter().find(|name| !name.as_str().ends_with(".copy")).unwrap().clone();
    let asked = key.clone();
    let gives = move |name: &ObjectName| match *name == asked {
        true => Gives::Directory,
        false => Gives::All,
    };
    let backend = Arc::new(WithholdingBackend::new(world.objects.clone(), gives));
    let repository = world.open_over(backend).unwrap();
    let outcome = run_repair(&repository).unwrap();
    assert_eq!(outcome.lost, [key], "{outcome:?}");
}

/// A medium with a bad region is not asked for each sector of it: what was passed over is not removed, as it can
/// be read in parts.
#[test]
fn what_was_not_asked_for_is_not_removed() {
    let world = World::empty(708);
    let options = InitOptions { arena_bytes: 8 << 20, ..init_options() };
    Repository::init(world.surroundings(), PASSPHRASE, &options).unwrap();
    world.write("file", &noise(708, 7 << 20));
    let id = world.backup().snapshot.id;
    let arenas = names_in(&world.objects.snapshot(), "arenas");
    let is_of_data = |name: &&ObjectName| world.objects.size(name).unwrap() > 4 << 20;
    let name = arenas.iter().find(is_of_data).unwrap();
    let bad = 1 << 20..5 << 20;
    let medium = Arc::new(RefusingBackend::with_bad(world.objects.clone(), name, bad.clone()));
    let repository = world.open_over(medium.clone()).unwrap();
    let before = lost(&repository, &[id]);
    let outcome = run_repair(&repository).unwrap();
    assert_eq!((outcome.rescued, &outcome.lost[..]), (1, &[name.clone()][..]), "{outcome:?}");
    assert!(world.objects.size(name).is_ok(), "it stays");
    let after = world.objects.snapshot();
    let again = run_repair(&repository).unwrap();
    assert_eq!((again.rescued, &again.lost[..]), (0, &[name.clone()][..]), "{again:?}");
    assert!(world.objects.snapshot() == after, "there is no further generation of the same");
    assert!(lost(&repository, &[id]).len() <= before.len(), "no more is lost than before");
    // Nothing of it was worn out but the cable.
    assert_eq!(lost(&world.open(), &[id]).len(), 0);
}
