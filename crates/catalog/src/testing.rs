//! A chunk store in memory, for the tests of this crate.

use std::collections::HashMap;
use std::convert::Infallible;

use strongroom_base::{ArenaId, Fingerprint, Location, SizeLimits};

use crate::{ChunkRef, Part, ReadChunk, WriteChunk};

#[derive(Debug, Default)]
pub struct MemoryChunks {
    pub chunks: HashMap<Fingerprint, Vec<u8>>,
    /// How many chunks were given to be kept.
    pub written: usize,
    pub limits: SizeLimits,
}

#[derive(Debug, thiserror::Error)]
#[error("no such chunk")]
pub struct NoSuchChunk;

impl WriteChunk for MemoryChunks {
    type Error = Infallible;

    fn write_chunk(
        &mut self,
        chunk: &[u8],
        _part: Part,
    ) -> Result<(Fingerprint, Location), Infallible> {
        let fingerprint = Fingerprint(*blake3::hash(chunk).as_bytes());
        self.written += 1;
        self.chunks.insert(fingerprint, chunk.to_vec());
        Ok((fingerprint, Location { arena: ArenaId([1; 16]), slot: 7 }))
    }

    fn holds(&self, chunk: &ChunkRef) -> Result<bool, Infallible> {
        Ok(self.chunks.contains_key(&chunk.fingerprint))
    }

    fn limits(&self) -> &SizeLimits {
        &self.limits
    }
}

impl ReadChunk for MemoryChunks {
    type Error = NoSuchChunk;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, NoSuchChunk> {
        self.chunks.get(&chunk.fingerprint).cloned().ok_or(NoSuchChunk)
    }
}
