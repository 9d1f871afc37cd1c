//! The disks of a machine, and the files on them.
//!
//! A disk is one stream. It is cut where extents of files begin and where files end, and between
//! these places as a file is cut; so a file has the same chunks in every image that it is in, and
//! beside images (`docs/design/0031-images.md`). What no file system claims is cut at pages. What is
//! free counts as zeros. A map that is wrong costs space, never data: every byte of a disk that is
//! not called free is stored, no matter which file claims it.
//!
//! The files of each volume are an ordinary tree beside the disk, whose recipes name chunks of the
//! disk. So every verb over files works on them, and needs no file system to do so.
//!
//! ```text
//! volumes ─▶ gather ─▶ plan ─▶ cut (threads) ─▶ packer, recipe of the disk
//!                                           └─▶ whereabouts ─▶ trees of the volumes
//! ```

mod cut;
mod earlier;
mod gather;
mod map;
mod plan;

mod store;
mod trees;
mod unchanged;
mod walk;
mod whereabouts;

use std::ops::Range;
use std::path::Path;

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, SnapshotId, Stopwatch, Timestamp};
use strongroom_disk::{Image, ReadAt, Volume, VolumeReader};
use strongroom_repository::{
    ChunkReader, ChunkWriter, DISK_SUFFIX, PackOptions, Repository, RepositoryError,
};

use super::begun::{Begun, Made};
use super::profile::Profile;
use super::tally::Tally;
use super::totals::Totals;
use super::{BackupOptions, BackupOutcome, in_sessions};
use crate::error::EngineError;
use earlier::Earlier;
use gather::Gathered;
use plan::Plan;
use store::Storing;
use trees::MachineTree;
use unchanged::{Patched, Unchanged};

/// The folder of the volumes that are on more than one disk.
const LOGICAL_VOLUMES: &str = "lvm";
/// The folder of what describes the machine.
const DESCRIPTION: &str = "machine";
/// A block of a disk is closed at this many bytes. A night that is used as a disk is read a few
/// pages at a time from anywhere, and each miss of the cache opens a block.
const BLOCK_BYTES: usize = 256 << 10;

/// A disk of a machine.
pub struct Disk {
    /// What it is called in the machine, such as `vda`; the disk is stored as `vda.raw`, and its
    /// partitions in the folder `vda`.
    pub name: String,
    /// Its bytes, which must not change while they are read.
    pub image: Box<dyn Image>,
    /// What was written since it was stored last, if the disk says so.
    pub changed: Option<Changed>,
}

/// What was written to a disk since it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The snapshot that it was stored in.
    pub since: SnapshotId,
    /// At least what was written.
    pub ranges: Vec<Range<u64>>,
}

impl Disk {
    /// A disk that does not say what was written.
    pub fn new(name: impl Into<String>, image: Box<dyn Image>) -> Self {
        Self { name: name.into(), image, changed: None }
    }

    /// What was written since a snapshot, if the disk says so.
    fn changed_since(&self, snapshot: SnapshotId) -> Option<&[Range<u64>]> {
        let changed = self.changed.as_ref().filter(|changed| changed.since == snapshot)?;
        Some(&changed.ranges)
    }
}

/// What a machine is.
pub struct Machine {
    /// Its disks.
    pub disks: Vec<Disk>,
    /// What describes it: names, and the content of each.
    pub description: Vec<(String, Vec<u8>)>,
}

/// What is stored of a machine.
#[derive(Debug, Clone, Default)]
pub struct MachineOptions {
    /// Its name: the folder of the snapshot that holds everything.
    pub name: String,
    /// Store what file systems call free, as it is.
    pub keep_free: bool,
    /// Store the content of swap areas.
    pub keep_swap: bool,
}

/// A volume of the machine.
struct Mapped<'d> {
    volume: &'d Volume,
    reader: VolumeReader<'d>,
}

/// A backup of a machine that has begun: the names of its snapshot and of its parent are known, and
/// nothing was read of the disks.
pub struct MachineBackup<'r> {
    repository: &'r Repository,
    stored: &'r MachineOptions,
    options: &'r BackupOptions,
    started: Timestamp,
    paths: Vec<Vec<u8>>,
    begun: Begun<'r>,
}

/// Makes a snapshot of a machine.
///
/// # Errors
///
/// Those of [`MachineBackup::begin`] and [`MachineBackup::store`].
pub fn backup_machine(
    repository: &Repository,
    machine: &Machine,
    stored: &MachineOptions,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    check_machine(&machine.disks, stored)?;
    in_sessions(monitor, &mut || {
        MachineBackup::begin(repository, stored, options, monitor)?.store(machine, monitor, cancel)
    })
}

impl<'r> MachineBackup<'r> {
    /// Begins a session, and finds the parent.
    ///
    /// # Errors
    ///
    /// The machine's name is none, or the repository fails.
    pub fn begin(
        repository: &'r Repository,
        stored: &'r MachineOptions,
        options: &'r BackupOptions,
        monitor: &dyn Monitor,
    ) -> Result<Self, EngineError> {
        check_machine_name(stored)?;
        let started = repository.surroundings.clock.now();
        let paths = vec![[b"/", stored.name.as_bytes()].concat()];
        let begun = Begun::begin(repository, options, &paths, started, monitor)?;
        Ok(Self { repository, stored, options, started, paths, begun })
    }

    /// The snapshot that this makes.
    pub fn snapshot(&self) -> SnapshotId {
        self.begun.session.id
    }

    /// The snapshot that it is compared with.
    pub fn parent(&self) -> Option<SnapshotId> {
        self.begun.parent.as_ref().map(|parent| parent.id)
    }

    /// The disks that the machine has in the parent, and how long each is.
    pub fn parent_disks(&self) -> Vec<(String, u64)> {
        let Begun { parent, own, .. } = &self.begun;
        let reader = ChunkReader::for_parents(self.repository, own, CacheLimits::default());
        Earlier::of(parent.as_ref(), self.stored, &reader).disks()
    }

    /// Stores the machine, and commits the snapshot.
    ///
    /// # Errors
    ///
    /// A disk cannot be read at all, is [lost](EngineError::DiskBroken) meanwhile, or
    /// [differs](EngineError::DiskDenied) where it says that it does not; or the repository fails.
    /// Parts of a disk that cannot be read are problems: they are stored as zeros, and named.
    pub fn store(
        self,
        machine: &Machine,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<BackupOutcome, EngineError> {
        let Self { repository, stored: what, options, started, paths, begun } = self;
        let Machine { disks, description } = machine;
        check_machine(disks, what)?;
        let parent = begun.parent.as_ref();
        let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
        let block_bytes = options.pack.block_bytes.min(BLOCK_BYTES);
        let (pack, dry_run) = (PackOptions { block_bytes, ..options.pack }, options.dry_run);
        let mut writer =
            ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)?;
        let watch = Stopwatch::start();
        let times = writer.times().clone();
        let bytes = disks.iter().map(|disk| disk.image.size()).sum();
        let mut tally = Tally::new(monitor, Totals::of(disks.len() as u64, bytes));
        let before = Earlier::of(parent, what, &reader);
        // What was asked for now may not be what the parent left out.
        let holes_stay = !what.keep_free && !what.keep_swap;
        let unchanged = |disk: &Disk, holes_stay: bool| {
            let changed = disk.changed_since(parent?.id)?;
            let how = (day_of(started), holes_stay);
            Some(Unchanged::new(before.image(&disk.name)?, changed, &reader, how))
        };
        let patched: Vec<Patched<'_>> = disks
            .iter()
            .map(|disk| Patched::new(&*disk.image, unchanged(disk, holes_stay)))
            .collect();
        let readers: Vec<&dyn ReadAt> = patched.iter().map(|disk| disk as &dyn ReadAt).collect();
        let layout = strongroom_disk::volumes(&readers);
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        for finding in &layout.findings {
            tally.note(Path::new(&what.name), &finding.describe(&names));
        }
        let map = |volume| Mapped { volume, reader: VolumeReader::new(volume, &readers) };
        let mapped: Vec<Mapped<'_>> = layout.volumes.iter().map(map).collect();
        let mut gathered =
            Gathered::gather(disks, &mapped, what, &before, &reader, &mut tally, cancel)?;
        let swapped = std::mem::take(&mut gathered.swapped);
        let holes_stay = holes_stay && !gathered.is_hibernated;
        let unchanged = disks.iter().zip(&gathered.maps).map(|(disk, map)| {
            let mut unchanged = unchanged(disk, holes_stay);
            if let Some(unchanged) = &mut unchanged {
                unchanged.settle(Plan::new(map, disk.image.size()), &*disk.image, &writer)?;
            }
            Ok::<_, EngineError>(unchanged)
        });
        let unchanged = unchanged.collect::<Result<Vec<_>, _>>()?;
        let storing = Storing { repository, reader: &reader, before: &before, options, cancel };
        let stored =
            storing.store(disks, &patched, gathered, unchanged, &mut writer, &mut tally)?;
        let root = MachineTree {
            repository,
            disks,
            mapped: &mapped,
            name: &what.name,
            description,
            stored: &stored,
            swapped: &swapped,
            before: &before,
            reader: &reader,
            started,
            cancel,
        }
        .write(&mut writer, &mut tally)?;
        let needs = writer.needs();
        let written = writer.finish(monitor)?;
        let profile = Profile::new(watch.elapsed(), &times, options.readers, options.pack.workers);
        for disk in disks {
            if let Some(why) = disk.image.broken() {
                return Err(EngineError::DiskBroken { disk: disk.name.clone(), why });
            }
        }
        let made = Made {
            started,
            paths,
            root,
            counted: tally.counted,
            stopped: cancel.is_cancelled(),
            // A part of a disk boots nothing, and what was stored is found by the next backup.
            is_part_worth: false,
            needs,
            written,
            profile,
            guarantee: None,
        };
        begun.end(made, repository, options, monitor)
    }
}

/// Which day it is, for what takes turns by day.
fn day_of(time: Timestamp) -> u64 {
    const DAY: i64 = 86_400 * 1_000_000_000;
    time.0.div_euclid(DAY).unsigned_abs()
}

/// Checks the names of a machine and of its disks, which become names of files.
///
/// # Errors
///
/// One is no name of a file, or is there twice; or there is no disk.
pub fn check_machine(disks: &[Disk], stored: &MachineOptions) -> Result<(), EngineError> {
    let wrong = |message: String| Err(RepositoryError::Argument(message).into());
    check_machine_name(stored)?;
    if disks.is_empty() {
        return wrong("a machine without a disk: name its images".to_owned());
    }
    let mut taken = vec![LOGICAL_VOLUMES.to_owned(), DESCRIPTION.to_owned()];
    for disk in disks {
        let own = [disk.name.clone(), raw_name(&disk.name)];
        if !is_name(&disk.name) || own.iter().any(|name| taken.contains(name)) {
            return wrong(format!("\"{}\" cannot name a disk, or is taken", disk.name));
        }
        taken.extend(own);
    }
    Ok(())
}

fn check_machine_name(stored: &MachineOptions) -> Result<(), EngineError> {
    if is_name(&stored.name) {
        return Ok(());
    }
    let message = format!("\"{}\" cannot name a machine: it becomes a folder", stored.name);
    Err(RepositoryError::Argument(message).into())
}

fn is_name(name: &str) -> bool {
    strongroom_catalog::entry::is_valid_name(name.as_bytes()) && !name.starts_with('-')
}

/// The file that a disk is stored as.
fn raw_name(disk: &str) -> String {
    format!("{disk}{DISK_SUFFIX}")
}
