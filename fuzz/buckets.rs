//! What a program says to an agent and an agent to a program, and a node's record, from any bytes.
//!
//! What unpacks, packs and unpacks to the same; it takes no more memory than its bound allows. What
//! nodes and clients say is opened with a key first, so it comes from those who have one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_bucket::{FromProgram, KeyRange, ToProgram};
use strongroom_cluster::Record;
use strongroom_fuzz::{measure, write_seeds_if_asked};

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
    let unpacked = measure(|| Record::unpack(data));
    assert!(unpacked.peak_bytes <= 64 * data.len() + 16_384, "it took {}", unpacked.peak_bytes);
    if let Ok(record) = unpacked.value {
        assert_eq!(Record::unpack(&record.pack()).as_ref(), Ok(&record));
    }
});

fn seeds() -> Vec<Vec<u8>> {
    let range = KeyRange { low: b"a".to_vec(), high: Some(b"b".to_vec()) };
    let store = FromProgram::Store {
        request: 7,
        name: "nightly".to_owned(),
        version: 9,
        is_copy: true,
        areas: vec!["one".to_owned(), "two".to_owned()],
    };
    vec![
        FromProgram::Hello { protocol: 1, file: "sales".to_owned(), bucket: 3 }.pack(),
        FromProgram::Range { range, split_version: 4 }.pack(),
        FromProgram::Quiesced { epoch: 5, is_copy: false, outcome: Err("no".to_owned()) }.pack(),
        store.pack(),
        ToProgram::Welcome { protocol: 1 }.pack(),
        ToProgram::Resume { epoch: 5, is_reading: true }.pack(),
        Record::default().pack(),
    ]
}
