//! Nights of Btrfs, whose nodes and compressed extents are in new places each time: they are on the
//! disk before a superblock refers to them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

const SUPERBLOCK: usize = 64 << 10;

/// The superblock and its copy on a disk of less than 256 GiB.
const SUPERBLOCKS: [usize; 2] = [SUPERBLOCK, 64 << 20];

fn cannot() -> Option<&'static str> {
    let lacks = |program: &str| Command::new(program).arg("--version").output().is_err();
    cannot_mount()
        .or((lacks("mkfs.btrfs") || lacks("btrfs")).then_some("there are no tools of Btrfs"))
}

/// A disk that is a file system.
fn disk_in(folder: &Path) -> PathBuf {
    let disk = folder.join("disk.raw");
    fs::create_dir(folder.join("mounted")).unwrap();
    fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    tool("mkfs.btrfs", &["-q", disk.to_str().unwrap()]);
    disk
}

fn mounted<T>(disk: &Path, options: &str, act: impl FnOnce(&Path) -> T) -> T {
    let point = disk.with_file_name("mounted");
    // What is freed keeps its bytes.
    let options = format!("loop,nodiscard,{options}");
    tool("mount", &["-o", &options, disk.to_str().unwrap(), point.to_str().unwrap()]);
    let done = act(&point);
    tool("umount", &[&point]);
    done
}

/// The restored disk is sound, its data too.
fn assert_sound(world: &World, night: &Night) {
    let back = tempfile::NamedTempFile::new().unwrap();
    restore_into(world, &night.outcome, back.path());
    tool("btrfs", &["check", "--readonly", "--check-data-csum", back.path().to_str().unwrap()]);
}

/// A compressed extent is not read as the content of its file: nothing but the map of what is free
/// says that it is one.
#[test]
fn what_was_free_and_is_a_compressed_extent_now_is_read() {
    if skipped(cannot()) {
        return;
    }
    let world = World::bare(101);
    let folder = tempfile::tempdir().unwrap();
    let disk = disk_in(folder.path());
    let text: String = (0..400_000).map(|line| format!("{line} of a text\n")).collect();
    mounted(&disk, "compress-force=zstd", |point| fs::write(point.join("late"), &text).unwrap());
    let now = fs::read(&disk).unwrap();
    mounted(&disk, "rw", |point| fs::remove_file(point.join("late")).unwrap());
    let before = fs::read(&disk).unwrap();
    let first = night(&world, &before, None, false).outcome.snapshot.id;
    let next = night(&world, &now, since(first, &before, &now), false);
    assert!(content(&world, &next.outcome, "/vm1/vda/whole/late") == text.as_bytes());
    assert_sound(&world, &next);
}

/// An instant is after the nodes of a commit were written and before its superblock is: to that
/// instant, they are free.
#[test]
fn nodes_that_were_written_before_their_superblock_are_read() {
    if skipped(cannot()) {
        return;
    }
    let world = World::bare(102);
    let folder = tempfile::tempdir().unwrap();
    let disk = disk_in(folder.path());
    let (superblocks, now) = mounted(&disk, "rw", |point| {
        let commit = |number: u64| {
            for file in 0..200 {
                fs::write(point.join(format!("{number}-{file}")), [number as u8; 100]).unwrap();
            }
            tool("btrfs", &["filesystem", "sync", point.to_str().unwrap()]);
            fs::read(&disk).unwrap()
        };
        let before = commit(1);
        (SUPERBLOCKS.map(|at| before[at..at + 4096].to_vec()), commit(2))
    });
    let mut before = now.clone();
    for (at, superblock) in SUPERBLOCKS.into_iter().zip(&superblocks) {
        before[at..at + 4096].copy_from_slice(superblock);
    }
    assert_eq!(written(&before, &now).len(), SUPERBLOCKS.len());
    let generation = |disk: &[u8]| disk[SUPERBLOCK + 72];
    assert_eq!(generation(&now), generation(&before) + 1, "one commit");
    let first = night(&world, &before, None, false);
    assert_sound(&world, &first);
    let next = night(&world, &now, since(first.outcome.snapshot.id, &before, &now), false);
    assert_sound(&world, &next);
}
