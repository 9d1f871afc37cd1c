//! The index against a model, and against crashes between any two changes to its directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::Index;
use crate::step::faults;
use crate::{Key, Value};

/// A key of few, uniformly spread over all bytes; every fourth shares its first eight bytes with
/// others.
fn key(n: u16) -> Key {
    let mut state = u64::from(n);
    let mut key = [0; 32];
    for word in key.as_chunks_mut::<8>().0 {
        state = (state ^ 0x9e37_79b9).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(32);
        state = state.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (state >> 29);
        *word = state.to_le_bytes();
    }
    if n.is_multiple_of(4) {
        key[..8].fill(0x55);
    }
    key
}

#[derive(Clone, Debug)]
enum Action {
    Insert { first: u16, count: u16, location: u64 },
    Flush,
    Reopen,
    Retain { modulus: u64 },
    Clear,
    Lookups,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (0u16..1500, 1u16..400, 0u64..1000)
            .prop_map(|(first, count, location)| Action::Insert { first, count, location }),
        8 => Just(Action::Flush),
        3 => Just(Action::Reopen),
        2 => (1u64..5).prop_map(|modulus| Action::Retain { modulus }),
        1 => Just(Action::Clear),
        4 => Just(Action::Lookups),
    ]
}

type Model = BTreeMap<Key, Value>;

fn apply(index: &mut Index, model: &mut Model, action: &Action) -> crate::Result<()> {
    match action {
        Action::Insert { first, count, location } => {
            for n in *first..first + count {
                let location = Value(location + u64::from(n) % 7);
                model.insert(key(n), location);
                index.insert(&key(n), location)?;
            }
        }
        Action::Retain { modulus } => {
            let keep = |location: Value| !location.0.is_multiple_of(*modulus);
            model.retain(|_, location| keep(*location));
            index.retain(keep)?;
        }
        Action::Clear => {
            model.clear();
            index.clear()?;
        }
        Action::Flush | Action::Reopen | Action::Lookups => {}
    }
    Ok(())
}

fn differs(index: &Index, model: &Model) -> Option<u16> {
    (0..2000).find(|n| index.lookup(&key(*n)).unwrap() != model.get(&key(*n)).copied())
}

fn open(path: &Path) -> Index {
    Index::open(path).unwrap().with_table_records_max(300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn as_the_model(actions in prop::collection::vec(action(), 1..50)) {
        let directory = tempfile::tempdir().unwrap();
        let mut index = open(directory.path());
        let mut memory = Index::in_memory();
        let (mut model, mut committed) = (Model::new(), Model::new());
        let (mut note, mut flushes) = (Vec::new(), 0u32);
        for action in &actions {
            apply(&mut index, &mut model, action).unwrap();
            apply(&mut memory, &mut model, action).unwrap();
            match action {
                Action::Flush => {
                    flushes += 1;
                    note = flushes.to_le_bytes().to_vec();
                    index.flush(&note).unwrap();
                    committed.clone_from(&model);
                }
                Action::Reopen => {
                    drop(index);
                    index = open(directory.path());
                    prop_assert_eq!(index.take_note(), &note[..]);
                    model.clone_from(&committed);
                    memory.clear().unwrap();
                    for (key, location) in &model {
                        memory.insert(key, *location).unwrap();
                    }
                }
                Action::Clear => {
                    committed.clear();
                    note.clear();
                }
                _ => {}
            }
            if matches!(action, Action::Lookups | Action::Reopen | Action::Retain { .. }) {
                prop_assert_eq!(differs(&index, &model), None);
                prop_assert_eq!(differs(&memory, &model), None);
            }
        }
        prop_assert_eq!(differs(&index, &model), None);
    }

    /// A reader in the same directory: sees what was committed when it opened, and its own.
    #[test]
    fn a_reader_as_the_model(actions in prop::collection::vec(action(), 1..40)) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = open(directory.path());
        let (mut model, mut writer_model) = (Model::new(), Model::new());
        for first in [0, 300, 600] {
            let insert = Action::Insert { first, count: 350, location: u64::from(first) };
            apply(&mut writer, &mut writer_model, &insert).unwrap();
            writer.flush(b"writer").unwrap();
            model.clone_from(&writer_model);
        }
        let mut reader = open(directory.path());
        prop_assert!(!reader.is_writer());
        for action in &actions {
            apply(&mut reader, &mut model, action).unwrap();
            if matches!(action, Action::Flush) {
                reader.flush(b"reader").unwrap();
                // The writer goes on, merging away what the reader has open.
                let insert = Action::Insert { first: 100, count: 400, location: 1 << 40 };
                apply(&mut writer, &mut writer_model, &insert).unwrap();
                writer.flush(b"writer").unwrap();
            }
        }
        prop_assert_eq!(differs(&reader, &model), None);
        prop_assert_eq!(differs(&writer, &writer_model), None);
        drop((reader, writer));
        let mut index = open(directory.path());
        prop_assert_eq!(index.take_note(), b"writer");
        prop_assert_eq!(differs(&index, &writer_model), None);
        let names = files(directory.path());
        prop_assert!(names.iter().all(|name| !name.starts_with("private")), "{:?}", names);
    }
}

fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs a long history and crashes before each change to the directory in turn. The next opening
/// finds what was committed before, or what was being committed.
#[test]
fn a_crash_before_any_change() {
    let history: Vec<Action> = (0u16..14)
        .flat_map(|n| {
            let insert = Action::Insert { first: n * 37, count: 350, location: n.into() };
            let second = if n == 9 { Action::Retain { modulus: 3 } } else { insert.clone() };
            [insert, second, Action::Flush]
        })
        .collect();
    let mut crashes = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let mut index = open(directory.path());
        let (mut model, mut committed) = (Model::new(), Model::new());
        let mut note = 0u8;
        faults::allow(Some(crashes));
        let crashed = history.iter().any(|action| {
            if matches!(action, Action::Flush) {
                let flushed = index.flush(&[note + 1]);
                if flushed.is_ok() {
                    committed.clone_from(&model);
                    note += 1;
                }
                flushed.is_err()
            } else {
                apply(&mut index, &mut model, action).is_err()
            }
        });
        drop(index);
        faults::allow(None);

        let mut index = open(directory.path());
        let found = index.take_note();
        let expected = if found == [note + 1] { &model } else { &committed };
        assert!(found == [note + 1] || found == [note] || note == 0);
        assert_eq!(differs(&index, expected), None, "crash before change {crashes}");
        let segments = index.stats().segments;
        let left = files(directory.path());
        assert!(left.len() <= segments + 2, "crash before change {crashes} left {left:?}");
        // And it goes on from there.
        let mut model = expected.clone();
        apply(&mut index, &mut model, &history[0]).unwrap();
        index.flush(b"after").unwrap();
        assert_eq!(differs(&open(directory.path()), &model), None);
        if !crashed {
            assert!(crashes > 100, "the history changes too little: {crashes}");
            break;
        }
        crashes += 1;
    }
}

/// A failed flush loses nothing: the handle still holds all, and the next flush commits it.
#[test]
fn a_failed_flush_can_be_repeated() {
    for steps in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let mut index = open(directory.path());
        let mut model = Model::new();
        let insert = Action::Insert { first: 0, count: 200, location: 5 };
        apply(&mut index, &mut model, &insert).unwrap();
        faults::allow(Some(steps));
        let failed = index.flush(b"first").is_err();
        faults::allow(None);
        assert_eq!(failed, steps < 5, "{steps}");
        assert_eq!(differs(&index, &model), None);
        index.flush(b"second").unwrap();
        drop(index);
        let mut index = open(directory.path());
        assert_eq!(index.take_note(), b"second");
        assert_eq!(differs(&index, &model), None);
    }
}
