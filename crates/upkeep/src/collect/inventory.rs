//! Which slots exist, and which of them no snapshot needs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use strongroom_arena::{
    Arena, ArenaError, ArenaName, ArenaStore, ListedArena, ListedArenas, Origin,
};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor};
use strongroom_repository::{Collections, RepositoryError, SlotBits, SlotWords};

/// An arena that exists.
#[derive(Debug)]
pub struct Holding {
    /// Its name, in its newest generation.
    pub name: ArenaName,
    /// Bytes of its objects, in all generations.
    pub object_bytes: u64,
    /// In how many generations it exists.
    generations: usize,
    /// Nothing of it may be removed: several domains claim it, or a generation without a mark is beside
    /// others; or an earlier verdict has removed it and it was brought back, perhaps with a snapshot of
    /// another copy that needs it; or no number is left for a further generation.
    pub is_frozen: bool,
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
    /// Whether it was made of what is listed now.
    fn is_as_listed(&self, generations: &[ListedArena]) -> bool {
        let newest = generations.last().map(|listed| listed.name);
        newest == Some(self.name)
            && generations.len() == self.generations
            && bytes_of(generations) == self.object_bytes
    }

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
    /// The generations of those that exist in several: a slot is there if one of them holds it.
    several: HashMap<ArenaId, Vec<ArenaName>>,
    /// Of these, the slots that each generation holds. One that begins as a true one, and holds nothing,
    /// can be planted: what it alone claims to hold may be nowhere there.
    in_all: HashMap<ArenaId, SlotBits>,
    /// A bit for each of their slots that nothing has named so far.
    unneeded: Vec<u64>,
    /// Slots that hold a chunk, of arenas with gaps; in others each slot does.
    present: HashMap<ArenaId, SlotBits>,
    /// Those of which a generation cannot be read, and why. They are left alone; if a snapshot needs
    /// what may be in one, nothing may be collected.
    unreadable: HashMap<ArenaId, String>,
}

impl Inventory {
    /// Reads the summaries that it does not have yet. Arenas that a verdict has removed are frozen:
    /// they go once it is certain that nothing needs them.
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
            let generations = listed.generations(id);
            match position(&self.arenas[..known], id).map(|place| &self.arenas[place]) {
                Some(holding) if holding.is_as_listed(generations) => {
                    found += 1;
                    continue;
                }
                Some(_) => change = Change::Other,
                None => change = change.max(Change::Grown),
            }
            monitor.working_on(newest.name.object().as_str().as_ref());
            self.read(store, generations, collections.is_dead(id))?;
        }
        self.arenas.sort_unstable_by_key(|holding| holding.name.id);
        Ok(if found < known { Change::Other } else { change })
    }

    /// Reads the summaries of an arena, in all generations that count.
    fn read(
        &mut self,
        store: &ArenaStore,
        generations: &[ListedArena],
        is_dead: bool,
    ) -> Result<(), RepositoryError> {
        let id = generations[0].name.id;
        let sorted = store.sort_generations(generations)?;
        let unread = sorted.unread.first().map(|(_, why)| why.clone());
        self.unreadable.extend(unread.map(|why| (id, why)));
        let mut read = |all: &[ListedArena]| -> Result<Vec<Arc<Arena>>, RepositoryError> {
            let mut arenas = Vec::new();
            for listed in all {
                match whole_generation(store, *listed) {
                    Ok(arena) => arenas.push(arena),
                    Err(error) if error.is_unreadable() => {
                        self.unreadable.insert(id, error.to_string());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(arenas)
        };
        let (arenas, unmarked) = (read(&sorted.to_keep())?, read(&sorted.unmarked)?);
        if let Some(newest) = arenas.last() {
            store.learn(newest.name());
            // The greatest number is in the way of every rewriting.
            let has_room =
                generations.last().is_some_and(|greatest| greatest.name.has_room_above());
            let is_frozen = sorted.is_frozen() || is_dead || !has_room;
            self.add(&arenas, &unmarked, generations, is_frozen);
        }
        store.forget(id);
        Ok(())
    }

    /// Adds an arena. Those of its generations that have no mark may have what the others lack, and say
    /// nothing of what these have.
    fn add(
        &mut self,
        arenas: &[Arc<Arena>],
        unmarked: &[Arc<Arena>],
        generations: &[ListedArena],
        is_frozen: bool,
    ) {
        let mut present = SlotBits::default();
        let (mut has_deltas, mut slots) = (false, 0);
        let all = || arenas.iter().chain(unmarked);
        for (slot, entry) in all().flat_map(|arena| arena.slots()) {
            slots = slots.max(slot + 1);
            has_deltas |= !entry.bases.is_empty();
            if entry.fingerprint != Fingerprint::ZERO {
                present.insert(slot);
            }
        }
        let has_gaps = present.len() < slots as usize;
        let newest = &arenas[arenas.len() - 1];
        self.arenas.push(Holding {
            name: generations[generations.len() - 1].name,
            object_bytes: bytes_of(generations),
            generations: generations.len(),
            is_frozen,
            origin: newest.origin,
            has_deltas,
            has_gaps,
            slots,
            first_word: self.unneeded.len(),
        });
        let holding = &self.arenas[self.arenas.len() - 1];
        let (first_word, id) = (holding.first_word, newest.id);
        self.unneeded.resize(holding.words().end, 0);
        for slot in present.iter() {
            self.unneeded[first_word + slot as usize / 64] |= 1 << (slot % 64);
        }
        if all().count() > 1 {
            self.several.insert(id, all().map(|arena| arena.name()).collect());
            let mut in_all = SlotBits::default();
            let is_in_all = |slot: &u32| arenas.iter().all(|arena| arena.holds(*slot));
            present.iter().filter(is_in_all).for_each(|slot| in_all.insert(slot));
            self.in_all.insert(id, in_all);
        }
        if has_gaps {
            self.present.insert(id, present);
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

    /// All that exist.
    pub fn ids(&self) -> impl Iterator<Item = ArenaId> {
        self.arenas.iter().map(|holding| holding.name.id).chain(self.unreadable.keys().copied())
    }

    /// Whether something that it was made of is not listed any more.
    pub fn has_lost(&self, listed: &ListedArenas) -> bool {
        let is_gone = |id: ArenaId| listed.generations(id).is_empty();
        let is_as_listed =
            |holding: &Holding| holding.is_as_listed(listed.generations(holding.name.id));
        self.unreadable.keys().any(|id| is_gone(*id)) || !self.arenas.iter().all(is_as_listed)
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

    /// Whether every generation of an arena holds a chunk in this place, if one does.
    pub fn is_in_all(&self, place: Location) -> bool {
        self.in_all.get(&place.arena).is_none_or(|in_all| in_all.contains(place.slot))
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

    /// Whether anything that is in an arena has been named.
    pub fn needs_any_of(&self, id: ArenaId) -> bool {
        let holding = self.get(id);
        holding.is_some_and(|holding| self.unneeded(holding).len() < self.chunks(holding))
    }

    /// Opens the arenas for which `wanted` is true, one after another; one that exists in several
    /// generations in each of them. One that nothing needs and that another collector has removed
    /// since they were listed is none of the arenas any more.
    pub fn each_summary(
        &mut self,
        store: &ArenaStore,
        cancel: &Cancel,
        wanted: impl Fn(&Self, &Holding) -> bool,
        mut look: impl FnMut(&mut Self, &Arc<Arena>) -> Result<(), RepositoryError>,
    ) -> Result<(), RepositoryError> {
        let mut gone = HashSet::new();
        for place in 0..self.arenas.len() {
            let holding = &self.arenas[place];
            if !wanted(self, holding) {
                continue;
            }
            cancel.check()?;
            let id = holding.name.id;
            match self.opened(store, id) {
                Ok(generations) => generations.iter().try_for_each(|arena| look(self, arena))?,
                Err(ArenaError::Missing { .. }) if !self.needs_any_of(id) => {
                    gone.insert(id);
                }
                Err(error) => return Err(error.into()),
            }
            store.forget(id);
        }
        self.arenas.retain(|holding| !gone.contains(&holding.name.id));
        Ok(())
    }

    /// The generations of an arena that were listed, or what replaced them.
    fn opened(&self, store: &ArenaStore, id: ArenaId) -> Result<Vec<Arc<Arena>>, ArenaError> {
        let Some(names) = self.several.get(&id) else { return Ok(vec![store.arena(id)?]) };
        let mut opened = Vec::new();
        let mut is_one_gone = false;
        for name in names {
            match store.arena_in(*name) {
                Err(ArenaError::Missing { .. }) => is_one_gone = true,
                other => opened.push(other?),
            }
        }
        if is_one_gone {
            opened.push(store.arena(id)?);
        }
        Ok(opened)
    }
}

fn bytes_of(generations: &[ListedArena]) -> u64 {
    generations.iter().map(|listed| listed.object_bytes).sum()
}

/// A generation all of whose blocks exist or can be computed again. A summary is in front of the
/// blocks: even if it opens, the arena may have been cut short.
fn whole_generation(store: &ArenaStore, listed: ListedArena) -> Result<Arc<Arena>, ArenaError> {
    let arena = store.arena_in(listed.name)?;
    if listed.object_bytes < arena.object_bytes && !store.can_be_healed(listed.name)? {
        return Err(ArenaError::Damaged { arena: arena.id, what: "it is too short".to_owned() });
    }
    Ok(arena)
}

fn position(arenas: &[Holding], id: ArenaId) -> Option<usize> {
    arenas.binary_search_by_key(&id, |holding| holding.name.id).ok()
}
