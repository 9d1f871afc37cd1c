//! Imports on bad days: full disks, missing programs, damage in the other repository, sudden ends.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use strongroom_testkit::damage::files_below;

use crate::imports::{Theirs, few, wait_for_the_first};
use crate::json::follows_the_schema;
use crate::space::Disk;
use crate::world::{CHEAP, Run, World};

fn started(theirs: &Theirs) -> Child {
    let mut command = theirs.import_command(&[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    strongroom_testkit::Random::new(seed).fill(&mut noise);
    noise
}

/// The folders and mounts that imports have made.
fn left(theirs: &Theirs) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(theirs.world.path("tmp")).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path());
    folders.filter(|path| path.to_string_lossy().contains("strongroom-import")).collect()
}

/// The packs that are new since `before`, the largest last.
fn new_packs(theirs: &Theirs, before: &[PathBuf]) -> Vec<PathBuf> {
    let mut new = files_below(&theirs.world.path("theirs/data"));
    new.retain(|path| !before.contains(path));
    new.sort_by_key(|path| path.metadata().unwrap().len());
    new
}

#[test]
fn a_full_disk_ends_an_import_and_the_next_one_goes_on() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir(&tree).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let small = elsewhere.path().join("small");
    let Some(disk) = Disk::mount(&small, "24M") else { return };
    for number in 0..3 {
        std::fs::write(tree.join(format!("f{number}")), noise(number, 8 << 20)).unwrap();
        theirs.store(number as usize);
    }
    let place = small.join("repository");
    let place = place.to_str().unwrap();
    theirs.world.run(["init", "--repo", place].iter().chain(&CHEAP)).exits(0);
    let import = || {
        let run = Run::of(theirs.import_command(&["--repo", place]).output().unwrap());
        theirs.assert_tidy();
        run
    };
    let full = import().exits(1);
    assert!(full.out.contains("no space left to write"), "{}", full.out);
    let listed = || theirs.world.run(["--json", "snapshots", "--repo", place]).exits(0);
    let before = listed().events("snapshot").len();
    assert!((1..3).contains(&before), "{before} snapshots\n{}", full.out);
    disk.grow("128M");
    let rest = import().exits(0).summary();
    assert_eq!((&rest["known"], &rest["imported"]), (&before.into(), &(3 - before).into()));
    theirs.world.run(["verify", "--data", "--repo", place]).exits(0);
    let files: Vec<_> =
        listed().events("snapshot").iter().map(|one| one["files"].clone()).collect();
    assert_eq!(files, [1, 2, 3].map(Value::from));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its surroundings")]
fn without_fuse_there_is_one_error_that_says_what_is_missing() {
    let Some(theirs) = few("restic", 2) else { return };
    // All that is needed, except for what mounts.
    let path = theirs.world.path("bin");
    std::fs::create_dir(&path).unwrap();
    let all = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&all).map(|folder| folder.join("restic"));
    let restic = files.find(|file| file.exists()).unwrap();
    symlink(restic, path.join("restic")).unwrap();
    let run = Run::of(theirs.import_command(&[]).env("PATH", &path).output().unwrap()).exits(1);
    assert_eq!(run.events("error").len(), 1, "{}", run.out);
    assert!(run.out.contains("fuse3"), "{}", run.out);
    assert_eq!((run.events("problem").len(), theirs.snapshots().len()), (0, 0), "{}", run.out);
    theirs.assert_tidy();
}

#[test]
fn what_a_damaged_restic_repository_lacks_is_named_and_taken_when_it_is_healed() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("good"), "good").unwrap();
    theirs.store(0);
    let before = files_below(&theirs.world.path("theirs/data"));
    std::fs::write(tree.join("bad"), noise(1, 300_000)).unwrap();
    theirs.store(1);
    let pack = new_packs(&theirs, &before).pop().unwrap();
    let aside = theirs.world.path("aside");
    std::fs::rename(&pack, &aside).unwrap();
    let run = theirs.import(&[]).exits(3);
    follows_the_schema(&run);
    let problems = run.events("problem");
    assert!(problems.len() == 1 && problems[0].to_string().contains("/bad"), "{}", run.out);
    assert_eq!(run.summary()["imported"], 2);

    std::fs::rename(&aside, &pack).unwrap();
    let mut command = theirs.world.command(["import", "restic"]);
    command.arg(theirs.world.path("theirs"));
    theirs.surround(&mut command);
    let said = Run::of(command.output().unwrap()).exits(0);
    said.warns("imported without some of its files").warns("strongroom forget ");
    let newest = theirs.snapshots().pop().unwrap();
    theirs.world.run(["forget", newest["id"].as_str().unwrap()]).exits(0);
    let again = theirs.import(&[]).exits(0).summary();
    assert_eq!((&again["imported"], &again["known"]), (&1.into(), &1.into()));
    let restored = theirs.world.restored(&theirs.world.of("latest"));
    let bad = files_below(&restored).into_iter().find(|path| path.ends_with("bad")).unwrap();
    assert_eq!(std::fs::read(bad).unwrap(), noise(1, 300_000));
}

/// Of a directory that it cannot read, `restic diff` lists nothing, and ends with 0.
#[test]
fn what_restic_cannot_compare_is_read() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir_all(tree.join("below")).unwrap();
    let file = tree.join("below/file");
    std::fs::write(&file, noise(1, 1000)).unwrap();
    // Of one host.
    theirs.store(1);
    theirs.import(&[]).exits(0);
    let packs = files_below(&theirs.world.path("theirs/data"));
    std::fs::write(&file, noise(2, 1000)).unwrap();
    theirs.store(2);
    // The tree of the directory is the first in its pack.
    for pack in packs {
        let mut bytes = std::fs::read(&pack).unwrap();
        bytes[40] ^= 1;
        std::fs::remove_file(&pack).unwrap();
        std::fs::write(&pack, bytes).unwrap();
    }
    std::fs::remove_dir_all(theirs.world.path("their-cache")).unwrap();
    theirs.import(&[]).exits(0);
    let restored = theirs.world.restored(&theirs.world.of("latest"));
    let file = files_below(&restored).into_iter().find(|path| path.ends_with("file")).unwrap();
    assert_eq!(std::fs::read(file).unwrap(), noise(2, 1000));
}

#[test]
fn a_snapshot_that_cannot_be_read_does_not_stop_the_others() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir(&tree).unwrap();
    let mut packs = Vec::new();
    for number in 0..3 {
        let before = files_below(&theirs.world.path("theirs/data"));
        std::fs::write(tree.join("file"), format!("{number}")).unwrap();
        theirs.store(number);
        packs.push(new_packs(&theirs, &before));
    }
    let aside = theirs.world.path("aside");
    std::fs::create_dir(&aside).unwrap();
    let moved = |number: usize| aside.join(format!("{number}"));
    for (number, pack) in packs[1].iter().enumerate() {
        std::fs::rename(pack, moved(number)).unwrap();
    }
    // What restic keeps in its cache is not lost.
    std::fs::remove_dir_all(theirs.world.path("their-cache")).unwrap();
    let run = theirs.import(&[]).exits(3);
    follows_the_schema(&run);
    let summary = run.summary();
    assert_eq!(
        (&summary["imported"], &summary["unreadable"]),
        (&2.into(), &1.into()),
        "{}",
        run.out
    );
    assert!(run.out.contains("was not imported"), "{}", run.out);
    for (number, pack) in packs[1].iter().enumerate() {
        std::fs::rename(moved(number), pack).unwrap();
    }
    assert_eq!(theirs.import(&[]).exits(0).summary()["imported"], 1);
    assert_eq!(theirs.snapshots().len(), 3);
}

/// Borg's mount ends at the first damaged chunk.
#[test]
fn a_damaged_archive_of_borg_does_not_stop_the_others() {
    let Some(theirs) = Theirs::new("borg") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir(&tree).unwrap();
    for number in 0..3 {
        let before = files_below(&theirs.world.path("theirs/data"));
        std::fs::write(tree.join("file"), noise(number, 300_000)).unwrap();
        theirs.store(number as usize);
        if number == 1 {
            let segment = new_packs(&theirs, &before).pop().unwrap();
            let mut bytes = std::fs::read(&segment).unwrap();
            bytes[150_000] ^= 1;
            std::fs::write(segment, bytes).unwrap();
        }
    }
    let run = theirs.import(&[]).exits(3);
    follows_the_schema(&run);
    let summary = run.summary();
    let counts = (&summary["imported"], &summary["unreadable"]);
    assert_eq!(counts, (&2.into(), &1.into()), "{}", run.out);
}

#[test]
fn a_key_that_may_only_store_is_refused_before_anything_is_read() {
    let Some(theirs) = few("restic", 1) else { return };
    let key = theirs.world.path("laptop.key");
    theirs.world.run(["key".as_ref(), "generate".as_ref(), key.as_os_str()]).exits(0);
    let add = ["key", "add", "--put-only", "--domain", "laptop", "--new-password-file"];
    theirs.world.run(add.iter().map(|word| word.as_ref()).chain([key.as_os_str()])).exits(0);
    let mut command = theirs.import_command(&["--password-file", key.to_str().unwrap()]);
    // With this passphrase, looking into their repository would fail in another way.
    let run = Run::of(command.env("RESTIC_PASSWORD", "wrong").output().unwrap()).exits(1);
    assert!(run.out.contains("this key can only store"), "{}", run.out);
    theirs.assert_tidy();
}

#[test]
fn what_a_killed_import_left_is_removed_by_the_next() {
    let Some(theirs) = few("restic", 3) else { return };
    let mut child = started(&theirs);
    wait_for_the_first(&mut child);
    // The program that answers for the mount is killed too, so that the mount stays.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    for pid in children.unwrap().split_whitespace() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left(&theirs).len(), 1);
    // Of a process that is at work; it is no mount, and stays.
    let alive = theirs.world.path(&format!("tmp/strongroom-import-{}-0", std::process::id()));
    std::fs::create_dir(&alive).unwrap();
    let run = Run::of(theirs.import_command(&[]).output().unwrap()).exits(0);
    assert_eq!(left(&theirs), std::slice::from_ref(&alive));
    std::fs::remove_dir(alive).unwrap();
    theirs.assert_tidy();
    assert!(run.summary()["known"].as_u64() >= Some(1), "{}", run.out);
    assert_eq!(theirs.snapshots().len(), 3);
}

#[test]
fn an_import_is_seen_while_it_runs() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("large"), noise(9, 64 << 20)).unwrap();
    theirs.store(1);
    let mut child = started(&theirs);
    let mut seen: Vec<Value> = Vec::new();
    let mut writers = Vec::new();
    while child.try_wait().unwrap().is_none() {
        let cache = theirs.world.path("cache");
        let files = if cache.exists() { files_below(&cache) } else { Vec::new() };
        let running = files.iter().filter(|file| file.parent().is_some_and(is_of_running));
        let texts = running.filter_map(|file| std::fs::read_to_string(file).ok());
        seen.extend(texts.filter_map(|text| serde_json::from_str(&text).ok()));
        if writers.is_empty() {
            writers = theirs.world.say("--json unlock").exits(0).events("session");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(World::finish(child).code, Some(0));
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|one| one["command"] == "import"), "{seen:?}");
    // The machine that writes is this one, not the one that the snapshot is of.
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(writers[0]["host"], here.as_str(), "{writers:?}");
}

fn is_of_running(folder: &Path) -> bool {
    folder.ends_with("running")
}
