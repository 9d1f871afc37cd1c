//! Which chunks the repository holds: the index, connected with the arenas from which it was made.
//!
//! The index maps fingerprints to numbers; here a number is the *ordinal* of an arena in a list
//! kept beside the index (as its note), and a slot. At the start of every session the list is
//! compared with the arenas that exist: new ones are read in, vanished ones are dropped, and
//! rewritten ones (which exist in another generation, or were cut short) are read again. So the
//! whole cache may be lost, stale or torn: that costs reading summaries, never data.
//!
//! A collection costs what it changed. Records of arenas that are gone stay until they are a quarter
//! of all. Deltas may have lost a base: those of an arena are checked when one of them is first
//! relied on, and not before.

mod bases;
mod changed;
mod further;
mod presence;
mod withdrawn;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_arena::{Arena, ArenaError, ArenaName, ArenaStore, ListedArena, ListedArenas};
use strongroom_backend::{Backend, BackendError, Operation, Refusal, Withheld, each_read_ahead};
use strongroom_base::regimes::{ARE_COUNTED, Regime, reached_if};
use strongroom_base::units::counted;
use strongroom_base::{
    ArenaId, Cancel, Fingerprint, Location, Monitor, Problem, Severity, SizeLimits, SnapshotId,
};
use strongroom_index::{Index, IndexError};

use super::arenas::{Arenas, Orphans, SessionTag};
use super::location::{key_of, pack_location};
use crate::collections::Collections;
use crate::error::RepositoryError;
pub use further::FurtherPlaces;
use withdrawn::Left;
pub use withdrawn::LostPlaces;

/// Half of what the index would keep by default: a session has 150 MiB for everything.
const HEADS_MAX: usize = strongroom_index::HEADS_MAX / 2;

/// Fingerprint to location.
pub struct ChunkIndex {
    index: Index,
    arenas: Arenas,
    /// Treated as absent: deltas whose bases are gone, and slots that were withdrawn.
    orphans: Orphans,
    /// Arenas whose deltas were checked in this session, by ordinal, and which of their slots lack a
    /// base; `None` if the summary cannot be read.
    // Filled by questions that change nothing else; one thread asks them.
    checked: RefCell<BTreeMap<u32, Option<HashSet<u32>>>>,
    /// What a writer may not rely on.
    collections: Arc<Collections>,
    /// How many arenas there were at the last refresh: those from here on are this session's.
    own_from: u32,
    /// A part of the cache could not be read or written: the next session makes it again.
    broken: AtomicBool,
    /// Filled like `checked`.
    withheld: RefCell<WithheldArenas>,
    /// The folder of the cache; `None` when all is in memory.
    folder: Option<PathBuf>,
    /// What other handles found to be lost and could not keep in the index.
    left: Left,
}

/// The result of bringing the index up to date.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Arenas whose summaries were read.
    pub read: usize,
    /// Arenas that are gone.
    pub vanished: usize,
    /// Arenas of other domains, newly seen, that the owner has not vouched for: nothing in them is
    /// reused.
    pub untrusted: usize,
    /// Arenas whose summary cannot be read: nothing in them is reused until they are repaired.
    pub unreadable: usize,
    /// Arenas whose summary, or that of a base, the place withholds: nothing in them is reused until
    /// it can be read.
    pub withheld: usize,
}

/// Arenas that this index could not ask for their chunks, because the place withholds them.
#[derive(Debug, Default)]
struct WithheldArenas {
    /// Why each is withheld, and what the place said.
    found: BTreeMap<ArenaId, (Withheld, String)>,
    /// How many of these were reported.
    said: usize,
}

impl ChunkIndex {
    /// Opens the index in a folder, or an empty one in memory; a damaged one is built again.
    pub fn open(folder: Option<&Path>) -> Result<Self, RepositoryError> {
        let Some(folder) = folder else { return Ok(Self::in_memory()) };
        let opened = Self::open_at(&folder.join("index"))?;
        Ok(Self { folder: Some(folder.to_owned()), ..opened })
    }

    fn open_at(path: &Path) -> Result<Self, RepositoryError> {
        // A cache that cannot be kept costs time, not the backup.
        let empty = || Index::reset(path).unwrap_or_else(|_| Index::in_memory());
        let mut index = match Index::open(path) {
            Err(IndexError::Damaged { .. }) => empty(),
            Err(IndexError::Io { .. }) => Index::in_memory(),
            other => other?,
        };
        match Arenas::from_note(index.take_note()) {
            Some((arenas, orphans)) => Ok(Self::with(index, arenas, orphans)),
            None => {
                // Otherwise it would hold the lock, and the new one could not be committed.
                drop(index);
                Ok(Self::with(empty(), Arenas::default(), Orphans::new()))
            }
        }
    }

    /// An empty index in memory, for callers that build it from summaries alone.
    pub fn in_memory() -> Self {
        Self::with(Index::in_memory(), Arenas::default(), Orphans::new())
    }

    fn with(index: Index, arenas: Arenas, orphans: Orphans) -> Self {
        let index = index.with_heads_max(HEADS_MAX);
        let (checked, collections) = (RefCell::default(), Arc::default());
        let (broken, withheld) = (AtomicBool::new(false), RefCell::default());
        let (own_from, folder, left) = (0, None, Left::default());
        Self {
            index,
            arenas,
            orphans,
            checked,
            collections,
            own_from,
            broken,
            withheld,
            folder,
            left,
        }
    }

    /// The same, with the limits of its repository.
    #[must_use]
    pub fn within(self, limits: &SizeLimits) -> Self {
        Self { index: self.index.with_table_records_max(limits.index_records_max), ..self }
    }

    /// Relies on nothing that these collections remove or condemn, from the next refresh on.
    pub fn respect(&mut self, collections: Arc<Collections>) {
        self.collections = collections;
    }

    /// Whether a collection removes or condemns a slot.
    pub fn excludes(&self, location: Location) -> bool {
        self.collections.excludes(location)
    }

    /// Drops everything, so that the next refresh reads every summary.
    pub fn clear(&mut self) -> Result<(), RepositoryError> {
        self.index.clear()?;
        self.arenas = Arenas::default();
        self.orphans.clear();
        self.checked.get_mut().clear();
        Ok(())
    }

    /// Brings the index up to date with the arenas that exist.
    pub fn refresh(
        &mut self,
        backend: &dyn Backend,
        store: &ArenaStore,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Refreshed, RepositoryError> {
        let listed = ListedArenas::list(backend)?;
        self.refresh_from(&listed, backend, store, store, monitor, cancel)
    }

    /// The same, after they were listed. `store` reads what is new; a `reader` that reads later what the
    /// index names learns too in which generations the arenas exist.
    pub(crate) fn refresh_from(
        &mut self,
        listed: &ListedArenas,
        backend: &dyn Backend,
        store: &ArenaStore,
        reader: &ArenaStore,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Refreshed, RepositoryError> {
        self.left = Left::read(self.folder.as_deref(), monitor);
        let unreadable = std::mem::take(&mut self.left.lost.arenas);
        // They are asked again below.
        let carried = self.withdraw_arenas(&unreadable);
        self.left.lost.slots.extend(carried);
        let vanished = self.drop_changed(listed, store).unwrap_or_else(|error| {
            monitor.detail(&format!("the index is built again: {error}"));
            self.begin_again(monitor)
        });
        let mut refreshed = Refreshed { vanished, ..Refreshed::default() };
        let mut wanted = Vec::new();
        for newest in listed.newest() {
            let id = newest.name.id;
            if self.collections.is_dead(id) {
                continue;
            }
            let genuine = match store.sort_generations(listed.generations(id)) {
                Err(error) if self.notes_withheld(id, &error) => Vec::new(),
                other => other?.genuine,
            };
            let name = genuine.last().unwrap_or(&newest).name;
            store.learn(name);
            reader.learn(name);
            // It is not asked twice in a session: that would be a request for each look at the arenas.
            if self.withheld.borrow().found.contains_key(&id) {
                refreshed.withheld += 1;
                continue;
            }
            if !self.exists(id) || (!self.is_trusted(id) && store.is_vouched(id)) {
                wanted.push(newest);
            }
        }
        let lost: Vec<Location> = std::mem::take(&mut self.left.lost.slots);
        let left_out: HashSet<Location> = lost.iter().copied().collect();
        let in_flight = backend.promises().in_flight;
        let open = |newest: &ListedArena| {
            store.trusted_arena(newest.name.id)?;
            whole_arena(newest.name.id, listed, store)
        };
        let covered = each_read_ahead(
            in_flight,
            &wanted,
            open,
            |newest, opened| -> Result<(), RepositoryError> {
                cancel.check()?;
                let id = newest.name.id;
                match opened {
                    Ok((arena, object_bytes)) if arena.trusted => {
                        match self.cover(&arena, object_bytes, &left_out, listed, store)? {
                            true => refreshed.read += 1,
                            false => refreshed.withheld += 1,
                        }
                        // Read once and not needed again soon.
                        store.forget(id);
                    }
                    Ok(_) | Err(ArenaError::Foreign { .. }) => {
                        self.forget_untrusted(id);
                        self.arenas.push_untrusted(*newest);
                        refreshed.untrusted += 1;
                        store.forget(id);
                    }
                    Err(error) if error.is_unreadable() => {
                        monitor.detail(&format!("its summary cannot be read: {error}"));
                        refreshed.unreadable += 1;
                    }
                    Err(error) if self.notes_withheld(id, &error) => refreshed.withheld += 1,
                    Err(error) => return Err(error.into()),
                }
                Ok(())
            },
        );
        self.withdraw(&lost);
        self.leave_uncovered(lost, listed, monitor);
        covered?;
        self.own_from = self.arenas.len();
        reached_if(ARE_COUNTED && self.index.stats().segments > 1, Regime::IndexOfSegments);
        Ok(refreshed)
    }

    /// Adds the chunks of an arena, except for those in places that are left out (the caller withdraws them,
    /// so that deltas that rest on them are checked again); returns false, and adds
    /// nothing, if the place withholds one with bases of its deltas: these would be remembered as gone.
    fn cover(
        &mut self,
        arena: &Arena,
        object_bytes: u64,
        left_out: &HashSet<Location>,
        listed: &ListedArenas,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        let mut usable = Vec::new();
        for (slot, entry) in arena.slots() {
            if entry.fingerprint != Fingerprint::ZERO {
                match self.are_there(entry.bases, listed, store) {
                    Err(RepositoryError::Arena(error)) if self.notes_withheld(arena.id, &error) => {
                        return Ok(false);
                    }
                    is_usable => {
                        let is_left_out = left_out.contains(&Location { arena: arena.id, slot });
                        usable.push((slot, is_usable? && !is_left_out));
                    }
                }
            }
        }
        self.forget_untrusted(arena.id);
        let ordinal = self.arenas.push(ListedArena { name: arena.name(), object_bytes });
        self.note_session(ordinal, arena.origin.session);
        let mut chunks = 0;
        for (slot, is_usable) in usable {
            let entry = arena.slot(slot).expect("it was just listed");
            if is_usable {
                self.keep(&entry.fingerprint, ordinal, slot);
                chunks += 1;
            } else if !left_out.contains(&Location { arena: arena.id, slot }) {
                self.orphans.insert((ordinal, slot));
            }
        }
        let has_deltas = arena.summary.slots.base_count() > 0;
        self.arenas.update(ordinal, |covered| {
            covered.chunks = chunks;
            covered.has_deltas = has_deltas;
        });
        Ok(true)
    }

    /// Inserts. A cache that can no longer be written is given up, and later insertions stay in
    /// memory.
    fn keep(&mut self, fingerprint: &Fingerprint, ordinal: u32, slot: u32) {
        let key = key_of(fingerprint);
        let Some(location) = pack_location(&key, ordinal, slot) else { return };
        // The record was inserted in spite of the error.
        if self.index.insert(&key, location).is_err() {
            self.broken.store(true, Ordering::Relaxed);
            let index = std::mem::replace(&mut self.index, Index::in_memory());
            self.index = index.with_table_records_max(usize::MAX);
        }
    }

    /// Adds an arena that this session begins to build.
    pub fn begin_arena(&mut self, id: ArenaId, session: SnapshotId) {
        let listed = ListedArena { name: ArenaName::first(id), object_bytes: 0 };
        let ordinal = self.arenas.push(listed);
        self.note_session(ordinal, session);
    }

    fn note_session(&mut self, ordinal: u32, session: SnapshotId) {
        self.arenas.update(ordinal, |covered| covered.session = SessionTag::of(session));
    }

    /// The session that wrote an arena which exists.
    pub fn session_of(&self, arena: ArenaId) -> Option<SessionTag> {
        let ordinal = self.arenas.find(arena)?;
        self.arenas.existing(ordinal).map(|covered| covered.session)
    }

    /// True unless the arena is one that this session has not written yet.
    pub fn is_written(&self, arena: ArenaId) -> bool {
        let ordinal = self.arenas.find(arena).filter(|ordinal| *ordinal >= self.own_from);
        let own = ordinal.and_then(|ordinal| self.arenas.existing(ordinal));
        own.is_none_or(|own| own.object_bytes > 0)
    }

    /// Notes the size of an arena that this session has written.
    pub fn finish_arena(&mut self, id: ArenaId, object_bytes: u64) {
        let ordinal = self.arenas.find(id).expect("an arena is begun before it is finished");
        self.arenas.update(ordinal, |covered| covered.object_bytes = object_bytes);
    }

    /// Notes where a chunk was put, and whether it is a delta.
    pub fn insert(&mut self, fingerprint: &Fingerprint, location: Location, is_delta: bool) {
        let ordinal = self.arenas.find(location.arena);
        let ordinal = ordinal.expect("chunks are put into arenas that were begun");
        self.arenas.update(ordinal, |covered| {
            covered.chunks += 1;
            covered.has_deltas |= is_delta;
        });
        self.keep(fingerprint, ordinal, location.slot);
    }

    /// True once the cache could not be read or written: a chunk that was not found may exist.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// True if the arena existed before this session began to write.
    pub fn existed_before(&self, arena: ArenaId) -> bool {
        self.arenas.find(arena).is_some_and(|ordinal| ordinal < self.own_from)
    }

    /// True if the arena was written by the own domain, also in this session, or the owner has
    /// vouched for it: it holds what it claims to hold.
    pub fn is_trusted(&self, arena: ArenaId) -> bool {
        let ordinal = self.arenas.find(arena);
        ordinal.and_then(|ordinal| self.arenas.existing(ordinal)).is_some_and(|c| c.trusted)
    }

    /// Drops an arena that was not trusted, so that it can be added again.
    fn forget_untrusted(&mut self, id: ArenaId) {
        if let Some(ordinal) = self.arenas.find(id) {
            self.arenas.update(ordinal, |covered| covered.exists = false);
        }
    }

    /// True if the arena existed at the last refresh.
    pub fn exists(&self, arena: ArenaId) -> bool {
        self.arenas.find(arena).is_some()
    }

    /// Whether an error says that the place withholds an arena, which is noted then.
    fn notes_withheld(&self, id: ArenaId, error: &ArenaError) -> bool {
        let Some(why) = error.withheld() else { return false };
        let mut withheld = self.withheld.borrow_mut();
        withheld.found.entry(id).or_insert_with(|| (why, error.to_string()));
        true
    }

    /// The error of an arena that could not be asked for its chunks, because the place withholds it.
    pub fn withheld_arena(&self) -> Option<RepositoryError> {
        let withheld = self.withheld.borrow();
        let (id, (why, answer)) = withheld.found.first_key_value()?;
        let refusal = match why {
            Withheld::Archived => Refusal::Archived,
            Withheld::Forbidden => Refusal::Right,
        };
        let what = format!("arena {id}");
        let (operation, answer) = (Operation::Read, answer.clone());
        Some(BackendError::Refused { operation, what, refusal, answer }.into())
    }

    /// Says of how many arenas nothing is reused, because the place withholds them: once of each.
    pub fn say_withheld(&self, monitor: &dyn Monitor) {
        let mut withheld = self.withheld.borrow_mut();
        let new = withheld.found.len() - withheld.said;
        let Some((why, answer)) = withheld.found.values().next().filter(|_| new > 0) else {
            return;
        };
        let arenas = counted(new as u64, "arena is", "arenas are");
        let message = format!(
            "{arenas} {why}: what is in them cannot be looked up, and is stored again ({answer})"
        );
        monitor.problem(Problem { severity: Severity::Warning, path: None, message: &message });
        withheld.said = withheld.found.len();
    }

    /// Commits what was inserted. A failure to write a cache is reported and costs nothing else. Returns
    /// whether it is in the cache now: not if another handle is the writer.
    pub fn flush(&mut self, monitor: &dyn Monitor) -> bool {
        if self.is_broken() {
            monitor.detail("the index in the cache is damaged and will be built again");
            self.begin_again(monitor);
            return false;
        }
        self.note_checked();
        let index = &mut self.index;
        let flushed = self.arenas.with_note(&self.orphans, |note| index.flush(note));
        if let Err(error) = &flushed {
            monitor.detail(&format!("the index could not be kept in the cache: {error}"));
        }
        let is_kept = flushed.is_ok() && self.index.is_writer();
        if is_kept {
            self.left.remove();
        }
        is_kept
    }

    /// What the index holds and has done since it was opened.
    pub fn stats(&self) -> strongroom_index::Stats {
        self.index.stats()
    }
}

/// An arena all of whose blocks exist or can be computed again, and the present length of its
/// object. A summary is in front of the blocks: even if it opens, the arena may have been cut
/// short.
pub fn whole_arena(
    id: ArenaId,
    listed: &ListedArenas,
    store: &ArenaStore,
) -> Result<(Arc<Arena>, u64), ArenaError> {
    let arena = store.arena(id)?;
    let found = listed.generations(id).iter().find(|found| found.name == arena.name());
    // It may have been rewritten since the listing.
    let object_bytes = match found {
        Some(found) => found.object_bytes,
        None => store.object_bytes(arena.name())?,
    };
    if object_bytes < arena.object_bytes && !store.can_be_healed(arena.name())? {
        store.forget(id);
        return Err(ArenaError::Damaged { arena: id, what: "it is too short".to_owned() });
    }
    Ok((arena, object_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(byte: u8) -> Fingerprint {
        Fingerprint([byte; 32])
    }

    /// Engine 7: what memory, a disk or a mistake made of a record is not believed.
    #[test]
    fn engine_07_the_record_of_another_chunk_is_no_hit() {
        let mut index = ChunkIndex::in_memory();
        let arena = ArenaId([7; 16]);
        index.begin_arena(arena, SnapshotId([9; 16]));
        index.insert(&fingerprint(1), Location { arena, slot: 4 }, false);
        let other = pack_location(&fingerprint(1).0, 0, 4).unwrap();
        index.index.insert(&fingerprint(2).0, other).unwrap();
        assert_eq!(index.lookup(&fingerprint(1)), Some(Location { arena, slot: 4 }));
        assert!(!index.is_broken());
        assert_eq!(index.lookup(&fingerprint(2)), None);
        assert!(index.is_broken(), "the next session makes it again");
    }
}
