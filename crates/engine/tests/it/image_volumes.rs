//! What the volumes of a disk say that is not to be believed: names, and what is free.

use std::fs;
use std::process::Command;

use strongroom_base::{Cancel, Silent};
use strongroom_disk::{Image, ReadAt, VolumeReader};
use strongroom_engine::{BackupOutcome, RestoreOptions, RestorePlace, restore};
use strongroom_repository::read_snapshot;
use strongroom_source::TargetOptions;
use strongroom_testkit::lvm::{group_text, physical_volume};
use strongroom_testkit::{Listener, Random, skipped};
use strongroom_upkeep::prune;

use crate::images::{Failing, restore_into, tool, try_backup};
use crate::world::{ALL, World};

fn image(bytes: Vec<u8>) -> Box<dyn Image> {
    Box::new(Failing(bytes, 0..0))
}

fn cannot() -> Option<&'static str> {
    let is_there = |tool: &&str| Command::new(tool).arg("-V").output().is_ok();
    let are_there = ["mke2fs", "debugfs", "mkntfs", "ntfscp"].iter().all(is_there);
    (!are_there).then_some("mke2fs, debugfs, mkntfs or ntfscp is missing")
}

/// An ext4 with one file, `folder/file`.
fn file_system(megabytes: usize, content: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, image) = (folder.path().join("source"), folder.path().join("image"));
    fs::create_dir_all(source.join("folder")).unwrap();
    fs::write(source.join("folder/file"), content).unwrap();
    fs::File::create(&image).unwrap().set_len((megabytes as u64) << 20).unwrap();
    let [source, image_name] = [&source, &image].map(|path| path.to_str().unwrap());
    tool("mke2fs", &["-q", "-t", "ext4", "-b", "4096", "-d", source, image_name]);
    fs::read(&image).unwrap()
}

/// The content of a file of a snapshot.
fn content(world: &World, outcome: &BackupOutcome, path: &str) -> Vec<u8> {
    let into = tempfile::tempdir().unwrap();
    let repository = world.open();
    let snapshot = read_snapshot(&repository, outcome.snapshot.id).unwrap();
    let options = RestoreOptions {
        filter: None,
        path: path.as_bytes().to_vec(),
        place: RestorePlace::Into(into.path().to_owned()),
        target: TargetOptions::default(),
        kept: Vec::new(),
        dry_run: false,
        verify: true,
        workers: 2,
    };
    let done = restore(&repository, &snapshot, &options, &Silent, &Cancel::new()).unwrap();
    assert_eq!((done.problems, done.damaged.len()), (0, 0));
    fs::read(into.path().join("file")).unwrap()
}

/// A guest writes the names of its logical volumes itself. What no reader accepts must not be in the
/// tree: each later prune of the repository would be refused.
#[test]
fn names_of_logical_volumes_that_lvm_would_not_give_are_names_of_folders() {
    if skipped(cannot()) {
        return;
    }
    let world = World::bare(91);
    let long = "x".repeat(3000);
    let volumes = [("a/b", 0, 8), ("twice", 8, 1), ("twice", 9, 1), ("..", 10, 1), (&long, 11, 1)];
    let mut disk = physical_volume(&group_text("v/g", &volumes), 16 << 20);
    disk[1 << 20..9 << 20].copy_from_slice(&file_system(8, b"kept"));
    for at in [9, 10, 11, 12] {
        disk[at << 20..(at + 1) << 20].copy_from_slice(&file_system(1, &[at as u8]));
    }
    let listener = Listener::new();
    let outcome = try_backup(&world, image(disk), false, &listener, &Cancel::new()).unwrap();
    assert_eq!(outcome.snapshot.stats.problems, 0, "{:?}", listener.problems());
    for (name, expected) in [
        ("v_g-a_b", &b"kept"[..]),
        ("v_g-twice", &[9]),
        ("v_g-twice.2", &[10]),
        ("v_g-..", &[11]),
        (&format!("v_g-{}", &long[..127]), &[12]),
    ] {
        let path = format!("/vm1/lvm/{name}/folder/file");
        assert_eq!(content(&world, &outcome, &path), expected, "{name}");
    }
    let pruned = prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert_eq!(pruned.lost, []);
}

/// A swap area of 2 MiB, full of noise.
fn swap(signature: &[u8; 10]) -> Vec<u8> {
    let mut area = Random::new(3).noise(2 << 20);
    area[..4096].fill(0);
    area[4086..4096].copy_from_slice(signature);
    area[1024] = 1;
    area[1028..1032].copy_from_slice(&511_u32.to_le_bytes());
    area
}

/// A disk with two partitions: an ext4 whose free space is full of noise, and another content.
fn two_partitions(first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    let mut start = 2048;
    for (slot, content) in [first, second].into_iter().enumerate() {
        let (at, sectors) = (446 + 16 * slot, (content.len() / 512) as u32);
        disk[at + 4] = 0x83;
        disk[at + 8..at + 12].copy_from_slice(&u32::to_le_bytes(start));
        disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        start += sectors;
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(first);
    disk.extend(second);
    let free: Vec<_> = {
        let disks: [&dyn ReadAt; 1] = [&disk];
        let layout = strongroom_disk::volumes(&disks);
        let reader = VolumeReader::new(&layout.volumes[0], &disks);
        strongroom_disk::open(&reader).unwrap().unwrap().free().unwrap().ranges().collect()
    };
    for range in free {
        let range = range.start as usize + (1 << 20)..range.end as usize + (1 << 20);
        let noise = Random::new(4).noise(range.len());
        disk[range].copy_from_slice(&noise);
    }
    disk
}

/// What a disk is after a backup and a restore.
fn round(seed: u64, disk: &[u8]) -> Vec<u8> {
    let world = World::bare(seed);
    let listener = Listener::new();
    let image = image(disk.to_vec());
    let outcome = try_backup(&world, image, false, &listener, &Cancel::new()).unwrap();
    assert_eq!(outcome.snapshot.stats.problems, 0, "{:?}", listener.problems());
    let back = tempfile::NamedTempFile::new().unwrap();
    restore_into(&world, &outcome, back.path());
    fs::read(back.path()).unwrap()
}

/// What it freed and wrote last, only its memory says; it goes on with that.
#[test]
fn nothing_is_free_on_the_disks_of_a_suspended_machine() {
    if skipped(cannot()) {
        return;
    }
    let (plain, suspended) = (swap(b"SWAPSPACE2"), swap(b"S1SUSPEND\0"));
    let disk = two_partitions(&file_system(16, b"file"), &plain);
    assert!(round(92, &disk) != disk, "what is free is left out of a machine that is off");
    // In a partition, in a file that no table names, and in one of a volume that is not trusted.
    let disk = two_partitions(&file_system(16, b"file"), &suspended);
    let mut changed = Vec::new();
    let mut check = |seed, name, disk: &[u8]| {
        if round(seed, disk) != disk {
            changed.push(name);
        }
    };
    check(93, "a partition", &disk);
    let disk = two_partitions(&file_system(16, &suspended), &plain);
    check(94, "a file", &disk);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, file_system(16, &suspended)).unwrap();
    tool("debugfs", &["-w", "-R", "set_super_value state 3", path.to_str().unwrap()]);
    let disk = two_partitions(&file_system(16, b"file"), &fs::read(&path).unwrap());
    check(95, "a file of a volume with errors", &disk);
    // A Windows that is hibernated has other volumes mounted, too.
    fs::write(&path, vec![0; 16 << 20]).unwrap();
    let memory = folder.path().join("memory");
    fs::write(&memory, [&b"hibr"[..], &[1; 8188]].concat()).unwrap();
    let [path_name, memory] = [&path, &memory].map(|path| path.to_str().unwrap());
    tool("mkntfs", &["-F", "-Q", "-q", path_name]);
    tool("ntfscp", &["-q", path_name, memory, "hiberfil.sys"]);
    let disk = two_partitions(&file_system(16, b"file"), &fs::read(&path).unwrap());
    check(96, "a Windows", &disk);
    assert!(changed.is_empty(), "{changed:?}");
}
