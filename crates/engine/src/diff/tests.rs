//! Differences, found and reported.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_arena::ArenaName;
use strongroom_base::{Cancel, Severity, Silent};
use strongroom_catalog::{Metadata, Snapshot};
use strongroom_repository::RepositoryError;
use strongroom_testkit::tree::{mutate, set_mtime, sparse};
use strongroom_testkit::{Image, Kind, Listener};

use super::{
    Change, ChangeKind, DiffOptions, DiffOutcome, DiffSide, Modified, NodeKind, diff,
    have_same_times,
};
use crate::testing::{TREE, World};
use crate::{EngineError, RestoreOptions, RestorePlace, restore};

const BY_TIMES: DiffOptions = DiffOptions { content: false };
const BY_CONTENT: DiffOptions = DiffOptions { content: true };

fn differences(
    world: &World,
    before: DiffSide<'_>,
    after: DiffSide<'_>,
    options: DiffOptions,
) -> (Vec<Change>, DiffOutcome) {
    let mut changes = Vec::new();
    let mut visit = |change: &Change| {
        changes.push(change.clone());
        Ok(())
    };
    let (listener, cancel) = (Listener::new(), Cancel::new());
    let outcome =
        diff(&world.repository, before, after, options, &mut visit, &listener, &cancel).unwrap();
    assert_eq!(listener.problems(), []);
    (changes, outcome)
}

fn of<'d>(snapshot: &'d Snapshot, path: &'d [u8]) -> DiffSide<'d> {
    DiffSide::Snapshot { snapshot, path }
}

/// `+ path`, `- path`, `T path`, `M path content,mode,…`: one line each.
fn lines(changes: &[Change]) -> Vec<String> {
    let line = |change: &Change| {
        let path = String::from_utf8_lossy(&change.path).into_owned();
        match change.kind {
            ChangeKind::Added => format!("+ {path}"),
            ChangeKind::Removed => format!("- {path}"),
            ChangeKind::Type => format!("T {path}"),
            ChangeKind::Modified(modified) => {
                let Modified { content, mode, owner, mtime, xattrs } = modified;
                let all = [
                    (content, "content"),
                    (mode, "mode"),
                    (owner, "owner"),
                    (mtime, "mtime"),
                    (xattrs, "xattrs"),
                ];
                let what: Vec<&str> =
                    all.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
                format!("M {path} {}", what.join(","))
            }
        }
    };
    changes.iter().map(line).collect()
}

/// Leaves out directories of which only the time differs, because an entry was added or removed.
fn changed_lines(changes: &[Change]) -> Vec<String> {
    let is_passing = |change: &Change| {
        let is_directory =
            change.after.as_ref().is_some_and(|node| node.kind == NodeKind::Directory);
        let only_time = Modified { mtime: true, ..Modified::default() };
        is_directory && change.kind == ChangeKind::Modified(only_time)
    };
    let rest: Vec<Change> = changes.iter().filter(|change| !is_passing(change)).cloned().collect();
    lines(&rest)
}

/// A tree, changed in every way; both are snapshots.
fn changed_world() -> (World, Snapshot, Snapshot) {
    let world = World::new();
    for name in ["same", "content", "touched", "mode", "gone", "dir/one", "dir/two", "turns/x"] {
        world.write(name, name.as_bytes());
    }
    world.write("same-dir/inside", b"x");
    std::os::unix::fs::symlink("one", world.tree().join("link")).unwrap();
    let before = world.backup();
    world.write("content", b"CONTENT");
    world.write("new", b"12345");
    world.write("dir/new/deep", b"1");
    set_mtime(&world.tree().join("touched"), 1_000_000_000, 7);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    fs::set_permissions(world.tree().join("mode"), mode).unwrap();
    fs::remove_file(world.tree().join("gone")).unwrap();
    fs::remove_file(world.tree().join("link")).unwrap();
    std::os::unix::fs::symlink("two", world.tree().join("link")).unwrap();
    fs::remove_dir_all(world.tree().join("turns")).unwrap();
    fs::write(world.tree().join("turns"), b"a file").unwrap();
    let after = world.backup();
    (world, before, after)
}

const CHANGES: [&str; 10] = [
    "M content content,mtime",
    "+ dir/new",
    "+ dir/new/deep",
    "- gone",
    "M link content,mtime",
    "M mode mode",
    "+ new",
    "M touched mtime",
    "T turns",
    "- turns/x",
];

#[test]
fn a_change_is_seen_by_the_times_on_another_number_of_a_device() {
    let [old, time] = [Metadata { inode: 7, ..Metadata::default() }, Metadata::default()];
    let later = strongroom_base::Timestamp(time.ctime.0 + 1);
    let changed = Metadata { ctime: later, ..old.clone() };
    for device in [old.device, old.device + 1] {
        assert!(have_same_times(&old, &Metadata { device, ..old.clone() }));
        assert!(!have_same_times(&old, &Metadata { device, ..changed.clone() }));
        assert!(have_same_times(&old, &Metadata { device, inode: 8, ..changed.clone() }), "a copy");
    }
}

#[test]
fn two_snapshots() {
    let (world, before, after) = changed_world();
    let path = world.path();
    let (changes, outcome) = differences(&world, of(&before, &path), of(&after, &path), BY_TIMES);
    assert_eq!(changed_lines(&changes), CHANGES);
    assert_eq!((outcome.added, outcome.removed, outcome.changed), (3, 2, 3));
    assert_eq!(outcome.bytes_added, 7 + 1 + 5 + 6);
    assert_eq!(outcome.bytes_removed, 7 + 4 + 7);
    let new = changes.iter().find(|change| change.path == b"new").unwrap();
    assert_eq!(new.bytes_delta(), 5);
    let gone = changes.iter().find(|change| change.path == b"gone").unwrap();
    assert_eq!(gone.bytes_delta(), -4);
    // From the tops down: the same, with the whole path in front.
    let (changes, _) = differences(&world, of(&before, b""), of(&after, b"/"), BY_TIMES);
    let tree = String::from_utf8(path).unwrap();
    let whole = lines(&changes);
    assert!(whole.contains(&format!("- {}/gone", &tree[1..])), "{whole:?}");
}

#[test]
fn a_snapshot_and_a_directory() {
    let (world, before, after) = changed_world();
    let (path, tree) = (world.path(), world.tree());
    let (changes, _) =
        differences(&world, of(&before, &path), DiffSide::Directory(&tree), BY_TIMES);
    assert_eq!(changed_lines(&changes), CHANGES);
    for options in [BY_TIMES, BY_CONTENT] {
        let (changes, outcome) =
            differences(&world, of(&after, &path), DiffSide::Directory(&tree), options);
        assert_eq!(lines(&changes), [""; 0]);
        assert!(outcome.is_same());
    }
    // In the other direction, what was added is removed.
    let (changes, outcome) =
        differences(&world, DiffSide::Directory(&tree), of(&before, &path), BY_TIMES);
    assert_eq!((outcome.added, outcome.removed, outcome.changed), (2, 3, 3));
    assert!(lines(&changes).contains(&"+ gone".to_owned()));
}

#[test]
fn a_file_is_read_where_there_is_a_doubt() {
    let world = World::new();
    world.write("file", b"one");
    world.write("copy", b"one");
    sparse(&world.tree().join("sparse"), &[(1 << 20, b"middle")], 2 << 20);
    for name in ["file", "copy", "sparse"] {
        set_mtime(&world.tree().join(name), 1_000_000_000, 0);
    }
    let snapshot = world.backup();
    // In place, with its old time: the inode's own time shows the change.
    world.write("file", b"two");
    // By renaming, with its old time: only the content shows the change.
    world.write("copy~", b"two");
    fs::rename(world.tree().join("copy~"), world.tree().join("copy")).unwrap();
    // Zeros that were written out are the same zeros.
    let zeros = fs::read(world.tree().join("sparse")).unwrap();
    world.write("sparse", &zeros);
    for name in ["file", "copy", "sparse"] {
        set_mtime(&world.tree().join(name), 1_000_000_000, 0);
    }
    let (path, tree) = (world.path(), world.tree());
    for (options, expected) in
        [(BY_TIMES, &["M file content"][..]), (BY_CONTENT, &["M copy content", "M file content"])]
    {
        let directory = DiffSide::Directory(&tree);
        let (changes, _) = differences(&world, of(&snapshot, &path), directory, options);
        assert_eq!(changed_lines(&changes), expected);
    }
    // Nor do two snapshots differ because of a hole.
    let after = world.backup();
    let (changes, _) = differences(&world, of(&snapshot, &path), of(&after, &path), BY_TIMES);
    assert_eq!(changed_lines(&changes), ["M copy content", "M file content"]);
}

#[test]
fn what_was_restored_is_no_different() {
    for seed in 1..4 {
        let world = World::new();
        world.grow(seed);
        let snapshot = world.backup();
        let target = world.folder.path().join("target");
        let options = RestoreOptions {
            filter: None,
            path: world.path(),
            place: RestorePlace::Into(target.clone()),
            target: Default::default(),
            kept: Vec::new(),
            dry_run: false,
            verify: false,
            workers: 2,
        };
        restore(&world.repository, &snapshot, &options, &Silent, &Cancel::new()).unwrap();
        let path = world.path();
        let (changes, outcome) =
            differences(&world, of(&snapshot, &path), DiffSide::Directory(&target), BY_CONTENT);
        assert_eq!(lines(&changes), [""; 0]);
        assert_eq!((outcome.problems, outcome.damaged), (0, 0));
    }
}

/// Every difference between two images, in the form of [`lines`].
fn expected(before: &Image, after: &Image) -> Vec<String> {
    let mut paths: Vec<&Vec<u8>> = before.nodes.keys().chain(after.nodes.keys()).collect();
    // Depth first, names sorted bytewise: a slash comes before every other byte.
    let key =
        |path: &[u8]| path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
    paths.sort_by_key(|path| key(path));
    paths.dedup();
    let bytes = |kind: &Kind| match kind {
        Kind::File(content) => Some(content.clone()),
        _ => None,
    };
    let line = |path: &&Vec<u8>| {
        let text = String::from_utf8_lossy(path);
        match (before.nodes.get(*path), after.nodes.get(*path)) {
            (None, _) => Some(format!("+ {text}")),
            (_, None) => Some(format!("- {text}")),
            (Some(one), Some(two))
                if std::mem::discriminant(&one.kind) != std::mem::discriminant(&two.kind) =>
            {
                Some(format!("T {text}"))
            }
            (Some(one), Some(two)) => {
                let content = bytes(&one.kind) != bytes(&two.kind) || one.kind != two.kind;
                let all = [
                    (content, "content"),
                    (one.mode != two.mode, "mode"),
                    (one.owner != two.owner, "owner"),
                    (one.mtime != two.mtime, "mtime"),
                    (one.xattrs != two.xattrs, "xattrs"),
                ];
                let what: Vec<&str> =
                    all.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
                (!what.is_empty()).then(|| format!("M {text} {}", what.join(",")))
            }
        }
    };
    paths.iter().filter_map(line).collect()
}

#[test]
fn random_trees_and_random_edits() {
    let world = World::new();
    world.grow(21);
    for seed in 0..8 {
        let (before, image) = (world.backup(), Image::of(&world.tree()));
        mutate(&world.tree(), seed, TREE);
        let expected = expected(&image, &Image::of(&world.tree()));
        let (path, tree) = (world.path(), world.tree());
        let directory = DiffSide::Directory(&tree);
        let (changes, _) = differences(&world, of(&before, &path), directory, BY_TIMES);
        assert_eq!(lines(&changes), expected, "seed {seed}, directory");
        let after = world.backup();
        let (changes, _) = differences(&world, of(&before, &path), of(&after, &path), BY_TIMES);
        assert_eq!(lines(&changes), expected, "seed {seed}, snapshots");
    }
}

#[test]
fn one_file_against_another() {
    let world = World::new();
    world.write("file", b"one");
    let snapshot = world.backup();
    world.write("file", b"other");
    let path = [world.path(), b"/file".to_vec()].concat();
    let file = world.tree().join("file");
    let (changes, _) =
        differences(&world, of(&snapshot, &path), DiffSide::Directory(&file), BY_TIMES);
    assert_eq!(lines(&changes), ["M  content,mtime"]);
    let tree = world.tree();
    let (changes, _) =
        differences(&world, of(&snapshot, &path), DiffSide::Directory(&tree), BY_TIMES);
    assert_eq!(lines(&changes), ["T ", "+ file"]);
}

#[test]
fn equal_subtrees_are_not_read() {
    let world = World::new();
    for number in 0..200 {
        world.write(&format!("big/{number}"), b"x");
    }
    let first = world.backup();
    world.write("file", b"one");
    let before = world.backup();
    world.write("file", b"two");
    let after = world.backup();
    // The tree of `big` is only where the first snapshot put it.
    world.remove(&ArenaName::first(first.root.refs[0].location.arena).object());
    let path = world.path();
    let (changes, _) = differences(&world, of(&before, &path), of(&after, &path), BY_TIMES);
    assert_eq!(changed_lines(&changes), ["M file content,mtime"]);
    let big = [path, b"/big".to_vec()].concat();
    let reader =
        strongroom_repository::ChunkReader::of_domain(&world.repository, "", Default::default())
            .unwrap();
    let found = strongroom_repository::find_path(&after, &big, &reader).unwrap();
    let cancel = Cancel::new();
    let mut walk = strongroom_repository::SnapshotWalk::new(&found, &reader, &cancel);
    assert!(matches!(walk.next(), Ok(Some(strongroom_repository::SnapshotEvent::Enter(_)))));
    assert!(
        matches!(walk.next(), Ok(Some(strongroom_repository::SnapshotEvent::Lost { .. }))),
        "it would have been noticed"
    );
}

#[test]
fn what_is_lost_or_cannot_be_read_is_told_and_not_called_removed() {
    let world = World::new();
    for number in 0..40 {
        world.write(&format!("d{number:02}/file"), b"x");
    }
    let before = world.backup();
    fs::remove_dir_all(world.tree().join("d07")).unwrap();
    let after = world.backup();
    // Metadata of the second snapshot alone: its root's arena.
    world.remove(&ArenaName::first(after.root.refs[0].location.arena).object());
    let path = world.path();
    let mut changes = 0;
    let listener = Listener::new();
    let mut visit = |_: &Change| {
        changes += 1;
        Ok(())
    };
    let cancel = Cancel::new();
    let (one, two) = (of(&before, b""), of(&after, b""));
    let outcome =
        diff(&world.repository, one, two, BY_TIMES, &mut visit, &listener, &cancel).unwrap();
    assert_eq!((changes, outcome.damaged), (0, 1));
    assert_eq!(listener.problems()[0].severity, Severity::Damage);
    // A path in it cannot be found.
    let (one, two) = (of(&before, &path), of(&after, &path));
    let found = diff(&world.repository, one, two, BY_TIMES, &mut |_| Ok(()), &Silent, &cancel);
    assert!(found.unwrap_err().is_damage());
}

#[test]
fn two_directories_are_for_other_programs() {
    let world = World::new();
    let side = DiffSide::Directory(Path::new(std::ffi::OsStr::from_bytes(b"/")));
    let refused =
        diff(&world.repository, side, side, BY_TIMES, &mut |_| Ok(()), &Silent, &Cancel::new());
    assert!(matches!(refused, Err(EngineError::Repository(RepositoryError::Argument(_)))));
}
