//! Damage of every kind, in every part of every file: never a wrong location.

use std::fs;
use std::path::{Path, PathBuf};

use strongroom_index::{Damage, Index, IndexError, Value};

use crate::{assert_known, assert_unknown, insert, key, location};

const COUNT: u64 = 1_000;

/// One way to damage the bytes of a file.
type Change = fn(&mut Vec<u8>, usize);

const CHANGES: [(&str, Change); 5] = [
    ("a bit flipped", |bytes, at| bytes[at] ^= 0x10),
    ("shortened", |bytes, at| bytes.truncate(at)),
    ("zeros to the end", |bytes, at| bytes[at..].fill(0)),
    ("a sector of zeros", |bytes, at| {
        let end = bytes.len().min(at + 512);
        bytes[at..end].fill(0);
    }),
    ("longer", |bytes, at| bytes.extend(vec![0; at + 1])),
];

fn make(directory: &Path) -> (PathBuf, PathBuf) {
    let mut index = Index::open(directory).expect("the directory is new");
    insert(&mut index, 0, COUNT);
    index.flush(b"the note").expect("the directory can be written");
    (directory.join("0000000000000000.segment"), directory.join("MANIFEST"))
}

/// Opens the index and looks everything up. Each answer must be right; returns whether all keys
/// were answered.
fn answers_all(directory: &Path) -> bool {
    let mut index = match Index::open(directory) {
        Ok(index) => index,
        Err(IndexError::Damaged { .. }) => return false,
        Err(error) => panic!("{error}"),
    };
    let note = index.take_note();
    let mut answered = note == b"the note";
    for n in 0..2 * COUNT {
        match index.lookup(&key(n)) {
            Ok(Some(found)) => assert!(n < COUNT && found == location(n), "{n}: {found:?}"),
            Ok(None) => assert!(n >= COUNT || note.is_empty(), "{n} is lost unnoticed"),
            Err(IndexError::Damaged { .. }) => answered = false,
            Err(error) => panic!("{error}"),
        }
    }
    answered
}

#[test]
fn every_part_of_every_file() {
    let directory = tempfile::tempdir().unwrap();
    let (segment, manifest) = make(directory.path());
    assert!(answers_all(directory.path()));
    for path in [segment, manifest] {
        let good = fs::read(&path).unwrap();
        let length = good.len();
        // The header, the head's prefixes, filter and numbers, the pages' records and numbers, the
        // directory, the trailer, and any place.
        let places = (0..length)
            .step_by(977)
            .chain([8, 12, 16, 4092, 4096, 4100, 4400, 8168, 8176, 8188, 8192, 8226, 12272, 12284])
            .chain(length.saturating_sub(70)..length)
            .filter(|at| *at < length);
        for at in places {
            for (name, change) in CHANGES {
                let mut bytes = good.clone();
                change(&mut bytes, at);
                if bytes == good {
                    continue;
                }
                fs::write(&path, &bytes).unwrap();
                assert!(!answers_all(directory.path()), "{name} at {at} of {}", path.display());
            }
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(answers_all(directory.path()));
}

#[test]
fn missing_and_exchanged_files() {
    let directory = tempfile::tempdir().unwrap();
    let (segment, manifest) = make(directory.path());
    let good = fs::read(&segment).unwrap();

    fs::remove_file(&segment).unwrap();
    assert!(matches!(Index::open(directory.path()), Err(IndexError::Damaged { .. })));

    // A good segment of another index, of the same number and length.
    let other = tempfile::tempdir().unwrap();
    let mut index = Index::open(other.path()).unwrap();
    insert(&mut index, 5 * COUNT, 6 * COUNT);
    index.flush(b"other").unwrap();
    fs::copy(other.path().join("0000000000000000.segment"), &segment).unwrap();
    assert!(matches!(Index::open(directory.path()), Err(IndexError::Damaged { .. })));

    // Two pages exchanged, each good in itself; a page and the head of its partition.
    for begin in [2 * 4096, 4096] {
        let mut bytes = good.clone();
        bytes[begin..begin + 2 * 4096].rotate_left(4096);
        fs::write(&segment, &bytes).unwrap();
        assert!(!answers_all(directory.path()));
    }

    // The header in the place of the head, and of the first page.
    for begin in [4096, 2 * 4096] {
        let mut bytes = good.clone();
        bytes.copy_within(..4096, begin);
        fs::write(&segment, &bytes).unwrap();
        assert!(!answers_all(directory.path()));
    }

    // Without a manifest it is an empty index, and what is left is removed.
    fs::write(&segment, &good).unwrap();
    fs::remove_file(&manifest).unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    assert_eq!((index.take_note(), index.stats().records), (Vec::new(), 0));
    assert!(!segment.exists());
}

/// A merge notices damage too, and does not carry it on.
#[test]
fn damage_stops_a_merge() {
    let directory = tempfile::tempdir().unwrap();
    let (segment, _) = make(directory.path());
    let mut bytes = fs::read(&segment).unwrap();
    bytes[2 * 4096 + 900] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    assert!(matches!(index.retain(|_| true), Err(IndexError::Damaged { .. })));
    for n in 1..4 {
        insert(&mut index, n * COUNT, (n + 1) * COUNT);
        let flushed = index.flush(b"more");
        assert_eq!(matches!(flushed, Err(IndexError::Damaged { .. })), n == 3);
    }
}

/// Files of the first version of the format are never misread: they count as damaged, and are made
/// again.
#[test]
fn an_index_of_another_version() {
    for other in [0, 1, 3] {
        for of_segment in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (segment, manifest) = make(directory.path());
            // The header of the segment, or the whole manifest.
            let (path, end) = match of_segment {
                true => (segment, 4096),
                false => (manifest.clone(), fs::read(&manifest).unwrap().len()),
            };
            let mut bytes = fs::read(&path).unwrap();
            bytes[8] = other;
            let checksum = crc32c::crc32c(&bytes[..end - 4]);
            bytes[end - 4..end].copy_from_slice(&checksum.to_le_bytes());
            fs::write(&path, &bytes).unwrap();
            let error = Index::open(directory.path()).err().unwrap();
            let damage = Damage::Version { version: other.into() };
            assert!(
                matches!(&error, IndexError::Damaged { damage: found, .. } if *found == damage),
                "{error}"
            );
            let mut index = Index::reset(directory.path()).unwrap();
            assert_unknown(&index, 0, COUNT);
            insert(&mut index, 0, COUNT);
            index.flush(b"the note").unwrap();
            drop(index);
            assert!(answers_all(directory.path()));
        }
    }
}

#[test]
fn reset_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (_, manifest) = make(directory.path());
    fs::write(&manifest, b"no manifest at all").unwrap();
    assert!(matches!(Index::open(directory.path()), Err(IndexError::Damaged { .. })));
    let mut index = Index::reset(directory.path()).unwrap();
    assert!(index.is_writer());
    assert_unknown(&index, 0, COUNT);
    insert(&mut index, 0, 10);
    index.flush(b"again").unwrap();
    drop(index);
    let mut index = Index::open(directory.path()).unwrap();
    assert_eq!(index.take_note(), b"again");
    assert_known(&index, 0, 10);
    assert_unknown(&index, 10, COUNT);
}

#[test]
fn a_directory_that_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Index::open(&file.join("index")).err().unwrap();
    assert!(matches!(error, IndexError::Io { operation: "create", .. }), "{error}");
    let mut index = Index::in_memory();
    index.insert(&key(1), Value(1)).unwrap();
    assert_eq!(index.lookup(&key(1)).unwrap(), Some(Value(1)));
}
