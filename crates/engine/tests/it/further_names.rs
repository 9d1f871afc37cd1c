//! Files with several names whose first name does not come back: what has the further names stays.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaName};
use strongroom_backend::{Backend, ObjectName};
use strongroom_base::{Cancel, SnapshotId};
use strongroom_engine::{RestoreOptions, RestoreOutcome, restore};
use strongroom_repository::{Repository, read_snapshot};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{Gives, Listener, Random, WithholdingBackend};

use crate::restore::into;
use crate::world::World;

/// A tree with one file that has two names, and its content.
fn linked(seed: u64) -> (World, SnapshotId, Vec<u8>) {
    let world = World::bare(seed);
    let mut content = vec![0; 300_000];
    Random::new(seed).fill(&mut content);
    fs::create_dir_all(world.tree()).unwrap();
    fs::write(world.tree().join("a"), &content).unwrap();
    fs::hard_link(world.tree().join("a"), world.tree().join("b")).unwrap();
    let id = world.backup().snapshot.id;
    (world, id, content)
}

/// A target in which `a` is old, and `b` is right and another file.
fn target_of(world: &World, content: &[u8]) -> PathBuf {
    let target = world.folder.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("a"), "old").unwrap();
    fs::write(target.join("b"), content).unwrap();
    target
}

fn restored(
    repository: &Repository,
    id: SnapshotId,
    options: &RestoreOptions,
) -> (RestoreOutcome, Vec<String>) {
    let listener = Listener::new();
    let snapshot = read_snapshot(repository, id).unwrap();
    let outcome = restore(repository, &snapshot, options, &listener, &Cancel::new()).unwrap();
    let said = listener.problems().into_iter().map(|problem| format!("{problem:?}"));
    (outcome, said.collect())
}

#[track_caller]
fn is_as_it_was(target: &Path, content: &[u8], said: &[String]) {
    assert_eq!(fs::read(target.join("a")).unwrap(), b"old", "{said:?}");
    assert!(fs::read(target.join("b")).unwrap() == content, "b was right: {said:?}");
    assert_eq!(fs::metadata(target.join("b")).unwrap().nlink(), 1);
}

fn is_data(name: &ObjectName) -> bool {
    ArenaName::of(name).is_some_and(|arena| ArenaContent::of(arena.id) == ArenaContent::Data)
}

#[test]
fn a_further_name_stays_if_the_first_is_withheld() {
    let (world, id, content) = linked(7300);
    let target = target_of(&world, &content);
    let rule = |name: &ObjectName| if is_data(name) { Gives::Archived } else { Gives::All };
    let place = Arc::new(WithholdingBackend::new(world.objects.clone(), rule));
    let repository = world.open_over(place).unwrap();
    let (outcome, said) = restored(&repository, id, &into(&world.tree(), &target));
    is_as_it_was(&target, &content, &said);
    let withheld: Vec<_> = outcome.withheld.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(withheld, ["a", "b"].map(|name| target.join(name)));
    assert_eq!(outcome.files_failed, 2);
}

#[test]
fn a_further_name_stays_if_the_first_is_damaged() {
    for (number, patch) in [false, true].into_iter().enumerate() {
        let (world, id, content) = linked(7310 + number as u64);
        let target = target_of(&world, &content);
        for name in names_in(&world.objects.snapshot(), "arenas") {
            if is_data(&name) {
                world.objects.remove(&name).unwrap();
            }
        }
        let mut options = into(&world.tree(), &target);
        options.target.patch = patch;
        let (outcome, said) = restored(&world.open(), id, &options);
        assert_eq!(outcome.damaged, ["a", "b"].map(|name| target.join(name)), "{said:?}");
        assert!(fs::read(target.join("b")).unwrap() == content, "b was right: {said:?}");
        assert_eq!(fs::metadata(target.join("b")).unwrap().nlink(), 1);
        if !patch {
            is_as_it_was(&target, &content, &said);
        }
    }
}

/// A directory has the first name, and what is there may not be removed.
#[test]
fn a_further_name_stays_if_the_first_cannot_be_made() {
    let kinds: [fn(&Path); 3] = [
        |path| fs::write(path, "content").unwrap(),
        |path| std::os::unix::fs::symlink("somewhere", path).unwrap(),
        |path| {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        },
    ];
    for (number, make) in kinds.into_iter().enumerate() {
        let world = World::bare(7320 + number as u64);
        let (one, other) = (world.tree().join("a"), world.tree().join("b"));
        fs::create_dir_all(world.tree()).unwrap();
        make(&one);
        rustix::fs::linkat(
            rustix::fs::CWD,
            &one,
            rustix::fs::CWD,
            &other,
            rustix::fs::AtFlags::empty(),
        )
        .unwrap();
        let id = world.backup().snapshot.id;
        let target = world.folder.path().join("target");
        fs::create_dir_all(target.join("a")).unwrap();
        fs::write(target.join("b"), "theirs").unwrap();
        let (outcome, said) = restored(&world.open(), id, &into(&world.tree(), &target));
        assert!(target.join("a").is_dir());
        assert_eq!(fs::read(target.join("b")).unwrap(), b"theirs", "{number}: {said:?}");
        assert_eq!(outcome.files_failed, 2, "{said:?}");
        assert!(said.iter().any(|said| said.contains("another name of")), "{said:?}");
    }
}

/// Another file system is mounted below the target, and no link leads there.
#[test]
fn a_further_name_that_cannot_be_a_link_is_a_file_of_its_own() {
    let mut world = World::bare(7330);
    world.limits.batch_wants_max = 7;
    let content = Random::new(7330).noise(300_000);
    for (name, content) in [("a/file", &content[..]), ("b/last", b"last"), ("c/last", b"c")] {
        world.write(name, content);
    }
    for name in ["b/file", "b/again", "c/file"] {
        fs::hard_link(world.tree().join("a/file"), world.tree().join(name)).unwrap();
    }
    // A symbolic link with two names.
    std::os::unix::fs::symlink("nowhere", world.tree().join("a/link")).unwrap();
    fs::hard_link(world.tree().join("a/link"), world.tree().join("b/link")).unwrap();
    // The file after it is being written in parts when its names are due.
    world.write("b/z", &Random::new(7331).noise(200_000));
    let id = world.backup().snapshot.id;
    let target = world.folder.path().join("target");
    fs::create_dir_all(target.join("b")).unwrap();
    let mount = |arguments: &[&str]| {
        let done = std::process::Command::new(arguments[0]).args(&arguments[1..]).status();
        done.is_ok_and(|status| status.success())
    };
    let point = target.join("b");
    let point = point.to_str().unwrap();
    if !mount(&["mount", "-t", "tmpfs", "none", point]) {
        return strongroom_testkit::skip("nothing can be mounted here");
    }
    let restored_names = || {
        let (outcome, said) = restored(&world.open(), id, &into(&world.tree(), &target));
        let read =
            ["a/file", "b/file", "b/again", "c/file"].map(|name| fs::read(target.join(name)));
        let right = read.map(|read| read.is_ok_and(|read| read == content));
        let pointed = fs::read_link(target.join("b/link")).unwrap_or_default();
        let z =
            fs::read(target.join("b/z")).unwrap() == fs::read(world.tree().join("b/z")).unwrap();
        let names = fs::metadata(target.join("c/file")).map_or(0, |stat| stat.nlink());
        let left = fs::read_dir(target.join("b")).unwrap().count();
        (outcome.files_failed, right, pointed, z, (names, left), said)
    };
    let [first, again] = [(); 2].map(|()| restored_names());
    assert!(mount(&["umount", point]));
    for (failed, right, pointed, z, counts, said) in [first, again] {
        assert_eq!((failed, right), (0, [true; 4]), "{said:?}");
        assert_eq!(pointed, PathBuf::from("nowhere"));
        assert!(z && counts == (2, 5), "{counts:?}");
        assert!(said.len() == 1 && said[0].contains("no hard links"), "{said:?}");
    }
}
