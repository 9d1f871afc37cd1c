//! A lane: the one arena that chunks of data, or of metadata, go to now.

use std::collections::VecDeque;
use std::sync::Arc;

use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaSeed, BlockDraft, OpenBlock, SealedBlock, StoredChunk,
    SummarySlot,
};
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{ArenaId, Fingerprint, Location};

use super::lengths::{Lengths, Measured};
use super::stages::{ClosedArena, InFlight, Stages, Submitted};

/// Packs chunks of one kind.
pub struct Lane {
    content: ArenaContent,
    /// A block is closed at this many bytes of chunks.
    block_bytes: usize,
    /// An arena is closed once its blocks are expected to have this many bytes.
    arena_bytes: usize,
    /// Or once its summary has this many: very small chunks would make one that no reader accepts.
    summary_bytes: usize,
    open: Option<OpenArena>,
    lengths: Lengths,
    /// Arenas that were closed so far.
    closed: usize,
}

/// Where a chunk will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// The place.
    pub location: Location,
    /// It is the first chunk of its arena.
    pub begins_arena: bool,
}

/// An arena that chunks are added to.
struct OpenArena {
    seed: Arc<ArenaSeed>,
    /// Has the blocks that are sealed, up to the first that is not.
    builder: ArenaBuilder,
    draft: BlockDraft,
    /// A slot for each chunk of the draft.
    draft_slots: Vec<SummarySlot>,
    /// How many blocks were submitted: the number of the draft.
    blocks: u32,
    /// Bytes of the summary so far.
    summary_bytes: usize,
    /// Submitted blocks that are not in the builder yet, in their order.
    in_flight: VecDeque<InFlight>,
    /// The block that a chunk was read from last.
    opened: Option<OpenBlock>,
}

impl Lane {
    /// A lane without an arena.
    pub fn new(
        content: ArenaContent,
        block_bytes: usize,
        arena_bytes: usize,
        summary_bytes: usize,
    ) -> Self {
        let (open, lengths) = (None, Lengths::new());
        Self { content, block_bytes, arena_bytes, summary_bytes, open, lengths, closed: 0 }
    }

    /// Packs a chunk. If it begins an arena, `draw` draws that arena's seed.
    pub fn put(
        &mut self,
        fingerprint: Fingerprint,
        chunk: StoredChunk<'_>,
        draw: impl FnOnce() -> ArenaSeed,
        stages: &Stages,
    ) -> Packed {
        let is_full =
            |arena: &OpenArena| arena.draft.is_full_for(chunk.stored_bytes(), self.block_bytes);
        if self.open.as_ref().is_some_and(is_full) {
            self.submit_block(stages);
        }
        let begins_arena = self.open.is_none();
        let arena = self.open.get_or_insert_with(|| {
            let seed = draw();
            let builder = match self.content {
                ArenaContent::Data => {
                    let room = self.arena_bytes + self.block_bytes;
                    ArenaBuilder::new(&seed, stages.spare_object(), room)
                }
                // Trees are few: their arena grows as it must.
                ArenaContent::Metadata => ArenaBuilder::new(&seed, Vec::new(), 0),
            };
            OpenArena::begin(seed, builder)
        });
        let slot = arena.draft.push(chunk);
        let entry = SummarySlot::of(fingerprint, chunk);
        arena.summary_bytes += entry.packed_bytes();
        arena.draft_slots.push(entry);
        Packed { location: Location { arena: arena.seed.id, slot }, begins_arena }
    }

    /// How many arenas were closed so far.
    pub fn closed(&self) -> usize {
        self.closed
    }

    /// Whether chunks are added to this arena.
    pub fn is_open(&self, arena: ArenaId) -> bool {
        self.open.as_ref().is_some_and(|open| open.seed.id == arena)
    }

    /// A chunk of the arena that chunks are added to.
    pub fn chunk(&mut self, slot: u32, stages: &Stages) -> Option<StoredChunk<'_>> {
        self.open.as_mut()?.chunk(slot, stages)
    }

    /// Submits what is left and closes the arena.
    pub fn finish(&mut self, stages: &Stages) {
        self.submit_block(stages);
        self.close(stages);
    }

    /// Submits the draft, adds the blocks that are ready, and closes an arena that is long enough.
    fn submit_block(&mut self, stages: &Stages) {
        let Some(arena) = self.open.as_mut().filter(|arena| !arena.draft.is_empty()) else {
            return;
        };
        let sealed_bytes = arena.submit(stages, &mut self.lengths);
        arena.add_ready(stages);
        let has_long_summary = arena.summary_bytes >= self.summary_bytes;
        reached_if(has_long_summary, Regime::ArenaOfSlots);
        if sealed_bytes >= self.arena_bytes || has_long_summary {
            self.close(stages);
        }
    }

    fn close(&mut self, stages: &Stages) {
        if let Some(OpenArena { builder, in_flight, seed, .. }) = self.open.take() {
            stages.close(ClosedArena { builder, in_flight, seed });
            self.closed += 1;
        }
    }
}

impl OpenArena {
    fn begin(seed: ArenaSeed, builder: ArenaBuilder) -> Self {
        Self {
            builder,
            seed: Arc::new(seed),
            draft: BlockDraft::new(0, 0),
            draft_slots: Vec::new(),
            blocks: 0,
            summary_bytes: 0,
            in_flight: VecDeque::new(),
            opened: None,
        }
    }

    /// Submits the draft to the workers; returns how many bytes the arena's blocks are expected to
    /// have together.
    fn submit(&mut self, stages: &Stages, lengths: &mut Lengths) -> usize {
        self.blocks += 1;
        let next = BlockDraft::within(stages.spare_draft(), self.blocks, self.draft.next_slot());
        let draft = std::mem::replace(&mut self.draft, next);
        let slots = std::mem::take(&mut self.draft_slots);
        let measured = Measured::of(&draft);
        let Submitted { block, sealed_bytes } = stages.submit(draft, &self.seed);
        self.in_flight.push_back(InFlight { block, slots });
        lengths.count(self.seed.id, measured, sealed_bytes, stages.times());
        lengths.expected(self.seed.id)
    }

    /// Adds the blocks that are ready, and waits if too many are not.
    fn add_ready(&mut self, stages: &Stages) {
        while let Some(first) = self.in_flight.front() {
            let block = match first.block.try_recv() {
                Ok(block) => block,
                Err(_) if self.in_flight.len() <= stages.blocks_in_flight() => return,
                Err(_) => stages.times().receive(&first.block).expect("a worker answers every job"),
            };
            self.add_first(block, stages);
        }
    }

    /// Adds the first block in flight, which is ready.
    fn add_first(&mut self, block: SealedBlock, stages: &Stages) {
        let first = self.in_flight.pop_front().expect("the queue has a first block");
        self.builder.push(&block, first.slots);
        stages.give_back(block.bytes);
    }

    /// A chunk that was put into the arena; waits for its block if that is in flight.
    fn chunk(&mut self, slot: u32, stages: &Stages) -> Option<StoredChunk<'_>> {
        if slot >= self.draft.first_slot() {
            return self.draft.chunk(slot);
        }
        while slot >= self.builder.next_slot() {
            let first = &self.in_flight.front()?.block;
            let block = stages.times().receive(first).expect("a worker answers every job");
            self.add_first(block, stages);
        }
        if !self.opened.as_ref().is_some_and(|block| block.slots().contains(&slot)) {
            self.opened = self.builder.open_block_of(slot, &self.seed.key);
        }
        self.opened.as_ref()?.chunk(slot)
    }
}
