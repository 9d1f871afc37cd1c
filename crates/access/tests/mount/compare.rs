//! Compares two trees in everything that the system reports of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the system reports of a name; not its inode, which differs on every file system.
#[derive(Debug, PartialEq, Eq)]
struct Reported {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    device: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    target: Option<PathBuf>,
    xattrs: Xattrs,
}

/// Asserts that two trees are the same except for their location; returns the number of names.
pub fn assert_same(expected: &Path, found: &Path) -> usize {
    let mut joined = Joined::default();
    compare(expected, found, &mut joined) + joined.check()
}

/// Which names are one file, in both trees.
#[derive(Default)]
struct Joined {
    pairs: BTreeMap<u64, u64>,
    names: usize,
}

impl Joined {
    fn add(&mut self, expected: &Metadata, found: &Metadata, path: &Path) {
        let before = self.pairs.insert(expected.ino(), found.ino());
        assert!(before.is_none_or(|before| before == found.ino()), "{path:?} is another file");
        self.names += 1;
    }

    /// No two files became one.
    fn check(self) -> usize {
        let mut inodes: Vec<u64> = self.pairs.values().copied().collect();
        inodes.sort_unstable();
        inodes.dedup();
        assert_eq!(inodes.len(), self.pairs.len(), "different files have the same inode");
        0
    }
}

fn compare(expected: &Path, found: &Path, joined: &mut Joined) -> usize {
    let (before, after) = (expected.symlink_metadata().unwrap(), found.symlink_metadata().unwrap());
    assert_eq!(reported(expected, &before), reported(found, &after), "{expected:?}");
    joined.add(&before, &after, expected);
    if before.is_file() {
        assert!(fs::read(expected).unwrap() == fs::read(found).unwrap(), "bytes of {expected:?}");
    }
    if !before.is_dir() {
        return 1;
    }
    let (names, others) = (names(expected), names(found));
    assert_eq!(names, others, "names in {expected:?}");
    1 + names.iter().map(|n| compare(&expected.join(n), &found.join(n), joined)).sum::<usize>()
}

pub fn names(path: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    names
}

fn reported(path: &Path, metadata: &Metadata) -> Reported {
    let kind = metadata.file_type();
    let is_device = kind.is_char_device() || kind.is_block_device();
    Reported {
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        links: metadata.nlink(),
        device: if is_device { metadata.rdev() } else { 0 },
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        target: kind.is_symlink().then(|| fs::read_link(path).unwrap()),
        xattrs: xattrs(path),
    }
}

fn xattrs(path: &Path) -> Xattrs {
    let mut list = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, list.as_mut_slice()).unwrap();
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).unwrap();
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}
