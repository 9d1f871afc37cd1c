//! A machine that backs up with a put-only key: what it remembers, who else can read that, and what
//! it costs when it is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaError, ArenaName, ArenaStore, CacheLimits};
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Cancel, Silent};
use strongroom_engine::BackupOutcome;
use strongroom_repository::{
    ChunkReader, OwnRecord, Repository, RepositoryError, Surroundings, list_snapshots,
    snapshot_object,
};
use strongroom_testkit::{CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, Listener};
use strongroom_upkeep::{NewAccess, VerifyDepth, add_key, plan_repair, repair, verify};

use crate::world::{LAPTOP, World, options, run};

/// A world with a put-only key of the domain "laptop".
fn world(seed: u64) -> World {
    let world = World::quiet(seed).with_cache();
    add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    world
}

fn laptop(world: &World) -> Repository {
    Repository::open(world.surroundings(), LAPTOP).unwrap()
}

/// Another machine of the same domain, which has a cache of its own.
fn other_machine(world: &World) -> Repository {
    let cache = world.folder.path().join("another cache");
    fs::create_dir_all(&cache).unwrap();
    let cache = Some(cache);
    Repository::open(Surroundings { cache, ..world.surroundings() }, LAPTOP).unwrap()
}

fn back_up(world: &World, repository: &Repository) -> BackupOutcome {
    run(repository, &options(&world.tree()), &Silent).unwrap()
}

/// Backs up an unchanged tree with a put-only key, and asserts that the machine had a parent and
/// took every file over from it.
#[track_caller]
fn takes_all_over(world: &World, repository: &Repository) -> BackupOutcome {
    let outcome = back_up(world, repository);
    assert!(outcome.snapshot.parent.is_some(), "it has no parent");
    assert_eq!((outcome.files_new, outcome.files_changed), (0, 0));
    assert!(outcome.files_unchanged > 20, "{}", outcome.files_unchanged);
    assert_eq!(outcome.written.data_chunks, 0, "a file was read");
    outcome
}

/// The same, and asserts that every file was read and nothing of it stored.
#[track_caller]
fn reads_all_again(world: &World, repository: &Repository) -> BackupOutcome {
    let outcome = back_up(world, repository);
    assert_eq!((outcome.snapshot.parent, outcome.files_unchanged), (None, 0));
    assert!(outcome.written.data_chunks > 20);
    assert_eq!(outcome.written.data_chunks_new, 0);
    outcome
}

/// The file in which a machine remembers its backups.
fn record_file(repository: &Repository) -> PathBuf {
    repository.cache_folder().unwrap().join("own")
}

fn arenas(repository: &Repository) -> Vec<ArenaId> {
    let listed = repository.backend().list("arenas").unwrap();
    listed.iter().map(|info| ArenaName::of(&info.name).unwrap().id).collect()
}

/// How many arenas a store can read blocks of.
fn readable(store: &ArenaStore, arenas: &[ArenaId]) -> usize {
    let is_readable = |id: &&ArenaId| match store.arena(**id) {
        Ok(arena) => match store.block(&arena, 0) {
            Ok(_) => true,
            Err(ArenaError::PutOnly) => false,
            Err(error) => panic!("{error}"),
        },
        Err(ArenaError::Foreign { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    arenas.iter().filter(is_readable).count()
}

#[test]
fn engine_13_a_put_only_machine_takes_over_what_did_not_change() {
    let world = world(500);
    let first = back_up(&world, &laptop(&world));
    assert_eq!(first.snapshot.parent, None);
    let second = takes_all_over(&world, &laptop(&world));
    assert_eq!(second.snapshot.parent, Some(first.snapshot.id));
    assert_eq!(second.written.metadata_chunks_new, 0);
    assert_eq!(second.snapshot.sequence, first.snapshot.sequence + 1);
    let third = takes_all_over(&world, &laptop(&world));
    assert_eq!(third.snapshot.parent, Some(second.snapshot.id));
    world.assert_holds(&world.open(), third.snapshot.id, &world.image(), "the third");
}

#[test]
fn engine_13_a_put_only_machine_stores_deltas() {
    let world = world(501);
    let file = world.tree().join("edited");
    let noise = |seed: u64| -> Vec<u8> {
        let mut bytes = vec![0; 300 << 10];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    };
    let mut bytes = noise(1);
    fs::write(&file, &bytes).unwrap();
    back_up(&world, &laptop(&world));
    let mut kept = Vec::new();
    // Deltas of whole chunks, then chunks whose parent is a delta.
    for round in 0..3_u8 {
        for chunk in bytes.chunks_mut(32 << 10) {
            chunk[usize::from(round)] ^= 0xff;
        }
        fs::write(&file, &bytes).unwrap();
        let outcome = back_up(&world, &laptop(&world));
        let written = outcome.written;
        assert_eq!(outcome.files_changed, 1);
        assert!(written.deltas >= 10, "{written:?}");
        assert!(written.stored_bytes < 40 << 10, "{written:?}");
        kept.push((outcome.snapshot.id, world.image()));
    }
    let owner = world.open();
    for (id, image) in &kept {
        world.assert_holds(&owner, *id, image, "a version of the file");
    }
    let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.faults);
}

#[test]
fn engine_13_a_changed_tree_is_compared_with_the_parent() {
    let world = world(502);
    back_up(&world, &laptop(&world));
    let mut kept = Vec::new();
    for seed in 1..=6 {
        world.mutate(seed);
        let outcome = back_up(&world, &laptop(&world));
        assert!(outcome.files_unchanged > 0);
        kept.push((outcome.snapshot.id, world.image()));
    }
    let owner = world.open();
    for (id, image) in &kept {
        world.assert_holds(&owner, *id, image, "one of a series");
    }
}

/// The keys are kept for backups: nothing else may read with them.
#[test]
fn what_is_kept_serves_backups_alone() {
    let world = world(503);
    back_up(&world, &laptop(&world));
    let repository = laptop(&world);
    let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default());
    assert!(matches!(reader, Err(RepositoryError::PutOnly)));
    assert!(matches!(list_snapshots(&repository), Err(RepositoryError::PutOnly)));
    let store = repository.arena_store(CacheLimits::default());
    assert_eq!(readable(&store, &arenas(&repository)), 0);
}

/// A thief of the passphrase has no record; a thief of the cache as well reads what the machine's
/// last snapshots depend on, and nothing of others.
#[test]
fn a_thief_reads_what_the_machine_kept_and_no_more() {
    let world = world(504);
    let owner = back_up(&world, &world.open()).written.arenas as usize;
    let laptop_arenas = back_up(&world, &laptop(&world)).written.arenas as usize;
    world.mutate(1);
    let others = back_up(&world, &other_machine(&world)).written.arenas as usize;
    let thief = other_machine(&world);
    let all = arenas(&thief);
    assert_eq!(all.len(), owner + laptop_arenas + others);
    let with = |record: &OwnRecord| {
        thief.arena_store(CacheLimits::default()).with_secrets(record.secrets())
    };
    fs::remove_dir_all(world.folder.path().join("another cache")).unwrap();
    assert_eq!(readable(&with(&OwnRecord::read(&thief, &Silent)), &all), 0, "no cache");
    let stolen = OwnRecord::read(&laptop(&world), &Silent);
    assert_eq!(readable(&with(&stolen), &all), laptop_arenas);
}

/// A tree of another machine of the domain is there, and cannot be read by this one.
#[test]
fn trees_of_another_machine_of_the_domain_are_stored_again() {
    let world = world(505);
    back_up(&world, &other_machine(&world));
    let first = back_up(&world, &laptop(&world));
    assert_eq!(first.written.data_chunks_new, 0, "data is deduplicated");
    assert!(first.written.metadata_chunks_new > 0, "trees are not");
    for _ in 0..2 {
        let again = takes_all_over(&world, &laptop(&world));
        assert_eq!(again.written.metadata_chunks_new, 0);
        world.assert_holds(&world.open(), again.snapshot.id, &world.image(), "again");
    }
    takes_all_over(&world, &other_machine(&world));
}

#[test]
fn a_lost_cache_costs_reading() {
    let world = world(506);
    back_up(&world, &laptop(&world));
    fs::remove_dir_all(world.cache.as_ref().unwrap()).unwrap();
    let listener = Listener::new();
    let outcome = run(&laptop(&world), &options(&world.tree()), &listener).unwrap();
    assert_eq!(outcome.files_unchanged, 0);
    assert_eq!(outcome.written.data_chunks_new, 0);
    let said = listener.details().iter().any(|line| line.contains("every file is read"));
    assert!(said, "{:?}", listener.details());
    takes_all_over(&world, &laptop(&world));
}

#[test]
fn a_damaged_record_or_that_of_another_repository_costs_reading() {
    let world = world(507);
    back_up(&world, &laptop(&world));
    let file = record_file(&laptop(&world));
    let whole = fs::read(&file).unwrap();
    let other = world_beside(508);
    back_up(&other, &laptop(&other));
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for wrong in [flipped, whole[..whole.len() / 2].to_vec(), Vec::new(), {
        fs::read(record_file(&laptop(&other))).unwrap()
    }] {
        fs::write(&file, &wrong).unwrap();
        reads_all_again(&world, &laptop(&world));
        takes_all_over(&world, &laptop(&world));
    }
}

/// A world beside a quiet one.
fn world_beside(seed: u64) -> World {
    let world = World::new(seed).with_cache();
    add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    world
}

/// An old record knows neither the last snapshot nor its secret.
#[test]
fn an_old_record_leads_to_an_older_parent() {
    let world = world(509);
    let first = back_up(&world, &laptop(&world));
    let file = record_file(&laptop(&world));
    let old = fs::read(&file).unwrap();
    world.mutate(1);
    let second = back_up(&world, &laptop(&world));
    fs::write(&file, old).unwrap();
    let third = back_up(&world, &laptop(&world));
    assert_eq!(third.snapshot.parent, Some(first.snapshot.id));
    assert_eq!(third.snapshot.sequence, second.snapshot.sequence + 1);
    assert_eq!(third.written.data_chunks_new, 0);
    takes_all_over(&world, &laptop(&world));
    world.assert_holds(&world.open(), third.snapshot.id, &world.image(), "the third");
}

/// Backs up, and cannot commit.
fn abort_a_backup(world: &World) {
    let creates = Calls::of(&[CallKind::Create]).within("snapshots");
    let plan = FaultPlan::lasting(creates, 0, FaultKind::NoSpace);
    let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan));
    let repository = Repository::open(world.over(faulty), LAPTOP).unwrap();
    run(&repository, &options(&world.tree()), &Silent).unwrap_err();
}

/// What a session has stored that never committed can be read and built upon.
#[test]
fn what_an_aborted_session_stored_is_built_upon() {
    let world = world(510);
    abort_a_backup(&world);
    let outcome = back_up(&world, &laptop(&world));
    assert_eq!(outcome.written.data_chunks_new, 0);
    assert_eq!(outcome.written.metadata_chunks_new, 0, "its trees can be read");
    takes_all_over(&world, &laptop(&world));
    assert_eq!(OwnRecord::read(&laptop(&world), &Silent).sessions.len(), 1);
}

/// What it stored as deltas is readable only together with the bases, which nothing else needs.
#[test]
fn deltas_of_an_aborted_session_are_built_upon() {
    let world = world(517);
    fs::remove_dir_all(world.tree()).unwrap();
    fs::create_dir(world.tree()).unwrap();
    for number in 0..40 {
        fs::write(world.tree().join(number.to_string()), b"").unwrap();
    }
    back_up(&world, &laptop(&world));
    strongroom_testkit::tree::set_mtime(&world.tree().join("20"), 77, 7);
    abort_a_backup(&world);
    let outcome = back_up(&world, &laptop(&world));
    assert_eq!(outcome.written.metadata_chunks_new, 0, "its trees can be read");
    takes_all_over(&world, &laptop(&world));
    takes_all_over(&world, &laptop(&world));
}

/// What a snapshot needs may be removed as soon as it is.
#[test]
fn a_removed_snapshot_is_no_parent() {
    let world = world(511);
    let first = back_up(&world, &laptop(&world));
    world.objects.remove(&snapshot_object(first.snapshot.id)).unwrap();
    reads_all_again(&world, &laptop(&world));
    takes_all_over(&world, &laptop(&world));
}

#[test]
fn each_set_of_paths_has_its_parent() {
    let world = world(512);
    let other = world.tree().join("level0");
    assert!(other.is_dir());
    let back_up_other = || run(&laptop(&world), &options(&other), &Silent).unwrap();
    let first = back_up(&world, &laptop(&world));
    let first_other = back_up_other();
    assert_eq!(first_other.snapshot.parent, None);
    let second = takes_all_over(&world, &laptop(&world));
    assert_eq!(second.snapshot.parent, Some(first.snapshot.id));
    let second_other = back_up_other();
    assert_eq!(second_other.snapshot.parent, Some(first_other.snapshot.id));
    assert_eq!(second_other.written.data_chunks, 0);
    assert_eq!(OwnRecord::read(&laptop(&world), &Silent).snapshots.len(), 2);
}

#[test]
fn with_force_every_file_is_read_and_nothing_stored() {
    let world = world(513);
    back_up(&world, &laptop(&world));
    let mut forced = options(&world.tree());
    forced.force = true;
    let outcome = run(&laptop(&world), &forced, &Silent).unwrap();
    assert_eq!(outcome.files_unchanged, 0);
    assert!(outcome.written.data_chunks > 20);
    assert_eq!((outcome.written.data_chunks_new, outcome.written.metadata_chunks_new), (0, 0));
    let mut dry = options(&world.tree());
    dry.dry_run = true;
    let before = fs::read(record_file(&laptop(&world))).unwrap();
    let outcome = run(&laptop(&world), &dry, &Silent).unwrap();
    assert_eq!(outcome.written.data_chunks, 0, "a dry run has a parent too");
    assert_eq!(fs::read(record_file(&laptop(&world))).unwrap(), before, "and leaves no trace");
}

/// A rescue rewrites an arena with its key, its slots and its session.
#[test]
fn a_rescued_arena_can_still_be_read() {
    let world = world(514);
    back_up(&world, &laptop(&world));
    let ids = arenas(&world.open());
    let victim = ids.iter().find(|id| ArenaContent::of(**id) == ArenaContent::Data).unwrap();
    let name = ArenaName { id: *victim, generation: 0 }.object();
    let bytes = world.objects.size(&name).unwrap() as usize;
    let mut object = world.objects.read(&name, 0, bytes).unwrap();
    // More than parity gives back.
    object[bytes / 5..bytes / 2].fill(0);
    world.objects.replace(&name, &object).unwrap();
    let owner = world.open();
    let plan = plan_repair(owner.backend(), &Silent, &Cancel::new()).unwrap();
    let repaired = repair(&owner, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!(repaired.rescued, 1);
    let outcome = back_up(&world, &laptop(&world));
    assert!(outcome.files_unchanged > 0 && outcome.written.data_chunks_new > 0);
    let own = OwnRecord::read(&laptop(&world), &Silent);
    let store = laptop(&world).arena_store(CacheLimits::default()).with_secrets(own.secrets());
    assert!(store.arena(*victim).unwrap().generation > 0);
    assert_eq!(readable(&store, &[*victim]), 1);
    let last = takes_all_over(&world, &laptop(&world));
    world.assert_holds(&world.open(), last.snapshot.id, &world.image(), "after the rescue");
}

/// Full keys remember the last sequence and snapshot.
#[test]
fn a_full_key_remembers_its_last_snapshot() {
    let world = world(516);
    let outcome = back_up(&world, &world.open());
    let record = OwnRecord::read(&world.open(), &Silent);
    assert_eq!(record.newest, Some(outcome.snapshot.id));
    assert_eq!(record.sequence, outcome.snapshot.sequence);
    assert!(record.snapshots.is_empty() && record.sessions.is_empty());
    assert!(Path::new(&record_file(&world.open())).exists());
}
