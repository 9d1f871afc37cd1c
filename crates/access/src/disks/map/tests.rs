//! The map against a plain list of the chunks, and against recipes that lie.

use std::collections::HashMap;
use std::convert::Infallible;

use strongroom_base::{ArenaId, Location};
use strongroom_catalog::recipe::RecipeBuilder;
use strongroom_catalog::{Part, WriteChunk};
use strongroom_testkit::Random;

use super::*;

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
        Ok((fingerprint, PLACE))
    }

    fn holds(&self, chunk: &ChunkRef) -> Result<bool, Infallible> {
        Ok(self.0.contains_key(&chunk.fingerprint))
    }
}

impl ReadChunk for Memory {
    type Error = Failure;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, Failure> {
        self.0.get(&chunk.fingerprint).cloned().ok_or_else(|| Failure::damage("no such chunk"))
    }
}

const PLACE: Location = Location { arena: ArenaId([1; 16]), slot: 7 };

fn sample(seed: u64, count: usize) -> (Recipe, Vec<ChunkRef>, Memory) {
    let mut random = Random::new(seed);
    let (mut builder, mut memory) = (RecipeBuilder::new(), Memory::default());
    let mut chunks = Vec::new();
    for _ in 0..count {
        let stream_bytes = 1 + random.below(100);
        let chunk = if random.once_in(3) {
            ChunkRef::hole(stream_bytes)
        } else {
            let fingerprint = Fingerprint(random.noise(32).try_into().unwrap());
            ChunkRef { fingerprint, location: PLACE, stream_bytes }
        };
        builder.push(chunk, &mut memory).unwrap();
        chunks.push(chunk);
    }
    (builder.finish(&mut memory).unwrap(), chunks, memory)
}

/// What a range holds, by a plain list.
fn plain(chunks: &[ChunkRef], range: Range<u64>) -> Vec<(u64, ChunkRef)> {
    let mut start = 0;
    let placed = chunks.iter().map(|chunk| {
        start += chunk.stream_bytes;
        (start - chunk.stream_bytes, *chunk)
    });
    placed.filter(|(at, chunk)| *at < range.end && at + chunk.stream_bytes > range.start).collect()
}

#[test]
fn every_range_has_the_chunks_of_a_plain_list() {
    for (seed, count) in [(1, 0), (2, 1), (3, 16), (4, 17), (5, 5000), (6, 100_000)] {
        let (recipe, chunks, memory) = sample(seed, count);
        let map = DiskMap::new(&recipe).unwrap();
        assert_eq!(map.bytes(), chunks.iter().map(|chunk| chunk.stream_bytes).sum::<u64>());
        // Less than is needed, so nodes are read again.
        let nodes = Nodes::new(Arc::new(memory), 100 << 10);
        let mut random = Random::new(seed);
        for _ in 0..30 {
            let start = random.below(map.bytes() + 1);
            let range = start..start + random.below(3000);
            let mut found = Vec::new();
            map.for_each(range.clone(), &nodes, |at, chunk| {
                found.push((at, *chunk));
                Ok::<_, Failure>(ControlFlow::Continue(()))
            })
            .unwrap();
            let expected =
                if range.is_empty() { Vec::new() } else { plain(&chunks, range.clone()) };
            assert_eq!(found, expected, "{range:?}");
            check_extents(&map, &nodes, range, &expected);
        }
    }
}

#[track_caller]
fn check_extents(
    map: &DiskMap,
    nodes: &Nodes<Memory>,
    range: Range<u64>,
    expected: &[(u64, ChunkRef)],
) {
    let extents = map.extents(range.clone(), nodes).unwrap();
    assert!(extents.windows(2).all(|pair| pair[0].is_hole != pair[1].is_hole), "long runs");
    let mut position = range.start;
    let mut by_byte = Vec::new();
    for extent in &extents {
        by_byte.extend((position..position + extent.bytes).map(|_| extent.is_hole));
        position += extent.bytes;
    }
    let end = range.end.min(map.bytes()).max(range.start);
    assert_eq!(by_byte.len() as u64, end - range.start);
    for (at, chunk) in expected {
        for byte in (*at).max(range.start)..(at + chunk.stream_bytes).min(range.end) {
            assert_eq!(by_byte[(byte - range.start) as usize], chunk.is_hole());
        }
    }
}

#[test]
fn a_byte_in_the_middle_costs_one_node_of_each_level() {
    let (recipe, _, memory) = sample(7, 100_000);
    assert!(recipe.depth > 0);
    let map = DiskMap::new(&recipe).unwrap();
    let nodes = Nodes::new(Arc::new(memory), 64 << 20);
    map.extents(map.bytes() / 2..map.bytes() / 2 + 1, &nodes).unwrap();
    let most = usize::from(recipe.depth) * (1024 * 68 + 200);
    assert!(nodes.kept.bytes() < most, "{} of {most}", nodes.kept.bytes());
}

#[test]
fn recipes_that_lie_end_in_an_error() {
    let (recipe, _, memory) = sample(8, 20_000);
    let nodes = Nodes::new(Arc::new(memory), 1 << 20);
    let all = |recipe: &Recipe| {
        let map = DiskMap::new(recipe)?;
        map.extents(0..map.bytes(), &nodes)
    };
    all(&recipe).unwrap();
    // A node that is known already, under another length.
    let mut longer = recipe.clone();
    longer.refs[0].stream_bytes += 1;
    assert!(all(&longer).is_err());
    let mut missing = recipe.clone();
    missing.refs[0].fingerprint = Fingerprint([9; 32]);
    assert!(all(&missing).is_err());
    let mut huge = recipe.clone();
    huge.refs[0].stream_bytes = u64::MAX;
    assert!(all(&huge).is_err());
    let mut deep = recipe.clone();
    deep.depth += 1;
    assert!(all(&deep).is_err());
    // A recipe without bytes has none.
    assert_eq!(all(&Recipe::default()).unwrap(), []);
}
