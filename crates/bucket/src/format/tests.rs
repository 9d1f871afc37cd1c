//! The bytes of each message, and bytes that are none.

use proptest::prelude::*;

use super::*;
use crate::message::{AreaSize, FromProgram, PROTOCOL, ToProgram};
use crate::range::KeyRange;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A message of each kind of a program, and its bytes.
fn of_programs() -> Vec<(FromProgram, &'static str)> {
    let (area, name) = ("data".to_owned(), "n".to_owned());
    let areas = vec!["a".to_owned(), "b".to_owned()];
    let range = KeyRange { low: b"a".to_vec(), high: Some(b"m".to_vec()) };
    vec![
        (
            FromProgram::Hello { protocol: PROTOCOL, file: "f".into(), bucket: 3 },
            "a4000103010461660503",
        ),
        (
            FromProgram::Region {
                request: 1,
                area: area.clone(),
                bytes: 16_384,
                base: Some(1 << 40),
                is_private: true,
            },
            "a60002010106646461746107194000081b000001000000000009f5",
        ),
        (FromProgram::Forget { request: 2, area }, "a300030102066464617461"),
        (FromProgram::Callbacks { has_callbacks: true }, "a200040af5"),
        (FromProgram::Range { range, split_version: 7 }, "a400050b41610c416d0d07"),
        (FromProgram::Range { range: KeyRange::whole(), split_version: 0 }, "a300050b400d00"),
        (FromProgram::Quiesced { epoch: 5, is_copy: true, outcome: Ok(()) }, "a3000602050ef5"),
        (
            FromProgram::Quiesced { epoch: 5, is_copy: false, outcome: Err("no".into()) },
            "a3000602050f626e6f",
        ),
        (FromProgram::Loaded { epoch: 5, outcome: Ok(()) }, "a200070205"),
        (FromProgram::Evicted { epoch: 5, outcome: Ok(()) }, "a200080205"),
        (
            FromProgram::Store { request: 3, name: name.clone(), version: 8, is_copy: true, areas },
            "a6000901030ef510616e1108128261616162",
        ),
        (FromProgram::Wait { request: 4, name: name.clone(), version: 8 }, "a4000a010410616e1108"),
        (FromProgram::Test { request: 5, name: name.clone(), at_most: None }, "a3000b010510616e"),
        (
            FromProgram::Load { request: 6, name, version: 8, areas: Vec::new() },
            "a4000c010610616e1108",
        ),
        (FromProgram::Evict { request: 7, is_copy: false }, "a2000d0107"),
    ]
}

/// A message of each kind of an agent, and its bytes.
fn of_agents() -> Vec<(ToProgram, &'static str)> {
    let areas = vec![AreaSize { area: "a".into(), bytes: 300 }];
    let range = KeyRange { low: b"a".to_vec(), high: Some(b"m".to_vec()) };
    vec![
        (ToProgram::Welcome { protocol: PROTOCOL }, "a20018400301"),
        (ToProgram::Refused { reason: "no".into() }, "a20018410f626e6f"),
        (ToProgram::Quiesce { epoch: 5 }, "a20018420205"),
        (ToProgram::Load { epoch: 5, keys: None }, "a20018430205"),
        (ToProgram::Load { epoch: 5, keys: Some((range, 7)) }, "a500184302050b41610c416d0d07"),
        (ToProgram::Load { epoch: 5, keys: Some((KeyRange::whole(), 0)) }, "a400184302050b400d00"),
        (ToProgram::Resume { epoch: 5, is_reading: true }, "a3001844020514f5"),
        (ToProgram::EpochCaptured { epoch: 5 }, "a20018450205"),
        (ToProgram::Evict { epoch: 5 }, "a20018460205"),
        (ToProgram::Captured { request: 3 }, "a20018470103"),
        (ToProgram::Done { request: 3 }, "a20018480103"),
        (ToProgram::Failed { request: 3, reason: "no".into() }, "a300184901030f626e6f"),
        (
            ToProgram::Found { request: 3, version: Some(8), areas },
            "a500184a0103110812816161138119012c",
        ),
        (ToProgram::Found { request: 3, version: None, areas: Vec::new() }, "a200184a0103"),
    ]
}

#[test]
fn messages_have_these_bytes() {
    for (message, expected) in of_programs() {
        let bytes = message.pack();
        assert_eq!(hex(&bytes), expected, "{message:?}");
        assert_eq!(FromProgram::unpack(&bytes), Ok(message));
    }
    for (message, expected) in of_agents() {
        let bytes = message.pack();
        assert_eq!(hex(&bytes), expected, "{message:?}");
        assert_eq!(ToProgram::unpack(&bytes), Ok(message));
    }
}

#[test]
fn the_longest_messages_fit() {
    let areas: Vec<String> = (0..AREAS_MAX).map(|at| format!("{at:064}")).collect();
    let name = "x".repeat(name::VERSION_NAME_BYTES_MAX);
    let store =
        FromProgram::Store { request: u32::MAX, name, version: u64::MAX, is_copy: true, areas };
    assert!(store.pack().len() < crate::wire::MESSAGE_BYTES_MAX);
    assert_eq!(FromProgram::unpack(&store.pack()), Ok(store));
    let reason = "ä".repeat(REASON_BYTES_MAX);
    let ToProgram::Refused { reason } =
        ToProgram::unpack(&ToProgram::Refused { reason }.pack()).unwrap()
    else {
        panic!("another message");
    };
    assert_eq!(reason.len(), REASON_BYTES_MAX);
}

#[test]
fn fields_of_newer_programs_are_skipped() {
    // {0: 72, 1: 3, 99: [{1: null}, h'00'], 100: -1}
    let bytes = b"\xa4\x00\x18\x48\x01\x03\x18\x63\x82\xa1\x01\xf6\x41\x00\x18\x64\x20";
    assert_eq!(ToProgram::unpack(bytes), Ok(ToProgram::Done { request: 3 }));
}

#[test]
fn what_a_message_may_not_have_is_refused() {
    let unpack = |bytes: &[u8]| FromProgram::unpack(bytes).unwrap_err();
    let invalid = |kind, key| MessageError::Invalid { kind, key };
    // Keys that do not ascend, bytes that are left over, no kind, an unknown kind.
    assert!(matches!(unpack(b"\xa2\x01\x03\x00\x02"), MessageError::Malformed(_)));
    assert!(matches!(unpack(b"\xa1\x00\x0d\x00"), MessageError::Malformed(_)));
    assert!(matches!(unpack(b"\xa0"), MessageError::Malformed(_)));
    assert_eq!(unpack(b"\xa1\x00\x18\x20"), MessageError::Unknown(32));
    assert_eq!(unpack(b"\xa1\x00\x03"), MessageError::Missing { kind: 3, key: 1 });
    // An area named `a/b`, one of no bytes, a range that ends before it begins.
    assert_eq!(unpack(b"\xa3\x00\x03\x01\x01\x06\x63a/b"), invalid(3, key::AREA));
    assert_eq!(unpack(b"\xa4\x00\x02\x01\x01\x06\x61a\x07\x00"), invalid(2, key::BYTES));
    assert_eq!(unpack(b"\xa4\x00\x05\x0b\x41b\x0c\x41a\x0d\x01"), invalid(5, key::HIGH));
    let ends = ToProgram::unpack(b"\xa5\x00\x18\x43\x02\x05\x0b\x41b\x0c\x41a\x0d\x01");
    assert_eq!(ends, Err(invalid(67, key::HIGH)));
    // A request that is a text, one that is too large.
    assert_eq!(unpack(b"\xa2\x00\x0d\x01\x61a"), invalid(13, key::REQUEST));
    assert_eq!(
        unpack(b"\xa2\x00\x0d\x01\x1b\x00\x00\x00\x01\x00\x00\x00\x00"),
        invalid(13, key::REQUEST)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = FromProgram::unpack(&bytes) {
            prop_assert_eq!(FromProgram::unpack(&message.pack()), Ok(message));
        }
        drop(ToProgram::unpack(&bytes));
    }

    #[test]
    fn no_change_of_a_message_makes_a_decoder_panic(
        which in 0_usize..29,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut all: Vec<Vec<u8>> = of_programs().iter().map(|(message, _)| message.pack()).collect();
        all.extend(of_agents().iter().map(|(message, _)| message.pack()));
        let mut bytes = all.swap_remove(which);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let cut = cut.index(bytes.len() + 1);
        for bytes in [&bytes[..], &bytes[..cut]] {
            if let Ok(message) = FromProgram::unpack(bytes) {
                prop_assert_eq!(FromProgram::unpack(&message.pack()), Ok(message));
            }
            if let Ok(message) = ToProgram::unpack(bytes) {
                prop_assert_eq!(ToProgram::unpack(&message.pack()), Ok(message));
            }
        }
    }
}
