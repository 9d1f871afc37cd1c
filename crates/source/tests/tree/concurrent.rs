//! Trees that change while they are read.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use strongroom_source::{EntryHandle, SourceError, SourceOptions, TreeSource, WalkEvent};

fn open(root: &Path) -> TreeSource {
    TreeSource::open(&[root.to_owned()], &SourceOptions::default()).unwrap()
}

/// Walks on until a leaf.
fn walk_to(source: &mut TreeSource, path: &Path) -> EntryHandle {
    loop {
        if let Some(WalkEvent::Leaf { entry, .. }) = source.next()
            && entry.path() == path
        {
            return entry;
        }
    }
}

#[test]
fn what_takes_the_place_of_a_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let file = root.join("file");
    type Change = fn(&Path);
    let changes: [(Change, &str); 5] = [
        (|path| rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap(), "pipe"),
        (|path| symlink("/etc/passwd", path).unwrap(), "symbolic link"),
        (|path| fs::create_dir(path).unwrap(), "directory"),
        (|path| drop(UnixListener::bind(path).unwrap()), "cannot be opened"),
        (|_| {}, "vanished"),
    ];
    for (change, word) in changes {
        fs::write(&file, "content").unwrap();
        let mut source = open(&root);
        let entry = walk_to(&mut source, &file);
        fs::remove_file(&file).unwrap();
        change(&file);
        let error = entry.open_file().unwrap_err();
        assert!(
            matches!(error, SourceError::Changed { .. } | SourceError::Vanished { .. }),
            "{error}"
        );
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.path(), Some(file.as_path()));
        assert!(matches!(source.next(), Some(WalkEvent::LeaveDirectory)));
        let _ = fs::remove_dir(&file);
        let _ = fs::remove_file(&file);
    }
}

#[test]
fn a_handle_outlives_the_walk() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/file"), "content").unwrap();
    let mut source = open(&root);
    let entry = walk_to(&mut source, &root.join("d/file"));
    while source.next().is_some() {}
    assert!(source.next().is_none());
    drop(source);
    fs::rename(root.join("d"), root.join("e")).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        let mut file = entry.open_file().unwrap();
        let bytes = file.read(&mut buffer[..3]).unwrap();
        let more = file.read(&mut buffer[bytes..]).unwrap();
        assert_eq!(file.read(&mut [0]).unwrap(), 0);
        buffer[..bytes + more].to_vec()
    });
    assert_eq!(reader.join().unwrap(), b"content");
}

#[test]
fn files_that_change_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let path = root.join("file");
    let opened = || {
        fs::write(&path, vec![b'x'; 10_000]).unwrap();
        let mut source = open(&root);
        walk_to(&mut source, &path).open_file().unwrap()
    };
    let mut buffer = vec![0; 20_000];

    let file = opened();
    assert_eq!(file.read_at(0, &mut buffer).unwrap(), 10_000);
    assert_eq!(file.extents().map(|extent| extent.unwrap().bytes).sum::<u64>(), 10_000);
    assert_eq!(file.change().unwrap(), None);

    let file = opened();
    File::options().write(true).open(&path).unwrap().set_len(4_000).unwrap();
    assert_eq!(file.read_at(3_000, &mut buffer).unwrap(), 1_000);
    assert_eq!(file.read_at(9_000, &mut buffer).unwrap(), 0);
    let change = file.change().unwrap().unwrap();
    assert_eq!((change.size_before, change.size), (10_000, 4_000));
    assert_eq!(file.metadata().size, 10_000);

    let file = opened();
    fs::write(&path, vec![b'y'; 12_000]).unwrap();
    assert_eq!(file.read_at(0, &mut buffer).unwrap(), 12_000);
    assert_eq!(file.change().unwrap().unwrap().size, 12_000);
}

#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/file"), "").unwrap();
    symlink(outside.path(), root.join("swap")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (one, other) = (root.join("d"), root.join("swap"));
                rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        // Enough meetings, but with an end on a machine that is too slow or too fast for them.
        let (mut met, mut led_out, begun) = (0, false, Instant::now());
        while met < 20 && begun.elapsed() < Duration::from_secs(5) {
            let source = open(&root);
            for event in source {
                match event {
                    WalkEvent::Leaf { entry, .. } => led_out |= entry.name() == b"secret",
                    WalkEvent::Problem { .. } => met += 1,
                    _ => {}
                }
            }
        }
        // Before any assertion, or the other thread would never end.
        done.store(true, Ordering::Relaxed);
        println!("{met} walks met the change");
        assert!(!led_out);
    });
}

#[test]
fn names_that_vanish_by_the_hundred() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for place in 0..500 {
        fs::write(root.join(format!("{place:03}")), "").unwrap();
    }
    let mut source = open(&root);
    walk_to(&mut source, &root.join("099"));
    for place in 0..400 {
        fs::remove_file(root.join(format!("{place:03}"))).unwrap();
    }
    let mut vanished: Vec<PathBuf> = Vec::new();
    for event in source.by_ref() {
        if let WalkEvent::Problem { path, error: SourceError::Vanished { .. } } = event {
            vanished.push(path);
        }
    }
    assert_eq!(vanished.len(), 300);
    assert_eq!(vanished[0], root.join("100"));
    assert_eq!(source.counts().leaves, 200);
}

/// The kernel makes it up: it has no state of its own, and none of it is read.
#[test]
fn what_the_kernel_makes_up_does_not_change() {
    if crate::kinds::is_root() {
        let path = Path::new("/sys/kernel/uevent_seqnum");
        let file = walk_to(&mut open(path), path).open_file().unwrap();
        let past = std::time::UNIX_EPOCH + Duration::from_secs(1);
        File::open(path).unwrap().set_modified(past).unwrap();
        assert_eq!((file.size(), file.change().unwrap()), (0, None));
    }
}
