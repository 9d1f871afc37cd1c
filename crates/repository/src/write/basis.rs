//! What a new chunk is encoded against: the same stream in the parent snapshot, at and around the
//! same place (Arrow §6).
//!
//! Where something was inserted or removed before the place, the parent's stream has the same
//! bytes further on or further back: the *drift*, read off the chunks that both streams share.
//! Deltas are one step deep: what is encoded against a chunk that is a delta itself is encoded
//! against that one's bases.

use std::ops::Range;

use strongroom_arena::{BaseLocation, StoredChunk};
use strongroom_base::Fingerprint;
use strongroom_catalog::recipe::read_node;
use strongroom_catalog::{ChunkRef, Location, Part, Recipe};
use strongroom_chunk::delta;

use crate::error::RepositoryError;
use crate::read::chunk_reader::ChunkReader;

/// A basis is so many chunks at most.
const CHUNKS_MAX: usize = 6;
/// How far back and ahead of its place a shared chunk is looked for.
const SEARCH_BYTES: (u64, u64) = (4 << 20, 16 << 20);
/// Nodes of the parent's recipe that are kept.
const NODES_KEPT: usize = 8;
/// What a base costs beside the delta's bytes: its names in a block and in a summary.
const BASE_COST_BYTES: usize = 44;

/// The parent's version of a stream.
pub struct StreamBasis<'r> {
    reader: &'r ChunkReader,
    recipe: Recipe,
    /// Place in the parent's stream, less the place in the new one.
    drift: i64,
    /// Nodes read last, the latest at the end.
    nodes: Vec<(Fingerprint, Vec<ChunkRef>)>,
}

/// Chunks that something can be encoded against.
pub struct FoundBasis {
    bases: Vec<BaseLocation>,
    index: delta::Basis,
}

/// A chunk encoded against others.
pub struct Delta {
    /// What they are.
    pub bases: Vec<BaseLocation>,
    /// How the chunk is made of them.
    pub instructions: Vec<u8>,
}

impl<'r> StreamBasis<'r> {
    /// The basis of a stream that was this recipe in the parent.
    pub fn new(reader: &'r ChunkReader, recipe: &Recipe) -> Self {
        Self { reader, recipe: recipe.clone(), drift: 0, nodes: Vec::new() }
    }

    /// Where the chunk of this name stands, if the parent has it in this very place.
    pub fn in_place(&mut self, part: Part, fingerprint: &Fingerprint) -> Option<Location> {
        let here = self.in_parent(part.offset);
        let (start, chunk) = *self.parts(part.level, here..here.saturating_add(1)).first()?;
        (start == here && chunk.fingerprint == *fingerprint).then_some(chunk.location)
    }

    /// Takes note that the chunk at `offset`, which is not the one in its place in the parent, is
    /// one that the repository holds already.
    pub fn saw_known(&mut self, offset: u64, fingerprint: &Fingerprint) {
        let here = self.in_parent(offset);
        let is_same = |(_, chunk): &(u64, ChunkRef)| chunk.fingerprint == *fingerprint;
        let (back, ahead) = SEARCH_BYTES;
        let around = here.saturating_sub(back)..here.saturating_add(ahead);
        if let Some((there, _)) = self.parts(0, around).into_iter().find(is_same) {
            self.drift = there.cast_signed().wrapping_sub(offset.cast_signed());
        }
    }

    /// What the parent has in the place of a chunk of so many bytes.
    pub fn find(&mut self, part: Part, bytes: usize) -> Option<FoundBasis> {
        let here = self.in_parent(part.offset);
        let range = match part.level {
            0 => {
                let (bytes, margin) = (bytes as u64, bytes as u64 / 2);
                here.saturating_sub(margin)..here.saturating_add(bytes + margin)
            }
            _ => here..here.saturating_add(1),
        };
        let parts = self.parts(part.level, range);
        FoundBasis::of(self.reader, parts.iter().map(|(_, chunk)| chunk.location))
    }

    fn in_parent(&self, offset: u64) -> u64 {
        offset.saturating_add_signed(self.drift)
    }

    /// The chunks of a level that stand in a range of the parent's stream, each with its offset.
    fn parts(&mut self, level: u8, range: Range<u64>) -> Vec<(u64, ChunkRef)> {
        let mut found = Vec::new();
        let refs = std::mem::take(&mut self.recipe.refs);
        self.descend(self.recipe.depth, 0, &refs, level, &range, &mut found);
        self.recipe.refs = refs;
        found
    }

    fn descend(
        &mut self,
        depth: u8,
        start: u64,
        refs: &[ChunkRef],
        level: u8,
        range: &Range<u64>,
        found: &mut Vec<(u64, ChunkRef)>,
    ) {
        let mut offset = start;
        for chunk in refs {
            let end = offset.saturating_add(chunk.stream_bytes);
            if end > range.start && !chunk.is_hole() {
                if depth == level {
                    found.push((offset, *chunk));
                } else if depth > level
                    && let Some(children) = self.take_node(chunk)
                {
                    self.descend(depth - 1, offset, &children, level, range, found);
                    self.nodes.push((chunk.fingerprint, children));
                }
            }
            offset = end;
            if offset >= range.end {
                break;
            }
        }
    }

    /// A node of the parent's recipe. One that cannot be read is as good as none.
    fn take_node(&mut self, node: &ChunkRef) -> Option<Vec<ChunkRef>> {
        let kept = self.nodes.iter().position(|(kept, _)| *kept == node.fingerprint);
        if let Some(place) = kept {
            return Some(self.nodes.remove(place).1);
        }
        if self.nodes.len() >= NODES_KEPT {
            self.nodes.remove(0);
        }
        read_node(node, self.reader).ok()
    }
}

impl FoundBasis {
    /// A basis of the chunks in these places; none where there are none, or they cannot be read.
    pub fn of(reader: &ChunkReader, places: impl Iterator<Item = Location>) -> Option<Self> {
        let mut bases: Vec<BaseLocation> = Vec::new();
        for place in places {
            for base in reader.bases_in_place_of(place).ok()? {
                if !bases.contains(&base) {
                    bases.push(base);
                }
            }
        }
        bases.truncate(CHUNKS_MAX);
        let bytes = reader.read_bases(&bases, None).ok().filter(|bytes| !bytes.is_empty())?;
        Some(Self { bases, index: delta::Basis::new(bytes) })
    }

    /// The chunks, which are stored whole.
    pub fn bases(&self) -> &[BaseLocation] {
        &self.bases
    }

    /// A chunk encoded against it; none where that saves too little.
    pub fn encode(self, chunk: &[u8]) -> Option<Delta> {
        let bytes_max = (chunk.len() / 2).checked_sub(self.bases.len() * BASE_COST_BYTES)?;
        let instructions = self.index.encode(chunk, bytes_max)?;
        Some(Delta { bases: self.bases, instructions })
    }
}

impl ChunkReader {
    /// What a chunk can be encoded against that resembles the one in this place: that one where it
    /// is stored whole, else its bases.
    fn bases_in_place_of(&self, place: Location) -> Result<Vec<BaseLocation>, RepositoryError> {
        let arena = self.store().arena(place.arena)?;
        let bases = arena.slot(place.slot).map(|slot| slot.bases.clone()).unwrap_or_default();
        if bases.is_empty() {
            Ok(vec![BaseLocation { arena: place.arena, slot: place.slot }])
        } else {
            Ok(bases)
        }
    }
}

impl Delta {
    /// The chunk as it is to be stored.
    pub fn stored<'d>(&'d self, chunk: &[u8]) -> StoredChunk<'d> {
        StoredChunk::Delta {
            instructions: &self.instructions,
            bases: &self.bases,
            chunk_bytes: u32::try_from(chunk.len()).expect("a chunk is shorter than a block"),
        }
    }
}
