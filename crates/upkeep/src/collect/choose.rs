//! Which of the slots that no snapshot needs are worth removing, and the rule that no delta stays
//! without its bases.

use std::collections::{HashMap, HashSet};

use strongroom_arena::{Arena, ArenaStore};
use strongroom_base::regimes::{Regime, reached};
use strongroom_base::{ArenaId, Cancel};
use strongroom_repository::{ArenaSlots, RepositoryError, SlotBits, SlotSets, SlotWords};

use super::PruneOptions;
use super::inventory::{Holding, Inventory};

/// Slots that go, by arena.
#[derive(Debug, Default)]
pub struct Doomed(HashMap<ArenaId, SlotBits>);

/// What a choice comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Worth {
    /// Arenas that go as a whole.
    pub arenas_removed: u64,
    /// Arenas that are rewritten.
    pub arenas_rewritten: u64,
    /// Bytes of objects that are rewritten.
    pub rewritten_bytes: u64,
    /// Bytes that are won.
    pub freed_bytes: u64,
    /// Bytes that no snapshot needs and that stay: winning them is not worth a rewriting, or nothing of
    /// their arenas may be removed.
    pub unused_bytes: u64,
}

/// A rewriting of which it is open whether it is worth its cost.
struct Candidate {
    arena: ArenaId,
    object_bytes: u64,
    /// Stored bytes of what no snapshot needs.
    dead_bytes: u64,
}

impl Doomed {
    /// Chooses among what no snapshot needs: every arena without a needed slot, and those of the
    /// others that win most for their length, until at most this share of what stays is unused, or
    /// as many bytes are to be written.
    pub fn choose(
        inventory: &mut Inventory,
        store: &ArenaStore,
        PruneOptions { unused_percent_max, rewritten_max, .. }: &PruneOptions,
        cancel: &Cancel,
    ) -> Result<(Self, Worth), RepositoryError> {
        let (mut doomed, mut worth) = (Self::default(), Worth::default());
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut needed_bytes: u64 = 0;
        for holding in inventory.arenas() {
            let (unneeded, chunks) = (inventory.unneeded(holding), inventory.chunks(holding));
            if holding.is_frozen {
                // Its share of the chunks: to know better, its summary would have to be read.
                let share = unneeded.len() as u64 * holding.object_bytes / chunks.max(1) as u64;
                worth.unused_bytes += share;
            } else if chunks > 0 && unneeded.len() == chunks {
                doomed.0.insert(holding.name.id, unneeded.to_bits());
                worth.arenas_removed += 1;
                worth.freed_bytes += holding.object_bytes;
                continue;
            }
            needed_bytes += holding.object_bytes;
        }
        let is_partly_dead = |inventory: &Inventory, holding: &Holding| {
            !holding.is_frozen
                && (1..inventory.chunks(holding)).contains(&inventory.unneeded(holding).len())
        };
        inventory.each_summary(store, cancel, is_partly_dead, |inventory, arena| {
            let holding = inventory.get(arena.id).expect("it is one of its arenas");
            let object_bytes = holding.object_bytes;
            // Of several generations the next is at least as long as what is needed of one.
            let others_bytes = object_bytes.saturating_sub(arena.object_bytes);
            let dead_bytes = stored_bytes(arena, inventory.unneeded(holding)) + others_bytes;
            match candidates.last_mut() {
                Some(last) if last.arena == arena.id => {
                    last.dead_bytes = last.dead_bytes.min(dead_bytes);
                }
                _ => candidates.push(Candidate { arena: arena.id, object_bytes, dead_bytes }),
            }
            Ok(())
        })?;
        let dead_sum: u64 = candidates.iter().map(|candidate| candidate.dead_bytes).sum();
        let mut unused = dead_sum;
        let share = |candidate: &Candidate| {
            (u128::from(candidate.dead_bytes) << 64) / u128::from(candidate.object_bytes.max(1))
        };
        candidates.sort_by_key(|candidate| (std::cmp::Reverse(share(candidate)), candidate.arena));
        let unused_max =
            (needed_bytes - dead_sum.min(needed_bytes)) / 100 * u64::from(*unused_percent_max);
        for candidate in candidates {
            if unused <= unused_max {
                break;
            }
            let stays = candidate.object_bytes - candidate.dead_bytes.min(candidate.object_bytes);
            if rewritten_max.is_some_and(|most| worth.rewritten_bytes + stays > most) {
                continue;
            }
            unused -= candidate.dead_bytes;
            let holding = inventory.get(candidate.arena).expect("it is one of its arenas");
            doomed.0.insert(candidate.arena, inventory.unneeded(holding).to_bits());
            worth.arenas_rewritten += 1;
            worth.rewritten_bytes += stays;
            worth.freed_bytes += candidate.dead_bytes;
        }
        worth.unused_bytes += unused;
        Ok((doomed, worth))
    }

    /// What of a plan no snapshot needs even now.
    pub fn of_plan(plan: &SlotSets, inventory: &Inventory) -> Self {
        let mut doomed = Self::default();
        for (id, slots) in &plan.0 {
            // It may have become one of which nothing may go.
            let known = inventory.get(*id).filter(|holding| !holding.is_frozen);
            let Some(holding) = known else { continue };
            let mut dead = SlotBits::default();
            let going = inventory.unneeded(holding).iter().filter(|slot| slots.contains(*slot));
            going.for_each(|slot| dead.insert(slot));
            if !dead.is_empty() {
                doomed.0.insert(*id, dead);
            }
        }
        doomed
    }

    /// Spares the bases of every delta that stays (C7). Bases are stored whole, so once is enough.
    fn close(
        &mut self,
        inventory: &mut Inventory,
        store: &ArenaStore,
        cancel: &Cancel,
    ) -> Result<(), RepositoryError> {
        inventory.each_summary(
            store,
            cancel,
            |_, holding| holding.has_deltas,
            |_, arena| {
                for (slot, entry) in arena.slots() {
                    if self.0.get(&arena.id).is_some_and(|dead| dead.contains(slot)) {
                        continue;
                    }
                    for base in entry.bases {
                        if let Some(dead) = self.0.get_mut(&base.arena) {
                            dead.remove(base.slot);
                        }
                    }
                }
                Ok(())
            },
        )
    }

    /// In the form of a plan or a verdict. Arenas that do not fit into one are left for the next
    /// collection, and what stays is closed over its bases.
    pub fn into_closed_sets(
        mut self,
        inventory: &mut Inventory,
        store: &ArenaStore,
        slots_bytes_max: usize,
        cancel: &Cancel,
    ) -> Result<SlotSets, RepositoryError> {
        let mut bytes_max = slots_bytes_max;
        loop {
            self.close(inventory, store, cancel)?;
            let sets = self.to_sets(inventory);
            if sets.packed_bytes() <= slots_bytes_max {
                return Ok(sets);
            }
            reached(Regime::PlanCutOfSlots);
            // Sparing a base can split a run, so the next try leaves more room.
            bytes_max /= 2;
            let mut bytes = 0;
            let fitting = sets.0.into_iter().take_while(|(_, slots)| {
                bytes += slots.packed_bytes();
                bytes <= bytes_max
            });
            let fitting: HashSet<ArenaId> = fitting.map(|(arena, _)| arena).collect();
            self.0.retain(|arena, _| fitting.contains(arena));
        }
    }

    fn to_sets(&self, inventory: &Inventory) -> SlotSets {
        let dead = self.0.iter().filter(|(_, dead)| !dead.is_empty());
        // Another collector may have removed one since it was chosen.
        let sets = dead.filter_map(|(id, dead)| {
            let all = dead.len() == inventory.chunks(inventory.get(*id)?);
            Some((*id, if all { ArenaSlots::All } else { ArenaSlots::of(dead.iter()) }))
        });
        SlotSets(sets.collect())
    }
}

/// Bytes of blocks that these slots take: each its share in its block.
pub fn stored_bytes(arena: &Arena, of: SlotWords<'_>) -> u64 {
    let mut slots = arena.slots();
    let mut sum = 0;
    for block in &arena.summary.blocks {
        let (mut all, mut some) = (0_u64, 0_u64);
        for (slot, entry) in slots.by_ref().take(block.head.chunk_count as usize) {
            all += u64::from(entry.chunk_bytes);
            some += if of.contains(slot) { u64::from(entry.chunk_bytes) } else { 0 };
        }
        sum += block.stored_share(some, all);
    }
    sum
}
