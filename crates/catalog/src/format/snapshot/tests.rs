//! A snapshot's bytes are frozen, and what is new in one is unknown, never damage.

use strongroom_base::{ArenaId, Fingerprint, Location};

use super::*;
use crate::reference::ChunkRef;
use crate::snapshot::sort_oldest_first;

const ID: SnapshotId = SnapshotId([7; 16]);

fn snapshot() -> Snapshot {
    let chunk = ChunkRef {
        fingerprint: Fingerprint([1; 32]),
        location: Location { arena: ArenaId([2; 16]), slot: 3 },
        stream_bytes: 4,
    };
    Snapshot {
        sequence: 5,
        started: Timestamp(6),
        ended: Timestamp(-7),
        domain: "web".to_owned(),
        host: "h".to_owned(),
        paths: vec![b"/".to_vec()],
        parent: Some(SnapshotId([8; 16])),
        root: Recipe { depth: 1, refs: vec![chunk] },
        features: vec![2],
        seen: 9,
        ..Snapshot::empty(ID)
    }
}

/// The map with one more key, which is greater than those that it has.
fn with(map: &[u8], key: u8, value: &[u8]) -> Vec<u8> {
    [&[map[0] + 1], &map[1..], &[key], value].concat()
}

/// The same snapshot without features, so that keys can be appended.
fn plain() -> Vec<u8> {
    pack_snapshot(&Snapshot { features: Vec::new(), seen: 0, ..snapshot() })
}

#[test]
fn its_bytes_are_frozen() {
    let packed = pack_snapshot(&snapshot());
    assert_eq!(unpack_snapshot(ID, &packed), Ok(snapshot()));
    let hex: String = packed.iter().map(|byte| format!("{byte:02x}")).collect();
    let reference = "01".repeat(32) + &"02".repeat(16) + "03000000" + "0400000000000000";
    let map = [
        "ae",
        "0000",
        "0106",
        "0226",
        "036168",
        "0460",
        "0581412f",
        "0750",
        &"08".repeat(16),
        "08830001583c",
        &reference,
        "0a86000000000000",
        "0b60",
        "0d05",
        "0e63776562",
        "0f8102",
        "1109",
    ];
    assert_eq!(hex, map.concat());
}

#[test]
fn an_origin_is_one_more_key() {
    let origin =
        Origin { program: "borg".to_owned(), repository: "r".to_owned(), snapshot: "s".to_owned() };
    let taken_over = Snapshot { origin: Some(origin), features: Vec::new(), seen: 0, ..snapshot() };
    let packed = with(&plain(), 20, b"\x83\x64borg\x61r\x61s");
    assert_eq!(pack_snapshot(&taken_over), packed);
    assert_eq!(unpack_snapshot(ID, &packed), Ok(taken_over));
}

#[test]
fn a_guarantee_is_one_more_key() {
    let guarantee = Guarantee { promise: Guarantee::FROZEN, method: 99, turn: 7 };
    let stored =
        Snapshot { guarantee: Some(guarantee), features: Vec::new(), seen: 0, ..snapshot() };
    let packed = with(&plain(), 21, b"\x83\x02\x18\x63\x07");
    assert_eq!(pack_snapshot(&stored), packed);
    assert_eq!(unpack_snapshot(ID, &packed), Ok(stored));
    assert_eq!(
        (guarantee.word(), guarantee.how()),
        ("frozen", "in a way that a newer program knows")
    );
}

#[test]
fn attributes_of_root_that_were_listed_are_one_more_key() {
    let listed = Snapshot { lists_trusted: true, features: Vec::new(), seen: 0, ..snapshot() };
    let packed = with(&plain(), 0x18, b"\x18\xf5");
    assert_eq!(pack_snapshot(&listed), packed);
    assert_eq!(unpack_snapshot(ID, &packed), Ok(listed));
}

#[test]
fn missing_paths_are_one_more_key() {
    let short = |names: Vec<Vec<u8>>| Snapshot {
        missing: [(b"/srv".to_vec(), names)].into(),
        features: Vec::new(),
        seen: 0,
        ..snapshot()
    };
    let packed = with(&plain(), 22, b"\x81\x44/srv");
    assert_eq!(pack_snapshot(&short(Vec::new())), packed);
    assert_eq!(unpack_snapshot(ID, &packed), Ok(short(Vec::new())));
    let packed = with(&packed, 23, b"\x81\x82\x41a\x42bc");
    let short = short(vec![b"a".to_vec(), b"bc".to_vec()]);
    assert_eq!(pack_snapshot(&short), packed);
    assert_eq!(unpack_snapshot(ID, &packed), Ok(short));
}

#[test]
fn what_the_owner_took_over_is_older_than_what_was_made_here() {
    let origin =
        Origin { program: "borg".to_owned(), repository: "r".to_owned(), snapshot: "s".to_owned() };
    let made = Snapshot { domain: String::new(), ..snapshot() };
    let later = Snapshot {
        sequence: made.sequence + 1,
        started: Timestamp(made.started.0 + 1),
        origin: Some(origin),
        ..made.clone()
    };
    assert!(later.order() < made.order());
    // A machine that may only store cannot place its snapshots among those of before.
    let foreign = |snapshot: Snapshot| Snapshot { domain: "web".to_owned(), ..snapshot }.order();
    assert!(foreign(later) > foreign(made));
}

/// A machine had a full key for a year, and may only store since: it counts from 1 again.
#[test]
fn a_number_of_one_domain_says_nothing_of_another() {
    let made = |number: u8, domain: &str, sequence, started| Snapshot {
        domain: domain.to_owned(),
        sequence,
        started: Timestamp(started),
        ..Snapshot::empty(SnapshotId([number; 16]))
    };
    let mut all = [
        made(1, "", 398, 100),
        made(2, "", 399, 900),
        // The clock was wrong before, and is so once more.
        made(3, "", 400, 120),
        made(4, "laptop", 1, 130),
        made(5, "laptop", 2, 9_000),
        made(6, "laptop", 3, 150),
        made(7, "", 401, 140),
        made(8, "laptop", 1 << 60, 160),
    ];
    all.reverse();
    sort_oldest_first(&mut all);
    assert_eq!(all.map(|snapshot| snapshot.id.0[0]), [1, 2, 3, 4, 7, 5, 6, 8]);
}

#[test]
fn engine_11_a_kind_that_is_new_is_unknown_and_no_damage() {
    for kind in [1, 2, 3, 23] {
        let mut map = plain();
        map[2] = kind;
        let number = u64::from(kind);
        assert_eq!(unpack_snapshot(ID, &map), Err(FormatError::Unknown { what: "kind", number }));
        let head = unpack_head(&map).unwrap();
        assert_eq!((head.kind, head.sequence, head.domain.as_str()), (number, 5, "web"));
    }
}

#[test]
fn engine_11_a_feature_that_must_be_known_is_unknown_and_another_is_kept() {
    let required = with(&plain(), 16, &[0x81, 0x05]);
    let unknown = FormatError::Unknown { what: "required feature", number: 5 };
    assert_eq!(unpack_snapshot(ID, &required), Err(unknown));
    assert_eq!(unpack_head(&required).unwrap().required, [5]);
    let optional = with(&plain(), 15, &[0x82, 0x05, 0x18, 0x63]);
    assert_eq!(unpack_snapshot(ID, &optional).unwrap().features, [5, 99]);
    // A key without a feature refers to nothing, and is passed over.
    assert!(unpack_snapshot(ID, &with(&plain(), 0x18, &[99, 0x05])).is_ok());
}

#[test]
fn engine_11_a_root_of_another_form_is_unknown_and_no_damage() {
    let map = plain();
    let root = map.windows(3).position(|bytes| bytes == [8, 0x83, 0]).unwrap();
    let mut newer = map.clone();
    newer[root + 2] = 2;
    let unknown = FormatError::Unknown { what: "form of recipe", number: 2 };
    assert_eq!(unpack_snapshot(ID, &newer), Err(unknown));
}

/// A program that knows only fingerprints passes over such a snapshot as a whole.
#[test]
fn recipes_of_places_are_a_required_feature() {
    let place = Location { arena: ArenaId([3; 16]), slot: 4 };
    let root = Recipe { depth: 0, refs: vec![ChunkRef::in_place(place, 5)] };
    let snapshot = Snapshot { root, ..Snapshot::empty(ID) };
    let map = pack_snapshot(&snapshot);
    assert_eq!(unpack_head(&map).unwrap().required, [1]);
    assert_eq!(unpack_snapshot(ID, &map), Ok(snapshot.clone()));
    assert_eq!(unpack_head(&plain()).unwrap().required, [0; 0]);
}

/// A collector that passed over such a key would remove what it names.
#[test]
fn references_under_a_reserved_key_need_their_feature() {
    for (key, feature) in [(18, 2), (19, 3)] {
        let with_feature = with(&plain(), 15, &[0x81, feature]);
        assert!(unpack_snapshot(ID, &with(&with_feature, key, &[0x80])).is_ok());
        let without = unpack_snapshot(ID, &with(&plain(), key, &[0x80]));
        assert!(matches!(without, Err(FormatError::Damaged { .. })), "{without:?}");
    }
}
