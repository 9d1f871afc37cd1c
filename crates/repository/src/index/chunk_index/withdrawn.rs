//! What was found to be lost, until the index in the cache has it.
//!
//! A verification withdraws what it found from the index, so that the next backup stores it again. The
//! handle that another process or another part of this one has open may be the writer of the index
//! meanwhile, and then nothing of that would be kept. So it is written to a file beside the index first.
//! Every handle leaves out what such a file names; the writer removes it once it has committed that.
//!
//! A file is called by the hash of its bytes: what is damaged is recognised, and the same is there once.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use strongroom_arena::ListedArenas;
use strongroom_base::le::{LeReader, LeWrite};
use strongroom_base::{ArenaId, Location, Monitor, Problem, Severity};

use super::ChunkIndex;
use crate::cache;

/// What the name of each file begins with; its hash follows.
const PREFIX: &str = "withdrawn-";
/// What a file begins with.
const MAGIC: [u8; 8] = *b"SRWITHDR";
/// Bytes of a place: the arena and the slot.
const PLACE_BYTES: usize = ArenaId::BYTES + 4;
/// In the place of a slot: nothing of the arena can be read.
const WHOLE_ARENA: u32 = u32::MAX;
/// A longer file is none of ours: this one has fifty million places.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// What cannot be read, though summaries name it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LostPlaces {
    /// Slots.
    pub slots: Vec<Location>,
    /// Arenas of which nothing can be read, so that no summary says which slots they have.
    pub arenas: Vec<ArenaId>,
}

impl LostPlaces {
    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.arenas.is_empty()
    }

    /// Each place once, and the same in the same order.
    fn sort(&mut self) {
        self.slots.sort_unstable();
        self.slots.dedup();
        self.arenas.sort_unstable();
        self.arenas.dedup();
    }

    fn pack(&self) -> Vec<u8> {
        let arenas = self.arenas.iter().map(|id| Location { arena: *id, slot: WHOLE_ARENA });
        let mut bytes = MAGIC.to_vec();
        for place in self.slots.iter().copied().chain(arenas) {
            bytes.put(&place.arena.0);
            bytes.put_u32(place.slot);
        }
        bytes
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let (places, []) = bytes.strip_prefix(&MAGIC)?.as_chunks::<PLACE_BYTES>() else {
            return None;
        };
        let mut lost = Self::default();
        for place in places {
            let mut fields = LeReader::new(place);
            let (arena, slot) = (ArenaId(fields.array().ok()?), fields.u32().ok()?);
            match slot {
                WHOLE_ARENA => lost.arenas.push(arena),
                slot => lost.slots.push(Location { arena, slot }),
            }
        }
        Some(lost)
    }
}

/// The files that a handle has found, and what they say.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) lost: LostPlaces,
    files: Vec<PathBuf>,
}

impl Left {
    /// Reads the files in a folder. One that is damaged is reported: what it said is not known.
    pub(super) fn read(folder: Option<&Path>, monitor: &dyn Monitor) -> Self {
        let mut left = Self::default();
        let Some(Ok(entries)) = folder.map(fs::read_dir) else { return left };
        let mut files: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| hash_in_name(path).is_some());
        files.sort_unstable();
        for path in files {
            let bytes = match cache::read_file(&path, FILE_BYTES_MAX) {
                Ok(bytes) => bytes.unwrap_or_default(),
                Err(error) => {
                    monitor.detail(&format!("{}: {error}", path.display()));
                    Vec::new()
                }
            };
            // Another process has taken it over since.
            if !path.exists() {
                continue;
            }
            let is_whole = hash_in_name(&path).is_some_and(|hash| hash == hash_of(&bytes));
            match LostPlaces::unpack(&bytes).filter(|_| is_whole) {
                Some(lost) => {
                    left.lost.slots.extend(lost.slots);
                    left.lost.arenas.extend(lost.arenas);
                }
                None => monitor.problem(Problem {
                    severity: Severity::Warning,
                    path: Some(&path),
                    message: "what a verification found to be lost cannot be read here, so a backup may \
                              rely on it: run `strongroom verify`, then back up again",
                }),
            }
            left.files.push(path);
        }
        left.lost.sort();
        left
    }

    /// Removes the files, once what they say is in the index for good.
    pub(super) fn remove(&mut self) {
        for path in self.files.drain(..) {
            // One that stays is taken over once more.
            let _ = fs::remove_file(path);
        }
    }
}

impl ChunkIndex {
    /// Leaves out what was found to be lost, now and in every later session: says so in a file, and then in
    /// the index if this handle is its writer. Returns false if neither could be written.
    pub fn withdraw_for_good(&mut self, lost: &LostPlaces, monitor: &dyn Monitor) -> bool {
        self.withdraw(&lost.slots);
        let mut later = self.withdraw_arenas(&lost.arenas);
        later.extend(lost.slots.iter().filter(|place| !self.exists(place.arena)));
        let file = self.folder.as_deref().map(|folder| leave(folder, lost));
        let is_left = match file {
            Some(Ok(path)) => {
                self.left.files.extend(path);
                true
            }
            Some(Err(error)) => {
                monitor.detail(&format!("what is lost cannot be noted in the cache: {error}"));
                false
            }
            None => true,
        };
        self.leave_for_later(later, monitor);
        self.flush(monitor) || is_left
    }

    /// Leaves for later sessions what is lost in arenas that are listed and that the index does not have yet,
    /// because they could not be read.
    pub(super) fn leave_uncovered(
        &mut self,
        mut lost: Vec<Location>,
        listed: &ListedArenas,
        monitor: &dyn Monitor,
    ) {
        lost.retain(|place| {
            !self.exists(place.arena) && !listed.generations(place.arena).is_empty()
        });
        self.leave_for_later(lost, monitor);
    }

    /// Leaves places for the sessions after this one: the index does not have them, even once it is committed.
    pub(super) fn leave_for_later(&mut self, lost: Vec<Location>, monitor: &dyn Monitor) {
        let mut lost = LostPlaces { slots: lost, arenas: Vec::new() };
        lost.sort();
        match self.folder.as_deref().map(|folder| leave(folder, &lost)) {
            // The same file may be one of those that this session takes over.
            Some(Ok(Some(path))) => self.left.files.retain(|taken| *taken != path),
            Some(Err(error)) => {
                monitor.detail(&format!("what is lost cannot be noted in the cache: {error}"));
            }
            Some(Ok(None)) | None => {}
        }
    }

    /// What is left out and would be forgotten with the index.
    pub(super) fn left_out(&self) -> Vec<Location> {
        let existing = self.orphans.iter().filter_map(|(ordinal, slot)| {
            let arena = self.arenas.existing(*ordinal)?.id;
            Some(Location { arena, slot: *slot })
        });
        existing.collect()
    }

    /// What is left out of an arena that the index has, and would be forgotten with it.
    pub(super) fn left_out_of(&self, ordinal: u32, id: ArenaId) -> Vec<Location> {
        let slots = self.orphans.iter().filter(|(of, _)| *of == ordinal);
        slots.map(|(_, slot)| Location { arena: id, slot: *slot }).collect()
    }
}

/// Writes a file of what is lost, unless nothing is.
pub(super) fn leave(folder: &Path, lost: &LostPlaces) -> io::Result<Option<PathBuf>> {
    if lost.is_empty() {
        return Ok(None);
    }
    let bytes = lost.pack();
    let hash = hash_of(&bytes);
    let (name, new_name) = (format!("{PREFIX}{hash}"), format!("new-{PREFIX}{hash}"));
    fs::create_dir_all(folder)?;
    match cache::write_file(folder, &name, &new_name, &bytes) {
        // Another process has just written the same.
        Err(error) if error.kind() == ErrorKind::NotFound && folder.join(&name).exists() => {}
        other => other?,
    }
    Ok(Some(folder.join(name)))
}

fn hash_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

fn hash_in_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)
}
