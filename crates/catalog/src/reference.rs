//! References to chunks, and recipes: the list of chunks that make a stream, a Merkle tree when long.
//!
//! A recipe of depth 0 lists the chunks of the stream. A recipe of depth d lists *node chunks*,
//! each of which is the concatenated [`ChunkRef`]s of depth d − 1. So a file of any size has a
//! recipe of a few hundred bytes in its tree, and a changed chunk changes one node a level.
//! A hole in a sparse file is a reference without a chunk.

use strongroom_base::{ArenaId, Fingerprint, Location};

/// One element of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRef {
    /// The chunk's name; [`Fingerprint::ZERO`] marks a hole.
    pub fingerprint: Fingerprint,
    /// Where it was when the recipe was written. A hint: if it fails, ask the index.
    pub location: Location,
    /// How many bytes of the stream it covers: at depth 0 the chunk's own length.
    pub stream_bytes: u64,
}

/// The list of chunks that make a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipe {
    /// How many levels of node chunks are between this list and the stream's chunks.
    pub depth: u8,
    /// In stream order. At most [`Recipe::REFS_MAX`].
    pub refs: Vec<ChunkRef>,
}

impl ChunkRef {
    /// A hole of this length.
    pub fn hole(stream_bytes: u64) -> Self {
        let location = Location { arena: ArenaId::ZERO, slot: 0 };
        Self { fingerprint: Fingerprint::ZERO, location, stream_bytes }
    }

    /// A chunk that is named by its place.
    pub fn in_place(location: Location, stream_bytes: u64) -> Self {
        Self { fingerprint: Fingerprint::of_place(location), location, stream_bytes }
    }

    /// True for a hole: zeros without a chunk.
    pub fn is_hole(&self) -> bool {
        self.fingerprint == Fingerprint::ZERO
    }

    /// True for a chunk that is named by its place, as all are in a repository that compares by
    /// value.
    pub fn is_named_by_place(&self) -> bool {
        !self.is_hole() && self.fingerprint == Fingerprint::of_place(self.location)
    }

    /// Whether a node of a recipe may end after this reference: after one of 128, which depends on
    /// the chunk alone.
    pub(crate) fn may_end_node(&self) -> bool {
        let byte = match self.is_named_by_place() {
            true => self.location.arena.0[15] ^ self.location.slot as u8,
            false => self.fingerprint.0[31],
        };
        byte & 0x7f == 0
    }
}

impl Recipe {
    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.refs.capacity() * size_of::<ChunkRef>()
    }

    /// Longer lists are put into node chunks, one level down.
    pub const REFS_MAX: usize = 16;
    /// Deep enough for any stream: sixteen references of the shortest nodes, eight levels down.
    pub const DEPTH_MAX: u8 = 8;

    /// Length of the stream.
    pub fn stream_bytes(&self) -> u64 {
        self.refs.iter().fold(0, |sum, chunk| sum.saturating_add(chunk.stream_bytes))
    }

    /// True for a recipe of the same stream in the same chunks, at any location.
    pub fn same_stream(&self, other: &Self) -> bool {
        self.depth == other.depth && self.identities().eq(other.identities())
    }

    /// A hash that two recipes share if they are of the [same stream](Self::same_stream).
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[self.depth]);
        for (fingerprint, stream_bytes) in self.identities() {
            hasher.update(&fingerprint.0);
            hasher.update(&stream_bytes.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// What identifies the stream. A hole has a length and no name.
    fn identities(&self) -> impl Iterator<Item = (&Fingerprint, u64)> {
        self.refs.iter().map(|chunk| (&chunk.fingerprint, chunk.stream_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: u8, slot: u32, stream_bytes: u64) -> ChunkRef {
        let location = Location { arena: ArenaId([1; 16]), slot };
        ChunkRef { fingerprint: Fingerprint([name; 32]), location, stream_bytes }
    }

    #[test]
    fn house_2_one_rule_says_which_streams_are_the_same() {
        let recipe = Recipe { depth: 1, refs: vec![chunk(3, 4, 50), ChunkRef::hole(60)] };
        let moved = Recipe { depth: 1, refs: vec![chunk(3, 9, 50), ChunkRef::hole(60)] };
        assert!(recipe.same_stream(&moved));
        assert_eq!(recipe.digest(), moved.digest());
        for other in [
            Recipe { depth: 0, ..recipe.clone() },
            Recipe { depth: 1, refs: vec![chunk(4, 4, 50), ChunkRef::hole(60)] },
            Recipe { depth: 1, refs: vec![chunk(3, 4, 50), ChunkRef::hole(61)] },
            Recipe { depth: 1, refs: vec![chunk(3, 4, 50)] },
        ] {
            assert!(!recipe.same_stream(&other), "{other:?}");
            assert_ne!(recipe.digest(), other.digest(), "{other:?}");
        }
    }
}
