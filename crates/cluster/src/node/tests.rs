//! A node step by step: what it asks for, in which order, and what it refuses.

use std::net::SocketAddr;

use strongroom_base::SnapshotId;
use strongroom_bucket::KeyRange;

use super::*;
use crate::message::{Acknowledgement, Content, Cut, Description, Part};

const BUCKET: BucketNumber = BucketNumber(1);

fn client() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9))
}

fn description(split_version: u64) -> Description {
    let (range, content) = (Some(KeyRange::whole()), Content::Filled);
    Description { range, split_version, bytes: 10, content }
}

fn node(record: Record) -> Node {
    let options =
        NodeOptions { node: NodeId([1; 16]), seed: 1, answer_spread_ms: 0, deadline_ms_max: 1_000 };
    let mut node = Node::new(FileName::new("f").unwrap(), options, record);
    node.input(0, NodeInput::Attached { bucket: BUCKET, description: description(1) });
    node
}

fn command(epoch: u64, verb: Verb) -> Command {
    Command {
        file: FileName::new("f").unwrap(),
        run: RunId(1),
        epoch: Epoch(epoch),
        verb,
        deadline_ms: 100,
        answered: Vec::new(),
    }
}

/// Effects without acknowledgements, which may be of what was before.
fn done(effects: Vec<NodeEffect>) -> Vec<NodeEffect> {
    let is_done = |effect: &NodeEffect| !matches!(effect, NodeEffect::Acknowledge { .. });
    effects.into_iter().filter(is_done).collect()
}

fn send(node: &mut Node, now_ms: u64, epoch: u64, verb: Verb) -> Vec<NodeEffect> {
    done(node.receive(now_ms, client(), &command(epoch, verb)))
}

/// What is said when the time goes on.
fn said(node: &mut Node, now_ms: u64) -> Vec<Acknowledgement> {
    let effects = node.tick(now_ms);
    let answers = effects.into_iter().filter_map(|effect| match effect {
        NodeEffect::Acknowledge { acknowledgement, .. } => Some(acknowledgement),
        _ => None,
    });
    answers.collect()
}

fn state(node: &mut Node, now_ms: u64) -> Option<State> {
    said(node, now_ms).last().map(|answer| answer.state)
}

fn persisted(node: &mut Node, now_ms: u64, number: u64) -> Vec<NodeEffect> {
    done(node.input(now_ms, NodeInput::Persisted { number }))
}

fn quiesced(epoch: u64) -> NodeInput {
    NodeInput::Quiesced { bucket: BUCKET, epoch: Epoch(epoch), description: description(1) }
}

/// A node that is ready in an epoch.
fn ready(epoch: u64) -> Node {
    let mut node = node(Record::default());
    send(&mut node, 0, epoch, Verb::Prepare);
    persisted(&mut node, 0, 1);
    node.input(0, quiesced(epoch));
    assert_eq!(state(&mut node, 0), Some(State::Ready));
    node
}

fn stored(snapshot: SnapshotId) -> Record {
    let kept = Kept::Stored { epoch: Epoch(3), snapshot };
    Record { epoch: Epoch(3), kept: [(BUCKET, kept)].into() }
}

fn evict(snapshot: SnapshotId) -> Verb {
    let cut = Cut { epoch: Epoch(3), snapshot: SnapshotId([9; 16]) };
    Verb::Evict { cut, parts: vec![Part { bucket: BUCKET, node: NodeId([1; 16]), snapshot }] }
}

const EPOCH: Epoch = Epoch(5);
const SNAPSHOT: SnapshotId = SnapshotId([7; 16]);

#[test]
fn a_store_goes_through_its_steps() {
    let mut node = node(Record::default());
    let record = Record { epoch: EPOCH, ..Record::default() };
    assert_eq!(
        send(&mut node, 0, 5, Verb::Prepare),
        [NodeEffect::Persist { number: 1, record }],
        "nothing happens before the epoch is on the disk"
    );
    assert_eq!(node.highest(), Epoch(0));
    let bucket = BUCKET;
    assert_eq!(persisted(&mut node, 1, 1), [NodeEffect::Quiesce { bucket, epoch: EPOCH }]);
    node.input(2, quiesced(5));
    assert_eq!(state(&mut node, 2), Some(State::Ready));
    let effects = send(&mut node, 3, 5, Verb::Cut);
    assert_eq!(effects, [NodeEffect::Capture { bucket, epoch: EPOCH }]);
    let captured = NodeInput::Captured { bucket, epoch: EPOCH, description: description(1) };
    let effects = done(node.input(4, captured));
    let expected = [NodeEffect::Resume { bucket }, NodeEffect::Store { bucket, epoch: EPOCH }];
    assert_eq!(effects, expected, "the program goes on before anything is stored");
    assert_eq!(state(&mut node, 4), Some(State::Captured));
    // Meanwhile the program splits. What was captured is not described again.
    node.input(5, NodeInput::Described { bucket, description: description(2) });
    let stored = NodeInput::Stored { bucket, epoch: EPOCH, snapshot: SNAPSHOT };
    let effects = done(node.input(5, stored));
    assert!(matches!(effects[..], [NodeEffect::Persist { number: 2, .. }]));
    assert_eq!(said(&mut node, 6), [], "it is stored once the disk says so");
    persisted(&mut node, 7, 2);
    let answer = said(&mut node, 7).pop().unwrap();
    assert_eq!((answer.state, answer.snapshot), (State::Stored, Some(SNAPSHOT)));
    assert_eq!(answer.description, description(1));
}

#[test]
fn what_is_repeated_is_answered_and_does_nothing() {
    let mut node = ready(5);
    assert_eq!(send(&mut node, 1, 5, Verb::Prepare), []);
    assert_eq!(state(&mut node, 1), Some(State::Ready));
    send(&mut node, 2, 5, Verb::Cut);
    assert_eq!(state(&mut node, 2), Some(State::Ready), "until it is captured");
    assert_eq!(send(&mut node, 3, 5, Verb::Cut), []);
    let mut listed = command(5, Verb::Cut);
    listed.answered = vec![NodeId([1; 16]).tag()];
    said(&mut node, 3);
    node.receive(4, client(), &listed);
    assert_eq!(said(&mut node, 4), [], "who is listed is silent");
}

#[test]
fn after_the_deadline_there_is_no_cut() {
    let mut node = ready(5);
    assert_eq!(node.wake_at_ms(), Some(100));
    // The cut comes before the tick.
    let effects = send(&mut node, 100, 5, Verb::Cut);
    assert_eq!(effects, [NodeEffect::Resume { bucket: BUCKET }]);
    let answer = said(&mut node, 100).pop().unwrap();
    assert_eq!(answer.state, State::Failed);
    assert!(answer.reason.contains("deadline"), "{}", answer.reason);
    assert_eq!(send(&mut node, 101, 5, Verb::Prepare), [], "nor another stop in this epoch");
    assert_eq!(state(&mut node, 101), Some(State::Failed));
}

#[test]
fn an_epoch_that_is_over_is_refused() {
    for (run, epoch, verb) in [(1, 4, Verb::Prepare), (2, 5, Verb::Prepare), (2, 5, Verb::Cut)] {
        let mut node = ready(5);
        let command = Command { run: RunId(run), ..command(epoch, verb) };
        assert_eq!(node.receive(1, client(), &command), []);
        let answer = said(&mut node, 1).pop().unwrap();
        assert_eq!((answer.state, answer.highest), (State::Refused, EPOCH));
    }
    // After a restart, the round is lost.
    let mut node = node(Record { epoch: EPOCH, ..Record::default() });
    for verb in [Verb::Prepare, Verb::Cut] {
        assert_eq!(send(&mut node, 1, 5, verb), []);
        assert_eq!(state(&mut node, 1), Some(State::Refused));
    }
}

#[test]
fn a_higher_epoch_ends_the_round_before() {
    let mut node = ready(5);
    send(&mut node, 1, 6, Verb::Prepare);
    let bucket = BUCKET;
    assert_eq!(
        persisted(&mut node, 1, 2),
        [NodeEffect::Resume { bucket }, NodeEffect::Quiesce { bucket, epoch: Epoch(6) }]
    );
    assert_eq!(done(node.input(2, quiesced(5))), [], "a result of the round before is ignored");
    send(&mut node, 2, 5, Verb::Cut);
    assert_eq!(state(&mut node, 2), Some(State::Refused));
}

#[test]
fn a_stop_that_was_broken_stays_broken() {
    let bucket = BUCKET;
    let broken = [
        NodeInput::Failed { bucket, epoch: EPOCH, reason: "it went on".to_owned() },
        NodeInput::Detached { bucket },
        NodeInput::Described { bucket, description: description(2) },
        NodeInput::Attached { bucket, description: description(1) },
    ];
    for input in broken {
        let mut node = ready(5);
        node.input(1, input.clone());
        node.input(1, NodeInput::Attached { bucket, description: description(1) });
        send(&mut node, 1, 5, Verb::Prepare);
        assert_eq!(state(&mut node, 1), Some(State::Failed), "{input:?}");
        let effects = send(&mut node, 2, 5, Verb::Cut);
        assert!(!effects.iter().any(|it| matches!(it, NodeEffect::Capture { .. })), "{input:?}");
    }
}

#[test]
fn aborted_programs_go_on_and_stored_ones_stay() {
    let mut node = ready(5);
    let bucket = BUCKET;
    assert_eq!(send(&mut node, 1, 5, Verb::Abort), [NodeEffect::Resume { bucket }]);
    assert_eq!(send(&mut node, 2, 5, Verb::Cut), []);
    let mut capturing = ready(5);
    send(&mut capturing, 1, 5, Verb::Cut);
    let effects = send(&mut capturing, 2, 5, Verb::Abort);
    let expected = [NodeEffect::Drop { bucket, epoch: EPOCH }, NodeEffect::Resume { bucket }];
    assert_eq!(effects, expected);
}

#[test]
fn only_what_is_equal_is_freed() {
    let (bucket, epoch) = (BUCKET, EPOCH);
    for is_equal in [true, false] {
        let mut node = node(stored(SNAPSHOT));
        send(&mut node, 0, 5, evict(SNAPSHOT));
        assert_eq!(persisted(&mut node, 0, 1), [NodeEffect::Quiesce { bucket, epoch }]);
        let effects = node.input(1, quiesced(5));
        assert_eq!(effects, [NodeEffect::Compare { bucket, epoch, snapshot: SNAPSHOT }]);
        let effects = node.input(2, NodeInput::Compared { bucket, epoch, is_equal });
        if !is_equal {
            assert_eq!(effects, [NodeEffect::Resume { bucket }]);
            assert_eq!(state(&mut node, 2), Some(State::Changed));
            continue;
        }
        assert_eq!(effects, [NodeEffect::Free { bucket, epoch }]);
        node.input(3, NodeInput::Freed { bucket, epoch });
        persisted(&mut node, 3, 2);
        assert_eq!(state(&mut node, 3), Some(State::Evicted));
        send(&mut node, 4, 5, evict(SNAPSHOT));
        assert_eq!(state(&mut node, 4), Some(State::Evicted), "repeated");
        send(&mut node, 5, 6, evict(SNAPSHOT));
        persisted(&mut node, 5, 3);
        assert_eq!(state(&mut node, 5), Some(State::Evicted), "by another client");
    }
}

#[test]
fn what_is_not_stored_for_the_cut_is_not_even_stopped() {
    for record in [Record::default(), stored(SnapshotId([8; 16]))] {
        let mut node = node(record);
        send(&mut node, 0, 5, evict(SNAPSHOT));
        assert_eq!(persisted(&mut node, 0, 1), []);
        assert_eq!(state(&mut node, 0), Some(State::Failed));
    }
    // A bucket that is not listed is not concerned, even if it was stored in the epoch of the cut.
    let mut node = node(stored(SNAPSHOT));
    let cut = Cut { epoch: Epoch(3), snapshot: SnapshotId([9; 16]) };
    send(&mut node, 0, 5, Verb::Evict { cut, parts: Vec::new() });
    assert_eq!(persisted(&mut node, 0, 1), []);
    assert_eq!(said(&mut node, 0), []);
}

#[test]
fn only_what_is_not_in_memory_is_loaded() {
    let (bucket, epoch) = (BUCKET, EPOCH);
    let Verb::Evict { cut, parts } = evict(SNAPSHOT) else { return };
    let load = Verb::Load { cut, parts };
    let mut full = node(Record::default());
    send(&mut full, 0, 5, load.clone());
    assert_eq!(persisted(&mut full, 0, 1), []);
    assert_eq!(state(&mut full, 0), Some(State::Failed));
    let mut node = node(Record::default());
    node.input(0, NodeInput::Detached { bucket });
    send(&mut node, 0, 5, load.clone());
    let effects = persisted(&mut node, 0, 1);
    assert_eq!(effects, [NodeEffect::Load { bucket, epoch, snapshot: SNAPSHOT, cut }]);
    node.input(1, NodeInput::Loaded { bucket, epoch, description: description(1) });
    persisted(&mut node, 1, 2);
    assert_eq!(state(&mut node, 1), Some(State::Loaded));
    send(&mut node, 2, 6, load);
    persisted(&mut node, 2, 3);
    assert_eq!(state(&mut node, 2), Some(State::Loaded), "for another client, from the same cut");
}

#[test]
fn a_node_without_buckets_answers_for_itself() {
    let mut node = node(Record { epoch: EPOCH, ..Record::default() });
    node.input(0, NodeInput::Detached { bucket: BUCKET });
    send(&mut node, 1, 0, Verb::Status);
    let answer = said(&mut node, 1).pop().unwrap();
    assert_eq!((answer.bucket, answer.state), (None, State::Idle));
    assert_eq!(answer.highest, EPOCH);
}

#[test]
fn a_disk_that_refuses_the_epoch_refuses_the_round() {
    let mut node = node(Record::default());
    send(&mut node, 0, 5, Verb::Prepare);
    let effects = node.input(1, NodeInput::NotPersisted { number: 1, reason: "full".to_owned() });
    assert_eq!(effects, []);
    let answer = said(&mut node, 1).pop().unwrap();
    assert_eq!((answer.state, answer.highest), (State::Refused, Epoch(0)));
    assert_eq!(answer.reason, "the node's record could not be written: full");
    send(&mut node, 2, 5, Verb::Prepare);
    assert_eq!(state(&mut node, 2), Some(State::Refused));
    assert_eq!(send(&mut node, 3, 6, Verb::Prepare).len(), 1);
}

#[test]
fn kept_1_11_an_empty_bucket_is_in_no_cut_and_can_be_loaded() {
    let empty = Description { content: Content::Empty, ..description(1) };
    let stopped = |verb: Verb| {
        let mut node = node(Record::default());
        send(&mut node, 0, 5, verb);
        persisted(&mut node, 0, 1);
        let description = empty.clone();
        let effects =
            node.input(1, NodeInput::Quiesced { bucket: BUCKET, epoch: EPOCH, description });
        (node, done(effects))
    };
    let (mut stored, effects) = stopped(Verb::Prepare);
    assert_eq!(effects, [NodeEffect::Resume { bucket: BUCKET }], "its program goes on at once");
    let answer = said(&mut stored, 1).pop().unwrap();
    assert_eq!((answer.state, answer.buckets), (State::Empty, 1));
    assert_eq!(answer.description.content, Content::Empty);
    assert_eq!(send(&mut stored, 2, 5, Verb::Cut), [], "nor is it captured");
    // A run that takes all stores it.
    let (mut all, effects) = stopped(Verb::PrepareAll);
    assert_eq!(effects, []);
    assert_eq!(state(&mut all, 1), Some(State::Ready));
    // It is loaded, although it says which keys it has; so is one that was not looked at.
    for content in [Content::Empty, Content::Unknown] {
        let cut = Cut { epoch: Epoch(3), snapshot: SnapshotId([9; 16]) };
        let part = Part { bucket: BUCKET, node: NodeId([1; 16]), snapshot: SNAPSHOT };
        let mut loaded = node(Record::default());
        let described = Description { content, ..description(1) };
        loaded.input(0, NodeInput::Described { bucket: BUCKET, description: described });
        send(&mut loaded, 0, 5, Verb::Load { cut, parts: vec![part] });
        let effects = persisted(&mut loaded, 0, 1);
        let load = NodeEffect::Load { bucket: BUCKET, epoch: EPOCH, snapshot: SNAPSHOT, cut };
        assert_eq!(effects, [load]);
    }
}

#[test]
fn kept_1_11_each_answer_says_how_many_there_are() {
    let mut node = node(Record::default());
    let second = BucketNumber(2);
    node.input(0, NodeInput::Attached { bucket: second, description: description(1) });
    send(&mut node, 0, 0, Verb::Status);
    let answers = said(&mut node, 0);
    assert_eq!(answers.iter().map(|answer| answer.buckets).collect::<Vec<_>>(), [2, 2]);
    send(&mut node, 1, 5, Verb::Prepare);
    persisted(&mut node, 1, 1);
    node.input(1, quiesced(5));
    let answer = said(&mut node, 1).pop().unwrap();
    assert_eq!((answer.state, answer.buckets), (State::Ready, 2), "the other is not ready yet");
}

/// Bucket, epoch and state of each answer to a client, and how many there are.
fn summed_up(answers: &[Acknowledgement]) -> Vec<(Option<BucketNumber>, Epoch, State, u16)> {
    let of = |it: &Acknowledgement| (it.bucket, it.epoch, it.state, it.buckets);
    answers.iter().map(of).collect()
}

#[test]
fn a_store_counts_a_bucket_that_is_being_loaded_and_takes_it_then() {
    let (bucket, later) = (BUCKET, Epoch(6));
    let Verb::Evict { cut, parts } = evict(SNAPSHOT) else { return };
    for is_there in [false, true] {
        let mut node = node(Record::default());
        let mut empty = description(1);
        empty.content = Content::Empty;
        node.input(0, NodeInput::Detached { bucket });
        if is_there {
            node.input(0, NodeInput::Attached { bucket, description: empty });
        }
        send(&mut node, 0, 5, Verb::Load { cut, parts: parts.clone() });
        persisted(&mut node, 0, 1);
        send(&mut node, 1, 6, Verb::Prepare);
        assert_eq!(persisted(&mut node, 1, 2), [], "it is half loaded");
        let held_up = [(Some(bucket), later, State::Loading, 1)];
        assert_eq!(summed_up(&said(&mut node, 1)), held_up);
        send(&mut node, 2, 6, Verb::Prepare);
        assert_eq!(summed_up(&said(&mut node, 2)), held_up, "asked again");
        let filled = NodeInput::Loaded { bucket, epoch: EPOCH, description: description(1) };
        assert_eq!(summed_up(&said(&mut node, 3)), []);
        node.input(3, filled);
        let quiesce = NodeEffect::Quiesce { bucket, epoch: later };
        assert_eq!(persisted(&mut node, 4, 3), [quiesce]);
        node.input(5, quiesced(6));
        assert_eq!(summed_up(&said(&mut node, 5)), [(Some(bucket), later, State::Ready, 1)]);
    }
}

#[test]
fn a_store_counts_a_bucket_that_is_being_freed_until_it_is() {
    let (bucket, later) = (BUCKET, Epoch(6));
    for is_freed in [true, false] {
        let mut node = node(stored(SNAPSHOT));
        send(&mut node, 0, 5, evict(SNAPSHOT));
        persisted(&mut node, 0, 1);
        node.input(0, quiesced(5));
        node.input(0, NodeInput::Compared { bucket, epoch: EPOCH, is_equal: true });
        said(&mut node, 0);
        send(&mut node, 1, 6, Verb::Prepare);
        assert_eq!(persisted(&mut node, 1, 2), []);
        let held_up = [(Some(bucket), later, State::Evicting, 1)];
        assert_eq!(summed_up(&said(&mut node, 1)), held_up);
        if is_freed {
            node.input(2, NodeInput::Freed { bucket, epoch: EPOCH });
            persisted(&mut node, 2, 3);
            let freed = [(Some(bucket), later, State::Evicted, 1)];
            assert_eq!(summed_up(&said(&mut node, 2)), freed);
            continue;
        }
        let reason = "its program went on".to_owned();
        let effects = done(node.input(2, NodeInput::Failed { bucket, epoch: EPOCH, reason }));
        let quiesce = NodeEffect::Quiesce { bucket, epoch: later };
        assert_eq!(effects, [NodeEffect::Resume { bucket }, quiesce], "it has its keys still");
    }
}
