//! Ctrl-C.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use strongroom_testkit::damage::files_below;
use strongroom_testkit::{Random, assert_same};

use crate::world::{CHEAP, World, has_program, skipped};

fn signal(child: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_stopped_backup_keeps_what_it_did() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(13);
    for number in 0..40 {
        let noise = random.noise(4 << 20);
        fs::write(world.tree().join(format!("noise-{number:02}")), noise).unwrap();
    }
    let words = format!("backup --compression 12 --threads 1 {}", world.tree().display());
    let child = world.start(&words);
    let arenas = world.repository().join("arenas");
    // Once something was stored, but long before the end.
    while !arenas.exists() || files_below(&arenas).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, Signal::INT);
    let run = World::finish(child).exits(130);
    assert!(run.out.contains("stopped: incomplete snapshot"), "{}\n{}", run.out, run.err);
    world.say("snapshots").exits(0).says("(incomplete)");
    world.say("verify --data").exits(0);

    let run = world.say(&format!("--json backup {}", world.tree().display())).exits(0);
    let summary = run.summary();
    let new = summary["bytes_new"].as_u64().unwrap();
    assert!(new < 160 << 20, "all was stored again: {new}");
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

/// Ctrl-C and the end of a unit reach all of a group: what stores for the backup goes on.
#[test]
fn a_stopped_backup_keeps_what_it_did_at_another_machine() {
    let server = "/usr/lib/openssh/sftp-server";
    if skipped("no SFTP", (!has_program(server)).then_some("sftp-server is not installed")) {
        return;
    }
    let world = World::empty();
    fs::write(world.path("ssh"), format!("#!/bin/sh\nexec {server}\n")).unwrap();
    fs::set_permissions(world.path("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let far = |words: &str| {
        let mut command = world.command(words.split(' '));
        command.env("STRONGROOM_SSH", world.path("ssh"));
        command
            .env("STRONGROOM_REPOSITORY", format!("sftp://host/{}", world.repository().display()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let run = |words: &str| World::finish(far(words).spawn().unwrap());
    run(&format!("init {}", CHEAP.join(" "))).exits(0);
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(15);
    for number in 0..40 {
        fs::write(world.tree().join(format!("noise-{number:02}")), random.noise(4 << 20)).unwrap();
    }
    let words = format!("backup --compression 12 --threads 1 {}", world.tree().display());
    let child = far(&words).process_group(0).spawn().unwrap();
    let arenas = world.repository().join("arenas");
    while !arenas.exists() || files_below(&arenas).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    let stopped = World::finish(child).exits(130);
    assert!(stopped.out.contains("stopped: incomplete snapshot"), "{stopped:?}");
    run("snapshots").exits(0).says("(incomplete)");
}

#[test]
fn a_stopped_restore_goes_on() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(14);
    for number in 0..400 {
        let noise = random.noise(64 << 10);
        fs::write(world.tree().join(format!("noise-{number:03}")), noise).unwrap();
    }
    world.backup().exits(0);
    let target = world.path("out");
    let words = format!("restore --threads 1 {} --target {}", world.of("latest"), target.display());
    let child = world.start(&words);
    while fs::read_dir(&target).map_or(0, Iterator::count) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, Signal::TERM);
    let run = World::finish(child);
    // It may have been quicker than the signal.
    assert!(matches!(run.code, Some(0 | 130)), "{run:?}");
    world.say(&words).exits(0);
    assert_same(&world.tree(), &target);
}
