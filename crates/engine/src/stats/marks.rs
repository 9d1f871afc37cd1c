//! Which snapshots name which chunks: one mark for each slot of each arena.

use std::collections::HashMap;

use strongroom_arena::{Arena, ArenaStore};
use strongroom_base::ArenaId;
use strongroom_catalog::ChunkRef;

use super::SnapshotStat;
use crate::error::EngineError;

/// The role of a chunk in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A part of a file.
    Content,
    /// A tree.
    Tree,
    /// A node of a recipe, which covers more of the stream than its own length.
    Node,
}

/// Set in a mark once a second snapshot names the chunk. Until then the rest of the mark is the
/// only snapshot that names it; after that it is the one that named it last.
const SHARED: u32 = 1 << 31;

/// The marks of all arenas that snapshots name.
pub struct Marks<'s> {
    store: &'s ArenaStore,
    arenas: HashMap<ArenaId, ArenaMarks>,
}

struct ArenaMarks {
    /// For each slot: zero, or the number of a snapshot plus one, and [`SHARED`].
    marks: Vec<u32>,
    blocks: Vec<BlockShare>,
}

/// How much a byte of a chunk in a block takes in the arena.
struct BlockShare {
    first_slot: u32,
    sealed_bytes: u32,
    chunk_bytes: u64,
}

impl<'s> Marks<'s> {
    /// Without any marks.
    pub fn new(store: &'s ArenaStore) -> Self {
        Self { store, arenas: HashMap::new() }
    }

    /// Records that the last of these snapshots names a chunk, and counts what that changes.
    pub fn mark(
        &mut self,
        chunk: &ChunkRef,
        mark: Mark,
        stats: &mut [SnapshotStat],
    ) -> Result<(), EngineError> {
        let store = self.store;
        let arena = self.arena(chunk.location.arena)?;
        let slot = chunk.location.slot;
        let Some(place) = arena.place(slot) else { return Ok(()) };
        let current = u32::try_from(stats.len()).expect("snapshots are far fewer than 2^31");
        let before = arena.marks[place];
        let last = before & !SHARED;
        if last == current {
            return Ok(());
        }
        let raw = if mark == Mark::Content { chunk.stream_bytes } else { 0 };
        let chunk_bytes = match mark {
            Mark::Content | Mark::Tree => chunk.stream_bytes,
            // There is one for some hundred chunks, so its length is not kept.
            Mark::Node => {
                let arena = store.arena(chunk.location.arena)?;
                arena.slot(slot).map_or(0, |slot| slot.chunk_bytes.into())
            }
        };
        let stored = arena.stored_bytes(slot, chunk_bytes);
        let [.., stat] = stats else { return Ok(()) };
        stat.unique_bytes += raw;
        stat.stored_bytes += stored;
        if before == 0 {
            stat.own_bytes += raw;
            stat.own_stored_bytes += stored;
            arena.marks[place] = current;
            return Ok(());
        }
        if before & SHARED == 0 {
            let owner = &mut stats[last as usize - 1];
            owner.own_bytes = owner.own_bytes.saturating_sub(raw);
            owner.own_stored_bytes = owner.own_stored_bytes.saturating_sub(stored);
        }
        arena.marks[place] = current | SHARED;
        Ok(())
    }

    fn arena(&mut self, id: ArenaId) -> Result<&mut ArenaMarks, EngineError> {
        use std::collections::hash_map::Entry;
        match self.arenas.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let marks = match self.store.arena(id).map_err(EngineError::from) {
                    Ok(arena) => ArenaMarks::new(&arena),
                    // A lost chunk takes no room; `verify` names it.
                    Err(error) if error.is_damage() => {
                        ArenaMarks { marks: Vec::new(), blocks: Vec::new() }
                    }
                    Err(error) => return Err(error),
                };
                Ok(new.insert(marks))
            }
        }
    }
}

impl ArenaMarks {
    fn new(arena: &Arena) -> Self {
        let mut slots = arena.summary.slots.iter();
        let blocks: Vec<BlockShare> = arena
            .summary
            .blocks
            .iter()
            .map(|block| {
                let chunks = slots.by_ref().take(block.head.chunk_count as usize);
                BlockShare {
                    first_slot: block.head.first_slot,
                    sealed_bytes: block.frame.sealed_bytes,
                    chunk_bytes: chunks.map(|slot| u64::from(slot.chunk_bytes)).sum(),
                }
            })
            .collect();
        let end = arena.slots().map(|(slot, _)| slot as usize + 1).last().unwrap_or(0);
        Self { marks: vec![0; end], blocks }
    }

    /// Where the mark of a slot is; `None` if the arena has no such slot.
    fn place(&self, slot: u32) -> Option<usize> {
        Some(slot as usize).filter(|place| *place < self.marks.len())
    }

    /// A chunk's share in its block.
    fn stored_bytes(&self, slot: u32, chunk_bytes: u64) -> u64 {
        let place = self.blocks.partition_point(|block| block.first_slot <= slot);
        let Some(block) = place.checked_sub(1).map(|place| &self.blocks[place]) else { return 0 };
        let share = u128::from(chunk_bytes) * u128::from(block.sealed_bytes);
        let share = share / u128::from(block.chunk_bytes.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}
