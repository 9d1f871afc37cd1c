//! Recipes of every length come back, in order, from anywhere.

use proptest::prelude::*;
use strongroom_base::{ArenaId, Fingerprint};

use super::*;
use crate::testing::MemoryChunks;
use strongroom_base::Location;

fn chunk(number: u64) -> ChunkRef {
    if number % 97 == 5 {
        return ChunkRef::hole(1 + number);
    }
    let fingerprint = Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes());
    let location = Location { arena: ArenaId([2; 16]), slot: number as u32 };
    ChunkRef { fingerprint, location, stream_bytes: 1 + number % 1000 }
}

fn build(chunks: &[ChunkRef], store: &mut MemoryChunks) -> Recipe {
    let mut builder = RecipeBuilder::new();
    for chunk in chunks {
        builder.push(*chunk, store).unwrap();
    }
    builder.finish(store).unwrap()
}

fn check(count: u64) -> Recipe {
    let chunks: Vec<ChunkRef> = (0..count).map(chunk).collect();
    let mut store = MemoryChunks::default();
    let recipe = build(&chunks, &mut store);
    assert!(recipe.refs.len() <= Recipe::REFS_MAX);
    let bytes: u64 = chunks.iter().map(|chunk| chunk.stream_bytes).sum();
    assert_eq!(recipe.stream_bytes(), bytes);
    let mut reader = RecipeReader::new(&recipe, &store);
    let mut offset = 0;
    for chunk in &chunks {
        assert_eq!(reader.next_chunk().unwrap(), Some((offset, *chunk)));
        offset += chunk.stream_bytes;
    }
    assert_eq!(reader.next_chunk().unwrap(), None);
    let mut leaves = 0;
    each(&recipe, &store, &mut |level| leaves += u64::from(level == 0)).unwrap();
    assert_eq!(leaves, chunks.iter().filter(|chunk| !chunk.is_hole()).count() as u64);
    recipe
}

#[test]
fn every_length_comes_back() {
    for count in [0, 1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 5000] {
        check(count);
    }
}

#[test]
fn a_file_of_a_tebibyte_has_a_short_recipe() {
    // 64 KiB chunks of 1 TiB are 16 million; a fortieth of that shows the third level.
    let recipe = check(400_000);
    assert!(recipe.depth >= 2 && recipe.depth <= 4, "{}", recipe.depth);
}

#[test]
fn an_insertion_changes_few_nodes() {
    let mut chunks: Vec<ChunkRef> = (0..20_000).map(chunk).collect();
    let mut before = MemoryChunks::default();
    build(&chunks, &mut before);
    chunks.insert(1000, chunk(1_000_000));
    let mut after = MemoryChunks::default();
    build(&chunks, &mut after);
    let new = after.chunks.keys().filter(|name| !before.chunks.contains_key(name)).count();
    assert!(new <= 6, "{new} of {} nodes are new", after.chunks.len());
}

#[test]
fn a_node_that_lies_is_refused() {
    let mut store = MemoryChunks::default();
    let recipe = build(&(0..100).map(chunk).collect::<Vec<_>>(), &mut store);
    for bytes in [vec![], vec![0], vec![0; 60], vec![0; 61]] {
        let mut store = MemoryChunks::default();
        for node in &recipe.refs {
            store.chunks.insert(node.fingerprint, bytes.clone());
        }
        assert!(RecipeReader::new(&recipe, &store).next_chunk().is_err());
        assert!(each(&recipe, &store, &mut |_| {}).is_err());
    }
}

#[test]
fn engine_11_a_node_of_another_form_is_unknown_and_no_damage() {
    let node = pack_node(&[chunk(1)]);
    assert_eq!(unpack_node(&node), Ok(vec![chunk(1)]));
    // References of a location alone are shorter; what they are is not asked.
    for newer in [vec![1], [&[1], &node[33..]].concat(), vec![255; 90]] {
        let number = u64::from(newer[0]);
        let unknown = FormatError::Unknown { what: "form of recipe", number };
        assert_eq!(unpack_node(&newer), Err(unknown));
    }
}

#[test]
fn engine_08_a_reference_to_no_bytes_is_refused() {
    let (nothing, one) = (ChunkRef { stream_bytes: 0, ..chunk(1) }, chunk(1));
    let mut store = MemoryChunks::default();
    store.chunks.insert(chunk(2).fingerprint, pack_node(&[nothing, one]));
    let node = ChunkRef { stream_bytes: one.stream_bytes, ..chunk(2) };
    for recipe in [
        Recipe { depth: 0, refs: vec![nothing] },
        Recipe { depth: 0, refs: vec![ChunkRef::hole(0)] },
        Recipe { depth: 1, refs: vec![node] },
    ] {
        assert!(RecipeReader::new(&recipe, &store).next_chunk().is_err(), "{recipe:?}");
    }
}

#[test]
fn engine_08_a_node_s_sum_is_exact() {
    let mut store = MemoryChunks::default();
    let vast = ChunkRef { stream_bytes: u64::MAX, ..chunk(1) };
    store.chunks.insert(chunk(2).fingerprint, pack_node(&[vast; 3]));
    let node = ChunkRef { stream_bytes: u64::MAX, ..chunk(2) };
    assert!(read_node(&node, &store).is_err());
}

/// The level of every chunk of a recipe.
fn each(
    recipe: &Recipe,
    store: &MemoryChunks,
    visit: &mut dyn FnMut(u8),
) -> Result<(), CatalogError<<MemoryChunks as ReadChunk>::Error>> {
    for_each_chunk(recipe, store, &mut |_, level| {
        visit(level);
        Ok(Visit::Into)
    })
}

proptest! {
    #[test]
    fn seeking_finds_the_chunk_of_any_byte(count in 1_u64..3000, place in 0.0..1.0_f64) {
        let chunks: Vec<ChunkRef> = (0..count).map(chunk).collect();
        let mut store = MemoryChunks::default();
        let recipe = build(&chunks, &mut store);
        let wanted = (recipe.stream_bytes() as f64 * place) as u64;
        let mut reader = RecipeReader::new(&recipe, &store);
        reader.seek_forward(wanted).unwrap();
        let (offset, found) = reader.next_chunk().unwrap().unwrap();
        prop_assert!(offset <= wanted && wanted < offset + found.stream_bytes);
        reader.seek_forward(u64::MAX).unwrap();
        prop_assert_eq!(reader.next_chunk().unwrap(), None);
    }

    #[test]
    fn any_bytes_are_refs_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(refs) = unpack_node(&bytes) {
            prop_assert_eq!(pack_node(&refs), bytes);
        }
    }
}
