//! Storing chunks of data again, elsewhere, in the form that they have.

use strongroom_arena::{ArenaContent, StoredChunk};
use strongroom_base::Location;
use strongroom_catalog::ChunkRef;

use super::chunk_writer::ChunkWriter;
use crate::error::RepositoryError;
use crate::places::Places;

/// A chunk on its way to another place.
pub enum CopiedChunk {
    /// Its bytes, verified against its fingerprint.
    Whole(Vec<u8>),
    /// A delta of what stays where it is. Its block was authenticated, and its arena is trusted.
    Delta {
        /// How it is made from the bases.
        instructions: Vec<u8>,
        /// What they are.
        bases: Vec<Location>,
        /// Bytes of the chunk.
        chunk_bytes: u32,
    },
}

impl CopiedChunk {
    fn stored(&self) -> StoredChunk<'_> {
        match self {
            Self::Whole(bytes) => StoredChunk::Whole(bytes),
            Self::Delta { instructions, bases, chunk_bytes } => {
                StoredChunk::Delta { instructions, bases, chunk_bytes: *chunk_bytes }
            }
        }
    }
}

impl ChunkWriter<'_> {
    /// From here on, chunks in these places count as if they were not there.
    pub fn store_again(&mut self, places: Places) {
        self.again = places;
    }

    /// A chunk in a place that can be named: its own, or another if that is stored again.
    pub fn usable(&self, chunk: &ChunkRef) -> Result<Option<ChunkRef>, RepositoryError> {
        if !self.again.contains(chunk.location) {
            return Ok(Some(*chunk));
        }
        if self.reader.naming().is_by_value() {
            let moved = self.moved.get(&chunk.location);
            return Ok(moved.map(|place| ChunkRef::in_place(*place, chunk.stream_bytes)));
        }
        let found = self.index.find_known(&chunk.fingerprint, self.reader.store())?;
        let found = found.filter(|found| self.is_usable(*found));
        Ok(found.map(|location| ChunkRef { location, ..*chunk }))
    }

    /// A chunk of data, to be stored again.
    pub fn take_copy(&self, chunk: &ChunkRef) -> Result<CopiedChunk, RepositoryError> {
        match self.take_delta(chunk) {
            Some(delta) => Ok(delta),
            None => Ok(CopiedChunk::Whole(self.reader.read_data(chunk)?)),
        }
    }

    /// It as a delta, unless a base is stored again too, or may go. What cannot be read here may be
    /// elsewhere.
    fn take_delta(&self, chunk: &ChunkRef) -> Option<CopiedChunk> {
        let Location { arena, slot } = chunk.location;
        let arena = self.reader.store().arena(arena).ok()?;
        let entry = arena.slot(slot)?;
        if !chunk.fingerprint.names(chunk.location, &entry.fingerprint) {
            return None;
        }
        let is_delta = !entry.bases.is_empty() && self.can_be_bases(entry.bases);
        // Its bases may be gone.
        let is_present = |fingerprint| {
            self.index.is_present(fingerprint, chunk.location, self.reader.store()).unwrap_or(false)
        };
        if !is_delta || !is_present(&chunk.fingerprint) {
            return None;
        }
        let block = self.reader.block_of(chunk.location).ok()?;
        match block.chunk(slot)? {
            StoredChunk::Whole(_) => None,
            StoredChunk::Delta { instructions, bases, chunk_bytes } => Some(CopiedChunk::Delta {
                instructions: instructions.to_vec(),
                bases: bases.to_vec(),
                chunk_bytes,
            }),
        }
    }

    /// Stores a chunk of data again; returns where it is now.
    pub fn put_copy(
        &mut self,
        chunk: &ChunkRef,
        copy: &CopiedChunk,
    ) -> Result<ChunkRef, RepositoryError> {
        self.stats.data_chunks += 1;
        self.stats.data_chunks_new += 1;
        self.stats.data_bytes += chunk.stream_bytes;
        if !self.reader.naming().is_by_value() {
            let location = self.pack(ArenaContent::Data, chunk.fingerprint, copy.stored())?;
            return Ok(ChunkRef { location, ..*chunk });
        }
        let tag = self.reader.in_summary(chunk.location)?;
        let place = self.pack(ArenaContent::Data, tag, copy.stored())?;
        self.moved.insert(chunk.location, place);
        Ok(ChunkRef::in_place(place, chunk.stream_bytes))
    }
}
