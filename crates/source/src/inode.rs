//! One inode: how its metadata is read, and what the answer means.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use strongroom_base::Timestamp;
use strongroom_catalog::{DeviceNumber, Metadata};

use crate::accounts::Accounts;

/// Distinguishes an inode from all others of this machine, as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// The file system, as `st_dev`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

impl InodeId {
    /// The inode that a path leads to, links followed.
    pub fn of_path(path: &std::path::Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let stat = std::fs::metadata(path)?;
        Ok(Self { device: stat.dev(), inode: stat.ino() })
    }

    pub(crate) fn of(stat: &Statx) -> Self {
        Self { device: device_of(stat), inode: stat.stx_ino }
    }
}

/// The metadata of a name in a directory. A symbolic link is not followed, and an automount point
/// is not mounted.
pub(crate) fn stat_at(directory: BorrowedFd<'_>, name: &CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS)
}

/// The metadata of a name in a directory; a symbolic link is followed.
pub(crate) fn stat_at_following(directory: BorrowedFd<'_>, name: &CStr) -> Result<Statx, Errno> {
    rustix::fs::statx(directory, name, AtFlags::empty(), StatxFlags::BASIC_STATS)
}

/// The metadata of an open file.
pub(crate) fn stat_fd(fd: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

/// Opens a name in a directory for reading. Never waits, never follows a link unless `extra` lacks
/// `NOFOLLOW`, and leaves the access time alone if that is permitted.
pub(crate) fn open_to_read(
    directory: BorrowedFd<'_>,
    name: &CStr,
    extra: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | extra;
    match rustix::fs::openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may leave the access time alone.
        Err(Errno::PERM) => rustix::fs::openat(directory, name, flags, Mode::empty()),
        other => other,
    }
}

/// Opens a directory by its name in another.
pub(crate) fn open_directory(
    parent: impl AsFd,
    name: &CStr,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    open_to_read(parent.as_fd(), name, OFlags::DIRECTORY | link)
}

/// Opens a directory for what is below it: it may be searched, and perhaps not be listed, as
/// `/home` of mode 711.
pub(crate) fn open_way(parent: impl AsFd, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | link;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Opens a name without the right to read it, for what can be asked about it.
pub(crate) fn open_path(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Opens a directory for reading, or for what is below it if it may not be listed.
pub(crate) fn open_directory_or_way(
    parent: impl AsFd,
    name: &CStr,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    match open_directory(parent.as_fd(), name, follow) {
        Err(Errno::ACCESS) => open_way(parent, name, follow),
        other => other,
    }
}

/// Opens a directory for what is below it, if it is still the same one.
pub(crate) fn open_same(
    parent: impl AsFd,
    name: &CStr,
    follow: bool,
    id: InodeId,
) -> Option<OwnedFd> {
    let fd = open_way(parent, name, follow).ok()?;
    let stat = stat_fd(&fd).ok()?;
    (InodeId::of(&stat) == id).then_some(fd)
}

pub(crate) fn device_of(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

pub(crate) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// The kind of a file, with its article.
pub(crate) fn kind_text(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        _ => "something unknown",
    }
}

pub(crate) fn device_number(stat: &Statx) -> DeviceNumber {
    DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor }
}

/// The part of an inode's answer that is kept: all metadata of an entry but its extended
/// attributes, which are read separately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodeFacts {
    pub(crate) id: InodeId,
    pub(crate) size: u64,
    /// With the bits that give the kind.
    mode: u16,
    uid: u32,
    gid: u32,
    links: u32,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl InodeFacts {
    pub(crate) fn of(stat: &Statx) -> Self {
        Self {
            id: InodeId::of(stat),
            size: stat.stx_size,
            mode: stat.stx_mode,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            links: stat.stx_nlink,
            mtime: timestamp_of(stat.stx_mtime),
            ctime: timestamp_of(stat.stx_ctime),
        }
    }

    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode.into())
    }

    pub(crate) fn metadata(&self, accounts: &Accounts) -> Metadata {
        Metadata {
            mode: self.mode & 0o7777,
            uid: self.uid,
            user: accounts.user_name(self.uid).cloned(),
            gid: self.gid,
            group: accounts.group_name(self.gid).cloned(),
            mtime: self.mtime,
            ctime: self.ctime,
            inode: self.id.inode,
            device: self.id.device,
            links: self.links.into(),
            size: self.size,
            xattrs: Vec::new(),
        }
    }
}

impl InodeFacts {
    /// Leaves out of the metadata what only describes how this machine shows the tree of another:
    /// it would make every entry a new one each time. What shows that names lead to one file stays.
    pub(crate) fn leave_out_machine(&self, metadata: &mut Metadata) {
        metadata.device = 0;
        let is_directory = self.kind() == FileType::Directory;
        if is_directory || metadata.links < 2 {
            metadata.inode = 0;
            metadata.links = 1;
        }
        if is_directory {
            metadata.size = 0;
        }
    }
}

/// Times outside of the years 1677 to 2262 become the nearest time inside.
pub(crate) fn timestamp_of(time: StatxTimestamp) -> Timestamp {
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    Timestamp(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}
