//! Objects that begin as a true generation does, and hold nothing: everyone who may read the front of one
//! copy's generation, and create objects in the other, can plant one there. In favour of such a one nothing
//! is removed.

use strongroom_arena::envelope::{self, HEADROOM, Identity};
use strongroom_arena::format::FRAME_BYTES;
use strongroom_arena::{ArenaContent, CacheLimits, Rewriting, Source, rewrite};
use strongroom_repository::{ArenaSlots, Selection, SlotSets, create_plan, create_verdict};
use strongroom_testkit::damage::Objects;
use strongroom_testkit::{RefusingBackend, noise};

use super::*;

/// The object of an arena with the same header, head and summary, and other blocks.
pub fn with_other_blocks(repository: &Repository, name: ArenaName, object: &[u8]) -> Vec<u8> {
    let store = repository.arena_store(CacheLimits::default());
    let arena = store.open_arena_in(name, object).unwrap();
    let header = envelope::inspect(object).unwrap().header;
    let mut forged = vec![0; HEADROOM];
    forged.extend(envelope::salvage(object).unwrap().body);
    for place in 0..arena.summary.blocks.len() {
        let (offset, length) = arena.span(place..=place);
        let sealed = offset as usize + FRAME_BYTES..offset as usize + length;
        forged[sealed].iter_mut().for_each(|byte| *byte ^= 0x5c);
    }
    let identity = Identity {
        kind: header.kind,
        id: header.id,
        generation: header.generation,
        origin: header.origin,
    };
    let forged = envelope::seal(forged, identity, repository.redundancy());
    assert!(forged.len() == object.len() && forged != object);
    forged
}

/// A rewriting as a program makes it that packs what it seals in another way: the same slots, name and keys,
/// and other bytes. `base` has the generation before.
pub fn sealed_otherwise(
    repository: &Repository,
    base: &Objects,
    name: ArenaName,
    object: &[u8],
) -> Vec<u8> {
    let before = base.keys().filter_map(ArenaName::of).find(|before| before.id == name.id).unwrap();
    let store = repository.arena_store(CacheLimits::default());
    let made = store.open_arena_in(name, object).unwrap();
    let rewriting = Rewriting {
        generation: name.generation,
        keys: repository.write_keys(),
        redundancy: repository.redundancy(),
        padding: true,
    };
    let source = Source { name: before, object: &base[&before.object()] };
    let other = rewrite(&store, &[source], &|slot| !made.holds(slot), &rewriting).unwrap();
    assert!(other.name == name && other.object() != object);
    other.object().to_vec()
}

/// A repository of which the first snapshot was forgotten and collected, and a copy from before. The thief
/// plants in it, under the names of the generations that the collection has made, what begins as they do.
fn with_planted_fronts(seed: u64) -> (World, [Side; 2], Vec<ArenaName>) {
    let world = World::new(seed);
    let made = versions(&world, 4);
    let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
    let [one, other] = &sides;
    forget(&one.open(&world), &[made[0].0]).unwrap();
    one.prune(&world);
    let mut planted = Vec::new();
    for (object, bytes) in one.objects.snapshot() {
        let Some(name) = ArenaName::of(&object).filter(|name| name.generation > 0) else {
            continue;
        };
        let forged = with_other_blocks(&one.open(&world), name, &bytes);
        other.objects.create(&object, &forged).unwrap();
        planted.push(name);
    }
    assert!(planted.len() > 2, "{planted:?}");
    (world, sides, planted)
}

#[test]
fn a_mirror_removes_nothing_in_favour_of_what_was_planted() {
    for by_repair in [false, true] {
        mirror_beside_planted_fronts(by_repair);
    }
}

fn mirror_beside_planted_fronts(by_repair: bool) {
    let (world, [one, other], planted) = with_planted_fronts(5500);
    let source = one.open(&world);
    let place: Arc<dyn Backend> = other.objects.clone();
    replicate(source.backend(), &*place, &Silent, &Cancel::new()).unwrap();
    let plan = plan_mirror(&source, &place).unwrap();
    assert!(plan.in_favour.len() >= planted.len());
    let before = other.objects.snapshot();
    let error = mirror(&source, &place, &plan, &Silent, &Cancel::new()).unwrap_err();
    assert!(error.to_string().contains("it has another"), "{error}");
    let of_arenas = |name: &&ObjectName| name.folder() == "arenas";
    let after = other.objects.snapshot();
    assert!(before.keys().filter(of_arenas).eq(after.keys().filter(of_arenas)));
    other.assert_all_holds(&world, &other.made, "after the mirror");

    // What was planted is taken away, and the next is as it should be.
    if by_repair {
        let plan = plan_repair(&*other.objects, &Silent, &Cancel::new()).unwrap();
        repair(&other.open(&world), &plan, &Silent, &Cancel::new()).unwrap();
    } else {
        planted.iter().for_each(|name| other.objects.remove(&name.object()).unwrap());
    }
    let left = other.objects.snapshot();
    assert!(planted.iter().all(|name| !left.contains_key(&name.object())));
    replicate(source.backend(), &*place, &Silent, &Cancel::new()).unwrap();
    let plan = plan_mirror(&source, &place).unwrap();
    let outcome = mirror(&source, &place, &plan, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.removed >= planted.len() as u64);
    other.assert_all_holds(&world, &other.made[1..], "after the next mirror");
}

#[test]
fn a_prune_removes_nothing_in_favour_of_what_was_planted() {
    let (world, [_, other], planted) = with_planted_fronts(5510);
    // The same goes as in the other copy, so the planted generation has what is left.
    forget(&other.open(&world), &[other.made[0].0]).unwrap();
    other.prune(&world);
    other.assert_all_holds(&world, &other.made[1..], "after the prune");
    let left = other.objects.snapshot();
    let listed = ListedArenas::list(&*other.objects).unwrap();
    for name in &planted {
        assert!(listed.generations(name.id).last().is_some_and(|top| top.name > *name), "{name:?}");
        assert!(!left.contains_key(&name.object()), "{name:?}: it is covered");
    }
}

/// What a machine has sealed so that it does not open is put off, and keeps no collection open.
#[test]
fn what_does_not_open_keeps_no_collection_open() {
    let world = World::new(5520);
    let made = versions(&world, 4);
    let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
    let [one, other] = &sides;
    forget(&one.open(&world), &[made[0].0]).unwrap();
    let rewritten = one.prune(&world).carried.arenas_rewritten;
    let names = one.objects.snapshot().into_keys().filter_map(|name| ArenaName::of(&name));
    let mut of_data = names.filter(|name| ArenaContent::of(name.id) == ArenaContent::Data);
    let chosen = of_data.find(|name| name.generation > 0).unwrap();
    let first = ArenaName::first(chosen.id);
    let object = other.objects.snapshot()[&first.object()].clone();
    let forged = with_other_blocks(&other.open(&world), first, &object);
    other.objects.replace(&first.object(), &forged).unwrap();
    forget(&other.open(&world), &[made[0].0]).unwrap();
    let carried = other.prune(&world).carried;
    assert_eq!((carried.arenas_put_off, carried.arenas_rewritten), (1, rewritten - 1));
    assert!(Collections::read(&other.open(&world)).unwrap().open.is_none());
    assert!(other.objects.snapshot()[&first.object()] == forged, "it stays as it is");
}

/// What the medium refuses to give of an arena with two generations it may give tomorrow: no repair takes it
/// away.
#[test]
fn a_generation_that_cannot_be_read_today_is_not_counted_as_lost() {
    let world = World::new(5530);
    let made = versions(&world, 4);
    let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
    for (side, gone) in sides.iter().zip([0, 2]) {
        forget(&side.open(&world), &[made[gone].0]).unwrap();
        side.prune(&world);
    }
    let [one, other] = &sides;
    copy_missing(one, other);
    let listed = ListedArenas::list(&*other.objects).unwrap();
    let mut looked_at = 0;
    for newest in listed.newest() {
        for listed in listed.generations(newest.name.id).iter().rev().take(2) {
            let name = listed.name.object();
            let whole = other.objects.snapshot();
            let objects = Arc::new(MemoryBackend::from_snapshot(whole.clone()));
            let bytes = whole[&name].len() as u64;
            let medium = Arc::new(RefusingBackend::with_bad(objects.clone(), &name, 0..bytes));
            let repository = world.open_over(medium).unwrap();
            let plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
            repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
            assert_eq!(objects.snapshot().get(&name), whole.get(&name), "{name}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 5);
}

/// A chunk that was lost and stored again: what claims to be its old place counts for nothing. The only good
/// copy stays, though nothing names it there; and rubbish beside the arena stops no prune.
#[test]
fn a_front_is_no_place_of_a_chunk() {
    for way in ["front", "rubbish", "verdict"] {
        let world = World::bare(5540);
        world.write("file", &noise(5540, 60_000));
        let kept = (world.backup().snapshot.id, world.image());
        let whole = world.objects.snapshot();
        let names = whole.keys().filter_map(ArenaName::of);
        let arena =
            names.clone().find(|name| ArenaContent::of(name.id) == ArenaContent::Data).unwrap();
        let mut object = whole[&arena.object()].clone();
        let half = object.len() / 2;
        object[2_000..half].fill(0x5c);
        world.objects.replace(&arena.object(), &object).unwrap();
        let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
        let outcome = repair(&world.open(), &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!((outcome.rescued, outcome.affected.len()), (1, 1), "{outcome:?}");
        let healing = run(&world.open(), &options(&world.tree()), &Silent).unwrap().snapshot.id;
        world.assert_holds(&world.open(), kept.0, &kept.1, "healed");
        if way == "rubbish" {
            let above = ArenaName { generation: 1 << 30, ..arena };
            world.objects.create(&above.object(), &[0x5c; 16]).unwrap();
        } else {
            let forged = with_other_blocks(&world.open(), arena, &whole[&arena.object()]);
            world.objects.create(&arena.object(), &forged).unwrap();
            world.assert_holds(&world.open(), kept.0, &kept.1, "planted");
        }
        forget(&world.open(), &[healing]).unwrap();
        if way == "verdict" {
            // Of another copy, to which the healing backup never came.
            let now = world.objects.snapshot();
            let is_healing = |name: &ArenaName| {
                let is_new = names.clone().all(|old| old.id != name.id);
                is_new && ArenaContent::of(name.id) == ArenaContent::Data
            };
            let healing = now.keys().filter_map(ArenaName::of).filter(is_healing);
            let slots = healing.map(|name| (name.id, ArenaSlots::All)).collect();
            let verdict = Selection { snapshots: Vec::new(), slots: SlotSets(slots) };
            assert!(create_plan(&world.open(), 1, &verdict).unwrap());
            create_verdict(&world.open(), 1, &verdict).unwrap();
        }
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        let outcome = prune(&world.open(), &all, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.snapshots.len(), 1, "{way}");
        assert_eq!(outcome.carried.arenas_put_off > 0, way == "verdict", "{way}");
        world.assert_holds(&world.open(), kept.0, &kept.1, "pruned");
        if way != "rubbish" {
            let _ = world.objects.remove(&arena.object());
            world.assert_holds(&world.open(), kept.0, &kept.1, "without what was planted");
        }
    }
}

/// The same for the base of a delta: what claims to hold it may hold nothing, so the other copy of what the
/// delta is stays.
#[test]
fn a_front_is_no_place_of_a_base() {
    let world = World::bare(5550);
    let mut content = noise(5550, 60_000);
    world.write("file", &content);
    let first = world.backup().snapshot.id;
    let whole = world.objects.snapshot();
    let mut names = whole.keys().filter_map(ArenaName::of);
    let arena = names.find(|name| ArenaContent::of(name.id) == ArenaContent::Data).unwrap();
    content.iter_mut().step_by(3_000).for_each(|byte| *byte ^= 1);
    world.write("file", &content);
    let made = world.backup();
    assert!(made.written.deltas > 5, "{:?}", made.written);
    let kept = (made.snapshot.id, world.image());
    let mut object = whole[&arena.object()].clone();
    let half = object.len() / 2;
    object[2_000..half].fill(0x5c);
    world.objects.replace(&arena.object(), &object).unwrap();
    let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
    let outcome = repair(&world.open(), &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.rescued, 1, "{outcome:?}");
    let healing = run(&world.open(), &options(&world.tree()), &Silent).unwrap().snapshot.id;
    world.assert_holds(&world.open(), kept.0, &kept.1, "healed");
    let forged = with_other_blocks(&world.open(), arena, &whole[&arena.object()]);
    world.objects.create(&arena.object(), &forged).unwrap();
    world.assert_holds(&world.open(), kept.0, &kept.1, "planted");
    forget(&world.open(), &[first, healing]).unwrap();
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(&world.open(), &all, &Silent, &Cancel::new()).unwrap();
    world.assert_holds(&world.open(), kept.0, &kept.1, "pruned");
    let _ = world.objects.remove(&arena.object());
    world.assert_holds(&world.open(), kept.0, &kept.1, "without what was planted");
}

/// A copy of a generation that was cut short has its front, and nothing behind it: no snapshot is promised
/// anything by it, and no prune is stopped.
#[test]
fn a_generation_that_was_cut_short_stops_no_prune() {
    let world = World::bare(5560);
    world.write("one", &noise(5560, 30_000));
    world.write("two", &noise(5561, 8_000));
    let kept = (world.backup().snapshot.id, world.image());
    std::fs::remove_file(world.tree().join("one")).unwrap();
    let second = (world.backup().snapshot.id, world.image());
    let [one, other] = [(); 2].map(|()| Side::copy_of(&world, &[kept.clone(), second.clone()]));
    forget(&other.open(&world), &[kept.0]).unwrap();
    assert!(other.prune(&world).carried.arenas_rewritten > 0);
    world.write("one", &noise(5560, 30_000));
    let again = run(&other.open(&world), &options(&world.tree()), &Silent).unwrap().snapshot.id;
    let known = [kept, second, (again, world.image())];
    let mut cut = 0;
    for (name, bytes) in other.objects.snapshot() {
        let is_cut = ArenaName::of(&name).is_some_and(|name| {
            name.generation > 0 && ArenaContent::of(name.id) == ArenaContent::Data
        });
        let is_there = one.objects.snapshot().contains_key(&name);
        if is_there || !["arenas", "snapshots"].contains(&name.folder()) {
            continue;
        }
        cut += usize::from(is_cut);
        let length = if is_cut { bytes.len() * 6 / 10 } else { bytes.len() };
        one.objects.create(&name, &bytes[..length]).unwrap();
    }
    assert!(cut > 0, "a rewritten arena was cut short");
    one.assert_all_holds(&world, &known, "before");
    forget(&one.open(&world), &[again]).unwrap();
    for _ in 0..2 {
        one.prune(&world);
        one.assert_all_holds(&world, &known, "after a prune");
    }
    assert!(one.lists(&world, known[0].0) && !one.lists(&world, again));
}

/// Of three generations the greatest says that it holds everything, and does not open; each of the others lacks
/// a chunk. All are read, each from the generation that has it.
#[test]
fn a_chunk_is_read_from_any_generation_that_has_it() {
    let world = World::bare(5550);
    for file in 0..8 {
        world.write(&format!("file{file}"), &noise(5550 + file, 1000));
    }
    let (id, image) = (world.backup().snapshot.id, world.image());
    let whole = world.objects.snapshot();
    let mut names = whole.keys().filter_map(ArenaName::of);
    let arena = names.find(|name| ArenaContent::of(name.id) == ArenaContent::Data).unwrap();
    let object = &whole[&arena.object()];
    let owner = world.open();
    let store = owner.arena_store(CacheLimits::default());
    let opened = store.open_arena_in(arena, object).unwrap();
    let inner = opened.summary.blocks.iter().find(|block| block.head.chunk_count > 3);
    let first = inner.expect("a block has several chunks").head.first_slot;
    let made_without = |slot: u32, generation| {
        let rewriting = Rewriting {
            generation,
            keys: owner.write_keys(),
            redundancy: owner.redundancy(),
            padding: false,
        };
        let source = Source { name: arena, object };
        let goes = |other| other == slot;
        let made = rewrite(&store, &[source], &goes, &rewriting).unwrap();
        (made.name, made.object().to_vec())
    };
    let (top, last) = made_without(u32::MAX, 30);
    world.objects.create(&top.object(), &with_other_blocks(&owner, top, &last)).unwrap();
    for (generation, slot) in [(10, first + 1), (20, first + 2)] {
        let (name, bytes) = made_without(slot, generation);
        world.objects.create(&name.object(), &bytes).unwrap();
    }
    world.objects.remove(&arena.object()).unwrap();
    world.assert_holds(&world.open(), id, &image, "read");
}
