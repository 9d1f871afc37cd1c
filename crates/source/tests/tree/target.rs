//! The target: what it replaces, what it refuses, and what it leaves alone.

use std::fs;
use std::io::IoSlice;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_base::Timestamp;
use strongroom_catalog::{DeviceNumber, Entry, EntryKind, Metadata, Recipe};
use strongroom_source::{
    Differences, DirectoryId, Existing, InodeId, Target, TargetError, TargetOptions,
};

use crate::kinds::is_root;

const TOP: DirectoryId = DirectoryId::ROOT;

fn metadata(mode: u16) -> Metadata {
    Metadata { mode, mtime: Timestamp(1), ..Metadata::default() }
}

fn open(root: &Path, delete: bool) -> Target {
    Target::open(root, TargetOptions { delete, ..TargetOptions::default() }).unwrap()
}

fn write(target: &Target, directory: DirectoryId, name: &[u8], text: &[u8]) {
    let file = target.open_file_for_write(directory, name, text.len() as u64).unwrap();
    file.write_at(0, text).unwrap();
    assert_eq!(target.finish_file(file, &metadata(0o644)).len(), 0);
}

#[test]
fn the_target_is_made_with_those_above_it() {
    let folder = tempfile::tempdir().unwrap();
    let target = open(&folder.path().join("a/b"), false);
    write(&target, TOP, b"file", b"text");
    target.sync().unwrap();
    assert_eq!(fs::read(folder.path().join("a/b/file")).unwrap(), b"text");
    let error = Target::open(&folder.path().join("a/b/file"), TargetOptions::default());
    assert!(matches!(error, Err(TargetError::Io { .. })));
}

#[test]
fn what_stands_in_the_way() {
    let makers: [fn(&Path); 4] = [
        |path| fs::write(path, "old").unwrap(),
        |path| symlink("nowhere", path).unwrap(),
        |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
        |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("inside"), "").unwrap();
        },
    ];
    for (place, make) in makers.iter().enumerate() {
        for delete in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            for name in ["file", "link", "fifo", "directory", "hard"] {
                make(&path(name));
            }
            fs::write(path("other"), "other").unwrap();
            let target = open(folder.path(), delete);
            let kind = |name: &str| fs::symlink_metadata(path(name)).unwrap().file_type();
            target.create_directory(TOP, b"directory").unwrap();
            assert!(kind("directory").is_dir());
            let metadata = metadata(0o600);
            let made = [
                target.open_file_for_write(TOP, b"file", 0).map(|_| ()),
                target.create_symlink(TOP, b"link", b"x", &metadata).map(|_| ()),
                target.create_special(TOP, b"fifo", &EntryKind::Fifo, &metadata).map(|_| ()),
                target.hard_link((TOP, b"other"), (TOP, b"hard")),
            ];
            if place == 3 && !delete {
                for result in made {
                    let error = result.unwrap_err();
                    assert!(matches!(error, TargetError::DirectoryInTheWay { .. }), "{error}");
                    assert!(error.path().join("inside").exists());
                }
                continue;
            }
            made.into_iter().for_each(|result| result.unwrap());
            assert!(kind("file").is_file());
            assert!(kind("link").is_symlink());
            assert!(kind("fifo").is_fifo());
            assert_eq!(fs::read(path("hard")).unwrap(), b"other");
        }
    }
}

#[test]
fn what_has_a_name_stays_if_what_replaces_it_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("directory")).unwrap();
    fs::write(path("file"), "theirs").unwrap();
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/file"), "theirs").unwrap();
    let target = open(folder.path(), true);
    for name in [&b"file"[..], b"full"] {
        for result in [
            target.create_symlink(TOP, name, &[b'x'; 5000], &metadata(0o600)).map(drop),
            target.hard_link((TOP, b"directory"), (TOP, name)),
            target.hard_link((TOP, b"nothing"), (TOP, name)),
        ] {
            assert!(matches!(result, Err(TargetError::Io { .. })), "{result:?}");
            assert_eq!(fs::read(path("file")).unwrap(), b"theirs");
            assert_eq!(fs::read(path("full/file")).unwrap(), b"theirs");
        }
    }
    assert!(matches!(target.existing(TOP, b"full"), Ok(Existing::Other)));
    assert_eq!(fs::read(path("full/file")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left over");
}

#[test]
fn links_inside_lead_nowhere() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("file"), "precious").unwrap();
    let target = open(folder.path(), true);
    let directory = target.create_directory(TOP, b"d").unwrap();
    write(&target, directory, b"file", b"mine");
    drop(target);
    fs::remove_dir_all(folder.path().join("d")).unwrap();
    symlink(outside.path(), folder.path().join("d")).unwrap();

    let target = open(folder.path(), true);
    let through = target.add_directory(TOP, b"d").unwrap();
    for result in [
        target.open_file_for_write(through, b"file", 0).map(|_| ()),
        target.create_symlink(through, b"file", b"x", &metadata(0)).map(|_| ()),
        target.remove(through, b"file").map(drop),
        target.create_directory(through, b"sub").map(|_| ()),
        target.apply_directory_metadata(through, &metadata(0)).map(|_| ()),
        target.list(through).map(|_| ()),
    ] {
        assert!(matches!(result, Err(TargetError::Io { .. })), "{result:?}");
    }
    // Removing the link, or what has taken its place, changes nothing where it leads.
    symlink(outside.path().join("file"), folder.path().join("file")).unwrap();
    write(&target, TOP, b"file", b"mine");
    target.create_directory(TOP, b"d").unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"precious");
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = open(folder.path(), true);
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"../x", b"/etc", b"nul\0", &[b'x'; 2000]] {
        for result in [
            target.open_file_for_write(TOP, name, 0).map(|_| ()),
            target.create_directory(TOP, name).map(|_| ()),
            target.add_directory(TOP, name).map(|_| ()),
            target.remove(TOP, name).map(drop),
            target.hard_link((TOP, b"x"), (TOP, name)),
        ] {
            assert!(matches!(result, Err(TargetError::BadName { .. })), "{name:?}: {result:?}");
        }
    }
}

#[test]
fn what_other_names_stand_for_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("theirs"), "theirs").unwrap();
    fs::hard_link(path("theirs"), path("file")).unwrap();
    let target = open(folder.path(), false);
    write(&target, TOP, b"file", b"mine");
    assert_eq!(fs::read(path("theirs")).unwrap(), b"theirs");
    assert_eq!(fs::read(path("file")).unwrap(), b"mine");
    // A hard link that is right stays; one that is wrong is made again.
    target.hard_link((TOP, b"file"), (TOP, b"theirs")).unwrap();
    let ctime = fs::metadata(path("file")).unwrap().ctime_nsec();
    target.hard_link((TOP, b"file"), (TOP, b"theirs")).unwrap();
    let stat = fs::metadata(path("theirs")).unwrap();
    assert_eq!((stat.nlink(), stat.ctime_nsec()), (2, ctime));
}

#[test]
fn a_standing_file_keeps_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, vec![b'x'; 200_000]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let before = fs::metadata(&path).unwrap();
    let target = open(folder.path(), false);
    let mode = || fs::metadata(&path).unwrap().mode() & 0o777;

    let file = target.open_file_for_write(TOP, b"file", 200_000).unwrap();
    assert!(!file.is_fresh());
    let mut buffer = [0; 10];
    assert_eq!(file.read_at(199_995, &mut buffer).unwrap(), 5);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.ino(), after.ctime_nsec()), (before.ino(), before.ctime_nsec()));
    // The new content may be a secret, so the mode changes first.
    file.write_at(100_000, b"secret").unwrap();
    assert_eq!(mode(), 0o600);
    file.punch_hole(0, 65_536).unwrap();
    assert_eq!(file.next_extent(0).unwrap().unwrap().offset, 65_536);
    assert_eq!(target.finish_file(file, &metadata(0o640)).len(), 0);
    assert_eq!(mode(), 0o640);
    let content = fs::read(&path).unwrap();
    assert_eq!(&content[99_999..100_007], b"xsecretx");
    assert!(content[..65_536].iter().all(|&byte| byte == 0));
    assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino());

    let file = target.open_file_for_write(TOP, b"file", 10).unwrap();
    assert_eq!(target.finish_file(file, &metadata(0o640)).len(), 0);
    assert_eq!(fs::read(&path).unwrap(), [0; 10]);
}

#[test]
fn a_file_is_as_long_as_it_was_said_to_become() {
    let folder = tempfile::tempdir().unwrap();
    let target = open(folder.path(), false);
    for (name, parts) in [("none", &[][..]), ("first", &[0]), ("last", &[7]), ("all", &[7, 0, 4])] {
        let file = target.open_file_for_write(TOP, name.as_bytes(), 10).unwrap();
        assert!(file.is_fresh());
        parts.iter().for_each(|offset| file.write_at(*offset, b"abc").unwrap());
        assert_eq!(target.finish_file(file, &metadata(0o600)).len(), 0);
        let mut wanted = [0; 10];
        parts.iter().for_each(|&at| wanted[at as usize..][..3].copy_from_slice(b"abc"));
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), wanted, "{name}");
        assert_eq!(fs::metadata(folder.path().join(name)).unwrap().mtime_nsec(), 1);
    }
}

/// Writes a file in parts that are large and small and begin anywhere, on three threads, and again
/// over existing content. Returns how many of the large parts' bytes waited for a flush, and how
/// large these parts were.
fn write_in_parts(root: &Path) -> (u64, u64) {
    let target = open(root, false);
    let content: Vec<u8> = (0..12_345_678_u32).map(|place| (place * 7 % 251) as u8).collect();
    let lengths = [3 << 20, 5, 1 << 20, 70_001, (1 << 20) + 4095, 4096, (2 << 20) + 1, usize::MAX];
    let mut parts = Vec::new();
    let mut rest = &content[..];
    for length in lengths {
        let (part, behind) = rest.split_at(length.min(rest.len()));
        parts.push(((content.len() - rest.len()) as u64, part));
        rest = behind;
    }
    let (waited, large) = (AtomicU64::new(0), AtomicU64::new(0));
    for fresh in [true, false] {
        let file = target.open_file_for_write(TOP, b"file", content.len() as u64).unwrap();
        assert_eq!(file.is_fresh(), fresh);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let of_thread = parts.iter().rev().skip(thread).step_by(3);
                let (file, waited, large) = (&file, &waited, &large);
                scope.spawn(move || {
                    for (offset, part) in of_thread {
                        let (first, second) = part.split_at(part.len() / 3);
                        let mut slices = [first, second].map(IoSlice::new);
                        let waits = file.write_parts_at(*offset, &mut slices).unwrap();
                        if part.len() < 1 << 20 {
                            assert_eq!(waits, part.len() as u64);
                        } else {
                            waited.fetch_add(waits, Ordering::Relaxed);
                            large.fetch_add(part.len() as u64, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(target.finish_file(file, &metadata(0o600)).len(), 0);
        assert!(fs::read(root.join("file")).unwrap() == content);
    }
    (waited.into_inner(), large.into_inner())
}

#[test]
fn what_is_large_goes_past_the_cache_where_that_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let (waited, large) = write_in_parts(folder.path());
    let file_system = rustix::fs::statfs(folder.path()).unwrap().f_type as u64;
    match file_system {
        // ext4 and XFS: unaligned bytes wait, at both ends of five parts, twice.
        0xef53 | 0x5846_5342 => assert!((1..20 * 4096).contains(&waited), "{waited} bytes wait"),
        _ => assert_eq!(waited, large),
    }
    // A file system in memory has no medium behind its cache.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (waited, large) = write_in_parts(folder.path());
    assert_eq!(waited, large);
}

#[test]
fn a_running_program_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sleep");
    fs::copy("/usr/bin/sleep", &program).unwrap();
    let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
    let target = open(folder.path(), false);
    let file = target.open_file_for_write(TOP, b"sleep", 3).unwrap();
    assert!(file.is_fresh());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn differences_are_told_one_by_one() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = open(folder.path(), false);
    let none = Differences::default();
    let entry = |name: &str, kind, metadata| Entry { name: name.into(), kind, metadata };
    let file = EntryKind::File { content: Recipe::default() };
    write(&target, TOP, b"file", b"text");
    let right = Metadata { size: 4, ..metadata(0o644) };
    type Change = fn(&mut Metadata);
    let changes: [(Change, Differences); 7] = [
        (|_| {}, none),
        (|it| it.size = 5, Differences { content: true, ..none }),
        (|it| it.mtime = Timestamp(2), Differences { mtime: true, ..none }),
        (|it| it.mode = 0o600, Differences { mode: true, ..none }),
        (|it| it.uid = 5, Differences { owner: true, ..none }),
        // If this machine knows the name by another number, the name counts.
        (|it| (it.uid, it.user) = (5, Some("root".into())), none),
        (
            |it| {
                it.xattrs =
                    vec![strongroom_catalog::Xattr { name: b"user.a".into(), value: vec![] }]
            },
            Differences { xattrs: true, ..none },
        ),
    ];
    for (change, expected) in changes {
        let mut wanted = right.clone();
        change(&mut wanted);
        let found = target.differences(TOP, &entry("file", file.clone(), wanted.clone())).unwrap();
        assert_eq!(found, expected, "{wanted:?}");
    }
    let numeric = TargetOptions { numeric_owner: true, ..TargetOptions::default() };
    let by_number = Metadata { uid: 5, user: Some("root".into()), ..right.clone() };
    let found = Target::open(folder.path(), numeric).unwrap();
    let found = found.differences(TOP, &entry("file", file.clone(), by_number)).unwrap();
    assert!(found.owner);

    let null = |minor| EntryKind::CharDevice(DeviceNumber { major: 1, minor });
    target.create_special(TOP, b"null", &null(3), &metadata(0o600)).unwrap();
    target.create_symlink(TOP, b"link", b"there", &metadata(0o777)).unwrap();
    let link = |text: &str| EntryKind::Symlink { target: text.into() };
    for (name, kind, expected) in [
        ("nothing", file.clone(), Differences { missing: true, ..none }),
        ("null", file, Differences { kind: true, ..none }),
        ("null", null(3), none),
        ("null", null(4), Differences { content: true, ..none }),
        ("link", link("there"), none),
        ("link", link("elsewhere"), Differences { content: true, ..none }),
    ] {
        let metadata = metadata(0o600);
        let found = target.differences(TOP, &entry(name, kind, metadata)).unwrap();
        assert_eq!(found, expected, "{name}");
        assert_eq!(found.may_touch_content(), expected != none);
    }
}

#[test]
fn many_directories_with_few_open() {
    let folder = tempfile::tempdir().unwrap();
    let target = open(folder.path(), false);
    let mut directories = Vec::new();
    for place in 0..40 {
        let above = target.create_directory(TOP, format!("{place}").as_bytes()).unwrap();
        for inner in 0..40 {
            let id = target.create_directory(above, format!("{inner}").as_bytes()).unwrap();
            directories.push((id, format!("{place}/{inner}")));
        }
    }
    std::thread::scope(|scope| {
        for part in directories.chunks(400) {
            let target = &target;
            scope.spawn(move || {
                for (id, path) in part.iter().rev().chain(part) {
                    write(target, *id, b"file", path.as_bytes());
                }
            });
        }
    });
    for (id, path) in &directories {
        assert_eq!(fs::read(folder.path().join(path).join("file")).unwrap(), path.as_bytes());
        assert_eq!(target.path_of(*id, b"file"), folder.path().join(path).join("file"));
        assert_eq!(target.list(*id).unwrap().len(), 1);
    }
    let held = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(held < 1000, "{held}");
}

#[test]
fn a_file_to_be_made_is_not_mixed_with_one_that_stands() {
    let folder = tempfile::tempdir().unwrap();
    let target = open(folder.path(), false);
    fs::write(folder.path().join("taken"), b"another user's").unwrap();
    let error = target.create_file(TOP, b"taken", 3).unwrap_err();
    assert!(matches!(error, TargetError::Taken { .. }), "{error}");
    assert!(error.to_string().contains("taken"), "{error}");
    assert_eq!(fs::read(folder.path().join("taken")).unwrap(), b"another user's");
    let file = target.create_file(TOP, b"free", 3).unwrap();
    file.write_at(0, b"new").unwrap();
    target.finish_file(file, &metadata(0o644));
    assert_eq!(fs::read(folder.path().join("free")).unwrap(), b"new");
}

/// A kept directory stays with all it holds, and so do its ancestors.
#[test]
fn a_directory_to_be_kept_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("above/kept");
    fs::create_dir_all(kept.join("sub")).unwrap();
    fs::write(kept.join("sub/file"), b"kept").unwrap();
    let id = InodeId::of_path(&kept).unwrap();
    let target = open(folder.path(), true).keeping(vec![id]);
    for (parent, name) in [(TOP, "above"), (TOP, "file")] {
        fs::write(folder.path().join("file"), b"surplus").unwrap();
        let removed = target.remove(parent, name.as_bytes());
        assert_eq!(matches!(removed, Err(TargetError::KeptInTheWay { .. })), name == "above");
    }
    // Nor if a file must take its place.
    let wanted = target.open_file_for_write(TOP, b"above", 1);
    assert!(matches!(wanted, Err(TargetError::KeptInTheWay { .. })));
    assert_eq!(fs::read(kept.join("sub/file")).unwrap(), b"kept");
    assert!(!folder.path().join("file").exists());
}
