//! Chunks that were found good before. A directory that changes with every snapshot names mostly
//! the same chunks each time; asking the summaries for them again would read those of the whole
//! history for each snapshot.

use std::collections::HashMap;
use std::hash::BuildHasher;

use strongroom_base::regimes::{Regime, reached};
use strongroom_base::{ArenaId, SizeLimits};
use strongroom_catalog::ChunkRef;

/// Remembers references to good chunks.
#[derive(Debug)]
pub struct KnownGood {
    /// For each slot zero, or a part of a hash of the fingerprint that was asked for there. The
    /// hash is seeded at random, so no reference can be made to look like one that is known.
    arenas: HashMap<ArenaId, Vec<u32>>,
    marks: usize,
    /// Marks that are kept: four bytes each. If there are more, all are forgotten.
    marks_max: usize,
    /// Slots from this one on are not remembered.
    slots_max: usize,
}

impl KnownGood {
    /// Nothing is known.
    pub fn new(limits: &SizeLimits) -> Self {
        let SizeLimits { good_marks_max, good_slots_max, .. } = *limits;
        let (marks_max, slots_max) = (good_marks_max, good_slots_max);
        Self { arenas: HashMap::new(), marks: 0, marks_max, slots_max }
    }

    /// Whether a reference was found good before.
    pub fn has(&self, chunk: &ChunkRef) -> bool {
        let marks = self.arenas.get(&chunk.location.arena);
        let mark = marks.and_then(|marks| marks.get(chunk.location.slot as usize));
        mark == Some(&self.mark_of(chunk))
    }

    /// Notes that a reference is good.
    pub fn add(&mut self, chunk: &ChunkRef) {
        let slot = chunk.location.slot as usize;
        if slot >= self.slots_max {
            reached(Regime::SlotNotMarked);
            return;
        }
        let mark = self.mark_of(chunk);
        let marks = self.arenas.entry(chunk.location.arena).or_default();
        if slot >= marks.len() {
            // By an eighth, not to twice its length.
            let length = (slot + 1 + slot / 8).min(self.slots_max);
            self.marks += length - marks.len();
            marks.reserve_exact(length - marks.len());
            marks.resize(length, 0);
        }
        marks[slot] = mark;
        if self.marks > self.marks_max {
            reached(Regime::MarksForgot);
            self.arenas.clear();
            self.marks = 0;
        }
    }

    fn mark_of(&self, chunk: &ChunkRef) -> u32 {
        // The lowest bit says that there is a mark; the upper half is dropped on purpose.
        self.arenas.hasher().hash_one(chunk.fingerprint) as u32 | 1
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::{Fingerprint, Location};

    use super::*;

    const SMALL: SizeLimits =
        SizeLimits { good_marks_max: 1000, good_slots_max: 900, ..SizeLimits::DEFAULT };

    fn chunk(name: u8, arena: u8, slot: u32) -> ChunkRef {
        let location = Location { arena: ArenaId([arena; 16]), slot };
        ChunkRef { fingerprint: Fingerprint([name; 32]), location, stream_bytes: 5 }
    }

    #[test]
    fn only_the_same_chunk_in_the_same_place_is_known() {
        let mut known = KnownGood::new(&SMALL);
        assert!(!known.has(&chunk(1, 1, 7)));
        known.add(&chunk(1, 1, 7));
        assert!(known.has(&chunk(1, 1, 7)));
        for other in [chunk(2, 1, 7), chunk(1, 2, 7), chunk(1, 1, 6), chunk(1, 1, 8)] {
            assert!(!known.has(&other), "{other:?}");
        }
    }

    #[test]
    fn the_memory_is_bounded_whatever_is_named() {
        let mut known = KnownGood::new(&SMALL);
        known.add(&chunk(1, 1, u32::MAX));
        assert!(known.arenas.is_empty());
        for arena in 0..200 {
            known.add(&chunk(1, arena, 99));
            assert!(known.has(&chunk(1, arena, 99)) || known.arenas.is_empty());
            assert!(known.arenas.values().map(Vec::len).sum::<usize>() <= 1000);
        }
    }
}
