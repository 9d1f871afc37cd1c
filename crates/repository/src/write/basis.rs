//! What a new chunk is encoded against: the same stream in the parent snapshot, at and around the
//! same place (Arrow §6).
//!
//! If something was inserted or removed before the place, the parent's stream has the same bytes
//! further on or further back: the *drift*, taken from the chunks that both streams share. Deltas
//! are one step deep: a chunk whose basis would be a delta is encoded against that delta's bases.

use std::ops::Range;

use strongroom_arena::{ArenaError, StoredChunk};
use strongroom_base::{Fingerprint, Location};
use strongroom_catalog::recipe::read_node;
use strongroom_catalog::{ChunkRef, Part, Recipe};
use strongroom_chunk::delta;

use crate::error::RepositoryError;
use crate::read::chunk_reader::ChunkReader;

/// A basis has at most this many chunks.
const CHUNKS_MAX: usize = 6;
/// How far back and ahead of its place a shared chunk is looked for.
const SEARCH_BYTES: (u64, u64) = (4 << 20, 16 << 20);
/// Nodes of the parent's recipe that are kept.
const NODES_KEPT: usize = 8;
/// A delta of at most 1 / `PROOF` of its chunk proves the drift.
const PROOF: usize = 4;
/// What a base costs besides the delta's bytes: its names in a block and in a summary.
const BASE_COST_BYTES: usize = 44;

/// The parent's version of a stream.
pub struct StreamBasis<'r> {
    reader: &'r ChunkReader,
    recipe: Recipe,
    /// The place in the parent's stream, minus the place in the new one.
    drift: i64,
    /// The drift with which a chunk was last found in its place, or made a short delta. A single
    /// shared chunk does not prove its drift: content that repeats in a stream is also shared with
    /// a wrong place.
    proven_drift: i64,
    /// Nodes read last, the latest at the end.
    nodes: Vec<(Fingerprint, Vec<ChunkRef>)>,
}

/// The result of encoding a chunk against the parent's version of its stream.
pub enum FromParent {
    /// The parent has nothing in its place.
    Nothing,
    /// A delta would save too little, or its basis is not trusted.
    TooDifferent,
    /// A delta.
    Delta(Delta),
}

/// Chunks that another chunk can be encoded against.
pub struct FoundBasis {
    bases: Vec<Location>,
    index: delta::Basis,
    /// Where in their bytes the chunk would begin if nothing had moved.
    in_place: usize,
}

/// A chunk encoded against others.
pub struct Delta {
    /// What they are.
    pub bases: Vec<Location>,
    /// How the chunk is made from them.
    pub instructions: Vec<u8>,
}

impl<'r> StreamBasis<'r> {
    /// The basis of a stream that was this recipe in the parent.
    pub fn new(reader: &'r ChunkReader, recipe: &Recipe) -> Self {
        Self { reader, recipe: recipe.clone(), drift: 0, proven_drift: 0, nodes: Vec::new() }
    }

    /// Where the chunk of this fingerprint is, if the parent has it in exactly this place.
    pub fn in_place(&mut self, part: Part, fingerprint: &Fingerprint) -> Option<Location> {
        let here = self.in_parent(part.offset);
        let (start, chunk) = *self.parts(part.level, here..here.saturating_add(1)).first()?;
        if start != here || !self.reader.may_be(&chunk, fingerprint).unwrap_or(false) {
            return None;
        }
        self.proven_drift = self.drift;
        Some(chunk.location)
    }

    /// Records that the chunk at `offset`, which differs from the chunk in its place in the parent,
    /// is one that the repository holds already.
    pub fn saw_known(&mut self, offset: u64, name: &Fingerprint) {
        let here = self.in_parent(offset);
        let is_same = |(_, chunk): &(u64, ChunkRef)| chunk.fingerprint == *name;
        let (back, ahead) = SEARCH_BYTES;
        let around = here.saturating_sub(back)..here.saturating_add(ahead);
        if let Some((there, _)) = self.parts(0, around).into_iter().find(is_same) {
            self.drift = there.cast_signed().wrapping_sub(offset.cast_signed());
        }
    }

    /// A chunk as a delta of what the parent has in its place, if that is trusted. If it is not
    /// short, the drift that was proven last is tried too, and none: a stream that is overwritten
    /// in place, as an image or a memory, never moves. The drift of the shortest delta is kept.
    pub fn encode(
        &mut self,
        part: Part,
        chunk: &[u8],
        is_trusted: impl Fn(&FoundBasis) -> bool,
    ) -> FromParent {
        let mut shortest: Option<(Delta, i64)> = None;
        let mut is_there = false;
        let drifts = [self.drift, self.proven_drift, 0];
        for (number, drift) in drifts.into_iter().enumerate() {
            if drifts[..number].contains(&drift) {
                continue;
            }
            let Some(found) = self.find(part, drift, chunk.len()) else { continue };
            is_there = true;
            let found = Some(found).filter(&is_trusted);
            let Some(delta) = found.and_then(|found| found.encode(chunk)) else { continue };
            if delta.instructions.len() <= chunk.len() / PROOF {
                self.drift = drift;
                self.proven_drift = drift;
                return FromParent::Delta(delta);
            }
            let bytes = delta.instructions.len();
            if shortest.as_ref().is_none_or(|(best, _)| bytes < best.instructions.len()) {
                shortest = Some((delta, drift));
            }
        }
        match shortest {
            Some((delta, drift)) => {
                self.drift = drift;
                FromParent::Delta(delta)
            }
            None if is_there => FromParent::TooDifferent,
            None => FromParent::Nothing,
        }
    }

    /// What the parent has in the place of a chunk of this length, with this drift.
    fn find(&mut self, part: Part, drift: i64, bytes: usize) -> Option<FoundBasis> {
        let here = part.offset.saturating_add_signed(drift);
        let range = match part.level {
            0 => {
                let (bytes, margin) = (bytes as u64, bytes as u64 / 2);
                here.saturating_sub(margin)..here.saturating_add(bytes + margin)
            }
            _ => here..here.saturating_add(1),
        };
        let parts = self.parts(part.level, range);
        let places: Vec<_> = parts.iter().map(|(_, chunk)| chunk.location).collect();
        // The part in which the chunk begins, and how far from that part's beginning.
        let part = parts.iter().rposition(|(start, _)| *start <= here).unwrap_or(0);
        let into_part = parts.get(part).map_or(0, |(start, _)| here.saturating_sub(*start));
        FoundBasis::of(self.reader, &places, (part, into_part as usize))
    }

    fn in_parent(&self, offset: u64) -> u64 {
        offset.saturating_add_signed(self.drift)
    }

    /// The chunks of a level that are in a range of the parent's stream, each with its offset.
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

    /// A node of the parent's recipe. One that cannot be read counts as missing.
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
    /// A basis of the chunks in these places; `None` if there are none, or they cannot be read. The
    /// chunk to encode would begin `offset` bytes into the chunk with the number `in_chunk`.
    pub fn of(
        reader: &ChunkReader,
        places: &[Location],
        (in_chunk, offset): (usize, usize),
    ) -> Option<Self> {
        let mut bases: Vec<Location> = Vec::new();
        let (mut of_chunk, mut start) = (Vec::new(), 0);
        for (number, place) in places.iter().enumerate() {
            let found = reader.bases_in_place_of(*place).ok()?;
            bases.extend(found.iter().filter(|base| !bases.contains(base)).collect::<Vec<_>>());
            if number == in_chunk {
                start = reader.start_in_bases(*place).ok()?.saturating_add(offset);
                of_chunk = found;
            }
        }
        bases.truncate(CHUNKS_MAX);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let take = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            ends.push(bytes.len());
        };
        reader.each_base(&bases, None, take).ok().filter(|()| !bases.is_empty())?;
        let in_place = place_among(&bases, &ends, &of_chunk, start).unwrap_or(0);
        Some(Self { bases, index: delta::Basis::new(bytes, ends), in_place })
    }

    /// The chunks, which are stored whole.
    pub fn bases(&self) -> &[Location] {
        &self.bases
    }

    /// A chunk encoded against it; `None` if that saves too little.
    pub fn encode(self, chunk: &[u8]) -> Option<Delta> {
        let bytes_max = (chunk.len() / 2).checked_sub(self.bases.len() * BASE_COST_BYTES)?;
        let encoded = self.index.encode(chunk, self.in_place, bytes_max)?;
        Some(Delta { bases: self.bases[encoded.chunks].to_vec(), instructions: encoded.bytes })
    }
}

/// The place among `bases`, which end at `ends`, of the byte that is at `start` of some of them.
fn place_among(
    bases: &[Location],
    ends: &[usize],
    some: &[Location],
    mut start: usize,
) -> Option<usize> {
    for base in some {
        let number = bases.iter().position(|other| other == base)?;
        let begin = number.checked_sub(1).map_or(0, |before| ends[before]);
        let bytes = ends[number] - begin;
        if start < bytes {
            return Some(begin + start);
        }
        start -= bytes;
    }
    None
}

impl ChunkReader {
    /// The bases for a chunk that resembles the one in this place: that chunk if it is stored
    /// whole, otherwise its bases. A slot that its summary does not name has none: a repair has left
    /// it out, although its block may still have the chunk, and the next rewriting drops it.
    fn bases_in_place_of(&self, place: Location) -> Result<Vec<Location>, RepositoryError> {
        let Location { arena: id, slot } = place;
        let arena = self.store().arena(id)?;
        let held = arena.slot(slot).filter(|slot| slot.fingerprint != Fingerprint::ZERO);
        match held.ok_or(ArenaError::SlotLost { arena: id, slot })?.bases {
            [] => Ok(vec![place]),
            bases => Ok(bases.to_vec()),
        }
    }

    /// Where in those the chunk begins.
    fn start_in_bases(&self, place: Location) -> Result<usize, RepositoryError> {
        let arena = self.store().arena(place.arena)?;
        if arena.slot(place.slot).is_none_or(|slot| slot.bases.is_empty()) {
            return Ok(0);
        }
        match self.block_of(place)?.chunk(place.slot) {
            Some(StoredChunk::Delta { instructions, .. }) => {
                Ok(delta::start_in_basis(instructions).unwrap_or(0))
            }
            _ => Ok(0),
        }
    }
}

impl Delta {
    /// The chunk in the form in which it is to be stored.
    pub fn stored<'d>(&'d self, chunk: &[u8]) -> StoredChunk<'d> {
        StoredChunk::Delta {
            instructions: &self.instructions,
            bases: &self.bases,
            chunk_bytes: u32::try_from(chunk.len()).expect("a chunk is shorter than a block"),
        }
    }
}
