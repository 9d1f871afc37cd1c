//! A full disk: below the repository, and below what is restored.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use strongroom_testkit::{Random, assert_same};

use crate::world::{CHEAP, World, is_root, skipped};

/// Memory that is mounted as a disk.
pub struct Disk<'d>(&'d Path);

impl<'d> Disk<'d> {
    pub fn mount(path: &'d Path, size: &str) -> Option<Self> {
        Self::mount_as(path, &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
    }

    pub fn mount_as(path: &'d Path, what: &[&str]) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let mut command = Command::new("mount");
        command.args(what).arg(path);
        command.output().is_ok_and(|output| output.status.success()).then_some(Self(path))
    }

    pub fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::empty();
    let repository = world.repository();
    let disk = Disk::mount(&repository, "8M");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let disk = disk.unwrap();
    world.run(["init"].iter().chain(&CHEAP)).exits(0);
    let mut random = Random::new(18);
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("small"), random.noise(2 << 20)).unwrap();
    world.backup().exits(0);
    let first = world.restored(&world.of("latest"));
    fs::rename(&first, world.path("first")).unwrap();

    fs::write(world.tree().join("large"), random.noise(20 << 20)).unwrap();
    let run = world.backup().exits(1);
    assert!(run.err.contains("space"), "{}", run.err);
    run.warns("hint: ");
    world.say("verify --data").exits(0);
    assert_same(&world.path("first"), &world.restored(&world.of("latest")));

    disk.grow("64M");
    world.backup().exits(0);
    world.say("verify --data").exits(0);
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

/// Not one byte is free, and a prune frees some all the same.
#[test]
fn kept_h9_a_full_disk_can_be_pruned() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::empty();
    let repository = world.repository();
    let disk = Disk::mount(&repository, "8M");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    world.run(["init"].iter().chain(&CHEAP)).exits(0);
    let mut random = Random::new(46);
    fs::create_dir(world.tree()).unwrap();
    for version in ["first", "second"] {
        fs::write(world.tree().join("file"), random.noise(2 << 20)).unwrap();
        fs::write(world.tree().join(version), random.noise(1 << 10)).unwrap();
        world.backup().exits(0);
    }
    let room = repository.join(".room");
    assert_eq!(fs::metadata(&room).unwrap().len(), 512 << 10);
    // Everything else on the disk.
    let other = fs::File::create(repository.join(".other")).unwrap();
    let mut filled = 0;
    for piece in [1 << 20, 1 << 12, 1] {
        let bytes = vec![1; piece];
        while other.write_all_at(&bytes, filled).is_ok() {
            filled += piece as u64;
        }
    }
    world.say("forget latest~1").exits(0).says("1 snapshot forgotten");
    // What keeps something has that room, too.
    world.say("prune --later --max-unused 0").exits(0).says("condemned");
    world.say("prune --undo").exits(0).says("nothing is condemned any more");
    let id = world.say("--json snapshots").events("snapshot")[0]["id"].as_str().unwrap().to_owned();
    world.say(&format!("forget {id}")).exits(0).says("1 snapshot forgotten");
    world.say(&format!("forget --undo {id}")).exits(0);
    world.say(&format!("hold --reason tax {id}")).exits(0);
    world.say(&format!("hold --release {id}")).exits(0);
    world.say(&format!("forget {id}")).exits(0).says("1 snapshot forgotten");
    world.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
    assert!(room.exists(), "room is kept again");
    world.say("verify --data").exits(0);
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

/// Each wish takes a block of the disk: 300 of them would take all the room that was kept.
#[test]
fn kept_o9_many_wishes_leave_room_for_a_prune() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::empty();
    let repository = world.repository();
    let disk = Disk::mount(&repository, "24M");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    world.run(["init"].iter().chain(&CHEAP)).exits(0);
    let mut random = Random::new(47);
    fs::create_dir(world.tree()).unwrap();
    const SNAPSHOTS: usize = 160;
    for _ in 0..SNAPSHOTS {
        fs::write(world.tree().join("file"), random.noise(3000)).unwrap();
        world.backup().exits(0);
    }
    let other = fs::File::create(repository.join(".other")).unwrap();
    let mut filled = 0;
    for piece in [1 << 20, 1 << 12, 1] {
        let bytes = vec![1; piece];
        while other.write_all_at(&bytes, filled).is_ok() {
            filled += piece as u64;
        }
    }
    let count = || world.say("--json snapshots").exits(0).events("snapshot").len();
    let mut left = SNAPSHOTS;
    // If it is repeated without the prune that the hint names, it stops, and that prune stays possible.
    for _ in 0..4 {
        let run = world.say("forget --keep-last 2").exits(1);
        run.warns("no space left").warns("run `strongroom prune`");
        assert!(fs::metadata(repository.join(".room")).unwrap().len() >= 128 << 10);
    }
    assert!(count() < left, "some are forgotten");
    while count() > 2 {
        world.say("prune --max-unused 0").exits(0).says("removed");
        world.say("forget --keep-last 2");
        assert!(count() < left, "{left} are left");
        left = count();
    }
    world.say("prune --max-unused 0").exits(0);
    world.say("verify --data").exits(0);
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

#[test]
fn a_restore_onto_a_full_disk_says_so_and_goes_on_later() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::with_repository();
    let target = world.path("target");
    let disk = Disk::mount(&target, "8M");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let disk = disk.unwrap();
    let mut random = Random::new(19);
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("first"), random.noise(2 << 20)).unwrap();
    fs::write(world.tree().join("second"), random.noise(20 << 20)).unwrap();
    world.backup().exits(0);

    let what = world.of("latest");
    // One after the other: what does not fit takes all that is free, until it is removed.
    let restore = ["restore", &what, "--target", target.to_str().unwrap(), "--threads", "1"];
    let run = world.run(restore).exits(3);
    assert!(run.err.contains("second") && run.err.contains("space"), "{}", run.err);
    assert!(run.out.starts_with("restored with problems: 1 of 2 files"), "{}", run.out);
    let names = fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["first"], "what is torn has no name");

    disk.grow("64M");
    let run = world.run(restore).exits(0);
    assert!(run.out.starts_with("restored 2 files"), "{}", run.out);
    assert_same(&world.tree(), &target);

    // A file that differs stays as it is if there is no room for the one that replaces it.
    disk.grow("30M");
    let large = target.join("second");
    let mut live = fs::read(&large).unwrap();
    live[..4].copy_from_slice(b"mine");
    fs::write(&large, &live).unwrap();
    let run = world.run(restore).exits(3).warns("--patch");
    assert!(!run.err.contains(".strongroom-restore"), "{}", run.err);
    assert!(fs::read(&large).unwrap() == live);
    assert_eq!(fs::read_dir(&target).unwrap().count(), 2, "nothing is left over");
    world.run(restore.iter().chain(&["--patch"])).exits(0);
    assert_same(&world.tree(), &target);
}
