//! Several handles on one directory, several threads on one handle.

use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_index::{Index, Value};

use crate::{assert_known, assert_unknown, insert, key};

#[test]
fn the_first_is_the_writer() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = Index::open(directory.path()).unwrap();
    let mut second = Index::open(directory.path()).unwrap();
    assert!(first.is_writer() && !second.is_writer() && !Index::in_memory().is_writer());

    insert(&mut first, 0, 100);
    insert(&mut second, 100, 200);
    second.flush(b"second").unwrap();
    first.flush(b"first").unwrap();
    assert_unknown(&first, 100, 200);
    assert_unknown(&second, 0, 100);

    // The lock goes with the handle; what the reader added was its own.
    drop(first);
    let mut third = Index::open(directory.path()).unwrap();
    assert!(third.is_writer());
    assert_eq!(third.take_note(), b"first");
    assert!(third.take_note().is_empty(), "it is given once");
    assert_known(&third, 0, 100);
    assert_unknown(&third, 100, 200);
    assert_known(&second, 100, 200);
}

/// What a reader has open stays readable while the writer merges, drops and clears.
#[test]
fn a_reader_is_not_disturbed() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Index::open(directory.path()).unwrap();
    insert(&mut writer, 0, 500);
    writer.flush(b"").unwrap();
    let mut reader = Index::open(directory.path()).unwrap();
    for n in 1..9 {
        insert(&mut writer, n * 500, n * 500 + 500);
        writer.flush(b"").unwrap();
    }
    assert_known(&reader, 0, 500);
    writer.retain(|location| location.0 > 1500).unwrap();
    writer.flush(b"").unwrap();
    assert_known(&reader, 0, 500);
    assert_unknown(&writer, 0, 500);
    assert_known(&writer, 500, 4500);
    writer.clear().unwrap();
    assert_known(&reader, 0, 500);

    // A reader may drop and clear too, for itself.
    writer.insert(&key(7), Value(7)).unwrap();
    writer.flush(b"seven").unwrap();
    reader.retain(|location| location.0 > 300).unwrap();
    assert_unknown(&reader, 0, 100);
    assert_known(&reader, 100, 500);
    reader.clear().unwrap();
    assert_unknown(&reader, 0, 500);
    let mut reset = Index::reset(directory.path()).unwrap();
    reset.flush(b"nothing").unwrap();
    assert_eq!(writer.lookup(&key(7)).unwrap(), Some(Value(7)));
    drop(writer);
    assert_eq!(Index::open(directory.path()).unwrap().take_note(), b"seven");
}

/// Readers open the directory again and again while a writer commits and merges: each sees a state
/// that was committed, whole.
#[test]
fn readers_open_while_a_writer_commits() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Index::open(directory.path()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut opened = 0;
                    while !done.load(Ordering::Relaxed) {
                        let mut index = Index::open(directory.path()).unwrap();
                        let note = index.take_note();
                        let note = note.first_chunk().map(|note| u64::from_le_bytes(*note));
                        let end = note.unwrap_or(0);
                        assert_known(&index, end.saturating_sub(50), end);
                        assert_unknown(&index, end, end + 20);
                        opened += 1;
                    }
                    opened
                })
            })
            .collect();
        for n in 1..=300 {
            insert(&mut writer, n * 20 - 20, n * 20);
            writer.flush(&(n * 20).to_le_bytes()).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

#[test]
fn many_threads_look_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut index = Index::open(directory.path()).unwrap();
    insert(&mut index, 0, 3_000);
    index.flush(b"").unwrap();
    insert(&mut index, 3_000, 4_000);
    let index = &index;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                assert_known(index, 0, 4_000);
                assert_unknown(index, 4_000, 8_000);
            });
        }
    });
    assert_eq!(index.stats().lookups, 32_000);
}
