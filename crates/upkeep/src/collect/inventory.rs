//! Which slots exist, and which of them no snapshot needs: a bit for each, and a second one for
//! those of arenas that were rewritten.

use std::collections::HashMap;
use std::sync::Arc;

use strongroom_arena::{Arena, ArenaName, ArenaStore, ListedArena, ListedArenas, Origin};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor};
use strongroom_repository::{Collections, RepositoryError, SlotBits, whole_arena};

/// An arena that exists, and what of it no snapshot is known to need.
#[derive(Debug)]
pub struct Holding {
    /// Its newest generation, as it was listed.
    listed: ListedArena,
    /// The session that wrote it, and its sequence.
    pub origin: Origin,
    /// Whether chunks in it are deltas.
    pub has_deltas: bool,
    /// Slots that nothing has named so far.
    pub unneeded: SlotBits,
    /// Slots that hold a chunk, in an arena that was rewritten; in others each slot does, from 0
    /// to the last.
    present: Option<SlotBits>,
    slots: u32,
}

impl Holding {
    fn of(arena: &Arena, listed: ListedArena) -> Self {
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
        let (origin, unneeded) = (arena.origin, present.clone());
        let present = has_gaps.then_some(present);
        Self { listed, origin, has_deltas, unneeded, present, slots }
    }

    /// Bytes of its object.
    pub fn object_bytes(&self) -> u64 {
        self.listed.object_bytes
    }

    /// Whether a slot holds a chunk.
    pub fn holds(&self, slot: u32) -> bool {
        match &self.present {
            Some(present) => present.contains(slot),
            None => slot < self.slots,
        }
    }

    /// How many chunks it holds.
    pub fn chunks(&self) -> usize {
        self.present.as_ref().map_or(self.slots as usize, SlotBits::len)
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

/// Every arena that exists.
#[derive(Default)]
pub struct Inventory {
    /// Those whose summaries can be read.
    pub arenas: HashMap<ArenaId, Holding>,
    /// The others, and why they cannot be read. They are left alone; if a snapshot needs one,
    /// nothing may be collected.
    pub unreadable: HashMap<ArenaId, String>,
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
        let mut found = 0;
        for newest in listed.newest() {
            cancel.check()?;
            let id = newest.name.id;
            if collections.is_dead(id) {
                continue;
            }
            match self.arenas.get(&id) {
                Some(holding) if holding.listed == newest => {
                    found += 1;
                    continue;
                }
                Some(_) => change = Change::Other,
                None => change = change.max(Change::Grown),
            }
            monitor.working_on(newest.name.object().as_str().as_ref());
            store.learn(newest.name);
            match whole_arena(id, listed, store) {
                Ok((arena, object_bytes)) => {
                    let listed = ListedArena { name: arena.name(), object_bytes };
                    self.arenas.insert(id, Holding::of(&arena, listed));
                    found += 1;
                    store.forget(id);
                }
                Err(error) if error.is_unreadable() => {
                    self.unreadable.insert(id, error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(if found < self.arenas.len() { Change::Other } else { change })
    }

    /// The session of each arena.
    pub fn origins(&self) -> impl Iterator<Item = (ArenaName, Origin)> {
        self.arenas.values().map(|holding| (holding.listed.name, holding.origin))
    }

    /// Notes that a chunk is needed. Returns false if its place does not hold it.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotCollectable`] if the arena cannot be read.
    pub fn need(&mut self, location: Location) -> Result<bool, RepositoryError> {
        if let Some(why) = self.unreadable.get(&location.arena) {
            let what = format!("arena {}", location.arena);
            return Err(RepositoryError::NotCollectable { what, why: why.clone() });
        }
        let Some(holding) = self.arenas.get_mut(&location.arena) else { return Ok(false) };
        if !holding.holds(location.slot) {
            return Ok(false);
        }
        holding.unneeded.remove(location.slot);
        Ok(true)
    }

    /// Whether a place holds a chunk that nothing has named so far.
    pub fn is_unneeded(&self, place: Location) -> bool {
        let holding = self.arenas.get(&place.arena);
        holding.is_some_and(|holding| holding.unneeded.contains(place.slot))
    }

    /// Opens the arenas for which `wanted` is true, one after another.
    pub fn each_summary(
        &mut self,
        store: &ArenaStore,
        cancel: &Cancel,
        wanted: impl Fn(&Holding) -> bool,
        mut look: impl FnMut(&mut Self, &Arc<Arena>) -> Result<(), RepositoryError>,
    ) -> Result<(), RepositoryError> {
        let mut ids: Vec<ArenaId> =
            self.arenas.iter().filter(|(_, holding)| wanted(holding)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in ids {
            cancel.check()?;
            let arena = store.arena(id)?;
            look(self, &arena)?;
            store.forget(id);
        }
        Ok(())
    }
}
