//! What a tree on disk is, in all that a backup keeps: taken by plain calls, compared entry by
//! entry.
//!
//! Not kept, and so not compared: ctime, atime, inode numbers, sizes of directories.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The content of a file: its runs of data, in order, apart from each other; holes between.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// Length of the file.
    pub bytes: u64,
    /// Offset and bytes of each run; none is empty, and two never touch.
    pub runs: Vec<(u64, Vec<u8>)>,
}

/// What an entry is, with what only this kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device of this number.
    CharDevice(u64),
    /// A block device of this number.
    BlockDevice(u64),
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The low twelve bits of the mode.
    pub mode: u32,
    /// Owner and group, by number.
    pub owner: (u32, u32),
    /// Nanoseconds since the epoch.
    pub mtime: i128,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first of the paths that share its inode, where several do.
    pub linked_to: Option<Vec<u8>>,
}

/// A tree: every entry by its path below the root, the root itself by the empty one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// The entries.
    pub nodes: BTreeMap<Vec<u8>, Node>,
}

impl Content {
    /// Adds data that follows all that was added before; neighbouring runs become one.
    pub fn push(&mut self, data: &[u8]) {
        let at = self.bytes;
        self.bytes += data.len() as u64;
        match self.runs.last_mut() {
            _ if data.is_empty() => {}
            Some((offset, run)) if *offset + run.len() as u64 == at => run.extend_from_slice(data),
            _ => self.runs.push((at, data.to_vec())),
        }
    }

    /// Adds a hole behind all that was added before.
    pub fn push_hole(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Where the first byte is otherwise than in `other`, holes being zeros.
    fn first_difference(&self, other: &Self) -> Option<u64> {
        let mut edges: Vec<u64> = [self, other]
            .iter()
            .flat_map(|content| &content.runs)
            .flat_map(|(offset, run)| [*offset, offset + run.len() as u64])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        for edge in edges.windows(2) {
            let (from, to) = (edge[0], edge[1]);
            let (one, two) = (self.piece(from, to), other.piece(from, to));
            let differs =
                |i: &usize| one.map_or(0, |piece| piece[*i]) != two.map_or(0, |piece| piece[*i]);
            if one.is_none() && two.is_none() || one == two {
                continue;
            }
            if let Some(place) = (0..(to - from) as usize).find(differs) {
                return Some(from + place as u64);
            }
        }
        None
    }

    /// The data of a stretch that lies in one run or in none.
    fn piece(&self, from: u64, to: u64) -> Option<&[u8]> {
        let place = self.runs.partition_point(|(offset, _)| *offset <= from).checked_sub(1)?;
        let (offset, run) = &self.runs[place];
        run.get((from - offset) as usize..(to - offset) as usize)
    }

    fn map(&self) -> Vec<(u64, u64)> {
        self.runs.iter().map(|(offset, run)| (*offset, run.len() as u64)).collect()
    }
}

impl Image {
    /// Takes the image of the tree at `root`.
    pub fn of(root: &Path) -> Self {
        let mut image = Self::default();
        let mut inodes: HashMap<(u64, u64), Vec<Vec<u8>>> = HashMap::new();
        let mut rest: Vec<(PathBuf, Vec<u8>)> = vec![(root.to_owned(), Vec::new())];
        while let Some((path, below)) = rest.pop() {
            let stat = at(&path, fs::symlink_metadata(&path));
            let node = node(&path, &stat);
            if node.kind == Kind::Directory {
                for entry in at(&path, fs::read_dir(&path)) {
                    let name = at(&path, entry).file_name().into_vec();
                    let separator: &[u8] = if below.is_empty() { b"" } else { b"/" };
                    let below = [&below, separator, &name].concat();
                    rest.push((path.join(OsStr::from_bytes(&name)), below));
                }
            } else {
                inodes.entry((stat.dev(), stat.ino())).or_default().push(below.clone());
            }
            image.nodes.insert(below, node);
        }
        for mut paths in inodes.into_values().filter(|paths| paths.len() > 1) {
            paths.sort_unstable();
            for path in &paths {
                if let Some(node) = image.nodes.get_mut(path) {
                    node.linked_to = Some(paths[0].clone());
                }
            }
        }
        image
    }

    /// The part below a path, as an image of its own.
    pub fn below(&self, path: &[u8]) -> Self {
        let inside = |whole: &[u8]| -> Option<Vec<u8>> {
            match whole.strip_prefix(path)? {
                [] => Some(Vec::new()),
                [b'/', rest @ ..] => Some(rest.to_vec()),
                rest if path.is_empty() => Some(rest.to_vec()),
                _ => None,
            }
        };
        let nodes = self.nodes.iter().filter_map(|(whole, node)| {
            let mut node = node.clone();
            node.linked_to = node.linked_to.and_then(|linked| inside(&linked));
            Some((inside(whole)?, node))
        });
        Self { nodes: nodes.collect() }
    }

    /// Every difference between this image and another, one line each.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, node) in &self.nodes {
            match other.nodes.get(path) {
                None => lines.push(format!("{}: only in the first", text(path))),
                Some(other) if node == other => {}
                Some(other) => {
                    let differences = node_differences(node, other);
                    lines.extend(differences.iter().map(|what| format!("{}: {what}", text(path))));
                }
            }
        }
        let only = other.nodes.keys().filter(|path| !self.nodes.contains_key(*path));
        lines.extend(only.map(|path| format!("{}: only in the second", text(path))));
        lines
    }

    /// Fails the test, with every difference, where there is one.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, what: &str) {
        let differences = self.differences(other);
        assert!(differences.is_empty(), "{what}:\n  {}", differences.join("\n  "));
    }
}

/// Every difference between two trees on disk, one line each.
pub fn compare(first: &Path, second: &Path) -> Vec<String> {
    Image::of(first).differences(&Image::of(second))
}

/// Fails the test, with every difference, where two trees are not the same.
#[track_caller]
pub fn assert_same(first: &Path, second: &Path) {
    let what = format!("{} and {}", first.display(), second.display());
    Image::of(first).assert_same(&Image::of(second), &what);
}

fn node_differences(one: &Node, two: &Node) -> Vec<String> {
    let mut lines = Vec::new();
    match (&one.kind, &two.kind) {
        (Kind::File(one), Kind::File(two)) if one != two => {
            if one.bytes != two.bytes {
                lines.push(format!("{} bytes, not {}", one.bytes, two.bytes));
            }
            match one.first_difference(two) {
                Some(offset) => lines.push(format!("content differs from byte {offset} on")),
                None if one.bytes == two.bytes => {
                    lines.push(format!("data at {:?}, not {:?}", one.map(), two.map()));
                }
                None => {}
            }
        }
        (one, two) if one != two => {
            lines.push(format!("{}, not {}", kind_text(one), kind_text(two)));
        }
        _ => {}
    }
    if one.mode != two.mode {
        lines.push(format!("mode {:o}, not {:o}", one.mode, two.mode));
    }
    if one.owner != two.owner {
        lines.push(format!("owner {:?}, not {:?}", one.owner, two.owner));
    }
    if one.mtime != two.mtime {
        lines.push(format!("mtime {}, not {}", one.mtime, two.mtime));
    }
    if one.xattrs != two.xattrs {
        lines.push(format!("xattrs {:?}, not {:?}", one.xattrs, two.xattrs));
    }
    if one.linked_to != two.linked_to {
        let linked = |node: &Node| node.linked_to.as_deref().map(text);
        lines.push(format!("linked to {:?}, not {:?}", linked(one), linked(two)));
    }
    lines
}

fn kind_text(kind: &Kind) -> String {
    match kind {
        Kind::File(content) => format!("a file of {} bytes", content.bytes),
        Kind::Symlink(target) => format!("a link to {:?}", text(target)),
        other => format!("{other:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn node(path: &Path, stat: &fs::Metadata) -> Node {
    let kind = stat.file_type();
    let kind = if kind.is_file() {
        Kind::File(at(path, content(path, stat.size())))
    } else if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Symlink(at(path, fs::read_link(path)).into_os_string().into_vec())
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_socket() {
        Kind::Socket
    } else if kind.is_char_device() {
        Kind::CharDevice(stat.rdev())
    } else {
        Kind::BlockDevice(stat.rdev())
    };
    Node {
        kind,
        mode: stat.mode() & 0o7777,
        owner: (stat.uid(), stat.gid()),
        mtime: i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec()),
        xattrs: at(path, xattrs(path)),
        linked_to: None,
    }
}

/// Reads the runs of data alone, as the file system reports them.
fn content(path: &Path, bytes: u64) -> io::Result<Content> {
    let file = fs::File::open(path)?;
    let mut content = Content::default();
    while content.bytes < bytes {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(content.bytes)) {
            Ok(start) => start.min(bytes),
            Err(Errno::NXIO) => bytes,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => content.bytes,
            Err(error) => return Err(error.into()),
        };
        content.push_hole(start - content.bytes);
        if start == bytes {
            break;
        }
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap_or(bytes).min(bytes);
        let mut data = vec![0; (end - start) as usize];
        file.read_exact_at(&mut data, start)?;
        content.push(&data);
    }
    Ok(content)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 1 << 16];
    let bytes = match rustix::fs::llistxattr(path, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let mut xattrs = BTreeMap::new();
    for name in list[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let bytes = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(bytes);
        xattrs.insert(name.to_vec(), value);
    }
    Ok(xattrs)
}

/// The value, or a panic that names the path.
pub(crate) fn at<T, E: std::fmt::Display>(path: &Path, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
