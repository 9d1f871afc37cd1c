//! A tree with everything that a tree can have.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use strongroom_testkit::noise;

pub const HOLE_BYTES: u64 = 9 << 20;

/// Makes all kinds of files below a folder.
pub fn make_all(at: &Path) {
    make_files(at);
    make_specials(at);
    make_directories(at);
    make_attributes(at);
    make_times(at);
}

fn make_files(at: &Path) {
    fs::write(at.join("empty"), b"").unwrap();
    fs::write(at.join("small"), b"a few bytes\n").unwrap();
    fs::write(at.join("random"), noise(1, 5 << 20)).unwrap();
    fs::write(at.join("long"), noise(2, (20 << 20) + 12_345)).unwrap();
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(&noise(3, 100_000), HOLE_BYTES).unwrap();
    sparse.write_all_at(b"in between", HOLE_BYTES / 2).unwrap();
    sparse.set_len(HOLE_BYTES * 2).unwrap();
    File::create(at.join("hole")).unwrap().set_len(HOLE_BYTES).unwrap();
    let mut name = b"not \xff\xfe utf-8 \n ".to_vec();
    fs::write(at.join(OsStr::from_bytes(&name)), b"named").unwrap();
    name.extend([b'x'; 230]);
    fs::write(at.join(OsStr::from_bytes(&name)), b"long name").unwrap();
}

fn make_specials(at: &Path) {
    symlink("small", at.join("link")).unwrap();
    symlink("/no/where/at all", at.join("dangling")).unwrap();
    symlink(OsStr::from_bytes(b"../\xff"), at.join("strange link")).unwrap();
    fs::create_dir(at.join("links")).unwrap();
    fs::write(at.join("linked"), noise(4, 10_000)).unwrap();
    fs::hard_link(at.join("linked"), at.join("links/one")).unwrap();
    fs::hard_link(at.join("linked"), at.join("links/two")).unwrap();
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, at.join("fifo"), FileType::Fifo, mode, 0).unwrap();
    rustix::fs::mknodat(CWD, at.join("socket"), FileType::Socket, mode, 0).unwrap();
    if rustix::process::geteuid().is_root() {
        let device = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(CWD, at.join("null"), FileType::CharacterDevice, mode, device).unwrap();
        let device = rustix::fs::makedev(259, 70_000);
        rustix::fs::mknodat(CWD, at.join("disk"), FileType::BlockDevice, mode, device).unwrap();
    }
}

fn make_directories(at: &Path) {
    let deep = (0..60).fold(at.to_owned(), |path, level| path.join(format!("level {level}")));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), b"deep down").unwrap();
    fs::create_dir(at.join("nothing in it")).unwrap();
    let many = at.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..3000 {
        fs::write(many.join(format!("file {number:05}")), format!("{number}")).unwrap();
    }
}

fn make_attributes(at: &Path) {
    for (name, mode) in [("small", 0o4755), ("random", 0o600), ("empty", 0o000), ("links", 0o3711)]
    {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let flags = XattrFlags::empty();
    let put = |name: &str, attribute: &str, value: &[u8]| {
        if let Err(error) = rustix::fs::setxattr(at.join(name), attribute, value, flags) {
            println!("no {attribute} here: {error}");
        }
    };
    put("small", "user.comment", b"for \xff anybody");
    put("small", "user.empty", b"");
    put("random", "user.large", &[7; 1000]);
    put("links", "user.directory", b"yes");
    let acl = ["-m", "u:1234:rw,g:77:r"];
    let _ = Command::new("setfacl").args(acl).arg(at.join("random")).status();
    let acl = ["-d", "-m", "u:1234:rwx"];
    let _ = Command::new("setfacl").args(acl).arg(at.join("links")).status();
    if rustix::process::geteuid().is_root() {
        chown(at.join("empty"), Some(12_345), Some(54_321)).unwrap();
        chown(at.join("many"), Some(1), Some(2)).unwrap();
        // What setcap writes: version 2, effective, CAP_NET_RAW.
        let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        put("many/file 00001", "security.capability", &capability);
        put("nothing in it", "trusted.secret", b"root's");
    }
}

fn make_times(at: &Path) {
    for (name, seconds, nanos) in
        [("small", 1_000_000_000, 123_456_789), ("random", -86_400, 1), ("many", 0, 0)]
    {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(CWD, at.join(name), &times, flags).unwrap();
    }
}

/// Appends to a file.
pub fn append(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}
