//! Backends: the conformance suite for each, and what local files must also do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod striped;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use strongroom_backend::{
    Backend, BackendError, LocalBackend, MemoryBackend, ObjectName, Operation, Room, Withheld,
    read_all,
};
use strongroom_testkit::conformance::check;
use tempfile::TempDir;

fn name(file: &str) -> ObjectName {
    ObjectName::new("arenas", file)
}

/// A place with one object.
fn place() -> (TempDir, LocalBackend) {
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(folder.path()).unwrap();
    backend.create(&name("one"), b"1").unwrap();
    (folder, backend)
}

/// The path of a temporary file of this machine's process with this number.
fn temporary(folder: &Path, process: u32, number: u32) -> PathBuf {
    let uname = rustix::system::uname();
    let machine = uname.nodename().to_str().unwrap().replace(|c: char| !c.is_alphanumeric(), "");
    folder.join(format!("arenas/.tmp-{machine}-{process}-{number}"))
}

/// One `sudo` must not lock the owner of a repository out of it: what root makes is private to its owner.
#[test]
fn kept_p_w1_what_root_makes_belongs_to_the_owner_of_the_place() {
    const OWNER: u32 = 65534;
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    assert!(is_root, "this test needs root");
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(OWNER), Some(OWNER)).unwrap();
    let other = tempfile::tempdir().unwrap();
    // Made by a program that did not give it, and a way out of the place.
    std::fs::create_dir(folder.path().join("remarks")).unwrap();
    std::os::unix::fs::symlink(other.path(), folder.path().join("vouchers")).unwrap();
    let backend = LocalBackend::open(folder.path()).unwrap();
    for folder in ["arenas", "remarks", "vouchers"] {
        backend.create(&ObjectName::new(folder, "one"), &vec![1; 2 << 20]).unwrap();
        backend.replace(&ObjectName::new(folder, "two"), b"2").unwrap();
    }
    backend.create(&ObjectName::parse("config").unwrap(), b"3").unwrap();
    backend.save();
    let owner = |path: PathBuf| {
        let metadata = std::fs::symlink_metadata(path).unwrap();
        (metadata.uid(), metadata.gid())
    };
    for name in ["arenas", "arenas/one", "arenas/two", "remarks", "remarks/one", "config", ".room"]
    {
        assert_eq!(owner(folder.path().join(name)), (OWNER, OWNER), "{name}");
    }
    for name in ["", "one", "two"] {
        assert_eq!(owner(other.path().join(name)), (0, 0), "outside: {name}");
    }
    // A place of root's own, in the hands of several through its group.
    chown(folder.path(), Some(0), Some(OWNER)).unwrap();
    let backend = LocalBackend::open(folder.path()).unwrap();
    backend.create(&ObjectName::new("snapshots", "one"), b"4").unwrap();
    assert_eq!(owner(folder.path().join("snapshots/one")), (0, OWNER));
}

#[test]
fn memory() {
    check(&MemoryBackend::new());
}

#[test]
fn local() {
    let folder = tempfile::tempdir().unwrap();
    check(&LocalBackend::create(&folder.path().join("a/b")).unwrap());
}

/// A file system that keeps its files in the kernel's cache alone.
#[test]
fn local_in_memory() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    check(&LocalBackend::create(folder.path()).unwrap());
}

#[test]
fn sweep_removes_only_files_of_dead_writers() {
    let (folder, backend) = place();
    let dead = temporary(folder.path(), 1, 1);
    let alive = temporary(folder.path(), 2, 2);
    let foreign = folder.path().join("arenas/.tmp-elsewhere-1-1");
    std::fs::write(&dead, b"half").unwrap();
    std::fs::write(&foreign, b"half").unwrap();
    let lock = std::fs::File::create(&alive).unwrap();
    lock.lock().unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    assert_eq!(backend.sweep().unwrap(), 1);
    assert!(!dead.exists() && alive.exists() && foreign.exists());
    drop(lock);
    assert_eq!(backend.sweep().unwrap(), 1);
}

/// A lock that was not obtained is no proof that the writer is dead: on NFS a file must be open for
/// writing to be locked, and some file systems have no locks at all.
#[test]
fn sweep_leaves_what_it_cannot_lock() {
    let (folder, backend) = place();
    for (number, mode) in [(1, 0o400), (2, 0o000)] {
        let path = temporary(folder.path(), 1, number);
        std::fs::write(&path, b"half").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let linked = temporary(folder.path(), 1, 3);
    std::os::unix::fs::symlink("one", &linked).unwrap();
    let swept = backend.sweep().unwrap();
    assert!(linked.is_symlink() && folder.path().join("arenas/one").exists());
    // Root can open files that no other user may write to.
    assert_eq!(swept, if rustix::process::geteuid().is_root() { 2 } else { 0 });
}

#[test]
fn a_place_that_does_not_exist_is_named() {
    let error = LocalBackend::open("/nonexistent/room".as_ref()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/room"), "{error}");
}

#[test]
fn a_place_knows_its_folder_under_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"r\xff\xfe"));
    let backend = LocalBackend::create(&path).unwrap();
    assert_eq!(backend.folders(), std::slice::from_ref(&path));
}

/// Another process may have our number; its files are not ours to write to.
#[test]
fn temporary_files_of_others_are_left_alone() {
    let (folder, backend) = place();
    let theirs = |number| temporary(folder.path(), std::process::id(), number);
    (0..5).for_each(|number| std::fs::write(theirs(number), b"theirs").unwrap());
    backend.replace(&name("one"), b"2").unwrap();
    (0..5).for_each(|number| assert_eq!(std::fs::read(theirs(number)).unwrap(), b"theirs"));
    assert!(!theirs(5).exists());
    assert_eq!(read_all(&backend, &name("one")).unwrap(), b"2");
}

/// Opening a FIFO waits for its writer, and a device or directory is no object either. Each is
/// listed, and reading it fails at once.
#[test]
fn what_is_no_file_is_refused_at_once() {
    let (folder, backend) = place();
    let arenas = folder.path().join("arenas");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, arenas.join("fifo"), mode).unwrap();
    std::fs::create_dir(arenas.join("directory")).unwrap();
    let _socket = UnixListener::bind(arenas.join("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", arenas.join("device")).unwrap();
    std::os::unix::fs::symlink("loop", arenas.join("loop")).unwrap();
    let listed: Vec<_> = backend.list("arenas").unwrap();
    let listed: Vec<_> = listed.iter().map(|info| (info.name.file(), info.bytes)).collect();
    let planted = ["device", "directory", "fifo", "loop", "one", "socket"];
    assert_eq!(listed, planted.map(|file| (file, u64::from(file == "one"))));
    for file in ["device", "directory", "fifo", "loop", "socket"] {
        for error in [
            backend.read(&name(file), 0, 10).unwrap_err(),
            backend.size(&name(file)).err().unwrap_or_else(|| panic!("{file} has a size")),
        ] {
            assert!(error.is_unreadable(), "{file}: {error:?}");
            assert!(error.to_string().contains(file), "{error}");
        }
        let created = backend.create(&name(file), b"bytes");
        assert!(matches!(created, Err(BackendError::AlreadyExists { .. })), "{created:?}");
    }
}

#[test]
fn an_unreadable_object_is_distinguished_from_a_missing_one() {
    let one = name("one");
    let of = |errno: Errno| BackendError::io(Operation::Read, &one, errno.into());
    use rustix::io::Errno;
    for errno in [Errno::IO, Errno::ISDIR, Errno::UCLEAN, Errno::NXIO] {
        assert!(of(errno).is_unreadable() && of(errno).is_damage(), "{errno:?}");
        assert_eq!(of(errno).withheld(), None, "{errno:?}");
    }
    for errno in [Errno::ACCESS, Errno::PERM] {
        assert!(!of(errno).is_unreadable() && !of(errno).is_damage(), "{errno:?}");
        assert_eq!(of(errno).withheld(), Some(Withheld::Forbidden), "{errno:?}");
    }
    for errno in [Errno::NOTCONN, Errno::STALE, Errno::TIMEDOUT, Errno::NOMEM, Errno::MFILE] {
        assert!(!of(errno).is_unreadable(), "{errno:?}");
    }
    assert!(of(Errno::NOENT).is_not_found());
}

/// A full folder still says that it has what it has: what is decided can be carried out, which makes
/// room.
#[test]
fn what_a_full_folder_has_needs_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(folder.path()).status().unwrap().success()
    };
    let is_mounted = run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs"]);
    assert!(is_mounted, "this test needs root, and may mount");
    let answers = {
        let backend = LocalBackend::open(folder.path()).unwrap();
        let (old, new) = (ObjectName::new("arenas", "old"), ObjectName::new("arenas", "new"));
        backend.create(&old, &[1; 5000]).unwrap();
        while backend.replace(&ObjectName::new("arenas", "rest"), &[2; 4096]).is_ok() {
            let rest = backend.list("arenas").unwrap().len();
            let next = ObjectName::new("arenas", format!("rest-{rest}"));
            if backend.create(&next, &[2; 4096]).is_err() {
                break;
            }
        }
        [
            backend.create(&new, &[1; 5000]),
            backend.create(&old, &[1; 5000]),
            backend.create(&old, &[3; 5000]),
        ]
    };
    assert!(run("umount", &[]));
    assert!(matches!(answers[0], Err(BackendError::NoSpace { may_exist: false, .. })));
    assert!(answers[1].is_ok(), "{:?}", answers[1]);
    assert!(answers[2].is_err());
}
