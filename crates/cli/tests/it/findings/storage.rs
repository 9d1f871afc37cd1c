//! Where a repository is, and what is under the names of its objects.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;

use crate::world::{CHEAP, Run, World};

/// Runs the program, and ends it if it hangs.
#[track_caller]
fn run_within(world: &World, words: &str, patience: Duration) -> Run {
    let mut command = world.command(words.split(' '));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let watch = Stopwatch::start();
    while child.try_wait().unwrap().is_none() {
        if watch.elapsed() > patience {
            child.kill().unwrap();
            panic!("`{words}` hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    World::finish(child)
}

/// A repository knows its own folder, of any name, and never stores itself.
#[test]
fn house_a_repository_in_a_folder_whose_name_is_not_utf8_is_not_stored() {
    let world = World::empty();
    let folder = world.folder.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("letter"), b"dear").unwrap();
    let run = |args: &[&str]| {
        let mut command = world.command(args);
        command.current_dir(&folder).env("STRONGROOM_REPOSITORY", "repository");
        World::finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    run(&["init", CHEAP[0], CHEAP[1]]).exits(0);
    run(&["backup", "."]).exits(0);
    run(&["find", "letter"]).exits(0).says("letter");
    let found = run(&["find", "config"]);
    assert!(!found.out.contains("config"), "the repository is in its own snapshot: {}", found.out);
}

/// Remote repositories do not exist yet; a folder called `s3:bucket` is not what was asked for.
#[test]
fn trial_08_a_remote_place_is_refused() {
    let world = World::empty();
    for place in ["s3:bucket/x", "sftp:host:/x", "me@host:x", "b2:bucket"] {
        let mut command = world.command(["init", CHEAP[0], CHEAP[1], "--repo", place]);
        let output = command.current_dir(world.folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{place}");
        let left: Vec<_> = fs::read_dir(world.folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{place}: {left:?}");
    }
    // What has a colon further on, or is written as a path, is a folder.
    let place = format!("{}/a:b", world.folder.path().display());
    world.run(["init", CHEAP[0], CHEAP[1], "--repo", &place]).exits(0);
}

/// Opening a FIFO waits for its writer; the copy of the configuration is sound.
#[test]
fn engine_23_a_fifo_in_the_place_of_an_object_never_blocks() {
    let world = World::with_tree(23);
    world.backup().exits(0);
    let config = world.repository().join("config");
    fs::remove_file(&config).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &config, mode).unwrap();
    run_within(&world, "snapshots", Duration::from_secs(60)).exits(0);
}

/// In a shared cache, each copy of a repository would drop the arenas that only the other has.
#[test]
fn engine_19_copies_of_a_repository_have_caches_of_their_own() {
    let world = World::with_tree(19);
    world.backup().exits(0);
    let copy = world.path("copy");
    let copied = Command::new("cp").arg("-r").arg(world.repository()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let tree = world.tree();
    let words = ["--repo".as_ref(), copy.as_os_str(), "backup".as_ref(), tree.as_os_str()];
    world.run(words).exits(0);
    let caches = fs::read_dir(world.path("cache")).unwrap();
    // Beside them are the records of running backups.
    let caches = caches.filter(|cache| cache.as_ref().unwrap().file_name() != "running");
    assert_eq!(caches.count(), 2);
}
