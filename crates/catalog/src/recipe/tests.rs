//! Recipes of every length come back, in order, from anywhere.

use proptest::prelude::*;
use strongroom_base::{ArenaId, Fingerprint, SizeLimits};

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
    // References of another form may be of any length; what they are is not asked.
    for newer in [vec![2], [&[2], &node[33..]].concat(), vec![255; 90]] {
        let number = u64::from(newer[0]);
        let unknown = FormatError::Unknown { what: "form of recipe", number };
        assert_eq!(unpack_node(&newer), Err(unknown));
    }
}

/// The bytes of form 1 are frozen: 28 for a chunk.
#[test]
fn chunks_are_named_by_their_places_alone() {
    let place = |byte, slot| Location { arena: ArenaId([byte; 16]), slot };
    let refs = vec![
        ChunkRef::in_place(place(0x11, 0x0203), 0x0405),
        ChunkRef::hole(6),
        ChunkRef::in_place(place(0x77, 8), 9),
    ];
    let node = pack_node(&refs);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let golden = [
        "01",
        "11111111111111111111111111111111",
        "03020000",
        "0504000000000000",
        "00000000000000000000000000000000",
        "00000000",
        "0600000000000000",
        "77777777777777777777777777777777",
        "08000000",
        "0900000000000000",
    ];
    assert_eq!(hex(&node), golden.concat());
    assert_eq!(unpack_node(&node), Ok(refs));
    // Without a chunk, and with a place where a fingerprint belongs, the other form says the same.
    let holes_alone = [&node[..1], &node[29..57]].concat();
    let spelt_out =
        [&[0], &Fingerprint::of_place(place(3, 4)).0[..], &[3; 16], &[4, 0, 0, 0]].concat();
    for other in [vec![1], holes_alone, [spelt_out, vec![1; 8]].concat()] {
        assert!(matches!(unpack_node(&other), Err(FormatError::Damaged { .. })), "{other:?}");
    }
    assert!(unpack_node(&node[..node.len() - 1]).is_err());
}

/// A stream of many chunks in places one after another has nodes of about 128, and an insertion
/// changes few of them.
#[test]
fn nodes_of_places_end_where_a_place_says() {
    let place = |number: u32| {
        let arena =
            ArenaId(*blake3::hash(&(number / 256).to_le_bytes()).as_bytes().first_chunk().unwrap());
        ChunkRef::in_place(Location { arena, slot: number % 256 }, 1000)
    };
    let mut chunks: Vec<ChunkRef> = (0..20_000).map(place).collect();
    let mut before = MemoryChunks::default();
    build(&chunks, &mut before);
    let nodes = before.chunks.len();
    assert!((100..250).contains(&nodes), "{nodes} nodes");
    chunks.insert(1000, place(1_000_000));
    let mut after = MemoryChunks::default();
    build(&chunks, &mut after);
    let new = after.chunks.keys().filter(|name| !before.chunks.contains_key(name)).count();
    assert!(new <= 6, "{new} of {nodes} nodes are new");
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
    fn recipes_of_any_limits_come_back(
        count in prop_oneof![4 => 0_u64..1000, 1 => 0_u64..40_000],
        seed in any::<u64>(),
    ) {
        let chunks: Vec<ChunkRef> = (0..count).map(chunk).collect();
        let limits = SizeLimits::from_seed(seed);
        let mut store = MemoryChunks { limits, ..MemoryChunks::default() };
        let recipe = build(&chunks, &mut store);
        prop_assert!(recipe.refs.len() <= limits.recipe_refs_max);
        prop_assert!(recipe.depth <= Recipe::DEPTH_MAX);
        prop_assert!(count == 0 || recipe.depth >= limits.recipe_depth_min);
        let mut builder = RecipeBuilder::new();
        for chunk in &chunks {
            builder.push(*chunk, &mut store).unwrap();
        }
        let as_one = builder.finish_as_one(&mut store).unwrap();
        prop_assert_eq!(as_one.refs.len() as u64, count.min(1));
        prop_assert!(as_one.depth <= Recipe::DEPTH_MAX);
        for recipe in [recipe, as_one] {
            let mut reader = RecipeReader::new(&recipe, &store);
            for expected in &chunks {
                let found = reader.next_chunk().unwrap().map(|(_, chunk)| chunk);
                prop_assert_eq!(found, Some(*expected));
            }
            prop_assert_eq!(reader.next_chunk().unwrap(), None);
        }
    }

    /// Nodes are lost: what they name is passed over, and all else is in its place.
    #[test]
    fn what_is_behind_a_lost_node_keeps_its_place(
        count in 1_u64..600,
        seed in any::<u64>(),
        lost in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
    ) {
        let chunks: Vec<ChunkRef> = (0..count).map(chunk).collect();
        let limits = SizeLimits::from_seed(seed);
        let mut store = MemoryChunks { limits, ..MemoryChunks::default() };
        let recipe = build(&chunks, &mut store);
        let nodes: Vec<_> = store.chunks.keys().copied().collect();
        for index in lost.iter().filter(|_| !nodes.is_empty()) {
            store.chunks.remove(index.get(&nodes));
        }
        let offsets: Vec<(u64, ChunkRef)> = chunks
            .iter()
            .scan(0, |offset, chunk| {
                let start = *offset;
                *offset += chunk.stream_bytes;
                Some((start, *chunk))
            })
            .collect();
        let (mut reader, mut found) = (RecipeReader::new(&recipe, &store), Vec::new());
        loop {
            match reader.next_chunk() {
                Ok(Some(next)) => found.push(next),
                Ok(None) => break,
                Err(_) => {}
            }
        }
        prop_assert!(found.iter().all(|next| offsets.contains(next)));
        prop_assert!(!lost.is_empty() || found.len() as u64 == count);
    }

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
