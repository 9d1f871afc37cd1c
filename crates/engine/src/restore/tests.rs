//! Files that need more than a batch may hold.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use strongroom_arena::CacheLimits;
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Fingerprint, Location, Silent};
use strongroom_catalog::ChunkRef;
use strongroom_repository::ChunkReader;
use strongroom_testkit::noise;

use super::*;
use crate::testing::{LIMITS, World};

/// Some 170 chunks: four batches.
const LONG: usize = 1 << 20;

fn into(world: &World, target: &Path) -> RestoreOptions {
    RestoreOptions {
        filter: None,
        path: world.path(),
        place: RestorePlace::Into(target.to_owned()),
        target: TargetOptions::default(),
        kept: Vec::new(),
        dry_run: false,
        verify: true,
        workers: 2,
    }
}

fn run(world: &World, snapshot: &Snapshot, options: &RestoreOptions) -> RestoreOutcome {
    restore(&world.repository, snapshot, options, &Silent, &Cancel::new()).unwrap()
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn a_file_of_many_batches_is_written_in_parts() {
    let world = World::new();
    let long = noise(1, LONG);
    world.write("before", b"short");
    world.write("long", &long);
    world.write("then", b"short, too");
    let snapshot = world.backup();
    let target = world.folder.path().join("target");
    for patch in [false, true] {
        let mut options = into(&world, &target);
        options.target.patch = patch;
        let fresh = run(&world, &snapshot, &options);
        assert_eq!((fresh.problems, fresh.files), (0, 3));
        assert!(fs::read(target.join("long")).unwrap() == long, "fresh");
        // Wrong in the first part, in the last, and too long.
        let file = fs::File::options().write(true).open(target.join("long")).unwrap();
        file.write_all_at(b"wrong", 5000).unwrap();
        file.write_all_at(b"wrong, and behind the end", LONG as u64 - 5).unwrap();
        let over = run(&world, &snapshot, &options);
        assert_eq!((over.problems, over.files_right), (0, 2));
        assert!((1..100_000).contains(&over.bytes_written), "{over:?}");
        assert!(fs::read(target.join("long")).unwrap() == long, "over a wrong one");
        let again = run(&world, &snapshot, &options);
        assert_eq!((again.problems, again.files_right, again.bytes_written), (0, 3, 0));
        assert_eq!(names(&target), ["before", "long", "then"].map(PathBuf::from));
        fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn what_is_lost_of_any_part_is_a_hole_in_the_recovered_parts() {
    let world = World::new();
    let long = noise(2, LONG);
    world.write("long", &long);
    let snapshot = world.backup();
    let target = world.folder.path().join("target");
    let arenas = world.objects.list("arenas").unwrap();
    let data = arenas.iter().map(|object| &object.name).filter(|it| it.file().as_bytes()[0] < b'8');
    for arena in data.skip(3).step_by(9) {
        world.remove(arena);
    }
    fs::create_dir(&target).unwrap();
    fs::write(target.join("long"), "mine").unwrap();
    let outcome = run(&world, &snapshot, &into(&world, &target));
    assert_eq!(outcome.damaged, [target.join("long")]);
    assert_eq!(fs::read(target.join("long")).unwrap(), b"mine");
    assert_eq!(names(&target), ["long", "long.damaged"].map(PathBuf::from));
    let salvage = fs::read(target.join("long.damaged")).unwrap();
    assert_eq!(salvage.len(), LONG);
    let lost = salvage.iter().zip(&long).filter(|(one, other)| one != other);
    assert!(lost.clone().all(|(salvaged, _)| *salvaged == 0));
    assert!((1000..LONG / 2).contains(&lost.count()));
}

#[test]
fn a_recipe_cannot_make_a_batch_grow() {
    let world = World::new();
    let reader = ChunkReader::of_domain(&world.repository, "", CacheLimits::default()).unwrap();
    let chunk = ChunkRef {
        fingerprint: Fingerprint([7; 32]),
        location: Location { arena: ArenaId::ZERO, slot: 0 },
        stream_bytes: 10,
    };
    let entry = |refs: Vec<ChunkRef>, size: u64| Entry {
        name: b"file".to_vec(),
        kind: EntryKind::File { content: Recipe { depth: 0, refs } },
        metadata: Metadata { size, ..Metadata::default() },
    };
    let parts = |entry: Entry| {
        let mut file = PendingFile::new(DirectoryId::ROOT, entry, Making::Fresh, &reader);
        let (mut parts, mut is_lost) = (1, false);
        let mut batch = Batch::default();
        while !batch.add(&mut file, &LIMITS).unwrap() {
            assert!(batch.is_full(&LIMITS));
            is_lost |= batch.first_loss().is_some();
            batch = Batch::default();
            parts += 1;
        }
        (parts, is_lost || batch.first_loss().is_some())
    };
    let holes = vec![ChunkRef::hole(10); 2 * LIMITS.batch_wants_max];
    for many in [vec![chunk; 2 * LIMITS.batch_wants_max], holes] {
        assert_eq!(parts(entry(many, 20 * LIMITS.batch_wants_max as u64)), (3, false));
    }
    assert_eq!(
        parts(entry(vec![chunk; 2 * LIMITS.batch_wants_max], 10)),
        (1, true),
        "it promises more"
    );
    let nothing = ChunkRef { stream_bytes: 0, ..chunk };
    assert_eq!(
        parts(entry(vec![nothing; 2 * LIMITS.batch_wants_max], 0)),
        (3, true),
        "chunks of no bytes"
    );
}

/// Metadata of all directories, and further names of files, were gathered until enough files or
/// chunks had come; and each directory was known to the end.
#[test]
fn engine_22_directories_and_names_are_put_back_as_the_walk_leaves_them() {
    let world = World::new();
    let mtime = |number: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(number);
    let deep = |number: u64| format!("{}/{}/{number}", number % 3, number % 50);
    let folder = |number: u64| world.tree().join(deep(number));
    (0..450).for_each(|number| fs::create_dir_all(folder(number)).unwrap());
    world.write("0/first", b"one file");
    for number in 0..450 {
        fs::hard_link(world.tree().join("0/first"), folder(number).join("name")).unwrap();
    }
    for number in 0..450 {
        fs::File::open(folder(number)).unwrap().set_modified(mtime(number + 1)).unwrap();
    }
    let snapshot = world.backup();
    let target = world.folder.path().join("target");
    // Restoring asserts that no directory is held in the end.
    let outcome = run(&world, &snapshot, &into(&world, &target));
    assert_eq!((outcome.problems, outcome.files), (0, 451));
    strongroom_testkit::assert_same(&world.tree(), &target);
    for number in 0..450 {
        let stat = target.join(deep(number)).metadata().unwrap();
        assert_eq!(stat.modified().unwrap(), mtime(number + 1));
    }
}
