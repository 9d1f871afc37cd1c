//! Files on which another process holds a lease, as file servers do for their clients.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use strongroom_base::{Cancel, Stopwatch};
use strongroom_source::{EntryHandle, SourceError, SourceOptions, TreeSource, WalkEvent};

/// The signal by which the kernel asks for a lease.
const SET_SIGNAL: libc::c_int = 10;

#[expect(unsafe_code, reason = "only the kernel's own call takes a lease")]
fn fcntl(fd: RawFd, command: libc::c_int, argument: libc::c_int) -> bool {
    // SAFETY: the descriptor is open, and these commands take a number.
    unsafe { libc::fcntl(fd, command, argument) == 0 }
}

/// A file with a lease, which is asked for by a signal that does nothing here.
fn leased(folder: &tempfile::TempDir) -> Option<(File, EntryHandle)> {
    let path = folder.path().join("file");
    fs::write(&path, "content").unwrap();
    let options = SourceOptions::default();
    let entry =
        TreeSource::open(std::slice::from_ref(&path), &options).unwrap().find_map(|event| {
            match event {
                WalkEvent::Leaf { entry, .. } => Some(entry),
                _ => None,
            }
        });
    let file = File::options().write(true).open(&path).unwrap();
    let fd = file.as_raw_fd();
    if !fcntl(fd, SET_SIGNAL, libc::SIGURG) || !fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) {
        strongroom_testkit::skip("there are no leases here");
        return None;
    }
    Some((file, entry.unwrap()))
}

#[test]
fn a_lease_that_is_given_up_is_waited_for() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some((holder, entry)) = leased(&folder) else { return };
    let error = entry.open_file().unwrap_err();
    assert!(matches!(error, SourceError::Leased { .. }), "{error}");
    let giver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        assert!(fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK));
    });
    let mut file = entry.open_file_when_free(&Cancel::new()).unwrap();
    let mut content = [0; 7];
    assert_eq!(file.read(&mut content).unwrap(), 7);
    assert_eq!(&content, b"content");
    giver.join().unwrap();
}

#[test]
fn a_lease_is_not_waited_for_once_it_was_cancelled() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some((_holder, entry)) = leased(&folder) else { return };
    let (cancel, watch) = (Cancel::new(), Stopwatch::start());
    let stop = cancel.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.cancel();
    });
    let error = entry.open_file_when_free(&cancel).unwrap_err();
    assert!(matches!(error, SourceError::Leased { .. }), "{error}");
    assert!(watch.elapsed() < Duration::from_secs(20));
    stopper.join().unwrap();
}
