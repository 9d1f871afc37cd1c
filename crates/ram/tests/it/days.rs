//! Bad days: connections that end too early, a repository that is full, and memory that is not what
//! was announced.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use strongroom_bucket::{BucketError, FromProgram, ToProgram};
use strongroom_cluster::{State, Verb};
use strongroom_testkit::noise;

use crate::controller::{Controller, OTHER};
use crate::raw::Raw;
use crate::world::{Memory, World, eventually, in_time, whole};

#[test]
fn what_was_not_captured_when_a_connection_ended_is_no_version() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 48 << 20));
    for is_copy in [false, true] {
        let raw = Raw::with_memory(&world, 1, &memory);
        raw.store(1, 1, is_copy);
        // It is being read when its program goes on without waiting.
        thread::sleep(Duration::from_millis(30));
        drop(raw);
        memory.write(&noise(2, 1 << 20));
        let bucket = whole(&world, 1, &memory);
        for _ in 0..20 {
            assert_eq!(bucket.test("v").unwrap(), None, "parts of two instants were stored");
            thread::sleep(Duration::from_millis(100));
        }
        assert!(bucket.wait("v", 1).is_err());
    }
    assert_eq!(world.snapshots(), 0);
}

#[test]
fn kept_1_12_a_program_that_ends_is_noticed_before_its_agent_hears_of_it() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 48 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    let (stuck, writing) = (world.log.stuck.lock().unwrap(), world.place.writing.lock().unwrap());
    raw.store(1, 1, false);
    thread::sleep(Duration::from_millis(200));
    // The agent logs why it ends this connection, and gets no further.
    let rude = Raw::connect(&world.socket()).unwrap();
    rude.say(&FromProgram::Callbacks { has_callbacks: true });
    thread::sleep(Duration::from_millis(200));
    drop(raw);
    memory.write(&noise(2, 48 << 20));
    drop(writing);
    for _ in 0..60 {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(world.snapshots(), 0, "parts of two instants were stored");
    }
    drop(stuck);
    let bucket = world.open(1);
    assert_eq!(bucket.test("v").unwrap(), None);
}

#[test]
fn a_full_repository_frees_nothing() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = Arc::new(whole(&world, 1, &memory));
    world.place.is_full.store(true, Ordering::SeqCst);
    let stored = bucket.store("v", 1).and_then(|()| bucket.wait("v", 1));
    assert!(stored.is_err());
    let evicted = bucket.evict().unwrap_err().to_string();
    assert!(evicted.contains("no space left"), "{evicted}");
    let failed = controller.until(1, (1, 1), &Verb::Prepare, &[State::Failed]);
    assert!(failed.reason.contains("no space left"), "{failed:?}");
    assert_eq!(failed.snapshot, None);
    // Nothing that would be freed is stored.
    let evict = controller.evict(1, 1, OTHER);
    controller.until(1, (2, 2), &evict, &[State::Failed]);
    assert!(memory.read() == noise(1, 1 << 20));
    world.place.is_full.store(false, Ordering::SeqCst);
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
}

#[test]
fn a_copy_that_could_not_be_stored_is_no_longer_needed() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 4 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.whole();
    controller.send(1, 1, Verb::Prepare);
    let epoch = raw.hold_still(true);
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    // What it reads differs from what it read before, and it cannot be written.
    memory.write(&noise(2, 4 << 20));
    world.place.is_full.store(true, Ordering::SeqCst);
    controller.send(1, 1, Verb::Cut);
    let resumed = raw.hear_until("resume", |it| matches!(it, ToProgram::Resume { .. }));
    if resumed == (ToProgram::Resume { epoch, is_reading: true }) {
        raw.hear_until("captured", |it| *it == ToProgram::EpochCaptured { epoch });
    }
    controller.until(1, (1, 1), &Verb::Cut, &[State::Failed]);
}

#[test]
fn an_aborted_capture_leaves_no_snapshot_of_two_instants() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 64 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.whole();
    controller.send(1, 1, Verb::Prepare);
    let epoch = raw.hold_still(false);
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    controller.send(1, 1, Verb::Cut);
    controller.send(1, 1, Verb::Abort);
    raw.hear_until("resume", |it| *it == ToProgram::Resume { epoch, is_reading: false });
    memory.write(&noise(2, 64 << 20));
    // The next round waits for the job of this one.
    controller.send(2, 2, Verb::Prepare);
    raw.hold_still(false);
    assert_eq!(world.snapshots(), 0, "it was stored though its program went on");
    controller.until(1, (2, 2), &Verb::Prepare, &[State::Ready]);
    controller.until(1, (2, 2), &Verb::Cut, &[State::Stored]);
    assert_eq!(world.snapshots(), 1);
}

#[test]
fn a_round_that_ends_while_memory_is_read_for_the_first_time_stops_no_program() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 48 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.whole();
    controller.send(1, 1, Verb::Prepare);
    thread::sleep(Duration::from_millis(30));
    controller.send(1, 1, Verb::Abort);
    let asked = raw.hear_within(Duration::from_secs(3));
    assert_eq!(asked, Err(()), "nothing is asked of it");
}

#[test]
fn a_load_leaves_what_is_behind_an_area_alone() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 100_000));
    let bucket = world.open(1);
    bucket.region("data", memory.0.as_fd(), None, 40_000).unwrap();
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    memory.write(&noise(2, 100_000));
    bucket.load("v", 1).unwrap();
    let after = memory.read();
    assert!(after[..40_000] == noise(1, 100_000)[..40_000]);
    assert!(
        after[40_000..] == noise(2, 100_000)[40_000..],
        "the rest of the file is the program's"
    );
}

#[test]
fn memory_that_is_none_or_becomes_shorter_ends_nothing_but_its_call() {
    let world = World::new();
    let _agent = world.agent();
    let raw = Raw::greet(&world, 1);
    let (pipe, _writer) = std::io::pipe().unwrap();
    let folder = File::open(world.folder.path()).unwrap();
    let null = File::open("/dev/null").unwrap();
    let short = Memory::zeros(10);
    for file in [pipe.as_fd(), folder.as_fd(), null.as_fd(), short.0.as_fd()] {
        assert!(raw.register("data", file, 100).unwrap_err().contains("cannot be read"));
    }
    // Together they are longer than any number of ours.
    let endless = Memory::zeros(i64::MAX as u64 - 4_096);
    let bytes = i64::MAX as u64 - 4_096;
    assert_eq!(raw.register("one", endless.0.as_fd(), bytes), Ok(()));
    let refused = raw.register("two", endless.0.as_fd(), bytes).unwrap_err();
    assert!(refused.contains("2^63 bytes"), "{refused}");
    raw.say(&FromProgram::Forget { request: 1, area: "one".to_owned() });
    assert_eq!(raw.hear(), Some(ToProgram::Done { request: 1 }));
    // It is cut short before, and while it is read.
    for after_ms in [0, 5, 20, 50] {
        let memory = Memory::new(&noise(1, 24 << 20));
        assert_eq!(raw.register("data", memory.0.as_fd(), 24 << 20), Ok(()));
        if after_ms == 0 {
            memory.0.set_len(1_000).unwrap();
        }
        raw.store(2, after_ms, false);
        thread::sleep(Duration::from_millis(after_ms));
        memory.0.set_len(1_000).unwrap();
        let is_answer =
            |it: &ToProgram| matches!(it, ToProgram::Captured { .. } | ToProgram::Failed { .. });
        raw.hear_until("an answer", is_answer);
    }
    // What is read-only is stored, and not loaded.
    let path = world.path("area");
    std::fs::write(&path, noise(3, 10_000)).unwrap();
    let bucket = world.open(2);
    bucket.region("data", File::open(&path).unwrap().as_fd(), None, 10_000).unwrap();
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    std::fs::write(&path, noise(4, 10_000)).unwrap();
    assert!(matches!(bucket.load("v", 1), Err(BucketError::Failed { .. })));
}

#[test]
fn an_agent_that_ends_lets_all_calls_return() {
    let world = World::new();
    let agent = world.agent();
    let memory = Memory::new(&noise(1, 48 << 20));
    let bucket = Arc::new(whole(&world, 1, &memory));
    let storing = bucket.clone();
    let call = thread::spawn(move || storing.store("v", 1));
    thread::sleep(Duration::from_millis(20));
    drop(agent);
    let outcome = in_time("the call returns", move || call.join().unwrap());
    assert!(matches!(outcome, Ok(()) | Err(BucketError::AgentGone)), "{outcome:?}");
    let _agent = world.agent();
    eventually("it is another agent's", || bucket.test("v").is_ok());
    // It is not known whether it was carried out; if it was, then as a whole.
    if bucket.test("v").unwrap().is_some() {
        let found = memory.read();
        bucket.load("v", 1).unwrap();
        assert!(memory.read() == found);
    }
}
