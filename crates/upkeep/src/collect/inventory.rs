//! Which slots exist, and which of them no snapshot needs.

use std::collections::HashMap;
use std::sync::Arc;

use strongroom_arena::{Arena, ArenaName, ArenaStore, ListedArenas, Origin};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor};
use strongroom_repository::{Collections, RepositoryError, SlotBits, SlotWords, whole_arena};

/// An arena that exists.
#[derive(Debug)]
pub struct Holding {
    /// Its name, in its newest generation.
    pub name: ArenaName,
    /// Bytes of its object.
    pub object_bytes: u64,
    /// The session that wrote it, and its sequence.
    pub origin: Origin,
    /// Whether chunks in it are deltas.
    pub has_deltas: bool,
    /// Whether it was rewritten, and some slots up to the last are empty.
    has_gaps: bool,
    /// One more than its last slot.
    slots: u32,
    /// Where its bits begin, in words.
    first_word: usize,
}

impl Holding {
    fn words(&self) -> std::ops::Range<usize> {
        self.first_word..self.first_word + self.slots.div_ceil(64) as usize
    }
}

/// How an inventory has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Not at all.
    Same,
    /// Arenas were added.
    Grown,
    /// Arenas are gone, or were rewritten: what was marked in them does not count.
    Other,
}

/// Every arena that exists, and what of it no snapshot is known to need: some seventy bytes for each,
/// and a bit for each slot.
#[derive(Default)]
pub struct Inventory {
    /// Those whose summaries can be read, in the order of their identifiers.
    arenas: Vec<Holding>,
    /// A bit for each of their slots that nothing has named so far.
    unneeded: Vec<u64>,
    /// Slots that hold a chunk, of arenas with gaps; in others each slot does.
    present: HashMap<ArenaId, SlotBits>,
    /// The others, and why they cannot be read. They are left alone; if a snapshot needs one,
    /// nothing may be collected.
    unreadable: HashMap<ArenaId, String>,
}

impl Inventory {
    /// Reads the summaries that it does not have yet. Arenas that a verdict has removed do not
    /// exist.
    pub fn update(
        &mut self,
        store: &ArenaStore,
        listed: &ListedArenas,
        collections: &Collections,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Change, RepositoryError> {
        self.unreadable.clear();
        let mut change = Change::Same;
        let (known, mut found) = (self.arenas.len(), 0);
        for newest in listed.newest() {
            cancel.check()?;
            let id = newest.name.id;
            if collections.is_dead(id) {
                continue;
            }
            match position(&self.arenas[..known], id).map(|place| &self.arenas[place]) {
                Some(holding)
                    if (holding.name, holding.object_bytes)
                        == (newest.name, newest.object_bytes) =>
                {
                    found += 1;
                    continue;
                }
                Some(_) => change = Change::Other,
                None => change = change.max(Change::Grown),
            }
            monitor.working_on(newest.name.object().as_str().as_ref());
            let generations = listed.generations(id);
            let Some(genuine) = store.genuine(generations)? else {
                let names = generations.iter().map(|listed| listed.name.object().to_string());
                let names = names.collect::<Vec<_>>().join(" and ");
                let why = format!("of {names} one may be planted, because their domains differ");
                self.unreadable.insert(id, why);
                continue;
            };
            store.learn(genuine.last().unwrap_or(&newest).name);
            match whole_arena(id, listed, store) {
                Ok((arena, object_bytes)) => {
                    self.add(&arena, object_bytes);
                    store.forget(id);
                }
                Err(error) if error.is_unreadable() => {
                    self.unreadable.insert(id, error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.arenas.sort_unstable_by_key(|holding| holding.name.id);
        Ok(if found < known { Change::Other } else { change })
    }

    fn add(&mut self, arena: &Arena, object_bytes: u64) {
        let mut present = SlotBits::default();
        let (mut has_deltas, mut slots) = (false, 0);
        for (slot, entry) in arena.slots() {
            slots = slot + 1;
            has_deltas |= !entry.bases.is_empty();
            if entry.fingerprint != Fingerprint::ZERO {
                present.insert(slot);
            }
        }
        let has_gaps = present.len() < slots as usize;
        let (name, origin, first_word) = (arena.name(), arena.origin, self.unneeded.len());
        let holding =
            Holding { name, object_bytes, origin, has_deltas, has_gaps, slots, first_word };
        self.unneeded.resize(holding.words().end, 0);
        for slot in present.iter() {
            self.unneeded[first_word + slot as usize / 64] |= 1 << (slot % 64);
        }
        self.arenas.push(holding);
        if has_gaps {
            self.present.insert(arena.id, present);
        }
    }

    /// The arenas whose summaries can be read, in the order of their identifiers.
    pub fn arenas(&self) -> &[Holding] {
        &self.arenas
    }

    /// Those whose summaries cannot be read, and why.
    pub fn unreadable(&self) -> impl Iterator<Item = (ArenaId, &str)> {
        self.unreadable.iter().map(|(id, why)| (*id, &**why))
    }

    /// Why an arena cannot be read.
    pub fn why_unreadable(&self, id: ArenaId) -> Option<&str> {
        self.unreadable.get(&id).map(String::as_str)
    }

    /// An arena whose summary can be read.
    pub fn get(&self, id: ArenaId) -> Option<&Holding> {
        position(&self.arenas, id).map(|place| &self.arenas[place])
    }

    /// Slots of an arena that nothing has named so far.
    pub fn unneeded(&self, holding: &Holding) -> SlotWords<'_> {
        SlotWords(&self.unneeded[holding.words()])
    }

    /// How many chunks an arena holds.
    pub fn chunks(&self, holding: &Holding) -> usize {
        let present = self.present.get(&holding.name.id);
        present.map_or(holding.slots as usize, SlotBits::len)
    }

    /// Notes that a chunk is needed. Returns false if its place does not hold it.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotCollectable`] if the arena cannot be read.
    pub fn need(&mut self, location: Location) -> Result<bool, RepositoryError> {
        let Location { arena, slot } = location;
        let Some(holding) = self.get(arena) else {
            return match self.unreadable.get(&arena) {
                Some(why) => Err(RepositoryError::NotCollectable {
                    what: format!("arena {arena}"),
                    why: why.clone(),
                }),
                None => Ok(false),
            };
        };
        if !self.holds(holding, slot) {
            return Ok(false);
        }
        let word = holding.first_word + slot as usize / 64;
        self.unneeded[word] &= !(1 << (slot % 64));
        Ok(true)
    }

    fn holds(&self, holding: &Holding, slot: u32) -> bool {
        let in_gap = || !self.present.get(&holding.name.id).is_some_and(|all| all.contains(slot));
        slot < holding.slots && !(holding.has_gaps && in_gap())
    }

    /// Whether a place holds a chunk that something has named.
    pub fn is_needed(&self, place: Location) -> bool {
        self.get(place.arena).is_some_and(|holding| {
            self.holds(holding, place.slot) && !self.unneeded(holding).contains(place.slot)
        })
    }

    /// Whether a place holds a chunk that nothing has named so far.
    pub fn is_unneeded(&self, place: Location) -> bool {
        let holding = self.get(place.arena);
        holding.is_some_and(|holding| self.unneeded(holding).contains(place.slot))
    }

    /// Opens the arenas for which `wanted` is true, one after another.
    pub fn each_summary(
        &mut self,
        store: &ArenaStore,
        cancel: &Cancel,
        wanted: impl Fn(&Self, &Holding) -> bool,
        mut look: impl FnMut(&mut Self, &Arc<Arena>) -> Result<(), RepositoryError>,
    ) -> Result<(), RepositoryError> {
        for place in 0..self.arenas.len() {
            let holding = &self.arenas[place];
            if !wanted(self, holding) {
                continue;
            }
            cancel.check()?;
            let id = holding.name.id;
            let arena = store.arena(id)?;
            look(self, &arena)?;
            store.forget(id);
        }
        Ok(())
    }
}

fn position(arenas: &[Holding], id: ArenaId) -> Option<usize> {
    arenas.binary_search_by_key(&id, |holding| holding.name.id).ok()
}
