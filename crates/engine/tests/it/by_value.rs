//! Repositories that compare by value (Foundation §3): what has the tag of a chunk is read and
//! compared, and recipes name places alone.
//!
//! The model (`model.rs`) takes every third seed by value, and one of two of those with tags of one
//! byte, which most chunks share.

use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;

use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaName, ArenaSeed, BlockDraft, BlockSealer, CacheLimits,
    CompressionLevel, Finishing, Origin, Redundancy, StoredChunk, SummarySlot,
};
use strongroom_backend::Backend;
use strongroom_base::keys::TAG_BYTES;
use strongroom_base::{ArenaId, Cancel, Entropy, SeededEntropy, Silent};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{Part, WriteChunk};
use strongroom_engine::BackupOptions;
use strongroom_repository::{
    ChunkReader, ChunkWriter, Found, PackOptions, Repository, RepositoryError, Session,
    SnapshotEvent, SnapshotWalk,
};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::noise;
use strongroom_testkit::tree::grow;
use strongroom_upkeep::{VerifyDepth, defragment, verify};

use crate::world::{LAPTOP, TREE, World, options, pack, run};

fn grown(seed: u64, tag_bytes: usize) -> World {
    let world = World::by_value(seed, tag_bytes).with_cache();
    grow(&world.tree(), seed, TREE);
    world
}

#[track_caller]
fn check_sound(repository: &Repository) {
    let outcome = verify(repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.is_sound(), "{:?}, {:?}", outcome.faults, outcome.affected);
}

/// Every chunk that a snapshot names, of its trees and of its files, is named by its place.
#[test]
fn recipes_have_locations_alone() {
    let world = grown(1300, TAG_BYTES);
    let snapshot = world.backup().snapshot;
    let reader = ChunkReader::of_domain(&world.open(), "", CacheLimits::default()).unwrap();
    let mut walk = SnapshotWalk::new(&Found::root(&snapshot), &reader, &Cancel::new());
    let (mut chunks, mut levels) = (0, 0);
    while let Some(event) = walk.next().unwrap() {
        let recipe = match event {
            SnapshotEvent::Enter(directory) => Some(directory.tree),
            SnapshotEvent::Leaf { entry, .. } => entry.content(),
            _ => None,
        };
        let Some(recipe) = recipe else { continue };
        for_each_chunk(recipe, &reader, &mut |chunk, level| {
            assert!(chunk.is_named_by_place(), "{chunk:?}");
            chunks += 1;
            levels = levels.max(level);
            Ok::<_, RepositoryError>(Visit::Into)
        })
        .unwrap();
    }
    assert!(chunks > 50, "{chunks}");
    assert!(levels > 0, "the large file has nodes");
}

/// A second backup of what was read again stores nothing, from any place of the pipeline: chunks
/// that are on the medium, and those of the same backup that are in the next block, in an arena
/// that is built, or in one that is being written.
#[test]
fn what_is_the_same_is_stored_once() {
    for block_bytes in [8 << 10, 1 << 20] {
        let world = World::by_value(1301, TAG_BYTES);
        // Twelve copies of 100 KiB; an arena is closed at 40 KiB.
        let mut part = vec![0; 100 << 10];
        blake3::Hasher::new().finalize_xof().fill(&mut part);
        for copy in 0..12 {
            world.write(&format!("copy-{copy}"), &part);
        }
        let pack = PackOptions { block_bytes, ..pack() };
        let options = BackupOptions { pack, ..options(&world.tree()) };
        let first = run(&world.open(), &options, &Silent).unwrap();
        assert_eq!(first.written.data_bytes, part.len() as u64, "{block_bytes}");
        let again = BackupOptions { force: true, ..options };
        let second = run(&world.open(), &again, &Silent).unwrap();
        assert_eq!(second.written.data_bytes, 0, "{block_bytes}");
        world.assert_holds(&world.open(), second.snapshot.id, &world.image(), "the second");
        check_sound(&world.open());
    }
}

/// With tags of one byte, 50 chunks and more have the tag of another. They cost comparisons and
/// space, never a byte.
#[test]
fn chunks_that_share_a_tag_are_told_apart() {
    let world = grown(1302, 1);
    for version in 0..3 {
        let outcome = world.backup();
        world.assert_holds(&world.open(), outcome.snapshot.id, &world.image(), "short tags");
        world.mutate(1302 + version);
    }
    let reader = ChunkReader::of_domain(&world.open(), "", CacheLimits::default()).unwrap();
    let (mut tags, mut chunks) = (HashSet::new(), 0);
    for name in names_in(&world.objects.snapshot(), "arenas") {
        let id = ArenaName::of(&name).unwrap().id;
        if ArenaContent::of(id) == ArenaContent::Data {
            let arena = reader.store().arena(id).unwrap();
            chunks += arena.slots().count();
            tags.extend(arena.slots().map(|(_, slot)| slot.fingerprint));
        }
    }
    assert!(chunks >= 50 + tags.len(), "{chunks} chunks, {} tags", tags.len());
    check_sound(&world.open());
}

/// A file whose bytes are those of a tree, and whose tag is that of the tree, is not taken for it: no
/// reader looks for it where trees are.
#[test]
fn data_is_never_found_among_metadata() {
    let world = World::by_value(1306, TAG_BYTES);
    let repository = world.open();
    let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default()).unwrap();
    let session = Session::begin(&repository, "host").unwrap();
    let cancel = Cancel::new();
    let mut writer =
        ChunkWriter::open(&repository, &reader, &session, pack(), false, &Silent, &cancel).unwrap();
    let (tree, part) = ([7; 3000], Part { level: 0, offset: 0 });
    let (_, metadata) = writer.metadata(None).write_chunk(&tree, part).unwrap();
    let tag = reader.naming().metadata.fingerprint(&tree);
    let data = writer.put_data(&tree, tag, 0, None).unwrap().location;
    assert_ne!(metadata.arena, data.arena);
    assert_eq!(ArenaContent::of(data.arena), ArenaContent::Data);
}

/// Bringing a snapshot together names its chunks in their new places, and the names of one file in the
/// same ones, although a chunk that shares its tag may be stored once more.
#[test]
fn a_snapshot_is_brought_together_under_new_names() {
    for (seed, tag_bytes) in [(1303, TAG_BYTES), (1307, 1)] {
        let mut world = grown(seed, tag_bytes);
        // Each content has nodes, which are stored by no other name.
        (world.limits.recipe_refs_max, world.limits.recipe_depth_min) = (1, 3);
        for file in 0..20 {
            let [one, two] = ["a", "z"].map(|name| world.tree().join(format!("{name}-{file}")));
            fs::write(&one, noise(file, 9_000)).unwrap();
            fs::hard_link(one, two).unwrap();
        }
        for version in 0..8 {
            world.backup();
            world.mutate(seed + version);
        }
        let last = world.backup().snapshot.id;
        let image = world.image();
        let repository = world.open();
        let gathered = defragment(&repository, last, u64::MAX, &Silent, &Cancel::new()).unwrap();
        let gathered = gathered.unwrap();
        let to = gathered.to.expect("eight versions are scattered");
        assert!(gathered.after.requests < gathered.before.requests, "{gathered:?}");
        world.assert_holds(&repository, to, &image, "brought together");
        check_sound(&repository);
    }
}

/// A key that only stores compares with what its own machine has stored, as far as it remembers.
/// What it cannot read it stores again, rather than believe a tag.
#[test]
fn a_key_that_only_stores_believes_no_tag() {
    let mut world = grown(1304, TAG_BYTES);
    let access = strongroom_upkeep::NewAccess::PutOnly("laptop");
    strongroom_upkeep::add_key(&world.open(), LAPTOP, "laptop", access, None).unwrap();
    let backup = |world: &World| {
        let repository = world.open_with(world.surroundings(), LAPTOP).unwrap();
        let again = BackupOptions { force: true, ..options(&world.tree()) };
        run(&repository, &again, &Silent).unwrap()
    };
    let first = backup(&world);
    assert!(first.written.data_bytes > 0);
    assert_eq!(backup(&world).written.data_bytes, 0, "the machine reads its own");
    let cache = world.cache.take().unwrap();
    fs::remove_dir_all(cache).unwrap();
    let third = backup(&world);
    assert_eq!(third.written.data_bytes, first.written.data_bytes, "nothing can be compared");
    world.assert_holds(&world.open(), third.snapshot.id, &world.image(), "the third");
    check_sound(&world.open());
}

/// A chunk whose place was damaged beyond parity is found as it is compared, and stored again.
#[test]
fn what_cannot_be_read_is_stored_again() {
    let world = grown(1305, TAG_BYTES);
    let first = world.backup();
    for name in names_in(&world.objects.snapshot(), "arenas") {
        if ArenaContent::of(ArenaName::of(&name).unwrap().id) == ArenaContent::Data {
            let mut bytes = world.objects.snapshot()[&name].to_vec();
            let middle = bytes.len() / 4;
            let end = bytes.len() * 3 / 4;
            bytes[middle..end].fill(0x55);
            world.objects.replace(&name, &bytes).unwrap();
        }
    }
    let again = BackupOptions { force: true, ..options(&world.tree()) };
    let second = run(&world.open(), &again, &Silent).unwrap();
    assert!(second.written.data_bytes > first.written.data_bytes / 2, "{:?}", second.written);
    world.assert_holds(&world.open(), second.snapshot.id, &world.image(), "stored again");
}

/// Gives the identifier of an arena first, then random bytes.
struct Named(Mutex<Option<ArenaId>>, SeededEntropy);

impl Entropy for Named {
    fn fill(&self, bytes: &mut [u8]) {
        match self.0.lock().unwrap().take() {
            Some(id) => bytes.copy_from_slice(&id.0),
            None => self.1.fill(bytes),
        }
    }
}

/// An arena that was rewritten exists in its second generation. A client that may store can create the
/// first again, with content and tags of its own: no reader takes that for what was stored.
#[test]
fn a_planted_generation_is_not_read() {
    let world = grown(1307, TAG_BYTES);
    let access = strongroom_upkeep::NewAccess::PutOnly("laptop");
    strongroom_upkeep::add_key(&world.open(), LAPTOP, "laptop", access, None).unwrap();
    let first = world.backup().snapshot.id;
    for name in fs::read_dir(world.tree()).unwrap().flatten().take(10) {
        let _ = fs::remove_file(name.path());
    }
    let kept = world.backup().snapshot.id;
    let image = world.image();
    strongroom_upkeep::forget(&world.open(), &[first]).unwrap();
    let all = strongroom_upkeep::PruneOptions { unused_percent_max: 0, ..Default::default() };
    strongroom_upkeep::prune(&world.open(), &all, &Silent, &Cancel::new()).unwrap();
    let attacker = world.open_with(world.surroundings(), LAPTOP).unwrap();
    let keys = attacker.write_keys();
    let mut planted = 0;
    for name in names_in(&world.objects.snapshot(), "arenas") {
        let name = ArenaName::of(&name).unwrap();
        if name.generation == 0 || ArenaContent::of(name.id) != ArenaContent::Data {
            continue;
        }
        let reader = ChunkReader::of_domain(&world.open(), "", CacheLimits::default()).unwrap();
        let arena = reader.store().arena(name.id).unwrap();
        let entropy = Named(Mutex::new(Some(name.id)), SeededEntropy::new(7));
        let seed = ArenaSeed::draw(ArenaContent::Data, keys, &entropy);
        assert_eq!(seed.id, name.id);
        let (mut draft, mut slots) = (BlockDraft::new(0, 0), Vec::new());
        for (_, slot) in arena.slots() {
            let bytes = vec![0x11; slot.chunk_bytes.max(1) as usize];
            draft.push(StoredChunk::Whole(&bytes));
            let tag = keys.naming.data.fingerprint(&bytes);
            slots.push(SummarySlot::of(tag, StoredChunk::Whole(&bytes)));
        }
        let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
        let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
        builder.push(&sealer.seal(draft, seed.id, &seed.key), slots);
        let (origin, redundancy) = (Origin::NONE, Redundancy::ARENA);
        let finished =
            builder.finish(Finishing { generation: 0, origin, keys, redundancy, padding: None });
        world.objects.create(&finished.name.object(), finished.object()).unwrap();
        planted += 1;
    }
    assert!(planted > 0, "an arena was rewritten");
    world.assert_holds(&world.open(), kept, &image, "what was stored");
}
