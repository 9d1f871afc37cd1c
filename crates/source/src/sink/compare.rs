//! Compares the target with what should be there.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Statx};
use rustix::io::Errno;
use strongroom_catalog::{Entry, EntryKind, Xattr};

use crate::inode::{self, InodeId};
use crate::xattr::{Attributes, Bearer};

use super::Target;
use super::directories::DirectoryId;
use super::error::TargetError;

/// In what an entry of the target differs from the entry that should be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Differences {
    /// It does not exist. Then nothing else is compared.
    pub missing: bool,
    /// It is of another kind. Then nothing else is compared.
    pub kind: bool,
    /// The size of a file, the target of a link, or the number of a device.
    pub content: bool,
    /// The time of the last change of the content. If it is the same, and the size is, the content
    /// of a file can be taken for the same; it was not read.
    pub mtime: bool,
    /// The permission bits.
    pub mode: bool,
    /// The owner, if owners are put back.
    pub owner: bool,
    /// The extended attributes, if they are put back.
    pub xattrs: bool,
}

impl Differences {
    /// True if nothing differs.
    pub fn none(&self) -> bool {
        *self == Self::default()
    }

    /// True if the content may differ, so that it must be compared or written.
    pub fn may_touch_content(&self) -> bool {
        self.missing || self.kind || self.content || self.mtime
    }
}

impl Target {
    /// In what a name of the target differs from an entry, without opening the target's.
    pub fn differences(
        &self,
        directory: DirectoryId,
        entry: &Entry,
    ) -> Result<Differences, TargetError> {
        let (fd, name) = self.place(directory, &entry.name)?;
        let failed = |error| {
            TargetError::io("read the metadata of", &self.path_of(directory, &entry.name), error)
        };
        let stat = match inode::stat_at(fd.as_fd(), &name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Differences { missing: true, ..Default::default() }),
            Err(error) => return Err(failed(error)),
        };
        if inode::kind_of(&stat) != kind_of(&entry.kind) {
            return Ok(Differences { kind: true, ..Default::default() });
        }
        let mut differences = self.by_stat(entry, &stat);
        if let EntryKind::Symlink { target } = &entry.kind {
            let pointed = rustix::fs::readlinkat(&fd, &name, Vec::new()).map_err(failed)?;
            differences.content = pointed.as_bytes() != target;
        }
        if self.options.xattrs {
            let existing = match Bearer::name(fd.as_fd(), &name).read() {
                // A file system that lists one without giving it does not keep it.
                Ok(Attributes { xattrs, unread: None | Some((_, Errno::OPNOTSUPP)) }) => xattrs,
                Err(Errno::OPNOTSUPP) => Vec::new(),
                Ok(Attributes { unread: Some((_, error)), .. }) | Err(error) => {
                    return Err(failed(error));
                }
            };
            differences.xattrs = self.xattrs_differ(&existing, &entry.metadata.xattrs);
        }
        Ok(differences)
    }

    /// Which inode a name of the target is.
    pub fn inode_of(&self, directory: DirectoryId, name: &[u8]) -> Result<InodeId, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let stat = inode::stat_at(fd.as_fd(), &c_name).map_err(|error| {
            TargetError::io("read the metadata of", &self.path_of(directory, name), error)
        })?;
        Ok(InodeId::of(&stat))
    }

    fn xattrs_differ(&self, existing: &[Xattr], wanted: &[Xattr]) -> bool {
        let is_wanted = |extra: &Xattr| wanted.iter().any(|xattr| xattr.name == extra.name);
        wanted.iter().any(|xattr| !existing.contains(xattr))
            || existing.iter().any(|xattr| self.is_surplus(&xattr.name) && !is_wanted(xattr))
    }

    fn by_stat(&self, entry: &Entry, stat: &Statx) -> Differences {
        let metadata = &entry.metadata;
        let content = match &entry.kind {
            EntryKind::File { .. } => stat.stx_size != metadata.size,
            EntryKind::CharDevice(device) | EntryKind::BlockDevice(device) => {
                *device != inode::device_number(stat)
            }
            _ => false,
        };
        let is_symlink = matches!(entry.kind, EntryKind::Symlink { .. });
        let mode = self.mode_for(metadata, stat.stx_uid, stat.stx_gid);
        Differences {
            missing: false,
            kind: false,
            content,
            mtime: inode::timestamp_of(stat.stx_mtime) != metadata.mtime,
            mode: !is_symlink && mode != stat.stx_mode & 0o7777,
            owner: self.options.owner && self.owner_of(metadata) != (stat.stx_uid, stat.stx_gid),
            xattrs: false,
        }
    }
}

fn kind_of(kind: &EntryKind) -> FileType {
    match kind {
        EntryKind::File { .. } => FileType::RegularFile,
        EntryKind::Directory { .. } => FileType::Directory,
        EntryKind::Symlink { .. } => FileType::Symlink,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice(_) => FileType::CharacterDevice,
        EntryKind::BlockDevice(_) => FileType::BlockDevice,
    }
}
