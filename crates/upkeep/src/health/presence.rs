//! Which chunks are where, as the summaries say: in four bytes a slot, instead of the forty that an
//! open summary takes.
//!
//! A verb that asks for every chunk of every snapshot asks for them in the order of directories,
//! which is not that of arenas. An arena of small chunks has a summary of megabytes, so a cache of
//! summaries holds a few of them; asked in turn, each would be opened again for every file. Here
//! each is opened once as long as all of them have fewer than some seven million slots.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use strongroom_backend::Withheld;
use strongroom_base::{ArenaId, ByteCache, Fingerprint, Location};
use strongroom_catalog::ChunkRef;
use strongroom_repository::{ChunkReader, RepositoryError};

use super::bad::{BadPlaces, is_at};

/// Memory for what is known of arenas.
const BYTES_MAX: usize = 28 << 20;

/// Whether a chunk can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// From where its recipe says, or from elsewhere.
    Good,
    /// From nowhere.
    Lost,
    /// The place withholds an arena that has it, or may have it: nothing is known of it.
    Withheld,
}

/// What is known of the places of chunks.
pub struct Presence {
    arenas: ByteCache<ArenaId, Arc<Marks>>,
    /// Arenas that the place withholds: it is not asked again. Its hashes are seeded at random, so
    /// marks are made with them: no reference can be made to look like another.
    withheld: HashMap<ArenaId, Withheld>,
}

/// What is in the slots of an arena.
///
/// Invariants: runs ascend, by slot and by place; bases ascend by slot.
#[derive(Debug, Default)]
struct Marks {
    /// Where neighbouring slots begin: the slot, and its place in `marks`.
    runs: Vec<(u32, u32)>,
    /// Part of a hash of the fingerprint in each slot; zero if nothing can be read there.
    marks: Vec<u32>,
    /// The bases of deltas, with their slots.
    bases: Vec<(u32, Location)>,
}

impl Marks {
    /// Adds a slot behind all others.
    fn push(&mut self, slot: u32, mark: u32, bases: &[Location]) {
        let place = self.marks.len() as u32;
        let next = self.runs.last().map(|(first, at)| first.wrapping_add(place - at));
        if next != Some(slot) {
            self.runs.push((slot, place));
        }
        self.marks.push(mark);
        self.bases.extend(bases.iter().map(|base| (slot, *base)));
    }

    /// The mark of a slot; zero if there is no such slot.
    fn at(&self, slot: u32) -> u32 {
        let after = self.runs.partition_point(|(first, _)| *first <= slot);
        let Some((first, place)) = after.checked_sub(1).map(|run| self.runs[run]) else { return 0 };
        let end = self.runs.get(after).map_or(self.marks.len(), |(_, place)| *place as usize);
        let wanted = place as usize + (slot - first) as usize;
        if wanted < end { self.marks[wanted] } else { 0 }
    }

    fn bases_of(&self, slot: u32) -> impl Iterator<Item = Location> {
        let first = self.bases.partition_point(|(owner, _)| *owner < slot);
        let owned = self.bases[first..].iter().take_while(move |(owner, _)| *owner == slot);
        owned.map(|(_, base)| *base)
    }

    fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<(u32, u32)>()
            + self.marks.capacity() * size_of::<u32>()
            + self.bases.capacity() * size_of::<(u32, Location)>()
    }
}

impl Default for Presence {
    fn default() -> Self {
        Self { arenas: ByteCache::new(BYTES_MAX), withheld: HashMap::new() }
    }
}

impl Presence {
    /// Whether a chunk is where its recipe says, or elsewhere.
    pub(crate) fn standing(
        &mut self,
        reader: &ChunkReader,
        bad: &BadPlaces,
        chunk: &ChunkRef,
    ) -> Result<Standing, RepositoryError> {
        match self.by_marks(reader, bad, chunk)? {
            Standing::Lost => {}
            known => return Ok(known),
        }
        let mut is_withheld = false;
        let here = |place| match is_at(reader, bad, chunk, place) {
            Ok(is_here) => Ok(is_here.then_some(())),
            Err(error) if error.is_withheld() => {
                is_withheld = true;
                Ok(None)
            }
            Err(error) => Err(error),
        };
        Ok(match reader.from_places(chunk, here)? {
            Some(()) => Standing::Good,
            None if is_withheld || reader.withheld_arena().is_some() => Standing::Withheld,
            None => Standing::Lost,
        })
    }

    /// The same for its own place alone.
    fn by_marks(
        &mut self,
        reader: &ChunkReader,
        bad: &BadPlaces,
        chunk: &ChunkRef,
    ) -> Result<Standing, RepositoryError> {
        let place = chunk.location;
        if !reader.names_as_here(chunk) {
            return Ok(Standing::Lost);
        }
        let Some(marks) = self.marks_of(reader, bad, place.arena)? else {
            return Ok(self.not_at(place.arena));
        };
        let found = marks.at(place.slot);
        let is_named_by_place = chunk.fingerprint == Fingerprint::of_place(place);
        if found == 0 || (found != self.mark_of(&chunk.fingerprint) && !is_named_by_place) {
            return Ok(Standing::Lost);
        }
        // A delta does not contain the fingerprints of its bases: a base is the chunk in that
        // place.
        for base in marks.bases_of(place.slot) {
            let Some(marks) = self.marks_of(reader, bad, base.arena)? else {
                return Ok(self.not_at(base.arena));
            };
            if marks.at(base.slot) == 0 {
                return Ok(Standing::Lost);
            }
        }
        Ok(Standing::Good)
    }

    /// What becomes of the chunks of an arena that cannot be asked.
    fn not_at(&self, arena: ArenaId) -> Standing {
        if self.withheld.contains_key(&arena) { Standing::Withheld } else { Standing::Lost }
    }

    /// What is in an arena; none if it cannot be read, or if the place withholds it.
    fn marks_of(
        &mut self,
        reader: &ChunkReader,
        bad: &BadPlaces,
        id: ArenaId,
    ) -> Result<Option<Arc<Marks>>, RepositoryError> {
        if let Some(marks) = self.arenas.get(&id) {
            return Ok(Some(marks));
        }
        if self.withheld.contains_key(&id) {
            return Ok(None);
        }
        let mut marks = Marks::default();
        if let Some(survivors) = bad.survivors_of(id) {
            for (slot, entry) in survivors {
                marks.push(slot, self.mark_of(&entry.fingerprint), &entry.bases);
            }
        } else {
            let arena = match reader.store().arena(id) {
                Ok(arena) => arena,
                Err(error) if error.is_unreadable() => return Ok(None),
                Err(error) => match error.withheld() {
                    Some(why) => {
                        self.withheld.insert(id, why);
                        return Ok(None);
                    }
                    None => return Err(error.into()),
                },
            };
            // Growing would leave holes of every size in the heap.
            marks.marks.reserve_exact(arena.summary.slots.len());
            for (slot, entry) in arena.slots() {
                let is_bad = bad.has_slot(Location { arena: id, slot });
                let mark = if is_bad { 0 } else { self.mark_of(&entry.fingerprint) };
                marks.push(slot, mark, entry.bases);
            }
        }
        marks.marks.shrink_to_fit();
        let bytes = marks.heap_bytes();
        let marks = Arc::new(marks);
        self.arenas.put(id, marks.clone(), bytes);
        Ok(Some(marks))
    }

    /// Zero for a slot that holds no chunk, and for no other.
    fn mark_of(&self, fingerprint: &Fingerprint) -> u32 {
        match *fingerprint == Fingerprint::ZERO {
            true => 0,
            // The upper half is dropped on purpose.
            false => self.withheld.hasher().hash_one(fingerprint) as u32 | 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_by_their_numbers_whatever_is_left_out() {
        let base = |slot| Location { arena: ArenaId([3; 16]), slot };
        let mut marks = Marks::default();
        for (slot, mark) in [(0, 11), (1, 13), (5, 15), (6, 17), (7, 0), (u32::MAX, 19)] {
            let bases = if slot == 5 { vec![base(1), base(2)] } else { Vec::new() };
            marks.push(slot, mark, &bases);
        }
        let found: Vec<u32> = (0..9).map(|slot| marks.at(slot)).collect();
        assert_eq!(found, [11, 13, 0, 0, 0, 15, 17, 0, 0]);
        assert_eq!((marks.at(u32::MAX), marks.at(u32::MAX - 1)), (19, 0));
        assert_eq!(marks.runs.len(), 3);
        assert!(marks.bases_of(5).eq([base(1), base(2)]));
        assert_eq!(marks.bases_of(6).count() + marks.bases_of(4).count(), 0);
        assert_eq!(Marks::default().at(0), 0);
    }
}
