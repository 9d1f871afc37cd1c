//! How long an arena is going to be, while its last blocks are still being compressed.
//!
//! The answer depends on the chunks and not on which worker was first, so the same chunks in the
//! same order give the same arenas. The length of blocks a fixed distance back is known; that of
//! the blocks since is expected from what the known ones became.

use std::collections::VecDeque;

use crossbeam_channel::Receiver;
use strongroom_arena::BlockDraft;
use strongroom_base::ArenaId;

use super::options::BLOCKS_UNKNOWN;
use crate::write::times::StageTimes;

/// The lengths of one lane's blocks.
pub struct Lengths {
    /// What known blocks that could be compressed were, and became; later ones count more.
    raw: usize,
    sealed: usize,
    /// The known blocks of an arena.
    known: (ArenaId, usize),
    since: VecDeque<Pending>,
}

/// A block before it is compressed.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    raw: usize,
    /// Compression will not shorten it.
    is_flat: bool,
}

impl Measured {
    /// Measures a block.
    pub fn of(draft: &BlockDraft) -> Self {
        Self { raw: draft.bytes(), is_flat: draft.is_flat() }
    }
}

/// A block that may not be compressed yet.
struct Pending {
    arena: ArenaId,
    block: Measured,
    sealed_bytes: Receiver<usize>,
}

impl Lengths {
    /// Nothing is known yet: blocks are expected to stay as long as they are.
    pub fn new() -> Self {
        Self { raw: 1, sealed: 1, known: (ArenaId::ZERO, 0), since: VecDeque::new() }
    }

    /// Counts a block of an arena, whose length comes later, and waits for the length that is due.
    pub fn count(
        &mut self,
        arena: ArenaId,
        block: Measured,
        sealed_bytes: Receiver<usize>,
        times: &StageTimes,
    ) {
        self.since.push_back(Pending { arena, block, sealed_bytes });
        if self.since.len() <= BLOCKS_UNKNOWN {
            return;
        }
        let due = self.since.pop_front().expect("just counted");
        let sealed = times.receive(&due.sealed_bytes).expect("a worker answers every job");
        if !due.block.is_flat {
            self.raw = self.raw / 2 + due.block.raw;
            self.sealed = self.sealed / 2 + sealed;
        }
        if self.known.0 != due.arena {
            self.known = (due.arena, 0);
        }
        self.known.1 += sealed;
    }

    /// How long the blocks of an arena are together.
    pub fn expected(&self, arena: ArenaId) -> usize {
        let known = if self.known.0 == arena { self.known.1 } else { 0 };
        let pending = self.since.iter().filter(|pending| pending.arena == arena);
        known + pending.map(|pending| self.expected_of(pending.block)).sum::<usize>()
    }

    fn expected_of(&self, block: Measured) -> usize {
        if block.is_flat {
            return block.raw;
        }
        (block.raw as u128 * self.sealed as u128 / self.raw.max(1) as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
    use strongroom_arena::StoredChunk;

    use super::*;

    const BLOCK: usize = 64 << 10;

    /// Blocks of these lengths, each in the arena that is open when it comes; gives the arenas.
    fn arenas(blocks: &[(Vec<u8>, usize)], arena_bytes: usize) -> Vec<usize> {
        let (mut lengths, times) = (Lengths::new(), StageTimes::default());
        let (mut arenas, mut id) = (vec![0], 0);
        for (data, sealed) in blocks {
            let mut draft = BlockDraft::new(0, 0);
            draft.push(StoredChunk::Whole(data));
            let (send, receive) = bounded(1);
            send.send(*sealed).unwrap();
            lengths.count(ArenaId([id; 16]), Measured::of(&draft), receive, &times);
            *arenas.last_mut().unwrap() += sealed;
            if lengths.expected(ArenaId([id; 16])) >= arena_bytes {
                arenas.push(0);
                id += 1;
            }
        }
        arenas.pop();
        arenas
    }

    fn text() -> Vec<u8> {
        b"all bytes are not equally often here. ".repeat(BLOCK / 38)
    }

    fn noise() -> Vec<u8> {
        let mut noise = vec![0; BLOCK];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise
    }

    #[test]
    fn arenas_are_as_long_as_they_should_be() {
        let target = 16 * BLOCK;
        for sealed in [BLOCK / 10, BLOCK / 4, BLOCK / 2, BLOCK] {
            let arenas = arenas(&vec![(text(), sealed); 2000], target);
            // When the first is built, no length is known yet.
            let others = &arenas[1..];
            assert!(others.len() >= 3, "{arenas:?}");
            let near = target * 9 / 10..target + 2 * BLOCK;
            assert!(others.iter().all(|bytes| near.contains(bytes)), "{target}: {arenas:?}");
        }
    }

    #[test]
    fn noise_behind_text_is_known_at_once() {
        let target = 16 * BLOCK;
        let mut blocks = vec![(text(), BLOCK / 10); 500];
        blocks.extend(vec![(noise(), BLOCK); 500]);
        let longest = arenas(&blocks, target).into_iter().max();
        assert!(longest < Some(target + 2 * BLOCK), "{longest:?}");
    }
}
