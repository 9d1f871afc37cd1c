//! What a program says to an agent and an agent to a program, and a node's record, from any bytes.
//!
//! What unpacks, packs and unpacks to the same; it takes no more memory than its bound allows. What
//! nodes and clients say is opened with a key first, so it comes from those who have one.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use strongroom_base::SnapshotId;
use strongroom_bucket::{FromProgram, KeyRange, ToProgram};
use strongroom_cluster::{BucketNumber, Cut, Epoch, Kept, Record};
use strongroom_fuzz::{measure, write_seeds_if_asked};

/// Bytes of a record's checksum, behind all others.
const CHECKSUM_BYTES: usize = 32;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let unpacked = measure(|| FromProgram::unpack(data));
    assert!(unpacked.peak_bytes <= 64 * data.len() + 16_384, "it took {}", unpacked.peak_bytes);
    if let Ok(message) = unpacked.value {
        assert_eq!(FromProgram::unpack(&message.pack()).as_ref(), Ok(&message));
    }
    let unpacked = measure(|| ToProgram::unpack(data));
    assert!(unpacked.peak_bytes <= 64 * data.len() + 16_384, "it took {}", unpacked.peak_bytes);
    if let Ok(message) = unpacked.value {
        assert_eq!(ToProgram::unpack(&message.pack()).as_ref(), Ok(&message));
    }
    let unpacked = measure(|| Record::unpack(&with_checksum(data)));
    assert!(unpacked.peak_bytes <= 64 * data.len() + 16_384, "it took {}", unpacked.peak_bytes);
    if let Ok(record) = unpacked.value {
        assert_eq!(Record::unpack(&record.pack()).as_ref(), Ok(&record));
    }
});

/// A record of these bytes (`docs/format/cluster.md`): with any other checksum they are not looked at.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_derive_key("strongroom v0 checksum of a cluster record");
    hasher.update(&[0; CHECKSUM_BYTES]).update(bytes);
    [bytes, hasher.finalize().as_bytes()].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let range = KeyRange { low: b"a".to_vec(), high: Some(b"b".to_vec()) };
    let store = FromProgram::Store {
        request: 7,
        name: "nightly".to_owned(),
        version: 9,
        is_copy: true,
        areas: vec!["one".to_owned(), "two".to_owned()],
    };
    let cut = Cut { epoch: Epoch(6), snapshot: SnapshotId([7; 16]) };
    let kept = BTreeMap::from([
        (BucketNumber(1), Kept::Stored { epoch: cut.epoch, snapshot: cut.snapshot }),
        (BucketNumber(2), Kept::Evicted(cut)),
        (BucketNumber(3), Kept::Loaded(cut)),
    ]);
    let record = Record { epoch: Epoch(8), kept };
    vec![
        FromProgram::Hello { protocol: 1, file: "sales".to_owned(), bucket: 3 }.pack(),
        FromProgram::Range { range, split_version: 4 }.pack(),
        FromProgram::Quiesced { epoch: 5, is_copy: false, outcome: Err("no".to_owned()) }.pack(),
        store.pack(),
        ToProgram::Welcome { protocol: 1 }.pack(),
        ToProgram::Resume { epoch: 5, is_reading: true }.pack(),
        without_checksum(&Record::default()),
        without_checksum(&record),
    ]
}

fn without_checksum(record: &Record) -> Vec<u8> {
    let mut bytes = record.pack();
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    assert_eq!(with_checksum(&bytes), record.pack());
    bytes
}
