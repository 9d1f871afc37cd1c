//! Which snapshot is meant, and what is said about it.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use strongroom_testkit::noise;

use crate::world::{CHEAPEST_TYPED, Run, World};

/// A backup of a stream that is stopped after these bytes. They are more than a pipe holds, or none.
fn stopped_stream(world: &World, name: &str, bytes: &[u8]) -> Run {
    let mut command = world.command(["backup", "--stdin", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let sessions = world.repository().join("sessions");
    while fs::read_dir(&sessions).map_or(0, Iterator::count) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    input.write_all(bytes).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    // The program may be waiting for more, and notices the signal only when that wait ends.
    std::thread::sleep(Duration::from_millis(300));
    drop(input);
    World::finish(child).exits(130)
}

fn snapshots(world: &World) -> Vec<Value> {
    world.say("--json snapshots").exits(0).events("snapshot")
}

/// The program under a clock that is wrong by this many seconds.
fn run_at(world: &World, seconds_off: i64, words: &str) -> Run {
    let shim = world.path("clock.so");
    if !shim.exists() {
        let source = world.path("clock.c");
        fs::write(&source, CLOCK).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source);
        assert!(compiler.status().unwrap().success());
    }
    let mut command = world.command(words.split(' '));
    command.env("LD_PRELOAD", &shim).env("CLOCK_OFF", seconds_off.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    World::finish(command.spawn().unwrap())
}

const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME) now->tv_sec += atoll(getenv("CLOCK_OFF"));
    return result;
}
"#;

const YEAR: i64 = 365 * 86_400;

#[test]
fn engine_04_a_wrong_clock_does_not_make_the_latest() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let backup = format!("backup {}", world.tree().display());
    // Of 2041, of 1970, beyond what a snapshot can record, and of today.
    for (off, text) in
        [(15 * YEAR, "2041"), (-56 * YEAR, "1970"), (274 * YEAR, "2300"), (0, "today")]
    {
        fs::write(world.tree().join("file"), text).unwrap();
        run_at(&world, off, &backup).exits(0);
        let newest = world.say(&format!("cat latest:{}/file", world.tree().display())).exits(0);
        assert_eq!(newest.out, text);
    }
    let before = world.say(&format!("cat latest~2:{}/file", world.tree().display())).exits(0);
    assert_eq!(before.out, "1970");
}

#[test]
fn engine_04_a_key_that_only_stores_keeps_the_order() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let key = world.path("put");
    fs::write(&key, "put only").unwrap();
    let key = key.display().to_string();
    let add = ["key", "add", "--put-only", "--new-password-file", &key];
    world.run(add.iter().chain(&CHEAPEST_TYPED)).exits(0);
    let put = format!("backup {} --password-file {key}", world.tree().display());
    // Later the clock of the machine that can only store is wrong.
    for (off, text) in [(0, "one"), (0, "two"), (-30 * YEAR, "three"), (-30 * YEAR, "four")] {
        fs::write(world.tree().join("file"), text).unwrap();
        run_at(&world, off, &put).exits(0);
        let newest = world.say(&format!("cat latest:{}/file", world.tree().display())).exits(0);
        assert_eq!(newest.out, text);
    }
}

#[test]
fn trial_08_a_snapshot_from_the_future_is_reported() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let backup = format!("backup {}", world.tree().display());
    run_at(&world, 124 * YEAR, &backup).exits(0);
    world.say(&backup).exits(0).warns("a snapshot from the future");
    run_at(&world, 300 * YEAR, &backup).exits(0).warns("set the clock");
    world.say("snapshots").exits(0).says("2262 or later");
}

#[test]
fn engine_04_an_interrupted_backup_is_not_the_latest() {
    let world = World::with_repository();
    world.feed("backup --stdin dump", b"whole").exits(0);
    stopped_stream(&world, "dump", &noise(4, 8 << 20));
    assert_eq!(snapshots(&world).len(), 2);
    assert_eq!(world.say("cat latest:dump").exits(0).out, "whole");
    // The next backup takes the complete one for its parent, and follows the incomplete one.
    world.feed("backup --stdin dump", b"next").exits(0);
    assert_eq!(world.say("cat latest:dump").exits(0).out, "next");
}

#[test]
fn trial_04_restoring_an_interrupted_backup_says_so() {
    let world = World::with_repository();
    stopped_stream(&world, "dump", &noise(4, 8 << 20));
    let list = snapshots(&world);
    let id = list[0]["id"].as_str().unwrap();
    let target = world.path("out").display().to_string();
    let run = world.run(["restore", id, "--target", &target]);
    let run = run.exits(3).warns("is incomplete").says("from incomplete snapshot");
    assert!(world.path("out/dump").exists(), "{run:?}");
    let run = world.run(["--json", "restore", id, "--in-place", "--dry-run"]).exits(3);
    assert_eq!(run.summary()["partial"], true);
    world.run(["dump", id]).exits(3).warns("is incomplete");
    world.run(["cat", &format!("{id}:dump")]).exits(3).warns("is incomplete");
    world.run(["ls", id]).exits(0).warns("is incomplete");
    world.say("restore latest --in-place").exits(1).warns("no complete").warns("latest-partial");
}

#[test]
fn engine_04_a_backup_that_reached_nothing_leaves_nothing() {
    let world = World::with_repository();
    stopped_stream(&world, "dump", b"");
    world.say("snapshots").exits(0).warns("there are no snapshots yet");
    assert_eq!(fs::read_dir(world.repository().join("sessions")).unwrap().count(), 0);
}

#[test]
fn trial_08_latest_of_a_path_is_one_that_holds_it() {
    let world = World::with_repository();
    for name in ["a/one", "b/two"] {
        let path = world.tree().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    world.backup().exits(0);
    world.say(&format!("backup {}/a", world.tree().display())).exits(0);
    world.feed("backup --stdin hello", b"hello").exits(0);
    let restored = world.restored(&world.of("latest"));
    assert!(restored.join("a/one").exists() && restored.join("b/two").exists());
    // Of what is in the second alone, the second is the newest.
    let run = world.say(&format!("--json cat {}/a/one", world.of("latest"))).exits(0);
    let second = snapshots(&world)[1]["id"].as_str().unwrap().to_owned();
    assert!(run.err.contains(&second), "{}", run.err);
}

#[test]
fn trial_08_a_filter_that_matches_nothing_says_of_how_many() {
    let world = World::with_tree(1);
    world.backup().exits(0);
    world.backup().exits(0);
    world.say("snapshots --path /nowhere").exits(0).warns("none of 2 snapshots");
}
