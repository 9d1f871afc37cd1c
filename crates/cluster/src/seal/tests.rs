//! Who can command, who can answer, and what is refused.

use proptest::prelude::*;
use strongroom_base::{SeededEntropy, SnapshotId};

use super::*;
use crate::message::{
    BucketNumber, Content, Cut, Description, Epoch, FileName, NodeTag, PARTS_MAX, Part, RunId,
    State, Verb,
};

const GROUP: GroupKey = GroupKey([1; 32]);

fn controller() -> AuthorityKey {
    AuthorityKey::new([2; 32])
}

fn key_of(node: NodeId) -> Option<NodeKey> {
    (node.0[0] < 4).then(|| NodeKey([node.0[0]; 32]))
}

fn command(verb: Verb) -> Command {
    Command {
        file: FileName::new(&"x".repeat(64)).unwrap(),
        run: RunId(1),
        epoch: Epoch(2),
        verb,
        deadline_ms: 3,
        answered: (0..400_u32).map(|node| NodeTag(node.to_le_bytes())).collect(),
    }
}

fn evict_all() -> Verb {
    let (node, snapshot) = (NodeId([2; 16]), SnapshotId([3; 16]));
    let part = Part { bucket: BucketNumber(4), node, snapshot };
    Verb::Evict { cut: Cut { epoch: Epoch(1), snapshot }, parts: vec![part; PARTS_MAX + 9] }
}

fn answer(node: u8) -> Acknowledgement {
    let range = strongroom_bucket::KeyRange { low: vec![1; 64], high: Some(vec![2; 64]) };
    Acknowledgement {
        run: RunId(1),
        epoch: Epoch(2),
        node: NodeId([node; 16]),
        highest: Epoch(2),
        bucket: Some(BucketNumber(4)),
        buckets: 1,
        state: State::Failed,
        description: Description {
            range: Some(range),
            split_version: 1,
            bytes: 1,
            content: Content::Filled,
        },
        snapshot: None,
        reason: "r".repeat(500),
    }
}

#[test]
fn the_longest_messages_fit_and_open() {
    let entropy = SeededEntropy::new(1);
    for verb in [Verb::Prepare, evict_all()] {
        let datagram = seal_command(&command(verb.clone()), &controller(), &GROUP, &entropy);
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX, "{} bytes", datagram.len());
        let opened = open_command(&datagram, &controller().public(), &GROUP).unwrap();
        assert_eq!((opened.epoch, opened.run), (Epoch(2), RunId(1)));
        assert!(opened.answered.len() == 200 || opened.answered.is_empty());
    }
    let datagram = seal_acknowledgement(&answer(3), &NodeKey([3; 32]), &entropy);
    assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    let opened = open_acknowledgement(&datagram, key_of).unwrap();
    assert_eq!((opened.node, opened.state), (NodeId([3; 16]), State::Failed));
}

#[test]
fn only_the_controller_of_this_group_commands() {
    let entropy = SeededEntropy::new(2);
    let order = command(Verb::Cut);
    let open = |datagram: &[u8]| open_command(datagram, &controller().public(), &GROUP);
    let by_a_node = seal_command(&order, &AuthorityKey::new([9; 32]), &GROUP, &entropy);
    assert_eq!(open(&by_a_node), Err(DatagramError::Unsigned));
    let of_another = seal_command(&order, &controller(), &GroupKey([7; 32]), &entropy);
    assert_eq!(open(&of_another), Err(DatagramError::Sealed));
    // A member of both groups seals a signed command again, for the other one.
    let head = &of_another[..COMMAND_HEAD_BYTES];
    let mut sealed = of_another[COMMAND_HEAD_BYTES..].to_vec();
    let body = super::open(head, context::COMMAND, &[7; 32], &mut sealed).unwrap().to_vec();
    let again = seal(&[VERSION, KIND_COMMAND], context::COMMAND, &GROUP.0, &body, &entropy);
    assert_eq!(open(&again), Err(DatagramError::Unsigned));
}

#[test]
fn only_a_node_answers_for_itself() {
    let entropy = SeededEntropy::new(3);
    let by_another = seal_acknowledgement(&answer(3), &NodeKey([2; 32]), &entropy);
    assert_eq!(open_acknowledgement(&by_another, key_of), Err(DatagramError::Sealed));
    // The name in the clear is sealed with the rest.
    let mut renamed = seal_acknowledgement(&answer(3), &NodeKey([3; 32]), &entropy);
    renamed[2..18].fill(2);
    assert_eq!(open_acknowledgement(&renamed, key_of), Err(DatagramError::Sealed));
    let stranger = seal_acknowledgement(&answer(8), &NodeKey([8; 32]), &entropy);
    let unknown = DatagramError::UnknownNode(NodeId([8; 16]));
    assert_eq!(open_acknowledgement(&stranger, key_of), Err(unknown));
    let as_command = open_command(&stranger, &controller().public(), &GROUP);
    assert_eq!(as_command, Err(DatagramError::Foreign));
}

#[test]
fn equal_messages_are_different_datagrams() {
    let entropy = SeededEntropy::new(4);
    let one = seal_command(&command(Verb::Status), &controller(), &GROUP, &entropy);
    let other = seal_command(&command(Verb::Status), &controller(), &GROUP, &entropy);
    assert_ne!(one[2..34], other[2..34], "a salt, and so a key, is used once");
}

/// Frozen: what a release sends today, the next one opens.
#[test]
fn datagrams_are_frozen() {
    let entropy = SeededEntropy::new(5);
    let mut status = command(Verb::Status);
    status.file = FileName::new("f").unwrap();
    status.answered.clear();
    let mut idle = answer(3);
    (idle.reason, idle.description) = (String::new(), Description::default());
    let sent = [
        seal_command(&status, &controller(), &GROUP, &entropy),
        seal_acknowledgement(&idle, &NodeKey([3; 32]), &entropy),
    ];
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(sent.each_ref().map(hex), GOLDEN.map(|lines| lines.concat()));
}

const GOLDEN: [&[&str]; 2] = [
    &[
        "01018248dee336dbe89455c6d2875e28a7fd29ab347cdc700c942d4921f1af218be785702338c942217c4d2e",
        "867d860c69352e8d40dd41b5dc7431403ebda9ba62b5bd4746bb500e1cf724803f3b49cdf4cb69bdda2eac99",
        "eef00a9c32f47590fcd565a6d2a4aa8ded6b592c02490dcf37411c2c37fb5c700fcd3d9f038f6ec7eaa7e2e9",
        "623ba9d992317b",
    ],
    &[
        "010203030303030303030303030303030303ee1d38c16eda2d58e0684a3aad9dcbe13f3c7ea4acf0b28ae0b5",
        "0e14b71ff7f7abbd3630706e104721c6089b4e90f2c9af6a7a3497ed3b37fd11b0f8598af7a5f2b73b948b6a",
        "93d23e18cbfaec9fd386477f8d81ab8bbfc23edd6f4a240d72556c812b0c85f079b648ef3bb47e3eec50c1a1",
        "dfb8",
    ],
];

proptest! {
    #[test]
    fn bytes_of_strangers_do_not_open(mut bytes in prop::collection::vec(any::<u8>(), 0..1_300)) {
        for kind in [KIND_COMMAND, KIND_ACKNOWLEDGEMENT] {
            for (at, byte) in [VERSION, kind].into_iter().enumerate().take(bytes.len()) {
                bytes[at] = byte;
            }
            prop_assert!(open_command(&bytes, &controller().public(), &GROUP).is_err());
            prop_assert!(open_acknowledgement(&bytes, |_| Some(NodeKey([3; 32]))).is_err());
        }
    }

    #[test]
    fn one_changed_bit_does_not_open(at in 0_usize..1_000, bit in 0_u8..8) {
        let entropy = SeededEntropy::new(6);
        let mut datagram = seal_command(&command(evict_all()), &controller(), &GROUP, &entropy);
        let at = at % datagram.len();
        datagram[at] ^= 1 << bit;
        prop_assert!(open_command(&datagram, &controller().public(), &GROUP).is_err());
    }
}
