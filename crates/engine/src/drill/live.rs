//! A file of this machine that a snapshot has, opened if it has not changed since.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use strongroom_catalog::Metadata;
use strongroom_source::{FileSystem, ZeroSize};

use crate::backup::unread::had_ctime;

/// What is at a path of this machine.
pub enum Live {
    /// The file that was backed up, with nothing changed but perhaps, unseen, its content.
    Unchanged(LiveFile),
    /// Another file, or the same one in another state.
    Changed,
    /// Nothing.
    Gone,
    /// The file, and it cannot be read.
    Unreadable(String),
}

/// A file of this machine.
pub struct LiveFile {
    /// It.
    pub file: File,
    /// Another content with the same metadata proves that one of the two has rotted: nothing else
    /// changes it so.
    pub proves_rot: bool,
    /// It says 0 bytes, on a file system that says so of what it does not know.
    has_unknown_size: bool,
}

impl LiveFile {
    /// Whether it is still the one of a snapshot, in the same state. One of unknown size has any.
    pub fn is_still(&self, stored: &Metadata) -> bool {
        self.file.metadata().is_ok_and(|now| {
            now.is_file()
                && has_same_times(&now, stored)
                && (self.has_unknown_size || now.size() == stored.size)
        })
    }

    /// Whether it has this many bytes and no more, as far as reading says.
    pub fn ends_at(&self, bytes: u64) -> std::io::Result<bool> {
        Ok(self.file.read_at(&mut [0], bytes)? == 0)
    }

    /// Where the next stored byte is; none if only a hole follows.
    pub fn next_stored(&self, offset: u64) -> Option<u64> {
        if self.has_unknown_size {
            return Some(offset);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(next) => Some(next),
            Err(Errno::NXIO) => None,
            // If holes cannot be asked for, all of it is read.
            Err(_) => Some(offset),
        }
    }
}

/// Opens the file at a path if size, times and inode are what they were. The access time is left
/// alone if that is permitted, and the bytes are read from the disk, not from memory.
pub fn open_unchanged(path: &Path, stored: &Metadata) -> Live {
    match path.symlink_metadata() {
        // If it says 0 bytes, its file system decides what that means.
        Ok(now)
            if now.is_file()
                && has_same_times(&now, stored)
                && (now.size() == 0 || now.size() == stored.size) => {}
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
    let FileSystem { times_prove, zero_size } = FileSystem::of(&file);
    let says_nothing = file.metadata().is_ok_and(|now| zero_size.counted(now.size()) == 0);
    if let ZeroSize::MadeUp { name, .. } = zero_size
        && says_nothing
    {
        let why = format!("files of {name} are made up when they are read");
        return Live::Unreadable(why);
    }
    let has_unknown_size = says_nothing && zero_size == ZeroSize::Unknown;
    let proves_rot = times_prove && !has_unknown_size;
    let live = LiveFile { file, proves_rot, has_unknown_size };
    if !live.is_still(stored) {
        return Live::Changed;
    }
    // It is advice: if the kernel refuses, the bytes come from memory.
    let _ = rustix::fs::fadvise(&live.file, 0, None, Advice::DontNeed);
    Live::Unchanged(live)
}

/// Whether a file is the one of a snapshot and, by its times, in the same state.
fn has_same_times(now: &std::fs::Metadata, stored: &Metadata) -> bool {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    now.ino() == stored.inode
        && nanos(now.mtime(), now.mtime_nsec()) == i128::from(stored.mtime.0)
        && had_ctime(stored, nanos(now.ctime(), now.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use strongroom_base::Timestamp;

    use super::*;

    #[test]
    fn a_file_of_unknown_size_is_compared_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        let now = path.metadata().unwrap();
        let nanos = |seconds: i64, nanos: i64| Timestamp(seconds * 1_000_000_000 + nanos);
        let stored = |size| Metadata {
            size,
            inode: now.ino(),
            mtime: nanos(now.mtime(), now.mtime_nsec()),
            ctime: nanos(now.ctime(), now.ctime_nsec()),
            ..Metadata::default()
        };
        for (has_unknown_size, size, is_still) in
            [(false, 0, true), (false, 7, false), (true, 0, true), (true, 7, true)]
        {
            let file = File::open(&path).unwrap();
            let live = LiveFile { file, proves_rot: true, has_unknown_size };
            assert_eq!(live.is_still(&stored(size)), is_still);
            // No zeros are assumed behind the end that it says.
            assert_eq!(live.next_stored(0), has_unknown_size.then_some(0));
        }
        fs::write(&path, "content").unwrap();
        let file = File::open(&path).unwrap();
        let live = LiveFile { file, proves_rot: true, has_unknown_size: true };
        assert!(live.ends_at(7).unwrap() && !live.ends_at(6).unwrap());
    }
}
