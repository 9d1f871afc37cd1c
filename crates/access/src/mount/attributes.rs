//! The attributes (`stat`) of an entry, of a directory above the snapshots, and of a snapshot's
//! `/`.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use strongroom_base::Timestamp;
use strongroom_catalog::{DeviceNumber, Entry, EntryKind, Recipe, Snapshot};

/// The owner of everything that the mount itself adds.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// By number.
    pub uid: u32,
    /// The group, by number.
    pub gid: u32,
}

/// The block size in `stat`.
const BLOCK_BYTES: u32 = 4096;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// Of an entry, as stored.
pub fn of_entry(inode: u64, entry: &Entry) -> FileAttr {
    let metadata = &entry.metadata;
    let mut attributes = base(inode, metadata.mtime, metadata.ctime);
    attributes.kind = file_type(&entry.kind);
    attributes.perm = metadata.mode & 0o7777;
    attributes.uid = metadata.uid;
    attributes.gid = metadata.gid;
    attributes.nlink = u32::try_from(metadata.links).unwrap_or(u32::MAX);
    attributes.size = metadata.size;
    match &entry.kind {
        EntryKind::File { content } => {
            attributes.size = content.stream_bytes();
            attributes.blocks = data_bytes(content).div_ceil(SECTOR_BYTES);
        }
        EntryKind::Symlink { target } => attributes.size = target.len() as u64,
        EntryKind::CharDevice(number) | EntryKind::BlockDevice(number) => {
            attributes.rdev = kernel_device(*number);
        }
        EntryKind::Directory { .. } | EntryKind::Fifo | EntryKind::Socket => {}
    }
    attributes
}

/// Of a snapshot's `/`, of which only the entries are stored.
pub fn of_root(inode: u64, snapshot: &Snapshot, owner: Owner) -> FileAttr {
    FileAttr { perm: 0o755, ..of_top_directory(inode, snapshot.started, owner) }
}

/// Of a directory above the snapshots.
pub fn of_top_directory(inode: u64, changed: Timestamp, owner: Owner) -> FileAttr {
    FileAttr {
        kind: FileType::Directory,
        perm: 0o555,
        nlink: 2,
        uid: owner.uid,
        gid: owner.gid,
        ..base(inode, changed, changed)
    }
}

/// Of a link above the snapshots.
pub fn of_top_link(inode: u64, target: &[u8], changed: Timestamp, owner: Owner) -> FileAttr {
    FileAttr {
        kind: FileType::Symlink,
        perm: 0o777,
        size: target.len() as u64,
        uid: owner.uid,
        gid: owner.gid,
        ..base(inode, changed, changed)
    }
}

/// The type of an entry.
pub fn file_type(kind: &EntryKind) -> FileType {
    match kind {
        EntryKind::File { .. } => FileType::RegularFile,
        EntryKind::Directory { .. } => FileType::Directory,
        EntryKind::Symlink { .. } => FileType::Symlink,
        EntryKind::Fifo => FileType::NamedPipe,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice(_) => FileType::CharDevice,
        EntryKind::BlockDevice(_) => FileType::BlockDevice,
    }
}

fn base(inode: u64, mtime: Timestamp, ctime: Timestamp) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: 0,
        blocks: 0,
        // The time of the last access is not stored, and reading a backup changes nothing.
        atime: system_time(mtime),
        mtime: system_time(mtime),
        ctime: system_time(ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn system_time(moment: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(moment.0.unsigned_abs());
    if moment.0 < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

/// Bytes of a file outside of holes; of a long recipe, those in its first level.
fn data_bytes(content: &Recipe) -> u64 {
    let data = content.refs.iter().filter(|chunk| !chunk.is_hole());
    data.fold(0, |sum, chunk| sum.saturating_add(chunk.stream_bytes))
}

/// A device's number as the kernel's `new_encode_dev` puts it into 32 bits.
fn kernel_device(number: DeviceNumber) -> u32 {
    (number.minor & 0xff) | (number.major << 8) | ((number.minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch() {
        let moment = system_time(Timestamp(-1_200_000_000));
        let distance = SystemTime::UNIX_EPOCH.duration_since(moment);
        assert_eq!(distance.ok(), Some(Duration::new(1, 200_000_000)));
        system_time(Timestamp(i64::MIN));
    }

    #[test]
    fn devices_as_the_kernel_counts_them() {
        assert_eq!(kernel_device(DeviceNumber { major: 1, minor: 3 }), 0x103);
        assert_eq!(kernel_device(DeviceNumber { major: 259, minor: 0x12345 }), 0x1231_0345);
    }
}
