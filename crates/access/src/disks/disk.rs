//! One disk of one night, as an export.

use std::collections::HashSet;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_base::{ByteCache, Fingerprint, Monitor, Problem, Severity};
use strongroom_catalog::ChunkRef;
use strongroom_nbd::{Export, Extent};

use super::fetcher::{Fetcher, Holes};
use super::map::{DiskMap, Nodes};
use super::profile::Profile;
use super::sequence::Sequence;
use crate::chunks::{Chunks, Failure};

/// A request to fetch is followed for this many bytes: half of the cache.
const FETCH_BYTES_MAX: u64 = 32 << 20;
/// Damaged chunks of one disk that are reported, each once.
const REPORTS_MAX: usize = 1000;

/// What all disks in snapshots of one domain share.
pub struct Shared {
    /// Reads chunks.
    pub chunks: Arc<Chunks>,
    /// Nodes of recipes.
    pub nodes: Arc<Nodes<Chunks>>,
    /// Chunks of which only a part was wanted: the next request often wants more of them.
    pub recent: ByteCache<Fingerprint, Arc<Vec<u8>>>,
    /// Reads ahead.
    pub fetcher: Fetcher,
    /// Hears of damage.
    pub monitor: Arc<dyn Monitor>,
}

/// A disk as it was in a night. It is read only; many threads may read it at the same time.
pub struct NightDisk {
    shared: Arc<Shared>,
    map: Arc<DiskMap>,
    /// Where it is, for reports: the snapshot's short name and the path in it.
    label: PathBuf,
    // Plain mutexes: each held for a few steps in memory.
    sequence: Mutex<Sequence>,
    reported: Mutex<HashSet<Fingerprint>>,
    profile: Option<Mutex<Profile>>,
}

impl NightDisk {
    /// A disk that is read through what all share.
    pub fn new(
        shared: Arc<Shared>,
        map: DiskMap,
        label: PathBuf,
        profile: Option<Profile>,
    ) -> Self {
        let map = Arc::new(map);
        Self {
            shared,
            map,
            label,
            sequence: Mutex::default(),
            reported: Mutex::default(),
            profile: profile.map(Mutex::new),
        }
    }

    /// What was read so far, in this order, if it is recorded.
    pub fn profile(&self) -> Option<Profile> {
        let profile = self.profile.as_ref()?;
        Some(profile.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Begins to fetch what an earlier start of the machine read, in the order in which it did.
    pub fn fetch_profile(&self, profile: &Profile) {
        for part in profile.parts() {
            self.fetch(part);
        }
    }

    /// Has a range fetched, also behind holes.
    fn fetch(&self, range: Range<u64>) {
        let end = range.end.min(range.start.saturating_add(FETCH_BYTES_MAX));
        self.shared.fetcher.fetch(&self.map, range.start..end, Holes::Pass);
    }

    fn read(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let mut position = range.start;
        self.map.for_each(range.clone(), &self.shared.nodes, |start, chunk| {
            let to = (start + chunk.stream_bytes).min(range.end);
            self.read_chunk(chunk, position - start..to - start, bytes)
                .inspect_err(|f| self.report(chunk, position, f))?;
            position = to;
            Ok::<_, Failure>(ControlFlow::Continue(()))
        })?;
        if position == range.end {
            return Ok(());
        }
        Err(Failure::damage("the recipe ends before its disk"))
    }

    /// Appends a part of a chunk to `bytes`.
    fn read_chunk(
        &self,
        chunk: &ChunkRef,
        part: Range<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if chunk.is_hole() {
            bytes.resize(bytes.len() + (part.end - part.start) as usize, 0);
            return Ok(());
        }
        if let Some(whole) = self.shared.recent.get(&chunk.fingerprint) {
            return append_part(&whole, chunk, part, bytes);
        }
        if part == (0..chunk.stream_bytes) {
            return self.shared.chunks.append_data(chunk, bytes);
        }
        let whole = Arc::new(self.shared.chunks.read_data(chunk)?);
        self.shared.recent.put(chunk.fingerprint, whole.clone(), whole.capacity());
        append_part(&whole, chunk, part, bytes)
    }

    fn report(&self, chunk: &ChunkRef, offset: u64, failure: &Failure) {
        if !failure.is_damage {
            return;
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() < REPORTS_MAX && reported.insert(chunk.fingerprint) {
            let message = format!(
                "{} bytes from byte {offset} of the disk on cannot be read: {failure}",
                chunk.stream_bytes
            );
            let (severity, path) = (Severity::Damage, Some(self.label.as_path()));
            self.shared.monitor.problem(Problem { severity, path, message: &message });
        }
    }
}

fn append_part(
    whole: &[u8],
    chunk: &ChunkRef,
    part: Range<u64>,
    bytes: &mut Vec<u8>,
) -> Result<(), Failure> {
    if whole.len() as u64 != chunk.stream_bytes {
        return Err(Failure::wrong_length());
    }
    // Within a chunk that is in memory.
    bytes.extend_from_slice(&whole[part.start as usize..part.end as usize]);
    Ok(())
}

fn as_io(failure: Failure) -> io::Error {
    io::Error::other(failure)
}

impl Export for NightDisk {
    fn size(&self) -> u64 {
        self.map.bytes()
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        if let Some(profile) = &self.profile {
            profile.lock().unwrap_or_else(PoisonError::into_inner).note(range.clone());
        }
        let ahead =
            self.sequence.lock().unwrap_or_else(PoisonError::into_inner).note(range.clone());
        if let Some(ahead) = ahead {
            self.shared.fetcher.fetch(&self.map, ahead, Holes::End);
        }
        self.read(range, bytes).map_err(as_io)
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        self.map.extents(range, &self.shared.nodes).map_err(as_io)
    }

    fn cache(&self, range: Range<u64>) -> io::Result<()> {
        self.fetch(range);
        Ok(())
    }
}
