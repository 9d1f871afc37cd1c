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

use std::borrow::Borrow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, SnapshotId, Stopwatch, Timestamp};
use strongroom_catalog::{Guarantee, Snapshot};
use strongroom_disk::{Image, ReadAt, Volume, VolumeReader};
use strongroom_repository::{
    ChunkReader, ChunkWriter, DISK_SUFFIX, PackOptions, Repository, RepositoryError,
};

use super::begun::{Begun, Made};
use super::profile::Profile;
use super::region::{Region, RegionCounts, RegionFile, Regions, check_regions};
use super::tally::Tally;
use super::totals::Totals;
use super::trees::RootTree;
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
/// The folder of its memory.
const MEMORY: &str = "memory";
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

/// What storing a machine did.
#[derive(Debug, Clone)]
pub struct MachineOutcome {
    /// The snapshot.
    pub backup: BackupOutcome,
    /// What was found of its memory.
    pub memory: Option<RegionCounts>,
}

/// Stops a machine and gives its disks; meanwhile it calls what reads the rest of its memory.
pub type Take<'t, M, E> =
    &'t mut dyn FnMut(&mut dyn FnMut() -> Result<(), EngineError>) -> Result<M, E>;

/// Where a part of a machine's memory is in the snapshot.
pub fn memory_path(machine: &str, id: &str) -> PathBuf {
    Path::new("/").join(machine).join(MEMORY).join(id)
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
        check_machine(&machine.disks, self.stored)?;
        let stored = self.store_with_memory(&[], &mut |_| Ok(machine), monitor, cancel);
        stored.map(|outcome| outcome.backup)
    }

    /// Stores the machine and its memory, whose regions are at [`memory_path`], and commits the
    /// snapshot. The memory is read while the machine runs; then `take` stops it, reads the rest of
    /// the memory by what it is given, and gives the disks as they are at the same instant.
    ///
    /// # Errors
    ///
    /// Those of `take` and of [`store`](Self::store).
    pub fn store_with_memory<M: Borrow<Machine>, E: From<EngineError>>(
        self,
        regions: &[Region],
        take: Take<'_, M, E>,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<MachineOutcome, E> {
        let Self { repository, stored: what, options, started, paths, begun } = self;
        let has_memory = !regions.is_empty();
        if has_memory {
            // What the guest knows in memory, its disk may not say yet.
            assert!(what.keep_free && what.keep_swap, "all of its disks is stored with its memory");
            check_regions(regions)?;
        }
        let parent = begun.parent.as_ref();
        let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
        let block_bytes = options.pack.block_bytes.min(BLOCK_BYTES);
        let (pack, dry_run) = (PackOptions { block_bytes, ..options.pack }, options.dry_run);
        let mut writer =
            ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)
                .map_err(EngineError::from)?;
        let watch = Stopwatch::start();
        let times = writer.times().clone();
        let before = Earlier::of(parent, what, &reader);
        let of_memory: u64 = regions.iter().map(|region| region.memory.bytes()).sum();
        let known = before.disks().iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut tally = Tally::new(monitor, Totals::of(regions.len() as u64, of_memory + known));
        let mut memory = Regions::begin((repository, &reader), regions, parent, options, cancel)?;
        memory.compare_with_parent(&mut writer, &mut tally)?;
        if has_memory {
            // What changed meanwhile need not be stored while the machine is paused.
            memory.settle(&mut writer)?;
        }
        let machine = take(&mut || memory.settle(&mut writer).map(|_| ()))?;
        let Machine { disks, description } = machine.borrow();
        check_machine(disks, what)?;
        let bytes: u64 = disks.iter().map(|disk| disk.image.size()).sum();
        tally.expect(Totals::of((regions.len() + disks.len()) as u64, of_memory + bytes));
        let (turn, memory) = (memory.turn(), memory.finish(&mut writer, &mut tally)?);
        let storing = Storing { repository, reader: &reader, before: &before, options, cancel };
        let night = Night { what, started, parent, description, memory: &memory.files };
        let root = store_disks(&storing, disks, &night, &mut writer, &mut tally)?;
        // They were not asked for.
        tally.counted.stats.bytes -= memory.marks_bytes;
        tally.counted.stats.files -= regions.len() as u64;
        let needs = writer.needs();
        let written = writer.finish(monitor).map_err(EngineError::from)?;
        let profile = Profile::new(watch.elapsed(), &times, options.readers, options.pack.workers);
        for disk in disks {
            if let Some(why) = disk.image.broken() {
                begun.session.give_up();
                return Err(EngineError::DiskBroken { disk: disk.name.clone(), why }.into());
            }
        }
        let stopped = Guarantee::new(Guarantee::EXACT, Guarantee::MACHINE_STOPPED);
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
            guarantee: has_memory.then_some(Guarantee { turn, ..stopped }),
        };
        let backup = begun.end(made, repository, options, monitor)?;
        Ok(MachineOutcome { backup, memory: has_memory.then_some(memory.counts) })
    }
}

/// What a snapshot of a machine has besides its disks.
struct Night<'n> {
    what: &'n MachineOptions,
    started: Timestamp,
    parent: Option<&'n Snapshot>,
    description: &'n [(String, Vec<u8>)],
    memory: &'n [RegionFile],
}

/// Stores the disks, and writes the trees.
fn store_disks<'r>(
    storing: &Storing<'_, 'r>,
    disks: &[Disk],
    night: &Night<'_>,
    writer: &mut ChunkWriter<'r>,
    tally: &mut Tally<'_>,
) -> Result<RootTree, EngineError> {
    let Night { what, started, parent, description, memory } = *night;
    let Storing { repository, reader, before, cancel, .. } = *storing;
    // A parent with memory left nothing out but zeros.
    let holes_are_zeros = parent.is_some_and(|parent| parent.guarantee.is_some());
    // Zeros that were stored in place of what could not be read were not written either.
    let whole = parent.filter(|_| !before.has_lost);
    let unchanged = |disk: &Disk| {
        let changed = disk.changed_since(whole?.id)?;
        let how = (day_of(started), holes_are_zeros);
        Some(Unchanged::new(before.image(&disk.name)?, changed, reader, how))
    };
    let patched: Vec<Patched<'_>> =
        disks.iter().map(|disk| Patched::new(&*disk.image, unchanged(disk))).collect();
    let readers: Vec<&dyn ReadAt> = patched.iter().map(|disk| disk as &dyn ReadAt).collect();
    let layout = strongroom_disk::volumes(&readers);
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    for finding in &layout.findings {
        tally.note(Path::new(&what.name), &finding.describe(&names));
    }
    let map = |volume| Mapped { volume, reader: VolumeReader::new(volume, &readers) };
    let mapped: Vec<Mapped<'_>> = layout.volumes.iter().map(map).collect();
    let mut gathered = Gathered::gather(disks, &mapped, what, before, reader, tally, cancel)?;
    if !memory.is_empty() {
        gathered.add_holes(disks);
    }
    let (swapped, listed) =
        (std::mem::take(&mut gathered.swapped), std::mem::take(&mut gathered.listed));
    let unchanged = disks.iter().zip(&gathered.maps).zip(&patched).map(|((disk, map), patched)| {
        let mut unchanged = unchanged(disk);
        if let Some(unchanged) = &mut unchanged {
            if patched.has_failed() {
                unchanged.keep_on_disk();
            }
            let plan = Plan::new(map, disk.image.size());
            patched.set_released(unchanged.settle(plan, &*disk.image, writer)?);
        }
        Ok::<_, EngineError>(unchanged)
    });
    let unchanged = unchanged.collect::<Result<Vec<_>, _>>()?;
    let stored = storing.store(disks, &patched, gathered, unchanged, writer, tally)?;
    if cancel.is_cancelled() {
        // That is never taken back: there will be no snapshot, so there is no tree that could be taken for
        // that of one.
        return Ok(RootTree::default());
    }
    MachineTree {
        repository,
        disks,
        mapped: &mapped,
        name: &what.name,
        description,
        memory,
        stored: &stored,
        swapped: &swapped,
        listed: &listed,
        before,
        reader,
        started,
        cancel,
    }
    .write(writer, tally)
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
    let mut taken = [LOGICAL_VOLUMES, DESCRIPTION, MEMORY].map(str::to_owned).to_vec();
    for disk in disks {
        let own = [disk.name.clone(), raw_name(&disk.name)];
        if !own.iter().all(|name| is_name(name) && !taken.contains(name)) {
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
