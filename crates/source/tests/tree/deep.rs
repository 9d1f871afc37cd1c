//! Trees deeper than any path that the kernel takes, with few descriptors.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use strongroom_source::{DirectoryId, SourceOptions, Target, TargetOptions, TreeSource, WalkEvent};

use crate::copy::copy_from;

fn open(directory: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> OwnedFd {
    rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn touch(directory: &OwnedFd, name: &str) {
    let flags = OFlags::WRONLY | OFlags::CREATE;
    rustix::fs::openat(directory, name, flags, Mode::RUSR).unwrap();
}

/// `levels` directories, one in the other, with a file before and one after each.
fn make(root: &Path, levels: usize, name: &str) {
    let mut fd = open(CWD, root);
    for _ in 0..levels {
        touch(&fd, "a");
        touch(&fd, "z");
        rustix::fs::mkdirat(&fd, name, Mode::RWXU).unwrap();
        fd = open(&fd, name);
    }
    touch(&fd, "bottom");
}

fn walk(root: &Path) -> Vec<String> {
    let mut source = TreeSource::open(&[root.to_owned()], &SourceOptions::default()).unwrap();
    let outside = root.components().count();
    let mut events = Vec::new();
    while let Some(event) = source.next() {
        let below = source.path().components().skip(outside).count();
        match event {
            WalkEvent::EnterDirectory { entry, .. } => {
                events.push(format!("{below}/{}", entry.name().len()));
            }
            WalkEvent::LeaveDirectory => events.push(format!("{below}^")),
            WalkEvent::Leaf { entry, .. } => {
                let name = entry.name();
                entry.open_file().unwrap();
                let read = entry.xattrs();
                assert!(read.xattrs.is_empty() && read.problem.is_none(), "{read:?}");
                events.push(format!("{below} {}", String::from_utf8_lossy(name)));
            }
            other => panic!("{other:?}"),
        }
    }
    events.split_off(outside)
}

/// A folder in which a directory takes no disk block, if there is one.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
fn three_thousand_levels_there_and_back() {
    let limit = Rlimit {
        current: Some(400),
        maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
    };
    // The limit is that of the whole process; other tests need few.
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    for (levels, name) in [(3000, "level".to_owned()), (60, "n".repeat(255))] {
        let (folder, to) = (in_memory(), in_memory());
        let root = folder.path().canonicalize().unwrap();
        make(&root, levels, &name);
        let events = walk(&root);
        assert_eq!(events.iter().filter(|word| word.ends_with('z')).count(), levels);
        assert_eq!(
            events.iter().filter(|word| word.ends_with('^')).count(),
            levels + root.components().count()
        );
        let mut source =
            TreeSource::open(std::slice::from_ref(&root), &SourceOptions::default()).unwrap();
        let outcome = copy_from(&mut source, to.path(), TargetOptions::default());
        assert_eq!(outcome.problems, Vec::<String>::new());
        let there = crate::copy::copied(&root, to.path());
        assert_eq!(
            walk(&there)[..events.len() - root.components().count() + 1],
            events[..events.len() - root.components().count() + 1]
        );
        for tree in [folder.path(), to.path()] {
            let target = Target::open(tree, TargetOptions::default()).unwrap();
            for listed in target.list(DirectoryId::ROOT).unwrap() {
                target.remove(DirectoryId::ROOT, &listed).unwrap();
            }
            assert_eq!(fs::read_dir(tree).unwrap().count(), 0);
        }
    }
}

#[test]
fn a_directory_moved_from_under_the_walk() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    make(&root, 200, "d");
    let mut source =
        TreeSource::open(std::slice::from_ref(&root), &SourceOptions::default()).unwrap();
    while !source.path().ends_with("bottom") {
        source.next().unwrap();
    }
    // The 50th level is moved away, with all below it; those above it are there as before.
    let path = |levels: usize| root.join(vec!["d"; levels].join("/"));
    fs::create_dir(root.join("elsewhere")).unwrap();
    fs::rename(path(50), root.join("elsewhere/d")).unwrap();
    let (mut problems, mut behind) = (Vec::new(), 0);
    for event in source {
        match event {
            WalkEvent::Problem { error, .. } => problems.push(error.to_string()),
            WalkEvent::Leaf { entry, .. } => behind += usize::from(entry.name() == b"z"),
            _ => {}
        }
    }
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(behind, 200);
    let target = Target::open(&root, TargetOptions::default()).unwrap();
    for listed in target.list(DirectoryId::ROOT).unwrap() {
        target.remove(DirectoryId::ROOT, &listed).unwrap();
    }
}
