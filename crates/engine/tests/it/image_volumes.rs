//! What the volumes of a disk say that is not to be believed: names, and what is free.

use std::fs;
use std::path::Path;

use strongroom_base::{Cancel, Silent};
use strongroom_disk::Image;
use strongroom_engine::{BackupOutcome, RestoreOptions, RestorePlace, restore};
use strongroom_repository::read_snapshot;
use strongroom_source::TargetOptions;
use strongroom_testkit::lvm::{group_text, physical_volume};
use strongroom_testkit::{Listener, skipped};
use strongroom_upkeep::prune;

use crate::images::{Failing, tool, try_backup};
use crate::world::{ALL, World};

fn image(bytes: Vec<u8>) -> Box<dyn Image> {
    Box::new(Failing(bytes, 0..0))
}

fn cannot() -> Option<&'static str> {
    (!Path::new("/sbin/mke2fs").exists()).then_some("mke2fs is missing")
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
