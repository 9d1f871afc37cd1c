//! What an archive holds, in the order in which it was stored. A block is a number here: two blocks
//! with the same bytes have the same number.

/// A place in the log, counted in blocks.
pub type Slot = u32;

const ABSENT: Slot = Slot::MAX;

/// Blocks by their places.
#[derive(Debug, Default, Clone)]
pub struct Log {
    /// By number: the generator counts from zero, so this is no larger than the log.
    slots: Vec<Slot>,
    next: Slot,
}

impl Log {
    /// A log that holds the blocks 0 to `blocks` − 1, in that order.
    pub fn filled(blocks: u32) -> Self {
        Self { slots: (0..blocks).collect(), next: blocks }
    }

    /// Where a block is.
    pub fn slot(&self, block: u32) -> Option<Slot> {
        self.slots.get(block as usize).copied().filter(|slot| *slot != ABSENT)
    }

    /// Where the next block will be.
    pub fn next(&self) -> Slot {
        self.next
    }

    /// Puts a block at the end.
    pub fn append(&mut self, block: u32) -> Slot {
        if self.slots.len() <= block as usize {
            self.slots.resize(block as usize + 1, ABSENT);
        }
        let slot = self.next;
        assert!(slot < ABSENT, "a log has fewer than 2^32 - 1 blocks");
        self.slots[block as usize] = slot;
        self.next += 1;
        slot
    }

    /// Leaves places free up to the next multiple of `blocks`.
    pub fn align(&mut self, blocks: u32) {
        self.next = self.next.next_multiple_of(blocks);
    }
}
