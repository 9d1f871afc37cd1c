//! Which snapshots name which chunks: one mark for each slot of each arena.

use std::collections::HashMap;

use strongroom_arena::{Arena, ArenaStore};
use strongroom_base::ArenaId;
use strongroom_catalog::ChunkRef;

use super::SnapshotStat;
use strongroom_repository::RepositoryError;

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
/// only snapshot that does; after that it is the one that was last counted.
const SHARED: u32 = 1 << 31;
/// Set in the mark of a chunk that one snapshot alone names, once it was counted.
const COUNTED: u32 = 1 << 30;

/// The number of a snapshot in marks: one or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotNumber(u32);

impl SnapshotNumber {
    /// The number of the snapshot at a place of a list.
    pub fn at(place: usize) -> Self {
        Self(u32::try_from(place + 1).expect("snapshots are far fewer than 2^30"))
    }
}

/// The marks of all arenas that snapshots name.
pub struct Marks<'s> {
    store: &'s ArenaStore,
    arenas: HashMap<ArenaId, ArenaMarks>,
}

struct ArenaMarks {
    /// For each slot: zero, or the number of a snapshot, [`SHARED`] and [`COUNTED`].
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

    /// Notes that a snapshot names a chunk.
    pub fn claim(&mut self, chunk: &ChunkRef, by: SnapshotNumber) -> Result<(), RepositoryError> {
        if let Some(mark) = self.arena(chunk.location.arena)?.mark(chunk) {
            *mark = if *mark == 0 || *mark == by.0 { by.0 } else { SHARED };
        }
        Ok(())
    }

    /// Counts a chunk for a snapshot that names it, once, after all snapshots claimed theirs.
    pub fn count(
        &mut self,
        chunk: &ChunkRef,
        kind: Mark,
        by: SnapshotNumber,
        stat: &mut SnapshotStat,
    ) -> Result<(), RepositoryError> {
        let store = self.store;
        let arena = self.arena(chunk.location.arena)?;
        let Some(mark) = arena.mark(chunk) else { return Ok(()) };
        let is_shared = *mark & SHARED != 0;
        let counted = if is_shared { SHARED | by.0 } else { COUNTED | by.0 };
        if std::mem::replace(mark, counted) == counted {
            return Ok(());
        }
        let raw = if kind == Mark::Content { chunk.stream_bytes } else { 0 };
        let chunk_bytes = match kind {
            Mark::Content | Mark::Tree => chunk.stream_bytes,
            // There is one for some hundred chunks, so its length is not kept.
            Mark::Node => {
                let arena = store.arena(chunk.location.arena)?;
                arena.slot(chunk.location.slot).map_or(0, |slot| slot.chunk_bytes.into())
            }
        };
        let stored = arena.stored_bytes(chunk.location.slot, chunk_bytes);
        stat.unique_bytes = stat.unique_bytes.saturating_add(raw);
        stat.stored_bytes = stat.stored_bytes.saturating_add(stored);
        if !is_shared {
            stat.own_bytes = stat.own_bytes.saturating_add(raw);
            stat.own_stored_bytes = stat.own_stored_bytes.saturating_add(stored);
        }
        Ok(())
    }

    fn arena(&mut self, id: ArenaId) -> Result<&mut ArenaMarks, RepositoryError> {
        use std::collections::hash_map::Entry;
        match self.arenas.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let marks = match self.store.arena(id).map_err(RepositoryError::from) {
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

    /// The mark of a chunk; none if the arena has no such slot.
    fn mark(&mut self, chunk: &ChunkRef) -> Option<&mut u32> {
        self.marks.get_mut(chunk.location.slot as usize)
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
