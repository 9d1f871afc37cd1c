//! Ctrl-C.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use strongroom_testkit::damage::files_below;
use strongroom_testkit::{Random, assert_same};

use crate::world::World;

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
