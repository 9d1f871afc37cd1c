//! Repair from replicas: all that is lost here and whole there comes back, for few bytes.

use std::sync::Arc;

use strongroom_arena::envelope::format::HEADER_BYTES;
use strongroom_arena::{ArenaName, envelope};
use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{Cancel, Silent};
use strongroom_repository::{Collections, RepositoryError, Wishes};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{Change, FaultPlan, FaultyBackend, Random, noise};
use strongroom_upkeep::{
    FetchOutcome, Known, NewAccess, VerifyDepth, add_key, fetch, fetch_needed, forget, mirror,
    plan_fetch, plan_mirror, plan_repair, prune, remove_key, repair, repair_objects, replicate,
    verify,
};

use crate::copies::fronts::sealed_otherwise;
use crate::damage::{each_damage, scene};
use crate::verify::check_all;
use crate::world::{ALL, LAPTOP, World, init_options, options, run, snapshot_ids};

/// A repair as the program does it, with a key or without.
pub fn repair_from(
    world: &World,
    backend: &Arc<dyn Backend>,
    replicas: &[Arc<dyn Backend>],
    with_key: bool,
) -> Result<FetchOutcome, RepositoryError> {
    let (monitor, cancel) = (&Silent, &Cancel::new());
    let here = &**backend;
    let mut plan = plan_repair(here, monitor, cancel)?;
    let first = plan_fetch(here, replicas, Known::NotYet, &mut plan)?;
    let mut outcome = fetch(here, replicas, first, &mut plan, None, monitor, cancel)?;
    if with_key {
        let repository = world.open_over(backend.clone())?;
        let (collections, wishes) = (Collections::read(&repository)?, Wishes::read(&repository)?);
        let known = Known::Collections(&collections, &wishes);
        let (rest, key) = (plan_fetch(here, replicas, known, &mut plan)?, Some(&repository));
        outcome.add(fetch(here, replicas, rest, &mut plan, key, monitor, cancel)?);
        outcome.add(fetch_needed(&repository, replicas, monitor, cancel)?);
        repair(&repository, &plan, monitor, cancel)?;
    } else {
        let rest = plan_fetch(here, replicas, Known::Nothing, &mut plan)?;
        outcome.add(fetch(here, replicas, rest, &mut plan, None, monitor, cancel)?);
        repair_objects(here, &plan, monitor, cancel)?;
    }
    Ok(outcome)
}

fn place(objects: Objects) -> (Arc<MemoryBackend>, Arc<dyn Backend>) {
    let backend = Arc::new(MemoryBackend::from_snapshot(objects));
    (backend.clone(), backend)
}

fn replica_of(objects: &Objects) -> Arc<dyn Backend> {
    let target = MemoryBackend::new();
    let source = MemoryBackend::from_snapshot(objects.clone());
    replicate(&source, &target, &Silent, &Cancel::new()).unwrap();
    Arc::new(target)
}

#[test]
fn any_damage_of_any_object_is_undone() {
    let scene = scene(800);
    let replica = [replica_of(&scene.base)];
    let mut sum = FetchOutcome::default();
    each_damage(&scene, |structure, name, change, objects| {
        if name.folder() == "sessions" {
            return;
        }
        let (backend, place) = place(objects.clone());
        let with_key = name.file().as_bytes()[0].is_multiple_of(2);
        let what = format!("{change:?} of {structure:?} {name}, key: {with_key}");
        let outcome = repair_from(&scene.world, &place, &replica, with_key).expect(&what);
        assert_eq!(outcome.failed, [], "{what}");
        assert!(backend.snapshot() == scene.base, "{what}");
        sum.add(outcome);
    });
    assert!(sum.mended > 10 && sum.returned > 3, "{sum:?}");
}

#[test]
fn fewer_bytes_are_fetched_than_are_damaged() {
    let scene = scene(801);
    let replica = [replica_of(&scene.base)];
    let mut random = Random::new(801);
    let mut objects = scene.base.clone();
    for name in names_in(&scene.base, "arenas") {
        let object = objects.get_mut(&name).unwrap();
        let header = envelope::peek(object).unwrap();
        // One in twenty, and at least one more than parity can repair.
        let lost = (header.shards() / 20).max(header.parity_shards as usize + 1);
        let mut shards: Vec<usize> = (0..header.data_shards()).collect();
        for _ in 0..lost.min(header.data_shards()) {
            let shard = shards.swap_remove(random.below(shards.len() as u64) as usize);
            object[HEADER_BYTES + shard * header.shard_bytes()] ^= 0x55;
        }
    }
    let (backend, place) = place(objects);
    let outcome = repair_from(&scene.world, &place, &replica, false).unwrap();
    assert!(backend.snapshot() == scene.base);
    assert!(outcome.damaged_bytes > 0 && outcome.returned == 0, "{outcome:?}");
    assert!(outcome.fetched_bytes < outcome.damaged_bytes, "{outcome:?}");
}

#[test]
fn two_replicas_that_are_damaged_themselves() {
    let scene = scene(802);
    let names = names_in(&scene.base, "arenas");
    let mut halves = [scene.base.clone(), scene.base.clone()];
    for (place, name) in names.iter().enumerate() {
        let change = Change::ALL[place % 11];
        change.on_object(&mut halves[place % 2], name);
    }
    let replicas =
        halves.map(|half| -> Arc<dyn Backend> { Arc::new(MemoryBackend::from_snapshot(half)) });
    let mut lost = scene.base.clone();
    lost.retain(|name, _| name.folder() != "arenas");
    let (backend, place) = place(lost);
    let outcome = repair_from(&scene.world, &place, &replicas, true).unwrap();
    assert_eq!(outcome.returned as usize, names.len());
    assert!(backend.snapshot() == scene.base);
}

#[test]
fn what_a_collection_removed_stays_away_and_withdrawn_keys_too() {
    let world = World::new(803);
    let old = world.backup().snapshot.id;
    world.mutate(804);
    world.backup();
    let repository = world.open();
    let cost = init_options().cost;
    let slot = add_key(&repository, LAPTOP, "second", NewAccess::Full, cost).unwrap();
    let replica = [replica_of(&world.objects.snapshot())];
    remove_key(&repository, slot).unwrap();
    forget(&repository, &[old]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let base = world.objects.snapshot();
    let (backend, place) = place(base.clone());
    repair_from(&world, &place, &replica, true).unwrap();
    assert!(backend.snapshot() == base);

    // Without a key it comes back, does no harm, and goes again.
    repair_from(&world, &place, &replica, false).unwrap();
    assert!(backend.snapshot().len() > base.len());
    assert_eq!(backend.list("keys").unwrap().len(), 2);
    let repository = world.open_over(place.clone()).unwrap();
    assert!(!snapshot_ids(&repository).contains(&old));
    assert!(check_all(&repository).is_sound());

    // An arena that was rewritten and is beyond repair is replaced by what it was before.
    let rewritten = names_in(&base, "arenas");
    let rewritten = rewritten
        .into_iter()
        .find(|name| ArenaName::of(name).is_some_and(|name| name.generation > 0))
        .expect("a collection that rewrites");
    let mut objects = base.clone();
    Change::Zeros.on_object(&mut objects, &rewritten);
    let (backend, place) = self::place(objects);
    let outcome = repair_from(&world, &place, &replica, true).unwrap();
    assert_eq!((outcome.returned, outcome.mended), (1, 0), "{outcome:?}");
    assert!(backend.size(&rewritten).is_err_and(|error| error.is_not_found()));
    let repository = world.open_over(place).unwrap();
    assert!(check_all(&repository).is_sound());
}

#[test]
fn all_keys_are_lost() {
    let scene = scene(805);
    let replica = [replica_of(&scene.base)];
    let mut objects = scene.base.clone();
    objects.retain(|name, _| name.folder() != "keys" && name.file() != "config");
    let (backend, place) = place(objects);
    repair_from(&scene.world, &place, &replica, true).unwrap();
    assert!(backend.snapshot() == scene.base);
}

#[test]
fn a_replica_of_another_repository_is_refused() {
    let scene = scene(806);
    let other = World::new(807);
    other.backup();
    let replica = [replica_of(&other.objects.snapshot())];
    let (backend, place) = place(scene.base.clone());
    let error = repair_from(&scene.world, &place, &replica, true).unwrap_err();
    assert!(matches!(error, RepositoryError::OtherRepository { .. }), "{error}");
    assert!(backend.snapshot() == scene.base);
}

#[test]
fn a_repair_that_is_killed_at_any_call_goes_on() {
    let scene = scene(808);
    let replica = [replica_of(&scene.base)];
    let mut objects = scene.base.clone();
    for (place, name) in names_in(&scene.base, "arenas").iter().enumerate() {
        [Change::Zeros, Change::Removed, Change::Half, Change::FlipBit(300)][place % 4]
            .on_object(&mut objects, name);
    }
    let mut at = 0;
    loop {
        let (backend, place) = place(objects.clone());
        let faulty: Arc<dyn Backend> =
            Arc::new(FaultyBackend::new(backend.clone(), FaultPlan::crash_after(at)));
        if repair_from(&scene.world, &faulty, &replica, false).is_ok() {
            break;
        }
        for (name, bytes) in backend.snapshot() {
            let is_known = scene.base.get(&name) == Some(&bytes);
            assert!(is_known || objects.get(&name) == Some(&bytes), "killed at {at}: {name}");
        }
        repair_from(&scene.world, &place, &replica, false).unwrap();
        assert!(backend.snapshot() == scene.base, "killed at {at}");
        at += 3;
    }
    assert!(at > 60, "{at}");
}

/// A repair that saved a part of an arena leaves it to a replica to bring back the rest, and a mirror
/// does not remove that meanwhile.
#[test]
fn kept_o13_what_a_rescue_left_is_fetched_afterwards() {
    let world = World::new(1300);
    let (id, image) = (world.backup().snapshot.id, world.image());
    let whole = world.objects.snapshot();
    let replica = replica_of(&whole);
    let mut rescued = 0;
    for name in names_in(&whole, "arenas") {
        let mut objects = whole.clone();
        let object = objects.get_mut(&name).unwrap();
        let (from, to) = (object.len() / 3, object.len() * 3 / 4);
        object[from..to].fill(0x55);
        let (memory, backend) = place(objects);
        let repository = world.open_over(backend.clone()).unwrap();
        let plan = plan_repair(&*backend, &Silent, &Cancel::new()).unwrap();
        rescued += repair(&repository, &plan, &Silent, &Cancel::new()).unwrap().rescued;
        let mirrored = plan_mirror(&repository, &replica)
            .and_then(|plan| mirror(&repository, &replica, &plan, &Silent, &Cancel::new()));
        assert!(
            matches!(mirrored, Ok(_) | Err(RepositoryError::NotMirrored { .. })),
            "{name}: {mirrored:?}"
        );
        repair_from(&world, &backend, std::slice::from_ref(&replica), true).unwrap();
        let repository = world.open_over(memory).unwrap();
        world.assert_holds(&repository, id, &image, &name.to_string());
        let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(verified.is_sound(), "{name}: {:?}", verified.faults);
    }
    assert!(rescued > 0, "an arena was saved in part");
}

/// What a collection of this copy has removed, and a snapshot of the other needs, comes with that.
#[test]
fn kept_o10_a_snapshot_is_fetched_with_all_that_it_needs() {
    let world = World::new(1000);
    let first = world.backup().snapshot.id;
    let (_, copy) = place(world.objects.snapshot());
    let aside = world.tree().with_extension("aside");
    std::fs::rename(world.tree(), &aside).unwrap();
    std::fs::create_dir(world.tree()).unwrap();
    world.write("other", b"something else");
    let copied = world.open_over(copy.clone()).unwrap();
    run(&copied, &options(&world.tree()), &Silent).unwrap();
    forget(&copied, &[first]).unwrap();
    let removed = prune(&copied, &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(removed.carried.arenas_removed > 0);
    std::fs::remove_dir_all(world.tree()).unwrap();
    std::fs::rename(&aside, world.tree()).unwrap();
    let second = world.backup().snapshot.id;
    let original: Arc<dyn Backend> = world.objects.clone();
    repair_from(&world, &copy, &[original], true).unwrap();
    let copied = world.open_over(copy).unwrap();
    let verified = verify(&copied, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(verified.is_sound(), "{:?} {:?}", verified.faults, verified.affected);
    world.assert_holds(&copied, second, &world.image(), "fetched");
    prune(&copied, &ALL, &Silent, &Cancel::new()).unwrap();
    world.assert_holds(&copied, second, &world.image(), "after a prune");
}

/// An object with a header of its own under the name of an arena: whole, or damaged beyond parity.
fn another(world: &World, object: &[u8], is_whole: bool) -> Vec<u8> {
    let header = envelope::inspect(object).unwrap().header;
    let identity = envelope::Identity {
        kind: header.kind,
        id: header.id,
        generation: header.generation,
        origin: header.origin,
    };
    let mut body = vec![0; envelope::HEADROOM];
    body.extend(noise(9, object.len() - 2 * HEADER_BYTES));
    let mut sealed = envelope::seal(body, identity, world.open().redundancy());
    if !is_whole {
        let (begin, end) = (sealed.len() / 4, sealed.len() / 2);
        sealed[begin..end].fill(0x5c);
    }
    sealed
}

/// A client of a replica that may only store was first, and created something else under the name of an
/// arena, or of a snapshot. With a key the right one takes its place.
#[test]
fn what_is_in_the_place_of_another_is_replaced_by_what_proves_to_be_it() {
    for is_whole in [false, true] {
        let world = World::new(240);
        world.backup();
        world.mutate(1);
        let made = (world.backup().snapshot.id, world.image());
        let base = world.objects.snapshot();
        let mut planted = 0;
        let snapshot = strongroom_repository::snapshot_object(made.0);
        for name in names_in(&base, "arenas").into_iter().chain([snapshot]) {
            let mut objects = base.clone();
            let other = match name.folder() {
                "arenas" => another(&world, &base[&name], is_whole),
                _ if is_whole => continue,
                _ => another(&world, &base[&name], false),
            };
            objects.insert(name.clone(), other);
            let (replica, backend) = place(objects);
            let source = replica_of(&base);
            let when = format!("{name}, {is_whole}");
            repair_from(&world, &backend, &[source], true).unwrap();
            assert!(replica.snapshot().get(&name) == base.get(&name), "{when}");
            planted += 1;
        }
        assert!(planted > 5);
    }
}

/// Two copies have carried out one verdict, by programs that pack blocks in other ways: their generations have
/// one name, and other bytes. The whole one takes the place of the damaged one at once, because it holds the
/// same.
#[test]
fn a_generation_of_another_copy_is_as_good() {
    let world = World::new(241);
    let made = crate::copies::versions(&world, 4);
    let base = world.objects.snapshot();
    let [(one, here), (other, there)] = [(); 2].map(|()| place(base.clone()));
    for backend in [&here, &there] {
        let repository = world.open_over(backend.clone()).unwrap();
        forget(&repository, &[made[0].0]).unwrap();
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    }
    let whole = one.snapshot();
    for (name, object) in other.snapshot() {
        let is_rewritten = |name: &ArenaName| name.generation > 0;
        if let Some(arena) = ArenaName::of(&name).filter(is_rewritten) {
            let repository = world.open_over(there.clone()).unwrap();
            other.replace(&name, &sealed_otherwise(&repository, &base, arena, &object)).unwrap();
        }
    }
    let others = other.snapshot();
    let mut damaged = 0;
    for (name, object) in &whole {
        if ArenaName::of(name).is_none() || others.get(name).is_none_or(|other| other == object) {
            continue;
        }
        let mut objects = whole.clone();
        // Behind its summary: of one whose summary does not open a rescue saves the blocks that do.
        let half = object.len() / 2;
        objects.get_mut(name).unwrap()[half..half + half / 2].fill(0x5c);
        assert!(envelope::repair(&objects[name]).is_err(), "{name}");
        let (backend, here) = place(objects);
        repair_from(&world, &here, std::slice::from_ref(&there), true).unwrap();
        assert!(backend.snapshot().get(name) == others.get(name), "{name}");
        let repository = world.open_over(here).unwrap();
        assert!(check_all(&repository).is_sound(), "{name}");
        for (id, image) in &made[1..] {
            world.assert_holds(&repository, *id, image, name.as_str());
        }
        damaged += 1;
    }
    assert!(damaged > 1);
}
