//! What an agent asks of its repository: to store a bucket, to load one, to say whether one is still
//! what was stored.
//!
//! A bucket is the folder `/FILE/NUMBER` of a snapshot of its own, a file for each area, and beside
//! them [`About`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use strongroom_base::{Cancel, Monitor, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_engine::{
    BackupOptions, ByteRange, EngineError, Region, RegionOptions, RegionOutcome, Stillness,
    backup_regions, cat_range,
};
use strongroom_repository::{Repository, RepositoryError, list_snapshots, read_snapshot};
use strongroom_source::memory::Memory;

use crate::about::{ABOUT_BYTES, ABOUT_NAME, About, AboutFile};
use crate::opened::Opened;

/// What is read at a time to find out whether it is zeros, and how far holes are skipped at a time.
const LOOK_BYTES: usize = 1 << 20;
const HOLE_BYTES: u64 = 64 << 20;

/// Which bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName {
    /// The name of its file.
    pub file: String,
    /// Its number in the file.
    pub number: u32,
}

impl BucketName {
    /// Its folder in a snapshot.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/{}/{}", self.file, self.number))
    }
}

impl std::fmt::Display for BucketName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bucket {} of {}", self.number, self.file)
    }
}

/// An area of a bucket: memory that its program has handed over.
#[derive(Debug, Clone)]
pub struct Area {
    /// The memory.
    pub file: Arc<Opened>,
    /// Its length.
    pub bytes: u64,
    /// The address at which the program maps it, if that matters.
    pub base: Option<u64>,
    /// It is a shadow of the program's memory.
    pub is_private: bool,
}

/// The areas of a bucket, by name.
pub type Areas = BTreeMap<String, Area>;

/// Whether these are the same memory, by the same names. An area that is registered again is another.
pub fn are_same(areas: &Areas, others: &Areas) -> bool {
    let is_same = |area: &Area, other: &Area| {
        Arc::ptr_eq(&area.file, &other.file) && (area.bytes, area.base) == (other.bytes, other.base)
    };
    let mut pairs = areas.iter().zip(others);
    areas.len() == others.len()
        && pairs.all(|((name, area), (other, its))| name == other && is_same(area, its))
}

/// What is stored of a bucket, and as what.
pub struct Storing<'s> {
    /// The bucket.
    pub bucket: &'s BucketName,
    /// Its areas.
    pub areas: &'s Areas,
    /// The file beside them. It is written before the last reading.
    pub about: &'s AboutFile,
    /// Who holds the program still.
    pub stillness: &'s dyn Stillness,
    /// The program holds still from the beginning, so the areas are read once.
    pub is_still: bool,
    /// What is expected to differ least; without it, the newest of this host.
    pub parent: Option<SnapshotId>,
    /// How the snapshot is labelled.
    pub labels: Vec<String>,
    /// Ends it.
    pub cancel: &'s Cancel,
}

/// Why a bucket was not stored, loaded or compared.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The repository, or the memory.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An area cannot be read at all.
    #[error("the area {area} cannot be read: {error}")]
    Area {
        /// The area.
        area: String,
        /// Why.
        error: std::io::Error,
    },
    /// An area cannot be written.
    #[error(
        "the area {area} cannot be written: {error}. Register it with a descriptor that is open for \
         reading and writing, of a file that is not sealed"
    )]
    Unwritten {
        /// The area.
        area: String,
        /// Why.
        error: std::io::Error,
    },
    /// The snapshot has another bucket, or an area of another length.
    #[error("{bucket} cannot be loaded from snapshot {}: {why}", .snapshot.short())]
    Unfit {
        /// The bucket.
        bucket: BucketName,
        /// The snapshot.
        snapshot: SnapshotId,
        /// Why.
        why: String,
    },
    /// The snapshot that a node names is not what it says.
    #[error("snapshot {} is not {bucket} as its node says: {why}", .snapshot.short())]
    Another {
        /// The bucket.
        bucket: BucketName,
        /// The snapshot.
        snapshot: SnapshotId,
        /// What it is instead.
        why: String,
    },
    /// The snapshot is no cut.
    #[error("snapshot {} is no cut of {file}: {why}", .snapshot.short())]
    NoCut {
        /// The file.
        file: String,
        /// The snapshot.
        snapshot: SnapshotId,
        /// Why.
        why: String,
    },
    /// Parts of what was to be loaded are damaged.
    #[error("{bytes} bytes of the area {area} are lost; `strongroom repair` may bring them back")]
    Lost {
        /// The area.
        area: String,
        /// How many.
        bytes: u64,
    },
}

impl From<RepositoryError> for KeepError {
    fn from(error: RepositoryError) -> Self {
        Self::Engine(error.into())
    }
}

/// A repository, and how buckets are stored in it.
pub struct Keeper {
    /// The repository.
    pub repository: Repository,
    /// How snapshots are made; paths, parent and labels are those of each bucket.
    pub options: BackupOptions,
    /// Hears of everything.
    pub monitor: Box<dyn Monitor>,
    /// Ends the agent. A job has one of its own.
    pub cancel: Cancel,
}

impl Keeper {
    /// The time.
    pub fn now(&self) -> Timestamp {
        self.repository.surroundings.clock.now()
    }

    /// Stores a bucket as a snapshot of its own.
    pub fn store(&self, storing: &Storing<'_>) -> Result<RegionOutcome, KeepError> {
        let Storing { bucket, areas, about, stillness, is_still, .. } = storing;
        let folder = bucket.path();
        let mut regions = regions(bucket, areas, *is_still)?;
        // It is written only once the program holds still.
        let memory = Box::new((*about).clone());
        regions.push(Region { path: folder.join(ABOUT_NAME), memory, is_held: false });
        let options = BackupOptions {
            paths: vec![folder],
            parent: storing.parent,
            labels: storing.labels.clone(),
            ..self.options.clone()
        };
        let what =
            RegionOptions { passes_max: 2, accepts_fuzzy: false, stillness: Some(*stillness) };
        let (repository, monitor) = (&self.repository, &*self.monitor);
        Ok(backup_regions(repository, &regions, what, &options, monitor, storing.cancel)?)
    }

    /// Whether the areas of a bucket, which holds still, differ from what a snapshot has of them.
    pub fn differs(
        &self,
        bucket: &BucketName,
        areas: &Areas,
        stored: SnapshotId,
        cancel: &Cancel,
    ) -> Result<bool, KeepError> {
        let regions = regions(bucket, areas, true)?;
        let paths = vec![bucket.path()];
        let parent = Some(stored);
        let options = BackupOptions { paths, parent, dry_run: true, ..self.options.clone() };
        let what = RegionOptions { passes_max: 2, accepts_fuzzy: false, stillness: None };
        let (repository, monitor) = (&self.repository, &*self.monitor);
        let outcome = backup_regions(repository, &regions, what, &options, monitor, cancel)?;
        Ok(outcome.backup.files_unchanged != regions.len() as u64)
    }

    /// What a snapshot says of a bucket.
    pub fn about(&self, bucket: &BucketName, snapshot: SnapshotId) -> Result<About, KeepError> {
        let snapshot = read_snapshot(&self.repository, snapshot)?;
        self.about_in(bucket, &snapshot)
    }

    pub(crate) fn about_in(
        &self,
        bucket: &BucketName,
        snapshot: &Snapshot,
    ) -> Result<About, KeepError> {
        let path = bucket.path().join(ABOUT_NAME);
        let mut bytes = Vec::new();
        let path = path.as_os_str().as_encoded_bytes();
        // A hole of any length takes no room in a repository.
        let range = ByteRange { length: Some(ABOUT_BYTES as u64 + 1), ..ByteRange::default() };
        cat_range(&self.repository, snapshot, path, range, &mut bytes)?;
        let unfit = |why: &str| KeepError::Unfit {
            bucket: bucket.clone(),
            snapshot: snapshot.id,
            why: format!("its {ABOUT_NAME} is {why}"),
        };
        if bytes.len() > ABOUT_BYTES {
            return Err(unfit("too long"));
        }
        let about = About::unpack(&bytes)
            .filter(|about| (&about.file, about.bucket) == (&bucket.file, bucket.number));
        about.ok_or_else(|| unfit("of another bucket or of a newer program"))
    }

    /// The newest version of a name that a program had stored of a bucket, up to `at_most`, and its
    /// snapshot.
    pub fn newest(
        &self,
        bucket: &BucketName,
        name: &str,
        at_most: Option<u64>,
    ) -> Result<Option<(u64, SnapshotId)>, KeepError> {
        let folder = bucket.path();
        let folder = folder.as_os_str().as_encoded_bytes();
        let domain = self.repository.secret.domain_name();
        let listed = list_snapshots(&self.repository)?;
        let own = listed.snapshots.iter().filter(|snapshot| snapshot.domain == domain);
        let of_bucket = own.filter(|snapshot| snapshot.paths.iter().any(|path| path == folder));
        let versions = of_bucket.filter_map(|snapshot| {
            let version = snapshot.labels.iter().find_map(|label| version_of(label, name))?;
            Some((version, snapshot.sequence, snapshot.id))
        });
        let fitting = versions.filter(|(version, ..)| at_most.is_none_or(|most| *version <= most));
        // A version that was stored twice is what it was the last time.
        Ok(fitting
            .max_by_key(|(version, sequence, _)| (*version, *sequence))
            .map(|(version, _, id)| (version, id)))
    }
}

/// How a version is labelled.
pub fn version_label(name: &str, version: u64) -> String {
    format!("{name}@{version}")
}

fn version_of(label: &str, name: &str) -> Option<u64> {
    label.strip_prefix(name)?.strip_prefix('@')?.parse().ok()
}

/// Whether areas hold nothing but zeros. A program without areas has said its keys, and has nothing of
/// what belongs to them either.
pub fn are_zeros(areas: &Areas, cancel: &Cancel) -> std::io::Result<bool> {
    let mut is_zero = true;
    for area in areas.values() {
        let memory = area.file.memory()?;
        for_each_part(&memory, area.bytes, cancel, &mut |_, part| {
            is_zero = part.iter().all(|byte| *byte == 0);
            Ok(is_zero)
        })?;
        if !is_zero || cancel.is_cancelled() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads what is no hole, until `look` returns false or it is cancelled.
pub fn for_each_part(
    memory: &dyn Memory,
    bytes: u64,
    cancel: &Cancel,
    look: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<bool>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; LOOK_BYTES];
    let mut at = 0;
    while at < bytes && memory.has_data(at..bytes) {
        let end = bytes.min(at + HOLE_BYTES);
        while at < end && memory.has_data(at..end) {
            let part = &mut buffer[..LOOK_BYTES.min((end - at) as usize)];
            memory.read_at(at, part)?;
            if !look(at, part)? || cancel.is_cancelled() {
                return Ok(());
            }
            at += part.len() as u64;
        }
        at = end;
    }
    Ok(())
}

fn regions(bucket: &BucketName, areas: &Areas, is_still: bool) -> Result<Vec<Region>, KeepError> {
    let folder = bucket.path();
    let region = |(name, area): (&String, &Area)| {
        let memory =
            area.file.memory().map_err(|error| KeepError::Area { area: name.clone(), error })?;
        Ok(Region { path: folder.join(name), memory: Box::new(memory), is_held: is_still })
    };
    areas.iter().map(region).collect()
}
