//! Verify finds each damage, and names exactly the files that depend on it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strongroom_arena::envelope::{self, format::HEADER_BYTES};
use strongroom_arena::format::{ArenaHead, SUMMARY_START};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_repository::{Repository, read_snapshot};
use strongroom_testkit::Change;
use strongroom_testkit::damage::names_in;
use strongroom_upkeep::{Affected, VerifyDepth, VerifyOutcome, verify, verify_objects};

use crate::damage::{Structure, each_damage, scene};
use crate::read_back::lost_paths;
use crate::world::World;

pub fn check_all(repository: &Repository) -> VerifyOutcome {
    verify(repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap()
}

/// What an outcome names, by snapshot.
pub fn named(affected: &[Affected]) -> BTreeSet<(SnapshotId, PathBuf)> {
    affected.iter().map(|affected| (affected.snapshot, affected.path.clone())).collect()
}

/// What cannot be read, by snapshot, as a plain reader finds it.
pub fn lost(repository: &Repository, ids: &[SnapshotId]) -> BTreeSet<(SnapshotId, PathBuf)> {
    let mut all = BTreeSet::new();
    for id in ids {
        if read_snapshot(repository, *id).is_ok() {
            all.extend(lost_paths(repository, *id).into_iter().map(|path| (*id, path)));
        }
    }
    all
}

/// True if a set names a path, or a directory above it.
pub fn covers(set: &BTreeSet<(SnapshotId, PathBuf)>, (id, path): &(SnapshotId, PathBuf)) -> bool {
    path.ancestors().any(|above| set.contains(&(*id, above.to_owned())))
}

#[test]
fn what_is_sound_is_found_sound() {
    let world = World::new(160);
    for version in 0..3 {
        world.backup();
        world.mutate(version);
    }
    let repository = world.open();
    let sample = |turn| VerifyDepth::Sample { percent: 30, turn };
    for depth in [VerifyDepth::Structure, sample(0), sample(1), VerifyDepth::Data] {
        let outcome = verify(&repository, depth, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.is_sound(), "{depth:?}: {:?}", outcome.faults);
        assert_eq!(outcome.snapshots, 3);
        let keyless = verify_objects(repository.backend(), depth, &Silent, &Cancel::new()).unwrap();
        assert!(keyless.is_sound());
        assert_eq!(keyless.objects, outcome.objects);
    }
}

#[test]
fn all_samples_together_are_everything() {
    let world = World::new(161);
    world.backup();
    let repository = world.open();
    let mut read = 0;
    for turn in 0..4 {
        let depth = VerifyDepth::Sample { percent: 25, turn };
        let structure =
            verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
        let outcome = verify(&repository, depth, &Silent, &Cancel::new()).unwrap();
        read += outcome.objects_read - structure.objects_read;
    }
    let arenas = names_in(&world.objects.snapshot(), "arenas").len();
    assert_eq!(read, arenas as u64, "each arena is in one of four quarters");
}

#[test]
fn each_damage_is_found_and_its_files_named() {
    let scene = scene(162);
    let ids: Vec<SnapshotId> = scene.kept.iter().map(|(id, _)| *id).collect();
    let mut files = 0;
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let repository = scene.world.open_objects(objects).unwrap();
        let outcome = check_all(&repository);
        let keyless =
            verify_objects(repository.backend(), VerifyDepth::Data, &Silent, &Cancel::new());
        for (outcome, who) in [(&outcome, "with a key"), (&keyless.unwrap(), "without")] {
            let at_fault: BTreeSet<_> = outcome.faults.iter().map(|(name, _)| name).collect();
            // An object without a copy that is gone is missed only by what needs it.
            let untold = change == Change::Removed
                && !matches!(structure, Structure::Config | Structure::KeySlot);
            // The two copies of a small object are the same bytes.
            assert_eq!(at_fault.contains(name), !untold, "{who}, {what}");
            let most = if change == Change::Swapped { 2 } else { 1 };
            assert!(at_fault.len() <= most, "{who}, {what}: {at_fault:?}");
        }
        // Exactly what a reader loses is named, even if a repair could still save it.
        let lost = lost(&repository, &ids);
        let named = named(&outcome.affected);
        assert!(lost.iter().all(|path| covers(&named, path)), "{what}: {lost:?}, not {named:?}");
        assert!(named.iter().all(|path| covers(&lost, path)), "{what}: {named:?}");
        if structure == Structure::DataArena {
            assert_eq!(named, lost, "{what}");
        }
        files += lost.len();
    });
    assert!(files > 20, "some damage costs files");
}

/// Of an arena without a summary a repair saves every block, but no reader finds them before.
#[test]
fn what_only_a_repair_opens_is_named() {
    let world = World::new(164);
    let id = world.backup().snapshot.id;
    let base = world.objects.snapshot();
    let (mut files, mut saved) = (0, 0);
    for name in names_in(&base, "arenas") {
        let mut objects = base.clone();
        let bytes = objects.get_mut(&name).unwrap();
        let header = envelope::peek(bytes).unwrap();
        let head = ArenaHead::unpack(&bytes[HEADER_BYTES..]).unwrap();
        // The summary's first byte, and more shards than parity gives back, from the last on.
        bytes[SUMMARY_START] ^= 1;
        let summary_shards = (head.blocks_start() as usize - HEADER_BYTES) / header.shard_bytes();
        let last = header.data_shards();
        for shard in (summary_shards + 1..last).rev().take(header.parity_shards as usize) {
            bytes[HEADER_BYTES + shard * header.shard_bytes()] ^= 1;
        }
        let repository = world.open_objects(&objects).unwrap();
        let outcome = check_all(&repository);
        let lost = lost(&repository, &[id]);
        assert_eq!(named(&outcome.affected), lost, "{name}");
        files += lost.len();
        let (_, after, _) = crate::repair::repaired(&world, &objects);
        saved += lost.len().saturating_sub(self::lost(&after, &[id]).len());
    }
    assert!(files > 10 && saved > 0, "{files} files lost, {saved} saved");
}

/// The quick look finds what is cut, swapped or gone, and lost files where arenas are gone.
#[test]
fn the_structure_tells_what_is_missing() {
    let scene = scene(163);
    let ids: Vec<SnapshotId> = scene.kept.iter().map(|(id, _)| *id).collect();
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let repository = scene.world.open_objects(objects).unwrap();
        let outcome = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
        let at_ends = !matches!(change, Change::FlipBit(1..1000) | Change::Scratch(..));
        if at_ends && change != Change::Removed {
            assert!(outcome.faults.iter().any(|(other, _)| other == name), "{what}");
        }
        if change == Change::Removed {
            assert_eq!(named(&outcome.affected), lost(&repository, &ids), "{what}");
        }
    });
}
