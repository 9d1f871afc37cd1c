//! Drills on bad days: files that rot unseen, disks that fill up and fail, drills that are stopped
//! and killed, repositories that lost something.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use strongroom_testkit::Random;
use strongroom_testkit::damage::files_below;

use crate::drill::{drill, drilled, largest_arena, left_over};
use crate::findings::media::shim;
use crate::space::Disk;
use crate::world::{Run, World, is_root, skipped};

/// The last drill of the newest snapshot, as the list of snapshots has it.
fn recorded(world: &World) -> Value {
    let listed = world.say("--json snapshots").exits(0);
    serde_json::from_str::<Value>(listed.out.lines().next().unwrap()).unwrap()["proved"].clone()
}

fn assert_nothing_left(folder: PathBuf) {
    assert_eq!(left_over(folder), [] as [PathBuf; 0]);
}

/// Starts a drill whose command waits, and gives it when what was restored is all there.
fn waiting(world: &World, command: &str) -> Child {
    let is_there = world.path("is-there");
    let command = format!("touch {}; {command}", is_there.display());
    let mut drill = world.command(["drill", "--no-record", "--command", &command]);
    let child = drill.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !is_there.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(is_there).unwrap();
    child
}

/// The change time is what no program can set: a file whose other times are as before is one that
/// was changed, not one that rotted.
#[test]
fn a_file_with_forged_times_is_one_that_changed() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let path = world.tree().join("file");
    fs::write(&path, "before").unwrap();
    world.backup().exits(0);
    let before = path.metadata().unwrap();
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all(b"behind").unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let after = path.metadata().unwrap();
    assert_eq!((before.mtime_nsec(), before.size()), (after.mtime_nsec(), after.size()));
    let summary = drill(&world, "", 0);
    let source = &summary["source"];
    assert_eq!((&source["changed"], &source["different"]), (&1.into(), &0.into()), "{summary}");
    assert_eq!(summary["verdict"], "proved");
}

/// A bit of a file flips on its disk, below everything that notes changes.
#[test]
fn a_file_that_rotted_here_is_named_with_both_hashes() {
    if skipped("a disk image", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::with_repository();
    let (image, disk) = (world.path("image"), world.path("disk"));
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let mkfs = Command::new("mkfs.ext4").arg("-q").arg(&image).output();
    if skipped("a disk image", mkfs.is_err().then_some("there is no mkfs.ext4")) {
        return;
    }
    let options = ["-o", "loop", image.to_str().unwrap()];
    let mounted = Disk::mount_as(&disk, &options);
    if skipped("a disk image", mounted.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let (content, mut rotten) = (Random::new(8).noise(50_000), Random::new(8).noise(50_000));
    fs::write(disk.join("rots"), &content).unwrap();
    fs::write(disk.join("stays"), &content[..9000]).unwrap();
    world.run(["backup", disk.to_str().unwrap()]).exits(0);
    drop(mounted);
    fs::remove_dir(&disk).unwrap();
    let bytes = fs::read(&image).unwrap();
    let marker = &content[20_000..20_064];
    let at = bytes.windows(64).position(|window| window == marker).unwrap();
    rotten[20_000] ^= 1;
    let mut file = fs::File::options().write(true).open(&image).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&rotten[20_000..20_001]).unwrap();
    drop(file);
    let mounted = Disk::mount_as(&disk, &options);
    assert_eq!(fs::read(disk.join("rots")).unwrap(), rotten);
    let [here, there] = [&rotten, &content].map(|bytes| blake3::hash(bytes).to_hex().to_string());
    let run = world.say("drill").exits(3).says("look at both").says("1 the same, 1 not");
    run.warns(&format!("BLAKE3 here: {here}; in the backup: {there}")).warns("/rots");
    assert_eq!(recorded(&world)["verdict"], "incomplete");
    drop(mounted);
}

#[test]
fn an_incomplete_snapshot_is_drilled_as_one() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(13);
    for number in 0..24 {
        let noise = random.noise(4 << 20);
        fs::write(world.tree().join(format!("noise-{number:02}")), noise).unwrap();
    }
    let words = format!("backup --compression 12 --threads 1 {}", world.tree().display());
    let child = world.start(&words);
    let arenas = world.repository().join("arenas");
    while !arenas.exists() || files_below(&arenas).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    World::finish(child).exits(130);
    // What there is of it is proved, and that it is not all is said.
    let run = world.say("drill latest-partial").exits(3).says("proved restorable");
    run.says("from incomplete snapshot").warns("is incomplete");
    let summary = drill(&world, "latest-partial", 3);
    assert_eq!((&summary["verdict"], &summary["partial"]), (&"proved".into(), &true.into()));
    assert_eq!(recorded(&world)["verdict"], "proved");
    // It is not taken for the newest.
    world.say("drill").exits(1);
}

#[test]
fn a_drill_reads_from_a_replica_what_is_lost() {
    let world = drilled(10);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    for arena in files_below(&world.repository().join("arenas")) {
        fs::remove_file(arena).unwrap();
    }
    world.say("drill").exits(4).says("FAILED");
    let run = world.run(["drill", "--replica", &replica]).exits(0).says("proved restorable");
    run.warns("strongroom repair --from");
    // It is the repository that keeps the result.
    assert_eq!(recorded(&world)["verdict"], "proved");
}

#[test]
fn a_drill_that_is_stopped_while_it_restores_leaves_nothing() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(14);
    for number in 0..40 {
        let noise = random.noise(1 << 20);
        fs::write(world.tree().join(format!("noise-{number:02}")), noise).unwrap();
    }
    world.backup().exits(0);
    let child = world.start("drill --threads 1");
    let tree = |folder: &PathBuf| folder.join(world.tree().strip_prefix("/").unwrap());
    while !left_over(world.path("cache")).iter().any(|folder| tree(folder).exists()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let run = World::finish(child).exits(130);
    assert!(!run.out.contains("proved"), "{}", run.out);
    assert_nothing_left(world.path("cache"));
    assert_eq!(recorded(&world), Value::Null);
}

#[test]
fn what_a_killed_drill_left_is_removed_by_the_next() {
    let world = drilled(3);
    let mut killed = waiting(&world, "sleep 3");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = left_over(world.path("cache"));
    assert_eq!(left.len(), 2, "a folder and its marker: {left:?}");
    let alive = waiting(&world, "sleep 60");
    let with_alive = left_over(world.path("cache"));
    assert_eq!(with_alive.len(), 2, "the one that was killed is gone: {with_alive:?}");
    assert!(!with_alive.contains(&left[0]));
    // What a drill that is running has is no other's.
    let run = world.say("drill").exits(0).says("proved restorable");
    assert!(!run.err.contains("was killed"), "{}", run.err);
    assert_eq!(left_over(world.path("cache")), with_alive);
    kill_process(Pid::from_child(&alive), Signal::KILL).unwrap();
    World::finish(alive);
    world.say("drill").exits(0).warns("removed: a drill that was killed had left it");
    assert_nothing_left(world.path("cache"));
}

/// The disk fills up while the drill restores: here it has no inodes left, which no look at the
/// free bytes shows.
#[test]
fn a_scratch_that_fills_up_proves_nothing_and_keeps_nothing() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = drilled(40);
    world.say("drill").exits(0);
    let proved = recorded(&world)["last_proved"].clone();
    let folder = world.path("small");
    let disk = Disk::mount_as(&folder, &["-t", "tmpfs", "-o", "size=64M,nr_inodes=30", "tmpfs"]);
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let words = format!("drill --scratch {}", folder.display());
    let run = world.say(&words).exits(3).says("not proved: ").says("another --scratch");
    run.warns("No space left on device");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let last = recorded(&world);
    assert_eq!((&last["verdict"], &last["last_proved"]), (&"incomplete".into(), &proved));
    world.say("snapshots").exits(0).says("(drill incomplete 20");
    // Not even a folder can be made: then there was no drill.
    let none = world.path("none");
    let _disk = Disk::mount_as(&none, &["-t", "tmpfs", "-o", "size=64M,nr_inodes=1", "tmpfs"]);
    let words = format!("drill --scratch {}", none.display());
    world.say(&words).exits(1).warns("cannot make a scratch folder").warns("--scratch DIR");
    assert_eq!(recorded(&world), last);
}

fn refusing(world: &World, shim: &Path, name: &str, value: &str) -> Run {
    let mut command = world.command(["drill"]);
    command.env("LD_PRELOAD", shim).env(name, value);
    command.env("BAD_FROM", "0").env("BAD_TO", (u64::MAX / 2).to_string());
    Run::of(command.output().unwrap())
}

#[test]
fn a_disk_that_refuses_to_be_read_proves_nothing() {
    let world = drilled(10);
    let shim = shim(&world);
    // The disk of the scratch folder: what is stored may well be sound.
    let run = refusing(&world, &shim, "BAD_PATH", "strongroom-drill-").exits(3);
    run.says("not proved: ").says("another --scratch");
    assert_eq!(recorded(&world)["verdict"], "incomplete");
    assert_nothing_left(world.path("cache"));
    // The disk of the repository.
    let inode = largest_arena(&world).metadata().unwrap().ino().to_string();
    let run = refusing(&world, &shim, "BAD_INODE", &inode).exits(4);
    run.says("FAILED").says("run `strongroom verify`").warns("noise-00");
    assert_eq!(recorded(&world)["verdict"], "failed");
    assert_nothing_left(world.path("cache"));
}
