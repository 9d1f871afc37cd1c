//! Disks: every byte comes back, the files on them are ordinary files, and what is on several disks
//! or also a file is stored once.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use strongroom_base::{Cancel, Monitor, Silent};
use strongroom_disk::{Image, RawImage, ReadAt};
use strongroom_engine::{
    BackupOutcome, Disk, DiskOutcome, EngineError, Machine as Disks, MachineOptions,
    RestoreOptions, RestorePlace, backup_machine, disks_of, restore, restore_disk,
};
use strongroom_repository::read_snapshot;
use strongroom_source::TargetOptions;
use strongroom_testkit::tree::{grow, mutate};
use strongroom_testkit::{Image as TreeImage, Listener, Random, skipped};
use strongroom_upkeep::{PruneOptions, prune};

use crate::world::{TREE, World, options, run, snapshot_ids};

/// Where the partition begins.
const PARTITION: usize = 1 << 20;

#[track_caller]
pub fn tool(program: &str, args: &[impl AsRef<OsStr> + std::fmt::Debug]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}\n{output:?}");
}

pub fn cannot_mount() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount");
    }
    let loops = Command::new("losetup").arg("-f").output();
    (!loops.is_ok_and(|output| output.status.success())).then_some("there is no loop device")
}

/// A disk with a partition table and one ext4 file system, which the kernel writes.
pub struct Machine {
    pub folder: tempfile::TempDir,
}

impl Machine {
    pub fn new(megabytes: u64) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        let mut disk = vec![0; PARTITION];
        disk[440..444].copy_from_slice(b"boot");
        let sectors = u32::try_from((megabytes << 20) / 512).unwrap();
        disk[446 + 4] = 0x83;
        disk[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
        disk[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        fs::write(machine.disk(), disk).unwrap();
        let file = File::options().write(true).open(machine.disk()).unwrap();
        file.set_len(PARTITION as u64 + (megabytes << 20)).unwrap();
        let offset = format!("offset={PARTITION}");
        let path = machine.disk();
        let blocks = (megabytes * 256).to_string();
        let args = ["-q", "-t", "ext4", "-E", &offset, path.to_str().unwrap(), &blocks];
        tool("mke2fs", &[&["-b", "4096"][..], &args].concat());
        fs::create_dir(machine.folder.path().join("mounted")).unwrap();
        machine
    }

    pub fn disk(&self) -> PathBuf {
        self.folder.path().join("disk.raw")
    }

    /// Mounts the file system while something is done with its files.
    pub fn mounted<T>(&self, act: impl FnOnce(&Path) -> T) -> T {
        self.mounted_as("rw", act)
    }

    fn mounted_as<T>(&self, how: &str, act: impl FnOnce(&Path) -> T) -> T {
        let (disk, point) = (self.disk(), self.folder.path().join("mounted"));
        let options = format!("loop,{how},offset={PARTITION}");
        tool("mount", &["-o", &options, disk.to_str().unwrap(), point.to_str().unwrap()]);
        let done = act(&point);
        // A child that another test is starting has our descriptors until it runs its program.
        let unmounted = (0..50).any(|_| {
            let done = Command::new("umount").arg(&point).output().unwrap().status.success();
            if !done {
                std::thread::sleep(Duration::from_millis(100));
            }
            done
        });
        assert!(unmounted, "{point:?} stays in use");
        done
    }

    fn image(&self) -> Box<dyn Image> {
        Box::new(RawImage::open(&self.disk()).unwrap())
    }

    /// What is in the files, without what the file system has of its own.
    pub fn files(&self) -> TreeImage {
        self.mounted_as("ro", |point| TreeImage::of(&point.join("tree")))
    }
}

pub fn machine_options(keep_free: bool) -> MachineOptions {
    MachineOptions { name: "vm1".to_owned(), keep_free, keep_swap: false }
}

pub fn described(disk: Disk) -> Disks {
    let description = vec![("about".to_owned(), b"a machine".to_vec())];
    Disks { disks: vec![disk], description }
}

pub fn try_backup(
    world: &World,
    image: Box<dyn Image>,
    keep_free: bool,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let machine = described(Disk::new("vda", image));
    let mut options = options(Path::new("/"));
    options.host = "vm1".to_owned();
    backup_machine(&world.open(), &machine, &machine_options(keep_free), &options, monitor, cancel)
}

fn backup(world: &World, machine: &Machine, keep_free: bool) -> BackupOutcome {
    let outcome = try_backup(world, machine.image(), keep_free, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.snapshot.stats.problems, 0);
    assert!(outcome.committed);
    outcome
}

pub fn restore_into(world: &World, outcome: &BackupOutcome, into: &Path) -> DiskOutcome {
    let repository = world.open();
    let snapshot = read_snapshot(&repository, outcome.snapshot.id).unwrap();
    let target = File::options().read(true).write(true).create(true).truncate(false).open(into);
    let disks = disks_of(&repository, &snapshot, b"").unwrap();
    assert_eq!((disks.len(), &disks[0].path[..]), (1, &b"/vm1/vda.raw"[..]));
    restore_disk(&repository, &disks[0], &target.unwrap(), &Silent, &Cancel::new()).unwrap()
}

/// The files of the partition, restored as files.
pub fn restored_files(world: &World, outcome: &BackupOutcome) -> TreeImage {
    let into = tempfile::tempdir().unwrap();
    let repository = world.open();
    let snapshot = read_snapshot(&repository, outcome.snapshot.id).unwrap();
    let options = RestoreOptions {
        filter: None,
        path: b"/vm1/vda/p1/tree".to_vec(),
        place: RestorePlace::Into(into.path().join("tree")),
        target: TargetOptions::default(),
        kept: Vec::new(),
        dry_run: false,
        verify: true,
        workers: 2,
    };
    let done = restore(&repository, &snapshot, &options, &Silent, &Cancel::new()).unwrap();
    assert_eq!((done.problems, done.damaged.len()), (0, 0));
    TreeImage::of(&into.path().join("tree"))
}

/// The restored disk has a sound file system with the same files.
pub fn assert_same_machine(machine: &Machine, restored: &Path) {
    let copy = Machine { folder: tempfile::tempdir().unwrap() };
    fs::create_dir(copy.folder.path().join("mounted")).unwrap();
    fs::copy(restored, copy.disk()).unwrap();
    let part = copy.folder.path().join("part");
    fs::write(&part, &fs::read(restored).unwrap()[PARTITION..]).unwrap();
    tool("e2fsck", &["-f", "-n", part.to_str().unwrap()]);
    machine.files().assert_same(&copy.files(), "the files of the restored disk");
}

#[test]
fn a_disk_comes_back_night_after_night_and_its_files_are_files() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(81);
    let machine = Machine::new(64);
    machine.mounted(|point| {
        grow(&point.join("tree"), 81, TREE);
        fs::write(point.join("tree/large"), Random::new(5).noise(3 << 20)).unwrap();
        fs::write(point.join("gone"), Random::new(6).noise(3 << 20)).unwrap();
    });
    machine.mounted(|point| fs::remove_file(point.join("gone")).unwrap());
    let bytes = fs::read(machine.disk()).unwrap();
    let back = machine.folder.path().join("back");
    let whole = backup(&world, &machine, true);
    restore_into(&world, &whole, &back);
    assert!(fs::read(&back).unwrap() == bytes, "byte for byte");

    // What is free counts as zeros, and nothing else does.
    let sparse = backup(&world, &machine, false);
    assert!(sparse.snapshot.stats.bytes_new < 200_000, "{:?}", sparse.snapshot.stats);
    restore_into(&world, &sparse, &back);
    let restored = fs::read(&back).unwrap();
    assert!(restored != bytes && restored.len() == bytes.len());
    let differs = |(one, other): (&u8, &u8)| one != other && *one != 0;
    assert!(!restored.iter().zip(&bytes).any(differs), "what is not zeros is what it was");
    assert_same_machine(&machine, &back);
    restored_files(&world, &sparse).assert_same(&machine.files(), "the first night");
    let again = backup(&world, &machine, false);
    assert_eq!((again.snapshot.stats.bytes_new, again.files_changed, again.files_new), (0, 0, 0));

    for night in 0..3 {
        machine.mounted(|point| {
            mutate(&point.join("tree"), 90 + night, TREE);
            let mut large = fs::read(point.join("tree/large")).unwrap();
            large.splice(1000..1000, *b"inserted");
            fs::write(point.join("tree/large"), large).unwrap();
        });
        let next = backup(&world, &machine, false);
        let written = restore_into(&world, &next, &back).bytes_written;
        assert!(written < 8 << 20, "only what differs: {written}");
        assert_same_machine(&machine, &back);
        restored_files(&world, &next).assert_same(&machine.files(), "a later night");
        // A file that was rewritten elsewhere is a delta of what it was: by its path.
        let stored = next.snapshot.stats.bytes_stored;
        assert!(stored < 1 << 20, "three megabytes were rewritten, {stored} stored");
    }
}

#[test]
fn what_is_stored_as_files_is_not_stored_again_as_a_disk() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(82);
    grow(&world.tree(), 82, TREE);
    for number in 0..40 {
        let bytes = 100_000 + number * 7001;
        fs::write(
            world.tree().join(format!("f{number}")),
            Random::new(number).noise(bytes as usize),
        )
        .unwrap();
    }
    let files = run(&world.open(), &options(&world.tree()), &Silent).unwrap();
    let machine = Machine::new(64);
    machine.mounted(|point| {
        tool("cp", &["-a", world.tree().to_str().unwrap(), point.join("tree").to_str().unwrap()]);
    });
    let disk = backup(&world, &machine, false);
    let (of_files, of_disk) = (files.snapshot.stats.bytes_new, disk.snapshot.stats.bytes_new);
    assert!(of_disk * 100 < of_files * 12, "{of_disk} new after {of_files}");
    // A second machine with the same files, in another order.
    let second = Machine::new(80);
    second.mounted(|point| {
        fs::write(point.join("own"), Random::new(1000).noise(300_000)).unwrap();
        let mut names: Vec<_> = fs::read_dir(world.tree()).unwrap().collect();
        names.reverse();
        fs::create_dir(point.join("tree")).unwrap();
        for name in names {
            let path = name.unwrap().path();
            tool("cp", &[OsStr::new("-a"), path.as_os_str(), point.join("tree").as_os_str()]);
        }
        fs::remove_file(point.join("own")).unwrap();
    });
    let second = backup(&world, &second, false);
    let of_second = second.snapshot.stats.bytes_new;
    assert!(of_second * 100 < of_files * 8, "{of_second} new after {of_files}");
}

/// An image with a part that cannot be read.
pub struct Failing(pub Vec<u8>, pub Range<u64>);

impl ReadAt for Failing {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        if offset < self.1.end && self.1.start < end {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.0.read_at(offset, buffer)
    }
}

impl Image for Failing {}

#[test]
fn a_sector_that_cannot_be_read_is_named_and_the_rest_is_stored() {
    let world = World::bare(83);
    let mut bytes = Random::new(7).noise(5 << 20);
    let lost = (2 << 20) + 512..(2 << 20) + 6000;
    let image = Box::new(Failing(bytes.clone(), lost.start as u64..lost.end as u64));
    let listener = Listener::new();
    let outcome = try_backup(&world, image, false, &listener, &Cancel::new()).unwrap();
    assert_eq!(outcome.snapshot.stats.problems, 1, "{:?}", listener.problems());
    let said = format!("{:?}", listener.problems());
    assert!(said.contains("8192 bytes from byte 2097152 on cannot be read"), "{said}");
    let back = tempfile::NamedTempFile::new().unwrap();
    restore_into(&world, &outcome, back.path());
    bytes[2 << 20..(2 << 20) + 8192].fill(0);
    assert!(fs::read(back.path()).unwrap() == bytes);
}

/// An image that is gone once this much of it was read.
struct Gone {
    bytes: u64,
    left: AtomicU64,
}

impl ReadAt for Gone {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
        let count = buffer.len() as u64;
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(count))
        });
        if left == Ok(0) {
            return Err(io::Error::from_raw_os_error(5));
        }
        buffer.fill(7);
        Ok(())
    }
}

impl Image for Gone {}

#[test]
fn a_disk_that_is_gone_is_no_snapshot_of_zeros() {
    let world = World::bare(88);
    for (bytes, left) in [(4096, 0), (5 << 20, 0), (20 << 20, 10 << 20), (200 << 20, 10 << 20)] {
        let (image, listener) = (Box::new(Gone { bytes, left: left.into() }), Listener::new());
        let gone = try_backup(&world, image, false, &listener, &Cancel::new()).map(|_| ());
        let gone = gone.unwrap_err();
        assert!(matches!(gone, EngineError::DiskBroken { .. }), "{gone}");
        assert!(gone.to_string().contains("none of it can be read any more"), "{gone}");
        // It ends long before all of it is lost.
        assert!(listener.problems().len() < 20, "{:?}", listener.problems());
    }
    assert_eq!(snapshot_ids(&world.open()), []);
}

#[test]
fn a_target_that_cannot_be_read_is_written() {
    let world = World::bare(89);
    let bytes = Random::new(9).noise(3 << 20);
    let image = Box::new(Failing(bytes.clone(), 0..0));
    let outcome = try_backup(&world, image, false, &Silent, &Cancel::new()).unwrap();
    let repository = world.open();
    let snapshot = read_snapshot(&repository, outcome.snapshot.id).unwrap();
    let disk = disks_of(&repository, &snapshot, b"").unwrap().remove(0);
    let target = tempfile::NamedTempFile::new().unwrap();
    fs::write(target.path(), &bytes[1..]).unwrap();
    let unreadable = File::options().write(true).open(target.path()).unwrap();
    let done = restore_disk(&repository, &disk, &unreadable, &Silent, &Cancel::new()).unwrap();
    assert_eq!((done.bytes_written, done.is_damaged()), (3 << 20, false));
    assert!(fs::read(target.path()).unwrap() == bytes);
}

/// An image whose file system is gone once its end was read.
struct Vanishing {
    bytes: Vec<u8>,
    is_gone: AtomicBool,
}

impl ReadAt for Vanishing {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        self.bytes.read_at(offset, buffer)?;
        if self.is_gone.fetch_or(end == self.size(), Ordering::Relaxed) {
            buffer.fill(0);
        }
        Ok(())
    }
}

impl Image for Vanishing {}

#[test]
fn a_file_system_that_is_not_found_again_is_a_problem() {
    let world = World::bare(87);
    let bytes = fs::read(Machine::new(16).disk()).unwrap();
    let image = Box::new(Vanishing { bytes, is_gone: AtomicBool::new(false) });
    let listener = Listener::new();
    let outcome = try_backup(&world, image, true, &listener, &Cancel::new()).unwrap();
    assert_eq!(outcome.snapshot.stats.problems, 1, "{:?}", listener.problems());
    let said = format!("{:?}", listener.problems());
    assert!(said.contains("its files are not listed"), "{said}");
}

#[test]
fn half_of_a_disk_is_no_snapshot() {
    let world = World::bare(84);
    let image = Box::new(Failing(Random::new(8).noise(3 << 20), 0..0));
    let cancel = Cancel::new();
    cancel.cancel();
    try_backup(&world, image, false, &Silent, &cancel).unwrap_err();
    assert_eq!(snapshot_ids(&world.open()), []);
}

/// An image that is stopped at one of its readings.
struct Stopping {
    bytes: Vec<u8>,
    left: AtomicU64,
    cancel: Cancel,
}

impl ReadAt for Stopping {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.cancel.cancel();
        }
        self.bytes.read_at(offset, buffer)
    }
}

impl Image for Stopping {}

/// Stopped at any moment, a backup of a disk leaves nothing that is taken for a snapshot that was removed.
#[test]
fn a_disk_of_which_the_backup_was_stopped_is_no_lost_snapshot() {
    let world = World::bare(86);
    let bytes = |seed: u64| Random::new(seed).noise(6 << 20);
    try_backup(&world, Box::new(Failing(bytes(1), 0..0)), false, &Silent, &Cancel::new()).unwrap();
    let mut stopped = 0;
    for moment in 1..200 {
        let cancel = Cancel::new();
        let (bytes, left) = (bytes(1 + moment), AtomicU64::new(moment));
        let image = Box::new(Stopping { bytes, left, cancel: cancel.clone() });
        let outcome = try_backup(&world, image, false, &Silent, &cancel);
        stopped += u64::from(outcome.as_ref().is_ok_and(|outcome| !outcome.committed));
        for _ in 0..2 {
            let options = PruneOptions::default();
            let pruned = prune(&world.open(), &options, &Silent, &Cancel::new()).unwrap();
            assert_eq!(pruned.lost, [], "stopped at {moment}: {outcome:?}");
        }
        if !cancel.is_cancelled() {
            break;
        }
    }
    assert!(stopped > 0, "it was never stopped");
}

#[test]
fn names_that_would_be_in_each_others_place_are_refused() {
    let world = World::bare(85);
    let image = || Box::new(Failing(vec![1; 4096], 0..0)) as Box<dyn Image>;
    let disk = |name: &str| Disk::new(name, image());
    let named =
        |machine: &str| MachineOptions { name: machine.to_owned(), ..machine_options(false) };
    for (machine, disks) in [
        ("a/b", vec![disk("vda")]),
        ("", vec![disk("vda")]),
        ("vm", vec![]),
        ("vm", vec![disk("vda"), disk("vda")]),
        ("vm", vec![disk("vda"), disk("vda.raw")]),
        ("vm", vec![disk("lvm")]),
        ("vm", vec![disk("machine")]),
        ("vm", vec![disk("..")]),
        // It is a name, and that of its file would be none.
        ("vm", vec![disk(&"x".repeat(1022))]),
    ] {
        let options = options(Path::new("/"));
        let (stored, cancel) = (named(machine), Cancel::new());
        let machine = Disks { disks, description: Vec::new() };
        let refused = backup_machine(&world.open(), &machine, &stored, &options, &Silent, &cancel);
        refused.unwrap_err();
    }
    assert_eq!(snapshot_ids(&world.open()), []);
}
