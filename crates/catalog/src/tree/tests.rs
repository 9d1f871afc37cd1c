//! Trees come back entry for entry, and change little if little changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use strongroom_base::{ArenaId, Fingerprint, SizeLimits, SnapshotId, Timestamp};

use super::*;
use crate::entry::{DeviceNumber, EntryKind, Metadata, Xattr};
use crate::format::{pack_node, pack_snapshot, put_entry, unpack_entries, unpack_snapshot};
use crate::snapshot::{Guarantee, Origin, Snapshot, SnapshotStats};
use crate::testing::MemoryChunks;
use strongroom_base::Location;

fn any_recipe() -> impl Strategy<Value = Recipe> {
    let chunk = (any::<[u8; 32]>(), any::<[u8; 16]>(), any::<u32>(), any::<u64>()).prop_map(
        |(fingerprint, arena, slot, stream_bytes)| ChunkRef {
            fingerprint: Fingerprint(fingerprint),
            location: Location { arena: ArenaId(arena), slot },
            stream_bytes,
        },
    );
    (0..=Recipe::DEPTH_MAX, proptest::collection::vec(chunk, 0..16))
        .prop_map(|(depth, refs)| Recipe { depth, refs })
}

fn any_kind() -> impl Strategy<Value = EntryKind> {
    let device =
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| DeviceNumber { major, minor });
    prop_oneof![
        any_recipe().prop_map(|content| EntryKind::File { content }),
        (any_recipe(), any::<bool>())
            .prop_map(|(tree, partial)| EntryKind::Directory { tree, partial }),
        any::<Vec<u8>>().prop_map(|target| EntryKind::Symlink { target }),
        Just(EntryKind::Fifo),
        Just(EntryKind::Socket),
        device.clone().prop_map(EntryKind::CharDevice),
        device.prop_map(EntryKind::BlockDevice),
    ]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let owner_name = || any::<Option<String>>().prop_map(|name| name.map(Arc::from));
    let owner = (any::<u32>(), owner_name(), any::<u32>(), owner_name());
    let inode = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let xattr =
        (any::<Vec<u8>>(), any::<Vec<u8>>()).prop_map(|(name, value)| Xattr { name, value });
    let rest = (any::<u16>(), any::<i64>(), any::<i64>(), proptest::collection::vec(xattr, 0..3));
    let metadata = (owner, inode, rest).prop_map(
        |((uid, user, gid, group), (inode, device, links, size), (mode, mtime, ctime, xattrs))| {
            let [mtime, ctime] = [Timestamp(mtime), Timestamp(ctime)];
            Metadata {
                mode,
                uid,
                user,
                gid,
                group,
                mtime,
                ctime,
                inode,
                device,
                links,
                size,
                xattrs,
            }
        },
    );
    let name = proptest::collection::vec(any::<u8>().prop_map(|b| b.max(1)), 1..40)
        .prop_map(|name| {
            name.into_iter().map(|b| if b == b'/' { b'_' } else { b }).collect::<Vec<u8>>()
        })
        .prop_filter("a name", |name| is_valid_name(name));
    (name, any_kind(), metadata).prop_map(|(name, kind, metadata)| Entry { name, kind, metadata })
}

fn write(entries: &[Entry], store: &mut MemoryChunks) -> Recipe {
    let mut tree = TreeWriter::new();
    for entry in entries {
        tree.push(entry, store).unwrap();
    }
    tree.finish(store).unwrap()
}

fn numbered(number: u64) -> Entry {
    let metadata = Metadata { links: 1, inode: number, ..Metadata::default() };
    Entry { name: format!("file-{number:07}").into_bytes(), kind: EntryKind::Fifo, metadata }
}

#[test]
fn one_change_in_a_large_directory_changes_one_chunk() {
    let mut entries: Vec<Entry> = (0..20_000).map(numbered).collect();
    let mut before = MemoryChunks::default();
    let tree = write(&entries, &mut before);
    assert_eq!(TreeReader::new(&tree, &before).read_all().unwrap(), entries);
    assert_eq!(find_entry(&tree, b"file-0012345", &before).unwrap(), Some(numbered(12_345)));
    assert_eq!(find_entry(&tree, b"file-00123456", &before).unwrap(), None);
    entries[7000].metadata.mode = 0o777;
    entries.remove(9000);
    let mut after = MemoryChunks::default();
    write(&entries, &mut after);
    let new = after.chunks.keys().filter(|name| !before.chunks.contains_key(name)).count();
    assert!(new <= 4, "{new} of {} chunks are new", after.chunks.len());
}

#[test]
fn chunks_of_stored_entries_are_named_and_not_made_again() {
    let entries: Vec<Entry> = (0..20_000).map(numbered).collect();
    let mut store = MemoryChunks::default();
    let tree = write(&entries, &mut store);
    let new = Entry { name: b"file-0007000-new".to_vec(), ..numbered(0) };
    let last = Entry { name: b"z".to_vec(), ..numbered(0) };
    for (after, new) in [(None, None), (Some(7000), Some(&new)), (Some(19_999), Some(&last))] {
        for left_out in [None, Some(0), Some(7001), Some(19_999)] {
            let mut expected = Vec::new();
            let mut writer = TreeWriter::new();
            let mut reader = TreeReader::new(&tree, &store);
            let chunks = store.chunks.clone();
            let mut store = MemoryChunks { chunks, ..MemoryChunks::default() };
            let mut number = 0;
            while reader.advance().unwrap() {
                let entry = reader.entry();
                if left_out != Some(number) {
                    expected.push(entry.clone());
                    let stored = reader.stored().unwrap();
                    writer.push_stored(&entry.name, &stored, &mut store).unwrap();
                }
                if after == Some(number) {
                    expected.extend(new.cloned());
                    writer.push(new.unwrap(), &mut store).unwrap();
                }
                number += 1;
            }
            let again = writer.finish(&mut store).unwrap();
            assert_eq!(TreeReader::new(&again, &store).read_all().unwrap(), expected);
            assert_eq!(again, write(&expected, &mut MemoryChunks::default()));
            let changes = usize::from(new.is_some()) + usize::from(left_out.is_some());
            // The node over all of them is made again; each costs a chunk, and the one after it.
            assert!(store.written <= 1 + changes * 2, "{} for {changes}", store.written);
        }
    }
}

#[test]
fn an_entry_too_large_is_refused_and_the_tree_goes_on() {
    let mut store = MemoryChunks::default();
    let mut tree = TreeWriter::new();
    let mut large = numbered(1);
    large.metadata.xattrs =
        vec![Xattr { name: b"user.x".to_vec(), value: vec![0; ENTRY_BYTES_MAX] }];
    assert!(matches!(
        tree.push(&large, &mut store),
        Err(TreeWriteError::EntryTooLarge { bytes }) if bytes > ENTRY_BYTES_MAX
    ));
    tree.push(&numbered(1), &mut store).unwrap();
    let recipe = tree.finish(&mut store).unwrap();
    assert_eq!(TreeReader::new(&recipe, &store).read_all().unwrap(), [numbered(1)]);
}

/// What no reader accepts, no writer may store.
#[test]
fn a_name_that_no_entry_can_have_is_refused_and_the_tree_goes_on() {
    let mut store = MemoryChunks::default();
    let mut tree = TreeWriter::new();
    let long = vec![b'x'; crate::entry::NAME_BYTES_MAX + 1];
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &long] {
        let entry = Entry { name: name.to_vec(), ..numbered(1) };
        let refused = tree.push(&entry, &mut store);
        assert!(matches!(refused, Err(TreeWriteError::InvalidName)), "{name:?}");
    }
    tree.push(&numbered(1), &mut store).unwrap();
    let recipe = tree.finish(&mut store).unwrap();
    assert_eq!(TreeReader::new(&recipe, &store).read_all().unwrap(), [numbered(1)]);
}

/// Found by fuzzing: a few nodes that represent 16^9 empty chunks. Reading ends at the first of
/// them.
#[test]
fn a_chunk_without_entries_is_refused() {
    let mut store = MemoryChunks::default();
    let (mut fingerprint, location) = store.write_chunk(&[], Part { level: 0, offset: 0 }).unwrap();
    let name_of_nothing = fingerprint;
    let mut refs = Vec::new();
    for _ in 0..=Recipe::DEPTH_MAX {
        refs = vec![ChunkRef { fingerprint, location, stream_bytes: 0 }; 16];
        let node = pack_node(&refs);
        (fingerprint, _) = store.write_chunk(&node, Part { level: 1, offset: 0 }).unwrap();
    }
    let tree = Recipe { depth: Recipe::DEPTH_MAX, refs };
    assert!(matches!(
        TreeReader::new(&tree, &store).next_entry(),
        Err(CatalogError::Format(FormatError::Damaged { what: "recipe", .. }))
    ));
    // The same, of a length that it does not have.
    let chunk = ChunkRef { fingerprint: name_of_nothing, location, stream_bytes: 1 };
    let tree = Recipe { depth: 0, refs: vec![chunk] };
    assert!(matches!(
        TreeReader::new(&tree, &store).next_entry(),
        Err(CatalogError::Format(FormatError::Damaged { what: "tree", .. }))
    ));
}

#[test]
fn engine_08_a_chunk_that_is_a_hole_or_of_another_length_is_refused() {
    let mut store = MemoryChunks::default();
    let mut bytes = Vec::new();
    put_entry(&mut bytes, &numbered(1));
    let length = bytes.len() as u64;
    let (fingerprint, location) = store.write_chunk(&bytes, Part { level: 0, offset: 0 }).unwrap();
    let chunk = |stream_bytes| ChunkRef { fingerprint, location, stream_bytes };
    let first =
        |chunk| TreeReader::new(&Recipe { depth: 0, refs: vec![chunk] }, &store).next_entry();
    assert_eq!(first(chunk(length)).unwrap(), Some(numbered(1)));
    for wrong in [chunk(length + 1), chunk(length - 1), chunk(1 << 60), ChunkRef::hole(length)] {
        assert!(matches!(first(wrong), Err(CatalogError::Format(_))), "{wrong:?}");
    }
}

proptest! {
    #[test]
    fn trees_come_back(mut entries in proptest::collection::vec(any_entry(), 0..20)) {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        let mut store = MemoryChunks::default();
        let recipe = write(&entries, &mut store);
        prop_assert_eq!(TreeReader::new(&recipe, &store).read_all().unwrap(), entries);
    }

    /// A tree that was written with some limits is read, and taken over entry by entry by a writer
    /// with others.
    #[test]
    fn trees_of_any_limits_come_back(count in 0_u64..300, seeds in any::<(u64, u64)>()) {
        let entries: Vec<Entry> = (0..count).map(numbered).collect();
        let limits = SizeLimits::from_seed(seeds.0);
        let mut store = MemoryChunks { limits, ..MemoryChunks::default() };
        let recipe = write(&entries, &mut store);
        prop_assert!(recipe.depth <= Recipe::DEPTH_MAX);
        prop_assert!(count == 0 || recipe.depth >= limits.recipe_depth_min);
        prop_assert_eq!(&TreeReader::new(&recipe, &store).read_all().unwrap(), &entries);
        let mut again = MemoryChunks {
            chunks: store.chunks.clone(),
            limits: SizeLimits::from_seed(seeds.1),
            written: 0,
        };
        let (mut writer, mut reader) = (TreeWriter::new(), TreeReader::new(&recipe, &store));
        while reader.advance().unwrap() {
            writer.push_stored(&reader.entry().name, &reader.stored().unwrap(), &mut again).unwrap();
        }
        let recipe = writer.finish(&mut again).unwrap();
        prop_assert_eq!(&TreeReader::new(&recipe, &again).read_all().unwrap(), &entries);
    }

    #[test]
    fn snapshots_come_back(
        root in any_recipe(),
        times in any::<(i64, i64)>(),
        texts in any::<(String, String, String, Vec<String>)>(),
        (paths, missing) in any::<(Vec<Vec<u8>>, BTreeMap<Vec<u8>, Vec<Vec<u8>>>)>(),
        parent in any::<Option<[u8; 16]>>(),
        flags in any::<[bool; 3]>(),
        numbers in any::<[u64; 8]>(),
        features in any::<Vec<u64>>(),
        origin in any::<Option<[String; 3]>>(),
        guarantee in any::<Option<(u64, u64, u64)>>(),
    ) {
        let (host, user, program, labels) = texts;
        let [partial, root_partial, lists_trusted] = flags;
        let [files, directories, bytes, bytes_new, bytes_stored, problems, sequence, seen] =
            numbers;
        let stats = SnapshotStats { files, directories, bytes, bytes_new, bytes_stored, problems };
        let snapshot = Snapshot {
            id: SnapshotId([9; 16]),
            sequence,
            started: Timestamp(times.0),
            ended: Timestamp(times.1),
            parent: parent.map(SnapshotId),
            domain: labels.concat(),
            host, user, paths, missing, labels, root, partial, root_partial, stats, program,
            features, seen,
            origin: origin.map(|[program, repository, snapshot]| Origin {
                program, repository, snapshot,
            }),
            guarantee: guarantee.map(|(promise, method, turn)| Guarantee { promise, method, turn }),
            lists_trusted,
        };
        let packed = pack_snapshot(&snapshot);
        prop_assert_eq!(unpack_snapshot(snapshot.id, &packed).unwrap(), snapshot);
    }

    #[test]
    fn any_bytes_are_entries_or_refused(
        entry in any_entry(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &entry);
        for (place, value) in flips {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        // All output was decoded; nothing panics, nothing is allocated beyond the input.
        let _ = unpack_entries(&bytes);
        let _ = unpack_snapshot(SnapshotId([0; 16]), &bytes);
    }
}
