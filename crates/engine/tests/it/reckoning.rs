//! The second reckoning: what a collection is about to remove is checked once more, by code that
//! shares nothing with the first.

mod damaged;
mod later;
mod same;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_arena::{ArenaContent, ArenaName, CacheLimits, ListedArenas};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Silent, SnapshotId};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{Recipe, Snapshot};
use strongroom_repository::{
    ArenaSlots, ChunkReader, Collections, Forgotten, Found, Repository, RepositoryError, Selection,
    SlotSets, SnapshotEvent, SnapshotWalk, create_plan, create_verdict, list_snapshots,
    snapshot_object,
};
use strongroom_testkit::damage::Objects;
use strongroom_testkit::tree::{TreeOptions, grow, mutate};
use strongroom_testkit::{CallKind, Image, Listener, RecordingBackend, noise};
use strongroom_upkeep::{
    MirrorPlan, VerifyDepth, defragment, forget, mirror, plan_mirror, prune, remember, replicate,
    verify,
};

use crate::world::{ALL, World, snapshot_ids};

/// A few arenas of it.
const SMALL: TreeOptions =
    TreeOptions { entries: 12, chunk_bytes: 6 << 10, file_bytes_max: 60 << 10 };

/// Enough names that the recipe of the directory's tree has a node.
const NAMES: usize = 6000;

/// A directory of many names, and one beside it.
fn large(seed: u64) -> World {
    let world = World::bare(seed);
    for number in 0..NAMES {
        let name = format!("many/a name that takes some room in a tree {number:06}");
        world.write(&name, &(number as u64).to_le_bytes());
    }
    world.write("few/one", b"one file in a small directory");
    world
}

#[track_caller]
fn assert_whole(world: &World, id: SnapshotId, image: &Image, what: &str) {
    let repository = world.open();
    let outcome = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.is_sound(), "{what}: {:?}, {:?}", outcome.faults, outcome.affected);
    world.assert_holds(&repository, id, image, what);
}

/// The shortest reproduction: one backup, nothing forgotten.
#[test]
fn kept_1_1_a_directory_of_many_names_outlives_every_prune() {
    let world = large(1);
    let first = world.backup().snapshot;
    assert!(first.root.refs.len() == 1, "the tree of `/` is small");
    let image = world.image();
    let none = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!((none.collection, none.carried.arenas_removed), (None, 0), "all of it is needed");
    assert_whole(&world, first.id, &image, "nothing was forgotten");

    std::fs::remove_file(world.tree().join("few/one")).unwrap();
    let second = world.backup().snapshot.id;
    let image = world.image();
    forget(&world.open(), &[first.id]).unwrap();
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_whole(&world, second, &image, "the first was forgotten");

    let gathered = defragment(&world.open(), second, u64::MAX, &Silent, &Cancel::new()).unwrap();
    let newest = gathered.and_then(|gathered| gathered.to).unwrap_or(second);
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_whole(&world, newest, &image, "brought together");
}

/// A large directory is no reason to overlook that a snapshot was removed which was never forgotten.
#[test]
fn kept_1_1_a_snapshot_with_a_large_directory_that_was_removed_keeps_what_it_needs() {
    let world = large(2).with_cache();
    world.write("few/other", b"another");
    let first = world.backup().snapshot.id;
    world.objects.remove(&snapshot_object(first)).unwrap();
    let before = arenas(&world.objects.snapshot());
    let outcome = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.lost, [first]);
    assert_eq!(before, arenas(&world.objects.snapshot()));
    let outcome = verify(&world.open(), VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.lost_snapshots.len(), 1);
    let [lost] = &outcome.lost_snapshots[..] else { unreachable!() };
    assert_eq!((lost.id, lost.was_committed), (first, true));
}

/// All slots of a repository, and those of them that its snapshots need, found by the plainest way.
struct Slots {
    all: BTreeSet<Location>,
    needed: BTreeSet<Location>,
    /// How many of those only deltas need.
    only_bases: usize,
}

impl Slots {
    fn of(repository: &Repository) -> Self {
        let reader = ChunkReader::of_domain(repository, "", CacheLimits::default()).unwrap();
        let (mut all, mut needed) = (BTreeSet::new(), BTreeSet::new());
        let mut bases: BTreeMap<Location, Vec<Location>> = BTreeMap::new();
        for newest in ListedArenas::list(repository.backend()).unwrap().newest() {
            let arena = reader.store().arena(newest.name.id).unwrap();
            for (slot, entry) in arena.slots() {
                let place = Location { arena: arena.id, slot };
                if entry.fingerprint != Fingerprint::ZERO {
                    all.insert(place);
                    bases.insert(place, entry.bases.to_vec());
                }
            }
        }
        let mut need = |recipe: &Recipe| {
            for_each_chunk::<_, RepositoryError>(recipe, &reader, &mut |chunk, _| {
                needed.insert(chunk.location);
                Ok(Visit::Into)
            })
            .unwrap();
        };
        for snapshot in &list_snapshots(repository).unwrap().snapshots {
            let mut walk = SnapshotWalk::new(&Found::root(snapshot), &reader, &Cancel::new());
            while let Some(event) = walk.next().unwrap() {
                match event {
                    SnapshotEvent::Enter(directory) => need(directory.tree),
                    SnapshotEvent::Leaf { entry, .. } => {
                        entry.content().into_iter().for_each(&mut need)
                    }
                    _ => {}
                }
            }
        }
        let of_deltas = needed.iter().flat_map(|place| &bases[place]).copied();
        let of_deltas: Vec<Location> = of_deltas.collect();
        let of_references = needed.len();
        needed.extend(of_deltas);
        let only_bases = needed.len() - of_references;
        Self { all, needed, only_bases }
    }

    fn in_arena(&self, arena: ArenaId) -> impl Iterator<Item = Location> {
        self.all.range(Location { arena, slot: 0 }..=Location { arena, slot: u32::MAX }).copied()
    }
}

/// A place with a verdict of another program which removes this.
fn decide(world: &World, objects: &Objects, slots: SlotSets) -> Arc<MemoryBackend> {
    let backend = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
    let repository = world.open_over(backend.clone()).unwrap();
    let forgotten = list_snapshots(&repository).unwrap().forgotten.into_iter();
    let snapshots =
        forgotten.map(|Snapshot { id, domain, sequence, .. }| Forgotten { id, domain, sequence });
    let verdict = Selection { snapshots: snapshots.collect(), slots };
    assert!(create_plan(&repository, 1, &verdict).unwrap());
    create_verdict(&repository, 1, &verdict).unwrap();
    backend
}

/// Arenas that a prune puts off which finds such a verdict, and what it leaves.
fn carry_out(
    world: &World,
    objects: &Objects,
    slots: SlotSets,
) -> (Result<u64, RepositoryError>, Objects) {
    let backend = decide(world, objects, slots);
    let outcome = prune(&world.open_over(backend.clone()).unwrap(), &ALL, &Silent, &Cancel::new());
    let outcome = outcome.map(|outcome| outcome.carried.arenas_put_off);
    (outcome, backend.snapshot())
}

/// The arenas that exist.
fn arenas(objects: &Objects) -> BTreeSet<String> {
    let names = objects.keys().filter(|name| name.folder() == "arenas");
    names.map(|name| name.to_string()).collect()
}

/// Two snapshots, the first of which is forgotten.
fn one_forgotten(seed: u64) -> (World, [(SnapshotId, Image); 2]) {
    let world = World::bare(seed);
    grow(&world.tree(), seed, SMALL);
    let first = (world.backup().snapshot.id, world.image());
    mutate(&world.tree(), seed, SMALL);
    let second = (world.backup().snapshot.id, world.image());
    forget(&world.open(), &[first.0]).unwrap();
    (world, [first, second])
}

/// Stores a file, and returns the snapshot, and the new arena of data.
fn store(world: &World, content: &[u8]) -> (SnapshotId, ArenaName) {
    world.write("file", content);
    let before = arenas(&world.objects.snapshot());
    let id = world.backup().snapshot.id;
    let new = world.objects.snapshot().into_keys().filter_map(|name| ArenaName::of(&name));
    let mut data = new.filter(|name| ArenaContent::of(name.id) == ArenaContent::Data);
    (id, data.find(|name| !before.contains(name.object().as_str())).unwrap())
}

/// A verdict of another program that removes any one slot, or any arena as a whole: if a snapshot
/// needs it, nothing is removed that is needed; if none does, it goes.
#[test]
fn no_slot_that_a_snapshot_needs_is_removed() {
    let world = World::bare(7);
    grow(&world.tree(), 7, SMALL);
    let mut snapshots = Vec::new();
    for version in 0..4 {
        snapshots.push(world.backup().snapshot.id);
        mutate(&world.tree(), version, SMALL);
    }
    // What the first one has is the base of what the last one has, of which nothing else is kept.
    forget(&world.open(), &snapshots[..3]).unwrap();
    check_each_slot(&world);
    let only_bases = Slots::of(&world.open()).only_bases;
    assert!(only_bases > 2, "{only_bases}");
    // The first reckoning spares them, too.
    let pruned = world.open_objects(&world.objects.snapshot()).unwrap();
    prune(&pruned, &ALL, &Silent, &Cancel::new()).unwrap();
    let (before, after) = (Slots::of(&world.open()), Slots::of(&pruned));
    assert!(before.needed == after.needed && after.needed.is_subset(&after.all));
    remember(&world.open(), &snapshots[..1]).unwrap();
    check_each_slot(&world);
}

fn check_each_slot(world: &World) {
    let objects = world.objects.snapshot();
    let slots = Slots::of(&world.open());
    let (mut kept, mut gone) = (0, 0);
    let ids: BTreeSet<ArenaId> = slots.all.iter().map(|place| place.arena).collect();
    let single = slots.all.iter().map(|place| {
        let set = BTreeMap::from([(place.arena, ArenaSlots::of([place.slot]))]);
        (vec![*place], SlotSets(set))
    });
    let whole = ids.iter().map(|id| {
        (slots.in_arena(*id).collect(), SlotSets(BTreeMap::from([(*id, ArenaSlots::All)])))
    });
    for (places, sets) in single.chain(whole) {
        let needed = places.iter().filter(|place| slots.needed.contains(place)).count();
        match carry_out(world, &objects, sets) {
            (Ok(put_off), after) if put_off > 0 => {
                assert!(needed > 0, "{places:?} is not needed");
                let after = Slots::of(&world.open_objects(&after).unwrap());
                let lost: Vec<_> = slots.needed.difference(&after.all).collect();
                assert!(lost.is_empty(), "{places:?}: {lost:?}");
                kept += 1;
            }
            (Ok(_), after) => {
                assert_eq!(needed, 0, "{places:?} is needed");
                assert_ne!(arenas(&objects), arenas(&after), "{places:?} went");
                gone += 1;
            }
            (Err(error), _) => panic!("{places:?}: {error}"),
        }
    }
    assert!(kept > 30 && gone > 10, "{kept} were kept, {gone} went");
}

/// Found by the simulation, seed 1796018413523 at 0f83933e: an arena was put off, so it counts as removed, and what
/// needed it was forgotten. Two prunes had one plan; one could not read everything and kept all, and the other
/// swept that arena by its own verdict, which was not the first.
#[test]
fn what_the_verdict_of_another_prune_keeps_is_not_swept() {
    let (world, [_, (second, image)]) = one_forgotten(15);
    let needed = *Slots::of(&world.open()).needed.first().unwrap();
    let set = BTreeMap::from([(needed.arena, ArenaSlots::All)]);
    let wrong = Selection { snapshots: Vec::new(), slots: SlotSets(set) };
    assert!(create_plan(&world.open(), 1, &wrong).unwrap());
    create_verdict(&world.open(), 1, &wrong).unwrap();
    let outcome = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.carried.arenas_put_off, 1);
    let next = Collections::read(&world.open()).unwrap().next;
    forget(&world.open(), &[second]).unwrap();
    let (other, is_there) = (world.open(), AtomicBool::new(false));
    let verdict = format!("collections/{next}.verdict");
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_own = call.kind == CallKind::Create && call.name == verdict;
        if is_own && !is_there.swap(true, Ordering::Relaxed) {
            create_verdict(&other, next, &Selection::default()).unwrap();
            // Its owner changes their mind once more.
            remember(&other, &[second]).unwrap();
        }
    });
    let repository = world.open_over(Arc::new(acting)).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    world.assert_holds(&world.open(), second, &image, "after the other's verdict");
}

/// Of a verdict that is put off, arenas count that have something of what it removes.
#[test]
fn what_a_verdict_finds_gone_is_not_put_off() {
    let (world, [_, (second, image)]) = one_forgotten(17);
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    let reader = ChunkReader::of_domain(&world.open(), "", CacheLimits::default()).unwrap();
    let listed = ListedArenas::list(world.open().backend()).unwrap();
    let rewritten = listed.newest().find(|newest| newest.name.generation > 0).unwrap().name;
    let arena = reader.store().arena(rewritten.id).unwrap();
    let empty = arena.slots().filter(|(_, entry)| entry.fingerprint == Fingerprint::ZERO);
    let empty: Vec<u32> = empty.map(|(slot, _)| slot).collect();
    assert!(!empty.is_empty());
    let slots = ArenaSlots::of(empty);
    let needed = Slots::of(&world.open()).needed.into_iter();
    let needed = needed.map(|place| place.arena).find(|arena| *arena != rewritten.id).unwrap();
    let mut objects = world.objects.snapshot();
    objects.retain(|name, _| name.folder() != "collections");
    let gone = (ArenaId([0x90; 16]), ArenaSlots::All);
    let sets = [gone, (rewritten.id, slots), (needed, ArenaSlots::All)];
    let (put_off, after) = carry_out(&world, &objects, SlotSets(sets.into()));
    assert_eq!(put_off.unwrap(), 1);
    world.assert_holds(&world.open_objects(&after).unwrap(), second, &image, "put off");
}

/// A verdict that comes between the plan of a prune and its own.
#[test]
fn a_verdict_that_another_program_was_faster_with_is_reckoned() {
    let (world, [_, (second, image)]) = one_forgotten(14);
    let slots = Slots::of(&world.open());
    let needed = *slots.needed.first().unwrap();
    let set = BTreeMap::from([(needed.arena, ArenaSlots::of([needed.slot]))]);
    let verdict = Selection { snapshots: Vec::new(), slots: SlotSets(set) };
    let (other, is_there) = (world.open(), AtomicBool::new(false));
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_own =
            call.kind == CallKind::Create && call.name.starts_with("collections/1.verdict");
        if is_own && !is_there.swap(true, Ordering::Relaxed) {
            create_verdict(&other, 1, &verdict).unwrap();
        }
    });
    let repository = world.open_over(Arc::new(acting)).unwrap();
    let outcome = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.carried.arenas_put_off, 1);
    assert_whole(&world, second, &image, "after the verdict of another");
    assert!(Slots::of(&world.open()).all.contains(&needed));
}

/// A chunk that was lost and stored again is needed where it is now, and by fingerprint alone.
#[test]
fn the_last_copy_of_a_chunk_that_moved_is_not_removed() {
    let world = World::new(8);
    let first = world.backup().snapshot.id;
    let image = world.image();
    let objects = world.objects.snapshot();
    let names = objects.keys().filter_map(ArenaName::of);
    for lost in names.filter(|name| ArenaContent::of(name.id) == ArenaContent::Data) {
        world.objects.remove(&lost.object()).unwrap();
    }
    let second = world.backup().snapshot.id;
    world.assert_holds(&world.open(), first, &image, "its chunks were stored again");
    forget(&world.open(), &[second]).unwrap();
    let objects = world.objects.snapshot();
    let again: Vec<ArenaId> =
        objects.keys().filter_map(ArenaName::of).map(|name| name.id).collect();
    let mut needed = 0;
    for arena in again {
        let sets = SlotSets(BTreeMap::from([(arena, ArenaSlots::All)]));
        match carry_out(&world, &objects, sets) {
            (Ok(put_off), after) => {
                let world_of = world.open_objects(&after).unwrap();
                world.assert_holds(&world_of, first, &image, "what it needs stays");
                needed += u64::from(put_off > 0);
            }
            (Err(error), _) => panic!("{arena}: {error}"),
        }
    }
    assert!(needed > 0);
}

/// While an arena that stays cannot be read, nothing is removed.
#[test]
fn nothing_is_removed_while_an_arena_cannot_be_read() {
    let world = World::bare(9);
    grow(&world.tree(), 9, SMALL);
    let first = world.backup().snapshot.id;
    mutate(&world.tree(), 9, SMALL);
    world.backup();
    forget(&world.open(), &[first]).unwrap();
    let slots = Slots::of(&world.open());
    let unneeded = slots.all.difference(&slots.needed).next().copied().unwrap();
    let mut objects = world.objects.snapshot();
    let needed = slots.needed.iter().find(|place| place.arena != unneeded.arena).unwrap();
    let name = ArenaName::first(needed.arena).object();
    objects.get_mut(&name).unwrap().truncate(100);
    let condemned = BTreeMap::from([(unneeded.arena, ArenaSlots::of([unneeded.slot]))]);
    let (outcome, after) = carry_out(&world, &objects, SlotSets(condemned));
    let error = outcome.unwrap_err();
    assert!(matches!(error, RepositoryError::NotCollectable { .. }), "{error}");
    assert_eq!(arenas(&objects), arenas(&after));
}

/// Chunks that are lost may be in an arena that cannot be read, as deltas against what would go.
#[test]
fn nothing_is_removed_while_what_is_lost_may_be_in_an_arena_that_cannot_be_read() {
    let world = World::bare(13);
    let nights = [1, 2, 3].map(|night| store(&world, &noise(night, 30_000)));
    let [(first, unreadable), (second, unneeded), (_, lost)] = nights;
    forget(&world.open(), &[first, second]).unwrap();
    let mut objects = world.objects.snapshot();
    let condemned = || SlotSets(BTreeMap::from([(unneeded.id, ArenaSlots::All)]));
    objects.get_mut(&unreadable.object()).unwrap().truncate(100);
    let (outcome, after) = carry_out(&world, &objects, condemned());
    assert_eq!(outcome.unwrap(), 0);
    assert!(!after.contains_key(&unneeded.object()), "nothing is lost");
    objects.remove(&lost.object());
    let (outcome, after) = carry_out(&world, &objects, condemned());
    let error = outcome.unwrap_err();
    assert!(matches!(error, RepositoryError::NotCollectable { .. }), "{error}");
    assert_eq!(arenas(&objects), arenas(&after));
}

/// What is to go from a replica is reckoned there.
#[test]
fn a_mirror_removes_nothing_that_a_snapshot_needs() {
    let world = World::bare(10);
    grow(&world.tree(), 10, SMALL);
    world.backup();
    let repository = world.open();
    let memory = Arc::new(MemoryBackend::new());
    let target: Arc<dyn Backend> = memory.clone();
    replicate(repository.backend(), &*target, &Silent, &Cancel::new()).unwrap();
    let before = memory.snapshot();
    for info in target.list("arenas").unwrap() {
        let plan = MirrorPlan { remove: vec![info], ..MirrorPlan::default() };
        let error = mirror(&repository, &target, &plan, &Silent, &Cancel::new()).unwrap_err();
        assert!(matches!(error, RepositoryError::NotMirrored { .. }), "{error}");
        assert_eq!(before, memory.snapshot(), "nothing was removed");
    }
}

/// An arena of the replica that cannot be read may hold what a snapshot needs, too: then what the
/// repository lacks is not known.
#[test]
fn a_mirror_says_which_arena_of_the_replica_cannot_be_read() {
    let world = World::bare(14);
    let [(first, unreadable), (_, needed)] =
        [1, 2].map(|night| store(&world, &noise(night, 30_000)));
    forget(&world.open(), &[first]).unwrap();
    let mut objects = world.objects.snapshot();
    objects.get_mut(&unreadable.object()).unwrap().truncate(100);
    let memory = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
    let target: Arc<dyn Backend> = memory.clone();
    let listed = target.list("arenas").unwrap();
    let remove = listed.into_iter().filter(|info| info.name == needed.object()).collect();
    let plan = MirrorPlan { remove, ..MirrorPlan::default() };
    let error = mirror(&world.open(), &target, &plan, &Silent, &Cancel::new()).unwrap_err();
    let RepositoryError::NotCollectable { what, .. } = &error else { panic!("{error}") };
    assert_eq!(*what, format!("arena {}", unreadable.id));
    assert_eq!(memory.snapshot(), objects);
}

/// Two copies that were pruned apart: one without an arena, the other without its chunks in a second arena,
/// which has one generation of each now. Else a mirror removes what it would. A snapshot may name the arena,
/// or the second one.
#[test]
fn a_mirror_keeps_an_arena_if_the_rest_is_in_one_generation_of_two() {
    for names_the_arena in [true, false] {
        mirror_of_two_histories(names_the_arena);
    }
}

fn mirror_of_two_histories(names_the_arena: bool) {
    let world = World::new(12);
    let first = world.backup().snapshot.id;
    let image = world.image();
    let once = world.objects.snapshot();
    let data = |name: &ArenaName| ArenaContent::of(name.id) == ArenaContent::Data;
    let one = once.keys().filter_map(ArenaName::of).find(data).unwrap();
    world.objects.remove(&one.object()).unwrap();
    let second = world.backup().snapshot.id;
    world.objects.create(&one.object(), &once[&one.object()]).unwrap();
    if !names_the_arena {
        forget(&world.open(), &[first]).unwrap();
    }
    let both = world.objects.snapshot();
    let is_new = |name: &ArenaName| data(name) && !once.contains_key(&name.object());
    let again = both.keys().filter_map(ArenaName::of).find(is_new).unwrap();

    let slot = ArenaSlots::of([0]);
    let (_, rewritten) = carry_out(&world, &both, SlotSets(BTreeMap::from([(again.id, slot)])));
    let later = rewritten.into_iter().filter(|(name, _)| !both.contains_key(name));
    let later: Objects = later
        .filter(|(name, _)| ArenaName::of(name).is_some_and(|name| name.id == again.id))
        .collect();
    assert_eq!(later.len(), 1, "another generation");
    let whole = SlotSets(BTreeMap::from([(one.id, ArenaSlots::All)]));
    let (outcome, mut without) = carry_out(&world, &both, whole);
    assert_eq!(outcome.unwrap(), 0);
    assert!(!without.contains_key(&one.object()), "all of it is stored again");
    without.extend(later.clone());
    let repository = world.open_objects(&without).unwrap();
    let memory = Arc::new(MemoryBackend::from_snapshot(both.into_iter().chain(later).collect()));
    let target: Arc<dyn Backend> = memory.clone();

    replicate(repository.backend(), &*target, &Silent, &Cancel::new()).unwrap();
    let listener = Listener::new();
    let plan = plan_mirror(&repository, &target).unwrap();
    assert!(plan.remove.iter().any(|info| info.name == one.object()));
    mirror(&repository, &target, &plan, &listener, &Cancel::new()).unwrap();
    let said = listener.problems();
    assert!(said.iter().any(|said| said.message.contains(&one.id.to_string())), "{said:?}");
    let there = memory.snapshot();
    assert!(there.contains_key(&one.object()), "what is doubtful is no reason to remove it");
    let replica = world.open_objects(&there).unwrap();
    let kept = if names_the_arena { vec![first, second] } else { vec![second] };
    assert_eq!(snapshot_ids(&replica), kept);
    for id in kept {
        world.assert_holds(&replica, id, &image, "after the mirror");
    }
}
