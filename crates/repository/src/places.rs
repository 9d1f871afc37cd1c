//! Sets of places in arenas: a bit a slot.

use std::collections::HashMap;

use strongroom_base::{ArenaId, Location};

/// Numbers of slots, a bit each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotBits(Vec<u64>);

impl SlotBits {
    /// Adds a slot.
    pub fn insert(&mut self, slot: u32) {
        let place = slot as usize / 64;
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] |= 1 << (slot % 64);
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// To look at.
    pub fn as_slots(&self) -> SlotWords<'_> {
        SlotWords(&self.0)
    }

    /// Whether a slot is in it.
    pub fn contains(&self, slot: u32) -> bool {
        self.as_slots().contains(slot)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.as_slots().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slots().is_empty()
    }

    /// All, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.as_slots().iter()
    }
}

/// Numbers of slots that are kept elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct SlotWords<'w>(pub &'w [u64]);

impl<'w> SlotWords<'w> {
    /// Whether a slot is in it.
    pub fn contains(self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// All, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> + use<'w> {
        let words = (0_u32..).step_by(64).zip(self.0);
        words.flat_map(|(first, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| first + bit)
        })
    }

    /// A copy of its own.
    pub fn to_bits(self) -> SlotBits {
        SlotBits(self.0.to_vec())
    }
}

/// Places in arenas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places(HashMap<ArenaId, SlotBits>);

impl Places {
    /// Adds a place.
    pub fn insert(&mut self, place: Location) {
        self.0.entry(place.arena).or_default().insert(place.slot);
    }

    /// Whether a place is in it.
    pub fn contains(&self, place: Location) -> bool {
        self.0.get(&place.arena).is_some_and(|slots| slots.contains(place.slot))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(SlotBits::is_empty)
    }

    /// The slots of an arena, if there are any.
    pub fn of(&self, arena: ArenaId) -> Option<&SlotBits> {
        self.0.get(&arena)
    }

    /// The arenas, in order.
    pub fn arenas(&self) -> Vec<ArenaId> {
        let mut arenas: Vec<ArenaId> = self.0.keys().copied().collect();
        arenas.sort_unstable();
        arenas
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_are_a_set(
            added in prop::collection::btree_set(0..300_u32, 0..50),
            removed in prop::collection::btree_set(0..400_u32, 0..50),
        ) {
            let mut bits = SlotBits::default();
            added.iter().for_each(|slot| bits.insert(*slot));
            removed.iter().for_each(|slot| bits.remove(*slot));
            let expected: BTreeSet<u32> = added.difference(&removed).copied().collect();
            prop_assert_eq!(bits.len(), expected.len());
            prop_assert_eq!(bits.is_empty(), expected.is_empty());
            for slot in 0..500 {
                prop_assert_eq!(bits.contains(slot), expected.contains(&slot));
            }
            prop_assert!(bits.iter().eq(expected));
        }
    }
}
