//! Every point at which a writer can die: what was acknowledged stays, and the next writer
//! continues with what is on the medium.

use std::collections::BTreeSet;
use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaName, CacheLimits};
use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{Silent, SnapshotId};
use strongroom_engine::{BackupOutcome, EngineError};
use strongroom_repository::Repository;
use strongroom_testkit::damage::Objects;
use strongroom_testkit::{FaultPlan, FaultyBackend, Image};

use crate::world::{PASSPHRASE, World, init_options, options, run, snapshot_ids};

/// A world with an acknowledged snapshot and a tree that has changed since.
struct Scene {
    world: World,
    base: Objects,
    acknowledged: (SnapshotId, Image),
    now: Image,
    /// What the backup of the changed tree stores if nothing goes wrong.
    undisturbed: BackupOutcome,
}

fn scene(seed: u64, cached: bool) -> Scene {
    let world = World::new(seed);
    let world = if cached { world.with_cache() } else { world };
    let first = world.backup();
    let acknowledged = (first.snapshot.id, world.image());
    world.mutate(seed + 1);
    strongroom_testkit::tree::grow(&world.tree().join("more"), seed + 2, crate::world::TREE);
    let base = world.objects.snapshot();
    let repository = world.open_objects(&base).unwrap();
    let undisturbed = run(&repository, &options(&world.tree()), &Silent).unwrap();
    assert!(undisturbed.written.arenas > 5);
    Scene { now: world.image(), world, base, acknowledged, undisturbed }
}

/// Runs the backup under a plan; returns whether anything went wrong, and its outcome.
fn disturbed(
    scene: &Scene,
    plan: FaultPlan,
) -> (Arc<MemoryBackend>, u64, Result<BackupOutcome, EngineError>) {
    let objects = Arc::new(MemoryBackend::from_snapshot(scene.base.clone()));
    let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan));
    let outcome = scene
        .world
        .open_over(faulty.clone())
        .map_err(EngineError::from)
        .and_then(|repository| run(&repository, &options(&scene.world.tree()), &Silent));
    (objects, faulty.fired(), outcome)
}

/// Bytes of data chunks in arenas that did not exist at the base.
fn finished_bytes(scene: &Scene, repository: &Repository) -> u64 {
    let store = repository.arena_store(CacheLimits::default());
    let mut finished = BTreeSet::new();
    let mut bytes = 0;
    for info in repository.backend().list("arenas").unwrap() {
        let id = ArenaName::of(&info.name).unwrap().id;
        if scene.base.contains_key(&info.name) || ArenaContent::of(id) == ArenaContent::Metadata {
            continue;
        }
        for (_, slot) in store.arena(id).unwrap().slots() {
            assert!(finished.insert(slot.fingerprint), "a chunk is stored once");
            bytes += u64::from(slot.chunk_bytes);
        }
    }
    bytes
}

/// What must hold after any failure, and for the next backup.
#[track_caller]
fn check_aftermath(scene: &Scene, objects: Arc<MemoryBackend>, what: &str) {
    let world = &scene.world;
    let repository = world.open_over(objects).unwrap();
    let (first, image) = &scene.acknowledged;
    let ids = snapshot_ids(&repository);
    assert!(ids.contains(first), "{what}: the acknowledged snapshot is gone");
    for id in &ids {
        let image = if id == first { image } else { &scene.now };
        world.assert_holds(&repository, *id, image, what);
    }
    let finished = finished_bytes(scene, &repository);
    let next = run(&repository, &options(&world.tree()), &Silent)
        .unwrap_or_else(|error| panic!("{what}: the next backup: {error}"));
    world.assert_holds(&repository, next.snapshot.id, &scene.now, what);
    assert_eq!(
        next.written.data_bytes + finished,
        scene.undisturbed.written.data_bytes,
        "{what}: what is on the medium is not stored again"
    );
}

/// Every plan that `plan` makes of 0, 1, 2, … until nothing fails.
fn check_each(scene: &Scene, plan: impl Fn(u64) -> FaultPlan, what: &str) {
    for at in 0.. {
        let what = format!("{what} at call {at}");
        let (objects, fired, outcome) = disturbed(scene, plan(at));
        if let Ok(outcome) = &outcome {
            // At worst, the session's object could not be removed.
            let repository = scene.world.open_over(objects.clone()).unwrap();
            scene.world.assert_holds(&repository, outcome.snapshot.id, &scene.now, &what);
        } else {
            assert!(fired > 0, "{what}: {:?}", outcome.err());
        }
        check_aftermath(scene, objects, &what);
        if fired == 0 {
            assert!(at > 10, "{what}: a backup makes some calls");
            return;
        }
    }
}

#[test]
fn a_crash_before_any_call() {
    check_each(&scene(40, false), FaultPlan::crash, "crash");
}

#[test]
fn a_crash_after_any_call() {
    check_each(&scene(41, false), FaultPlan::crash_after, "crash");
}

/// The cache outlives the crash, and knows arenas that this backend never had.
#[test]
fn a_crash_with_a_cache() {
    check_each(&scene(42, true), FaultPlan::crash, "crash with a cache");
}

#[test]
fn a_crash_while_a_repository_is_made() {
    for plan in [FaultPlan::crash, FaultPlan::crash_after] {
        for at in 0.. {
            let world = World::empty(43);
            let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan(at)));
            let made = Repository::init(world.over(faulty.clone()), PASSPHRASE, &init_options());
            if faulty.fired() == 0 {
                assert!(at > 5 && made.is_ok());
                break;
            }
            // Either it can be opened, or it can be made again.
            let again = Repository::open(world.surroundings(), PASSPHRASE)
                .or_else(|_| Repository::init(world.surroundings(), PASSPHRASE, &init_options()));
            let repository = again.unwrap_or_else(|error| panic!("crash at call {at}: {error}"));
            let id = repository.config.id;
            assert_eq!(world.open().config.id, id);
        }
    }
}

/// A crash in the middle of a local write leaves at most a temporary file.
#[test]
fn what_the_dead_left_in_a_folder_is_swept() {
    let world = World::new(44);
    let folder = world.folder.path().join("repository");
    let backend = Arc::new(strongroom_backend::LocalBackend::create(&folder).unwrap());
    let repository =
        Repository::init(world.over(backend.clone()), PASSPHRASE, &init_options()).unwrap();
    run(&repository, &options(&world.tree()), &Silent).unwrap();
    let uname = rustix::system::uname();
    let machine = uname.nodename().to_str().unwrap().replace(|c: char| !c.is_alphanumeric(), "");
    let leftover = folder.join(format!("arenas/.tmp-{machine}-1-1"));
    std::fs::write(&leftover, b"half an arena").unwrap();
    let outcome = run(&repository, &options(&world.tree()), &Silent).unwrap();
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), "beside a leftover");
    backend.sweep().unwrap();
    assert!(!leftover.exists());
}
