//! Which slots there will be, once what is condemned is gone.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use strongroom_arena::{Arena, ArenaError, ArenaName, ListedArena, ListedArenas, SlotRef};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor};
use strongroom_repository::{ChunkReader, Places, Repository, RepositoryError, SlotBits};

use super::Condemned;

/// A bit for each slot that will hold a chunk which can be read: its own bytes, and the bases of its
/// delta.
pub struct Remains {
    /// The arenas, ascending, and where the bits of each begin; then the end of the last.
    arenas: Vec<(ArenaId, usize)>,
    bits: Vec<u64>,
    /// The place in the list of the arena that was asked for last: the next is often the same.
    last: Cell<usize>,
    /// Arenas of which no summary can be read, and why.
    unreadable: BTreeMap<ArenaId, String>,
    /// Those of which one generation can be read and another cannot, and why.
    partly: BTreeMap<ArenaId, String>,
    /// Places that one generation of an arena has, and another has not: one that begins as a true one, and
    /// holds nothing, can be planted. And deltas of what is in such a place.
    in_some: Places,
    /// Deltas with a base in one of those, and that arena.
    unsure: BTreeMap<Location, ArenaId>,
    /// Deltas that exist, and lack a base as soon as what is condemned is gone.
    crippled: Places,
    /// The arenas of the bases that deltas lack.
    lacking: BTreeSet<ArenaId>,
}

impl Remains {
    /// Reads the summaries of all arenas that do not go as a whole.
    pub fn read(
        repository: &Repository,
        reader: &ChunkReader,
        condemned: &Condemned<'_>,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Self, RepositoryError> {
        let listed = ListedArenas::list_twice(repository.backend())?;
        let mut remains = Self {
            arenas: Vec::new(),
            bits: Vec::new(),
            last: Cell::new(0),
            unreadable: BTreeMap::new(),
            partly: BTreeMap::new(),
            in_some: Places::default(),
            unsure: BTreeMap::new(),
            crippled: Places::default(),
            lacking: BTreeSet::new(),
        };
        let mut bases = Places::default();
        for newest in listed.newest() {
            cancel.check()?;
            let id = newest.name.id;
            monitor.working_on(newest.name.object().as_str().as_ref());
            let (mut there, mut times) = (SlotBits::default(), HashMap::new());
            let are_several = listed.generations(id).len() > 1;
            let stays = |name: ArenaName| !(condemned.objects)(name);
            let read = each_slot_of(reader, &listed, id, stays, |part, slot, entry| {
                let place = Location { arena: id, slot };
                if !condemned.slots.contains(place) {
                    there.insert(slot);
                    if are_several {
                        *times.entry(slot).or_insert(0) += usize::from(part.is_genuine);
                    }
                    entry.bases.iter().for_each(|base| bases.insert(*base));
                }
            });
            match read {
                Err(RepositoryError::Arena(error)) if error.is_unreadable() => {
                    remains.unreadable.insert(id, error.to_string());
                }
                other => {
                    let Read { generations, unread } = other?;
                    let in_some = times.into_iter().filter(|(_, times)| *times < generations);
                    let places = in_some.map(|(slot, _)| Location { arena: id, slot });
                    places.for_each(|place| remains.in_some.insert(place));
                    remains.partly.extend(unread.map(|why| (id, why)));
                }
            }
            remains.arenas.push((id, remains.bits.len()));
            remains.bits.extend_from_slice(there.as_slots().0);
        }
        remains.take_out_broken_deltas(&bases, repository, reader, condemned, cancel)?;
        Ok(remains)
    }

    /// Takes out the deltas of which a base will not be there. One of which a base is in some generations
    /// of its arena and not in others is as doubtful as that.
    fn take_out_broken_deltas(
        &mut self,
        bases: &Places,
        repository: &Repository,
        reader: &ChunkReader,
        condemned: &Condemned<'_>,
        cancel: &Cancel,
    ) -> Result<(), RepositoryError> {
        let (mut missing, mut doubtful) = (Places::default(), Places::default());
        for arena in bases.arenas() {
            let slots = bases.of(arena).into_iter().flat_map(SlotBits::iter);
            let places = slots.map(|slot| Location { arena, slot });
            for place in places {
                match (self.holds(place), self.is_in_all(place)) {
                    (false, _) => missing.insert(place),
                    (true, false) => doubtful.insert(place),
                    (true, true) => {}
                }
            }
        }
        if missing.is_empty() && doubtful.is_empty() {
            return Ok(());
        }
        // What else is missing may be there when it is read now: it could not be read before.
        let (mut going, mut deltas) = (Places::default(), Vec::new());
        let unread = each_slot(repository, reader, cancel, |part, slot, entry| {
            let place = Location { arena: part.name.id, slot };
            if missing.contains(place) && condemned.takes(part.name, place) {
                going.insert(place);
            }
            let lacks = entry.bases.iter().filter(|base| missing.contains(**base));
            deltas.extend(lacks.map(|base| (place, *base)));
            if entry.bases.iter().any(|base| doubtful.contains(*base)) {
                self.in_some.insert(place);
            }
        })?;
        // Of what could be read before and cannot be now it is not known what it needs.
        for (arena, why) in unread {
            if !self.unreadable.contains_key(&arena) {
                self.remove_all(arena);
                self.unreadable.insert(arena, why);
            }
        }
        for (place, base) in deltas {
            self.lacking.insert(base.arena);
            if going.contains(base) {
                self.crippled.insert(place);
            } else if self.why_unread(base.arena).is_some() {
                self.unsure.insert(place, base.arena);
            }
            self.remove(place);
        }
        Ok(())
    }

    /// Whether a place will hold a chunk that can be read.
    pub fn holds(&self, place: Location) -> bool {
        self.word_of(place).is_some_and(|word| self.bits[word] >> (place.slot % 64) & 1 != 0)
    }

    /// Whether every generation of its arena has what is in a place, if one has, and so for its bases.
    pub fn is_in_all(&self, place: Location) -> bool {
        !self.in_some.contains(place)
    }

    /// Whether a place holds a delta that will lack a base because the base goes.
    pub fn is_crippled(&self, place: Location) -> bool {
        self.crippled.contains(place)
    }

    /// The arenas in which bases are missing.
    pub fn lacking(&self) -> &BTreeSet<ArenaId> {
        &self.lacking
    }

    fn remove(&mut self, place: Location) {
        if let Some(word) = self.word_of(place) {
            self.bits[word] &= !(1 << (place.slot % 64));
        }
    }

    fn remove_all(&mut self, arena: ArenaId) {
        let Ok(place) = self.arenas.binary_search_by_key(&arena, |(id, _)| *id) else { return };
        let words = self.words_of(place);
        self.bits[words].fill(0);
    }

    fn word_of(&self, Location { arena, slot }: Location) -> Option<usize> {
        let is_at = |place: usize| self.arenas.get(place).is_some_and(|(id, _)| *id == arena);
        if !is_at(self.last.get()) {
            let found = self.arenas.binary_search_by_key(&arena, |(id, _)| *id).ok()?;
            self.last.set(found);
        }
        let words = self.words_of(self.last.get());
        let word = words.start + slot as usize / 64;
        words.contains(&word).then_some(word)
    }

    /// Where the bits of an arena are.
    fn words_of(&self, place: usize) -> Range<usize> {
        let end = self.arenas.get(place + 1).map_or(self.bits.len(), |(_, first)| *first);
        self.arenas[place].1..end
    }

    /// Why it cannot be said whether a place will hold a chunk that can be read.
    pub fn why_unreadable(&self, place: Location) -> Option<&str> {
        match self.unsure.get(&place) {
            Some(base) => self.why_unread(*base),
            None => self.unreadable.get(&place.arena).map(String::as_str),
        }
    }

    fn why_unread(&self, arena: ArenaId) -> Option<&str> {
        self.unreadable.get(&arena).or_else(|| self.partly.get(&arena)).map(String::as_str)
    }

    /// Arenas of which a summary cannot be read, and why.
    pub fn unreadable(&self) -> impl Iterator<Item = (ArenaId, &str)> {
        self.unreadable.iter().chain(&self.partly).map(|(id, why)| (*id, why.as_str()))
    }
}

/// Calls `look` with each slot that holds a chunk now. Returns the arenas of which nothing can be read, and
/// why.
pub fn each_slot(
    repository: &Repository,
    reader: &ChunkReader,
    cancel: &Cancel,
    mut look: impl FnMut(Part, u32, SlotRef<'_>),
) -> Result<BTreeMap<ArenaId, String>, RepositoryError> {
    let listed = ListedArenas::list_twice(repository.backend())?;
    let mut unread = BTreeMap::new();
    for newest in listed.newest() {
        cancel.check()?;
        let id = newest.name.id;
        match each_slot_of(reader, &listed, id, |_| true, &mut look) {
            Err(RepositoryError::Arena(error)) if error.is_unreadable() => {
                unread.insert(id, error.to_string());
            }
            other => drop(other?),
        }
    }
    Ok(unread)
}

/// A generation that was read.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name.
    pub name: ArenaName,
    /// Whether it is proved whose it is. One without a mark has slots too.
    is_genuine: bool,
}

/// What was read of an arena.
struct Read {
    /// How many of its genuine generations.
    generations: usize,
    /// Why another cannot be read, if one cannot.
    unread: Option<String>,
}

/// The same for the generations of one arena that `wanted` names: a slot exists if any genuine one
/// has it, or one without a mark.
fn each_slot_of(
    reader: &ChunkReader,
    listed: &ListedArenas,
    id: ArenaId,
    wanted: impl Fn(ArenaName) -> bool,
    mut look: impl FnMut(Part, u32, SlotRef<'_>),
) -> Result<Read, RepositoryError> {
    let store = reader.store();
    let sorted = store.sort_generations(listed.generations(id))?;
    let genuine = sorted.genuine;
    if genuine.is_empty() {
        let what = "one of its generations may be planted, because their domains differ".to_owned();
        return Err(ArenaError::Damaged { arena: id, what }.into());
    }
    let among = sorted.unread.into_iter().find(|(listed, _)| wanted(listed.name));
    let among = among.map(|(_, why)| why);
    let mut unread = None;
    let mut are_read = 0;
    let parts = genuine.iter().map(|listed| (listed, true));
    let parts = parts.chain(sorted.unmarked.iter().map(|listed| (listed, false)));
    for (listed, is_genuine) in parts.filter(|(listed, _)| wanted(listed.name)) {
        store.learn(listed.name);
        let arena = store.arena(id);
        store.forget(id);
        match arena {
            Ok(arena) if has_no_end(reader, listed, &arena)? => {
                let what = "its end is missing".to_owned();
                unread = Some(ArenaError::Damaged { arena: id, what });
            }
            Ok(arena) => {
                let there = |entry: &SlotRef<'_>| entry.fingerprint != Fingerprint::ZERO;
                let slots = arena.slots().filter(|(_, entry)| there(entry));
                let part = Part { name: arena.name(), is_genuine };
                slots.for_each(|(slot, entry)| look(part, slot, entry));
                are_read += usize::from(is_genuine);
            }
            Err(error) if error.is_unreadable() && !is_genuine => {}
            Err(error) if error.is_unreadable() => unread = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(newest) = genuine.last() {
        store.learn(newest.name);
    }
    match unread {
        Some(error) if are_read == 0 => Err(error.into()),
        unread => {
            let unread = unread.map(|error| error.to_string()).or(among);
            Ok(Read { generations: are_read, unread })
        }
    }
}

/// Whether an object stops before its arena does, so that parity cannot give back what is behind: a copy that
/// was interrupted leaves the summary, which is in front, and some of the blocks.
fn has_no_end(
    reader: &ChunkReader,
    listed: &ListedArena,
    arena: &Arena,
) -> Result<bool, RepositoryError> {
    let is_short = listed.name == arena.name() && listed.object_bytes < arena.object_bytes;
    Ok(is_short && !reader.store().can_be_healed(listed.name)?)
}
