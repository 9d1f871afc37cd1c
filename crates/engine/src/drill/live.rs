//! A file of this machine that a snapshot has, opened if it has not changed since.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use strongroom_catalog::Metadata;

/// What is at a path of this machine.
pub enum Live {
    /// The file that was backed up, with nothing changed but perhaps, unseen, its content.
    Unchanged(File),
    /// Another file, or the same one in another state.
    Changed,
    /// Nothing.
    Gone,
    /// The file, and it cannot be read.
    Unreadable(String),
}

/// Opens the file at a path if size, times and inode are what they were. The access time is left
/// alone if that is permitted, and the bytes are read from the disk, not from memory.
pub fn open_unchanged(path: &Path, stored: &Metadata) -> Live {
    match path.symlink_metadata() {
        Ok(now) if now.is_file() && is_same_version(&now, stored) => {}
        Ok(_) => return Live::Changed,
        Err(error) if error.kind() == ErrorKind::NotFound => return Live::Gone,
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Live::Gone,
        Err(error) => return Live::Unreadable(error.to_string()),
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        other => other,
    };
    let file = match opened {
        Ok(file) => File::from(file),
        Err(error) => return Live::Unreadable(std::io::Error::from(error).to_string()),
    };
    match file.metadata() {
        Ok(now) if now.is_file() && is_same_version(&now, stored) => {
            // It is advice: if the kernel refuses, the bytes come from memory.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            Live::Unchanged(file)
        }
        _ => Live::Changed,
    }
}

/// Where the next stored byte is; none if only a hole follows.
pub fn next_stored(file: &File, offset: u64) -> Option<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(next) => Some(next),
        Err(Errno::NXIO) => None,
        // If holes cannot be asked for, all of it is read.
        Err(_) => Some(offset),
    }
}

/// Whether a file is the one of a snapshot, in the same state.
pub fn is_same_version(now: &std::fs::Metadata, stored: &Metadata) -> bool {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    now.size() == stored.size
        && now.ino() == stored.inode
        && nanos(now.mtime(), now.mtime_nsec()) == i128::from(stored.mtime.0)
        && nanos(now.ctime(), now.ctime_nsec()) == i128::from(stored.ctime.0)
}
