//! Compares two trees with the standard library and plain calls, not with the code under test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What of an entry must be the same after a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    links: u64,
    device: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
}

/// Asserts that both trees are the same in all that a backup keeps.
#[track_caller]
pub fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (seen(left), seen(right));
    let names = |tree: &BTreeMap<Vec<u8>, Seen>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(texts(&names(&left)), texts(&names(&right)));
    for (path, entry) in &left {
        assert_eq!(entry, &right[path], "{}", String::from_utf8_lossy(path));
    }
}

/// All entries below a path, by path; the path itself is the empty one.
pub fn seen(root: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let mut tree = BTreeMap::new();
    gather(root, &[], &mut tree);
    tree
}

fn gather(path: &Path, name: &[u8], tree: &mut BTreeMap<Vec<u8>, Seen>) {
    let stat = fs::symlink_metadata(path).unwrap();
    let kind = stat.file_type();
    let content = if kind.is_symlink() {
        fs::read_link(path).unwrap().into_os_string().into_vec()
    } else if kind.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    let special = kind.is_char_device() || kind.is_block_device();
    tree.insert(
        name.to_vec(),
        Seen {
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            size: if kind.is_dir() { 0 } else { stat.size() },
            links: if kind.is_dir() { 0 } else { stat.nlink() },
            device: if special { stat.rdev() } else { 0 },
            xattrs: xattrs(path),
            content,
        },
    );
    if kind.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = [name, b"/", &entry.file_name().into_vec()].concat();
            gather(&entry.path(), &name, tree);
        }
    }
}

/// The extended attributes of a path, links not followed.
pub fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 65536];
    let bytes = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..bytes].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 65536];
            let bytes = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(bytes);
            (name.to_vec(), value)
        })
        .collect()
}

fn texts(names: &[Vec<u8>]) -> Vec<String> {
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
