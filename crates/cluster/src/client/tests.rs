//! A client step by step: what it waits for, and what it makes of answers that are late or wrong.

use strongroom_base::SnapshotId;

use super::*;
use crate::message::{Content, Cut, Description, Part, RunId};

fn range(low: &str, high: &str) -> KeyRange {
    let high = (!high.is_empty()).then(|| high.as_bytes().to_vec());
    KeyRange { low: low.as_bytes().to_vec(), high }
}

fn client(task: Task) -> Client {
    client_of(task, &[], false)
}

/// A client of a cluster of these nodes.
fn client_of(task: Task, nodes: &[u8], takes_empty: bool) -> Client {
    let nodes = nodes.iter().map(|node| NodeId([*node; 16])).collect();
    let options = ClientOptions {
        run: RunId(1),
        seed: 1,
        known_epoch: Epoch(4),
        ask_ms: 10,
        deadline_ms: 1_000,
        store_ms: 5_000,
        nodes,
        without: Vec::new(),
        takes_empty,
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
        buckets: 1,
        state,
        description: Description {
            range: Some(range),
            split_version: 1,
            bytes: 1,
            content: Content::Filled,
        },
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
            Verb::PrepareAll => "prepare all",
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
    assert_eq!(verbs(&client.tick(1_280)), ["status"], "who is there may have changed");
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
    assert_eq!(command.answered, [NodeId([2; 16]).tag()]);
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

/// What a node says that has no bucket, or that has not stopped the one that it has.
fn own(client: &Client, node: u8, buckets: u16) -> Acknowledgement {
    let bucket = (buckets > 0).then_some(BucketNumber(99));
    let state = if buckets > 0 { State::Preparing } else { State::Idle };
    let mut own = answer(client, 0, state, KeyRange::whole());
    (own.node, own.bucket, own.buckets) = (NodeId([node; 16]), bucket, buckets);
    own
}

/// A client of a cluster of these nodes that has sent PREPARE. Each has said before that it is there.
fn preparing_with(nodes: &[u8], takes_empty: bool) -> Client {
    let mut client = client_of(Task::Store { evicts: false }, nodes, takes_empty);
    client.tick(0);
    for node in nodes {
        let answer = own(&client, *node, 0);
        assert_eq!(client.receive(1, &answer), []);
    }
    assert_eq!(client.tick(10), [ClientEffect::KeepEpoch(Epoch(5))]);
    let effects = client.input(11, ClientInput::EpochKept(Epoch(5)));
    assert_eq!(verbs(&effects), [if takes_empty { "prepare all" } else { "prepare" }]);
    client
}

/// All orders of these.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let shorter = orders(last);
    let at_each = |order: &Vec<usize>| {
        let with = |at| [&order[..at], &[last], &order[at..]].concat();
        (0..count).map(with).collect::<Vec<_>>()
    };
    shorter.iter().flat_map(at_each).collect()
}

#[test]
fn kept_1_11_keys_that_two_buckets_claim_are_in_no_cut_in_whatever_order_the_answers_come() {
    // Bucket, node, keys, splits; each after the first two claims what another has.
    let strange: [(u32, u8, KeyRange, u64); 5] = [
        (2, 3, range("m", ""), 1),
        (7, 3, range("m", ""), 1),
        (7, 3, range("a", "c"), 1),
        (7, 3, KeyRange::whole(), 1),
        (1, 3, range("x", "y"), 9),
    ];
    for (bucket, node, keys, splits) in strange {
        for order in orders(3) {
            let mut client = preparing_with(&[1, 2, 3], false);
            let mut second = answer(&client, bucket, State::Ready, keys.clone());
            (second.node, second.description.split_version) = (NodeId([node; 16]), splits);
            let answers = [
                answer(&client, 1, State::Ready, range("", "m")),
                answer(&client, 2, State::Ready, range("m", "")),
                second,
            ];
            for at in &order {
                let effects = client.receive(20, &answers[*at]);
                assert!(!verbs(&effects).contains(&"cut"), "{bucket} {keys:?} {order:?}");
            }
            let mut now_ms = 20;
            let error = loop {
                now_ms += 50;
                let mut effects = client.tick(now_ms);
                assert!(!verbs(&effects).contains(&"cut"), "{bucket} {keys:?} {order:?}");
                // Nodes go on answering.
                if let Some(ClientEffect::KeepEpoch(epoch)) = effects.last() {
                    effects = client.input(now_ms, ClientInput::EpochKept(*epoch));
                }
                for at in &order {
                    let answer = Acknowledgement { epoch: client.epoch, ..answers[*at].clone() };
                    effects.extend(client.receive(now_ms, &answer));
                }
                assert!(!verbs(&effects).contains(&"cut"), "{bucket} {keys:?} {order:?}");
                if let Some(ClientEffect::Finish(Outcome::Failed(error))) = effects.last() {
                    break error.to_string();
                }
                assert!(now_ms < 20_000, "it does not end");
            };
            let named = format!("bucket {bucket} on node {}", NodeId([node; 16]));
            assert!(error.contains("claimed twice") && error.contains(&named), "{error}");
        }
    }
}

#[test]
fn kept_1_11_each_node_is_heard_to_its_end_before_the_cut() {
    let whole = |client: &Client| answer(client, 1, State::Ready, KeyRange::whole());
    // The other node has nothing; it has a bucket that says only later that it has no keys.
    let mut client = preparing_with(&[1, 2], false);
    let first = whole(&client);
    assert_eq!(client.receive(20, &first), []);
    let nothing = own(&client, 2, 0);
    assert_eq!(verbs(&client.receive(21, &nothing)), ["cut"]);
    let mut client = preparing_with(&[1, 2], false);
    let (first, later) = (whole(&client), own(&client, 2, 1));
    assert_eq!(client.receive(20, &later), []);
    assert_eq!(client.receive(21, &first), []);
    let mut last = Acknowledgement { state: State::Ready, ..later };
    last.description.range = None;
    assert_eq!(verbs(&client.receive(22, &last)), ["cut"]);
    // Of one node with two buckets, one is not enough, even if it has all keys.
    let mut client = preparing_with(&[1], false);
    let first = Acknowledgement { buckets: 2, ..whole(&client) };
    assert_eq!(client.receive(20, &first), []);
    let other = Acknowledgement { bucket: Some(BucketNumber(2)), ..first };
    assert_eq!(client.receive(21, &other), [], "it claims the same");
}

/// A bucket that an earlier round is loading may come to hold keys, so there is no cut before that is over;
/// one that was freed meanwhile holds none.
#[test]
fn a_store_waits_for_what_an_earlier_round_has_begun() {
    for state in [State::Loading, State::Evicting] {
        let mut client = preparing(Task::Store { evicts: false });
        assert_eq!(give(&mut client, 2, state, KeyRange::whole()), []);
        assert_eq!(give(&mut client, 1, State::Ready, KeyRange::whole()), [], "{state:?}");
        let effects = give(&mut client, 2, State::Evicted, KeyRange::whole());
        assert_eq!(verbs(&effects), ["cut"]);
        assert_eq!(give(&mut client, 2, State::Evicted, KeyRange::whole()), []);
        assert_eq!(verbs(&give(&mut client, 1, State::Captured, KeyRange::whole())), ["cut"]);
        let mut client = preparing(Task::Store { evicts: false });
        give(&mut client, 2, state, KeyRange::whole());
        give(&mut client, 1, State::Ready, KeyRange::whole());
        let effects = give(&mut client, 2, State::Ready, KeyRange::whole());
        assert_eq!(effects, [], "both claim the same");
    }
}

#[test]
fn kept_1_11_a_claim_that_comes_after_the_cut_ends_the_round() {
    for state in [State::Ready, State::Captured, State::Stored, State::Failed] {
        let mut client = preparing(Task::Store { evicts: true });
        assert_eq!(verbs(&give(&mut client, 1, State::Ready, KeyRange::whole())), ["cut"]);
        assert_eq!(verbs(&give(&mut client, 2, state, range("b", "c"))), ["abort"], "{state:?}");
        let mut client = preparing(Task::Store { evicts: true });
        give(&mut client, 1, State::Ready, KeyRange::whole());
        assert_eq!(verbs(&give(&mut client, 1, State::Captured, KeyRange::whole())), ["cut"]);
        let effects = give(&mut client, 2, state, range("b", "c"));
        assert_eq!(verbs(&effects), ["abort", "finish"], "{state:?}");
        let ClientEffect::Finish(Outcome::Failed(error)) = &effects[1] else { panic!() };
        assert!(error.to_string().contains("it claims keys that other buckets have"), "{error}");
    }
}

#[test]
fn kept_1_11_a_node_that_says_nothing_is_waited_for_while_no_program_is_stopped() {
    let silent = NodeId([2; 16]);
    let all = |client: &Client| answer(client, 1, State::Idle, KeyRange::whole());
    let begun = || {
        let mut client = client_of(Task::Store { evicts: false }, &[1, 2], false);
        client.tick(0);
        let first = all(&client);
        assert_eq!(client.receive(1, &first), [], "the other may have them, too");
        client
    };
    // It answers at last.
    let mut client = begun();
    assert!(verbs(&client.tick(500)).iter().all(|verb| *verb == "status"));
    let late = own(&client, 2, 0);
    assert_eq!(client.receive(600, &late), [ClientEffect::KeepEpoch(Epoch(5))]);
    // It does not.
    let mut client = begun();
    let effects = to_its_end(&mut client, 10);
    assert!(verbs(&effects).iter().all(|verb| ["status", "finish"].contains(verb)), "{effects:?}");
    let Some(ClientEffect::Finish(Outcome::Failed(error))) = effects.last() else { panic!() };
    let named = format!("node {silent}: it does not say what it has");
    assert!(error.to_string().contains(&named), "{error}");
    // What it had is recovered, and will not come back.
    let mut client = client_of(Task::Store { evicts: false }, &[1, 2], false);
    client.tick(0);
    client.tick(10);
    let effects = client.tick(1_010);
    assert_eq!(verbs(&effects), ["recover"]);
    client.input(1_010, ClientInput::Recovered);
    client.tick(1_200);
    let first = all(&client);
    assert_eq!(client.receive(1_201, &first), [ClientEffect::KeepEpoch(Epoch(5))]);
}

#[test]
fn kept_1_11_an_empty_bucket_is_stored_only_if_it_replaces_nothing() {
    let mut client = preparing_with(&[1], false);
    let mut empty = answer(&client, 1, State::Empty, KeyRange::whole());
    empty.description.content = Content::Empty;
    assert_eq!(client.receive(20, &empty), []);
    let effects = to_its_end(&mut client, 20);
    let Some(ClientEffect::Finish(Outcome::Failed(error))) = effects.last() else { panic!() };
    let error = error.to_string();
    assert!(error.contains("for these keys: all keys; "), "{error}");
    assert!(error.contains("it is empty: load it"), "{error}");
    // The first cut of a file.
    let mut client = preparing_with(&[1], true);
    let ready = Acknowledgement { state: State::Ready, ..empty };
    assert_eq!(verbs(&client.receive(20, &ready)), ["cut"]);
}
