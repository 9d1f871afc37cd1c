//! Recipes: the list of chunks that make a stream, a Merkle tree when long.
//!
//! A recipe of depth 0 lists the chunks of the stream. A recipe of depth d lists *node chunks*,
//! each of which is the concatenated [`ChunkRef`]s of depth d − 1. So a file of any size has a
//! recipe of a few hundred bytes in its tree, and a changed chunk changes one node a level.
//! A hole in a sparse file is a reference without a chunk.

use strongroom_base::{ArenaId, Fingerprint};

/// Where a chunk is: slots are stable for ever, so a location never goes stale by rewriting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The arena that holds it.
    pub arena: ArenaId,
    /// Its number in that arena.
    pub slot: u32,
}

/// One element of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRef {
    /// The chunk's name; [`Fingerprint::ZERO`] marks a hole.
    pub fingerprint: Fingerprint,
    /// Where it was when the recipe was written. A hint: the index knows better when it fails.
    pub location: Location,
    /// How many bytes of the stream it stands for: at depth 0 the chunk's own length.
    pub stream_bytes: u64,
}

/// The list of chunks that make a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipe {
    /// How many levels of node chunks stand between this list and the stream's chunks.
    pub depth: u8,
    /// In stream order. At most [`Recipe::REFS_MAX`].
    pub refs: Vec<ChunkRef>,
}

impl ChunkRef {
    /// Bytes of a reference in a recipe.
    pub const BYTES: usize = 60;

    /// A hole of so many bytes.
    pub fn hole(stream_bytes: u64) -> Self {
        let location = Location { arena: ArenaId::ZERO, slot: 0 };
        Self { fingerprint: Fingerprint::ZERO, location, stream_bytes }
    }

    /// True for a hole: zeros that no chunk stands for.
    pub fn is_hole(&self) -> bool {
        self.fingerprint == Fingerprint::ZERO
    }
}

impl Recipe {
    /// Longer lists are put into node chunks, one level down.
    pub const REFS_MAX: usize = 16;
    /// Deep enough for any stream: sixteen references of the shortest nodes, eight levels down.
    pub const DEPTH_MAX: u8 = 8;

    /// Length of the stream.
    pub fn stream_bytes(&self) -> u64 {
        self.refs.iter().fold(0, |sum, chunk| sum.saturating_add(chunk.stream_bytes))
    }
}
