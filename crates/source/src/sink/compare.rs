//! What stands in the target against what should.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Statx};
use rustix::io::Errno;
use strongroom_catalog::{Entry, EntryKind, Xattr};

use crate::inode;
use crate::xattr::Bearer;

use super::Target;
use super::apply::is_ours;
use super::directories::DirectoryId;
use super::error::TargetError;

/// In what an entry of the target differs from the one that should stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Differences {
    /// Nothing stands there. Nothing else is said then.
    pub missing: bool,
    /// Something of another kind stands there. Nothing else is said then.
    pub kind: bool,
    /// The size of a file, the target of a link, or the number of a device.
    pub content: bool,
    /// The time of the last change of the content. Where it is the same, as the size is, the
    /// content of a file can be taken for the same; it was not read.
    pub mtime: bool,
    /// The permission bits.
    pub mode: bool,
    /// The owner, where owners are put back.
    pub owner: bool,
    /// The extended attributes, where they are put back.
    pub xattrs: bool,
}

impl Differences {
    /// True where nothing differs.
    pub fn none(&self) -> bool {
        *self == Self::default()
    }

    /// True where the content may differ, so that it has to be looked at or made.
    pub fn may_touch_content(&self) -> bool {
        self.missing || self.kind || self.content || self.mtime
    }
}

impl Target {
    /// In what a name of the target differs from an entry, without opening what stands there.
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
            let standing = match Bearer::name(fd.as_fd(), &name).read() {
                Ok(standing) => standing,
                Err(Errno::OPNOTSUPP) => Vec::new(),
                Err(error) => return Err(failed(error)),
            };
            differences.xattrs = xattrs_differ(&standing, &entry.metadata.xattrs);
        }
        Ok(differences)
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

fn xattrs_differ(standing: &[Xattr], wanted: &[Xattr]) -> bool {
    wanted.iter().any(|xattr| !standing.contains(xattr))
        || standing.iter().any(|xattr| {
            is_ours(&xattr.name) && !wanted.iter().any(|other| other.name == xattr.name)
        })
}
