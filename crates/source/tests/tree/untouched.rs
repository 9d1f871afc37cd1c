//! What a walk does not change, and what it does not even open.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_source::{SourceOptions, TreeSource, WalkEvent};

use crate::kinds::set_mtime;

const PLACE: &str = "STRONGROOM_TEST_OF_OPENS";

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("directory")).unwrap();
    for name in ["directory/regular-1", "regular-2"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    symlink("regular-2", folder.path().join("symbolic")).unwrap();
    folder
}

#[test]
fn access_times_stay() {
    let folder = tree();
    let root = folder.path().canonicalize().unwrap();
    let names = ["", "directory", "directory/regular-1", "regular-2", "symbolic"];
    // Even with lazy access times, one as old as the content is renewed.
    names.iter().for_each(|name| set_mtime(&root.join(name), 1_000_000, 0));
    let source = TreeSource::open(std::slice::from_ref(&root), &SourceOptions::default()).unwrap();
    for event in source {
        if let WalkEvent::Leaf { entry, .. } = event
            && let Ok(file) = entry.open_file()
        {
            file.read_at(0, &mut [0; 100]).unwrap();
        }
    }
    // Reading the target of a link renews the link's access time; no call can avoid that.
    for name in &names[..4] {
        assert_eq!(fs::symlink_metadata(root.join(name)).unwrap().atime(), 1_000_000, "{name}");
    }
}

#[test]
fn regular_files_are_not_opened_by_the_walk() {
    let folder = tree();
    let log = folder.path().join("log");
    let run = Command::new("strace")
        .args(["-f", "-s", "4096", "-e", "trace=%file,%desc", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "untouched::walks", "--ignored", "--nocapture"])
        .env(PLACE, folder.path())
        .output();
    let Ok(run) = run else {
        strongroom_testkit::skip("strace is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && text.contains("1 passed"), "{text}");
    let log = fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = log.lines().filter(|line| line.contains("regular-")).collect();
    let of = |call: &str| calls.iter().filter(|line| line.contains(call)).count();
    assert_eq!(of("openat("), 0, "{log}");
    assert_eq!(of("statx("), 2, "{log}");
    assert_eq!(of("llistxattr("), 2, "{log}");
    // The directories' listing calls and the link contain two more names.
    assert_eq!(calls.len(), 5, "{log}");
}

#[test]
#[ignore = "run by regular_files_are_not_opened_by_the_walk, under strace"]
fn walks() {
    let Some(root) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let mut source =
        TreeSource::open(std::slice::from_ref(&root), &SourceOptions::default()).unwrap();
    let mut leaves = 0;
    while let Some(event) = source.next() {
        if let WalkEvent::Leaf { entry, .. } = event
            && entry.path() != root.join("log")
        {
            let read = entry.xattrs();
            assert!(read.xattrs.is_empty() && read.problem.is_none(), "{read:?}");
            leaves += 1;
        }
        assert!(source.path().starts_with("/"));
    }
    assert_eq!(leaves, 3);
    assert!(Path::new(&root).exists());
}
