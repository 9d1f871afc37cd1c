//! Snapshots as a folder.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, has_program, skipped};

/// Why nothing can be mounted here.
pub fn cannot_mount() -> Option<&'static str> {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    let reason = device.is_err().then_some("/dev/fuse cannot be opened");
    reason.or((!has_program("fusermount3")).then_some("fusermount3 is not installed"))
}

/// Starts it, and reads until it says that it is there.
fn mounted(world: &World, folder: &Path) -> Child {
    let words: [&OsStr; 3] = ["--json".as_ref(), "mount".as_ref(), folder.as_ref()];
    let (child, said) = mounted_by(&mut world.command(words), folder);
    assert_eq!(said, "");
    child
}

/// The same, by a command that was made ready; and what it said before it was there.
pub fn mounted_by(command: &mut Command, folder: &Path) -> (Child, String) {
    fs::create_dir(folder).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let mut said = String::new();
    loop {
        let line = lines.next().expect("it ended before it was mounted");
        if line.contains("\"mounted\"") {
            break;
        }
        said += &format!("{line}\n");
    }
    drop(lines);
    (child, said)
}

#[test]
fn it_stays_until_ctrl_c() {
    if skipped("a mount", cannot_mount()) {
        return;
    }
    let world = World::with_tree(19);
    world.backup().exits(0);
    let folder = world.path("mnt");
    let child = mounted(&world, &folder);
    // Entries keep their directory open: paths alone do not.
    let ids = fs::read_dir(folder.join("ids")).unwrap().map(|entry| entry.unwrap().path());
    let ids: Vec<_> = ids.collect();
    assert_eq!(ids.len(), 1);
    let top = &ids[0];
    let inside = top.join(world.tree().strip_prefix("/").unwrap());
    assert_eq!(fs::read_dir(&inside).unwrap().count(), fs::read_dir(world.tree()).unwrap().count());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    World::finish(child).exits(0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "it is still mounted");
}

#[test]
fn it_shows_the_snapshots_that_fit_and_are_not_forgotten() {
    if skipped("a mount", cannot_mount()) {
        return;
    }
    let world = World::with_tree(19);
    for host in ["desk", "lap"] {
        world.run(["backup", "--host", host, world.tree().to_str().unwrap()]).exits(0);
    }
    // A label that was given later counts.
    world.say("tag --add mine latest --host desk").exits(0);
    let shown = |options: &[&str]| {
        let folder = world.path("mnt");
        let words = ["--json", "mount", folder.to_str().unwrap()];
        let (child, _) = mounted_by(&mut world.command(words.iter().chain(options)), &folder);
        let names = fs::read_dir(folder.join("hosts")).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        names.sort();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        World::finish(child).exits(0);
        fs::remove_dir(&folder).unwrap();
        names
    };
    assert_eq!(shown(&[]), ["desk", "lap"]);
    assert_eq!(shown(&["--host", "lap"]), ["lap"]);
    assert_eq!(shown(&["--label", "mine"]), ["desk"]);
    assert_eq!(shown(&["--path", "/nowhere"]), [""; 0]);
    world.say("forget latest --host lap").exits(0);
    assert_eq!(shown(&[]), ["desk"]);
}

#[test]
fn it_ends_when_it_is_unmounted() {
    if skipped("a mount", cannot_mount()) {
        return;
    }
    let world = World::with_tree(20);
    world.backup().exits(0);
    let folder = world.path("mnt");
    let child = mounted(&world, &folder);
    let status = Command::new("fusermount3").arg("-u").arg(&folder).status();
    assert!(status.unwrap().success());
    World::finish(child).exits(0).says("\"summary\"");
}

#[test]
fn a_mount_in_use_ends_with_who_is_in_it() {
    if skipped("a mount", cannot_mount()) {
        return;
    }
    let world = World::with_tree(21);
    world.backup().exits(0);
    let folder = world.path("mnt");
    let child = mounted(&world, &folder);
    let inside = fs::File::open(folder.join("ids")).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    while fs::read_dir(&folder).unwrap().count() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(inside);
    World::finish(child).exits(0);
}

#[test]
fn a_folder_that_is_not_there() {
    let world = World::with_repository();
    world.say("mount /nowhere/at/all").exits(1).warns("DIR must be an existing folder");
}
