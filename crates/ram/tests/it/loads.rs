//! Loads of a cluster that end half-way, and what is known after one.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use strongroom_bucket::{Bucket, FromProgram, KeyRange, PROTOCOL, ToProgram};
use strongroom_cluster::{State, Verb};
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::raw::Raw;
use crate::world::{Memory, Running, Willing, World, eventually, whole};

const BYTES: usize = 8 << 20;

/// A bucket without keys, as its program waits to be loaded.
fn without_keys(world: &World, memory: &Memory) -> Bucket {
    let bucket = world.open(1);
    memory.register(&bucket, "data");
    bucket.on_quiesce(Box::new(Willing)).unwrap();
    // Once this is answered, the agent has heard of the callbacks.
    bucket.test("v").unwrap();
    bucket
}

/// A program that has said its keys, and has zeros.
fn of_zeros(world: &World) -> (Arc<Memory>, Bucket) {
    let memory = Arc::new(Memory::zeros(BYTES as u64));
    let bucket = whole(world, 1, &memory);
    bucket.test("v").unwrap();
    (memory, bucket)
}

/// Has the reads of a load wait once it has written to this memory. It goes on without the sender.
fn waits_half_way(world: &World, memory: &Arc<Memory>) -> (Receiver<()>, Sender<()>) {
    let ((stops, stopped), (goes_on, may_go_on)) = (channel(), channel());
    let (half, before) = (memory.clone(), memory.read());
    let channels = Mutex::new((stops, may_go_on));
    world.place.on_read(Some(Arc::new(move || {
        let channels = channels.lock().unwrap();
        if half.read() != before {
            // Only the first is awaited.
            let _ = channels.0.send(());
            let _: Result<(), _> = channels.1.recv();
        }
        true
    })));
    (stopped, goes_on)
}

/// Ends an agent while it loads. What it loads goes on without the sender, once the test has ended.
fn dies_half_way(
    world: &World,
    agent: Running,
    memory: &Arc<Memory>,
    load: impl FnOnce(),
) -> Sender<()> {
    let (stopped, goes_on) = waits_half_way(world, memory);
    load();
    stopped.recv_timeout(Duration::from_secs(20)).unwrap();
    world.place.on_read(None);
    drop(agent);
    goes_on
}

/// Whether something is written down of a load that did not end.
fn is_written_down(world: &World) -> bool {
    world.path("state").join("file.bucket-1.loading").exists()
}

fn has_anything(memory: &Memory) -> bool {
    memory.read().iter().any(|byte| *byte != 0)
}

#[test]
fn kept_1_12_keys_that_a_load_gave_outlive_the_agent() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let memory = Memory::zeros(BYTES as u64);
    let bucket = without_keys(&world, &memory);
    let load = controller.load(1, 1, snapshot);
    controller.until(1, (2, 2), &load, &[State::Loaded]);
    assert!(memory.read() == noise(1, BYTES));
    memory.write(&noise(2, BYTES));
    drop(agent);
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    let status = controller.until(1, (3, 0), &Verb::Status, &[State::Idle, State::Loaded]);
    assert_eq!(status.description.range, Some(KeyRange::whole()), "its keys are missing");
    controller.until(1, (4, 4), &load, &[State::Loaded, State::Failed]);
    assert!(memory.read() == noise(2, BYTES), "newer memory is lost");
    controller.store(1, 5);
}

#[test]
fn kept_1_12_a_load_that_fails_half_way_leaves_zeros() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let (memory, _bucket) = of_zeros(&world);
    let load = controller.load(1, 1, snapshot);
    let (half, was_half) = (memory.clone(), Arc::new(Mutex::new(false)));
    let fails = {
        let was_half = was_half.clone();
        move || {
            let is_half = has_anything(&half);
            *was_half.lock().unwrap() |= is_half;
            !is_half
        }
    };
    world.place.on_read(Some(Arc::new(fails)));
    controller.until(1, (2, 2), &load, &[State::Failed]);
    world.place.on_read(None);
    assert!(*was_half.lock().unwrap(), "it failed before anything was written");
    let answer = controller.until(1, (3, 3), &Verb::Prepare, &[State::Ready, State::Empty]);
    assert_eq!(answer.state, State::Empty, "half of a bucket would be stored");
    assert!(!has_anything(&memory));
    controller.send(3, 3, Verb::Abort);
    let ended = controller.until(1, (4, 4), &load, &[State::Loaded, State::Failed]);
    assert_eq!(ended.state, State::Loaded, "{ended:?}");
    assert!(memory.read() == noise(1, BYTES));
}

#[test]
fn kept_1_12_an_agent_that_dies_in_a_load_leaves_no_bucket_that_is_stored() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let (memory, bucket) = of_zeros(&world);
    let load = controller.load(1, 1, snapshot);
    let goes_on = dies_half_way(&world, agent, &memory, || controller.send(2, 2, load.clone()));
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    let answer = controller.until(1, (3, 3), &Verb::Prepare, &[State::Ready, State::Failed]);
    assert!(answer.reason.contains("load it again"), "half of a bucket is stored: {answer:?}");
    controller.send(3, 3, Verb::Abort);
    let ended = controller.until(1, (4, 4), &load, &[State::Loaded, State::Failed]);
    assert_eq!(ended.state, State::Loaded, "{ended:?}");
    assert!(memory.read() == noise(1, BYTES));
    controller.store(1, 5);
    // What was loaded is not loaded over.
    memory.write(&noise(2, BYTES));
    let other = controller.load(1, 7, snapshot);
    controller.until(1, (6, 6), &other, &[State::Failed]);
    assert!(memory.read() == noise(2, BYTES));
    drop(goes_on);
}

/// A program has its keys before it has its memory.
#[test]
fn a_bucket_without_areas_is_empty() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let (memory, bucket) = of_zeros(&world);
    let load = controller.load(1, 1, snapshot);
    let goes_on = dies_half_way(&world, agent, &memory, || controller.send(2, 2, load.clone()));
    drop(bucket);
    let _agent = world.node(&controller.node_file());
    let bucket = world.open(1);
    bucket.range(&KeyRange::whole(), 0).unwrap();
    bucket.on_quiesce(Box::new(Willing)).unwrap();
    bucket.test("v").unwrap();
    let answer = controller.until(1, (3, 3), &Verb::Prepare, &[State::Ready, State::Empty]);
    assert_eq!(answer.state, State::Empty, "nothing is stored for all keys");
    controller.send(3, 3, Verb::Abort);
    let answer = controller.until(1, (4, 4), &load, &[State::Loaded, State::Failed]);
    assert!(answer.reason.contains("no area \"data\" is registered"), "{answer:?}");
    // It is still known that the memory is torn which it registers now.
    assert!(is_written_down(&world));
    memory.register(&bucket, "data");
    let answer = controller.until(1, (5, 5), &Verb::Prepare, &[State::Ready, State::Failed]);
    assert!(answer.reason.contains("load it again"), "half of a bucket is stored: {answer:?}");
    controller.send(5, 5, Verb::Abort);
    controller.until(1, (6, 6), &load, &[State::Loaded]);
    controller.store(1, 7);
    drop(goes_on);
}

/// An agent that refuses to load over other keys says that the program is to be started without.
#[test]
fn kept_1_12_what_was_torn_is_whole_once_a_program_without_keys_is_loaded() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let (memory, bucket) = of_zeros(&world);
    let load = controller.load(1, 1, snapshot);
    let goes_on = dies_half_way(&world, agent, &memory, || controller.send(2, 2, load.clone()));
    drop(bucket);
    assert!(is_written_down(&world));
    let agent = world.node(&controller.node_file());
    let bucket = without_keys(&world, &memory);
    controller.until(1, (3, 3), &load, &[State::Loaded]);
    assert!(memory.read() == noise(1, BYTES));
    controller.store(1, 4);
    assert!(!is_written_down(&world));
    memory.write(&noise(2, BYTES));
    drop(agent);
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    controller.until(1, (5, 5), &load, &[State::Failed]);
    assert!(memory.read() == noise(2, BYTES), "newer memory is lost");
    controller.store(1, 6);
    drop(goes_on);
}

#[test]
fn kept_1_12_a_load_makes_whole_only_what_it_loads() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let two = Memory::new(&noise(2, BYTES));
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let of_one = controller.store(1, 1);
    two.register(&bucket, "more");
    let of_both = controller.store(1, 2);
    drop(bucket);
    let (memory, bucket) = of_zeros(&world);
    let other = Memory::zeros(BYTES as u64);
    other.register(&bucket, "more");
    let load = controller.load(1, 2, of_both);
    let goes_on = dies_half_way(&world, agent, &memory, || controller.send(3, 3, load.clone()));
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    let of_less = controller.load(1, 1, of_one);
    controller.until(1, (4, 4), &of_less, &[State::Loaded]);
    let answer = controller.until(1, (5, 5), &Verb::Prepare, &[State::Ready, State::Failed]);
    assert!(answer.reason.contains("load it again"), "half of an area is stored: {answer:?}");
    controller.send(5, 5, Verb::Abort);
    controller.until(1, (6, 6), &load, &[State::Loaded]);
    assert!(memory.read() == noise(1, BYTES) && other.read() == noise(2, BYTES));
    controller.store(1, 7);
    drop(goes_on);
}

#[test]
fn kept_1_12_a_load_that_fails_makes_no_zeros_of_what_was_torn_before() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let (memory, bucket) = of_zeros(&world);
    let load = controller.load(1, 1, snapshot);
    let goes_on = dies_half_way(&world, agent, &memory, || controller.send(2, 2, load.clone()));
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    // Its program goes on with what there is.
    memory.write(&noise(2, BYTES));
    let (now, before) = (memory.clone(), memory.read());
    world.place.on_read(Some(Arc::new(move || now.read() == before)));
    controller.until(1, (3, 3), &load, &[State::Failed]);
    world.place.on_read(None);
    assert!(memory.read() != noise(2, BYTES), "it failed before anything was written");
    let end = BYTES - 4096;
    assert!(memory.read()[end..] == noise(2, BYTES)[end..], "the memory of a program is lost");
    let answer = controller.until(1, (4, 4), &Verb::Prepare, &[State::Ready, State::Failed]);
    assert!(answer.reason.contains("load it again"), "parts of two times are stored: {answer:?}");
    controller.send(4, 4, Verb::Abort);
    controller.until(1, (5, 5), &load, &[State::Loaded]);
    controller.store(1, 6);
    drop(goes_on);
}

/// A process that the program has left behind may write to the memory while it is filled.
#[test]
fn kept_1_12_what_is_loaded_after_a_program_has_ended_is_not_whole() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let memory = Arc::new(Memory::zeros(BYTES as u64));
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.whole();
    raw.settle();
    let (stopped, goes_on) = waits_half_way(&world, &memory);
    controller.send(2, 2, controller.load(1, 1, snapshot));
    raw.hold_still(false);
    stopped.recv_timeout(Duration::from_secs(20)).unwrap();
    let stuck = world.log.stuck.lock().unwrap();
    // The agent logs why it ends this connection, and gets no further.
    let rude = Raw::connect(&world.socket()).unwrap();
    rude.say(&FromProgram::Callbacks { has_callbacks: true });
    thread::sleep(Duration::from_millis(200));
    drop(raw);
    world.place.on_read(None);
    drop(goes_on);
    eventually("all is filled", || memory.read() == noise(1, BYTES));
    thread::sleep(Duration::from_millis(300));
    assert!(is_written_down(&world), "it is thought to be whole");
    drop(stuck);
    // The agent goes on.
    let raw = Raw::connect(&world.socket()).unwrap();
    raw.say(&FromProgram::Hello { protocol: PROTOCOL, file: "file".to_owned(), bucket: 1 });
    assert_eq!(raw.hear(), Some(ToProgram::Welcome { protocol: PROTOCOL }));
    assert!(is_written_down(&world));
}

#[test]
fn kept_1_12_a_load_that_breaks_leaves_no_bucket_that_is_stored() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let bucket = whole(&world, 1, &Memory::new(&noise(1, BYTES)));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let (memory, _bucket) = of_zeros(&world);
    let half = memory.clone();
    world.place.on_read(Some(Arc::new(move || {
        assert!(!has_anything(&half), "as a mistake in the agent would");
        true
    })));
    let load = controller.load(1, 1, snapshot);
    let failed = controller.until(1, (2, 2), &load, &[State::Failed]);
    assert!(failed.reason.contains("a mistake in the agent"), "{failed:?}");
    world.place.on_read(None);
    assert!(has_anything(&memory));
    let answer = controller.until(1, (3, 3), &Verb::Prepare, &[State::Ready, State::Failed]);
    assert!(answer.reason.contains("load it again"), "half of a bucket is stored: {answer:?}");
}
