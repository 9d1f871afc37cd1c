//! Backup: it keeps exactly what existed, and costs no more than it must.

use std::sync::Arc;
use strongroom_arena::ArenaName;

use strongroom_base::Silent;
use strongroom_repository::{ChunkIndex, Repository, RepositoryError};
use strongroom_testkit::tree::grow;
use strongroom_testkit::{CallKind, Image, Listener, RecordingBackend};

use crate::read_back::read_back;
use crate::world::{TREE, World, options, quiet_folder, run, snapshot_ids};

#[test]
fn what_is_kept_is_what_stood_there() {
    for seed in 1..5 {
        let world = World::new(seed);
        let listener = Listener::new();
        let outcome = run(&world.open(), &options(&world.tree()), &listener).unwrap();
        assert_eq!(listener.problems(), []);
        assert!(outcome.committed && !outcome.snapshot.partial);
        assert!(outcome.written.arenas > 5, "{:?}", outcome.written);
        let image = world.image();
        world.assert_holds(&world.open(), outcome.snapshot.id, &image, "first backup");
        let leaves = image.nodes.values().filter(|n| n.kind != strongroom_testkit::Kind::Directory);
        assert_eq!(outcome.snapshot.stats.files, leaves.count() as u64);
        assert_eq!(listener.last_progress().files, outcome.snapshot.stats.files);
        assert_eq!(listener.last_progress().bytes, outcome.snapshot.stats.bytes);
    }
}

#[test]
fn thirty_versions_all_stay() {
    let world = World::new(7).with_cache();
    let mut kept = Vec::new();
    for version in 0..30 {
        let outcome = world.backup();
        assert_eq!(outcome.snapshot.parent, kept.last().map(|(id, _)| *id));
        kept.push((outcome.snapshot.id, world.image()));
        world.mutate(version);
    }
    let repository = world.open();
    assert_eq!(snapshot_ids(&repository).len(), 30);
    for (version, (id, image)) in kept.iter().enumerate() {
        world.assert_holds(&repository, *id, image, &format!("version {version}"));
    }
}

#[test]
fn an_unchanged_tree_costs_three_small_writes() {
    for cached in [false, true] {
        let world = World::quiet(11);
        let world = if cached { world.with_cache() } else { world };
        world.backup();
        let first = snapshot_ids(&world.open());
        let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
        let repository = world.open_over(recording.clone()).unwrap();
        recording.take();
        let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
        let calls = recording.take();
        let writes: Vec<_> = calls.iter().filter(|call| call.kind.is_write()).collect();
        let id = outcome.snapshot.id;
        let expected = [
            (CallKind::Create, format!("sessions/{id}")),
            (CallKind::Create, format!("snapshots/{id}")),
            (CallKind::Remove, format!("sessions/{id}")),
        ];
        let written: Vec<_> = writes.iter().map(|call| (call.kind, call.name.clone())).collect();
        assert_eq!(written, expected);
        assert_eq!((outcome.files_new, outcome.files_changed), (0, 0));
        assert_eq!(outcome.written.data_chunks, 0, "no file is opened");
        assert_eq!(outcome.snapshot.parent, Some(first[0]));
        // With a cache, only the arenas of the parent's trees are read.
        let arenas: std::collections::BTreeSet<_> = calls
            .iter()
            .filter(|call| call.kind == CallKind::Read && call.folder() == "arenas")
            .map(|call| call.name.clone())
            .collect();
        let all = strongroom_testkit::damage::names_in(&world.objects.snapshot(), "arenas").len();
        assert!(arenas.len() <= if cached { 2 } else { all }, "{arenas:?} of {all}");
        let listed = calls.iter().filter(|call| call.kind == CallKind::List).count();
        assert!(
            listed <= 7,
            "arenas, vouchers, snapshots, wishes, remarks, ends, collections, once each: {listed}"
        );
        world.assert_holds(&world.open(), id, &world.image(), "unchanged");
    }
}

#[test]
fn the_same_world_gives_the_same_bytes() {
    // One tree for all: inode numbers and times of change are part of what is kept.
    let (tree, _quiet) = quiet_folder();
    let root = tree.path().join("tree");
    grow(&root, 5, TREE);
    let objects = |workers: usize| {
        let world = World::empty(99);
        let init = crate::world::init_options();
        let surroundings = world.surroundings();
        let pass = crate::world::PASSPHRASE;
        let repository = Repository::init(surroundings, pass, &init).unwrap();
        let mut options = options(&root);
        options.pack.workers = workers;
        run(&repository, &options, &Silent).unwrap();
        options.force = true;
        run(&repository, &options, &Silent).unwrap();
        world.objects.snapshot()
    };
    let first = objects(2);
    for workers in [1, 2, 5] {
        assert!(objects(workers) == first, "{workers} workers");
    }
}

#[test]
fn reading_every_file_again_stores_nothing_new() {
    let world = World::quiet(12);
    let first = world.backup();
    let mut options = options(&world.tree());
    options.force = true;
    let outcome = run(&world.open(), &options, &Silent).unwrap();
    assert_eq!(outcome.files_unchanged, 0);
    assert!(outcome.written.data_chunks > 0);
    assert_eq!(outcome.written.data_chunks_new, 0);
    assert_eq!(outcome.written.arenas, 0, "{:?}", outcome.written);
    assert_eq!(outcome.snapshot.root, first.snapshot.root);
}

#[test]
fn a_dry_run_writes_nothing() {
    for cached in [false, true] {
        let world = World::quiet(13);
        let world = if cached { world.with_cache() } else { world };
        for _ in 0..2 {
            let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
            let repository = world.open_over(recording.clone()).unwrap();
            recording.take();
            let mut options = options(&world.tree());
            options.dry_run = true;
            let outcome = run(&repository, &options, &Silent).unwrap();
            assert!(!outcome.committed);
            let writes: Vec<_> =
                recording.take().into_iter().filter(|call| call.kind.is_write()).collect();
            assert_eq!(writes, [], "cached: {cached}");
            // What it says would be stored is what is stored afterwards.
            let real = world.backup();
            assert_eq!(outcome.written.data_bytes, real.written.data_bytes);
            assert_eq!(outcome.written.data_chunks_new, real.written.data_chunks_new);
            assert_eq!(outcome.snapshot.stats.files, real.snapshot.stats.files);
            assert_eq!(outcome.files_unchanged, real.files_unchanged);
            world.assert_holds(&world.open(), real.snapshot.id, &world.image(), "after a dry run");
            world.mutate(1);
        }
    }
}

#[test]
fn a_second_repository_is_not_made_over_the_first() {
    let world = World::new(14);
    let before = world.objects.snapshot();
    let pass = crate::world::PASSPHRASE;
    let init = crate::world::init_options();
    let again = Repository::init(world.surroundings(), pass, &init);
    let refused = matches!(again, Err(RepositoryError::RepositoryExists { .. }));
    assert!(refused);
    assert_eq!(world.objects.snapshot(), before);
}

#[test]
fn several_roots_in_one_snapshot() {
    let world = World::new(15);
    let other = world.folder.path().join("other");
    grow(&other, 16, TREE);
    let mut options = options(&world.tree());
    options.paths.push(other.clone());
    let outcome = run(&world.open(), &options, &Silent).unwrap();
    let repository = world.open();
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), "the first root");
    let kept = read_back(&repository, outcome.snapshot.id, &other).unwrap();
    Image::of(&other).assert_same(&kept, "the second root");
}

#[test]
fn the_index_knows_every_chunk_of_every_arena() {
    let world = World::new(17);
    world.backup();
    let repository = world.open();
    let store = repository.arena_store(strongroom_arena::CacheLimits::default());
    let mut index = ChunkIndex::in_memory();
    let cancel = strongroom_base::Cancel::new();
    index.refresh(repository.backend(), &store, &Silent, &cancel).unwrap();
    let mut chunks = 0;
    for info in repository.backend().list("arenas").unwrap() {
        let arena = store.arena(ArenaName::of(&info.name).unwrap().id).unwrap();
        for (slot, entry) in arena.slots() {
            let location = strongroom_base::Location { arena: arena.id, slot };
            assert_eq!(index.lookup(&entry.fingerprint), Some(location));
            chunks += 1;
        }
    }
    assert!(chunks > 100);
}
