//! Nights as disks: the disks of machines, as they were in any snapshot, for QEMU and every other
//! program that speaks NBD.
//!
//! ```text
//! vm1/vda@2026-11-20   the file /vm1/vda.raw of the newest snapshot of that day
//! vm1/vda@0123abcd     of the snapshot whose identifier begins so
//! vm1/vda@latest       of the newest snapshot that has it; vm1/vda means the same
//! ```
//!
//! A disk is read through its recipe: nothing is unpacked before it is asked for, and holes of the
//! recipe are holes of the export. Disks in snapshots of one domain share a cache of blocks. Requests that follow each
//! other are read ahead. If disks are writable, what is written goes into an overlay, and the
//! repository keeps what it has.

mod catalogue;
mod disk;
mod fetcher;
mod map;
mod naming;
mod profile;
mod readers;
mod sequence;

use std::collections::HashMap;
use std::fs::DirEntry;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::tz::TimeZone;
use strongroom_arena::CacheLimits;
use strongroom_base::{Monitor, Problem, Severity, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_nbd::{Export, Exports, Overlay};
use strongroom_repository::{Narrowing, Repository, RepositoryError};

use crate::chunks::Failure;
use crate::mount::naming::host_name;
use catalogue::{Catalogue, FindError, FoundDisk};
pub use disk::NightDisk;
use map::DiskMap;
use naming::{ExportName, Which};
use profile::Profile;
use readers::Readers;

/// How disks are offered.
#[derive(Debug, Clone)]
pub struct NightsOptions {
    /// Which snapshots are offered.
    pub narrowing: Narrowing,
    /// Only these are offered; all if there is no list.
    pub only: Option<Vec<SnapshotId>>,
    /// Days are those of this zone.
    pub time_zone: TimeZone,
    /// New snapshots are looked for at most this often, and only when a disk is looked for.
    pub refresh: Duration,
    /// How much of arenas is kept in memory, by all disks of one domain together.
    pub cache: CacheLimits,
    /// Disks can be written to; what is written is kept in files of this folder, which exists.
    pub overlays: Option<PathBuf>,
    /// What each disk is asked for first is recorded in files of this folder, and fetched when a
    /// disk is opened.
    pub profiles: Option<PathBuf>,
}

impl NightsOptions {
    /// Disks that are only read, with 120 MiB of blocks and chunks in memory.
    pub fn new(time_zone: TimeZone) -> Self {
        Self {
            narrowing: Narrowing::default(),
            only: None,
            time_zone,
            refresh: Duration::from_secs(3),
            cache: CacheLimits {
                summary_bytes: 16 << 20,
                block_bytes: 96 << 20,
                ..CacheLimits::default()
            },
            overlays: None,
            profiles: None,
        }
    }
}

/// A disk that is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Night {
    /// The name of the export.
    pub name: String,
    /// Its snapshot.
    pub snapshot: SnapshotId,
    /// The machine that made the snapshot.
    pub host: String,
    /// When the snapshot began.
    pub started: Timestamp,
    /// Bytes of the disk.
    pub bytes: u64,
}

/// The disks of all nights.
pub struct Nights {
    readers: Arc<Readers>,
    monitor: Arc<dyn Monitor>,
    options: NightsOptions,
    // Held while snapshots and their folders are read: who opens another disk then waits.
    catalogue: Mutex<Catalogue>,
    // A plain mutex: held for a map operation, and while an overlay is opened.
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    /// While a client has a name open, a newer night does not change what it means: a machine that
    /// connects again must find the same disk.
    names: HashMap<String, Weak<dyn Export>>,
    disks: HashMap<DiskKey, Weak<NightDisk>>,
    /// One process opens an overlay once, and until the end.
    overlays: HashMap<DiskKey, Arc<dyn Export>>,
}

type DiskKey = (SnapshotId, String);

impl Nights {
    /// Reads the list of snapshots for the first time.
    ///
    /// # Errors
    ///
    /// The repository cannot be read, or the system refuses threads.
    pub fn open(
        repository: Arc<Repository>,
        options: NightsOptions,
        monitor: Arc<dyn Monitor>,
    ) -> Result<Self, RepositoryError> {
        let readers = Readers::new(repository.clone(), options.cache, monitor.clone())?;
        let readers = Arc::new(readers);
        let mut catalogue =
            Catalogue::new(repository, readers.clone(), options.clone(), monitor.clone());
        catalogue.refresh()?;
        Ok(Self {
            readers,
            monitor,
            options,
            catalogue: Mutex::new(catalogue),
            opened: Mutex::default(),
        })
    }

    /// All disks, each with the newest snapshot of a day that has it, the newest day first.
    pub fn list(&self) -> io::Result<Vec<Night>> {
        let mut catalogue = lock(&self.catalogue);
        catalogue.refresh().map_err(io::Error::other)?;
        let nights = catalogue.nights().map_err(io::Error::other)?;
        Ok(nights
            .into_iter()
            .map(|(name, snapshot, disk)| night(&name, &snapshot, &disk))
            .collect())
    }

    /// The disk that a name means.
    pub fn find(&self, name: &str) -> io::Result<Option<Night>> {
        let name = ExportName::parse(name);
        let mut catalogue = lock(&self.catalogue);
        catalogue.refresh().map_err(io::Error::other)?;
        let found = catalogue.find(&name).map_err(io::Error::other)?;
        Ok(found.map(|(snapshot, disk)| night(&name, &snapshot, &disk)))
    }

    /// Writes down what each open disk was asked for first, for the next time. Disks of which
    /// something is recorded already keep that.
    pub fn keep_profiles(&self) {
        let Some(folder) = &self.options.profiles else { return };
        let disks: Vec<(String, Arc<NightDisk>)> = lock(&self.opened)
            .disks
            .iter()
            .filter_map(|((_, name), disk)| Some((name.clone(), disk.upgrade()?)))
            .collect();
        for (name, disk) in disks {
            if let Some(profile) = disk.profile().filter(|profile| !profile.is_empty())
                && let Err(error) = profile.write(&profile_path(folder, &name))
            {
                let message = format!("what {name} was asked for is not recorded: {error}");
                self.report(Severity::Note, &message);
            }
        }
    }

    /// Brings to the medium what was written into overlays, for who keeps them.
    ///
    /// # Errors
    ///
    /// The medium did not take it: an overlay lacks some of what was written last.
    pub fn flush(&self) -> io::Result<()> {
        let overlays: Vec<_> = lock(&self.opened).overlays.values().cloned().collect();
        overlays.iter().try_for_each(|overlay| overlay.flush())
    }

    fn open_found(
        &self,
        name: &ExportName,
        snapshot: &Snapshot,
        found: FoundDisk,
    ) -> io::Result<Arc<dyn Export>> {
        let key = (snapshot.id, found.name.clone());
        let mut opened = lock(&self.opened);
        if let Some(overlay) = opened.overlays.get(&key) {
            return Ok(overlay.clone());
        }
        let disk = match opened.disks.get(&key).and_then(Weak::upgrade) {
            Some(disk) => disk,
            None => {
                let disk = Arc::new(self.new_disk(snapshot, &found).map_err(io::Error::other)?);
                opened.disks.retain(|_, disk| disk.strong_count() > 0);
                opened.disks.insert(key.clone(), Arc::downgrade(&disk));
                disk
            }
        };
        let export: Arc<dyn Export> = match &self.options.overlays {
            None => disk,
            Some(folder) => {
                let overlay = open_overlay(folder, &key, disk)?;
                opened.overlays.insert(key, overlay.clone());
                overlay
            }
        };
        opened.names.retain(|_, export| export.strong_count() > 0);
        opened.names.insert(name.to_string(), Arc::downgrade(&export));
        Ok(export)
    }

    fn new_disk(&self, snapshot: &Snapshot, found: &FoundDisk) -> Result<NightDisk, Failure> {
        let map = DiskMap::new(&found.recipe)?;
        let label = PathBuf::from(format!("{}:/{}.raw", snapshot.id.short(), found.name));
        let folder = self.options.profiles.as_ref();
        let earlier = folder.and_then(|folder| Profile::read(&profile_path(folder, &found.name)));
        let recording = (folder.is_some() && earlier.is_none()).then(Profile::default);
        let shared = self.readers.of(&snapshot.domain)?;
        let disk = NightDisk::new(shared, map, label, recording);
        if let Some(earlier) = earlier {
            disk.fetch_profile(&earlier);
        }
        Ok(disk)
    }

    fn report(&self, severity: Severity, message: &str) {
        self.monitor.problem(Problem { severity, path: None, message });
    }
}

impl Exports for Nights {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.list()?.into_iter().map(|night| night.name).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Export>> {
        let parsed = ExportName::parse(name);
        if let Some(export) =
            lock(&self.opened).names.get(&parsed.to_string()).and_then(Weak::upgrade)
        {
            return Ok(export);
        }
        let found = {
            let mut catalogue = lock(&self.catalogue);
            catalogue.refresh().map_err(FindError::from).and_then(|()| catalogue.find(&parsed))
        };
        let opened = match found {
            Ok(None) => return Err(io::ErrorKind::NotFound.into()),
            Ok(Some((snapshot, disk))) => self.open_found(&parsed, &snapshot, disk),
            Err(error) => Err(io::Error::other(error)),
        };
        // The client hears that it cannot be opened; why, only who runs the server may hear.
        opened.inspect_err(|error| {
            self.report(Severity::Warning, &format!("the disk {name} cannot be opened: {error}"));
        })
    }
}

fn night(name: &ExportName, snapshot: &Snapshot, disk: &FoundDisk) -> Night {
    Night {
        name: name.to_string(),
        snapshot: snapshot.id,
        host: snapshot.host.clone(),
        started: snapshot.started,
        bytes: disk.recipe.stream_bytes(),
    }
}

fn open_overlay(
    folder: &Path,
    (snapshot, name): &DiskKey,
    base: Arc<NightDisk>,
) -> io::Result<Arc<dyn Export>> {
    let exact = ExportName { disk: name.clone(), which: Which::Id(snapshot.to_string()) };
    let exact = exact.to_string();
    let path = folder.join(as_file_name(&exact));
    let base_id = *blake3::hash(exact.as_bytes()).as_bytes();
    let overlay = Overlay::open(&path, base, base_id).map_err(io::Error::other)?;
    Ok(Arc::new(overlay))
}

/// The snapshots of which a folder has overlays of a machine's disks.
pub fn kept_overlays(folder: &Path, machine: &str) -> io::Result<Vec<SnapshotId>> {
    let of_machine = host_name(&format!("{machine}/"));
    let of_file = |entry: io::Result<DirEntry>| {
        let name = entry.ok()?.file_name();
        let disk = name.as_bytes().strip_prefix(&*of_machine)?;
        let (_, snapshot) = std::str::from_utf8(disk).ok()?.rsplit_once('@')?;
        snapshot.parse().ok()
    };
    Ok(std::fs::read_dir(folder)?.filter_map(of_file).collect())
}

fn profile_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(as_file_name(name))
}

/// One name of a file for each name of a disk.
fn as_file_name(name: &str) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec(host_name(name))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
