//! What every backend must do: a suite that an implementation anywhere can call.

#![expect(clippy::unwrap_used, reason = "a check that fails says where")]

use std::sync::atomic::{AtomicUsize, Ordering};

use strongroom_backend::{Backend, BackendError, ObjectName, read_all};

/// Checks a backend whose place is empty. Panics at the first promise that it breaks.
///
/// # Panics
///
/// If the backend breaks a promise of [`Backend`], or its place fails.
pub fn check(backend: &dyn Backend) {
    reads_what_was_written(backend);
    create_is_exclusive(backend);
    creating_the_same_again_succeeds(backend);
    replace_is_whole(backend);
    lists_one_folder(backend);
    removes(backend);
    one_of_many_creators_wins(backend);
    keeps_objects_of_any_length(backend);
}

fn reads_what_was_written(backend: &dyn Backend) {
    let one = name("one");
    assert!(backend.read(&one, 0, 1).is_err_and(|error| error.is_not_found()));
    assert!(backend.size(&one).is_err_and(|error| error.is_not_found()));
    backend.create(&one, b"0123456789").unwrap();
    assert_eq!(backend.size(&one).unwrap(), 10);
    assert_eq!(read_all(backend, &one).unwrap(), b"0123456789");
    assert_eq!(backend.read(&one, 3, 4).unwrap(), b"3456");
    assert_eq!(backend.read(&one, 8, 4).unwrap(), b"89");
    assert_eq!(backend.read(&one, 10, 4).unwrap(), b"");
    assert_eq!(backend.read(&one, u64::MAX, usize::MAX).unwrap(), b"");
    let empty = ObjectName::top("empty");
    backend.create(&empty, b"").unwrap();
    assert_eq!(read_all(backend, &empty).unwrap(), b"");
}

fn create_is_exclusive(backend: &dyn Backend) {
    let again = backend.create(&name("one"), b"other");
    assert!(matches!(again, Err(BackendError::AlreadyExists { .. })), "{again:?}");
    assert_eq!(read_all(backend, &name("one")).unwrap(), b"0123456789");
}

/// An answer may be lost on the way, and the call repeated.
fn creating_the_same_again_succeeds(backend: &dyn Backend) {
    backend.create(&name("one"), b"0123456789").unwrap();
    for other in [&b"012345678"[..], b"01234567890", b"0123456780", b""] {
        let again = backend.create(&name("one"), other);
        assert!(matches!(again, Err(BackendError::AlreadyExists { .. })), "{again:?}");
    }
    assert_eq!(read_all(backend, &name("one")).unwrap(), b"0123456789");
}

fn replace_is_whole(backend: &dyn Backend) {
    backend.replace(&name("one"), b"short").unwrap();
    assert_eq!(read_all(backend, &name("one")).unwrap(), b"short");
    backend.replace(&name("two"), b"new").unwrap();
    assert_eq!(read_all(backend, &name("two")).unwrap(), b"new");
}

fn lists_one_folder(backend: &dyn Backend) {
    let names = |folder| -> Vec<String> {
        backend.list(folder).unwrap().iter().map(|info| info.name.to_string()).collect()
    };
    assert_eq!(names("arenas"), ["arenas/one", "arenas/two"]);
    assert_eq!(names(""), ["empty"]);
    assert_eq!(names("nothing"), [""; 0]);
    assert_eq!(backend.list("arenas").unwrap()[0].bytes, 5);
}

fn removes(backend: &dyn Backend) {
    backend.remove(&name("two")).unwrap();
    assert!(backend.remove(&name("two")).is_err_and(|error| error.is_not_found()));
    backend.create(&name("two"), b"two").unwrap();
    for _ in 0..2 {
        backend.discard(&name("two")).unwrap();
        assert!(backend.size(&name("two")).is_err_and(|error| error.is_not_found()));
    }
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    assert_eq!(backend.sweep().unwrap(), 0);
}

fn one_of_many_creators_wins(backend: &dyn Backend) {
    let winners = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for creator in 0..8_u8 {
            let winners = &winners;
            scope.spawn(move || match backend.create(&name("race"), &[creator; 1000]) {
                Ok(()) => drop(winners.fetch_add(1, Ordering::Relaxed)),
                Err(BackendError::AlreadyExists { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
    let bytes = read_all(backend, &name("race")).unwrap();
    assert!(bytes.len() == 1000 && bytes.iter().all(|byte| *byte == bytes[0]));
}

/// Large objects may take another path to the medium, which treats their end apart.
fn keeps_objects_of_any_length(backend: &dyn Backend) {
    const MIB: usize = 1 << 20;
    for length in [MIB - 1, MIB, MIB + 1, MIB + 4095, 2 * MIB + 4096, 3 * MIB + 5000] {
        let bytes: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
        let large = name("large");
        backend.create(&large, &bytes).unwrap();
        assert!(read_all(backend, &large).unwrap() == bytes, "{length} bytes, created");
        let turned: Vec<u8> = bytes.into_iter().rev().collect();
        backend.replace(&large, &turned).unwrap();
        assert!(read_all(backend, &large).unwrap() == turned, "{length} bytes, replaced");
        backend.remove(&large).unwrap();
    }
}

fn name(file: &str) -> ObjectName {
    ObjectName::new("arenas", file)
}
