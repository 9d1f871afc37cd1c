//! A listing is no picture of one moment: what others do during it, or between it and what is read after it,
//! is taken for no loss, and undoes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent};
use strongroom_repository::objects::KEYS_FOLDER;
use strongroom_repository::{list_snapshots, snapshot_object};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{CallKind, Change, RecordingBackend};
use strongroom_upkeep::{
    ForgetOptions, NewAccess, Periods, Policy, PruneOptions, VerifyDepth, add_key,
    carry_out_ending, forget, judge, plan_ending, plan_repair, prune, remove_key, repair_objects,
    replicate, verify,
};

use crate::domains::put_only;
use crate::verify::check_all;
use crate::world::{LAPTOP, World, options, run};

/// The world's place, where the n-th listing of a folder does not have an object.
fn hiding(world: &World, folder: &'static str, place: u64, name: ObjectName) -> Arc<dyn Backend> {
    let objects = world.objects.clone();
    let bytes = objects.snapshot()[&name].clone();
    let (lists, is_hidden) = (AtomicU64::new(0), AtomicBool::new(false));
    Arc::new(RecordingBackend::acting(world.objects.clone(), move |call| {
        if is_hidden.swap(false, Ordering::Relaxed) {
            objects.create(&name, &bytes).unwrap();
        }
        let is_listing = call.kind == CallKind::List && call.name == folder;
        if is_listing && lists.fetch_add(1, Ordering::Relaxed) == place {
            objects.remove(&name).unwrap();
            is_hidden.store(true, Ordering::Relaxed);
        }
    }))
}

/// A snapshot that is committed, or a key that is added, while they are listed.
#[test]
fn what_one_listing_lacks_is_not_missing() {
    let world = World::new(4600);
    let made: Vec<_> = (0..3).map(|_| world.backup().snapshot.id).collect();
    let key = names_in(&world.objects.snapshot(), KEYS_FOLDER).remove(0);
    for (folder, name) in [("snapshots", snapshot_object(made[1])), ("keys", key)] {
        for place in 0..4 {
            let place_of = hiding(&world, folder, place, name.clone());
            let outcome = check_all(&world.open_over(place_of).unwrap());
            assert_eq!(outcome.missing_sequences, [], "{name}, {place}");
            assert_eq!(outcome.faults, [], "{name}, {place}");
        }
    }
}

/// The last snapshot of this machine is removed by a collection just when it is asked for.
#[test]
fn a_collection_during_the_search_for_the_last_snapshot_is_no_loss() {
    let world = World::new(4601).with_cache();
    world.backup();
    world.mutate(1);
    let newest = world.backup().snapshot.id;
    let (owner, is_done) = (world.open(), AtomicBool::new(false));
    let name = snapshot_object(newest);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_asked = call.kind == CallKind::Size && call.name == name.as_str();
        if is_asked && !is_done.swap(true, Ordering::Relaxed) {
            forget(&owner, &[newest]).unwrap();
            prune(&owner, &PruneOptions::default(), &Silent, &Cancel::new()).unwrap();
        }
    });
    let repository = world.open_over(Arc::new(acting)).unwrap();
    let outcome = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
    assert!(!world.objects.snapshot().contains_key(&snapshot_object(newest)), "it was asked for");
    assert_eq!(outcome.rolled_back, None);
}

/// Two backups of one machine: what the second commits while the first looks at what exists.
#[test]
fn a_backup_misses_nothing_that_another_commits_meanwhile() {
    for key in [crate::world::PASSPHRASE, LAPTOP] {
        let world = World::new(4602).with_cache();
        add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
        let open = |place| world.open_with(world.over(place), key).unwrap();
        run(&open(world.objects.clone()), &options(&world.tree()), &Silent).unwrap();
        world.mutate(1);
        let (other, tree) = (open(world.objects.clone()), world.tree());
        let stage = AtomicU64::new(0);
        let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
            let is_listing = call.kind == CallKind::List && call.name == "snapshots";
            if stage.load(Ordering::Relaxed) == 1 {
                stage.store(2, Ordering::Relaxed);
                run(&other, &options(&tree), &Silent).unwrap();
            } else if is_listing && stage.load(Ordering::Relaxed) == 0 {
                stage.store(1, Ordering::Relaxed);
            }
        });
        let outcome = run(&open(Arc::new(acting)), &options(&world.tree()), &Silent).unwrap();
        assert_eq!(outcome.rolled_back, None);
        // Nor does this machine forget what the other has made.
        let next = run(&open(world.objects.clone()), &options(&world.tree()), &Silent).unwrap();
        assert!(next.snapshot.parent.is_some());
        assert_eq!(next.rolled_back, None);
    }
}

/// A domain ends after the snapshots were listed, and before what was seen of them is read.
#[test]
fn an_end_that_is_said_meanwhile_is_not_lost() {
    for is_verify in [true, false] {
        let world = World::new(4603);
        let machine = put_only(&world, "laptop", LAPTOP);
        run(&machine, &options(&world.tree()), &Silent).unwrap();
        let (owner, is_done) = (world.open(), AtomicBool::new(false));
        let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
            let is_look = call.kind == CallKind::List && call.name == "arrivals";
            if is_look && !is_done.swap(true, Ordering::Relaxed) {
                let plan = plan_ending(&owner, "laptop", None, &[]).unwrap();
                carry_out_ending(&owner, &plan).unwrap();
            }
        });
        let repository = world.open_over(Arc::new(acting)).unwrap();
        match is_verify {
            true => assert_eq!(check_all(&repository).faults, []),
            false => {
                let list = list_snapshots(&repository).unwrap();
                let options = ForgetOptions {
                    policy: &Policy { last: 9, ..Policy::default() },
                    quarantine: 0,
                    periods: &|_| Periods { hour: 0, day: 0, week: 0, month: 0, year: 0 },
                    is_rehearsal: false,
                };
                let all = list.snapshots.iter().collect::<Vec<_>>();
                judge(&repository, &list, &all, &options).unwrap();
            }
        }
        assert_eq!(names_in(&world.objects.snapshot(), "ended").len(), 2, "it was said");
    }
}

/// A key is withdrawn while a repair writes one of its two objects again: before it, or right after it.
#[test]
fn a_repair_does_not_bring_a_withdrawn_key_back() {
    for damage in [Change::Removed, Change::FlipBit(500)] {
        for place in 0..2 {
            for kind in [CallKind::Replace, CallKind::Size] {
                let world = World::new(4604);
                let before = world.objects.snapshot();
                let slot = add_key(&world.open(), LAPTOP, "laptop", NewAccess::Full, None).unwrap();
                let mut objects = world.objects.snapshot();
                let mut names = names_in(&objects, KEYS_FOLDER);
                names.retain(|name| !before.contains_key(name));
                damage.on_object(&mut objects, &names[place]);
                let place_of = Arc::new(MemoryBackend::from_snapshot(objects));
                let plan = plan_repair(&*place_of, &Silent, &Cancel::new()).unwrap();
                assert_eq!(plan.steps.len(), 1, "{damage:?} {place}");
                let owner = world.open_over(place_of.clone()).unwrap();
                let (is_written, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
                let acting = RecordingBackend::acting(place_of.clone(), move |call| {
                    is_written.fetch_or(call.kind == CallKind::Replace, Ordering::Relaxed);
                    let is_due = call.kind == kind && is_written.load(Ordering::Relaxed);
                    if is_due && !is_done.swap(true, Ordering::Relaxed) {
                        remove_key(&owner, slot).unwrap();
                    }
                });
                repair_objects(&acting, &plan, &Silent, &Cancel::new()).unwrap();
                assert_eq!(
                    names_in(&place_of.snapshot(), KEYS_FOLDER).len(),
                    2,
                    "{damage:?} {kind:?}"
                );
            }
        }
    }
}

/// A place says once that the other object of a key is not there: the key is not withdrawn for that.
#[test]
fn one_wrong_answer_takes_no_key_away() {
    for wrong in [1, 2] {
        let world = World::new(4607);
        let mut objects = world.objects.snapshot();
        let names = names_in(&objects, KEYS_FOLDER);
        Change::FlipBit(500).on_object(&mut objects, &names[0]);
        let place = Arc::new(MemoryBackend::from_snapshot(objects));
        let plan = plan_repair(&*place, &Silent, &Cancel::new()).unwrap();
        let (hidden, bytes) = (names[1].clone(), place.snapshot()[&names[1]].clone());
        let (inner, sizes, is_hidden) = (place.clone(), AtomicU64::new(0), AtomicBool::new(false));
        let acting = RecordingBackend::acting(place.clone(), move |call| {
            if is_hidden.swap(false, Ordering::Relaxed) {
                inner.create(&hidden, &bytes).unwrap();
            }
            let is_asked = call.kind == CallKind::Size && call.name == hidden.as_str();
            if is_asked && sizes.fetch_add(1, Ordering::Relaxed) == wrong {
                inner.remove(&hidden).unwrap();
                is_hidden.store(true, Ordering::Relaxed);
            }
        });
        repair_objects(&acting, &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(names_in(&place.snapshot(), KEYS_FOLDER), names, "answer {wrong}");
    }
}

/// A key is withdrawn by one that is slow, and a repair writes its first object again in between.
#[test]
fn a_key_that_is_written_again_while_it_is_withdrawn_is_removed() {
    let world = World::new(4605);
    let slot = add_key(&world.open(), LAPTOP, "laptop", NewAccess::Full, None).unwrap();
    let (objects, before) = (world.objects.clone(), world.objects.snapshot());
    let copy = ObjectName::new(KEYS_FOLDER, format!("{slot}.copy"));
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        if call.kind == CallKind::Remove && call.name == copy.as_str() {
            let name = ObjectName::new(KEYS_FOLDER, slot);
            objects.create(&name, &before[&name]).unwrap();
        }
    });
    remove_key(&world.open_over(Arc::new(acting)).unwrap(), slot).unwrap();
    assert_eq!(names_in(&world.objects.snapshot(), KEYS_FOLDER).len(), 2);
}

/// An arena that three collections rewrite, each during another listing: none shows it, and the verdict of the
/// last of them is there before the one before last ends.
#[test]
fn an_arena_that_three_listings_lack_is_copied() {
    let world = World::new(4606);
    world.backup();
    let target = MemoryBackend::new();
    let objects = world.objects.clone();
    let arena = names_in(&objects.snapshot(), "arenas").remove(0);
    let bytes = objects.snapshot()[&arena].clone();
    let (lists, is_hidden) = (AtomicU64::new(0), AtomicBool::new(false));
    let hidden = arena.clone();
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let place = lists.load(Ordering::Relaxed);
        if is_hidden.swap(false, Ordering::Relaxed) {
            objects.create(&hidden, &bytes).unwrap();
            if place < 4 {
                let verdict = ObjectName::new("collections", format!("{place}.verdict"));
                objects.create(&verdict, b"a verdict").unwrap();
            }
        }
        if call.kind == CallKind::List && call.name == "arenas" {
            lists.fetch_add(1, Ordering::Relaxed);
            // The first listing is that of the plan.
            if (1..4).contains(&place) {
                objects.remove(&hidden).unwrap();
                is_hidden.store(true, Ordering::Relaxed);
            }
        }
    });
    replicate(&acting, &target, &Silent, &Cancel::new()).unwrap();
    assert!(target.snapshot().contains_key(&arena));
}
