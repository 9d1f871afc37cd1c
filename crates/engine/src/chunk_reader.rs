//! Reading chunks: by the hint in the recipe, and where that fails, by the index.
//!
//! A hint is right unless the arena was lost; then the chunk may have been stored again since (a
//! later backup heals what was lost, Foundation §3.3), and the index knows where. The index is
//! brought up only then, so that reading a whole repository needs none.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_arena::{ArenaError, ArenaStore, CacheLimits, StoredChunk};
use strongroom_backend::Backend;
use strongroom_base::{Cancel, Fingerprint, Fingerprinter, Silent};
use strongroom_catalog::{ChunkRef, Location, ReadChunk};

use crate::chunk_index::ChunkIndex;
use crate::error::EngineError;
use crate::repository::Repository;

/// Reads chunks of a repository.
pub struct ChunkReader {
    store: ArenaStore,
    fingerprinter: Fingerprinter,
    backend: Arc<dyn Backend>,
    cache: Option<PathBuf>,
    // A plain mutex: taken only when a hint failed.
    index: Mutex<Option<ChunkIndex>>,
}

impl ChunkReader {
    /// A reader with its own caches.
    pub fn new(repository: &Repository, limits: CacheLimits) -> Result<Self, EngineError> {
        if repository.keys.private_key.is_none() {
            return Err(EngineError::PutOnly);
        }
        Ok(Self::for_parents(repository, limits))
    }

    /// A reader for a backup, which reads of its parent alone, and has none where the key may only
    /// store.
    pub(crate) fn for_parents(repository: &Repository, limits: CacheLimits) -> Self {
        Self {
            store: repository.arena_store(limits),
            fingerprinter: repository.keys.write.fingerprinter.clone(),
            backend: repository.surroundings.backend.clone(),
            cache: repository.cache_folder(),
            index: Mutex::new(None),
        }
    }

    /// The arenas.
    pub fn store(&self) -> &ArenaStore {
        &self.store
    }

    /// Names chunks as this repository does.
    pub fn fingerprinter(&self) -> &Fingerprinter {
        &self.fingerprinter
    }

    /// The bytes of a chunk, verified against its fingerprint.
    pub fn read(&self, chunk: &ChunkRef) -> Result<Vec<u8>, EngineError> {
        self.read_at(&chunk.fingerprint, chunk.location).or_else(|error| {
            let lost = |why: String| EngineError::ChunkLost {
                fingerprint: chunk.fingerprint,
                location: chunk.location,
                why,
            };
            match error {
                EngineError::Arena(ArenaError::Backend(_) | ArenaError::PutOnly) => Err(error),
                EngineError::Arena(_) | EngineError::ChunkLost { .. } => {
                    match self.find_elsewhere(&chunk.fingerprint, chunk.location)? {
                        Some(location) => self.read_at(&chunk.fingerprint, location),
                        None => Err(lost(error.to_string())),
                    }
                }
                other => Err(other),
            }
        })
    }

    /// Where else than at `tried` a chunk is, by the index.
    pub fn find_elsewhere(
        &self,
        fingerprint: &Fingerprint,
        tried: Location,
    ) -> Result<Option<Location>, EngineError> {
        let mut slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let refreshed = |mut index: ChunkIndex| -> Result<ChunkIndex, EngineError> {
            index.refresh(&*self.backend, &self.store, &Silent, &Cancel::new())?;
            Ok(index)
        };
        let index = match &mut *slot {
            Some(index) => index,
            empty => empty.insert(refreshed(ChunkIndex::open(self.cache.as_deref())?)?),
        };
        let mut found = index.lookup(fingerprint);
        if found.is_none() && index.is_broken() {
            *index = refreshed(ChunkIndex::in_memory())?;
            found = index.lookup(fingerprint);
        }
        Ok(found.filter(|location| *location != tried))
    }

    fn read_at(
        &self,
        fingerprint: &Fingerprint,
        location: Location,
    ) -> Result<Vec<u8>, EngineError> {
        let arena = self.store.arena(location.arena)?;
        let slot_lost = ArenaError::SlotLost { arena: location.arena, slot: location.slot };
        let place = arena.block_of(location.slot).ok_or(slot_lost)?;
        let block = self.store.block(&arena, place)?;
        let stored = block.chunk(location.slot).expect("the block holds the slot");
        Ok(self.resolve(fingerprint, location, stored)?.into_owned())
    }

    /// The bytes of a chunk as it stands in a block, verified against its fingerprint.
    pub fn resolve<'b>(
        &self,
        fingerprint: &Fingerprint,
        location: Location,
        stored: StoredChunk<'b>,
    ) -> Result<Cow<'b, [u8]>, EngineError> {
        let lost = |why: &str| EngineError::ChunkLost {
            fingerprint: *fingerprint,
            location,
            why: why.to_owned(),
        };
        let bytes = match stored {
            StoredChunk::Whole(bytes) => bytes,
            StoredChunk::Delta { .. } => {
                return Err(lost(
                    "it is a delta, which this version cannot read: update Strongroom",
                ));
            }
        };
        if self.fingerprinter.fingerprint(bytes) == *fingerprint {
            Ok(Cow::Borrowed(bytes))
        } else {
            Err(lost("other bytes are in its place"))
        }
    }
}

impl ReadChunk for ChunkReader {
    type Error = EngineError;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, EngineError> {
        self.read(chunk)
    }
}
