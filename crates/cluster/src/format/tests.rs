//! Bytes and back, bytes of strangers, and bytes that are frozen.

use proptest::prelude::*;

use super::*;

fn file() -> FileName {
    FileName::new("orders").unwrap()
}

fn part(number: u32) -> Part {
    let bucket = BucketNumber(number);
    Part { bucket, node: NodeId([2; 16]), snapshot: SnapshotId([3; 16]) }
}

fn cut() -> Cut {
    Cut { epoch: Epoch(7), snapshot: SnapshotId([4; 16]) }
}

fn command(verb: Verb, answered: u32) -> Command {
    Command {
        file: file(),
        run: RunId(0x0102_0304_0506_0708),
        epoch: Epoch(9),
        verb,
        deadline_ms: 500,
        answered: (0..answered).map(|node| NodeTag(node.to_le_bytes())).collect(),
    }
}

fn acknowledgement() -> Acknowledgement {
    let range = KeyRange { low: b"a".to_vec(), high: Some(b"m".to_vec()) };
    Acknowledgement {
        run: RunId(5),
        epoch: Epoch(9),
        node: NodeId([2; 16]),
        highest: Epoch(9),
        bucket: Some(BucketNumber(3)),
        buckets: 2,
        state: State::Stored,
        description: Description {
            range: Some(range),
            split_version: 2,
            bytes: 4_096,
            content: Content::Filled,
        },
        snapshot: Some(SnapshotId([3; 16])),
        reason: String::new(),
    }
}

fn record() -> Record {
    let kept = [
        Kept::Stored { epoch: Epoch(7), snapshot: SnapshotId([3; 16]) },
        Kept::Evicted(cut()),
        Kept::Loaded(cut()),
    ];
    let numbered = (1..).map(BucketNumber).zip(kept);
    Record { epoch: Epoch(9), kept: numbered.collect() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn commands_come_back_as_they_were() {
    let parts: Vec<Part> = (0..24).map(part).collect();
    let verbs = [
        Verb::Status,
        Verb::Prepare,
        Verb::Cut,
        Verb::Abort,
        Verb::Evict { cut: cut(), parts: parts.clone() },
        Verb::Load { cut: cut(), parts },
        Verb::PrepareAll,
    ];
    for verb in verbs {
        let is_listing = matches!(verb, Verb::Evict { .. } | Verb::Load { .. });
        let command = command(verb, if is_listing { 0 } else { 200 });
        assert_eq!(Command::unpack(&command.pack()), Ok(command));
    }
}

#[test]
fn what_is_too_long_is_cut_off_and_refused() {
    let sent = Command::unpack(&command(Verb::Prepare, 201).pack()).unwrap();
    assert_eq!(sent.answered.len(), ANSWERED_MAX);
    let parts: Vec<Part> = (0..25).map(part).collect();
    let sent = Command::unpack(&command(Verb::Load { cut: cut(), parts }, 3).pack()).unwrap();
    assert!(matches!(sent.verb, Verb::Load { parts, .. } if parts.len() == PARTS_MAX));
    assert!(sent.answered.is_empty());
    let reason = "ä".repeat(200);
    let sent = Acknowledgement { reason, ..acknowledgement() };
    let came = Acknowledgement::unpack(sent.node, &sent.pack()).unwrap();
    assert_eq!(came.reason, "ä".repeat(REASON_BYTES_MAX / 2));
    let mut long = command(Verb::Cut, 0).pack();
    let count = long.len() - 2;
    long[count..].copy_from_slice(&201_u16.to_le_bytes());
    long.extend([0; 201 * 4]);
    let what = FormatError::Field("number of nodes that answered");
    assert_eq!(Command::unpack(&long), Err(what));
}

#[test]
fn acknowledgements_come_back_as_they_were() {
    for state in STATES {
        for range in [None, Some(KeyRange::whole()), acknowledgement().description.range] {
            let mut sent = Acknowledgement { state, ..acknowledgement() };
            sent.description.range = range;
            let is_empty = state == State::Empty;
            sent.description.content = if is_empty { Content::Empty } else { Content::Unknown };
            assert_eq!(Acknowledgement::unpack(sent.node, &sent.pack()), Ok(sent));
        }
    }
    let own = Acknowledgement { bucket: None, snapshot: None, ..acknowledgement() };
    assert_eq!(Acknowledgement::unpack(own.node, &own.pack()), Ok(own));
}

#[test]
fn a_range_without_keys_is_not_sent_and_not_taken() {
    let mut sent = acknowledgement();
    sent.description.range = Some(KeyRange { low: vec![9; 300], high: None });
    let came = Acknowledgement::unpack(sent.node, &sent.pack()).unwrap();
    assert_eq!(came.description.range, None);
    let mut bytes = acknowledgement().pack();
    let at = bytes.windows(4).position(|bytes| bytes == [1, b'a', 1, b'm']).unwrap();
    bytes[at + 3] = b'a';
    let came = Acknowledgement::unpack(sent.node, &bytes);
    assert_eq!(came, Err(FormatError::Field("range")));
}

#[test]
fn a_record_comes_back_and_damage_is_seen() {
    let bytes = record().pack();
    assert_eq!(Record::unpack(&bytes), Ok(record()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(Record::unpack(&damaged), Err(FormatError::Checksum), "byte {at}");
        assert!(Record::unpack(&bytes[..at]).is_err());
    }
}

/// The sizes of `docs/format/cluster.md`.
#[test]
fn sizes_are_those_of_the_document() {
    let command_bytes = 1 + file().as_str().len() + 8 + 8 + 4 + 1 + 2;
    assert_eq!(command(Verb::Cut, 0).pack().len(), command_bytes);
    assert_eq!(command(Verb::Cut, 3).pack().len(), command_bytes + 3 * 4);
    let evict = command(Verb::Evict { cut: cut(), parts: vec![part(6); 2] }, 0);
    assert_eq!(evict.pack().len(), command_bytes + 24 + 2 + 2 * 36);
    let mut bare = Acknowledgement { bucket: None, snapshot: None, ..acknowledgement() };
    bare.description.range = None;
    assert_eq!(bare.pack().len(), 3 * 8 + 1 + 4 + 2 + 1 + 2 * 8 + 1 + 1 + 1 + 16 + 1);
    assert_eq!(record().pack().len(), 8 + 4 + 8 + 4 + 3 * 29 + 32);
}

/// Frozen: nodes of different releases understand each other, and a node its own disk.
#[test]
fn bytes_are_frozen() {
    let evict = command(Verb::Evict { cut: cut(), parts: vec![part(6)] }, 0);
    let golden = [
        (command(Verb::Prepare, 2).pack(), COMMAND),
        (evict.pack(), EVICT),
        (acknowledgement().pack(), ACKNOWLEDGEMENT),
        (record().pack(), RECORD),
    ];
    for (bytes, golden) in golden {
        assert_eq!(hex(&bytes), golden.concat());
    }
}

const COMMAND: &[&str] =
    &["066f726465727308070605040302010900000000000000f40100000102000000000001000000"];
const EVICT: &[&str] = &[
    "066f726465727308070605040302010900000000000000f40100000407000000000000000404040404040404",
    "0404040404040404010006000000020202020202020202020202020202020303030303030303030303030303",
    "03030000",
];
const ACKNOWLEDGEMENT: &[&str] = &[
    "0500000000000000090000000000000009000000000000000103000000020004020000000000000000100000",
    "0000000002020161016d010303030303030303030303030303030300",
];
const RECORD: &[&str] = &[
    "5352434c55535400000000000900000000000000030000000100000000070000000000000003030303030303",
    "0303030303030303030200000001070000000000000004040404040404040404040404040404030000000207",
    "00000000000000040404040404040404040404040404044a368cad4290847671e52a0369005afa67c00dc0af",
    "7b91a0825cad1e8a10dca9",
];

proptest! {
    /// Any bytes are refused or come back as they were: no panic, no other meaning.
    #[test]
    fn bytes_of_strangers_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..1_200)) {
        if let Ok(command) = Command::unpack(&bytes) {
            prop_assert_eq!(Command::unpack(&command.pack()), Ok(command));
        }
        if let Ok(answer) = Acknowledgement::unpack(NodeId([0; 16]), &bytes) {
            prop_assert_eq!(answer.pack(), bytes.clone());
        }
        prop_assert!(Record::unpack(&bytes).is_err());
    }

    /// The same for bytes that differ little from a message.
    #[test]
    fn messages_that_were_changed_do_no_harm(at in 0_usize..400, byte: u8, end in 0_usize..400) {
        let evict = command(Verb::Evict { cut: cut(), parts: vec![part(6)] }, 0);
        for mut bytes in [command(Verb::Cut, 3).pack(), evict.pack()] {
            let at = at % bytes.len();
            bytes[at] = byte;
            let end = bytes.len() - end % 3;
            if let Ok(command) = Command::unpack(&bytes[..end]) {
                prop_assert_eq!(command.pack(), &bytes[..end]);
            }
        }
        let mut bytes = acknowledgement().pack();
        let at = at % bytes.len();
        bytes[at] = byte;
        let end = bytes.len() - end % 3;
        if let Ok(answer) = Acknowledgement::unpack(NodeId([0; 16]), &bytes[..end]) {
            prop_assert!(!answer.pack().is_empty());
        }
    }
}
