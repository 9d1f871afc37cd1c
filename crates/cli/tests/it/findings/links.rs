//! Files with several names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use strongroom_testkit::Random;

use crate::world::{World, skipped};

/// Files between those that are read first and those that are listed last: more than the program
/// lists ahead of what it reads.
const FILES_BETWEEN: usize = 3000;
const FILE_BYTES: usize = 4 << 10;

/// A file and a further name of it.
fn write_linked(folder: &Path, names: [&str; 2], content: &str) {
    fs::write(folder.join(names[0]), content).unwrap();
    fs::hard_link(folder.join(names[0]), folder.join(names[1])).unwrap();
}

/// Bytes that a process has read so far.
fn bytes_read(process: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Makes a file with this inode number: file systems of disks give a free number to the next file.
fn reuse_inode(folder: &Path, inode: u64) -> bool {
    (0..500).any(|number| {
        let path = folder.join(format!("z-new-{number}"));
        fs::write(&path, "BBBB").unwrap();
        let is_reused = path.metadata().unwrap().ino() == inode;
        if is_reused {
            fs::rename(&path, folder.join("z1-new")).unwrap();
        }
        is_reused
    })
}

#[test]
fn engine_03_a_reused_inode_number_makes_no_hard_link() {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir(&tree).unwrap();
    write_linked(&tree, ["a1", "a2"], "AAAA");
    let mut random = Random::new(3);
    for number in 0..FILES_BETWEEN {
        fs::write(tree.join(format!("m{number:04}")), random.noise(FILE_BYTES)).unwrap();
    }
    write_linked(&tree, ["z1", "z2"], "first");

    let mut command = world.command([OsStr::new("backup"), tree.as_os_str()]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while bytes_read(child.id()) < 2 << 20 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The first names are read, and the last ones not yet looked at.
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    assert!(bytes_read(child.id()) < 6 << 20, "the program was stopped too late: try again");
    let inode = tree.join("a1").metadata().unwrap().ino();
    fs::remove_file(tree.join("a1")).unwrap();
    fs::remove_file(tree.join("a2")).unwrap();
    let is_reused = reuse_inode(&tree, inode);
    if is_reused {
        fs::hard_link(tree.join("z1-new"), tree.join("z2-new")).unwrap();
        fs::rename(tree.join("z1-new"), tree.join("z1")).unwrap();
        fs::rename(tree.join("z2-new"), tree.join("z2")).unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 3)));
    let reason = (!is_reused).then_some("this file system does not reuse inode numbers at once");
    if skipped("a reused inode number", reason) {
        return;
    }

    let restored = world.restored(&world.of("latest"));
    let content = |name: &str| fs::read_to_string(restored.join(name)).unwrap();
    assert_eq!([content("a1"), content("a2")], ["AAAA", "AAAA"]);
    assert_eq!([content("z1"), content("z2")], ["BBBB", "BBBB"]);
    let inode = |name: &str| restored.join(name).metadata().unwrap().ino();
    assert_eq!(inode("a1"), inode("a2"), "names of one file stay so");
    assert_eq!(inode("z1"), inode("z2"), "names of one file stay so");
}
