//! Programs and datagrams without end: the agent goes on for the others, and does not grow.

use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_bucket::{AREAS_MAX, FromProgram, PROTOCOL, ToProgram};
use strongroom_cluster::{State, Verb};
use strongroom_testkit::{Random, noise};

use crate::controller::Controller;
use crate::raw::Raw;
use crate::world::{Memory, World, eventually, whole};

/// Threads of this process.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_program_that_reads_nothing_keeps_no_other_waiting() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 100_000));
    let bucket = whole(&world, 1, &memory);
    let deaf = Raw::greet(&world, 2);
    let flood = std::thread::spawn(move || {
        let forget = FromProgram::Forget { request: 1, area: "data".to_owned() };
        // It ends when the agent ends it.
        (0..2_000_000).find(|_| deaf.try_say(&forget, None).is_err())
    });
    let start = Stopwatch::start();
    while start.elapsed() < Duration::from_secs(3) {
        let asked = Stopwatch::start();
        bucket.test("v").unwrap();
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    }
    eventually("the deaf one is disconnected", || flood.is_finished());
}

#[test]
fn a_program_that_asks_without_end_is_disconnected() {
    let world = World::new();
    let _agent = world.agent();
    let bucket = whole(&world, 1, &Memory::new(&noise(1, 100_000)));
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    let before = threads();
    let name = || "v".to_owned();
    let test = FromProgram::Test { request: 1, name: name(), at_most: None };
    let wait = FromProgram::Wait { request: 1, name: name(), version: 9 };
    let areas = vec!["a".repeat(64); 512];
    let load = FromProgram::Load { request: 1, name: name(), version: 1, areas };
    for message in [test, wait, load] {
        let raw = Raw::greet(&world, 2);
        let refused = (0..100_000).find(|_| raw.try_say(&message, None).is_err());
        assert!(refused.is_some(), "{message:?}");
        assert!(threads() < before + 50, "{} threads", threads());
        drop(raw);
    }
    bucket.wait("v", 1).unwrap();
    assert!(world.log.lines().iter().any(|line| line.contains("asks for too much at once")));
}

#[test]
fn programs_that_say_nothing_are_let_go_and_floods_are_not_logged() {
    let world = World::new();
    let _agent = world.agent();
    let silent = Raw::connect(&world.socket()).unwrap();
    // What breaks the rules is logged a few times.
    for _ in 0..300 {
        let Ok(raw) = Raw::connect(&world.socket()) else { continue };
        let _ = raw.try_say(&FromProgram::Callbacks { has_callbacks: true }, None);
        let _ = raw.try_say(&FromProgram::Callbacks { has_callbacks: false }, None);
    }
    eventually("the first are logged", || world.log.lines().len() >= 20);
    let lines = world.log.lines().len();
    assert!((1..40).contains(&lines), "{lines} lines");
    let said = silent.hear_within(Duration::from_secs(15));
    assert_eq!(said, Ok(None), "it did not say which bucket it has");
}

#[test]
fn thousands_of_connections_leave_the_agent_as_it_was() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 100_000));
    let bucket = whole(&world, 1, &memory);
    let before = threads();
    let mut raws = Vec::new();
    for number in 0..3_000 {
        let Ok(raw) = Raw::connect(&world.socket()) else { break };
        let hello = FromProgram::Hello { protocol: PROTOCOL, file: "flood".into(), bucket: number };
        let _ = raw.try_say(&hello, None);
        raws.push(raw);
    }
    assert!(threads() < before + 2_200, "{} threads", threads());
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    drop(raws);
    eventually("its threads end", || threads() < before + 20);
    let _other = world.open(2);
}

#[test]
fn programs_that_come_and_go_with_other_names_leave_nothing() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 4_096));
    for number in 0..1_000 {
        let raw = Raw::connect(&world.socket()).unwrap();
        let file = if number % 2 == 0 { "file".to_owned() } else { format!("file {number}") };
        raw.say(&FromProgram::Hello { protocol: PROTOCOL, file, bucket: number });
        assert_eq!(raw.hear(), Some(ToProgram::Welcome { protocol: PROTOCOL }));
        assert_eq!(raw.register("data", memory.0.as_fd(), 4_096), Ok(()));
        raw.say(&FromProgram::Callbacks { has_callbacks: true });
        raw.whole();
    }
    let bucket = whole(&world, 5, &memory);
    controller.store(5, 1);
    drop(bucket);
}

#[test]
fn floods_of_datagrams_are_neither_logged_nor_kept() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let _bucket = whole(&world, 1, &memory);
    let mut random = Random::new(3);
    let status = controller.seal(&controller.command(7, 0, Verb::Status));
    let noise = noise(4, 4_096);
    for at in 0..100_000 {
        match at % 4 {
            0 => controller.throw(&status),
            1 => controller.throw(&status[..random.below(status.len() as u64) as usize]),
            _ => controller.throw(&noise[..random.below(2_500) as usize]),
        }
    }
    let lines = world.log.lines().len();
    assert!(lines < 50, "{lines} lines");
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    controller.until(1, (1, 1), &Verb::Cut, &[State::Stored]);
}

/// Areas of one bucket, all of the same memory.
fn with_areas(world: &World, number: u32, memory: &Memory) -> Raw {
    let raw = Raw::greet(world, number);
    for area in 0..AREAS_MAX {
        assert_eq!(raw.register(&format!("{area:064}"), memory.0.as_fd(), 4_096), Ok(()));
    }
    raw
}

#[test]
fn kept_1_12_stores_that_wait_make_no_area_of_others_slow() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 4_096));
    let busy: Vec<Raw> = (2..10).map(|number| with_areas(&world, number, &memory)).collect();
    let writing = world.place.writing.lock().unwrap();
    for raw in &busy {
        for version in 1..=60 {
            raw.store(1, version, true);
        }
    }
    for raw in &busy {
        raw.settle();
    }
    let (other, start) = (Raw::greet(&world, 1), Stopwatch::start());
    for area in 0..100 {
        assert_eq!(other.register(&format!("{area}"), memory.0.as_fd(), 4_096), Ok(()));
    }
    let took = start.elapsed();
    drop(busy);
    drop(writing);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn kept_1_12_what_waits_for_a_program_is_bounded_by_its_length() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 4_096));
    let raw = with_areas(&world, 1, &memory);
    raw.store(1, 1, false);
    raw.wait(2, 1);
    raw.hear_until("stored", |it| *it == ToProgram::Done { request: 2 });
    let test = FromProgram::Test { request: 3, name: "v".to_owned(), at_most: None };
    for _ in 0..100 {
        let _ = raw.try_say(&test, None);
    }
    // It reads none of the answers for a while.
    std::thread::sleep(Duration::from_secs(6));
    let mut found = 0;
    while let Ok(Some(ToProgram::Found { .. })) = raw.hear_within(Duration::from_secs(2)) {
        found += 1;
    }
    assert!(found < 40, "{found} answers of 57 kB each were kept");
    // Names of areas are kept for each call that waits.
    let raw = with_areas(&world, 2, &memory);
    let writing = world.place.writing.lock().unwrap();
    let areas: Vec<String> = (1..AREAS_MAX).map(|area| format!("{area:064}")).collect();
    let said = (0..60).find(|version| {
        let (name, areas) = ("v".to_owned(), areas.clone());
        let (request, version, is_copy) = (1, *version, true);
        let store = FromProgram::Store { request, name, version, is_copy, areas };
        std::thread::sleep(Duration::from_millis(20));
        raw.try_say(&store, None).is_err()
    });
    drop(writing);
    assert!(said.is_some_and(|said| said < 30), "{said:?}");
}
