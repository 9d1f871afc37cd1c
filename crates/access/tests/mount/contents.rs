//! Bytes at any place, by many readers.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Silent};
use strongroom_catalog::format::pack_node;
use strongroom_catalog::{
    ChunkRef, Entry, EntryKind, Metadata, Part, Recipe, Snapshot, TreeWriter, WriteChunk,
};
use strongroom_repository::{ChunkReader, ChunkWriter, PackOptions, Repository, Session};
use strongroom_testkit::noise;

use crate::compare::assert_same;
use crate::fixture::{Fixture, can_mount, tight};
use crate::sample::{HOLE_BYTES, make_all};

#[test]
fn any_range_of_any_file() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount_with(tight);
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    for name in ["long", "sparse", "random"] {
        let expected = File::open(fixture.source().join(name)).unwrap();
        let found = File::open(mounted.join(name)).unwrap();
        let size = expected.metadata().unwrap().size();
        for (round, place) in noise(9, 8 * 200).chunks(8).enumerate() {
            let offset = u64::from_le_bytes(place.try_into().unwrap()) % (size + 1000);
            let mut bytes = vec![0; (1 + round * 997) % 300_000];
            let mut other = bytes.clone();
            let count = expected.read_at(&mut bytes, offset).unwrap();
            assert_eq!(found.read_at(&mut other, offset).unwrap(), count);
            assert!(bytes == other, "{name} at {offset}, {} bytes", bytes.len());
        }
    }
}

#[test]
fn many_readers_at_once() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount_with(tight);
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    let state = AtomicU64::new(7);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_same(&fixture.source(), &mounted));
            scope.spawn(|| {
                let expected = fs::read(fixture.source().join("long")).unwrap();
                let found = File::open(mounted.join("long")).unwrap();
                for _ in 0..200 {
                    let step = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
                    let offset = (step >> 20) % (expected.len() as u64 - 5000);
                    let mut bytes = vec![0; 5000];
                    found.read_exact_at(&mut bytes, offset).unwrap();
                    let start = usize::try_from(offset).unwrap();
                    assert!(bytes == expected[start..start + 5000], "at {offset}");
                }
            });
        }
    });
}

#[test]
fn holes_are_told() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount();
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    let sparse = File::open(mounted.join("sparse")).unwrap();
    let sectors = sparse.metadata().unwrap().blocks();
    assert!(sectors * 512 < 2 << 20, "{sectors} sectors");
    let data = rustix::fs::seek(&sparse, SeekFrom::Data(0)).unwrap();
    assert!((1..=HOLE_BYTES / 2).contains(&data), "{data}");
    let hole = rustix::fs::seek(&sparse, SeekFrom::Hole(data)).unwrap();
    assert!((HOLE_BYTES / 2 + 10..HOLE_BYTES).contains(&hole), "{hole}");
    assert_eq!(rustix::fs::seek(&sparse, SeekFrom::Hole(0)).unwrap(), 0);
    let behind = rustix::fs::seek(&sparse, SeekFrom::Data(HOLE_BYTES * 2 - 10));
    assert_eq!(behind, Err(rustix::io::Errno::NXIO));
    let whole = File::open(mounted.join("random")).unwrap();
    assert_eq!(rustix::fs::seek(&whole, SeekFrom::Hole(0)).unwrap(), 5 << 20);
    assert_eq!(rustix::fs::seek(&whole, SeekFrom::Data(12_345)).unwrap(), 12_345);
}

/// A recipe can name one chunk more often than any search could pass it: 1024 times at each of five
/// levels. The search gives up and finds no hole before the file's end.
#[test]
fn engine_08_a_graph_of_nodes_ends_no_search_for_holes() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let snapshot = commit_graph(&fixture.repository);
    let _mount = fixture.mount();
    let vast = File::open(fixture.mounted(&snapshot, Path::new("/vast"))).unwrap();
    assert_eq!(rustix::fs::seek(&vast, SeekFrom::Hole(0)).unwrap(), 1 << 50);
    assert_eq!(rustix::fs::seek(&vast, SeekFrom::Data(77)).unwrap(), 77);
}

/// Two references to one chunk, of which one says another length: what that one is for cannot be read, and
/// the mount goes on, whether the chunk is at hand or not.
#[test]
fn a_reference_of_another_length_is_an_error_of_its_range() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let bytes = noise(5, 200_000);
    for said in [199_999, 200_001, 900_000] {
        let snapshot = commit_file(&fixture.repository, "twice", |writer| {
            let name = fixture.repository.keys.write.naming.data.fingerprint(&bytes);
            let right = writer.put_data(&bytes, name, 0, None).unwrap();
            let wrong = ChunkRef { stream_bytes: said, ..right };
            Recipe { depth: 0, refs: vec![right, wrong, right] }
        });
        let _mount = fixture.mount();
        let twice = File::open(fixture.mounted(&snapshot, Path::new("/twice"))).unwrap();
        let behind = 200_000 + said;
        let mut given = [0; 50];
        for at in [behind + 150_000, 100, 200_100, 200_000 + said / 2, behind - 50] {
            match twice.read_at(&mut given, at) {
                Ok(_) if at < 200_000 => assert!(given == bytes[at as usize..][..50]),
                Ok(_) => assert!(given == bytes[(at - behind) as usize..][..50], "{said}: {at}"),
                Err(_) => assert!((200_000..behind).contains(&at), "{said}: {at}"),
            }
        }
        twice.read_exact_at(&mut given, 4096).unwrap();
        assert!(given == bytes[4096..][..50], "{said}");
    }
}

/// A snapshot of one file, `vast`, of 2^50 equal bytes.
fn commit_graph(repository: &Repository) -> Snapshot {
    commit_file(repository, "vast", |writer| {
        let name = repository.keys.write.naming.data.fingerprint(b"x");
        let mut chunk = writer.put_data(b"x", name, 0, None).unwrap();
        for _ in 0..5 {
            let part = Part { level: 1, offset: 0 };
            let node = pack_node(&[chunk; 1024]);
            let (fingerprint, location) = writer.metadata(None).write_chunk(&node, part).unwrap();
            chunk = ChunkRef { fingerprint, location, stream_bytes: chunk.stream_bytes * 1024 };
        }
        Recipe { depth: 5, refs: vec![chunk] }
    })
}

/// A snapshot of one file with the content that is stored by `store`.
fn commit_file(
    repository: &Repository,
    name: &str,
    store: impl FnOnce(&mut ChunkWriter<'_>) -> Recipe,
) -> Snapshot {
    let reader = ChunkReader::of_domain(repository, "", CacheLimits::default()).unwrap();
    let session = Session::begin(repository, "here").unwrap();
    let (cancel, pack) = (Cancel::new(), PackOptions::default());
    let mut writer =
        ChunkWriter::open(repository, &reader, &session, pack, false, &Silent, &cancel).unwrap();
    let content = store(&mut writer);
    let metadata = Metadata { size: content.stream_bytes(), links: 1, ..Metadata::default() };
    let entry =
        Entry { name: name.as_bytes().to_vec(), kind: EntryKind::File { content }, metadata };
    let mut tree = TreeWriter::new();
    tree.push(&entry, &mut writer.metadata(None)).unwrap();
    let root = tree.finish(&mut writer.metadata(None)).unwrap();
    writer.finish(&Silent).unwrap();
    let snapshot = Snapshot {
        root,
        sequence: session.sequence,
        paths: vec![b"/".to_vec()],
        ..Snapshot::empty(session.id)
    };
    session.commit(&snapshot).unwrap();
    snapshot
}
