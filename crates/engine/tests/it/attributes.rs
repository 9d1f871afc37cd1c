//! Extended attributes that cannot be read are missed each night until they are read.

use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use strongroom_engine::{BackupOptions, BackupOutcome};
use strongroom_source::{FileSystem, SourceOptions, ZeroSize};
use strongroom_testkit::{Listener, noise, skip};

use crate::read_back::read_back;
use crate::world::{World, options, run};

/// More names than the kernel lists at a time, each of its longest. They are listed to root alone.
const NAMES: usize = 300;

fn give_too_many(path: &Path) -> bool {
    let name = |number| format!("trusted.{number:0>240}");
    (0..NAMES).all(|number| setxattr(path, name(number), b"", XattrFlags::empty()).is_ok())
}

/// More than an entry of a tree may have.
fn give_too_large(path: &Path) {
    for number in 0..34 {
        let name = format!("user.{number}");
        setxattr(path, name, &[7; 64_000], XattrFlags::empty()).unwrap();
    }
}

/// A night, and what it reported. Times prove something, as on a disk.
fn night(world: &World, tree: &Path) -> (BackupOutcome, Vec<String>) {
    let listener = Listener::new();
    let disk = FileSystem { times_prove: true, zero_size: ZeroSize::Empty };
    let source = SourceOptions { file_system: Some(disk), ..SourceOptions::default() };
    let options = BackupOptions { source, ..options(tree) };
    let outcome = run(&world.open(), &options, &listener).unwrap();
    let name = |path: &Path| path.strip_prefix(tree).unwrap().display().to_string();
    let problems = listener.problems().into_iter();
    let mut named: Vec<String> = problems.map(|it| name(&it.path.unwrap())).collect();
    named.sort_unstable();
    assert_eq!(outcome.snapshot.stats.problems, named.len() as u64);
    (outcome, named)
}

/// A backup by a thread for which the names of root's attributes are not listed.
fn ordinary_night(world: &World, tree: &Path) -> (BackupOutcome, Vec<String>) {
    let by_thread = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        night(world, tree)
    };
    std::thread::scope(|scope| scope.spawn(by_thread).join().unwrap())
}

#[test]
fn what_could_not_be_read_is_asked_for_again_and_reported_again() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("folder")).unwrap();
    fs::write(tree.join("file"), noise(1, 100_000)).unwrap();
    fs::hard_link(tree.join("file"), tree.join("name")).unwrap();
    fs::write(tree.join("large"), noise(2, 20_000)).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), 0o600.into()).unwrap();
    for name in ["file", "folder"] {
        setxattr(tree.join(name), "user.note", b"kept", XattrFlags::empty()).unwrap();
    }
    if !["file", "folder", "pipe"].iter().all(|name| give_too_many(&tree.join(name))) {
        return skip("only root can give these attributes");
    }
    give_too_large(&tree.join("large"));
    let world = World::bare(210);
    let all = ["file", "folder", "large", "name", "pipe"];
    let (first, named) = night(&world, &tree);
    assert_eq!(named, ["file", "folder", "large", "pipe"], "a file with two names is read once");
    for _ in 0..2 {
        let (next, named) = night(&world, &tree);
        assert_eq!(named, all);
        assert_eq!((next.files_unchanged, next.written.data_chunks), (3, 0), "no file is read");
        let kept = read_back(&world.open(), next.snapshot.id, &tree).unwrap();
        let before = read_back(&world.open(), first.snapshot.id, &tree).unwrap();
        before.assert_same(&kept, "the next night");
        assert_eq!(kept.nodes[&b"name"[..]].linked_to.as_deref(), Some(&b"file"[..]));
    }
    let (read, named) = ordinary_night(&world, &tree);
    assert_eq!(named, ["large"], "it is still too large");
    let kept = read_back(&world.open(), read.snapshot.id, &tree).unwrap();
    for name in ["file", "folder", "name"] {
        assert_eq!(kept.nodes[name.as_bytes()].xattrs[&b"user.note"[..]], b"kept", "{name}");
    }
    assert_eq!(kept.nodes[&b"name"[..]].linked_to.as_deref(), Some(&b"file"[..]));
    let (_, named) = night(&world, &tree);
    assert_eq!(named, ["large"], "what is known is not asked for");
}
