//! Images, mounts, and trees as seen by the kernel and by us, in a form that can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_base::Timestamp;
use strongroom_catalog::{Metadata, Xattr};
use strongroom_disk::{FileSystem, FreeMap, NodeKind, Piece, ReadAt, Source};
use strongroom_testkit::Random;

/// An image file.
pub struct Image(pub File);

impl Image {
    pub fn open(path: &Path) -> Self {
        Self(File::open(path).unwrap())
    }
}

impl ReadAt for Image {
    fn size(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}

/// A folder in memory, if there is one: the images are small, and mounts are quick there.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Runs a tool, which must succeed, and returns what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    // Some tools complain where they print.
    let said = String::from_utf8_lossy(&[&output.stderr[..], &output.stdout].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Why these tools cannot be used here.
pub fn lacks(programs: &[&str]) -> Option<&'static str> {
    let has = |program: &&str| {
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
            .iter()
            .any(|d| Path::new(d).join(program).exists())
    };
    (!programs.iter().all(has)).then_some("a tool is missing (see tests/it/main.rs)")
}

/// Why nothing can be mounted here.
pub fn cannot_mount() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount");
    }
    let loops = Command::new("losetup").arg("-f").output();
    let has_loops = loops.is_ok_and(|output| output.status.success());
    (!has_loops).then_some("there is no loop device").or(lacks(&["mke2fs", "setfacl", "setfattr"]))
}

/// A new image of an ext file system.
pub fn make_ext(path: &Path, size: &str, arguments: &[&str]) {
    drop(std::fs::remove_file(path));
    let path = path.to_str().unwrap();
    run("truncate", &["-s", size, path]);
    let head = ["-q", "-F", "-U", "01234567-89ab-cdef-0123-456789abcdef", "-L", "label"];
    run("mke2fs", &[&head, arguments, &[path]].concat());
}

/// A new image of XFS, of sizes that `mkfs.xfs` makes for tests only.
pub fn make_xfs(path: &Path, size: &str, arguments: &[&str]) {
    drop(std::fs::remove_file(path));
    let path = path.to_str().unwrap();
    run("truncate", &["-s", size, path]);
    run("mkfs.xfs", &[&["-q", "-f", "--unsupported", "-L", "label"], arguments, &[path]].concat());
}

/// Fails unless `xfs_repair` finds nothing to repair.
pub fn assert_sound_xfs(path: &Path, what: &str) {
    let output = Command::new("xfs_repair").args(["-n", "-f"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
}

/// Bytes that `xfs_db` finds free.
pub fn free_of_xfs(path: &Path, block_bytes: u64) -> u64 {
    let said = run("xfs_db", &["-f", "-r", "-c", "freesp -s", path.to_str().unwrap()]);
    let blocks = said.lines().find_map(|line| line.strip_prefix("total free blocks"));
    blocks.unwrap().trim().parse::<u64>().unwrap() * block_bytes
}

/// A new image of Btrfs.
pub fn make_btrfs(path: &Path, size: &str, arguments: &[&str]) {
    drop(std::fs::remove_file(path));
    let path = path.to_str().unwrap();
    run("truncate", &["-s", size, path]);
    run("mkfs.btrfs", &[&["-q", "-f", "-L", "label"], arguments, &[path]].concat());
}

/// Fails unless `btrfs check` finds nothing to repair.
pub fn assert_sound_btrfs(path: &Path, what: &str) {
    let arguments = ["check", "--readonly", "--check-data-csum"];
    let output = Command::new("btrfs").args(arguments).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
}

/// A mounted image; unmounted when it is dropped.
pub struct Mount(PathBuf);

impl Mount {
    pub fn new(image: &Path, options: &str) -> Self {
        let at = image.with_extension("mount");
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("loop,{options}");
        run("mount", &["-o", &options, image.to_str().unwrap(), at.to_str().unwrap()]);
        Self(at)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A tool that another test is just starting can have our files open for a moment.
        let is_unmounted = || Command::new("umount").arg(&self.0).status().unwrap().success();
        let mut tries_left = 100;
        while !is_unmounted() {
            tries_left -= 1;
            assert!(tries_left > 0, "{:?} cannot be unmounted", self.0);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// What is compared of an inode.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    kind: String,
    metadata: Metadata,
    /// Length and CRC-32C of a file's content.
    content: Option<(u64, u32)>,
}

impl Seen {
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Leaves out what a copy by `mke2fs` does not have: it keeps times in seconds.
    pub fn forget_inode(&mut self) {
        self.metadata.inode = 0;
        self.metadata.ctime = Timestamp::default();
        self.metadata.mtime.0 -= self.metadata.mtime.0 % 1_000_000_000;
    }

    /// Leaves out the bits by which inodes of several trees differ.
    pub fn forget_tree(&mut self) {
        self.metadata.inode &= (1 << 44) - 1;
    }

    /// Leaves out what a copy by a prototype file does not have.
    pub fn forget_times(&mut self) {
        self.forget_inode();
        self.metadata.mtime = Timestamp::default();
    }
}

/// What two trees have in common if their file systems know no owners: times in steps of this number
/// of nanoseconds.
pub fn without_owners(tree: &mut Tree, step_nanos: i64) {
    for seen in tree.values_mut() {
        let Metadata { mtime, size, .. } = seen.metadata;
        let is_file = seen.content.is_some();
        let mtime = Timestamp(if is_file { mtime.0 - mtime.0 % step_nanos } else { 0 });
        seen.metadata = Metadata { mtime, size, ..Metadata::default() };
    }
}

/// Paths and what is there.
pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// Fails with the first differences.
#[expect(clippy::print_stderr, reason = "shown with the test's output")]
pub fn assert_same(ours: &Tree, kernels: &Tree, what: &str) {
    let names: BTreeSet<_> = ours.keys().chain(kernels.keys()).collect();
    let differ = names.iter().filter(|name| ours.get(**name) != kernels.get(**name));
    let differ: Vec<_> = differ.take(3).collect();
    for name in &differ {
        let shown = String::from_utf8_lossy(name);
        eprintln!("{shown:.80}:\nours   {:?}\nkernel {:?}", ours.get(**name), kernels.get(**name));
    }
    assert!(differ.is_empty(), "{what}");
}

/// The tree as the kernel shows it.
pub fn kernels_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    add_kernels(root, b"", &mut tree);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            add_kernels(&path, &name, &mut tree);
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path);
            }
        }
    }
    tree
}

fn add_kernels(path: &Path, name: &[u8], tree: &mut Tree) {
    let stat = path.symlink_metadata().unwrap();
    let kind = stat.file_type();
    let (major, minor) = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
    let shown = match () {
        () if kind.is_file() => "File".into(),
        () if kind.is_dir() => "Directory".into(),
        () if kind.is_symlink() => {
            format!("Symlink {:?}", std::fs::read_link(path).unwrap().as_os_str().as_bytes())
        }
        () if kind.is_fifo() => "Fifo".into(),
        () if kind.is_socket() => "Socket".into(),
        () if kind.is_char_device() => format!("CharDevice {major} {minor}"),
        () => format!("BlockDevice {major} {minor}"),
    };
    let time = |seconds: i64, nanos: i64| {
        let time = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Timestamp(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    };
    let metadata = Metadata {
        mode: (stat.mode() & 0o7777) as u16,
        uid: stat.uid(),
        gid: stat.gid(),
        mtime: time(stat.mtime(), stat.mtime_nsec()),
        ctime: time(stat.ctime(), stat.ctime_nsec()),
        inode: stat.ino(),
        links: stat.nlink(),
        size: if kind.is_file() || kind.is_symlink() { stat.len() } else { 0 },
        xattrs: kernels_xattrs(path),
        ..Metadata::default()
    };
    let content = kind.is_file().then(|| {
        let file = File::open(path).unwrap();
        checksum(stat.len(), &mut |at, buffer| file.read_exact_at(buffer, at).unwrap())
    });
    tree.insert(name.to_vec(), Seen { kind: shown, metadata, content });
}

fn kernels_xattrs(path: &Path) -> Vec<Xattr> {
    let mut list = vec![0; 65536];
    let bytes = match rustix::fs::llistxattr(path, &mut list[..]) {
        // The file system has none.
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        bytes => bytes.unwrap(),
    };
    let names = list[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut xattrs: Vec<Xattr> = names
        .map(|name| {
            let mut value = vec![0; 65536];
            let bytes = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            Xattr { name: name.to_vec(), value: value[..bytes].to_vec() }
        })
        .collect();
    xattrs.sort_by(|left, right| left.name.cmp(&right.name));
    xattrs
}

fn checksum(bytes: u64, read: &mut dyn FnMut(u64, &mut [u8])) -> (u64, u32) {
    let mut buffer = vec![0; bytes.min(1 << 20) as usize];
    let (mut at, mut sum) = (0, 0);
    while at < bytes {
        let now = (bytes - at).min(1 << 20);
        read(at, &mut buffer[..now as usize]);
        sum = crc32c::crc32c_append(sum, &buffer[..now as usize]);
        at += now;
    }
    (bytes, sum)
}

/// The tree as we see it. Each file is read in both ways: by `read`, and from its pieces.
pub fn our_tree(files: &dyn FileSystem, volume: &dyn ReadAt) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![(Vec::new(), files.root())];
    add_ours(files, volume, b"", files.root(), &mut tree);
    while let Some((folder, inode)) = folders.pop() {
        let mut found = Vec::new();
        let listed = files.entries(inode, &mut |entry| {
            found.push((entry.name.to_vec(), entry.inode));
            ControlFlow::Continue(())
        });
        listed.unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&folder)));
        for (name, inode) in found {
            let path = if folder.is_empty() { name } else { [&folder, &b"/"[..], &name].concat() };
            if add_ours(files, volume, &path, inode, &mut tree) == NodeKind::Directory {
                folders.push((path, inode));
            }
        }
    }
    tree
}

fn add_ours(
    files: &dyn FileSystem,
    volume: &dyn ReadAt,
    path: &[u8],
    inode: u64,
    tree: &mut Tree,
) -> NodeKind {
    let shown = String::from_utf8_lossy(path);
    let node = files.node(inode).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut metadata = node.metadata;
    let content = (node.kind == NodeKind::File).then(|| {
        let mut read = |at: u64, buffer: &mut [u8]| {
            assert_eq!(files.read(inode, at, buffer).unwrap(), buffer.len());
        };
        let whole = checksum(metadata.size, &mut read);
        assert_eq!(from_pieces(files, volume, inode, metadata.size), whole, "{shown}");
        whole
    });
    if !matches!(node.kind, NodeKind::File | NodeKind::Symlink { .. }) {
        metadata.size = 0;
    }
    let kind = match &node.kind {
        NodeKind::Symlink { target } => format!("Symlink {target:?}"),
        NodeKind::CharDevice(device) => format!("CharDevice {} {}", device.major, device.minor),
        NodeKind::BlockDevice(device) => format!("BlockDevice {} {}", device.major, device.minor),
        other => format!("{other:?}"),
    };
    tree.insert(path.to_vec(), Seen { kind, metadata, content });
    node.kind
}

/// Reads parts of a file at random, in both ways: they are those of the whole file.
pub fn check_parts(files: &dyn FileSystem, inode: u64, random: &mut Random) {
    let size = files.node(inode).unwrap().metadata.size;
    let mut content = vec![0; size as usize];
    assert_eq!(files.read(inode, 0, &mut content).unwrap(), content.len());
    let pieces = |range| {
        let mut pieces = Vec::new();
        let some = files.pieces(inode, range, &mut |piece| {
            pieces.push(piece);
            ControlFlow::Continue(())
        });
        some.unwrap();
        pieces
    };
    let all = pieces(0..u64::MAX);
    // Neighbours that are one in another question count as one.
    let bytes = |pieces: &[Piece], at: u64| {
        let found =
            pieces.iter().find(|piece| (piece.offset..piece.offset + piece.bytes).contains(&at));
        found.map(|piece| match piece.source {
            Source::Volume(place) => Source::Volume(place + (at - piece.offset)),
            Source::Unwritten(place) => Source::Unwritten(place + (at - piece.offset)),
            Source::Inside => Source::Inside,
        })
    };
    for _ in 0..30 {
        let start = random.below(size + 100);
        let end = start + random.below(100_000);
        let mut buffer = vec![1; (end - start) as usize];
        let read = files.read(inode, start, &mut buffer).unwrap();
        let expected = &content[start.min(size) as usize..end.min(size) as usize];
        assert_eq!(&buffer[..read], expected, "{start}..{end}");
        let some = pieces(start..end);
        assert!(some.iter().all(|piece| piece.offset < end && piece.offset + piece.bytes > start));
        for at in (start..end.min(size)).step_by(997) {
            assert_eq!(bytes(&some, at), bytes(&all, at), "{at} of {start}..{end}");
        }
    }
}

fn from_pieces(files: &dyn FileSystem, volume: &dyn ReadAt, inode: u64, size: u64) -> (u64, u32) {
    let mut pieces = Vec::new();
    let all = files.pieces(inode, 0..u64::MAX, &mut |piece| {
        pieces.push(piece);
        ControlFlow::Continue(())
    });
    all.unwrap();
    let mut ends = pieces.iter().map(|piece| piece.offset + piece.bytes);
    let starts = pieces.iter().map(|piece| piece.offset).skip(1);
    assert!(ends.clone().zip(starts).all(|(end, start)| end <= start), "{pieces:?}");
    assert!(ends.next_back().is_none_or(|end| end <= size), "{pieces:?}");
    checksum(size, &mut |at, buffer| {
        buffer.fill(0);
        let end = at + buffer.len() as u64;
        for piece in &pieces {
            let (from, to) = (piece.offset.max(at), (piece.offset + piece.bytes).min(end));
            if from >= to {
                continue;
            }
            let part = &mut buffer[(from - at) as usize..(to - at) as usize];
            match piece.source {
                Source::Volume(place) => {
                    volume.read_at(place + (from - piece.offset), part).unwrap();
                }
                Source::Unwritten(_) => {}
                Source::Inside => {
                    files.read(inode, from, part).unwrap();
                }
            }
        }
    })
}

/// Overwrites the bytes that are called free. It uses not zeros but noise, so that a byte that was
/// needed and happened to be zero is noticed too.
pub fn overwrite_free(path: &Path, free: &FreeMap) {
    let file = File::options().write(true).open(path).unwrap();
    let noise: Vec<u8> =
        (0..1 << 16).map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8 | 1).collect();
    for range in free.ranges() {
        let mut at = range.start;
        while at < range.end {
            let bytes = (range.end - at).min(1 << 16);
            file.write_all_at(&noise[..bytes as usize], at).unwrap();
            at += bytes;
        }
    }
}

/// Fails unless `e2fsck` finds nothing to complain about.
pub fn assert_sound(path: &Path, what: &str) {
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {said}");
}
