//! Rounds of a node whose datagrams are recorded, forged, repeated and out of order, and programs that
//! do something else at the same time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use strongroom_base::OsEntropy;
use strongroom_bucket::{FromProgram, KeyRange, Owner, ToProgram};
use strongroom_cluster::{State, Verb, seal_command};
use strongroom_testkit::noise;

use crate::controller::{Controller, OTHER};
use crate::raw::Raw;
use crate::world::{Memory, Willing, World, eventually, in_time, whole};

struct Scene {
    world: World,
    controller: Controller,
    _agent: crate::world::Running,
}

fn scene() -> Scene {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    Scene { world, controller, _agent: agent }
}

#[test]
fn recorded_and_forged_commands_do_nothing() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = whole(&world, 1, &memory);
    let mut recorded = Vec::new();
    let mut send = |run, epoch, verb: Verb| {
        let datagram = controller.seal(&controller.command(run, epoch, verb));
        controller.throw(&datagram);
        recorded.push(datagram);
    };
    send(1, 1, Verb::Prepare);
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    send(1, 1, Verb::Cut);
    let snapshot = controller.until(1, (1, 1), &Verb::Cut, &[State::Stored]).snapshot.unwrap();
    let evict = controller.evict(1, 1, snapshot);
    send(2, 2, evict.clone());
    controller.until(1, (2, 2), &evict, &[State::Evicted]);
    // The bucket is back, as it was, and every old command comes again, in any order, thrice.
    memory.register(&bucket, "data");
    bucket.range(&KeyRange::whole(), 0).unwrap();
    for datagram in recorded.iter().rev().chain(&recorded).chain(&recorded) {
        controller.throw(datagram);
    }
    // So do commands that another signed, or that are not what was signed.
    let other = Controller::new(&world, "other");
    let command = controller.command(9, 9, evict.clone());
    let (own, group) = (&controller.files, &other.files.group);
    controller.throw(&seal_command(&command, &other.files.controller, &own.group, &OsEntropy));
    controller.throw(&seal_command(&command, &own.controller, group, &OsEntropy));
    let right = controller.seal(&command);
    for at in (0..right.len()).step_by(7) {
        let mut wrong = right.clone();
        wrong[at] ^= 1;
        controller.throw(&wrong);
    }
    controller.throw(&right[..right.len() - 1]);
    controller.throw(&[]);
    let status = controller.until(1, (10, 0), &Verb::Status, &[State::Idle, State::Stored]);
    assert_eq!(status.highest.0, 2, "no epoch was taken");
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    controller.store(1, 3);
}

#[test]
fn an_eviction_that_is_refused_leaves_a_store_what_it_is() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let _one = whole(&world, 1, &memory);
    controller.until(1, (1, 5), &Verb::Prepare, &[State::Ready]);
    // Another client took the same epoch, for something else.
    controller.send(2, 5, controller.evict(1, 1, OTHER));
    let _two = whole(&world, 2, &memory);
    controller.until(2, (1, 5), &Verb::Prepare, &[State::Ready]);
    controller.until(2, (1, 5), &Verb::Cut, &[State::Stored]);
    controller.until(1, (1, 5), &Verb::Cut, &[State::Stored]);
}

#[test]
fn a_recorded_eviction_leaves_the_present_one_what_it_is() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let (one, two) = (Raw::with_memory(&world, 1, &memory), Raw::with_memory(&world, 2, &memory));
    one.whole();
    two.whole();
    controller.send(1, 1, Verb::Prepare);
    one.hold_still(false);
    two.hold_still(false);
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    controller.until(2, (1, 1), &Verb::Prepare, &[State::Ready]);
    let first = controller.until(1, (1, 1), &Verb::Cut, &[State::Stored]).snapshot.unwrap();
    let second = controller.until(2, (1, 1), &Verb::Cut, &[State::Stored]).snapshot.unwrap();
    let old = controller.seal(&controller.command(2, 2, controller.evict(1, 1, OTHER)));
    controller.throw(&old);
    controller.until(1, (2, 2), &controller.evict(1, 1, OTHER), &[State::Failed]);
    controller.send(3, 3, controller.evict(1, 1, first));
    one.hold_still(false);
    one.hear_until("evict", |it| matches!(it, ToProgram::Evict { .. }));
    controller.throw(&old);
    // The second part of the present one comes in a datagram of its own.
    controller.send(3, 3, controller.evict(2, 1, second));
    let epoch = two.hold_still(false);
    two.hear_until("evict", |it| *it == ToProgram::Evict { epoch });
    two.say(&FromProgram::Evicted { epoch, outcome: Ok(()) });
    controller.until(2, (3, 3), &controller.evict(2, 1, second), &[State::Evicted]);
}

#[test]
fn a_bucket_that_its_program_evicted_can_be_loaded() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    bucket.evict().unwrap();
    memory.write(&vec![0; 1 << 20]);
    memory.register(&bucket, "data");
    controller.until(1, (3, 3), &controller.load(1, 1, snapshot), &[State::Loaded]);
    assert!(memory.read() == noise(1, 1 << 20));
}

#[test]
fn a_bucket_that_was_evicted_has_no_keys_with_the_next_agent_either() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    let evict = controller.evict(1, 1, snapshot);
    controller.until(1, (2, 2), &evict, &[State::Evicted]);
    memory.write(&vec![0; 1 << 20]);
    memory.register(&bucket, "data");
    drop(agent);
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    let status = controller.until(1, (3, 0), &Verb::Status, &[State::Idle]);
    assert_eq!(status.description.range, None, "a cut would have an empty bucket for all keys");
    controller.until(1, (4, 4), &controller.load(1, 1, snapshot), &[State::Loaded]);
    assert!(memory.read() == noise(1, 1 << 20));
}

#[test]
fn a_load_whose_program_ends_before_it_begins_has_failed() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    drop(bucket);
    // The load waits for a store that is not answered yet.
    let large = Memory::new(&noise(2, 48 << 20));
    let raw = Raw::with_memory(&world, 1, &large);
    let load = controller.load(1, 1, snapshot);
    raw.store(1, 1, false);
    raw.settle();
    controller.until(1, (2, 2), &load, &[State::Loading]);
    drop(raw);
    controller.until(1, (2, 2), &load, &[State::Failed]);
    let bucket = world.open(1);
    memory.write(&vec![0; 1 << 20]);
    memory.register(&bucket, "data");
    bucket.on_quiesce(Box::new(Willing)).unwrap();
    // Once this is answered, the agent has heard of the callbacks.
    bucket.test("v").unwrap();
    controller.until(1, (3, 3), &load, &[State::Loaded]);
    assert!(memory.read() == noise(1, 1 << 20));
}

#[test]
fn a_load_spares_a_bucket_that_was_given_keys_meanwhile() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    drop(bucket);
    memory.write(&noise(2, 1 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    let load = controller.load(1, 1, snapshot);
    controller.until(1, (2, 2), &load, &[State::Loading]);
    let epoch = raw.asked();
    // A split gave it keys before it held still.
    raw.whole();
    raw.say(&FromProgram::Quiesced { epoch, is_copy: false, outcome: Ok(()) });
    raw.hear_until("resume", |it| *it == ToProgram::Resume { epoch, is_reading: false });
    let failed = controller.until(1, (2, 2), &load, &[State::Failed]);
    assert!(failed.reason.contains("in memory already"), "{failed:?}");
    assert!(memory.read() == noise(2, 1 << 20), "records that are nowhere else are lost");
}

/// A program says its keys at its start, as a manual once asked it to, or has them in shared memory that
/// has outlived it.
#[test]
fn kept_1_11_zeros_are_loaded_over_and_nothing_else() {
    let Scene { world, controller, _agent } = scene();
    let content = noise(1, 3 << 20);
    let bucket = whole(&world, 1, &Memory::new(&content));
    let snapshot = controller.store(1, 1);
    drop(bucket);
    let mut last = vec![0; 3 << 20];
    *last.last_mut().unwrap() = 1;
    let half = KeyRange { low: b"m".to_vec(), high: None };
    // What it has, the keys that it claims, and whether it is loaded.
    for (round, (has, keys, why)) in (1..).zip([
        (vec![0; 3 << 20], KeyRange::whole(), None),
        (last, KeyRange::whole(), Some("in memory already")),
        (noise(2, 3 << 20), KeyRange::whole(), Some("in memory already")),
        (vec![0; 3 << 20], half, Some("its program says that it has the keys from m")),
    ]) {
        let memory = Memory::new(&has);
        let bucket = world.open(1);
        memory.register(&bucket, "data");
        bucket.range(&keys, 0).unwrap();
        bucket.on_quiesce(Box::new(Willing)).unwrap();
        bucket.test("v").unwrap();
        let is_empty = has.iter().all(|byte| *byte == 0);
        let epoch = 10 * round;
        let answer =
            controller.until(1, (epoch, epoch), &Verb::Prepare, &[State::Ready, State::Empty]);
        assert_eq!(answer.state, if is_empty { State::Empty } else { State::Ready });
        controller.send(epoch, epoch, Verb::Abort);
        let load = controller.load(1, epoch, snapshot);
        let of = (epoch + 1, epoch + 1);
        let ended = controller.until(1, of, &load, &[State::Loaded, State::Failed]);
        match why {
            None => {
                assert_eq!(ended.state, State::Loaded, "{ended:?}");
                assert!(memory.read() == content);
                let ready = (epoch + 2, epoch + 2);
                controller.until(1, ready, &Verb::Prepare, &[State::Ready]);
                controller.send(epoch + 2, epoch + 2, Verb::Abort);
            }
            Some(why) => {
                assert!(ended.state == State::Failed && ended.reason.contains(why), "{ended:?}");
                assert!(memory.read() == has);
            }
        }
        // One that takes all takes zeros.
        let of = (epoch + 3, epoch + 3);
        controller.until(1, of, &Verb::PrepareAll, &[State::Ready]);
        controller.send(epoch + 3, epoch + 3, Verb::Abort);
    }
}

#[test]
fn a_load_waits_for_a_store_that_its_program_needs() {
    let Scene { world, controller, _agent } = scene();
    let content = noise(1, 32 << 20);
    let memory = Memory::new(&content);
    let bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    drop(bucket);
    memory.write(&noise(2, 32 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    let load = controller.load(1, 1, snapshot);
    controller.until(1, (2, 2), &load, &[State::Loading]);
    let epoch = raw.asked();
    raw.store(1, 1, true);
    raw.say(&FromProgram::Quiesced { epoch, is_copy: true, outcome: Ok(()) });
    // And one that comes while it is filled is stored as it is afterwards.
    raw.store(2, 2, true);
    raw.hear_until("captured", |it| *it == ToProgram::Captured { request: 1 });
    let keys = Some((KeyRange::whole(), 0));
    raw.hear_until("load", |it| *it == ToProgram::Load { epoch, keys: keys.clone() });
    raw.say(&FromProgram::Loaded { epoch, outcome: Ok(()) });
    raw.hear_until("captured", |it| *it == ToProgram::Captured { request: 2 });
    raw.wait(3, 1);
    raw.wait(4, 2);
    raw.hear_until("done", |it| *it == ToProgram::Done { request: 4 });
    drop(raw);
    let bucket = world.open(1);
    memory.register(&bucket, "data");
    for (version, content) in [(1, noise(2, 32 << 20)), (2, content)] {
        bucket.load("v", version).unwrap();
        assert!(memory.read() == content, "version {version} has parts of both");
    }
}

#[test]
fn a_program_that_loads_by_itself_does_not_wait_for_a_round_for_ever() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = Arc::new(whole(&world, 1, &memory));
    let snapshot = controller.store(1, 1);
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    drop(bucket);
    let raw = Raw::with_memory(&world, 1, &memory);
    controller.send(2, 2, controller.load(1, 1, snapshot));
    let epoch = raw.asked();
    // Its thread holds what the callback needs, as the library's does.
    let (name, areas) = ("v".to_owned(), Vec::new());
    raw.say(&FromProgram::Load { request: 7, name, version: 1, areas });
    raw.hear_until("resume", |it| *it == ToProgram::Resume { epoch, is_reading: false });
    raw.hear_until("done", |it| *it == ToProgram::Done { request: 7 });
    controller.until(1, (2, 2), &controller.load(1, 1, snapshot), &[State::Failed]);
}

/// A program that reaches its safe point when the test says so.
struct Late(Sender<()>, Receiver<()>);

impl Owner for Late {
    fn quiesce(&mut self) -> Result<(), String> {
        self.0.send(()).unwrap();
        self.1.recv().map_err(|error| error.to_string())
    }

    fn resume(&mut self) {}

    fn evict(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_program_that_evicts_by_itself_while_it_is_asked_to_hold_still_goes_on() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = Arc::new(world.open(1));
    memory.register(&bucket, "data");
    bucket.range(&KeyRange::whole(), 0).unwrap();
    let ((asked, is_asked), (holds_still, still)) = (channel(), channel());
    bucket.on_quiesce(Box::new(Late(asked, still))).unwrap();
    bucket.test("v").unwrap();
    controller.send(1, 1, Verb::Prepare);
    in_time("it is asked", move || is_asked.recv().unwrap());
    let evicting = bucket.clone();
    let evicted = std::thread::spawn(move || evicting.evict());
    // By then the call has the areas, and the callback waits for them.
    std::thread::sleep(Duration::from_millis(500));
    holds_still.send(()).unwrap();
    in_time("it is evicted", move || evicted.join().unwrap()).unwrap();
    let failed = controller.until(1, (1, 1), &Verb::Prepare, &[State::Failed]);
    assert!(failed.reason.contains("loads or evicts it by itself"), "{failed:?}");
}

#[test]
fn answers_to_what_was_not_asked_are_ignored() {
    let Scene { world, controller, _agent } = scene();
    let memory = Memory::new(&noise(1, 1 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.whole();
    controller.send(1, 1, Verb::Prepare);
    let epoch = raw.hold_still(false);
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    raw.say(&FromProgram::Evicted { epoch, outcome: Ok(()) });
    raw.say(&FromProgram::Loaded { epoch, outcome: Ok(()) });
    raw.say(&FromProgram::Quiesced { epoch, is_copy: true, outcome: Err("no".to_owned()) });
    raw.say(&FromProgram::Quiesced { epoch: epoch + 1, is_copy: true, outcome: Ok(()) });
    let early = raw.hear_within(Duration::from_millis(500));
    assert_eq!(early, Err(()), "it is still to hold still");
    controller.until(1, (1, 1), &Verb::Cut, &[State::Stored]);
    raw.hear_until("resume", |it| *it == ToProgram::Resume { epoch, is_reading: false });
}

#[test]
fn a_node_that_restarts_refuses_the_epochs_before_and_lets_programs_go_on() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 3);
    controller.until(1, (4, 4), &Verb::Prepare, &[State::Ready]);
    drop(agent);
    let _agent = world.node(&controller.node_file());
    eventually("the library connects again", || bucket.test("v").is_ok());
    let status = controller.until(1, (5, 0), &Verb::Status, &[State::Stored]);
    assert_eq!((status.highest.0, status.snapshot), (4, Some(snapshot)));
    controller.send(4, 4, Verb::Cut);
    let refused = std::iter::repeat_with(|| controller.hear()).flatten().next().unwrap();
    assert_eq!(refused.state, State::Refused);
    // What was stored before is what an eviction compares with.
    controller.until(1, (6, 6), &controller.evict(1, 3, snapshot), &[State::Evicted]);
    in_time("it is closed", move || drop(bucket));
}

#[test]
fn a_round_stores_the_areas_that_its_program_has_when_it_holds_still() {
    let Scene { world, controller, _agent } = scene();
    let raw = Raw::with_memory(&world, 1, &Memory::new(&noise(1, 1 << 20)));
    raw.whole();
    controller.send(1, 1, Verb::Prepare);
    let epoch = raw.asked();
    // As a callback may: one area is replaced, and one is new.
    let (data, more) = (Memory::new(&noise(2, 1 << 20)), Memory::new(&noise(3, 100_000)));
    raw.replace("data", &data);
    raw.replace("more", &more);
    raw.say(&FromProgram::Quiesced { epoch, is_copy: false, outcome: Ok(()) });
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    let stored = controller.until(1, (1, 1), &Verb::Cut, &[State::Stored]).snapshot.unwrap();
    raw.hear_until("resume", |it| matches!(it, ToProgram::Resume { .. }));
    drop(raw);
    data.write(&vec![0; 1 << 20]);
    more.write(&[0; 100_000]);
    let bucket = world.open(1);
    data.register(&bucket, "data");
    more.register(&bucket, "more");
    bucket.on_quiesce(Box::new(Willing)).unwrap();
    // Once this is answered, the agent has heard of the callbacks.
    bucket.test("v").unwrap();
    controller.until(1, (2, 2), &controller.load(1, 1, stored), &[State::Loaded]);
    assert!(data.read() == noise(2, 1 << 20) && more.read() == noise(3, 100_000));
}

#[test]
fn an_area_that_is_registered_while_its_program_holds_still_is_in_the_next_round() {
    let Scene { world, controller, _agent } = scene();
    let raw = Raw::with_memory(&world, 1, &Memory::new(&noise(1, 1 << 20)));
    raw.whole();
    controller.send(1, 1, Verb::Prepare);
    raw.hold_still(false);
    controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
    raw.replace("more", &Memory::new(&noise(3, 100_000)));
    let failed = controller.until(1, (1, 1), &Verb::Cut, &[State::Stored, State::Failed]);
    assert!(failed.reason.contains("registered or forgot an area"), "{failed:?}");
    raw.hear_until("resume", |it| matches!(it, ToProgram::Resume { .. }));
    controller.send(2, 2, Verb::Prepare);
    raw.hold_still(false);
    controller.until(1, (2, 2), &Verb::Prepare, &[State::Ready]);
    controller.until(1, (2, 2), &Verb::Cut, &[State::Stored]);
}
