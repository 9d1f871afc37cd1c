//! What a summary says of an arena's slots.
//!
//! In memory it has columns, as on the medium: a slot takes 36 bytes, and 24 more for each base.
//! A struct for each slot took 64, and a piece of the heap for the bases of each delta.

use strongroom_base::{Fingerprint, Location};

/// A chunk, as a summary describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarySlot {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk itself.
    pub chunk_bytes: u32,
    /// What it is a delta of; none if it is stored whole.
    pub bases: Vec<Location>,
}

impl SummarySlot {
    /// A slot that holds no chunk.
    pub const ABSENT: Self =
        Self { fingerprint: Fingerprint::ZERO, chunk_bytes: 0, bases: Vec::new() };
}

/// The same, in the columns of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRef<'s> {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk itself.
    pub chunk_bytes: u32,
    /// What it is a delta of; none if it is stored whole.
    pub bases: &'s [Location],
}

impl SlotRef<'_> {
    /// The slot by itself.
    pub fn to_slot(self) -> SummarySlot {
        let Self { fingerprint, chunk_bytes, bases } = self;
        SummarySlot { fingerprint, chunk_bytes, bases: bases.to_vec() }
    }
}

/// The chunks of all blocks, block after block.
///
/// Invariants: fingerprints and lengths are equally many, bases and their owners too; owners
/// ascend and are places of slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slots {
    fingerprints: Vec<Fingerprint>,
    chunk_bytes: Vec<u32>,
    bases: Vec<Location>,
    /// For each base, the place of the slot that it belongs to.
    owners: Vec<u32>,
}

impl Slots {
    /// No slots yet, and room for as many as are expected.
    pub fn with_capacity(slots: usize, bases: usize) -> Self {
        Self {
            fingerprints: Vec::with_capacity(slots),
            chunk_bytes: Vec::with_capacity(slots),
            bases: Vec::with_capacity(bases),
            owners: Vec::with_capacity(bases),
        }
    }

    /// Adds a slot behind all others, without bases.
    pub fn push_whole(&mut self, fingerprint: Fingerprint, chunk_bytes: u32) {
        self.fingerprints.push(fingerprint);
        self.chunk_bytes.push(chunk_bytes);
    }

    /// Adds a base of a slot that was pushed. Returns false if there is no such slot, or if a slot
    /// behind it has bases already: then nothing is added.
    #[must_use]
    pub fn push_base(&mut self, place: u32, base: Location) -> bool {
        let is_next = self.owners.last().is_none_or(|last| *last <= place);
        let fits = is_next && (place as usize) < self.len();
        if fits {
            self.owners.push(place);
            self.bases.push(base);
        }
        fits
    }

    /// Adds a slot behind all others.
    pub fn push(&mut self, slot: &SummarySlot) {
        let place = u32::try_from(self.len()).expect("an arena is at most 4 GiB");
        self.push_whole(slot.fingerprint, slot.chunk_bytes);
        for base in &slot.bases {
            let is_added = self.push_base(place, *base);
            assert!(is_added, "the last slot exists, and no slot is behind it");
        }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// How many bases all slots have together.
    pub fn base_count(&self) -> usize {
        self.bases.len()
    }

    /// The slot at a place, if there is one.
    pub fn get(&self, place: usize) -> Option<SlotRef<'_>> {
        let fingerprint = *self.fingerprints.get(place)?;
        let first = self.owners.partition_point(|owner| (*owner as usize) < place);
        Some(self.slot(place, fingerprint, first))
    }

    /// All slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = SlotRef<'_>> {
        let mut first = 0;
        self.fingerprints.iter().enumerate().map(move |(place, fingerprint)| {
            let slot = self.slot(place, *fingerprint, first);
            first += slot.bases.len();
            slot
        })
    }

    /// The slot at a place, whose bases begin at `first`.
    fn slot(&self, place: usize, fingerprint: Fingerprint, first: usize) -> SlotRef<'_> {
        let owned = self.owners[first..].iter().take_while(|owner| **owner as usize == place);
        let bases = &self.bases[first..first + owned.count()];
        SlotRef { fingerprint, chunk_bytes: self.chunk_bytes[place], bases }
    }

    /// Every base with the place of the slot that it belongs to, in order.
    pub fn owned_bases(&self) -> impl Iterator<Item = (u32, &Location)> {
        self.owners.iter().copied().zip(&self.bases)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.fingerprints.capacity() * size_of::<Fingerprint>()
            + (self.chunk_bytes.capacity() + self.owners.capacity()) * size_of::<u32>()
            + self.bases.capacity() * size_of::<Location>()
    }
}

impl Extend<SummarySlot> for Slots {
    fn extend<I: IntoIterator<Item = SummarySlot>>(&mut self, slots: I) {
        slots.into_iter().for_each(|slot| self.push(&slot));
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::ArenaId;

    use super::*;

    #[test]
    fn slots_come_back_with_their_bases() {
        let base = |slot| Location { arena: ArenaId([3; 16]), slot };
        let slot = |byte: u8, bases: &[u32]| SummarySlot {
            fingerprint: Fingerprint([byte; 32]),
            chunk_bytes: u32::from(byte),
            bases: bases.iter().copied().map(base).collect(),
        };
        let expected = [slot(1, &[]), slot(2, &[7, 8]), slot(3, &[]), slot(4, &[9]), slot(5, &[])];
        let mut slots = Slots::default();
        slots.extend(expected.clone());
        assert_eq!((slots.len(), slots.base_count()), (5, 3));
        assert!(slots.iter().map(SlotRef::to_slot).eq(expected.clone()));
        for (place, expected) in expected.iter().enumerate() {
            assert_eq!(slots.get(place).map(SlotRef::to_slot).as_ref(), Some(expected));
        }
        assert_eq!(slots.get(5), None);
        let before = slots.clone();
        assert!(!slots.push_base(2, base(1)), "slot 3 has bases already");
        assert!(!slots.push_base(5, base(1)), "there is no slot 5");
        assert_eq!(slots, before);
        assert!(slots.push_base(3, base(1)));
    }
}
