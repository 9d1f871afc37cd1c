//! Nights of disks that say what was written: only that is read, and what comes back is the disk.

mod btrfs;
mod unreadable;

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use strongroom_arena::{ArenaContent, ArenaName};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_disk::{Image, ReadAt};
use strongroom_engine::{BackupOutcome, Changed, Disk, EngineError, MachineBackup, cat};
use strongroom_repository::{Repository, read_snapshot};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::tree::{grow, mutate};
use strongroom_testkit::{Listener, Random, skipped};

use crate::images::{
    Machine, assert_same_machine, cannot_mount, described, machine_options, restore_into,
    restored_files, tool,
};
use crate::world::{TREE, World, options, snapshot_ids};

/// What a disk notes as written is a multiple of this.
const GRAIN: usize = 64 << 10;

/// A disk that counts what is read, and gives nothing that was released.
#[derive(Default)]
struct Watched {
    bytes: Vec<u8>,
    read: AtomicU64,
    released: Mutex<Vec<Range<u64>>>,
    /// It is lost once this much was read.
    breaks_at: Option<u64>,
    /// It cannot be read here.
    bad: Range<u64>,
    is_broken: AtomicBool,
}

impl ReadAt for &'static Watched {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        let read = self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let released = self.released.lock().unwrap();
        let is_released = released.iter().any(|range| range.start < end && offset < range.end);
        assert!(!is_released, "{offset}..{end} was released");
        if self.breaks_at.is_some_and(|at| read >= at) {
            self.is_broken.store(true, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(22));
        }
        if offset < self.bad.end && self.bad.start < end {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.bytes.read_at(offset, buffer)
    }
}

impl Image for &'static Watched {
    fn release(&self, range: Range<u64>) {
        self.released.lock().unwrap().push(range);
    }

    fn broken(&self) -> Option<String> {
        self.is_broken.load(Ordering::Relaxed).then(|| "its store is full".to_owned())
    }
}

/// Where two states of a disk differ, in grains.
fn written(before: &[u8], now: &[u8]) -> Vec<Range<u64>> {
    let grains = now.chunks(GRAIN).enumerate().filter(|(number, grain)| {
        let start = number * GRAIN;
        before.get(start..start + grain.len()) != Some(grain)
    });
    let range = |(number, grain): (usize, &[u8])| {
        let start = (number * GRAIN) as u64;
        start..start + grain.len() as u64
    };
    grains.map(range).collect()
}

/// What a night did, and what it read.
struct Night {
    outcome: BackupOutcome,
    read: u64,
    /// What is not read any more.
    released: Vec<Range<u64>>,
}

impl Night {
    /// Where what is read begins although it was not written: the sample of the day.
    fn sample(&self) -> u64 {
        let next = |at, range: &Range<u64>| if range.start <= at { range.end } else { at };
        self.released.iter().fold(0, next)
    }
}

fn try_night(
    world: &World,
    watched: Watched,
    changed: Option<Changed>,
    keep_free: bool,
) -> Result<Night, EngineError> {
    try_night_in(&world.open(), watched, changed, keep_free)
}

fn try_night_in(
    repository: &Repository,
    watched: Watched,
    changed: Option<Changed>,
    keep_free: bool,
) -> Result<Night, EngineError> {
    let mut options = options(Path::new("/"));
    options.host = "vm1".to_owned();
    let stored = machine_options(keep_free);
    let begun = MachineBackup::begin(repository, &stored, &options, &Silent)?;
    // A test may forget a few megabytes.
    let watched: &'static Watched = Box::leak(Box::new(watched));
    let disk = Disk { changed, ..Disk::new("vda", Box::new(watched)) };
    let outcome = begun.store(&described(disk), &Silent, &Cancel::new())?;
    let released = watched.released.lock().unwrap().clone();
    Ok(Night { outcome, read: watched.read.load(Ordering::Relaxed), released })
}

fn night(world: &World, bytes: &[u8], changed: Option<Changed>, keep_free: bool) -> Night {
    let watched = Watched { bytes: bytes.to_vec(), ..Watched::default() };
    let night = try_night(world, watched, changed, keep_free).unwrap();
    assert_eq!(night.outcome.snapshot.stats.problems, 0);
    night
}

fn since(snapshot: SnapshotId, before: &[u8], now: &[u8]) -> Option<Changed> {
    Some(Changed { since: snapshot, ranges: written(before, now) })
}

fn content(world: &World, outcome: &BackupOutcome, path: &str) -> Vec<u8> {
    let repository = world.open();
    let snapshot = read_snapshot(&repository, outcome.snapshot.id).unwrap();
    let mut bytes = Vec::new();
    cat(&repository, &snapshot, path.as_bytes(), &mut bytes).unwrap();
    bytes
}

fn restored(world: &World, outcome: &BackupOutcome) -> Vec<u8> {
    let back = tempfile::NamedTempFile::new().unwrap();
    restore_into(world, outcome, back.path());
    fs::read(back.path()).unwrap()
}

#[test]
fn only_what_was_written_is_read_and_the_files_are_those_of_the_night() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(91);
    let machine = Machine::new(96);
    machine.mounted(|point| {
        grow(&point.join("tree"), 91, TREE);
        for number in 0..20 {
            let bytes = Random::new(number).noise(1 << 20);
            fs::write(point.join(format!("tree/large{number}")), bytes).unwrap();
        }
    });
    let mut before = fs::read(machine.disk()).unwrap();
    let first = night(&world, &before, None, false);
    let mut parent = first.outcome.snapshot.id;
    let back = machine.folder.path().join("back");
    for number in 0..4 {
        machine.mounted(|point| {
            mutate(&point.join("tree"), 92 + number, TREE);
            fs::write(point.join("tree/large3"), Random::new(50 + number).noise(1 << 20)).unwrap();
            fs::remove_file(point.join(format!("tree/large{}", 10 + number))).unwrap();
        });
        let now = fs::read(machine.disk()).unwrap();
        let changed = since(parent, &before, &now);
        let dirty: u64 = written(&before, &now).iter().map(|range| range.end - range.start).sum();
        let next = night(&world, &now, changed, false);
        // Two windows at most are the sample, and chunks end behind them and at the end of the disk. Zeros
        // that ext4 has in use, its tables of inodes and most of its journal, were holes of the parent.
        let most = dirty + (2 << 20) + 600_000 + (11 << 20);
        assert!(next.read < most, "{} read, {dirty} written", next.read);
        restore_into(&world, &next.outcome, &back);
        assert_same_machine(&machine, &back);
        restored_files(&world, &next.outcome).assert_same(&machine.files(), "the night's files");
        (before, parent) = (now, next.outcome.snapshot.id);
    }
}

#[test]
fn any_writes_to_a_disk_of_any_size_come_back() {
    let world = World::bare(93);
    let mut random = Random::new(93);
    let mut before = random.noise(3 << 20);
    let mut parent = night(&world, &before, None, true).outcome.snapshot.id;
    for _ in 0..30 {
        let mut now = before.clone();
        match random.below(6) {
            0 => now.truncate(now.len() - random.below(500_000) as usize),
            1 => now.extend(vec![0; random.below(500_000) as usize]),
            _ => {}
        }
        for _ in 0..random.below(5) {
            let from = random.below(now.len() as u64) as usize;
            let bytes = (random.below(150_000) as usize).min(now.len() - from);
            let new = match random.once_in(3) {
                true => vec![0; bytes],
                false => random.noise(bytes),
            };
            now[from..from + bytes].copy_from_slice(&new);
        }
        // Ranges may overlap, be empty, be out of order, and end behind the disk.
        let mut changed = since(parent, &before, &now).unwrap();
        changed.ranges.reverse();
        changed.ranges.push(5..5);
        changed.ranges.push(70_000..90_000);
        changed.ranges.push(now.len() as u64..u64::MAX);
        let next = night(&world, &now, Some(changed), random.once_in(2));
        assert!(restored(&world, &next.outcome) == now);
        (before, parent) = (now, next.outcome.snapshot.id);
    }
}

/// Nodes of the parent's long recipe are lost: what is behind them keeps its place, and what they named is
/// read from the disk.
#[test]
fn what_is_behind_a_lost_node_of_the_parent_keeps_its_place() {
    if skipped(cannot_mount()) {
        return;
    }
    let mut world = World::bare(95);
    world.limits.recipe_refs_max = 1;
    (world.limits.node_refs_min, world.limits.node_refs_max) = (2, 2);
    let machine = Machine::new(96);
    machine.mounted(|point| {
        for number in 0..20 {
            let bytes = Random::new(number).noise(300_000);
            fs::write(point.join(format!("file{number}")), bytes).unwrap();
        }
    });
    let before = fs::read(machine.disk()).unwrap();
    let first = night(&world, &before, None, true).outcome.snapshot.id;
    let of_first = world.objects.snapshot();
    machine.mounted(|point| {
        for number in [3, 9, 15] {
            fs::write(point.join(format!("file{number}")), Random::new(50).noise(300_000)).unwrap();
        }
    });
    let bytes = fs::read(machine.disk()).unwrap();
    let changed = since(first, &before, &bytes);
    let parent = night(&world, &bytes, changed, true).outcome.snapshot.id;
    let whole = world.objects.snapshot();
    let is_metadata = |name: &ObjectName| {
        ArenaContent::of(ArenaName::of(name).unwrap().id) == ArenaContent::Metadata
    };
    for name in names_in(&of_first, "arenas").into_iter().filter(is_metadata).take(3) {
        world.objects.remove(&name).unwrap();
        let nothing = Some(Changed { since: parent, ranges: Vec::new() });
        let next = night(&world, &bytes, nothing, true);
        assert!(restored(&world, &next.outcome) == bytes, "without {name}");
        world.objects = Arc::new(MemoryBackend::from_snapshot(whole.clone()));
    }
}

#[test]
fn what_was_written_since_another_snapshot_says_nothing() {
    let world = World::bare(94);
    let mut bytes = Random::new(94).noise(1 << 20);
    let first = night(&world, &bytes, None, false).outcome.snapshot.id;
    let second = night(&world, &bytes, None, false);
    bytes[7] ^= 1;
    let nothing = Some(Changed { since: first, ranges: Vec::new() });
    let third = night(&world, &bytes, nothing, false);
    assert_eq!(third.read, second.read);
    assert!(restored(&world, &third.outcome) == bytes);
}

#[test]
fn a_disk_that_lies_about_what_was_written_is_found_out_by_the_sample() {
    let world = World::bare(95);
    let mut bytes = Random::new(95).noise(51 << 20);
    let claim = |since| Some(Changed { since, ranges: Vec::new() });
    let first = night(&world, &bytes, None, false).outcome.snapshot.id;
    let honest = night(&world, &bytes, claim(first), false);
    let last = honest.outcome.snapshot.id;
    let lie = honest.sample() + 77_777;
    assert!(lie < 50 << 20, "what is at the end is in each sample");
    bytes[lie as usize] ^= 1;
    let watched = || Watched { bytes: bytes.clone(), ..Watched::default() };
    let denied = try_night(&world, watched(), claim(last), false).map(|_| ()).unwrap_err();
    let EngineError::DiskDenied { disk, offset } = &denied else { panic!("{denied}") };
    assert!(disk == "vda" && (lie - (1 << 20)..=lie).contains(offset), "{denied}");
    assert_eq!(snapshot_ids(&world.open()).len(), 2);
    // Read as a whole, it is right again.
    let next = night(&world, &bytes, None, false);
    assert!(restored(&world, &next.outcome) == bytes);
}

/// Made smaller and larger again, a disk has zeros at its end, and QEMU says that nothing was written.
#[test]
fn a_disk_that_has_grown_back_is_found_out_the_same_night() {
    let world = World::bare(104);
    let mut bytes = Random::new(104).noise(52 << 20);
    let first = night(&world, &bytes, None, false).outcome.snapshot;
    let nothing = Some(Changed { since: first.id, ranges: Vec::new() });
    let sample = night(&world, &bytes, nothing, false).sample();
    // The windows of the day are not at the end.
    let end = if sample < 3 << 20 { 48 << 20 } else { 52 << 20 };
    bytes.truncate(end);
    let first = night(&world, &bytes, None, false).outcome.snapshot.id;
    bytes[end - (1 << 19)..].fill(0);
    // The table at the end was written again.
    let table = end - (64 << 10);
    bytes[table..].copy_from_slice(&Random::new(1).noise(64 << 10));
    let watched = || Watched { bytes: bytes.clone(), ..Watched::default() };
    let at_the_end = table as u64..end as u64;
    for (range, keep_free) in [(None, false), (Some(at_the_end), false), (None, true)] {
        let changed = Some(Changed { since: first, ranges: range.into_iter().collect() });
        let denied = try_night(&world, watched(), changed, keep_free).map(|_| ()).unwrap_err();
        assert!(matches!(denied, EngineError::DiskDenied { .. }), "{denied}");
    }
}

#[test]
fn an_image_that_is_lost_makes_no_snapshot() {
    let world = World::bare(96);
    let bytes = Random::new(96).noise(9 << 20);
    for breaks_at in [0, 1, 1 << 20, 8 << 20] {
        let watched =
            Watched { bytes: bytes.clone(), breaks_at: Some(breaks_at), ..Watched::default() };
        let lost = try_night(&world, watched, None, false).map(|_| ()).unwrap_err();
        assert!(matches!(lost, EngineError::DiskBroken { .. }), "{lost}");
        assert!(lost.to_string().contains("its store is full"), "{lost}");
    }
    assert_eq!(snapshot_ids(&world.open()), []);
}

/// Data can reach a disk before it is a file's: an instant between the two calls it free. What of it
/// was left out is read when it is the content of a file, although it was not written since.
#[test]
fn what_was_free_and_is_a_files_content_now_is_read() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(97);
    let machine = Machine::new(64);
    machine.mounted(|point| {
        fs::create_dir(point.join("tree")).unwrap();
        fs::write(point.join("tree/late"), Random::new(97).noise(3 << 20)).unwrap();
    });
    let now = fs::read(machine.disk()).unwrap();
    let files = machine.files();
    machine.mounted(|point| fs::remove_file(point.join("tree/late")).unwrap());
    let before = fs::read(machine.disk()).unwrap();
    let changed: u64 = written(&before, &now).iter().map(|range| range.end - range.start).sum();
    assert!(changed < 1 << 20, "the content was not written: {changed}");
    let first = night(&world, &before, None, false).outcome.snapshot.id;
    let next = night(&world, &now, since(first, &before, &now), false);
    restored_files(&world, &next.outcome).assert_same(&files, "the night's files");
}

/// What is swapped to a file is left out every night, and what was released of it is not read. A
/// machine that is suspended has all of it.
#[test]
fn what_was_swapped_to_a_file_is_left_out_every_night() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(98);
    let machine = Machine::new(64);
    let swap = |point: &Path| point.join("tree/swap");
    machine.mounted(|point| {
        fs::create_dir_all(point.join("tree")).unwrap();
        fs::create_dir(point.join("etc")).unwrap();
        fs::write(point.join("etc/fstab"), "/tree/swap none swap sw 0 0\n").unwrap();
        fs::write(swap(point), Random::new(98).noise(4 << 20)).unwrap();
        tool("mkswap", &["-q", swap(point).to_str().unwrap()]);
    });
    let swapped_out = |number: u64| {
        machine.mounted(|point| {
            let file = fs::File::options().write(true).open(swap(point)).unwrap();
            file.write_all_at(&Random::new(number).noise(2 << 20), 1 << 20).unwrap();
        });
        fs::read(machine.disk()).unwrap()
    };
    let has = |image: &[u8], number: u64| {
        let page = &Random::new(number).noise(2 << 20)[..4096];
        image.chunks_exact(4096).any(|part| part == page)
    };
    let mut before = swapped_out(1);
    let mut parent = night(&world, &before, None, false).outcome;
    for number in 2..4 {
        let now = swapped_out(number);
        assert!(has(&now, number));
        let changed = since(parent.snapshot.id, &before, &now);
        let next = night(&world, &now, changed, false).outcome;
        assert!(!has(&restored(&world, &next), number));
        let file = content(&world, &next, "/vm1/vda/p1/tree/swap");
        assert!(file.len() == 4 << 20 && file[4086..4096] == *b"SWAPSPACE2");
        assert!(file[4096..].iter().all(|byte| *byte == 0));
        (before, parent) = (now, next);
    }
    // The next night it is suspended: nothing was written but the header.
    machine.mounted(|point| {
        let file = fs::File::options().write(true).open(swap(point)).unwrap();
        file.write_all_at(b"S1SUSPEND\0", 4086).unwrap();
    });
    let now = fs::read(machine.disk()).unwrap();
    let next = night(&world, &now, since(parent.snapshot.id, &before, &now), false).outcome;
    assert!(has(&restored(&world, &next), 3), "it is needed now");
    restored_files(&world, &next).assert_same(&machine.files(), "the files");
}

/// A machine as it is after a power cut and its next start.
fn started_again(image: &[u8]) -> Machine {
    let machine = Machine { folder: tempfile::tempdir().unwrap() };
    fs::create_dir(machine.folder.path().join("mounted")).unwrap();
    fs::write(machine.disk(), image).unwrap();
    machine.mounted(|_| ());
    machine
}

/// A directory whose first block is only in the journal: its place was free in the parent, was not
/// written since, and is released. The journal has it.
#[test]
fn kept_1_7_a_night_of_a_busy_machine_has_its_files() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(99);
    let machine = Machine::new(64);
    machine.mounted(|point| fs::create_dir(point.join("tree")).unwrap());
    let mut before = fs::read(machine.disk()).unwrap();
    let mut parent = night(&world, &before, None, false).outcome.snapshot.id;
    for number in 0..3 {
        let now = machine.mounted(|point| {
            let folder = point.join(format!("tree/new{number}"));
            fs::create_dir(&folder).unwrap();
            for file in 0..100 {
                let noise = Random::new(number * 100 + file).noise(60_000);
                let mut new = fs::File::create(folder.join(file.to_string())).unwrap();
                io::Write::write_all(&mut new, &noise).unwrap();
                new.sync_all().unwrap();
            }
            fs::read(machine.disk()).unwrap()
        });
        let next = night(&world, &now, since(parent, &before, &now), false);
        let again = started_again(&now);
        restored_files(&world, &next.outcome).assert_same(&again.files(), "the night's files");
        let back = tempfile::NamedTempFile::new().unwrap();
        restore_into(&world, &next.outcome, back.path());
        let back = started_again(&fs::read(back.path()).unwrap());
        back.files().assert_same(&again.files(), "the files of the disk that was restored");
        (before, parent) = (now, next.outcome.snapshot.id);
    }
}

/// What was synchronized by a fast commit is content, although the map of the last transaction calls
/// it free. It is stored, and the backup says that nothing was left out.
#[test]
fn kept_1_7_what_is_not_understood_is_stored_and_it_is_said() {
    if skipped(cannot_mount()) {
        return;
    }
    let world = World::bare(100);
    let machine = Machine::new(300);
    let volume = format!("{}?offset=1048576", machine.disk().display());
    tool("tune2fs", &["-O", "fast_commit", &volume]);
    let now = machine.mounted(|point| {
        fs::create_dir(point.join("tree")).unwrap();
        tool("sync", &["-f", point.to_str().unwrap()]);
        for number in 0..30 {
            let mut new = fs::File::create(point.join(format!("tree/{number}"))).unwrap();
            io::Write::write_all(&mut new, &Random::new(number).noise(100_000)).unwrap();
            new.sync_all().unwrap();
        }
        fs::read(machine.disk()).unwrap()
    });
    let listener = Listener::new();
    let image = Box::new(Watched { bytes: now.clone(), ..Watched::default() });
    let disk = Disk::new("vda", Box::new(&*Box::leak(image)));
    let repository = world.open();
    let stored = machine_options(false);
    let options = options(Path::new("/"));
    let begun = MachineBackup::begin(&repository, &stored, &options, &Silent);
    let outcome = begun.unwrap().store(&described(disk), &listener, &Cancel::new()).unwrap();
    let said = format!("{:?}", listener.problems());
    assert!(said.contains("fast commits") && said.contains("none of it counts as free"), "{said}");
    // Equal disks start as equal machines, so their files need not be compared as well.
    assert!(restored(&world, &outcome) == now, "every byte of it comes back");
}
