//! Extended attributes that cannot be read are missed each night until they are read.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use strongroom_base::{Silent, Timestamp};
use strongroom_engine::{BackupOptions, BackupOutcome};
use strongroom_source::{
    Correction, Corrections, FileSystem, ForeignRoot, SourceOptions, ZeroSize,
};
use strongroom_testkit::{Listener, noise, skip};

use crate::read_back::read_back;
use crate::restore::{into, run_restore};
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
    assert_eq!(named, all, "to the ordinary one nothing was listed of it");
}

/// A night of a tree whose times never change, so that only what is asked for is found. Returns the
/// notes of a file, a folder and a pipe, each as user and as root, and how many chunks were read.
fn timeless_night(world: &World, force: bool) -> (Vec<[String; 2]>, u64) {
    let time = Some(Timestamp(315_532_800_000_000_000));
    let fixed = Correction { mtime: time, ctime: time, ..Correction::default() };
    let by_path =
        ["/file", "/folder", "/pipe", "/"].map(|it| (it.as_bytes().to_vec(), fixed.clone()));
    let root = ForeignRoot {
        path: world.tree(),
        corrections: Corrections::new(HashMap::from(by_path)),
        ..ForeignRoot::default()
    };
    let disk = FileSystem { times_prove: true, zero_size: ZeroSize::Empty };
    let source =
        SourceOptions { root: Some(root), file_system: Some(disk), ..SourceOptions::default() };
    let options =
        BackupOptions { paths: vec!["/".into()], source, force, ..options(&world.tree()) };
    let outcome = run(&world.open(), &options, &Silent).unwrap();
    let kept = read_back(&world.open(), outcome.snapshot.id, Path::new("/")).unwrap();
    let notes = |name: &str| {
        let xattrs = &kept.nodes[name.as_bytes()].xattrs;
        ["user.note", "trusted.note"].map(|it| {
            let note = xattrs.get(it.as_bytes()).cloned().unwrap_or_default();
            String::from_utf8(note).unwrap()
        })
    };
    (["file", "folder", "pipe"].map(notes).to_vec(), outcome.written.data_chunks)
}

/// The same by a thread to which attributes of root are not listed.
fn ordinary_timeless_night(world: &World, force: bool) -> (Vec<[String; 2]>, u64) {
    let by_thread = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        timeless_night(world, force)
    };
    std::thread::scope(|scope| scope.spawn(by_thread).join().unwrap())
}

#[test]
fn attributes_of_root_that_the_parent_did_not_see_are_asked_for() {
    let world = World::bare(211);
    world.write("file", &noise(3, 50_000));
    fs::create_dir(world.tree().join("folder")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, world.tree().join("pipe"), 0o600.into()).unwrap();
    let give = |kind: &str, note: &str| {
        let name = format!("{kind}.note");
        let files =
            if kind == "user" { &["file", "folder"][..] } else { &["file", "folder", "pipe"] };
        let given = files.iter().map(|file| {
            setxattr(world.tree().join(file), &name, note.as_bytes(), XattrFlags::empty())
        });
        given.collect::<Result<(), _>>().is_ok()
    };
    if !give("trusted", "a") {
        return skip("only root can give these attributes");
    }
    assert!(give("user", "a"));
    let all = |user: &str, trusted: &str| {
        [user, user, ""].map(|user| [user.to_owned(), trusted.to_owned()]).to_vec()
    };
    let (notes, chunks) = ordinary_timeless_night(&world, false);
    assert_eq!(notes, all("a", ""));
    assert!(chunks > 0);
    assert!(give("user", "b"));
    assert_eq!(ordinary_timeless_night(&world, false), (all("a", ""), 0), "nothing is asked for");
    assert_eq!(timeless_night(&world, false), (all("b", "a"), 0), "no file is read");
    assert!(give("user", "c"));
    assert_eq!(timeless_night(&world, false), (all("b", "a"), 0), "nothing is asked for");
    assert_eq!(ordinary_timeless_night(&world, false), (all("b", "a"), 0), "it is taken over");
    assert_eq!(timeless_night(&world, false), (all("c", "a"), 0));
    assert!(give("user", "d") && give("trusted", "d"));
    assert_eq!(timeless_night(&world, true).0, all("d", "d"), "of directories too");
}

/// A snapshot says nothing of attributes that were not listed to its writer.
#[test]
fn attributes_of_root_that_the_backup_could_not_see_stay() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "file").unwrap();
    let world = World::bare(215);
    let own = || setxattr(tree.join("file"), "user.note", b"new", XattrFlags::empty()).unwrap();
    let of_root =
        |name: &str| setxattr(tree.join(name), "trusted.note", b"kept", XattrFlags::empty());
    let (seen, _) = night(&world, &tree);
    if ["file", ""].map(of_root).iter().any(Result::is_err) {
        return skip("only root can give these attributes");
    }
    let (unseen, _) = ordinary_night(&world, &tree);
    for (night, stays) in [(unseen, true), (seen, false)] {
        own();
        let into = into(&tree, &tree);
        let outcome = run_restore(&world.open(), night.snapshot.id, &into).unwrap();
        assert_eq!(outcome.problems, 0);
        let has = |name: &str, attribute: &str| {
            getxattr(tree.join(name), attribute, &mut [0; 99][..]).is_ok()
        };
        assert_eq!(has("file", "trusted.note"), stays, "of the file");
        assert_eq!(has("", "trusted.note"), stays, "of the directory");
        assert!(!has("file", "user.note"), "of users it knows all");
    }
}
