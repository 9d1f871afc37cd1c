//! The directories above the snapshots, kept up to date with the repository.
//!
//! The list of snapshots is read again when such a directory is read, or a name that does not exist
//! is looked up, and the last reading is some seconds old. Only snapshots that are not yet known
//! are read; while one thread does so, the others are answered from what was known.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use jiff::tz::TimeZone;
use strongroom_base::{Monitor, Problem, Severity, SnapshotId, Stopwatch};
use strongroom_catalog::{Snapshot, sort_oldest_first};
use strongroom_repository::RepositoryError;
use strongroom_repository::objects::SNAPSHOTS_FOLDER;
use strongroom_repository::{Endings, Narrowing, Repository, Wishes, read_snapshot};

use super::MountOptions;
use super::layout::Layout;

/// The number of the mount's own directory, set by FUSE.
pub const ROOT: u64 = 1;

/// What a number above the snapshots denotes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TopKey {
    /// The directory at this path.
    Directory(Vec<u8>),
    /// The link of a directory. One that leads elsewhere is another link, so the kernel never
    /// follows an old one that it remembers.
    Link {
        /// The directory's path.
        directory: Vec<u8>,
        /// The link's name.
        name: Vec<u8>,
        /// Where it leads.
        target: Vec<u8>,
    },
}

/// The directories above the snapshots.
pub struct Tops {
    repository: Arc<Repository>,
    zone: TimeZone,
    refresh: Duration,
    narrowing: Narrowing,
    monitor: Arc<dyn Monitor>,
    layout: RwLock<Arc<Layout>>,
    // Held while the repository is asked for snapshots; other threads do not wait for it.
    known: Mutex<KnownSnapshots>,
    // A plain mutex: held for a map operation.
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct KnownSnapshots {
    asked: Option<Stopwatch>,
    snapshots: HashMap<SnapshotId, Arc<Snapshot>>,
    /// Whether some of them are not in the directories yet.
    is_ahead: bool,
    /// What the owner wished and said of them when the last one was read.
    wishes: Wishes,
    /// The domains that had ended by then.
    endings: Endings,
    unreadable: HashSet<SnapshotId>,
    /// Why the last request to the repository failed.
    failure: Option<String>,
}

/// Numbers are given once and kept: there are as many as directories above snapshots.
struct Numbers {
    by_key: HashMap<TopKey, u64>,
    keys: Vec<TopKey>,
}

impl Tops {
    /// Reads the snapshots for the first time.
    pub fn open(
        repository: Arc<Repository>,
        options: &MountOptions,
        monitor: Arc<dyn Monitor>,
    ) -> Result<Self, RepositoryError> {
        let root = TopKey::Directory(Vec::new());
        let numbers = Numbers { by_key: HashMap::from([(root.clone(), ROOT)]), keys: vec![root] };
        let tops = Self {
            repository,
            zone: options.time_zone.clone(),
            refresh: options.refresh,
            narrowing: options.narrowing.clone(),
            monitor,
            layout: RwLock::default(),
            known: Mutex::default(),
            numbers: Mutex::new(numbers),
        };
        tops.read_snapshots(&mut lock(&tops.known))?;
        Ok(tops)
    }

    /// The directories as they were last seen.
    pub fn layout(&self) -> Arc<Layout> {
        self.layout.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The directories, after a new look at the repository if the last one was a while ago.
    pub fn fresh_layout(&self) -> Arc<Layout> {
        let mut known = match self.known.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.layout(),
        };
        if known.asked.is_none_or(|asked| asked.elapsed() >= self.refresh) {
            let failure = self.read_snapshots(&mut known).err().map(|error| error.to_string());
            if let Some(failure) = &failure
                && known.failure.as_ref() != Some(failure)
            {
                let message = format!("the list of snapshots cannot be read again: {failure}");
                self.report(Severity::Warning, &message);
            }
            known.failure = failure;
        }
        self.layout()
    }

    /// The number of something above the snapshots.
    pub fn number(&self, key: TopKey) -> u64 {
        let mut numbers = lock(&self.numbers);
        if let Some(number) = numbers.by_key.get(&key) {
            return *number;
        }
        numbers.keys.push(key.clone());
        let number = numbers.keys.len() as u64;
        numbers.by_key.insert(key, number);
        number
    }

    /// What a number above the snapshots denotes.
    pub fn key(&self, number: u64) -> Option<TopKey> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        lock(&self.numbers).keys.get(place).cloned()
    }

    fn read_snapshots(&self, known: &mut KnownSnapshots) -> Result<(), RepositoryError> {
        let found = self.find_snapshots(known);
        known.asked = Some(Stopwatch::start());
        let ids = found?;
        let before = known.snapshots.len();
        known.snapshots.retain(|id, _| ids.contains(id));
        known.unreadable.retain(|id| ids.contains(id));
        if known.is_ahead {
            known.wishes = Wishes::read(&self.repository)?;
            known.endings = Endings::read(&self.repository)?;
        }
        if known.is_ahead || known.snapshots.len() != before || self.layout().is_empty() {
            let counted = known.snapshots.values().filter(|it| !known.endings.is_late(it));
            let shown = counted.filter_map(|it| self.shown(it, &known.wishes));
            let mut snapshots: Vec<_> = shown.collect();
            sort_oldest_first(&mut snapshots);
            let layout = Arc::new(Layout::new(&snapshots, &self.zone));
            *self.layout.write().unwrap_or_else(PoisonError::into_inner) = layout;
            known.is_ahead = false;
        }
        Ok(())
    }

    /// The snapshot as its owner wants it; none if it is not among those that are shown.
    fn shown(&self, snapshot: &Arc<Snapshot>, wishes: &Wishes) -> Option<Arc<Snapshot>> {
        let mut snapshot = Snapshot::clone(snapshot);
        wishes.remarks().apply(&mut snapshot);
        let is_shown = self.narrowing.fits(&snapshot) && !wishes.forget(snapshot.id);
        is_shown.then(|| Arc::new(snapshot))
    }

    /// All existing snapshots; those that were not known are read.
    fn find_snapshots(
        &self,
        known: &mut KnownSnapshots,
    ) -> Result<HashSet<SnapshotId>, RepositoryError> {
        let mut ids = HashSet::new();
        for info in self.repository.backend().list(SNAPSHOTS_FOLDER)? {
            let Ok(id) = info.name.file().parse::<SnapshotId>() else { continue };
            ids.insert(id);
            if known.snapshots.contains_key(&id) || known.unreadable.contains(&id) {
                continue;
            }
            match read_snapshot(&self.repository, id) {
                Ok(snapshot) => {
                    known.snapshots.insert(id, Arc::new(snapshot));
                    known.is_ahead = true;
                }
                // Removed between the listing and the reading.
                Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
                // It never was one.
                Err(RepositoryError::Fenced { .. }) => drop(known.unreadable.insert(id)),
                Err(error) if error.is_damage() || error.is_withheld() || error.is_unknown() => {
                    known.unreadable.insert(id);
                    let message = format!("snapshot {} is not shown: {error}", id.short());
                    let is_damaged = error.is_damage() && !error.is_unknown();
                    let severity = if is_damaged { Severity::Damage } else { Severity::Warning };
                    self.report(severity, &message);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ids)
    }

    fn report(&self, severity: Severity, message: &str) {
        self.monitor.problem(Problem { severity, path: None, message });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
