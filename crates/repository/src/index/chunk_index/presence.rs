//! Where a chunk is, and whether it is there still: what an index says was true when it was made.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use strongroom_arena::{Arena, ArenaStore, SlotRef};
use strongroom_base::{ArenaId, Fingerprint, Location};

use super::super::location::{is_of, key_of, unpack_location};
use super::ChunkIndex;
use super::bases::is_whole;
use crate::error::RepositoryError;

impl ChunkIndex {
    /// Where a chunk is, as far as the index can be read: if it is damaged, nothing is known, and
    /// [`ChunkIndex::is_broken`] from then on. A base of it may be gone.
    pub fn lookup(&self, fingerprint: &Fingerprint) -> Option<Location> {
        let key = key_of(fingerprint);
        let found = self.index.lookup(&key).unwrap_or_else(|_| {
            self.broken.store(true, Ordering::Relaxed);
            None
        })?;
        if !is_of(found, &key) {
            self.broken.store(true, Ordering::Relaxed);
            return None;
        }
        let (ordinal, slot) = unpack_location(found);
        let arena = self.arenas.existing(ordinal)?.id;
        (!self.orphans.contains(&(ordinal, slot))).then_some(Location { arena, slot })
    }

    /// Where a chunk is that a snapshot is about to name. The index is not believed for what can
    /// have changed since it was made: an arena's first generation cannot, but the slots of a
    /// rewritten one are compared with its summary.
    pub fn find_known(
        &self,
        fingerprint: &Fingerprint,
        store: &ArenaStore,
    ) -> Result<Option<Location>, RepositoryError> {
        let found = self.lookup(fingerprint).filter(|found| !self.excludes(*found));
        let Some(found) = found else { return Ok(None) };
        if !self.is_in_place(fingerprint, found, store)? {
            if self.withheld.borrow().found.contains_key(&found.arena) {
                return Ok(None);
            }
            self.broken.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        Ok(self.has_bases(found, store)?.then_some(found))
    }

    /// Whether a slot that once held the chunk of this name still holds it, in an arena that is
    /// trusted, and can be read.
    pub fn is_present(
        &self,
        fingerprint: &Fingerprint,
        location: Location,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        if !self.is_trusted(location.arena)
            || self.is_withdrawn(location)
            || self.excludes(location)
        {
            return Ok(false);
        }
        Ok(self.is_in_place(fingerprint, location, store)? && self.has_bases(location, store)?)
    }

    /// Whether the chunk of a reference still exists, also in an arena that is not trusted: what another
    /// domain has stored for itself may be named for it again, and is no worse than its own snapshot. The
    /// reference may be made up, so the summary is asked, also of an arena that was never rewritten, and of
    /// those of its bases; of another domain's arena there is none, as `store` does not open it.
    pub fn is_there(
        &self,
        fingerprint: &Fingerprint,
        location: Location,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        if !self.exists(location.arena) || self.is_withdrawn(location) || self.excludes(location) {
            return Ok(false);
        }
        let Some(arena) = self.opened(location.arena, store)? else { return Ok(false) };
        let Some(slot) = arena.slot(location.slot) else { return Ok(false) };
        if !fingerprint.names(location, &slot.fingerprint) {
            return Ok(false);
        }
        for base in slot.bases {
            let Some(arena) = self.opened(base.arena, store)? else { return Ok(false) };
            let is_left = self.exists(base.arena)
                && !self.is_withdrawn(*base)
                && !self.excludes(*base)
                && arena.slot(base.slot).is_some_and(is_whole);
            if !is_left {
                return Ok(false);
            }
        }
        Ok(!self.is_trusted(location.arena) || self.is_present(fingerprint, location, store)?)
    }

    /// The summary of an arena, if the place gives it and `store` opens it.
    fn opened(
        &self,
        id: ArenaId,
        store: &ArenaStore,
    ) -> Result<Option<Arc<Arena>>, RepositoryError> {
        match store.arena(id) {
            Ok(arena) => Ok(Some(arena)),
            Err(error) if error.is_unreadable() || self.notes_withheld(id, &error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a slot of an arena that exists still holds this chunk: for a rewritten one, its
    /// summary says it.
    fn is_in_place(
        &self,
        fingerprint: &Fingerprint,
        place: Location,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        self.is_slot(place, store, |slot| fingerprint.names(place, &slot.fingerprint))
    }

    /// Whether a slot of an arena that exists is as it was, if that is the arena's first generation;
    /// for a rewritten one, `check` says it.
    pub(super) fn is_slot(
        &self,
        place: Location,
        store: &ArenaStore,
        check: impl Fn(SlotRef<'_>) -> bool,
    ) -> Result<bool, RepositoryError> {
        let ordinal = self.arenas.find(place.arena);
        match ordinal.and_then(|ordinal| self.arenas.existing(ordinal)) {
            None => return Ok(false),
            Some(covered) if covered.generation == 0 => return Ok(true),
            Some(_) => {}
        }
        Ok(self
            .opened(place.arena, store)?
            .is_some_and(|arena| arena.slot(place.slot).is_some_and(check)))
    }
}
