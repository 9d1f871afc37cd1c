//! Which chunks the repository holds: the index, bound to the arenas it was made from.
//!
//! The index maps fingerprints to numbers; here a number is the *ordinal* of an arena in a list
//! kept beside the index (as its note), and a slot. At the start of every session the list is held
//! against the arenas that stand: new ones are read in, vanished ones forgotten, and rewritten ones
//! (told by another size, since a rewritten arena leaves something out) read anew. So the whole
//! cache may be lost, stale or torn: that costs reading summaries, never data.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_arena::{ARENAS_FOLDER, Arena, ArenaError, ArenaStore, BaseLocation};
use strongroom_backend::{Backend, ObjectInfo};
use strongroom_base::le::{LeReader, LeWrite};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Monitor};
use strongroom_catalog::Location;
use strongroom_index::{Index, IndexError};

use crate::error::EngineError;

/// An arena that the index was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Covered {
    id: ArenaId,
    object_bytes: u64,
    /// True where its generation is above zero: slots may be missing in it.
    rewritten: bool,
    /// True where chunks in it are deltas, of chunks in other arenas.
    has_deltas: bool,
    /// False once it vanished or was rewritten; its ordinal is not used again.
    standing: bool,
}

/// Deltas whose bases are gone, by ordinal and slot.
type Orphans = HashSet<(u32, u32)>;

/// Fingerprint to location.
pub struct ChunkIndex {
    index: Index,
    arenas: Vec<Covered>,
    ordinals: HashMap<ArenaId, u32>,
    /// As good as not there.
    orphans: Orphans,
    /// How many arenas there were at the last refresh: those from here on are this session's.
    own_from: u32,
    /// The cache could not be read or written somewhere: it is begun anew by the next session.
    broken: AtomicBool,
}

/// What bringing the index up to date amounted to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Arenas whose summaries were read.
    pub read: usize,
    /// Arenas that are gone.
    pub vanished: usize,
    /// Arenas whose summary cannot be read: nothing in them is reused until they are repaired.
    pub unreadable: usize,
}

impl ChunkIndex {
    /// Opens the index in a folder, or an empty one in memory; a damaged one is begun anew.
    pub fn open(folder: Option<&Path>) -> Result<Self, EngineError> {
        let Some(folder) = folder else { return Ok(Self::in_memory()) };
        let path = folder.join("index");
        // A cache that cannot be kept costs time, not the backup.
        let anew = || Index::reset(&path).unwrap_or_else(|_| Index::in_memory());
        let index = match Index::open(&path) {
            Err(IndexError::Damaged { .. }) => anew(),
            Err(IndexError::Io { .. }) => Index::in_memory(),
            other => other?,
        };
        match unpack_note(index.note()) {
            Some((arenas, orphans)) => Ok(Self::with(index, arenas, orphans)),
            None => {
                // Else it would hold the lock, and the new one could not be committed.
                drop(index);
                Ok(Self::with(anew(), Vec::new(), Orphans::new()))
            }
        }
    }

    /// An empty index in memory, for those who build it from summaries alone.
    pub fn in_memory() -> Self {
        Self::with(Index::in_memory(), Vec::new(), Orphans::new())
    }

    fn with(index: Index, arenas: Vec<Covered>, orphans: Orphans) -> Self {
        let standing = |(ordinal, covered): (usize, &Covered)| {
            // The list is as long as arenas were ever made: far below 2^32.
            covered.standing.then_some((covered.id, ordinal as u32))
        };
        let ordinals = arenas.iter().enumerate().filter_map(standing).collect();
        Self { index, arenas, ordinals, orphans, own_from: 0, broken: AtomicBool::new(false) }
    }

    /// Forgets everything, so that the next refresh reads every summary.
    pub fn clear(&mut self) -> Result<(), EngineError> {
        self.index.clear()?;
        self.arenas.clear();
        self.ordinals.clear();
        self.orphans.clear();
        Ok(())
    }

    /// Brings the index up to date with the arenas that stand.
    pub fn refresh(
        &mut self,
        backend: &dyn Backend,
        store: &ArenaStore,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Refreshed, EngineError> {
        let listed = backend.list(ARENAS_FOLDER)?;
        let vanished = self.drop_changed(&listed).unwrap_or_else(|error| {
            monitor.detail(&format!("the index is made anew: {error}"));
            self.begin_anew()
        });
        let mut refreshed = Refreshed { vanished, ..Refreshed::default() };
        let standing: HashSet<ArenaId> =
            listed.iter().filter_map(|info| info.name.file().parse().ok()).collect();
        for info in &listed {
            cancel.check()?;
            let Ok(id) = info.name.file().parse::<ArenaId>() else { continue };
            if self.ordinals.contains_key(&id) {
                continue;
            }
            match store.arena(id) {
                Ok(arena) => {
                    self.cover(&arena, info.bytes, &standing, store)?;
                    refreshed.read += 1;
                    // Read once and not needed again soon.
                    store.forget(id);
                }
                Err(ArenaError::Damaged { .. } | ArenaError::Missing { .. }) => {
                    monitor.detail(&format!("arena {id}: its summary cannot be read"));
                    refreshed.unreadable += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.own_from = ordinal_of(self.arenas.len());
        Ok(refreshed)
    }

    /// Forgets the arenas that are gone or changed; tells how many are gone.
    fn drop_changed(&mut self, listed: &[ObjectInfo]) -> Result<usize, IndexError> {
        let sizes: HashMap<ArenaId, u64> = listed
            .iter()
            .filter_map(|info| Some((info.name.file().parse().ok()?, info.bytes)))
            .collect();
        let (mut vanished, mut changed) = (0, false);
        for covered in self.arenas.iter_mut().filter(|covered| covered.standing) {
            let size = sizes.get(&covered.id);
            if size == Some(&covered.object_bytes) {
                continue;
            }
            vanished += usize::from(size.is_none());
            covered.standing = false;
            self.ordinals.remove(&covered.id);
            changed = true;
        }
        if changed {
            // What is a delta of something that is gone is gone too: each is looked at anew.
            for covered in self.arenas.iter_mut().filter(|covered| covered.has_deltas) {
                covered.standing = false;
                self.ordinals.remove(&covered.id);
            }
            let arenas = &self.arenas;
            self.orphans.retain(|(ordinal, _)| arenas[*ordinal as usize].standing);
            let arenas = &self.arenas;
            self.index.retain(|location| {
                let (ordinal, _) = unpack_location(location);
                arenas.get(ordinal as usize).is_some_and(|covered| covered.standing)
            })?;
        }
        Ok(vanished)
    }

    /// Forgets everything, in memory where the directory does not let it; no arena has vanished.
    fn begin_anew(&mut self) -> usize {
        if self.clear().is_err() {
            *self = Self::in_memory();
        }
        0
    }

    fn cover(
        &mut self,
        arena: &Arena,
        object_bytes: u64,
        standing: &HashSet<ArenaId>,
        store: &ArenaStore,
    ) -> Result<(), EngineError> {
        let ordinal = self.add(arena.id, object_bytes, arena.generation > 0);
        for (slot, entry) in arena.slots() {
            if entry.fingerprint == Fingerprint::ZERO {
                continue;
            }
            if entry.bases.is_empty() {
                self.keep(&entry.fingerprint, pack_location(ordinal, slot));
                continue;
            }
            self.arenas[ordinal as usize].has_deltas = true;
            if are_there(&entry.bases, standing, store)? {
                self.keep(&entry.fingerprint, pack_location(ordinal, slot));
            } else {
                self.orphans.insert((ordinal, slot));
            }
        }
        Ok(())
    }

    /// Inserts. A cache that can no longer be written is given up, and what comes stays in memory.
    fn keep(&mut self, fingerprint: &Fingerprint, location: strongroom_index::Location) {
        // After an error the record is in nevertheless.
        if self.index.insert(&fingerprint.0, location).is_err() {
            self.broken.store(true, Ordering::Relaxed);
            let index = std::mem::replace(&mut self.index, Index::in_memory());
            self.index = index.with_table_records_max(usize::MAX);
        }
    }

    fn add(&mut self, id: ArenaId, object_bytes: u64, rewritten: bool) -> u32 {
        let ordinal = ordinal_of(self.arenas.len());
        let (has_deltas, standing) = (false, true);
        self.arenas.push(Covered { id, object_bytes, rewritten, has_deltas, standing });
        self.ordinals.insert(id, ordinal);
        ordinal
    }

    /// Takes up an arena that this session begins to build.
    pub fn begin_arena(&mut self, id: ArenaId) {
        self.add(id, 0, false);
    }

    /// Notes the size of an arena that this session has written.
    pub fn finish_arena(&mut self, id: ArenaId, object_bytes: u64) {
        let ordinal = self.ordinals.get(&id).copied();
        let covered = ordinal.and_then(|ordinal| self.arenas.get_mut(ordinal as usize));
        covered.expect("an arena is begun before it is finished").object_bytes = object_bytes;
    }

    /// Notes where a chunk was put, and whether it is a delta.
    pub fn insert(&mut self, fingerprint: &Fingerprint, location: Location, is_delta: bool) {
        let ordinal = self.ordinals.get(&location.arena).copied();
        let ordinal = ordinal.expect("chunks are put into arenas that were begun");
        self.arenas[ordinal as usize].has_deltas |= is_delta;
        self.keep(fingerprint, pack_location(ordinal, location.slot));
    }

    /// Where a chunk is, as far as the index can be read: where it is damaged, nothing is known,
    /// and [`ChunkIndex::is_broken`] from then on.
    pub fn lookup(&self, fingerprint: &Fingerprint) -> Option<Location> {
        let found = self.index.lookup(&fingerprint.0).unwrap_or_else(|_| {
            self.broken.store(true, Ordering::Relaxed);
            None
        });
        let (ordinal, slot) = unpack_location(found?);
        let covered = self.arenas.get(ordinal as usize).filter(|covered| covered.standing)?;
        Some(Location { arena: covered.id, slot })
    }

    /// Where chunks stand beside the place that the index knows: two backups at once may both have
    /// stored a chunk. Reads every summary.
    pub fn further_copies(
        &self,
        backend: &dyn Backend,
        store: &ArenaStore,
    ) -> Result<HashMap<Fingerprint, Vec<Location>>, EngineError> {
        let mut copies: HashMap<Fingerprint, Vec<Location>> = HashMap::new();
        for info in backend.list(ARENAS_FOLDER)? {
            let Ok(id) = info.name.file().parse::<ArenaId>() else { continue };
            let arena = match store.arena(id) {
                Err(ArenaError::Damaged { .. } | ArenaError::Missing { .. }) => continue,
                other => other?,
            };
            for (slot, entry) in arena.slots() {
                let place = Location { arena: id, slot };
                if entry.fingerprint != Fingerprint::ZERO
                    && self.lookup(&entry.fingerprint) != Some(place)
                {
                    copies.entry(entry.fingerprint).or_default().push(place);
                }
            }
        }
        Ok(copies)
    }

    /// True once the cache could not be read or written: what was not found may be there after
    /// all.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// True where the arena stood before this session began to write.
    pub fn stood_before(&self, arena: ArenaId) -> bool {
        self.ordinals.get(&arena).is_some_and(|ordinal| *ordinal < self.own_from)
    }

    /// True where the arena stands, as far as was known at the last refresh.
    pub fn is_standing(&self, arena: ArenaId) -> bool {
        self.ordinals.contains_key(&arena)
    }

    /// True where a slot that was once filled is still there.
    pub fn is_present(&self, location: Location, store: &ArenaStore) -> Result<bool, EngineError> {
        let Some(ordinal) = self.ordinals.get(&location.arena) else { return Ok(false) };
        if self.orphans.contains(&(*ordinal, location.slot)) {
            return Ok(false);
        }
        if !self.arenas[*ordinal as usize].rewritten {
            return Ok(true);
        }
        let slot = store.arena(location.arena)?.slot(location.slot).cloned();
        Ok(slot.is_some_and(|slot| slot.fingerprint != Fingerprint::ZERO))
    }

    /// Commits what was inserted. A failure to write a cache is told and costs nothing else.
    pub fn flush(&mut self, monitor: &dyn Monitor) {
        if self.is_broken() {
            monitor.detail("the index in the cache is damaged and will be made anew");
            self.begin_anew();
            return;
        }
        let note = pack_note(&self.arenas, &self.orphans);
        if let Err(error) = self.index.flush(&note) {
            monitor.detail(&format!("the index could not be kept in the cache: {error}"));
        }
    }

    /// What the index holds and has done since it was opened.
    pub fn stats(&self) -> strongroom_index::Stats {
        self.index.stats()
    }
}

fn pack_location(ordinal: u32, slot: u32) -> strongroom_index::Location {
    strongroom_index::Location(u64::from(ordinal) << 32 | u64::from(slot))
}

fn unpack_location(location: strongroom_index::Location) -> (u32, u32) {
    ((location.0 >> 32) as u32, location.0 as u32)
}

fn ordinal_of(place: usize) -> u32 {
    // The list is as long as arenas were ever made.
    u32::try_from(place).expect("far fewer than 2^32 arenas")
}

/// True where every base of a delta stands, in its slot.
fn are_there(
    bases: &[BaseLocation],
    standing: &HashSet<ArenaId>,
    store: &ArenaStore,
) -> Result<bool, EngineError> {
    for base in bases {
        if !standing.contains(&base.arena) {
            return Ok(false);
        }
        let is_there = match store.arena(base.arena) {
            Ok(arena) => arena
                .slot(base.slot)
                .is_some_and(|slot| slot.fingerprint != Fingerprint::ZERO && slot.bases.is_empty()),
            Err(ArenaError::Damaged { .. } | ArenaError::Missing { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `version | arenas, per arena: id (16), bytes (8), flags (1) | orphans: ordinal (4), slot (4)`.
fn pack_note(arenas: &[Covered], orphans: &Orphans) -> Vec<u8> {
    let mut note = Vec::with_capacity(5 + arenas.len() * 25 + orphans.len() * 8);
    note.put_u8(1);
    note.put_u32(ordinal_of(arenas.len()));
    for covered in arenas {
        note.put(&covered.id.0);
        note.put_u64(covered.object_bytes);
        let flags = [covered.rewritten, covered.standing, covered.has_deltas];
        note.put_u8((0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum());
    }
    for (ordinal, slot) in orphans {
        note.put_u32(*ordinal);
        note.put_u32(*slot);
    }
    note
}

fn unpack_note(note: &[u8]) -> Option<(Vec<Covered>, Orphans)> {
    if note.is_empty() {
        return Some((Vec::new(), Orphans::new()));
    }
    let mut fields = LeReader::new(note);
    if fields.u8().ok()? != 1 {
        return None;
    }
    let count = fields.u32().ok()? as usize;
    let mut arenas = Vec::with_capacity(count.min(fields.remaining() / 25));
    for _ in 0..count {
        let id = ArenaId(fields.array().ok()?);
        let object_bytes = fields.u64().ok()?;
        let flags = fields.u8().ok()?;
        let [rewritten, standing, has_deltas] = [0, 1, 2].map(|bit| flags >> bit & 1 != 0);
        arenas.push(Covered { id, object_bytes, rewritten, has_deltas, standing });
    }
    let mut orphans = Orphans::new();
    while fields.remaining() > 0 {
        let (ordinal, slot) = (fields.u32().ok()?, fields.u32().ok()?);
        if ordinal as usize >= arenas.len() {
            return None;
        }
        orphans.insert((ordinal, slot));
    }
    Some((arenas, orphans))
}
