//! All kinds of entries, with all metadata that they can have, there and back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use strongroom_testkit::skipped;

use crate::compare::{assert_same, seen, xattrs};
use crate::copy::{copied, copy};

/// True for root. A test that only root can run fails under `./test`.
#[track_caller]
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    !skipped((!is_root).then_some("only root can make these entries"))
}

pub fn set_mtime(path: &Path, tv_sec: i64, tv_nsec: i64) {
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// There and back; a second time nothing is written, and no `ctime` moves.
#[track_caller]
fn check(from: &Path) {
    let to = tempfile::tempdir().unwrap();
    let there = copied(from, to.path());
    let first = copy(from, to.path());
    assert_eq!(first.problems, Vec::<String>::new());
    assert_same(from, &there);
    let ctimes = |path: &Path| {
        let found = Command::new("find").arg(path).args(["-printf", "%C@ %p\\n"]).output().unwrap();
        String::from_utf8_lossy(&found.stdout).into_owned()
    };
    let before = ctimes(&there);
    let second = copy(from, to.path());
    assert_eq!(second.problems, Vec::<String>::new());
    assert_eq!(second.written, 0, "written again");
    assert_eq!(ctimes(&there), before);
}

#[test]
fn every_kind() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("file"), "content").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::create_dir(root.join("directory")).unwrap();
    fs::create_dir(root.join("directory/empty")).unwrap();
    symlink("file", root.join("link")).unwrap();
    symlink("nowhere/at/all", root.join("dangling")).unwrap();
    symlink(OsStr::from_bytes(&[b'x'; 4095]), root.join("long link")).unwrap();
    for (name, kind, number) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("block", FileType::BlockDevice, rustix::fs::makedev(259, 1_048_575)),
    ] {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::RUSR, number).unwrap();
    }
    for (place, entry) in fs::read_dir(root).unwrap().enumerate() {
        let path = entry.unwrap().path();
        lchown(&path, Some(1000 + place as u32), Some(0)).unwrap();
        set_mtime(&path, 1_000_000_000 + place as i64, 123_456_789);
    }
    set_mtime(root, -5, 999_999_999);
    check(root);
}

#[test]
fn modes_and_owners() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (place, mode) in
        [0o000, 0o400, 0o644, 0o755, 0o4755, 0o2755, 0o6711, 0o1777, 0o7777].into_iter().enumerate()
    {
        for owner in [0, 65534, 4_000_000_000] {
            let name = root.join(format!("{mode:o}-{owner}-{place}"));
            fs::write(name.with_extension("file"), "x").unwrap();
            fs::create_dir(name.with_extension("dir")).unwrap();
            for path in [name.with_extension("file"), name.with_extension("dir")] {
                chown(&path, Some(owner), Some(owner)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
    check(root);
}

#[test]
fn names_of_any_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let every: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let long = [b'n'; 255];
    let names: [&[u8]; 8] =
        [&every, &long, b"\xff\xfe", b" ", b"-rf", b"new\nline", b"...", "ünïcødé".as_bytes()];
    for name in names {
        let directory = folder.path().join(OsStr::from_bytes(name));
        fs::create_dir(&directory).unwrap();
        for inner in names {
            fs::write(directory.join(OsStr::from_bytes(inner)), inner).unwrap();
        }
    }
    check(folder.path());
}

#[test]
fn hard_links() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("a"), "linked").unwrap();
    fs::hard_link(root.join("a"), root.join("d/b")).unwrap();
    fs::hard_link(root.join("a"), root.join("z")).unwrap();
    symlink("x", root.join("link")).unwrap();
    fs::hard_link(root.join("link"), root.join("link too")).unwrap();
    check(root);
    let to = tempfile::tempdir().unwrap();
    copy(root, to.path());
    let there = copied(root, to.path());
    let inode = |name: &str| fs::symlink_metadata(there.join(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("d/b"));
    assert_eq!(inode("a"), inode("z"));
    assert_eq!(inode("link"), inode("link too"));
}

#[test]
fn extended_attributes() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["file", "program", "shared"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::create_dir(root.join("directory")).unwrap();
    symlink("file", root.join("link")).unwrap();
    rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    set_xattr(&root.join("file"), "user.comment", b"any \0 bytes \xff");
    set_xattr(&root.join("file"), "user.empty", b"");
    set_xattr(&root.join("file"), "user.a", &[7; 3000]);
    set_xattr(&root.join("directory"), "user.of-a-directory", b"1");
    for name in ["link", "fifo", "file", "directory"] {
        set_xattr(&root.join(name), "trusted.kept", name.as_bytes());
    }
    run("setcap", &["cap_net_raw+ep"], &root.join("program"));
    chown(root.join("program"), Some(1000), Some(1000)).unwrap();
    run("setcap", &["cap_net_raw+ep"], &root.join("program"));
    run("setfacl", &["-m", "u:1000:rw,g:50:r,m::rw"], &root.join("shared"));
    run("setfacl", &["-m", "u:1001:rwx,d:u:1002:rx,d:o::-"], &root.join("directory"));
    fs::write(root.join("directory/inherits"), "").unwrap();
    fs::create_dir(root.join("directory/inherits too")).unwrap();
    assert!(xattrs(&root.join("program")).contains_key(b"security.capability".as_slice()));
    assert!(xattrs(&root.join("directory")).len() == 4);
    check(root);
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

#[test]
fn what_is_too_many_is_taken_off() {
    if !is_root() {
        return;
    }
    let (folder, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = folder.path();
    for name in ["file", "keeps"] {
        fs::write(from.join(name), "same").unwrap();
        set_mtime(&from.join(name), 1, 0);
    }
    fs::create_dir(from.join("directory")).unwrap();
    set_xattr(&from.join("keeps"), "user.kept", b"1");
    copy(from, to.path());
    let there = copied(from, to.path());
    for name in ["file", "keeps", "directory"] {
        set_xattr(&there.join(name), "user.extra", b"1");
        run("setfacl", &["-m", "u:1000:rwx"], &there.join(name));
    }
    set_xattr(&there.join("keeps"), "user.kept", b"2");
    let again = copy(from, to.path());
    assert_eq!((again.written, again.problems.len()), (3, 0));
    assert_same(from, &there);
}

#[test]
fn sparse_files_stay_sparse() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let make = |name: &str, size: u64, extents: &[(u64, usize)]| {
        let file = File::create(root.join(name)).unwrap();
        file.set_len(size).unwrap();
        for &(offset, bytes) in extents {
            file.write_all_at(&vec![b'x'; bytes], offset).unwrap();
        }
    };
    const MIB: u64 = 1 << 20;
    make("all hole", 64 * MIB, &[]);
    make("head", 16 * MIB, &[(0, 5000)]);
    make("middle", 16 * MIB, &[(5 * MIB + 17, 10), (9 * MIB, 200_000)]);
    make("tail", 16 * MIB + 3, &[(16 * MIB, 3)]);
    make("huge", 1 << 41, &[(1 << 40, 1)]);
    make("dense", MIB, &[(0, 1 << 20)]);
    fs::remove_file(root.join("huge")).unwrap_or_default();
    check(root);
    let to = tempfile::tempdir().unwrap();
    let there = copied(root, to.path());
    // If a target is full where it must be empty, it gets its holes too.
    fs::create_dir_all(&there).unwrap();
    for name in ["all hole", "middle"] {
        fs::write(there.join(name), vec![b'y'; 20 << 20]).unwrap();
    }
    copy(root, to.path());
    assert_same(root, &there);
    for name in seen(root).keys().filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(&name[1..]);
        let blocks = |root: &Path| fs::metadata(root.join(name)).unwrap().blocks();
        assert_eq!(blocks(root), blocks(&there), "{name:?}");
    }
}

#[test]
fn a_huge_hole_costs_nothing() {
    let (folder, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let huge = folder.path().join("huge");
    let file = File::create(&huge).unwrap();
    file.set_len(1 << 43).unwrap();
    file.write_all_at(b"x", 1 << 40).unwrap();
    copy(folder.path(), to.path());
    let there = fs::metadata(copied(&huge, to.path())).unwrap();
    assert_eq!((there.len(), there.blocks()), (1 << 43, fs::metadata(&huge).unwrap().blocks()));
}
