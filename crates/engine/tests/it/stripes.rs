//! A repository over several stores: every verb works on it, and any store may vanish at any time.

use std::sync::Arc;

use strongroom_backend::{Backend, MemoryBackend, Stores, StripedBackend};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_engine::EngineError;
use strongroom_repository::objects::soundness;
use strongroom_repository::{Collections, Repository, RepositoryError, Selection, create_verdict};
use strongroom_testkit::tree::{TreeOptions, grow, mutate};
use strongroom_testkit::{CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, Image};
use strongroom_upkeep::{forget, prune, prune_later, replicate};

use crate::verify::check_all;
use crate::world::{ALL, PASSPHRASE, World, init_options, options, run, snapshot_ids};

const TREE: TreeOptions =
    TreeOptions { entries: 10, chunk_bytes: 6 << 10, file_bytes_max: 40 << 10 };

fn stores() -> Vec<Arc<MemoryBackend>> {
    (0..3).map(|_| Arc::new(MemoryBackend::new())).collect()
}

fn open(stores: &[Arc<dyn Backend>]) -> Arc<StripedBackend> {
    let stores = stores.iter().cloned().map(Some).collect();
    let opened = StripedBackend::open(stores, "stripes").unwrap().unwrap();
    Arc::new(opened.with_small_bytes(4 << 10))
}

fn all(stores: &[Arc<MemoryBackend>]) -> Vec<Arc<dyn Backend>> {
    stores.iter().map(|store| Arc::clone(store) as Arc<dyn Backend>).collect()
}

fn without(stores: &[Arc<MemoryBackend>], gone: usize) -> Vec<Arc<MemoryBackend>> {
    let copy = |(number, store): (usize, &Arc<MemoryBackend>)| match number == gone {
        true => Arc::new(MemoryBackend::new()),
        false => Arc::new(MemoryBackend::from_snapshot(store.snapshot())),
    };
    stores.iter().enumerate().map(copy).collect()
}

/// A repository of two versions over three stores.
fn history(seed: u64) -> (World, Vec<Arc<MemoryBackend>>, Vec<(SnapshotId, Image)>) {
    let world = World::empty(seed);
    grow(&world.tree(), seed, TREE);
    let stores = stores();
    StripedBackend::create(all(&stores), 1, [1; 16], "stripes").unwrap();
    let place = open(&all(&stores));
    Repository::init(world.over(place.clone()), PASSPHRASE, &init_options()).unwrap();
    let mut kept = Vec::new();
    for version in 0..2 {
        mutate(&world.tree(), seed + version, TREE);
        let repository = world.open_over(place.clone()).unwrap();
        let id = run(&repository, &options(&world.tree()), &Silent).unwrap().snapshot.id;
        kept.push((id, world.image()));
    }
    (world, stores, kept)
}

#[track_caller]
fn check(
    world: &World,
    stores: &[Arc<MemoryBackend>],
    kept: &[(SnapshotId, Image)],
    what: &str,
) -> usize {
    let repository = world.open_over(open(&all(stores))).unwrap();
    let ids = snapshot_ids(&repository);
    for id in &ids {
        // Its program died before it could say so.
        let Some((_, image)) = kept.iter().find(|(known, _)| known == id) else { continue };
        world.assert_holds(&repository, *id, image, what);
    }
    assert!(check_all(&repository).is_sound(), "{what}");
    ids.len()
}

#[test]
fn one_of_three_stores_is_erased_and_everything_restores() {
    let (world, stores, kept) = history(860);
    assert_eq!(check(&world, &stores, &kept, "whole"), 2);
    for gone in 0..3 {
        let left = without(&stores, gone);
        assert_eq!(check(&world, &left, &kept, &format!("{gone} is erased")), 2);
        open(&all(&left)).mend().unwrap();
        for other in 0..3 {
            let what = format!("{gone} was made again, {other} is erased");
            assert_eq!(check(&world, &without(&left, other), &kept, &what), 2);
        }
        assert_eq!(left[gone].snapshot(), stores[gone].snapshot());
    }
}

#[test]
fn a_collection_and_a_copy_over_stripes() {
    let (world, stores, kept) = history(862);
    let place = open(&all(&stores));
    let repository = world.open_over(place.clone()).unwrap();
    forget(&repository, &[kept[0].0]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(check(&world, &stores, &kept, "pruned"), 1);
    // No piece is left of what is gone.
    let pieces: Vec<usize> =
        stores.iter().map(|store| store.list("pieces").unwrap().len()).collect();
    let large = place.list("arenas").unwrap().iter().filter(|info| info.bytes > 4 << 10).count();
    assert!(pieces.iter().all(|count| *count >= large && *count <= large + 2), "{pieces:?}");
    for gone in 0..3 {
        assert_eq!(check(&world, &without(&stores, gone), &kept, "pruned, one is erased"), 1);
    }
    let copy = Arc::new(MemoryBackend::new());
    replicate(&*place, &*copy, &Silent, &Cancel::new()).unwrap();
    let there = world.open_over(copy).unwrap();
    world.assert_holds(&there, kept[1].0, &kept[1].1, "a copy");
}

/// A backup is killed at any call to one store, before or after that is done, and any store is erased
/// then.
#[test]
fn a_backup_is_killed_and_a_store_is_erased() {
    let (world, stores, mut kept) = history(864);
    mutate(&world.tree(), 867, TREE);
    let image = world.image();
    for failing in 0..3 {
        let (mut at, mut done_before) = (0, 0);
        loop {
            let now: Vec<Arc<MemoryBackend>> = without(&stores, 9);
            let mut over = all(&now);
            let plan =
                if at % 2 == 0 { FaultPlan::crash(at / 2) } else { FaultPlan::crash_after(at / 2) };
            over[failing] = Arc::new(FaultyBackend::new(now[failing].clone(), plan));
            let opened = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
            let done = opened.ok().flatten().and_then(|place| {
                let place = Arc::new(place.with_small_bytes(4 << 10));
                let repository = world.open_over(place).ok()?;
                run(&repository, &options(&world.tree()), &Silent).ok()
            });
            if let Some(done) = &done {
                kept.push((done.snapshot.id, image.clone()));
            }
            for gone in 0..3 {
                let what = format!("store {failing} dies at {at}, {gone} is erased");
                let left = without(&now, gone);
                let found = check(&world, &left, &kept, &what);
                // What was said to be done is there.
                assert!(found >= 2 + usize::from(done.is_some()), "{what}: {found}");
            }
            // The last snapshot is one of this try alone.
            kept.truncate(2);
            // Neither way of dying at a call was met any more.
            done_before = if done.is_some() { done_before + 1 } else { 0 };
            if done_before == 2 {
                break;
            }
            at += 1;
        }
        assert!(at > 10, "{at}");
    }
}

/// One store whose calls of some kinds in one folder fail.
fn failing_in(
    stores: &[Arc<MemoryBackend>],
    number: usize,
    kind: CallKind,
    folder: &'static str,
) -> Arc<StripedBackend> {
    let plan = FaultPlan::lasting(Calls::of(&[kind]).within(folder), 0, FaultKind::Io);
    let mut over = all(stores);
    over[number] = Arc::new(FaultyBackend::new(stores[number].clone(), plan));
    open(&over)
}

/// That a commit or a verdict can be read says nothing of the stores that it did not reach.
#[test]
fn what_is_in_one_store_only_is_not_done() {
    let (world, stores, kept) = history(868);
    for failing in 1..3 {
        let now = without(&stores, 9);
        let place = failing_in(&now, failing, CallKind::Create, "snapshots");
        let repository = world.open_over(place).unwrap();
        let error = run(&repository, &options(&world.tree()), &Silent).unwrap_err();
        assert!(
            matches!(error, EngineError::Repository(RepositoryError::CommitUnknown { .. })),
            "{error}"
        );
        // The session stays: what is needed stays, too, if the commit takes effect.
        assert_eq!(open(&all(&now)).list("sessions").unwrap().len(), 1);

        let now = without(&stores, 9);
        let place = failing_in(&now, failing, CallKind::Create, "collections");
        let repository = world.open_over(place).unwrap();
        create_verdict(&repository, 7, &Selection::default()).unwrap_err();
        // Another collector that finds the verdict, and cannot complete it, carries nothing out.
        let now = without(&stores, 9);
        let repository = world.open_over(open(&all(&now))).unwrap();
        forget(&repository, &[kept[0].0]).unwrap();
        prune_later(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        let dying = failing_in(&now, failing, CallKind::Create, "collections");
        let planned = Collections::read(&repository).unwrap().open.unwrap();
        assert_eq!(planned.selection.snapshots.len(), 1);
        let dying = world.open_over(dying).unwrap();
        create_verdict(&dying, planned.number, &planned.selection).unwrap_err();
        let before = now[0].list("snapshots").unwrap();
        let dying = failing_in(&now, failing, CallKind::Create, "collections");
        prune(&world.open_over(dying).unwrap(), &ALL, &Silent, &Cancel::new()).unwrap_err();
        assert_eq!(now[0].list("snapshots").unwrap(), before);
        let left = without(&now, 0);
        assert_eq!(open(&all(&left)).list("snapshots").unwrap().len(), 2);
        check(&world, &left, &kept, "the first store is erased");
        let collected = prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        assert_eq!(collected.carried.snapshots, 1);
    }
}

/// A power cut has left the first store with a shorter snapshot, or with zeros.
#[test]
fn a_damaged_snapshot_in_the_first_store_is_none_in_the_others() {
    let (world, stores, kept) = history(870);
    for zeros in [false, true] {
        let now = without(&stores, 9);
        for folder in ["snapshots", "keys", "collections"] {
            for info in now[0].list(folder).unwrap() {
                let left = if zeros { vec![0; info.bytes as usize] } else { Vec::new() };
                now[0].replace(&info.name, &left).unwrap();
            }
        }
        let judged = || {
            let stores = all(&now).into_iter().map(Some).collect();
            let opened = StripedBackend::open(stores, "stripes").unwrap().unwrap();
            Arc::new(opened.with_small_bytes(4 << 10).with_judge(soundness))
        };
        let repository = world.open_over(judged()).unwrap();
        assert_eq!(snapshot_ids(&repository).len(), 2);
        for (id, image) in &kept {
            world.assert_holds(&repository, *id, image, "read");
        }
        assert!(judged().mend().unwrap() > 0);
        for (now, before) in now.iter().zip(&stores) {
            assert_eq!(now.snapshot(), before.snapshot());
        }
    }
}

/// What a machine remembers of a repository at one address is not true of its copy at another.
#[test]
fn copies_at_two_addresses_have_two_caches() {
    let (world, stores, _) = history(866);
    let world = world.with_cache();
    let named = |name: &str| -> Arc<dyn Backend> {
        let stores = all(&stores).into_iter().map(Some).collect();
        Arc::new(StripedBackend::open(stores, name).unwrap().unwrap())
    };
    let folder = |name: &str| world.open_over(named(name)).unwrap().cache_folder().unwrap();
    assert_eq!(folder("one"), folder("one"));
    assert_ne!(folder("one"), folder("two"));
}
