//! Verify finds each damage, and names exactly the files that hang on it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_engine::{Affected, VerifyDepth, VerifyOutcome, verify, verify_objects};
use strongroom_repository::{Repository, read_snapshot};
use strongroom_testkit::Change;

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

/// True where a set names a path, or a directory above it.
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
    let arenas = strongroom_testkit::damage::names_in(&world.objects.snapshot(), "arenas").len();
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
        // What a repair can still save may or may not be said to be lost; data is not.
        let (_, saved, _) = crate::repair::repaired(&scene.world, objects);
        let (lost, unreadable) = (lost(&saved, &ids), lost(&repository, &ids));
        let named = named(&outcome.affected);
        assert!(lost.iter().all(|path| covers(&named, path)), "{what}: {lost:?}, not {named:?}");
        assert!(named.iter().all(|path| covers(&unreadable, path)), "{what}: {named:?}");
        // Names that were swapped are swapped back.
        if structure == Structure::DataArena && change != Change::Swapped {
            assert_eq!(named, lost, "{what}");
        }
        files += lost.len();
    });
    assert!(files > 20, "some damage costs files");
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
