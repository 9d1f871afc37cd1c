//! Slots of many arenas: what a collection condemns, and what it removes.

use std::collections::BTreeMap;

use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_base::{ArenaId, Location};

/// Slots of one arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArenaSlots {
    /// All that there are: the arena itself goes.
    All,
    /// These: first slot and how many, ascending, apart from each other, at least one.
    Runs(Vec<(u32, u32)>),
}

impl ArenaSlots {
    /// Those of a list that ascends and has at least one.
    pub fn of(slots: impl IntoIterator<Item = u32>) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for slot in slots {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == slot => *count += 1,
                _ => runs.push((slot, 1)),
            }
        }
        Self::Runs(runs)
    }

    /// Bytes that it takes in a plan.
    pub fn packed_bytes(&self) -> usize {
        let runs = if let Self::Runs(runs) = self { runs.len() } else { 0 };
        SET_BYTES + runs * RUN_BYTES
    }

    /// Whether a slot is one of them.
    pub fn contains(&self, slot: u32) -> bool {
        match self {
            Self::All => true,
            Self::Runs(runs) => {
                let place = runs.partition_point(|(first, _)| *first <= slot);
                let run = place.checked_sub(1).map(|place| runs[place]);
                run.is_some_and(|(first, count)| slot - first < count)
            }
        }
    }
}

/// Slots of any number of arenas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotSets(pub BTreeMap<ArenaId, ArenaSlots>);

/// Bytes of an arena's name and of the number of its runs.
const SET_BYTES: usize = 20;
/// Bytes of a run.
const RUN_BYTES: usize = 8;
/// The number of runs that means all slots of an arena.
const ALL: u32 = 0;

impl SlotSets {
    /// Whether a slot is one of them.
    pub fn contains(&self, location: Location) -> bool {
        self.0.get(&location.arena).is_some_and(|slots| slots.contains(location.slot))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes [`SlotSets::pack`] makes.
    pub fn packed_bytes(&self) -> usize {
        self.0.values().map(ArenaSlots::packed_bytes).sum()
    }

    /// Their bytes: by arena, `arena (16) | runs (4) | first (4), count (4) …`; no runs for all.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (arena, slots) in &self.0 {
            bytes.put(&arena.0);
            match slots {
                ArenaSlots::All => bytes.put_u32(ALL),
                ArenaSlots::Runs(runs) => {
                    bytes.put_u32(u32::try_from(runs.len()).expect("fewer runs than slots"));
                    for (first, count) in runs {
                        bytes.put_u32(*first);
                        bytes.put_u32(*count);
                    }
                }
            }
        }
        bytes
    }

    /// The sets in `bytes`; none unless each arena and each run is where it should be.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let mut fields = LeReader::new(bytes);
        let mut sets = BTreeMap::new();
        while fields.remaining() > 0 {
            let (arena, slots) = unpack_arena(&mut fields).ok()??;
            let is_next = sets.last_key_value().is_none_or(|(last, _)| *last < arena);
            is_next.then_some(())?;
            sets.insert(arena, slots);
        }
        Some(Self(sets))
    }
}

/// The next arena and its slots; none if its runs are not in order.
fn unpack_arena(fields: &mut LeReader<'_>) -> Result<Option<(ArenaId, ArenaSlots)>, LengthError> {
    let arena = ArenaId(fields.array()?);
    let count = fields.u32()?;
    if count == ALL {
        return Ok(Some((arena, ArenaSlots::All)));
    }
    // Grown run by run: a hostile count exhausts the bytes before it exhausts memory.
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for _ in 0..count {
        let (first, count) = (fields.u32()?, fields.u32()?);
        let is_next = runs.last().is_none_or(|(before, length)| before + length < first);
        if !is_next || count == 0 || first.checked_add(count).is_none() {
            return Ok(None);
        }
        runs.push((first, count));
    }
    Ok(Some((arena, ArenaSlots::Runs(runs))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_come_back(
            arenas in prop::collection::btree_map(
                any::<[u8; 16]>(),
                prop::option::of(prop::collection::btree_set(0..60_u32, 1..30)),
                0..5,
            )
        ) {
            let set_of = |slots: &Option<BTreeSet<u32>>| match slots {
                None => ArenaSlots::All,
                Some(slots) => ArenaSlots::of(slots.iter().copied()),
            };
            let sets = arenas.iter().map(|(id, slots)| (ArenaId(*id), set_of(slots)));
            let sets = SlotSets(sets.collect());
            for (id, slots) in &arenas {
                for slot in 0..62 {
                    let expected = slots.as_ref().is_none_or(|slots| slots.contains(&slot));
                    let location = Location { arena: ArenaId(*id), slot };
                    prop_assert_eq!(sets.contains(location), expected);
                }
            }
            let bytes = sets.pack();
            prop_assert_eq!(bytes.len(), sets.packed_bytes());
            prop_assert_eq!(SlotSets::unpack(&bytes), Some(sets));
            for length in 0..bytes.len() {
                // A prefix is cut between two arenas, or is none.
                let cut = SlotSets::unpack(&bytes[..length]);
                prop_assert!(cut.is_none_or(|cut| cut.pack().len() == length));
            }
        }
    }

    #[test]
    fn runs_out_of_order_are_refused() {
        let arena = |runs: &[(u32, u32)]| {
            let sets = BTreeMap::from([(ArenaId([1; 16]), ArenaSlots::Runs(runs.to_vec()))]);
            SlotSets::unpack(&SlotSets(sets).pack())
        };
        assert!(arena(&[(0, 1), (2, 3)]).is_some());
        for refused in [&[(0, 0)][..], &[(0, 1), (1, 1)], &[(5, 2), (6, 1)], &[(u32::MAX, 1)]] {
            assert_eq!(arena(refused), None, "{refused:?}");
        }
    }
}
