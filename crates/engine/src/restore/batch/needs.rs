//! Where each needed chunk is read: a whole one where it is, a delta where its first base is.
//!
//! Bases are in blocks that most of a restore reads anyway. A delta that waits there for its base
//! costs no second reading of it, for a base and a delta of any age; so the last version of many is
//! read as fast as the first. For that, the instructions of deltas are read ahead, in the order in
//! which they are stored: they are short.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use strongroom_arena::{Arena, ArenaError, ArenaStore, StoredChunk};
use strongroom_backend::each_read_ahead;
use strongroom_base::{ArenaId, Cancel, Location};
use strongroom_repository::ChunkReader;

use super::Want;
use crate::error::EngineError;

/// How many bytes of a batch's deltas are held; the last may exceed it. Further deltas are read
/// where they are, and their bases once more.
const HELD_BYTES_MAX: usize = 16 << 20;

/// An arena of which more than this is needed, before compression, is read as a whole, if the place
/// sends what follows a part too.
const PARTS_BYTES_MAX: u64 = 4 << 20;
/// Arenas that are fetched as a whole at the same time: each is in memory until it is spooled.
const WHOLE_AT_A_TIME: usize = 3;

/// A chunk that is to be read.
pub struct Need<'b> {
    /// The want that it serves.
    pub want: &'b Want,
    /// Where it is read.
    pub at: Location,
    /// What is held of it already; then `at` is the location of its first base.
    pub delta: Option<Box<HeldDelta>>,
}

/// A delta that waits for its bases.
pub struct HeldDelta {
    instructions: Vec<u8>,
    bases: Vec<Location>,
    chunk_bytes: u32,
}

impl HeldDelta {
    /// In the form in which its block stores it.
    pub fn as_stored(&self) -> StoredChunk<'_> {
        let Self { instructions, bases, chunk_bytes } = self;
        StoredChunk::Delta { instructions, bases, chunk_bytes: *chunk_bytes }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.instructions.len() + size_of_val(&*self.bases)
    }
}

/// What is needed, and outlines of the arenas that were opened to find that out.
pub struct Placed<'b> {
    /// In no certain order.
    pub needs: Vec<Need<'b>>,
    /// Kept so that no summary is read again.
    pub arenas: HashMap<ArenaId, Arc<Arena>>,
    /// A part of an arena takes no more than its own bytes.
    pub in_parts: bool,
}

/// Finds out where each chunk is read.
///
/// A chunk that cannot be read here is treated as whole: it fails again in its turn, and is then
/// looked for elsewhere. Of an arena that was fetched as a whole, what waits for no base is given to
/// `take` at once, so that it is written while others are fetched.
pub fn place<'b>(
    wanted: &[&'b Want],
    reader: &ChunkReader,
    cancel: &Cancel,
    take: &mut dyn FnMut(Placed<'b>) -> Result<(), EngineError>,
) -> Result<Placed<'b>, EngineError> {
    let mut needs: Vec<Need<'b>> = Vec::with_capacity(wanted.len());
    let mut arenas = HashMap::new();
    let held_bytes = AtomicUsize::new(0);
    let by_arena: Vec<&[&'b Want]> =
        wanted.chunk_by(|one, other| one.location.arena == other.location.arena).collect();
    let look = |of_arena: &&[&'b Want]| -> Result<_, EngineError> {
        cancel.check()?;
        let id = of_arena[0].location.arena;
        let chunks = of_arena.chunk_by(|one, other| one.location == other.location);
        let wanted_bytes: u64 = chunks.map(|wants| u64::from(wants[0].bytes)).sum();
        let is_near = !reader.sends_parts()
            && wanted_bytes > PARTS_BYTES_MAX
            && reader.store().bring_near(id);
        let arena = match reader.store().arena(id) {
            Ok(arena) => Some(arena),
            Err(error) if error.withheld().is_some() => None,
            Err(error @ (ArenaError::Backend(_) | ArenaError::PutOnly)) => return Err(error.into()),
            Err(_) => None,
        };
        let place_one = |&want: &&'b Want| {
            let has_room = held_bytes.load(Ordering::Relaxed) < HELD_BYTES_MAX;
            let open = arena.as_ref().filter(|_| has_room);
            let delta = open.and_then(|arena| held(want, arena, reader.store())).map(Box::new);
            let bytes = delta.as_ref().map_or(0, |delta| delta.memory_bytes());
            held_bytes.fetch_add(bytes, Ordering::Relaxed);
            let base = delta.as_ref().and_then(|delta| delta.bases.first());
            Need { want, at: base.copied().unwrap_or(want.location), delta }
        };
        let placed: Vec<Need<'b>> = of_arena.iter().map(place_one).collect();
        Ok((placed, arena.map(|arena| (arena.id, Arc::new(arena.outline()))), is_near))
    };
    let at_a_time = match reader.sends_parts() {
        true => reader.requests_in_flight(),
        false => reader.requests_in_flight().min(WHOLE_AT_A_TIME),
    };
    each_read_ahead(at_a_time, &by_arena, look, |_, looked| {
        let (mut placed, arena, is_near) = looked?;
        if is_near {
            let whole = placed.extract_if(.., |need| need.delta.is_none()).collect();
            let arenas = arena.iter().cloned().collect();
            take(Placed { needs: whole, arenas, in_parts: true })?;
        }
        needs.extend(placed);
        arenas.extend(arena);
        Ok::<(), EngineError>(())
    })?;
    Ok(Placed { needs, arenas, in_parts: reader.sends_parts() })
}

/// The delta that a chunk is stored as, if it is one.
fn held(want: &Want, arena: &Arena, store: &ArenaStore) -> Option<HeldDelta> {
    let slot = want.location.slot;
    if arena.slot(slot)?.bases.is_empty() {
        return None;
    }
    match store.block(arena, arena.block_of(slot)?).ok()?.chunk(slot)? {
        StoredChunk::Whole(_) => None,
        StoredChunk::Delta { instructions, bases, chunk_bytes } => {
            let (instructions, bases) = (instructions.to_vec(), bases.to_vec());
            Some(HeldDelta { instructions, bases, chunk_bytes })
        }
    }
}
