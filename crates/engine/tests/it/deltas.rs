//! Deltas: a change costs its own size, one step deep, and nothing depends on them unnoticed.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaName, ArenaStore, CacheLimits};
use strongroom_backend::Backend;
use strongroom_base::Location;
use strongroom_base::{ArenaId, Silent};
use strongroom_engine::{BackupOptions, BackupOutcome};
use strongroom_repository::Repository;
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{CallKind, RecordingBackend, noise};

use crate::restore::{into, run_restore};
use crate::verify::check_all;
use crate::world::{World, options, run};

fn arenas(repository: &Repository, content: ArenaContent) -> (ArenaStore, Vec<ArenaId>) {
    let store = repository.arena_store(CacheLimits::default());
    let listed = repository.backend().list("arenas").unwrap();
    let ids = listed.iter().map(|info| ArenaName::of(&info.name).unwrap().id);
    (store, ids.filter(|id| ArenaContent::of(*id) == content).collect())
}

/// How many chunks are deltas; each base exists, whole, and in another arena than its delta.
#[track_caller]
fn count_deltas(world: &World) -> usize {
    let repository = world.open();
    let mut bases_of: HashMap<Location, Vec<Location>> = HashMap::new();
    for content in [ArenaContent::Data, ArenaContent::Metadata] {
        let (store, ids) = arenas(&repository, content);
        for id in ids {
            for (slot, entry) in store.arena(id).unwrap().slots() {
                bases_of.insert(Location { arena: id, slot }, entry.bases.to_vec());
            }
        }
    }
    for (delta, bases) in &bases_of {
        for base in bases {
            assert_ne!(
                base.arena, delta.arena,
                "a base existed before its delta's arena was begun"
            );
            assert_eq!(bases_of.get(base), Some(&Vec::new()), "a base is there, and whole");
        }
    }
    bases_of.values().filter(|bases| !bases.is_empty()).count()
}

fn backup_with(world: &World, change: impl Fn(&mut BackupOptions)) -> BackupOutcome {
    let mut options = options(&world.tree());
    change(&mut options);
    run(&world.open(), &options, &Silent).unwrap()
}

fn empty_world(seed: u64) -> World {
    let world = World::new(seed);
    fs::remove_dir_all(world.tree()).unwrap();
    fs::create_dir(world.tree()).unwrap();
    world
}

fn edit(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[test]
fn an_edit_costs_its_own_bytes() {
    for (seed, change) in [
        (300, (|bytes: &mut Vec<u8>| bytes[100_000] ^= 1) as fn(&mut Vec<u8>)),
        (301, |bytes| drop(bytes.splice(100_000..100_000, *b"put between"))),
        (302, |bytes| drop(bytes.drain(50_000..50_700))),
        (303, |bytes| bytes.truncate(150_001)),
        (304, |bytes| bytes.extend_from_slice(b"put behind")),
    ] {
        let world = empty_world(seed);
        let file = world.tree().join("file");
        fs::write(&file, noise(seed, 300_000)).unwrap();
        world.backup();
        edit(&file, change);
        let second = world.backup();
        let whole = second.written.data_bytes;
        assert!(second.written.deltas > 0, "{seed}: {:?}", second.written);
        // Arenas, parity and padded summaries of both kinds of arena; no chunk of 6 KiB is among
        // them.
        assert!(
            second.written.stored_bytes < 3500 + 2 * 512,
            "{seed}: {:?}, {whole}",
            second.written
        );
        world.assert_holds(&world.open(), second.snapshot.id, &world.image(), "the second");
        count_deltas(&world);
    }
}

/// An insertion moves everything after it: that is found again by the shared chunks.
#[test]
fn edits_behind_an_insertion_find_their_basis() {
    let world = empty_world(310);
    let file = world.tree().join("file");
    fs::write(&file, noise(310, 6_000_000)).unwrap();
    world.backup();
    edit(&file, |bytes| {
        for at in [5_900_000, 4_000_000, 3_000_000] {
            bytes[at] ^= 1;
        }
        bytes.splice(1_000_000..1_000_000, noise(311, 700_000));
    });
    let second = world.backup();
    let stored = second.written.stored_bytes;
    assert!((700_000..850_000).contains(&stored), "{:?}", second.written);
    world.assert_holds(&world.open(), second.snapshot.id, &world.image(), "the second");
}

/// Rows of an address and a number, as a program keeps them in memory.
fn table(address: u64) -> Vec<u8> {
    let row = |row: u64| [address + row * 96, row.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
    (0..120_000).flat_map(row).flat_map(u64::to_le_bytes).collect()
}

/// A memory image of a program that was started again: all addresses moved by one distance. No copy
/// in it is long enough to be found.
#[test]
fn values_that_change_in_place_cost_their_differences() {
    let world = empty_world(311);
    let file = world.tree().join("memory");
    let mut stored = Vec::new();
    for address in [0x7f12_3400_0000, 0x7f45_1200_0000, 0x7f9c_7700_0000] {
        fs::write(&file, table(address)).unwrap();
        let outcome = world.backup();
        stored.push(outcome.written.stored_bytes);
        world.assert_holds(&world.open(), outcome.snapshot.id, &world.image(), "a version");
    }
    // The third version's parent is itself stored as deltas.
    assert!(stored[1] < stored[0] / 10 && stored[2] < stored[0] / 10, "{stored:?}");
    count_deltas(&world);
}

/// A part of the file that is also elsewhere in the parent says nothing about what follows it.
#[test]
fn what_repeats_does_not_lead_away_from_the_place() {
    let world = empty_world(312);
    let file = world.tree().join("file");
    fs::write(&file, noise(312, 6_000_000)).unwrap();
    world.backup();
    edit(&file, |bytes| {
        let elsewhere = bytes[4_000_000..4_500_000].to_vec();
        bytes.iter_mut().step_by(5_000).for_each(|byte| *byte ^= 1);
        bytes[1_000_000..1_500_000].copy_from_slice(&elsewhere);
    });
    let second = world.backup();
    assert!(second.written.stored_bytes < 1_000_000, "{:?}", second.written);
    world.assert_holds(&world.open(), second.snapshot.id, &world.image(), "the second");
}

#[test]
fn a_moved_directory_is_known_by_its_neighbours() {
    let world = empty_world(320);
    let old = world.tree().join("old");
    fs::create_dir(&old).unwrap();
    for number in 0..40 {
        fs::write(old.join(format!("{number:02}")), noise(320 + number, 5000)).unwrap();
    }
    world.backup();
    fs::rename(&old, world.tree().join("new")).unwrap();
    for number in [7, 8, 20, 39] {
        edit(&world.tree().join(format!("new/{number:02}")), |bytes| bytes[1234] ^= 1);
    }
    let second = world.backup();
    assert_eq!(second.written.data_chunks_new, 4);
    let whole = backup_with(&world, |options| options.pack.deltas = false);
    assert_eq!(whole.written.data_chunks_new, 0, "all is known by now");
    // The neighbour of one may be the first chunk of another of these small arenas.
    assert!(second.written.deltas >= 3, "{:?}", second.written);
    world.assert_holds(&world.open(), second.snapshot.id, &world.image(), "the second");
}

#[test]
fn thirty_versions_are_one_step_deep() {
    let world = World::new(330);
    let mut kept = vec![(world.backup().snapshot.id, world.image())];
    for version in 1..30 {
        world.mutate(330 + version);
        kept.push((world.backup().snapshot.id, world.image()));
    }
    let deltas = count_deltas(&world);
    assert!(deltas > 29, "{deltas}: the root's tree is one each time");
    for (id, image) in &kept {
        world.assert_holds(&world.open(), *id, image, "one of thirty");
    }
    assert!(check_all(&world.open()).is_sound());
}

#[test]
fn restoring_reads_bases_where_it_reads_the_rest() {
    let world = empty_world(330);
    for number in 0..40 {
        fs::write(world.tree().join(format!("{number}")), noise(number, 20_000)).unwrap();
    }
    let first = world.backup();
    for number in 0..40 {
        edit(&world.tree().join(format!("{number}")), |bytes| bytes[10_000] ^= 1);
    }
    let last = world.backup();
    assert!(count_deltas(&world) >= 40);
    let bytes_read = |backup: &BackupOutcome| {
        let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
        let repository = world.open_over(recording.clone()).unwrap();
        recording.take();
        let target = tempfile::tempdir().unwrap();
        let into = into(&world.tree(), target.path());
        run_restore(&repository, backup.snapshot.id, &into).unwrap();
        let calls = recording.take();
        let of_data = calls.iter().filter(|call| {
            let name = call.name.strip_prefix("arenas/");
            let arena = name.and_then(|name| name.parse::<ArenaName>().ok());
            // Opening an arena is one read of its beginning, which is longer than these arenas.
            let is_opening = call.offset == 0;
            call.kind == CallKind::Read && !is_opening && arena.is_some_and(|a| is_data(a.id))
        });
        of_data.map(|call| call.bytes).sum::<u64>()
    };
    let (whole, deltas) = (bytes_read(&first), bytes_read(&last));
    assert!(deltas < whole * 3 / 2, "{deltas} bytes where the bases alone took {whole}");
}

fn is_data(id: ArenaId) -> bool {
    ArenaContent::of(id) == ArenaContent::Data
}

#[test]
fn without_deltas_all_is_whole() {
    let world = World::new(340);
    for version in 0..3 {
        let outcome = backup_with(&world, |options| options.pack.deltas = false);
        assert_eq!(outcome.written.deltas, 0);
        world.mutate(340 + version);
    }
    assert_eq!(count_deltas(&world), 0);
}

/// The arena of a base is lost. Files whose deltas depend on it do not count as unchanged: the next
/// backup reads them again, which heals both snapshots, even if it had the index in its cache.
#[test]
fn a_lost_base_is_noticed_and_healed() {
    for (cached, is_far) in [(false, false), (true, false), (true, true)] {
        let world = empty_world(350);
        let world = if cached { world.with_cache() } else { world };
        let world = world.far(is_far);
        let file = world.tree().join("file");
        fs::write(&file, noise(350, 300_000)).unwrap();
        let first = world.backup();
        edit(&file, |bytes| bytes[100_000] ^= 1);
        let second = world.backup();
        assert!(second.written.deltas > 0);
        let old = arenas(&world.open(), ArenaContent::Data).1;
        for id in old {
            let repository = world.open();
            let (store, _) = arenas(&repository, ArenaContent::Data);
            let has_deltas = store.arena(id).unwrap().slots().any(|(_, s)| !s.bases.is_empty());
            if !has_deltas {
                world.objects.remove(&ArenaName::first(id).object()).unwrap();
            }
        }
        let damaged = check_all(&world.open());
        assert_eq!(damaged.affected.len(), 2, "both versions of the file: {damaged:?}");
        let third = world.backup();
        assert_eq!((third.files_unchanged, third.files_changed), (0, 1), "cached: {cached}");
        let image = world.image();
        for id in [second.snapshot.id, third.snapshot.id] {
            world.assert_holds(&world.open(), id, &image, "healed");
        }
        // The first snapshot had a chunk that no longer exists anywhere.
        let lost = check_all(&world.open());
        assert!(lost.affected.iter().all(|lost| lost.snapshot == first.snapshot.id));
        let fourth = world.backup();
        assert_eq!(fourth.files_unchanged, 1);
        assert!(names_in(&world.objects.snapshot(), "arenas").len() > 2);
    }
}
