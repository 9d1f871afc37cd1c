//! What a restore does to files that exist: each is wholly what it was or wholly what it is to be.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testkit::damage::files_below;
use strongroom_testkit::{Random, noise};

use crate::world::{CHEAP, World, has_program, program, skipped};

/// A world whose repository cannot repair anything.
fn without_parity() -> World {
    let world = World::empty();
    world.run(["init", "--parity", "0"].iter().chain(&CHEAP)).exits(0);
    fs::create_dir(world.tree()).unwrap();
    world
}

/// Overwrites 5 kB in the middle of the largest arena.
fn damage_the_content(world: &World) {
    let arenas = files_below(&world.repository().join("arenas"));
    let largest = arenas.iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let file = fs::File::options().write(true).open(largest).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    file.write_all_at(&[0xa5; 5000], middle).unwrap();
}

fn restore_in_place(world: &World) -> crate::world::Run {
    world.run(["restore", &world.of("latest"), "--in-place"])
}

#[test]
fn trial_02_a_damaged_repository_takes_no_live_file_away() {
    let world = without_parity();
    let big = world.tree().join("big");
    let stored = noise(2, 3 << 20);
    fs::write(&big, &stored).unwrap();
    world.backup().exits(0);
    damage_the_content(&world);

    let mut live = stored.clone();
    live[1000..1004].copy_from_slice(b"mine");
    // What was changed is also where the repository has lost something.
    let middle = stored.len() / 2;
    live[middle - 100_000..middle + 100_000].fill(b'm');
    fs::write(&big, &live).unwrap();
    fs::write(world.tree().join("big.damaged"), "mine as well").unwrap();

    restore_in_place(&world).exits(4).warns("is left as it is");
    assert!(fs::read(&big).unwrap() == live, "the live file is not touched");
    assert_eq!(fs::read(world.tree().join("big.damaged")).unwrap(), b"mine as well");
    let salvage = fs::read(world.tree().join("big.damaged.2")).unwrap();
    assert_eq!(salvage.len(), stored.len());
    let lost = salvage.iter().zip(&stored).filter(|(salvaged, stored)| salvaged != stored);
    assert!(lost.clone().all(|(salvaged, _)| *salvaged == 0), "what is lost is a hole");
    assert!((1..stored.len() / 2).contains(&lost.count()), "the rest is recovered");
}

#[test]
fn trial_02_another_file_of_the_name_stays() {
    let world = without_parity();
    let file = world.tree().join("x");
    fs::write(&file, noise(3, 200_000)).unwrap();
    world.backup().exits(0);
    damage_the_content(&world);
    fs::write(&file, "old").unwrap();
    restore_in_place(&world).exits(4);
    assert_eq!(fs::read(&file).unwrap(), b"old");
}

/// Calls that change what exists.
const CALLS: [&str; 14] = [
    "pwrite64",
    "pwritev",
    "ftruncate",
    "fallocate",
    "fchmod",
    "chmod",
    "fchownat",
    "utimensat",
    "renameat",
    "renameat2",
    "linkat",
    "symlinkat",
    "mknodat",
    "unlinkat",
];

/// Puts a tree where the restore goes: of the files that are to be restored, or what exists before.
fn put_tree(tree: &Path, is_new: bool) {
    let _ = fs::remove_dir_all(tree);
    fs::create_dir(tree).unwrap();
    let mut large = noise(7, 400_000);
    let mut random = Random::new(if is_new { 8 } else { 9 });
    if !is_new {
        large[200_000..200_100].fill(7);
    }
    fs::write(tree.join("large"), large).unwrap();
    fs::write(tree.join("small"), random.noise(1000)).unwrap();
    // The shorter one must neither be cut nor lengthened before it is replaced.
    fs::write(tree.join("length"), random.noise(if is_new { 50 } else { 90_000 })).unwrap();
    fs::write(tree.join("linked1"), random.noise(3000)).unwrap();
    fs::hard_link(tree.join("linked1"), tree.join("linked2")).unwrap();
    symlink(if is_new { "small" } else { "large" }, tree.join("symlink")).unwrap();
    fs::write(tree.join("becomes-a-file"), "").unwrap();
    if is_new {
        fs::write(tree.join("becomes-a-file"), random.noise(2000)).unwrap();
    } else {
        fs::remove_file(tree.join("becomes-a-file")).unwrap();
        symlink("nowhere", tree.join("becomes-a-file")).unwrap();
    }
}

/// What each name is: its bytes, or where it points.
fn states(tree: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let state = |entry: fs::DirEntry| {
        let path = entry.path();
        let bytes = match fs::read_link(&path) {
            Ok(target) => target.into_os_string().into_encoded_bytes(),
            Err(_) => fs::read(&path).unwrap(),
        };
        (PathBuf::from(entry.file_name()), bytes)
    };
    let mut states: Vec<_> = fs::read_dir(tree).unwrap().map(|it| state(it.unwrap())).collect();
    states.sort();
    states
}

/// A restore that is killed when one of its threads makes a call for this time, from one on.
fn restore_killed_at(world: &World, call: &str, time: usize) -> std::process::Output {
    let mut command = Command::new("strace");
    let inject = format!("inject={call}:signal=KILL:when={time}");
    command.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.arg(program()).args(["restore", "--threads", "1", &world.of("latest"), "--in-place"]);
    world.surround(&mut command);
    command.output().unwrap()
}

/// Fails if a file is neither wholly what it was nor wholly what it is to be.
fn check_states(
    found: &[(PathBuf, Vec<u8>)],
    old: &[(PathBuf, Vec<u8>)],
    new: &[(PathBuf, Vec<u8>)],
    at: &str,
) {
    for ((name, old), (_, new)) in old.iter().zip(new) {
        let is = found.iter().find(|(other, _)| other == name).map(|(_, bytes)| bytes);
        let is = is.unwrap_or_else(|| panic!("{name:?} is gone: {at}"));
        assert!(is == old || is == new, "{name:?} is a mixture: {at}");
    }
    for (name, _) in found {
        let is_ours = name.to_string_lossy().starts_with(".strongroom-restore-");
        assert!(is_ours || old.iter().any(|(other, _)| other == name), "{name:?} is odd: {at}");
    }
}

#[test]
fn trial_07_a_restore_killed_at_any_call_leaves_each_file_old_or_new() {
    if skipped("strace", (!has_program("strace")).then_some("it is not installed")) {
        return;
    }
    let world = World::with_repository();
    let tree = world.tree();
    put_tree(&tree, true);
    world.backup().exits(0);
    let new = states(&tree);
    put_tree(&tree, false);
    let old = states(&tree);
    let mut killed = 0;
    for call in CALLS {
        for time in 1.. {
            put_tree(&tree, false);
            let done = restore_killed_at(&world, call, time);
            let found = states(&tree);
            check_states(&found, &old, &new, &format!("killed at {call} {time}"));
            if done.status.code() == Some(0) {
                assert!(found == new, "it came to its end");
                break;
            }
            killed += 1;
            assert!(time < 100, "it never ends: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
    assert!(killed > 20, "{killed} calls");
    let inode = |name: &str| tree.join(name).metadata().unwrap().ino();
    assert_eq!(inode("linked1"), inode("linked2"));
}
