//! What a lost node of a recipe costs: what it names, and nothing behind that (docs/format/recipe.md).

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaName};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent};
use strongroom_catalog::{ChunkRef, Recipe, RecipeReader};
use strongroom_engine::{
    ByteRange, DumpFormat, DumpPart, cat_range, dump, read_disk, restore_disk,
};
use strongroom_repository::{Found, StoredDisk, find_path, read_snapshot};
use strongroom_testkit::Random;
use strongroom_testkit::damage::names_in;

use crate::restore::{into, run_restore};
use crate::world::{World, options, reader_of_everything, run};

const BYTES: usize = 2 << 20;
/// What the second version changes.
const CHANGED: std::ops::Range<usize> = 1_200_000..1_201_000;

/// The bytes that differ from what was stored; each must be a zero.
fn missing(given: &[u8], stored: &[u8], when: &str) -> usize {
    assert_eq!(given.len(), stored.len(), "{when}");
    let differing = || given.iter().zip(stored).filter(|(given, stored)| given != stored);
    assert!(differing().all(|(given, _)| *given == 0), "{when}: zeros for what is lost");
    differing().count()
}

#[test]
fn what_is_behind_a_lost_node_is_given() {
    let mut world = World::bare(640);
    world.limits.recipe_refs_max = 1;
    (world.limits.node_refs_min, world.limits.node_refs_max) = (2, 2);
    let mut bytes = Random::new(640).noise(BYTES);
    world.write("long", &bytes);
    // A node may be a delta against one that is lost; none is here.
    let mut options = options(&world.tree());
    options.pack.deltas = false;
    run(&world.open(), &options, &Silent).unwrap();
    let of_first = world.objects.snapshot();
    Random::new(641).fill(&mut bytes[CHANGED]);
    world.write("long", &bytes);
    let id = run(&world.open(), &options, &Silent).unwrap().snapshot.id;
    let whole = world.objects.snapshot();
    let is_metadata = |name: &ObjectName| {
        ArenaContent::of(ArenaName::of(name).unwrap().id) == ArenaContent::Metadata
    };
    let path = world.tree().join("long").as_os_str().as_bytes().to_vec();
    let arenas: Vec<_> = names_in(&of_first, "arenas").into_iter().filter(is_metadata).collect();
    let mut costs = Vec::new();
    for name in arenas {
        world.objects = Arc::new(MemoryBackend::from_snapshot(whole.clone()));
        world.objects.remove(&name).unwrap();
        let when = format!("without {name}");
        let repository = world.open();
        let snapshot = read_snapshot(&repository, id).unwrap();
        let reader = reader_of_everything(&repository);
        let Found::Entry { entry, .. } = find_path(&snapshot, &path, &reader).unwrap() else {
            panic!("a file is an entry")
        };

        let target = world.folder.path().join("target");
        let outcome = run_restore(&repository, id, &into(&world.tree(), &target)).unwrap();
        if outcome.damaged.is_empty() {
            fs::remove_dir_all(&target).unwrap();
            continue;
        }
        assert_eq!(outcome.damaged, [target.join("long")], "{when}");
        let salvage = fs::read(target.join("long.damaged")).unwrap();
        let lost = missing(&salvage, &bytes, &when);
        assert!(salvage[CHANGED] == bytes[CHANGED], "{when}: what is behind is here");
        fs::remove_dir_all(&target).unwrap();

        let mut archive = Vec::new();
        let part = DumpPart { path: &path, filter: None };
        let dumped = dump(
            &repository,
            &snapshot,
            part,
            DumpFormat::Tar,
            &mut archive,
            &Silent,
            &Cancel::new(),
        );
        assert_eq!(dumped.unwrap().damaged.len(), 1, "{when}");
        let begin = archive.windows(1000).position(|window| *window == bytes[CHANGED]);
        let begin = begin.expect("what is behind is in the archive") - CHANGED.start;
        assert_eq!(missing(&archive[begin..begin + BYTES], &bytes, &when), lost, "{when}");

        // Of a range, only what is in it has to be whole.
        let range = ByteRange { offset: CHANGED.start as u64, length: Some(1000) };
        let mut given = Vec::new();
        cat_range(&repository, &snapshot, &path, range, &mut given).unwrap();
        assert!(given == bytes[CHANGED], "{when}");

        // A disk is a stream like any other.
        let content = entry.content().unwrap().clone();
        let disk = StoredDisk { path: path.clone(), domain: String::new(), content };
        let file = tempfile::tempfile().unwrap();
        let outcome = restore_disk(&repository, &disk, &file, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.bytes_lost >= lost as u64, "{when}");
        let mut given = vec![1; BYTES];
        file.read_exact_at(&mut given, 0).unwrap();
        assert_eq!(missing(&given, &bytes, &when), lost, "{when}");
        let mut given = vec![0; BYTES];
        let mut write = |offset: u64, bytes: &[u8]| {
            given[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let read = read_disk(&repository, &disk, &mut write, &Silent, &Cancel::new()).unwrap();
        assert_eq!(read.bytes_lost, outcome.bytes_lost, "{when}");
        assert_eq!(missing(&given, &bytes, &when), lost, "{when}");
        costs.push(lost);
    }
    assert!(costs.iter().any(|lost| *lost > 100_000), "nodes were lost: {costs:?}");
}

/// A reference that says another length than its chunk has: what it says is lost, and nothing is written
/// outside of that.
#[test]
fn a_reference_of_another_length_is_no_gap() {
    let world = World::bare(642);
    let bytes = Random::new(642).noise(BYTES);
    world.write("long", &bytes);
    let repository = world.open();
    let snapshot = run(&repository, &options(&world.tree()), &Silent).unwrap().snapshot;
    let path = world.tree().join("long").as_os_str().as_bytes().to_vec();
    let reader = reader_of_everything(&repository);
    let Found::Entry { entry, .. } = find_path(&snapshot, &path, &reader).unwrap() else {
        panic!("a file is an entry")
    };
    let mut recipe = RecipeReader::new(entry.content().unwrap(), &reader);
    let (_, first) = recipe.next_chunk().unwrap().unwrap();
    let (at, second) = recipe.next_chunk().unwrap().unwrap();
    let behind = &bytes[at as usize..][..second.stream_bytes as usize];
    for said in [0, 1, first.stream_bytes - 1, first.stream_bytes + 1, first.stream_bytes * 3] {
        for refs in [
            vec![ChunkRef { stream_bytes: said, ..first }, second],
            vec![second, ChunkRef { stream_bytes: said, ..first }],
        ] {
            let content = Recipe { depth: 0, refs };
            let is_first = content.refs[1] == second;
            let begin = if is_first { said } else { 0 } as usize;
            let end = (said + second.stream_bytes) as usize;
            let when = format!("{said}, first: {is_first}");
            let mut expected = vec![0x5c; end];
            expected[begin..begin + behind.len()].copy_from_slice(behind);
            let disk = StoredDisk { path: path.clone(), domain: String::new(), content };
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![0x5c; end], 0).unwrap();
            let outcome = restore_disk(&repository, &disk, &file, &Silent, &Cancel::new()).unwrap();
            assert!(outcome.is_damaged(), "{when}");
            assert_eq!(outcome.bytes_lost, said, "{when}");
            assert_eq!(file.metadata().unwrap().len(), end as u64, "{when}");
            let mut given = vec![0; end];
            file.read_exact_at(&mut given, 0).unwrap();
            assert!(given == expected, "{when}");

            let mut given = Vec::new();
            let mut write = |offset: u64, bytes: &[u8]| {
                given.push((offset, bytes.to_vec()));
                Ok(())
            };
            let read = read_disk(&repository, &disk, &mut write, &Silent, &Cancel::new()).unwrap();
            assert!(read.is_damaged() && read.bytes_lost == said, "{when}");
            assert_eq!(given, [(begin as u64, behind.to_vec())], "{when}");
        }
    }
}
