//! Which disks there are, in which snapshots.
//!
//! A disk is known by its place: a file `/MACHINE/DISK.raw` of a snapshot. The list of snapshots is
//! read again when a disk is looked for and the last reading is some seconds old. The folders of a
//! snapshot are read once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use strongroom_base::{Monitor, Problem, Severity, SnapshotId, Stopwatch};
use strongroom_catalog::recipe::check_length;
use strongroom_catalog::tree::TreeReader;
use strongroom_catalog::{Recipe, Snapshot};
use strongroom_repository::objects::SNAPSHOTS_FOLDER;
use strongroom_repository::{DISK_SUFFIX, Repository, RepositoryError, list_snapshots};

use super::NightsOptions;
use super::naming::{ExportName, Which, day_of};
use super::readers::Readers;
use crate::chunks::Failure;

/// More folders than this are not those of machines.
const MACHINES_MAX: usize = 1024;
/// No more entries of all folders together are looked at: a few chunks can be folders without end.
const ENTRIES_MAX: usize = 4096;

/// A disk in a snapshot.
#[derive(Debug, Clone)]
pub struct FoundDisk {
    /// Machine and disk, such as `vm1/vda`.
    pub name: String,
    /// Where its bytes are.
    pub recipe: Recipe,
}

/// Snapshots and their disks, as they were last seen.
pub struct Catalogue {
    repository: Arc<Repository>,
    readers: Arc<Readers>,
    options: NightsOptions,
    monitor: Arc<dyn Monitor>,
    asked: Option<Stopwatch>,
    /// The names of the snapshots' objects when the list was read.
    objects: BTreeSet<SnapshotId>,
    /// Those that a name may mean, oldest first.
    snapshots: Vec<Arc<Snapshot>>,
    disks: HashMap<SnapshotId, Arc<Vec<FoundDisk>>>,
    reported: HashSet<SnapshotId>,
}

/// Why a disk is not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The repository cannot be read.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// What is stored cannot be read.
    #[error("{0}")]
    Stored(#[from] Failure),
    /// More than one snapshot has an identifier that begins so.
    #[error("several snapshots begin with {0}")]
    Ambiguous(String),
}

impl Catalogue {
    /// Nothing is read yet.
    pub fn new(
        repository: Arc<Repository>,
        readers: Arc<Readers>,
        options: NightsOptions,
        monitor: Arc<dyn Monitor>,
    ) -> Self {
        Self {
            repository,
            readers,
            options,
            monitor,
            asked: None,
            objects: BTreeSet::new(),
            snapshots: Vec::new(),
            disks: HashMap::new(),
            reported: HashSet::new(),
        }
    }

    /// Looks whether there are other snapshots, if the last look was a while ago.
    pub fn refresh(&mut self) -> Result<(), RepositoryError> {
        if self.asked.is_some_and(|asked| asked.elapsed() < self.options.refresh) {
            return Ok(());
        }
        let listed = self.repository.backend().list(SNAPSHOTS_FOLDER)?;
        let objects = listed.into_iter().filter_map(|info| info.name.file().parse().ok());
        let objects: BTreeSet<SnapshotId> = objects.collect();
        if self.asked.is_none() || objects != self.objects {
            let list = list_snapshots(&self.repository)?;
            for (id, error) in list.unreadable.iter().chain(&list.newer) {
                if self.reported.insert(*id) {
                    let message = format!("snapshot {} is not offered: {error}", id.short());
                    let is_damaged = error.is_damage() && !error.is_unknown();
                    let severity = if is_damaged { Severity::Damage } else { Severity::Warning };
                    self.monitor.problem(Problem { severity, path: None, message: &message });
                }
            }
            let mut snapshots = list.snapshots;
            let NightsOptions { narrowing, only, .. } = &self.options;
            let is_named = |id| only.as_ref().is_none_or(|only| only.contains(&id));
            snapshots.retain(|snapshot| narrowing.fits(snapshot) && is_named(snapshot.id));
            self.snapshots = snapshots.into_iter().map(Arc::new).collect();
            self.disks.retain(|id, _| objects.contains(id));
            self.objects = objects;
        }
        self.asked = Some(Stopwatch::start());
        Ok(())
    }

    /// Whether a name without an identifier may mean a snapshot. A client that may only store could
    /// otherwise choose what boots: so it means those of the owner, or of the only other domain.
    fn may_be_meant(&self, snapshot: &Snapshot) -> bool {
        let mut domains = self.snapshots.iter().map(|snapshot| snapshot.domain.as_str());
        let first = domains.next().unwrap_or_default();
        let is_one = domains.all(|domain| domain == first);
        !snapshot.partial
            && (is_one || self.options.narrowing.host.is_some() || snapshot.domain.is_empty())
    }

    /// The disk that a name means, and its snapshot.
    pub fn find(
        &mut self,
        name: &ExportName,
    ) -> Result<Option<(Arc<Snapshot>, FoundDisk)>, FindError> {
        let path = format!("{}.raw", name.disk);
        let newest_first: Vec<Arc<Snapshot>> = self.snapshots.iter().rev().cloned().collect();
        let is_meant = |snapshot: &Snapshot| match &name.which {
            Which::Latest => self.may_be_meant(snapshot),
            Which::Day(day) => {
                self.may_be_meant(snapshot)
                    && day_of(snapshot.started, &self.options.time_zone) == *day
            }
            Which::Id(prefix) => snapshot.id.starts_with(prefix),
        };
        let meant = newest_first.into_iter().filter(|snapshot| is_meant(snapshot));
        let meant: Vec<Arc<Snapshot>> =
            meant.filter(|snapshot| snapshot.holds(path.as_bytes())).collect();
        if let Which::Id(prefix) = &name.which
            && meant.len() > 1
        {
            return Err(FindError::Ambiguous(prefix.clone()));
        }
        for snapshot in meant {
            let disks = self.disks_of(&snapshot)?;
            if let Some(disk) = disks.iter().find(|disk| disk.name == name.disk) {
                return Ok(Some((snapshot, disk.clone())));
            }
        }
        Ok(None)
    }

    /// All disks, each with the newest snapshot of a day that has it, the newest day first.
    pub fn nights(&mut self) -> Result<Vec<(ExportName, Arc<Snapshot>, FoundDisk)>, FindError> {
        let newest_first: Vec<Arc<Snapshot>> = self.snapshots.iter().rev().cloned().collect();
        let (mut taken, mut nights) = (HashSet::new(), Vec::new());
        for snapshot in newest_first {
            let day = Which::Day(day_of(snapshot.started, &self.options.time_zone));
            let by_id = || Which::Id(snapshot.id.to_string());
            let may_be_meant = self.may_be_meant(&snapshot);
            for disk in &*self.disks_of(&snapshot)? {
                let which = if may_be_meant { day.clone() } else { by_id() };
                let name = ExportName { disk: disk.name.clone(), which };
                if taken.insert(name.to_string()) {
                    nights.push((name, snapshot.clone(), disk.clone()));
                }
            }
        }
        Ok(nights)
    }

    /// The disks of a snapshot, by name. Damage is reported, and what it hides is not found.
    fn disks_of(&mut self, snapshot: &Snapshot) -> Result<Arc<Vec<FoundDisk>>, Failure> {
        if let Some(disks) = self.disks.get(&snapshot.id) {
            return Ok(disks.clone());
        }
        let disks = match self.read_disks(snapshot) {
            Ok(disks) => Arc::new(disks),
            Err(failure) if failure.is_damage => {
                // It is looked at again, since it may be repaired, but reported once.
                if self.reported.insert(snapshot.id) {
                    let id = snapshot.id.short();
                    let message = format!("the disks of snapshot {id} cannot be found: {failure}");
                    let severity = Severity::Damage;
                    self.monitor.problem(Problem { severity, path: None, message: &message });
                }
                return Ok(Arc::default());
            }
            Err(failure) => return Err(failure),
        };
        self.disks.insert(snapshot.id, disks.clone());
        Ok(disks)
    }

    fn read_disks(&self, snapshot: &Snapshot) -> Result<Vec<FoundDisk>, Failure> {
        let shared = self.readers.of(&snapshot.domain)?;
        let mut disks = Vec::new();
        let mut machines = TreeReader::new(&snapshot.root, &*shared.chunks);
        let mut left = ENTRIES_MAX;
        for _ in 0..MACHINES_MAX {
            if !machines.advance()? {
                break;
            }
            let machine = machines.entry();
            let (Some(tree), Ok(name)) = (machine.tree(), std::str::from_utf8(&machine.name))
            else {
                continue;
            };
            let mut entries = TreeReader::new(tree, &*shared.chunks);
            while entries.advance()? {
                left -= 1;
                if left == 0 {
                    // Most snapshots are of files.
                    if disks.is_empty() {
                        return Ok(disks);
                    }
                    let id = snapshot.id.short();
                    let message = format!(
                        "snapshot {id} has too many files to be all of machines: only the first are disks"
                    );
                    let severity = Severity::Warning;
                    self.monitor.problem(Problem { severity, path: None, message: &message });
                    return Ok(disks);
                }
                let entry = entries.entry();
                let Some(recipe) = entry.content() else { continue };
                let Some(disk) = entry.name.strip_suffix(DISK_SUFFIX.as_bytes()) else { continue };
                let Ok(disk) = std::str::from_utf8(disk) else { continue };
                check_length(entry)?;
                let name = format!("{name}/{disk}");
                disks.push(FoundDisk { name, recipe: recipe.clone() });
            }
        }
        Ok(disks)
    }
}
