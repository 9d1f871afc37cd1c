//! How long an arena is going to be, told while its last blocks are still being compressed.
//!
//! What is told depends on what came, and not on which worker was first, so the same chunks in the
//! same order give the same arenas: of blocks that lie a fixed distance back the length is known;
//! of those since, it is expected from what the known ones became.

use std::collections::VecDeque;

use crossbeam_channel::Receiver;
use strongroom_arena::BlockDraft;
use strongroom_base::ArenaId;

use super::{BLOCKS_IN_FLIGHT, wait_for};
use crate::profile::StageTimes;

/// The lengths of one lane's blocks.
pub struct Lengths {
    /// What known blocks that could be compressed were, and became; later ones count more.
    raw: usize,
    sealed: usize,
    /// The known blocks of an arena.
    known: (ArenaId, usize),
    since: VecDeque<Pending>,
}

/// A block that may not be compressed yet.
struct Pending {
    arena: ArenaId,
    raw: usize,
    /// It will stay as long as it is.
    is_flat: bool,
    sealed: Receiver<usize>,
}

impl Lengths {
    /// Nothing is known yet: blocks are expected to stay as long as they are.
    pub fn new() -> Self {
        Self { raw: 1, sealed: 1, known: (ArenaId::ZERO, 0), since: VecDeque::new() }
    }

    /// Takes note of a block of an arena, whose length comes later, and of the length that is due.
    pub fn count(
        &mut self,
        arena: ArenaId,
        draft: &BlockDraft,
        sealed: Receiver<usize>,
        times: &StageTimes,
    ) {
        let (raw, is_flat) = (draft.bytes(), draft.is_flat());
        self.since.push_back(Pending { arena, raw, is_flat, sealed });
        if self.since.len() <= BLOCKS_IN_FLIGHT {
            return;
        }
        let due = self.since.pop_front().expect("just counted");
        let sealed = wait_for(&due.sealed, times);
        if !due.is_flat {
            (self.raw, self.sealed) = (self.raw / 2 + due.raw, self.sealed / 2 + sealed);
        }
        if self.known.0 != due.arena {
            self.known = (due.arena, 0);
        }
        self.known.1 += sealed;
    }

    /// How long the blocks of an arena are together.
    pub fn expected(&self, arena: ArenaId) -> usize {
        let known = if self.known.0 == arena { self.known.1 } else { 0 };
        let pending = self.since.iter().filter(|block| block.arena == arena);
        known + pending.map(|block| self.expected_of(block)).sum::<usize>()
    }

    fn expected_of(&self, block: &Pending) -> usize {
        if block.is_flat {
            return block.raw;
        }
        (block.raw as u128 * self.sealed as u128 / self.raw.max(1) as u128) as usize
    }
}
