//! What a machine remembers of its own backups between them, in one sealed file of its cache: the
//! *own record*. The document: `docs/format/own.md`; the reasons: `docs/design/0016-own-record.md`.
//!
//! A put-only key opens neither snapshots nor arenas. With the record, the machine that wrote them
//! reads its own last snapshot when it makes the next one, and nothing else: only the backup asks
//! for a record. A record that is missing, torn, of another version or of another repository counts
//! as absent. That costs time, not a backup.
//!
//! Invariants of a record:
//!
//! * At most one snapshot of each host and set of paths, and a bounded number of them.
//! * A bounded number of sessions, in the order in which they were taken in.

pub mod format;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use strongroom_base::entropy::random_array;
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{ArenaSecret, Monitor, SizeLimits, SnapshotId};
use strongroom_catalog::Snapshot;
use zeroize::{Zeroize, Zeroizing};

use crate::cache;
use crate::repository::Repository;
use format::{HEADER_BYTES, RecordError, pack_header, pack_record, unpack_header, unpack_record};

/// What the key of one file is derived as.
const CONTEXT: &str = "strongroom v0 own record";
/// The file in the cache of a repository, and what it is called while it is written.
const FILE: &str = "own";
const FILE_NEW: &str = "own.new";
/// A record that would be longer is shortened.
const RECORD_BYTES_MAX: usize = 8 << 20;
/// A file that is longer is no record.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a machine remembers of its own backups in one repository.
#[derive(Clone, Default)]
pub struct OwnRecord {
    /// The greatest sequence that the machine's snapshots had.
    pub sequence: u64,
    /// The snapshot that it made last.
    pub newest: Option<SnapshotId>,
    /// Its last snapshots, one for each host and set of paths. Kept for put-only keys alone.
    pub snapshots: Vec<KeptSnapshot>,
    /// Its sessions whose arenas it can read. Kept for put-only keys alone.
    pub sessions: Vec<KeptSession>,
}

/// A snapshot that the next backup may be compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// What was committed.
    pub snapshot: Snapshot,
    /// The sessions that wrote its chunks, or bases of those.
    pub needs: Vec<SnapshotId>,
}

/// A session whose arenas this machine can read.
#[derive(Clone)]
pub struct KeptSession {
    /// Its name, which is in the headers of its arenas.
    pub id: SnapshotId,
    /// What the keys of its arenas are derived from.
    pub secret: ArenaSecret,
    /// The sessions that wrote the bases of its deltas.
    pub bases: Vec<SnapshotId>,
}

/// Sessions that a snapshot depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Those that wrote its chunks.
    pub sessions: BTreeSet<SnapshotId>,
    /// Those that wrote the bases of the deltas of its own session.
    pub bases: BTreeSet<SnapshotId>,
}

impl OwnRecord {
    /// The record in the cache; an empty one if there is none that can be read.
    pub fn read(repository: &Repository, monitor: &dyn Monitor) -> Self {
        let Some(path) = path(repository) else { return Self::default() };
        let record = match cache::read_file(&path, FILE_BYTES_MAX) {
            Ok(None) => return Self::default(),
            Ok(Some(file)) => open(repository, file),
            Err(error) => Err(error.into()),
        };
        record.unwrap_or_else(|why| {
            let path = path.display();
            monitor.detail(&format!("the record of this machine's backups is lost: {path}: {why}"));
            Self::default()
        })
    }

    /// Changes the record in the cache, and returns it. If it cannot be written, nothing is
    /// returned, and the next backup reads every file.
    pub fn update(
        repository: &Repository,
        monitor: &dyn Monitor,
        change: impl FnOnce(&mut Self),
    ) -> Option<Self> {
        let path = path(repository)?;
        let folder = path.parent()?;
        let written = cache::lock(folder).and_then(|_lock| {
            let mut record = Self::read(repository, monitor);
            change(&mut record);
            let packed = record.pack_bounded(&repository.limits);
            let file = seal(repository, packed);
            cache::write_file(folder, FILE, FILE_NEW, &file).map(|()| record)
        });
        if let Err(error) = &written {
            monitor.detail(&format!("no record of this machine's backups can be kept: {error}"));
        }
        written.ok()
    }

    /// The record, with a secret for a session that begins, if the key can only store and there is
    /// a cache. It is written before the first arena, so that not even a crash takes it away.
    pub fn begin(repository: &Repository, session: SnapshotId, monitor: &dyn Monitor) -> Self {
        if repository.keys.can_read() {
            return Self::read(repository, monitor);
        }
        let secret = ArenaSecret(random_array(&*repository.surroundings.entropy));
        let begun = Self::update(repository, monitor, |record| {
            // If it never commits, what it stores may be deltas of anything that it could read.
            let bases = record.sessions.iter().map(|earlier| earlier.id).collect();
            record.sessions.push(KeptSession { id: session, secret, bases });
        });
        begun.unwrap_or_default()
    }

    /// Takes note of a snapshot of this machine that was committed. `begun` is the record that its
    /// session began with.
    pub fn committed(&mut self, snapshot: &Snapshot, begun: &Self, needs: Needs) {
        self.sequence = self.sequence.max(snapshot.sequence);
        self.newest = Some(snapshot.id);
        let Some(own) = begun.session(snapshot.id) else { return };
        let is_same_set = |kept: &KeptSnapshot| {
            kept.snapshot.host == snapshot.host && kept.snapshot.paths == snapshot.paths
        };
        let has_complete = self.snapshots.iter().any(|k| is_same_set(k) && !k.snapshot.partial);
        // The next backup is compared with the complete one, and finds in the repository what this
        // one has stored. So its secret is kept meanwhile.
        if snapshot.partial && has_complete {
            return;
        }
        self.snapshots.retain(|kept| !is_same_set(kept));
        let mut wanted = needs.sessions;
        let used = begun.sessions.iter().filter(|session| wanted.contains(&session.id));
        let bases: Vec<SnapshotId> = used.flat_map(|session| &session.bases).copied().collect();
        wanted.extend(bases);
        wanted.extend(&needs.bases);
        // Another backup at the same time may have dropped what nothing needed then.
        let there: BTreeSet<SnapshotId> = self.sessions.iter().map(|kept| kept.id).collect();
        let missing: BTreeSet<SnapshotId> = wanted.difference(&there).copied().collect();
        let dropped = begun.sessions.iter().filter(|session| missing.contains(&session.id));
        self.sessions.extend(dropped.cloned());
        if let Some(own) = self.sessions.iter_mut().find(|session| session.id == own.id) {
            own.bases = needs.bases.into_iter().collect();
        }
        let needs = wanted.into_iter().collect();
        self.snapshots.push(KeptSnapshot { snapshot: snapshot.clone(), needs });
        self.drop_unneeded();
    }

    /// Forgets snapshots, such as those that were removed from the repository.
    pub fn forget(&mut self, gone: &[SnapshotId]) {
        self.snapshots.retain(|kept| !gone.contains(&kept.snapshot.id));
    }

    /// The session of this name.
    pub fn session(&self, id: SnapshotId) -> Option<&KeptSession> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// The secrets, by session.
    pub fn secrets(&self) -> HashMap<SnapshotId, ArenaSecret> {
        self.sessions.iter().map(|session| (session.id, session.secret.clone())).collect()
    }

    /// Drops the secrets of sessions that no snapshot needs.
    fn drop_unneeded(&mut self) {
        let needed: BTreeSet<SnapshotId> =
            self.snapshots.iter().flat_map(|kept| &kept.needs).copied().collect();
        self.sessions.retain(|session| needed.contains(&session.id));
    }

    /// The bytes of the record, once what is oldest beyond the bounds was dropped. What can then
    /// not be read is read from its files, and stored again.
    fn pack_bounded(&mut self, limits: &SizeLimits) -> Zeroizing<Vec<u8>> {
        let excess = self.snapshots.len().saturating_sub(limits.record_snapshots_max);
        reached_if(excess > 0, Regime::RecordFull);
        self.snapshots.drain(..excess);
        let mut excess = self.sessions.len().saturating_sub(limits.record_sessions_max);
        reached_if(excess > 0, Regime::RecordFull);
        loop {
            self.sessions.drain(..excess);
            let packed = pack_record(self);
            if packed.len() <= RECORD_BYTES_MAX || self.sessions.is_empty() {
                return packed;
            }
            excess = self.sessions.len().div_ceil(8);
        }
    }
}

fn path(repository: &Repository) -> Option<PathBuf> {
    repository.cache_folder().map(|folder| folder.join(FILE))
}

fn seal(repository: &Repository, mut body: Zeroizing<Vec<u8>>) -> Vec<u8> {
    let salt = random_array(&*repository.surroundings.entropy);
    let mut file = pack_header(&salt);
    cache::key(repository, CONTEXT, &salt).seal(0, &file, &mut body);
    file.append(&mut body);
    file
}

fn open(repository: &Repository, mut file: Vec<u8>) -> Result<OwnRecord, RecordError> {
    let (header, body) =
        file.split_first_chunk_mut::<HEADER_BYTES>().ok_or(RecordError::Unknown)?;
    let salt = unpack_header(header).ok_or(RecordError::Unknown)?;
    let opened = cache::key(repository, CONTEXT, &salt).open(0, &header[..], body)?;
    let record = unpack_record(opened);
    opened.zeroize();
    record
}

#[cfg(test)]
mod tests;
