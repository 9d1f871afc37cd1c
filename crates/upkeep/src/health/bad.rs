//! What is known to be unreadable, and whether a chunk exists somewhere else.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use strongroom_arena::SummarySlot;
use strongroom_base::{ArenaId, Fingerprint, Location, Monitor, Problem, Severity};
use strongroom_catalog::ChunkRef;
use strongroom_repository::{ChunkReader, LostPlaces, RepositoryError};

use super::look::{Survivors, survivors};

/// What is known to be unreadable.
#[derive(Debug, Default)]
pub(crate) struct BadPlaces {
    /// Arenas beyond parity, with what a reader can still read of each.
    broken: BTreeMap<ArenaId, Survivors>,
    /// Slots of whole arenas that hold something else than the summary says.
    slots: HashSet<Location>,
}

impl BadPlaces {
    /// Records an arena beyond parity, and what a reader can still read of it.
    pub(crate) fn add_broken(&mut self, id: ArenaId, reader: &ChunkReader) {
        self.broken.insert(id, survivors(id, reader));
    }

    /// What no backup may rely on.
    pub(crate) fn lost_places(&self, reader: &ChunkReader) -> LostPlaces {
        LostPlaces { slots: self.lost_slots(reader), arenas: self.lost_arenas(reader) }
    }

    /// Slots that cannot be read, though a summary names them.
    fn lost_slots(&self, reader: &ChunkReader) -> Vec<Location> {
        let mut lost: Vec<Location> = self.slots.iter().copied().collect();
        for (id, survivors) in &self.broken {
            for arena in reader.store().arenas(*id).unwrap_or_default() {
                let slots = arena.slots().map(|(slot, _)| slot);
                let gone = slots.filter(|slot| !survivors.contains_key(slot));
                lost.extend(gone.map(|slot| Location { arena: *id, slot }));
            }
        }
        lost
    }

    /// Arenas of which nothing can be read, so that no summary says which slots they have.
    fn lost_arenas(&self, reader: &ChunkReader) -> Vec<ArenaId> {
        let is_silent =
            |id: &ArenaId| reader.store().arenas(*id).is_ok_and(|arenas| arenas.is_empty());
        let ids = self.broken.iter().filter(|(_, survivors)| survivors.is_empty());
        let mut lost: Vec<ArenaId> = ids.map(|(id, _)| *id).collect();
        lost.retain(|id| is_silent(id) || reader.store().arenas(*id).is_err());
        lost
    }

    /// What a reader can still read of an arena beyond parity, in the order of its slots; none for
    /// any other arena.
    pub(crate) fn survivors_of(&self, id: ArenaId) -> Option<Vec<(u32, &SummarySlot)>> {
        let survivors = self.broken.get(&id)?;
        let mut slots: Vec<_> = survivors.iter().map(|(slot, entry)| (*slot, entry)).collect();
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        Some(slots)
    }

    /// Whether a slot of a whole arena holds something else than the summary says.
    pub(crate) fn has_slot(&self, place: Location) -> bool {
        self.slots.contains(&place)
    }

    /// Records what was found in an object.
    pub(crate) fn extend(&mut self, broken: Option<(ArenaId, Survivors)>, slots: Vec<Location>) {
        self.broken.extend(broken);
        self.slots.extend(slots);
    }

    /// The bases of what can be read in a place, if it is what was wanted; empty for a chunk that
    /// is stored whole.
    fn bases_at(
        &self,
        reader: &ChunkReader,
        place: Location,
        is_wanted: impl Fn(Fingerprint) -> bool,
    ) -> Result<Option<Vec<Location>>, RepositoryError> {
        if let Some(survivors) = self.broken.get(&place.arena) {
            let slot = survivors.get(&place.slot).filter(|slot| is_wanted(slot.fingerprint));
            return Ok(slot.map(|slot| slot.bases.to_vec()));
        }
        if self.slots.contains(&place) {
            return Ok(None);
        }
        match reader.store().arena_with(place) {
            Ok(arena) => {
                let slot = arena.slot(place.slot).filter(|slot| is_wanted(slot.fingerprint));
                Ok(slot.map(|slot| slot.bases.to_vec()))
            }
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Says that what is lost could be noted nowhere, so that the next backup may rely on it.
pub(crate) fn say_not_withdrawn(cache: &Path, monitor: &dyn Monitor) {
    let message = "what is lost could not be noted here, so the next backup may rely on it: run \
                   `strongroom verify` again once this folder can be written";
    let path = Some(cache);
    monitor.problem(Problem { severity: Severity::Warning, path, message });
}

/// True if a chunk is in a place, as its summary says.
pub(crate) fn is_at(
    reader: &ChunkReader,
    bad: &BadPlaces,
    chunk: &ChunkRef,
    location: Location,
) -> Result<bool, RepositoryError> {
    if !reader.names_as_here(chunk) {
        return Ok(false);
    }
    let is_it = |fingerprint: Fingerprint| chunk.fingerprint.names(location, &fingerprint);
    match bad.bases_at(reader, location, is_it)? {
        None => Ok(false),
        // A delta does not contain the fingerprints of its bases: a base is the chunk in that
        // place.
        Some(bases) => bases.iter().try_fold(true, |so_far, base| {
            let is_any = |fingerprint| fingerprint != Fingerprint::ZERO;
            Ok(so_far && bad.bases_at(reader, *base, is_any)?.is_some())
        }),
    }
}
