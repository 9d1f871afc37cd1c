//! A client step by step: what it waits for, and what it makes of answers that are late or wrong.

use strongroom_base::SnapshotId;

use super::*;
use crate::message::{Cut, Description, Part, RunId};

fn range(low: &str, high: &str) -> KeyRange {
    let high = (!high.is_empty()).then(|| high.as_bytes().to_vec());
    KeyRange { low: low.as_bytes().to_vec(), high }
}

fn client(task: Task) -> Client {
    let options = ClientOptions {
        run: RunId(1),
        seed: 1,
        known_epoch: Epoch(4),
        ask_ms: 10,
        deadline_ms: 1_000,
        store_ms: 5_000,
        periods: 2,
    };
    Client::new(FileName::new("f").unwrap(), task, options, 0)
}

fn answer(client: &Client, bucket: u32, state: State, range: KeyRange) -> Acknowledgement {
    Acknowledgement {
        run: RunId(1),
        epoch: client.epoch,
        node: NodeId([bucket as u8; 16]),
        highest: client.epoch,
        bucket: Some(BucketNumber(bucket)),
        state,
        description: Description { range: Some(range), split_version: 1, bytes: 1 },
        snapshot: (state == State::Stored).then_some(SnapshotId([bucket as u8; 16])),
        reason: if state == State::Failed { "it is ill".to_owned() } else { String::new() },
    }
}

fn verbs(effects: &[ClientEffect]) -> Vec<&'static str> {
    let verbs = effects.iter().map(|effect| match effect {
        ClientEffect::Send(command) => match command.verb {
            Verb::Status => "status",
            Verb::Prepare => "prepare",
            Verb::Cut => "cut",
            Verb::Abort => "abort",
            Verb::Evict { .. } => "evict",
            Verb::Load { .. } => "load",
        },
        ClientEffect::KeepEpoch(_) => "keep",
        ClientEffect::Commit { .. } => "commit",
        ClientEffect::Recover(_) => "recover",
        ClientEffect::Finish(_) => "finish",
    });
    verbs.collect()
}

/// A client that has sent PREPARE.
fn preparing(task: Task) -> Client {
    let mut client = client(task);
    assert_eq!(verbs(&client.tick(0)), ["status"]);
    assert_eq!(client.tick(10), [ClientEffect::KeepEpoch(Epoch(5))], "before it is used");
    let effects = client.input(11, ClientInput::EpochKept(Epoch(5)));
    assert_eq!(verbs(&effects), ["prepare"]);
    client
}

fn give(client: &mut Client, bucket: u32, state: State, range: KeyRange) -> Vec<ClientEffect> {
    let answer = answer(client, bucket, state, range);
    client.receive(20, &answer)
}

/// A client that commits the cut of two buckets.
fn committing(task: Task) -> (Client, Vec<ClientEffect>) {
    let mut client = preparing(task);
    let halves = [(1, range("", "m")), (2, range("m", ""))];
    assert_eq!(verbs(&give(&mut client, 1, State::Ready, halves[0].1.clone())), [""; 0]);
    assert_eq!(verbs(&give(&mut client, 2, State::Ready, halves[1].1.clone())), ["cut"]);
    give(&mut client, 1, State::Captured, halves[0].1.clone());
    assert_eq!(verbs(&give(&mut client, 2, State::Captured, halves[1].1.clone())), ["cut"]);
    give(&mut client, 1, State::Stored, halves[0].1.clone());
    let effects = give(&mut client, 2, State::Stored, halves[1].1.clone());
    (client, effects)
}

#[test]
fn a_store_evicts_only_after_the_commit() {
    let (mut client, effects) = committing(Task::Store { evicts: true });
    let [ClientEffect::Commit { epoch, parts }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*epoch, parts.len()), (Epoch(5), 2));
    assert_eq!(client.tick(9_999), [], "a commit takes as long as it takes");
    let effects = client.input(10_000, ClientInput::Committed(SnapshotId([9; 16])));
    assert_eq!(effects, [ClientEffect::KeepEpoch(Epoch(6))]);
    let effects = client.input(10_000, ClientInput::EpochKept(Epoch(6)));
    assert_eq!(verbs(&effects), ["evict"]);
    assert_eq!(verbs(&give(&mut client, 1, State::Evicted, range("", "m"))), [""; 0]);
    let effects = give(&mut client, 2, State::Changed, range("m", ""));
    let [ClientEffect::Finish(Outcome::Stored { eviction: Some(eviction), cut, .. })] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*cut, Cut { epoch: Epoch(5), snapshot: SnapshotId([9; 16]) });
    assert_eq!((eviction.evicted.len(), eviction.left.len()), (1, 1));
    assert_eq!(client.wake_at_ms(), None);
}

#[test]
fn a_commit_that_failed_evicts_nothing() {
    let (mut client, _) = committing(Task::Store { evicts: true });
    let reason = "the place is full".to_owned();
    let effects = client.input(30, ClientInput::NotCommitted { reason });
    assert_eq!(verbs(&effects), ["abort", "finish"]);
}

/// Ticks until it ends, 50 ms at a time. Returns all that it asked for.
fn to_its_end(client: &mut Client, mut now_ms: u64) -> Vec<ClientEffect> {
    let mut effects = Vec::new();
    while client.wake_at_ms().is_some() {
        now_ms += 50;
        effects.extend(client.tick(now_ms));
    }
    effects
}

#[test]
fn a_store_that_is_cancelled_lets_programs_go_on() {
    let mut client = preparing(Task::Store { evicts: false });
    give(&mut client, 1, State::Ready, range("", "m"));
    assert_eq!(verbs(&client.cancel(30)), ["abort"]);
    assert_eq!(client.cancel(31), [], "once is enough");
    let late = answer(&client, 2, State::Ready, range("m", ""));
    assert_eq!(client.receive(32, &late), [], "no cut after it");
    let effects = to_its_end(&mut client, 32);
    assert_eq!(verbs(&effects), ["abort", "abort", "finish"]);
    assert_eq!(effects.last(), Some(&ClientEffect::Finish(Outcome::Cancelled)));
}

#[test]
fn what_no_node_has_heard_of_is_cancelled_at_once() {
    let mut client = client(Task::Store { evicts: false });
    client.tick(0);
    assert_eq!(client.cancel(1), [ClientEffect::Finish(Outcome::Cancelled)]);
}

#[test]
fn a_commit_that_is_under_way_is_not_cancelled() {
    let (mut client, _) = committing(Task::Store { evicts: false });
    assert_eq!(client.cancel(30), []);
    let effects = client.input(40, ClientInput::Committed(SnapshotId([9; 16])));
    assert!(matches!(&effects[..], [ClientEffect::Finish(Outcome::Stored { .. })]), "{effects:?}");
}

#[test]
fn an_eviction_that_is_cancelled_names_what_was_freed() {
    let (mut client, _) = committing(Task::Store { evicts: true });
    client.input(40, ClientInput::Committed(SnapshotId([9; 16])));
    client.input(40, ClientInput::EpochKept(Epoch(6)));
    assert_eq!(verbs(&client.cancel(50)), ["abort"]);
    assert_eq!(give(&mut client, 1, State::Evicted, range("", "m")), []);
    let effects = to_its_end(&mut client, 50);
    let Some(ClientEffect::Finish(Outcome::Stored { eviction: Some(eviction), .. })) =
        effects.last()
    else {
        panic!("{effects:?}")
    };
    assert_eq!(eviction.evicted.len(), 1);
    assert_eq!(eviction.left[0].reason, "the run was cancelled before it answered");
}

#[test]
fn answers_of_other_runs_and_epochs_do_not_count() {
    let mut client = preparing(Task::Store { evicts: false });
    let whole = answer(&client, 1, State::Ready, KeyRange::whole());
    for strange in [
        Acknowledgement { run: RunId(2), ..whole.clone() },
        Acknowledgement { epoch: Epoch(4), ..whole.clone() },
        Acknowledgement { state: State::Stored, ..whole.clone() },
        Acknowledgement { bucket: None, ..whole.clone() },
    ] {
        assert_eq!(client.receive(20, &strange), [], "{strange:?}");
    }
    assert_eq!(verbs(&client.receive(20, &whole)), ["cut"]);
}

#[test]
fn a_failure_before_the_commit_ends_the_round() {
    let mut client = preparing(Task::Store { evicts: true });
    let effects = give(&mut client, 1, State::Failed, KeyRange::whole());
    assert_eq!(verbs(&effects), ["abort"]);
    let effects = client.tick(200);
    assert_eq!(effects, [ClientEffect::KeepEpoch(Epoch(6))], "and another one begins");
}

#[test]
fn a_refusal_leads_above_what_the_node_has() {
    let mut client = preparing(Task::Store { evicts: false });
    let mut refused = answer(&client, 1, State::Refused, KeyRange::whole());
    (refused.bucket, refused.highest) = (None, Epoch(40));
    assert_eq!(verbs(&client.receive(20, &refused)), ["abort"]);
    assert_eq!(client.tick(200), [ClientEffect::KeepEpoch(Epoch(41))]);
}

#[test]
fn one_node_does_not_use_up_the_epochs() {
    let mut client = preparing(Task::Store { evicts: false });
    let mut liar = answer(&client, 1, State::Refused, KeyRange::whole());
    liar.highest = Epoch(u64::MAX);
    assert_eq!(client.receive(20, &liar), []);
    assert_eq!(client.highest, Epoch(4));
}

#[test]
fn what_is_missing_is_recovered_once_and_named() {
    let mut client = preparing(Task::Store { evicts: false });
    give(&mut client, 1, State::Ready, range("", "m"));
    let effects = client.tick(1_011);
    assert_eq!(verbs(&effects), ["recover", "abort"]);
    assert_eq!(effects[0], ClientEffect::Recover(range("m", "")));
    client.tick(1_300);
    assert_eq!(verbs(&client.input(1_301, ClientInput::EpochKept(Epoch(6)))), ["prepare"]);
    let first = answer(&client, 1, State::Ready, range("", "m"));
    client.receive(1_310, &first);
    let effects = client.tick(2_301);
    assert_eq!(verbs(&effects), ["abort", "finish"]);
    let ClientEffect::Finish(Outcome::Failed(error)) = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(
        error.to_string(),
        "file f is incomplete at the deadline: no bucket is ready for these keys: from m. Start \
         the agents of these keys, or load their buckets from the last cut"
    );
}

#[test]
fn who_is_doubted_is_asked_again() {
    let mut client = preparing(Task::Store { evicts: false });
    give(&mut client, 1, State::Ready, KeyRange::whole());
    let mut client = preparing(Task::Store { evicts: false });
    let mut split = answer(&client, 2, State::Ready, range("m", ""));
    split.description.split_version = 2;
    client.receive(20, &split);
    give(&mut client, 1, State::Ready, KeyRange::whole());
    let effects = client.tick(400);
    let [ClientEffect::Send(command)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(command.answered, [BucketNumber(2)]);
    assert_eq!(verbs(&give(&mut client, 1, State::Ready, range("", "m"))), ["cut"]);
}

#[test]
fn a_range_that_changed_after_the_union_is_no_part_of_a_cut() {
    let mut client = preparing(Task::Store { evicts: false });
    give(&mut client, 1, State::Ready, KeyRange::whole());
    assert_eq!(verbs(&give(&mut client, 1, State::Captured, range("", "m"))), ["abort"]);
}

#[test]
fn status_says_what_there_is() {
    let mut client = client(Task::Status);
    client.tick(0);
    let half = answer(&client, 1, State::Stored, range("", "m"));
    client.receive(5, &half);
    let effects = client.tick(30);
    let [ClientEffect::Finish(Outcome::Status { answers, union })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((answers.len(), &union.gaps[..]), (1, &[range("m", "")][..]));
}

#[test]
fn a_load_is_done_when_all_keys_are_in_memory() {
    let cut = Cut { epoch: Epoch(3), snapshot: SnapshotId([9; 16]) };
    let part = |bucket: u32| Part {
        bucket: BucketNumber(bucket),
        node: NodeId([bucket as u8; 16]),
        snapshot: SnapshotId([bucket as u8; 16]),
    };
    let mut client = client(Task::Load { cut, parts: (1..=30).map(part).collect() });
    client.tick(0);
    client.tick(10);
    let effects = client.input(11, ClientInput::EpochKept(Epoch(5)));
    assert_eq!(verbs(&effects), ["load", "load"], "30 parts are two commands");
    assert_eq!(give(&mut client, 1, State::Loaded, range("", "m")), []);
    let effects = give(&mut client, 2, State::Loaded, range("m", ""));
    assert!(matches!(&effects[..], [ClientEffect::Finish(Outcome::Loaded { .. })]));
}

#[test]
fn an_eviction_does_not_wait_for_a_program_that_is_late() {
    let (mut client, _) = committing(Task::Store { evicts: true });
    client.input(40, ClientInput::Committed(SnapshotId([9; 16])));
    client.input(40, ClientInput::EpochKept(Epoch(6)));
    give(&mut client, 1, State::Evicted, range("", "m"));
    let mut late = answer(&client, 2, State::Evicting, range("m", ""));
    assert_eq!(client.receive(50, &late), [], "it is in time");
    late.reason = "it is late".to_owned();
    let effects = client.receive(60, &late);
    let [ClientEffect::Finish(Outcome::Stored { eviction: Some(eviction), .. })] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((eviction.evicted.len(), &*eviction.left[0].reason), (1, "it is late"));
}
