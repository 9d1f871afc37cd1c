//! Arenas from the outside: built, stored, read, damaged, healed and rescued.
#![expect(clippy::unwrap_used, reason = "a helper that cannot do its work fails the test")]

mod caches;
mod format_documents;
mod golden;
mod large;
mod memory;
mod refused;
mod rescue;
mod rewrite;
mod store;
mod summary;

use std::sync::Arc;

use strongroom_arena::envelope::{self, HEADROOM};
use strongroom_arena::format::{ArenaHead, HEAD_BYTES, SUMMARY_START};
use strongroom_arena::{
    Arena, ArenaBuilder, ArenaContent, ArenaError, ArenaName, ArenaSeed, ArenaStore, BlockDraft,
    BlockSealer, CacheLimits, CompressionLevel, FinishedArena, Finishing, Origin, Redundancy,
    StoredChunk, SummarySlot,
};
use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{
    ArenaId, MasterSecret, NamingSecret, RepositoryKeys, SeededEntropy, SnapshotId, WriteKeys,
};

/// A place, and a store that reads from it.
struct World {
    backend: Arc<MemoryBackend>,
    keys: RepositoryKeys,
    entropy: SeededEntropy,
    store: ArenaStore,
    padded: bool,
    block_chunks: usize,
}

/// The writer of test arenas.
const ORIGIN: Origin = Origin { session: SnapshotId([0x5e; 16]), sequence: 3 };

/// The length at which arenas are closed, as a reader must know it.
const ARENA_BYTES: u32 = 1 << 20;
/// Chunks that a block of a test arena holds.
const BLOCK_CHUNKS: usize = 3;

impl World {
    fn new() -> Self {
        let keys = MasterSecret([5; 32]).keys(&NamingSecret([5; 32]));
        let backend = Arc::new(MemoryBackend::new());
        let store = ArenaStore::new(backend.clone(), &keys, ARENA_BYTES, CacheLimits::default());
        Self {
            backend,
            keys,
            entropy: SeededEntropy::new(1),
            store,
            padded: false,
            block_chunks: BLOCK_CHUNKS,
        }
    }

    /// An arena of these chunks, three a block unless the world says otherwise.
    fn build(&self, chunks: &[Vec<u8>], redundancy: Redundancy) -> FinishedArena {
        self.build_as(&self.keys.write, chunks, redundancy)
    }

    /// The same, by another writer.
    fn build_as(
        &self,
        keys: &WriteKeys,
        chunks: &[Vec<u8>],
        redundancy: Redundancy,
    ) -> FinishedArena {
        self.build_in(keys, chunks, redundancy, 0)
    }

    /// The same, in a generation.
    fn build_in(
        &self,
        keys: &WriteKeys,
        chunks: &[Vec<u8>],
        redundancy: Redundancy,
        generation: u32,
    ) -> FinishedArena {
        let seed = ArenaSeed::draw(ArenaContent::Data, keys, &self.entropy);
        let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
        let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
        let mut slot = 0;
        for (number, chunks) in (0..).zip(chunks.chunks(self.block_chunks)) {
            let mut draft = BlockDraft::new(number, slot);
            let slots: Vec<_> = chunks
                .iter()
                .map(|chunk| {
                    slot = draft.push(StoredChunk::Whole(chunk)) + 1;
                    let fingerprint = keys.naming.data.fingerprint(chunk);
                    SummarySlot::of(fingerprint, StoredChunk::Whole(chunk))
                })
                .collect();
            builder.push(&sealer.seal(draft, seed.id, &seed.key), slots);
        }
        builder.finish(Finishing {
            generation,
            origin: ORIGIN,
            keys,
            redundancy,
            padding: self.padded.then_some(&seed.key),
        })
    }

    /// Puts an object in the place of an arena's first generation.
    fn put(&self, id: ArenaId, object: &[u8]) {
        self.backend.replace(&ArenaName::first(id).object(), object).unwrap();
    }

    /// Replaces an arena's first generation by its next, as a rewriting does.
    fn rewrite(&self, arena: &FinishedArena) {
        assert_eq!(arena.name.generation, 1);
        self.backend.create(&arena.name.object(), arena.object()).unwrap();
        self.backend.remove(&ArenaName::first(arena.name.id).object()).unwrap();
    }

    /// Another store over the same place, with nothing in its caches.
    fn fresh_store(&self) -> ArenaStore {
        ArenaStore::new(self.backend.clone(), &self.keys, ARENA_BYTES, CacheLimits::default())
    }
}

/// The bytes of the chunk in a slot.
fn read(store: &ArenaStore, arena: &Arena, slot: u32) -> Result<Vec<u8>, ArenaError> {
    let place = arena.block_of(slot).ok_or(ArenaError::SlotLost { arena: arena.id, slot })?;
    match store.block(arena, place)?.chunk(slot) {
        Some(StoredChunk::Whole(chunk)) => Ok(chunk.to_vec()),
        other => panic!("slot {slot} holds {other:?}"),
    }
}

/// Different chunks of some KiB that do not compress.
fn chunks(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|place| {
            let mut chunk = vec![0; 2000 + 37 * place];
            blake3::Hasher::new().update(&place.to_le_bytes()).finalize_xof().fill(&mut chunk);
            chunk
        })
        .collect()
}

/// Where the first head is in the object.
fn head_range() -> std::ops::Range<usize> {
    HEADROOM..HEADROOM + HEAD_BYTES
}

/// Where the last head is in the object.
fn last_head_range(finished: &FinishedArena) -> std::ops::Range<usize> {
    let layout = envelope::peek(finished.object()).unwrap().layout();
    layout.first_table - HEAD_BYTES..layout.first_table
}

fn head_of(finished: &FinishedArena) -> ArenaHead {
    ArenaHead::unpack(&finished.object()[head_range()]).unwrap()
}

/// Where a block's bytes are in the object.
fn block_range(finished: &FinishedArena, place: usize) -> std::ops::Range<usize> {
    let block = &finished.summary.blocks[place];
    let start = head_of(finished).blocks_start() as usize + block.offset as usize;
    start..start + strongroom_arena::format::FRAME_BYTES + block.frame.sealed_bytes as usize
}

/// Where the sealed summary is in the object.
fn summary_range(finished: &FinishedArena) -> std::ops::Range<usize> {
    SUMMARY_START..head_of(finished).blocks_start() as usize
}
