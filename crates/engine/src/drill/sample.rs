//! Which entries of a snapshot a drill restores.
//!
//! All paths lie on a circle of 2^64 places, each where a keyed hash of it puts it. A sample is a
//! stretch of the circle: it begins where the last one ended, and is as long as is asked for. So it
//! looks random, has entries of every kind, needs no list of what was drilled, and after one turn
//! everything was drilled, for samples of any size and for any snapshots of the
//! same tree they were taken from.

use std::collections::{BinaryHeap, HashSet};
use std::path::{Path, PathBuf};

use strongroom_base::Cancel;
use strongroom_catalog::{Entry, Recipe, RecipeReader};
use strongroom_repository::{
    ChunkReader, Repository, RepositoryError, SnapshotEvent, SnapshotWalk, find_path,
};

use super::{DrillAmount, DrillFinding, FindingKind, as_path};
use crate::error::EngineError;

/// At most this many entries are in one sample: each takes some 200 bytes of memory.
pub const ENTRIES_MAX: usize = 300_000;

/// What an entry takes on a disk at least.
pub const ENTRY_BYTES: u64 = 4096;

/// A file that is larger may consist of holes: its recipe is read.
const LARGE_BYTES: u64 = 64 << 20;

/// At most this many chunks and holes of a file are looked at: a recipe of a few nodes can have more
/// than can ever be counted.
const PARTS_MAX: u64 = 1 << 22;

const PLACES: &str = "strongroom v0 drill sample";

/// What is wanted.
pub struct Wanted<'w> {
    /// The part of the snapshot that samples are taken from.
    pub path: &'w [u8],
    pub amount: DrillAmount,
    /// Where on the circle the sample begins.
    pub start: u64,
    /// A file that needs more than this is passed over.
    pub free: u64,
}

/// A sample, and what was seen when it was taken.
#[derive(Default)]
pub struct Sample {
    /// The paths of its entries.
    pub chosen: Vec<PathBuf>,
    /// How many of these are no directories, and bytes of their content.
    pub chosen_files: u64,
    pub chosen_bytes: u64,
    /// Where the next one begins.
    pub end: u64,
    /// Bytes that it takes on a disk.
    pub disk_bytes: u64,
    /// Entries of the part of the snapshot, and bytes of their content.
    pub entries: u64,
    pub bytes: u64,
    /// Files for which there is no room, and directories of whose names some are lost.
    pub findings: Vec<DrillFinding>,
}

/// An entry that may be in the sample; the greatest is the farthest from its start.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    distance: u64,
    path: Vec<u8>,
    is_directory: bool,
    bytes: u64,
    disk_bytes: u64,
    has_room: bool,
}

/// Takes a sample of a snapshot.
pub fn take_sample(
    repository: &Repository,
    snapshot: &strongroom_catalog::Snapshot,
    wanted: &Wanted<'_>,
    reader: &ChunkReader,
    cancel: &Cancel,
) -> Result<Sample, EngineError> {
    let key = blake3::derive_key(PLACES, &repository.config.id.0);
    let mut stretch = Stretch::new(wanted.amount);
    let mut sample = Sample::default();
    // The file with content that is nearest to the start.
    let mut nearest: Option<Candidate> = None;
    let found = find_path(snapshot, wanted.path, reader)?;
    let mut walk = SnapshotWalk::new(&found, reader, cancel);
    while let Some(event) = walk.next()? {
        let (path, entry) = match event {
            SnapshotEvent::Leaf { path, entry } => (path, entry),
            SnapshotEvent::Enter(directory) => match directory.entry {
                Some(entry) => (directory.path, entry),
                None => continue,
            },
            SnapshotEvent::Leave { .. } => continue,
            SnapshotEvent::Lost { path, error } => {
                let kind = FindingKind::NamesLost { why: error.to_string() };
                sample.findings.push(DrillFinding::new(path, kind));
                continue;
            }
        };
        let bytes = entry.content().map_or(0, Recipe::stream_bytes);
        sample.entries += 1;
        sample.bytes = sample.bytes.saturating_add(bytes);
        let distance = place_of(&key, path).wrapping_sub(wanted.start);
        let is_nearest =
            bytes > 0 && nearest.as_ref().is_none_or(|known: &Candidate| distance < known.distance);
        if !stretch.reaches(distance) && !is_nearest {
            continue;
        }
        let stored = stored_bytes(entry, wanted, reader, cancel)?;
        let candidate = || Candidate {
            distance,
            path: path.to_vec(),
            is_directory: entry.is_directory(),
            bytes,
            disk_bytes: stored.saturating_add(ENTRY_BYTES),
            has_room: stored <= wanted.free,
        };
        if is_nearest {
            nearest = Some(candidate());
        }
        if stretch.reaches(distance) {
            stretch.add(candidate());
        }
    }
    let length = stretch.length();
    sample.end = length.map_or(wanted.start, |length| wanted.start.wrapping_add(length));
    // Empty files alone prove little; where the next sample begins is the same without this one.
    if stretch.taken.iter().all(|candidate| candidate.bytes == 0) {
        stretch.taken.extend(nearest);
    }
    for candidate in stretch.taken {
        if !candidate.has_room {
            let kind = FindingKind::NoRoom { bytes: candidate.disk_bytes };
            sample.findings.push(DrillFinding::new(&candidate.path, kind));
            continue;
        }
        sample.disk_bytes = sample.disk_bytes.saturating_add(candidate.disk_bytes);
        sample.chosen_files += u64::from(!candidate.is_directory);
        sample.chosen_bytes = sample.chosen_bytes.saturating_add(candidate.bytes);
        sample.chosen.push(as_path(&candidate.path));
    }
    let on_the_way: HashSet<&Path> =
        sample.chosen.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    let on_the_way = on_the_way.len() as u64 * ENTRY_BYTES;
    sample.disk_bytes = sample.disk_bytes.saturating_add(on_the_way);
    Ok(sample)
}

/// Where a path lies on the circle.
fn place_of(key: &[u8; 32], path: &[u8]) -> u64 {
    let hash = blake3::keyed_hash(key, path);
    let mut place = [0; 8];
    place.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(place)
}

/// Bytes of a file without its holes, if it matters: only of a large one its recipe is read. Of what
/// is behind the parts that are looked at, all counts.
fn stored_bytes(
    entry: &Entry,
    wanted: &Wanted<'_>,
    reader: &ChunkReader,
    cancel: &Cancel,
) -> Result<u64, EngineError> {
    let Some(content) = entry.content() else { return Ok(0) };
    let all = content.stream_bytes();
    let budget = match wanted.amount {
        DrillAmount::Bytes(bytes) => bytes,
        DrillAmount::Files(_) | DrillAmount::Percent(_) => u64::MAX,
    };
    if all <= budget.min(wanted.free).min(LARGE_BYTES) {
        return Ok(all);
    }
    let mut recipe = RecipeReader::new(content, reader);
    let mut stored = 0_u64;
    for _ in 0..PARTS_MAX {
        cancel.check()?;
        match recipe.next_chunk().map_err(RepositoryError::from) {
            Ok(Some((_, chunk))) if chunk.is_hole() => {}
            Ok(Some((_, chunk))) => stored = stored.saturating_add(chunk.stream_bytes),
            Ok(None) => return Ok(stored),
            // The restore says what is lost of it.
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(stored.saturating_add(all.saturating_sub(recipe.offset())))
}

/// The stretch of the circle that fits what was asked for, so far.
struct Stretch {
    amount: DrillAmount,
    taken: BinaryHeap<Candidate>,
    cost: u64,
    /// It ends before this distance; none if it goes all around.
    bound: Option<u64>,
    /// The nearest candidate beyond a bound that was asked for: a sample is never empty.
    nearest: Option<Candidate>,
}

impl Stretch {
    fn new(amount: DrillAmount) -> Self {
        let bound = match amount {
            DrillAmount::Percent(percent) if percent < 100 => {
                Some(u64::MAX / 100 * u64::from(percent))
            }
            _ => None,
        };
        Self { amount, taken: BinaryHeap::new(), cost: 0, bound, nearest: None }
    }

    /// Whether an entry at this distance may be in it.
    fn reaches(&self, distance: u64) -> bool {
        let is_nearer = self.nearest.as_ref().is_none_or(|nearest| distance < nearest.distance);
        self.is_within(distance) || (self.taken.is_empty() && is_nearer)
    }

    fn is_within(&self, distance: u64) -> bool {
        self.bound.is_none_or(|bound| distance < bound)
    }

    fn cost_of(&self, candidate: &Candidate) -> u64 {
        match self.amount {
            DrillAmount::Bytes(_) if candidate.has_room => candidate.disk_bytes,
            DrillAmount::Files(_) => 1,
            DrillAmount::Bytes(_) | DrillAmount::Percent(_) => 0,
        }
    }

    fn add(&mut self, candidate: Candidate) {
        if !self.is_within(candidate.distance) {
            self.nearest = Some(candidate);
            return;
        }
        let budget = match self.amount {
            DrillAmount::Bytes(budget) | DrillAmount::Files(budget) => budget,
            DrillAmount::Percent(_) => u64::MAX,
        };
        self.cost = self.cost.saturating_add(self.cost_of(&candidate));
        self.taken.push(candidate);
        // The first is taken, however large it is: else it never would be.
        while self.taken.len() > ENTRIES_MAX || (self.cost > budget && self.taken.len() > 1) {
            let Some(farthest) = self.taken.pop() else { return };
            self.cost = self.cost.saturating_sub(self.cost_of(&farthest));
            self.bound = Some(farthest.distance);
        }
    }

    /// How long it is; none if it goes all around. Takes one entry if there is none in it.
    fn length(&mut self) -> Option<u64> {
        if let (true, Some(nearest)) = (self.taken.is_empty(), self.nearest.take()) {
            self.bound = Some(nearest.distance.saturating_add(1));
            self.taken.push(nearest);
        }
        self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(distance: u64, disk_bytes: u64) -> Candidate {
        let path = distance.to_string().into_bytes();
        let (is_directory, has_room) = (false, true);
        Candidate { distance, path, is_directory, bytes: 0, disk_bytes, has_room }
    }

    /// Where a stretch ends, and the distances of what is in it.
    fn taken(amount: DrillAmount, candidates: &[(u64, u64)]) -> (Option<u64>, Vec<u64>) {
        let mut stretch = Stretch::new(amount);
        for (distance, bytes) in candidates {
            if stretch.reaches(*distance) {
                stretch.add(candidate(*distance, *bytes));
            }
        }
        let length = stretch.length();
        let mut taken: Vec<u64> = stretch.taken.iter().map(|taken| taken.distance).collect();
        taken.sort_unstable();
        (length, taken)
    }

    #[test]
    fn a_stretch_is_as_long_as_fits_and_never_empty() {
        let some = [(50, 10), (10, 10), (40, 100), (20, 10), (30, 10)];
        assert_eq!(taken(DrillAmount::Bytes(1000), &some), (None, vec![10, 20, 30, 40, 50]));
        // Beyond one that does not fit nothing is taken, or the next drill would pass over it.
        assert_eq!(taken(DrillAmount::Bytes(60), &some), (Some(40), vec![10, 20, 30]));
        assert_eq!(taken(DrillAmount::Bytes(1), &some), (Some(20), vec![10]));
        assert_eq!(taken(DrillAmount::Files(2), &some), (Some(30), vec![10, 20]));
        assert_eq!(taken(DrillAmount::Percent(1), &some).1.len(), 5);
        let far = u64::MAX / 2;
        let nearest = [(far + 1, 1), (far, 1), (far + 2, 1)];
        assert_eq!(taken(DrillAmount::Percent(1), &nearest), (Some(far + 1), vec![far]));
        assert_eq!(taken(DrillAmount::Percent(100), &nearest).1.len(), 3);
        assert_eq!(taken(DrillAmount::Bytes(1), &[]), (None, vec![]));
    }
}
