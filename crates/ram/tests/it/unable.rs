//! Programs and agents that cannot do what a round asks for: what they keep, and what is said of it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_bucket::{Bucket, KeyRange, Owner};
use strongroom_cluster::{Acknowledgement, REASON_BYTES_MAX, State, Verb};
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::world::{Memory, Running, World, whole};

/// A program that does one thing only when it is let go.
struct Stuck {
    /// Holds still this many times before it is stuck in that.
    quiesces: u32,
    until: Receiver<()>,
}

impl Owner for Stuck {
    fn quiesce(&mut self) -> Result<(), String> {
        if self.quiesces == 0 {
            let _ = self.until.recv();
        }
        self.quiesces = self.quiesces.saturating_sub(1);
        Ok(())
    }

    fn resume(&mut self) {}

    fn evict(&mut self) -> Result<(), String> {
        let _ = self.until.recv();
        Err("it needs its memory".to_owned())
    }
}

fn stuck(world: &World, memory: &Memory, quiesces: u32) -> (Bucket, Sender<()>) {
    let (bucket, (let_go, until)) = (world.open(1), channel());
    memory.register(&bucket, "data");
    bucket.range(&KeyRange::whole(), 0).unwrap();
    bucket.on_quiesce(Box::new(Stuck { quiesces, until })).unwrap();
    (bucket, let_go)
}

struct Scene {
    controller: Controller,
    memory: Memory,
    bucket: Bucket,
    let_go: Sender<()>,
    /// The first answer that says why.
    answer: Acknowledgement,
    _agent: Running,
    _world: World,
}

/// Has a bucket evicted, with a deadline of half a second, whose program is stuck after it held still
/// a few times.
#[track_caller]
fn scene(quiesces: u32) -> Scene {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let (bucket, let_go) = stuck(&world, &memory, quiesces);
    let snapshot = controller.store(1, 1);
    let mut evict = controller.command(2, 2, controller.evict(1, 1, snapshot));
    evict.deadline_ms = 500;
    let watch = Stopwatch::start();
    let answer = loop {
        assert!(watch.elapsed() < Duration::from_secs(5), "its client waits");
        controller.throw(&controller.seal(&evict));
        let mut answers = std::iter::from_fn(|| controller.hear());
        let said_why = answers.find(|it| it.epoch == evict.epoch && !it.reason.is_empty());
        if let Some(answer) = said_why {
            break answer;
        }
    };
    Scene { controller, memory, bucket, let_go, answer, _agent: agent, _world: world }
}

#[test]
fn an_eviction_waits_for_a_program_that_does_not_hold_still_until_the_deadline() {
    let scene = scene(1);
    assert_eq!(scene.answer.state, State::Failed);
    assert_eq!(scene.answer.reason, "its program did not hold still before the deadline");
    scene.let_go.send(()).unwrap();
    scene.bucket.test("v").unwrap();
    assert!(scene.memory.read() == noise(1, 1 << 20));
}

#[test]
fn an_eviction_waits_for_a_program_that_does_not_free_its_memory_until_the_deadline() {
    let scene = scene(2);
    assert_eq!(scene.answer.state, State::Evicting);
    let expected = "its program has not freed it before the deadline, and may still do so";
    assert_eq!(scene.answer.reason, expected);
    // What becomes of it is heard later.
    scene.let_go.send(()).unwrap();
    let failed = scene.controller.until(1, (3, 0), &Verb::Status, &[State::Failed]);
    assert!(failed.reason.contains("it needs its memory"), "{failed:?}");
    assert!(scene.memory.read() == noise(1, 1 << 20));
    // Programs that hold still again are not stuck.
    drop(scene.let_go);
    scene.controller.store(1, 4);
}

#[test]
fn an_agent_that_only_stores_says_what_it_needs_to_free() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node_that_only_stores(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let _bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    let evict = controller.evict(1, 1, snapshot);
    let failed = controller.until(1, (2, 2), &evict, &[State::Failed]);
    assert_eq!(
        failed.reason,
        "the key of its agent can only store: to free or load it, start the agent with a key that \
         can read, of `strongroom key add` without --put-only"
    );
    assert!(failed.reason.len() < REASON_BYTES_MAX, "a part of it would be cut off");
}
