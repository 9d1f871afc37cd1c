//! What a delta may rest on, and which deltas rest on nothing any more.

use std::collections::HashSet;

use strongroom_arena::{ArenaStore, ListedArenas, SlotRef};
use strongroom_base::{ArenaId, Fingerprint, Location};

use super::{ChunkIndex, whole_arena};
use crate::error::RepositoryError;

impl ChunkIndex {
    /// Whether a delta can rest on the chunk in a place, for ever: its arena is trusted, and holds it
    /// there whole, and nothing withdrew it or may remove it. This is asked of the bases of a new delta
    /// as of those of an old one: a reader finds a base by its place alone, in a block that may still
    /// have what its summary no longer names.
    pub fn can_be_base(
        &self,
        place: Location,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        Ok(self.is_trusted(place.arena)
            && !self.is_withdrawn(place)
            && !self.excludes(place)
            && self.is_slot(place, store, is_whole)?)
    }

    /// Whether a slot is left out: its chunk cannot be read, or lacks a base.
    pub(super) fn is_withdrawn(&self, place: Location) -> bool {
        let ordinal = self.arenas.find(place.arena);
        ordinal.is_some_and(|ordinal| self.orphans.contains(&(ordinal, place.slot)))
    }

    /// True unless a slot of an arena that exists is a delta of which a base is gone, or about to go.
    pub(super) fn has_bases(
        &self,
        place: Location,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        let Some(ordinal) = self.arenas.find(place.arena) else { return Ok(false) };
        if !self.arenas.existing(ordinal).is_some_and(|covered| covered.is_unchecked) {
            return Ok(true);
        }
        if let Some(orphans) = self.checked.borrow().get(&ordinal) {
            return Ok(orphans.as_ref().is_some_and(|orphans| !orphans.contains(&place.slot)));
        }
        let orphans = self.find_orphans(place.arena, store)?;
        let has_bases = orphans.as_ref().is_some_and(|orphans| !orphans.contains(&place.slot));
        self.checked.borrow_mut().insert(ordinal, orphans);
        Ok(has_bases)
    }

    /// The slots of an arena that are deltas and lack a base; `None` if its summary cannot be read.
    fn find_orphans(
        &self,
        id: ArenaId,
        store: &ArenaStore,
    ) -> Result<Option<HashSet<u32>>, RepositoryError> {
        let arena = match store.arena(id) {
            Ok(arena) => arena,
            Err(error) if error.is_unreadable() => return Ok(None),
            Err(error) if self.notes_withheld(id, &error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut orphans = HashSet::new();
        for (slot, entry) in arena.slots() {
            for base in entry.bases {
                let is_there = self.can_be_base(*base, store)?;
                // Whether it is there is known when it can be read: that is no orphan to remember.
                if !is_there && self.withheld.borrow().found.contains_key(&base.arena) {
                    return Ok(None);
                }
                if !is_there {
                    orphans.insert(slot);
                }
            }
        }
        Ok(Some(orphans))
    }

    /// True if every base of a delta exists, in its slot, and nothing withdrew it or may remove it. Its
    /// arena need not be in the index yet.
    pub(super) fn are_there(
        &self,
        bases: &[Location],
        listed: &ListedArenas,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        for base in bases {
            let is_gone = listed.generations(base.arena).is_empty();
            if is_gone || self.is_withdrawn(*base) || self.excludes(*base) {
                return Ok(false);
            }
            let is_there = match whole_arena(base.arena, listed, store) {
                Ok((arena, _)) => arena.trusted && arena.slot(base.slot).is_some_and(is_whole),
                Err(error) if error.is_unreadable() => false,
                Err(error) => return Err(error.into()),
            };
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A base of any delta may be gone.
    pub(super) fn check_deltas_again(&mut self) {
        self.checked.get_mut().clear();
        for ordinal in 0..self.arenas.len() {
            if self.arenas.existing(ordinal).is_some_and(|covered| covered.has_deltas) {
                self.arenas.update(ordinal, |covered| covered.is_unchecked = true);
            }
        }
    }

    /// Leaves out slots that do not hold what their summaries say, until their arenas are
    /// rewritten: the next backup stores those chunks again.
    pub fn withdraw(&mut self, wrong: &[Location]) {
        let mut is_news = false;
        for place in wrong {
            let ordinal = self.arenas.find(place.arena);
            is_news |= ordinal.is_some_and(|ordinal| self.orphans.insert((ordinal, place.slot)));
        }
        if is_news {
            self.check_deltas_again();
        }
    }

    /// Leaves out arenas of which nothing can be read, not even which chunks they have: the next backup
    /// asks each again, and stores again what was in it if it still cannot be read. Gives what was left out of
    /// them, which is to be left out if they can be read again.
    pub(super) fn withdraw_arenas(&mut self, unreadable: &[ArenaId]) -> Vec<Location> {
        let mut left_out = Vec::new();
        for id in unreadable {
            if let Some(ordinal) = self.arenas.find(*id) {
                left_out.extend(self.left_out_of(ordinal, *id));
                self.arenas.update(ordinal, |covered| covered.exists = false);
            }
        }
        if !unreadable.is_empty() {
            self.check_deltas_again();
        }
        left_out
    }

    /// What was found out about deltas in this session need not be found out again.
    pub(super) fn note_checked(&mut self) {
        for (ordinal, orphans) in std::mem::take(self.checked.get_mut()) {
            let Some(orphans) = orphans else { continue };
            self.arenas.update(ordinal, |covered| covered.is_unchecked = false);
            self.orphans.extend(orphans.into_iter().map(|slot| (ordinal, slot)));
        }
    }
}

/// Whether a slot holds a chunk that is stored whole.
pub(super) fn is_whole(slot: SlotRef<'_>) -> bool {
    slot.fingerprint != Fingerprint::ZERO && slot.bases.is_empty()
}
