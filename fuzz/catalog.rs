//! Trees, snapshots, recipes: decoded from any bytes, and walked over a store that holds any bytes
//! under any name.
//!
//! What is decoded is encoded and decoded again to the same; memory stays proportional to the
//! bytes; a walk is contiguous, ends, and agrees with seeking.

#![no_main]

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use strongroom_base::{ArenaId, Fingerprint, Location, SnapshotId, Timestamp};
use strongroom_catalog::entry::is_valid_name;
use strongroom_catalog::format::{
    pack_node, pack_snapshot, put_entry, unpack_entries, unpack_head, unpack_node, unpack_snapshot,
};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{
    CatalogError, ChunkRef, DeviceNumber, Entry, EntryKind, FormatError, Metadata, Part, ReadChunk,
    Recipe, RecipeCursor, RecipeReader, Snapshot, TreeReader, TreeWriter, WriteChunk, Xattr,
};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};

/// A structure takes at most this many times its bytes: an entry of six bytes, in a vector that
/// grows by doubling.
const MEMORY_FACTOR: usize = 128;

/// At most this many steps of a walk are checked.
const STEPS_MAX: usize = 2000;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    match input.u8() & 7 {
        0 => check_entries(input.rest()),
        1 => check_snapshot(input.rest()),
        2 => check_node(input.rest()),
        3 => check_recipe(&mut input),
        4 => check_tree(&mut input),
        5 => round_tree(&mut input),
        _ => check_snapshot_of_recipe(&mut input),
    }
});

fn check_entries(bytes: &[u8]) {
    let unpacked = measure(|| unpack_entries(bytes));
    let bound = MEMORY_FACTOR * bytes.len() + 4096;
    assert!(unpacked.peak_bytes <= bound, "it took {}", unpacked.peak_bytes);
    let Ok(entries) = unpacked.value else { return };
    check_names(&entries);
    assert!(!entries.is_empty());
    let mut packed = Vec::new();
    entries.iter().for_each(|entry| put_entry(&mut packed, entry));
    assert_eq!(unpack_entries(&packed), Ok(entries));
}

fn check_names(entries: &[Entry]) {
    assert!(entries.iter().all(|entry| is_valid_name(&entry.name)));
    assert!(entries.is_sorted_by(|a, b| a.name < b.name));
    for entry in entries {
        let recipe = entry.content().or(entry.tree());
        assert!(recipe.is_none_or(|recipe| recipe.depth <= Recipe::DEPTH_MAX));
    }
}

fn check_snapshot(bytes: &[u8]) {
    let id = SnapshotId([2; 16]);
    let unpacked = measure(|| unpack_snapshot(id, bytes));
    let bound = MEMORY_FACTOR * bytes.len() + 4096;
    assert!(unpacked.peak_bytes <= bound, "it took {}", unpacked.peak_bytes);
    let head = unpack_head(bytes);
    let Ok(snapshot) = unpacked.value else { return };
    let head = head.expect("it is part of the snapshot");
    let is_known = |number: &u64| *number == 1;
    assert!(head.kind == 0 && head.required.iter().all(is_known), "what is new is unknown");
    assert_eq!((head.sequence, &head.domain), (snapshot.sequence, &snapshot.domain));
    assert_eq!(snapshot.id, id);
    assert!(snapshot.root.depth <= Recipe::DEPTH_MAX);
    assert!(unpack_snapshot(id, &[bytes, &[0]].concat()).is_err(), "a byte is left over");
    assert!(unpack_snapshot(id, &bytes[..bytes.len() - 1]).is_err(), "a byte is missing");
    assert_eq!(unpack_snapshot(id, &pack_snapshot(&snapshot)), Ok(snapshot));
}

fn check_node(bytes: &[u8]) {
    let unpacked = measure(|| unpack_node(bytes));
    assert!(unpacked.peak_bytes <= 2 * bytes.len() + 4096);
    let ref_bytes = match bytes.first() {
        Some(0) => Some(60),
        Some(1) => Some(28),
        _ => None,
    };
    let may_be_ours = ref_bytes.is_some_and(|ref_bytes| bytes.len() % ref_bytes == 1);
    assert!(may_be_ours || unpacked.value.is_err());
    let is_newer = !bytes.is_empty() && ref_bytes.is_none();
    assert_eq!(unpacked.value.as_ref().is_err_and(FormatError::is_unknown), is_newer);
    let Ok(refs) = unpacked.value else { return };
    assert_eq!(pack_node(&refs), bytes);
}

/// Chunks of any bytes. The first byte of a name says which; the others do not matter, so a node
/// can name itself. A real store excludes that, but it allows the same tree of nodes, spelt out.
struct Chunks<'a> {
    chunks: Vec<&'a [u8]>,
    reads: Cell<usize>,
}

#[derive(Debug, thiserror::Error)]
#[error("no such chunk")]
struct NoSuchChunk;

impl<'a> Chunks<'a> {
    fn new(input: &mut Input<'a>) -> Self {
        let mut chunks = Vec::new();
        while !input.is_empty() && chunks.len() < 255 {
            let length = usize::from(input.u16());
            chunks.push(input.bytes(length));
        }
        Self { chunks, reads: Cell::new(0) }
    }

    fn get(&self, chunk: &ChunkRef) -> Option<&'a [u8]> {
        self.chunks.get(usize::from(chunk.fingerprint.0[0]).checked_sub(1)?).copied()
    }
}

impl ReadChunk for Chunks<'_> {
    type Error = NoSuchChunk;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, NoSuchChunk> {
        self.reads.set(self.reads.get() + 1);
        self.get(chunk).map(<[u8]>::to_vec).ok_or(NoSuchChunk)
    }
}

/// References as the fuzzer writes them: short, so that it soon finds them.
fn short_refs(input: &mut Input<'_>) -> Vec<ChunkRef> {
    let count = input.u8() & 31;
    (0..count).map(|_| chunk_ref(input.u8(), u64::from(input.u16()))).collect()
}

fn chunk_ref(chunk: u8, stream_bytes: u64) -> ChunkRef {
    let mut fingerprint = [0; 32];
    fingerprint[0] = chunk;
    let location = Location { arena: ArenaId([1; 16]), slot: 5 };
    ChunkRef { fingerprint: Fingerprint(fingerprint), location, stream_bytes }
}

/// Chunks as the fuzzer writes them: nodes of short references, spelt out.
fn node_chunks(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    while !input.is_empty() && chunks.len() < 64 {
        chunks.push(pack_node(&short_refs(input)));
    }
    chunks
}

/// A recipe and its store: nodes are the input itself, or spelt out by the target.
fn with_recipe(input: &mut Input<'_>, check: impl FnOnce(&Recipe, &Chunks<'_>)) {
    let shape = input.u8();
    let depth = (shape & 15).min(Recipe::DEPTH_MAX);
    let recipe = Recipe { depth, refs: short_refs(input) };
    if shape & 0x80 == 0 {
        check(&recipe, &Chunks::new(input));
    } else {
        let nodes = node_chunks(input);
        let chunks = nodes.iter().map(Vec::as_slice).collect();
        check(&recipe, &Chunks { chunks, reads: Cell::new(0) });
    }
}

fn check_recipe(input: &mut Input<'_>) {
    let seek = u64::from(input.u32());
    with_recipe(input, |recipe, chunks| {
        let (walked, has_ended) = walk(recipe, chunks);
        check_seek(recipe, chunks, &walked, has_ended, seek);
        if has_ended {
            check_for_each(recipe, chunks, &walked);
        }
    });
}

/// The chunks of a recipe in stream order, and whether they are all.
fn walk(recipe: &Recipe, chunks: &Chunks<'_>) -> (Vec<(u64, ChunkRef)>, bool) {
    let mut reader = RecipeReader::new(recipe, chunks);
    let mut walked = Vec::new();
    let mut next_offset = 0_u64;
    while walked.len() < STEPS_MAX {
        let reads = chunks.reads.get();
        match reader.next_chunk() {
            Ok(Some((offset, chunk))) => {
                assert_eq!(offset, next_offset);
                assert!(chunks.reads.get() - reads <= usize::from(recipe.depth));
                next_offset = offset.saturating_add(chunk.stream_bytes);
                walked.push((offset, chunk));
            }
            Ok(None) => {
                assert_eq!(next_offset, recipe.stream_bytes());
                return (walked, true);
            }
            Err(_) => break,
        }
    }
    (walked, false)
}

/// Seeking leads to the chunk that walking finds there.
fn check_seek(
    recipe: &Recipe,
    chunks: &Chunks<'_>,
    walked: &[(u64, ChunkRef)],
    has_ended: bool,
    seek: u64,
) {
    let mut cursor = RecipeCursor::new(recipe);
    let found = cursor.seek_forward(seek, chunks);
    let expected =
        walked.iter().find(|(offset, chunk)| offset.saturating_add(chunk.stream_bytes) > seek);
    match (found, expected) {
        (Ok(()), Some((offset, chunk))) => {
            // A hole above the leaves is one chunk to a walk, too.
            assert_eq!(cursor.chunk_at_hand(), Some((*offset, *chunk)));
            assert_eq!(cursor.next_chunk(chunks).ok().flatten(), Some((*offset, *chunk)));
        }
        (Ok(()), None) => assert!(!has_ended || cursor.chunk_at_hand().is_none()),
        (Err(_), _) => assert!(!has_ended, "walking found no error"),
    }
}

/// Visiting names each chunk of the walk, in its order, and reads what it calls a node.
fn check_for_each(recipe: &Recipe, chunks: &Chunks<'_>, walked: &[(u64, ChunkRef)]) {
    let (mut leaves, mut nodes) = (Vec::new(), 0);
    chunks.reads.set(0);
    for_each_chunk(recipe, chunks, &mut |chunk, level| {
        if level > 0 {
            nodes += 1
        } else {
            leaves.push(*chunk)
        }
        Ok::<_, CatalogError<_>>(Visit::Into)
    })
    .expect("walking found no error");
    assert_eq!(nodes, chunks.reads.get());
    let walked = walked.iter().map(|(_, chunk)| *chunk).filter(|chunk| !chunk.is_hole());
    assert!(leaves.into_iter().eq(walked));
}

fn check_tree(input: &mut Input<'_>) {
    with_recipe(input, |recipe, chunks| {
        let mut recipe = recipe.clone();
        if recipe.depth == 0 {
            // A chunk of another length than its reference says is refused unread.
            for chunk in &mut recipe.refs {
                chunk.stream_bytes = chunks.get(chunk).map_or(1, |bytes| bytes.len() as u64);
            }
        }
        let mut reader = TreeReader::new(&recipe, chunks);
        let mut entries: Vec<Entry> = Vec::new();
        while entries.len() < STEPS_MAX {
            match reader.next_entry() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(CatalogError::Chunk(NoSuchChunk) | CatalogError::Format(_)) => break,
            }
        }
        check_names(&entries);
        round_entries(&entries);
    });
}

/// Keeps what is written.
#[derive(Default)]
struct Memory(HashMap<Fingerprint, Vec<u8>>);

impl WriteChunk for Memory {
    type Error = Infallible;

    fn write_chunk(
        &mut self,
        chunk: &[u8],
        _part: Part,
    ) -> Result<(Fingerprint, Location), Infallible> {
        let fingerprint = Fingerprint(*blake3::hash(chunk).as_bytes());
        self.0.insert(fingerprint, chunk.to_vec());
        Ok((fingerprint, Location { arena: ArenaId([1; 16]), slot: 5 }))
    }
}

impl ReadChunk for Memory {
    type Error = NoSuchChunk;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, NoSuchChunk> {
        self.0.get(&chunk.fingerprint).cloned().ok_or(NoSuchChunk)
    }
}

/// Entries written as a tree are read back as they were.
fn round_entries(entries: &[Entry]) {
    let mut memory = Memory::default();
    let mut writer = TreeWriter::new();
    for entry in entries {
        writer.push(entry, &mut memory).expect("the fuzzer's entries are short");
    }
    let Ok(tree) = writer.finish(&mut memory);
    assert!(tree.refs.len() <= Recipe::REFS_MAX);
    let read = TreeReader::new(&tree, &memory).read_all().expect("it was just written");
    assert_eq!(read, entries);
    if let Some(entry) = entries.get(entries.len() / 2) {
        let found = strongroom_catalog::tree::find_entry(&tree, &entry.name, &memory);
        assert_eq!(found.expect("it was just written").as_ref(), Some(entry));
    }
}

fn round_tree(input: &mut Input<'_>) {
    let mut entries = Vec::new();
    while !input.is_empty() && entries.len() < 200 {
        entries.push(entry(input));
    }
    entries.retain(|entry: &Entry| is_valid_name(&entry.name));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.dedup_by(|a, b| a.name == b.name);
    round_entries(&entries);
}

fn entry(input: &mut Input<'_>) -> Entry {
    let take = |input: &mut Input<'_>| {
        let length = usize::from(input.u8());
        input.bytes(length).to_vec()
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let name = take(input);
    let device = |input: &mut Input<'_>| DeviceNumber { major: input.u32(), minor: input.u32() };
    let kind_and_more = input.u8();
    let recipe = |input: &mut Input<'_>| {
        let depth = input.u8() % (Recipe::DEPTH_MAX + 1);
        Recipe { depth, refs: short_refs(input) }
    };
    let kind = match kind_and_more & 7 {
        0 | 7 => EntryKind::File { content: recipe(input) },
        1 => EntryKind::Directory { tree: recipe(input), partial: kind_and_more & 32 != 0 },
        2 => EntryKind::Symlink { target: take(input) },
        3 => EntryKind::Fifo,
        4 => EntryKind::Socket,
        5 => EntryKind::CharDevice(device(input)),
        _ => EntryKind::BlockDevice(device(input)),
    };
    let mut metadata = Metadata { mode: input.u16(), links: 1, ..Metadata::default() };
    if kind_and_more & 8 != 0 {
        metadata.uid = input.u32();
        metadata.user = Some(text(take(input)).into());
        metadata.links = input.u64();
        metadata.mtime = Timestamp(input.u64().cast_signed());
    }
    if kind_and_more & 16 != 0 {
        metadata.gid = input.u32();
        metadata.group = Some(text(take(input)).into());
        metadata.size = input.u64();
        metadata.inode = input.u64();
    }
    for _ in 0..kind_and_more >> 6 {
        metadata.xattrs.push(Xattr { name: take(input), value: take(input) });
    }
    Entry { name, kind, metadata }
}

fn check_snapshot_of_recipe(input: &mut Input<'_>) {
    let mut snapshot = Snapshot::empty(SnapshotId(input.array()));
    snapshot.started = Timestamp(input.u64().cast_signed());
    let partial = input.u8();
    (snapshot.partial, snapshot.root_partial) = (partial & 1 != 0, partial & 2 != 0);
    snapshot.root.depth = input.u8() % (Recipe::DEPTH_MAX + 1);
    snapshot.root.refs = short_refs(input);
    snapshot.stats.bytes = input.u64();
    snapshot.sequence = input.u64();
    snapshot.parent = (input.u8() & 1 != 0).then(|| SnapshotId(input.array()));
    for _ in 0..input.u8() & 3 {
        let length = usize::from(input.u8());
        snapshot.paths.push(input.bytes(length).to_vec());
    }
    for _ in 0..input.u8() & 3 {
        let length = usize::from(input.u8());
        snapshot.labels.push(String::from_utf8_lossy(input.bytes(length)).into_owned());
    }
    for _ in 0..input.u8() & 3 {
        snapshot.features.push(input.u64());
    }
    snapshot.seen = input.u64();
    snapshot.host = String::from_utf8_lossy(input.rest()).into_owned();
    assert_eq!(unpack_snapshot(snapshot.id, &pack_snapshot(&snapshot)), Ok(snapshot));
}

fn seeds() -> Vec<Vec<u8>> {
    let ramp: Vec<u8> = (1..200).collect();
    let mut input = Input::new(&ramp);
    let mut file = entry(&mut input);
    file.name = b"b".to_vec();
    let mut link = Entry { kind: EntryKind::Symlink { target: b"b".to_vec() }, ..file.clone() };
    link.name = b"a".to_vec();
    link.metadata.xattrs.push(Xattr { name: b"user.x".to_vec(), value: b"y".to_vec() });
    let mut entries = Vec::new();
    [link, file].iter().for_each(|entry| put_entry(&mut entries, entry));
    let node = pack_node(&[chunk_ref(1, 9), ChunkRef::hole(5)]);
    let mut snapshot = Snapshot::empty(SnapshotId([2; 16]));
    snapshot.root.refs.push(chunk_ref(1, 9));
    snapshot.labels.push("x".into());
    snapshot.paths.push(b"/x".to_vec());
    let after = |mode: &[u8], bytes: &[u8]| [mode, bytes].concat();
    // One chunk of this many bytes follows a recipe of one reference to it.
    let length = u8::try_from(entries.len() & 0xff).expect("masked");
    let length = [length, u8::try_from(entries.len() >> 8).expect("the entries are short")];
    let tree = [&[4, 0, 1, 1, 9, 0], &length[..], &entries].concat();
    // Depth two: a node of two nodes, each of a hole and a chunk.
    let nodes = [3, 12, 0, 0, 0, 0x82, 1, 1, 12, 0, 2, 2, 6, 0, 2, 6, 0, 2, 0, 2, 0, 3, 4, 0];
    // Depth eight: sixteen times sixteen times … an empty chunk. A few nodes, and no end in sight.
    let mut fan_out = vec![0x88];
    for chunk in 1..=9 {
        fan_out.push(16);
        fan_out.extend([chunk, 0, 0].repeat(16));
    }
    fan_out.push(0);
    vec![
        after(&[3, 9, 0, 0, 0], &fan_out),
        after(&[4], &fan_out),
        after(&[0], &entries),
        after(&[1], &pack_snapshot(&snapshot)),
        after(&[2], &node),
        nodes.to_vec(),
        tree,
        after(&[5], &ramp),
        after(&[6], &ramp),
    ]
}
