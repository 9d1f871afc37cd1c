//! Loads of a cluster that end half-way, and what is known after one.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use strongroom_bucket::{Bucket, KeyRange};
use strongroom_cluster::{State, Verb};
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::world::{Memory, Willing, World, eventually, whole};

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
    let ((stops, stopped), (goes_on, may_go_on)) = (channel(), channel());
    let (half, channels) = (memory.clone(), Mutex::new((stops, may_go_on)));
    world.place.on_read(Some(Arc::new(move || {
        let channels = channels.lock().unwrap();
        if has_anything(&half) {
            channels.0.send(()).unwrap();
            // It goes on once the test has ended.
            let _: Result<(), _> = channels.1.recv();
        }
        true
    })));
    controller.send(2, 2, load.clone());
    stopped.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    world.place.on_read(None);
    drop(agent);
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
