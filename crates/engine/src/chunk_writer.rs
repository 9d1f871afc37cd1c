//! Storing chunks, each once: look it up, and pack it where it is new.

use strongroom_arena::{ArenaContent, ArenaStore, CacheLimits};
use strongroom_base::{Cancel, Fingerprint, Fingerprinter, Monitor};
use strongroom_catalog::{ChunkRef, Location, WriteChunk};

use crate::chunk_index::ChunkIndex;
use crate::error::EngineError;
use crate::packer::{PackOptions, Packer, WrittenArena};
use crate::repository::Repository;

/// What was written, chunk by chunk and request by request (Yuru §5.1.2 counts these).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Chunks of data that came.
    pub data_chunks: u64,
    /// Those of them that were new.
    pub data_chunks_new: u64,
    /// Bytes of new data.
    pub data_bytes: u64,
    /// Chunks of metadata that were new.
    pub metadata_chunks_new: u64,
    /// Bytes of new metadata.
    pub metadata_bytes: u64,
    /// Blocks that new chunks were put into.
    pub blocks: u64,
    /// Arenas that blocks were put into: requests to the backend.
    pub arenas: u64,
    /// Bytes of these arenas.
    pub stored_bytes: u64,
}

/// Stores chunks of one session.
pub struct ChunkWriter {
    index: ChunkIndex,
    store: ArenaStore,
    fingerprinter: Fingerprinter,
    packer: Packing,
    stats: WriteStats,
}

/// Where new chunks go.
enum Packing {
    Packer(Box<Packer>),
    /// A dry run: locations are made up, in an arena that never is.
    Nowhere {
        next_slot: u32,
        id: strongroom_base::ArenaId,
    },
}

impl ChunkWriter {
    /// Learns which arenas stand and starts packing.
    pub fn open(
        repository: &Repository,
        pack: PackOptions,
        dry_run: bool,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Self, EngineError> {
        let store = repository.arena_store(CacheLimits::default());
        let mut index = ChunkIndex::open(repository.cache_folder().as_deref())?;
        index.refresh(repository.backend(), &store, monitor, cancel)?;
        let packer = if dry_run {
            let id = strongroom_base::ArenaId([0x7f; 16]);
            index.begin_arena(id);
            Packing::Nowhere { next_slot: 0, id }
        } else {
            Packing::Packer(Box::new(Packer::start(repository, pack)))
        };
        let fingerprinter = repository.write_keys().fingerprinter.clone();
        Ok(Self { index, store, fingerprinter, packer, stats: WriteStats::default() })
    }

    /// Keeps a chunk of data.
    pub fn put_data(&mut self, chunk: &[u8]) -> Result<ChunkRef, EngineError> {
        self.stats.data_chunks += 1;
        let (fingerprint, location, is_new) = self.put(ArenaContent::Data, chunk)?;
        if is_new {
            self.stats.data_chunks_new += 1;
            self.stats.data_bytes += chunk.len() as u64;
        }
        Ok(ChunkRef { fingerprint, location, stream_bytes: chunk.len() as u64 })
    }

    /// Keeps chunks of metadata.
    pub fn metadata(&mut self) -> MetadataLane<'_> {
        MetadataLane { writer: self }
    }

    fn put(
        &mut self,
        content: ArenaContent,
        chunk: &[u8],
    ) -> Result<(Fingerprint, Location, bool), EngineError> {
        let fingerprint = self.fingerprinter.fingerprint(chunk);
        if let Some(location) = self.index.lookup(&fingerprint) {
            return Ok((fingerprint, location, false));
        }
        let location = match &mut self.packer {
            Packing::Packer(packer) => {
                let (location, is_new_arena) = packer.put(content, fingerprint, chunk)?;
                if is_new_arena {
                    self.index.begin_arena(location.arena);
                }
                let written = packer.take_written()?;
                self.note_written(&written);
                location
            }
            Packing::Nowhere { next_slot, id } => {
                *next_slot = next_slot.wrapping_add(1);
                Location { arena: *id, slot: *next_slot }
            }
        };
        self.index.insert(&fingerprint, location);
        Ok((fingerprint, location, true))
    }

    fn note_written(&mut self, arenas: &[WrittenArena]) {
        for arena in arenas {
            self.index.finish_arena(arena.id, arena.object_bytes);
            self.stats.arenas += 1;
            self.stats.blocks += arena.blocks as u64;
            self.stats.stored_bytes += arena.object_bytes;
        }
    }

    /// True where the chunk that a parent's recipe names is still there.
    pub fn is_present(&self, chunk: &ChunkRef) -> Result<bool, EngineError> {
        self.index.is_present(chunk.location, &self.store)
    }

    /// What was written so far.
    pub fn stats(&self) -> &WriteStats {
        &self.stats
    }

    /// Waits until every arena is on the medium, and keeps the index.
    pub fn finish(mut self, monitor: &dyn Monitor) -> Result<WriteStats, EngineError> {
        let dry_run = Packing::Nowhere { next_slot: 0, id: strongroom_base::ArenaId::ZERO };
        if let Packing::Packer(packer) = std::mem::replace(&mut self.packer, dry_run) {
            let written = packer.finish()?;
            self.note_written(&written);
            self.index.flush(monitor);
        }
        Ok(self.stats)
    }
}

/// Keeps chunks of trees and recipes.
pub struct MetadataLane<'w> {
    writer: &'w mut ChunkWriter,
}

impl WriteChunk for MetadataLane<'_> {
    type Error = EngineError;

    fn write_chunk(&mut self, chunk: &[u8]) -> Result<(Fingerprint, Location), EngineError> {
        let (fingerprint, location, is_new) = self.writer.put(ArenaContent::Metadata, chunk)?;
        if is_new {
            self.writer.stats.metadata_chunks_new += 1;
            self.writer.stats.metadata_bytes += chunk.len() as u64;
        }
        Ok((fingerprint, location))
    }
}
