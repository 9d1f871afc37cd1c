//! One regular file while it is read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, SeekFrom, Statx};
use rustix::io::Errno;
use strongroom_base::{Clock, SystemClock, Timestamp};
use strongroom_catalog::Metadata;

use crate::error::SourceError;
use crate::file_system::{FileSystem, ZeroSize, holes_are_true};
use crate::inode;

/// A regular file, open for reading.
///
/// Its length is what it was when it was opened. A file that shrinks meanwhile reads short, one
/// that grows reads longer; [`change`](Self::change) reports both.
#[derive(Debug)]
pub struct SourceFile {
    fd: OwnedFd,
    path: PathBuf,
    stat: Statx,
    metadata: Metadata,
    position: u64,
    /// It says 0 bytes, on a file system that says so of what it does not know.
    has_unknown_size: bool,
    /// What its length is worth.
    zero_size: ZeroSize,
}

/// A run of bytes that is stored; between extents are holes, which read as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How long it is; never zero.
    pub bytes: u64,
}

/// A file is not what it was when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileChange {
    /// Its size when it was opened.
    pub size_before: u64,
    /// Its size now.
    pub size: u64,
    /// When its content was last changed, as known now.
    pub mtime: Timestamp,
}

impl AsFd for SourceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SourceFile {
    /// Takes an opened file; `stat` was read after that.
    pub(crate) fn new(
        fd: OwnedFd,
        path: PathBuf,
        stat: Statx,
        metadata: Metadata,
        file_system: FileSystem,
    ) -> Self {
        let zero_size = file_system.zero_size;
        let has_unknown_size = stat.stx_size == 0 && zero_size == ZeroSize::Unknown;
        Self { fd, path, stat, metadata, position: 0, has_unknown_size, zero_size }
    }

    /// What it was when it was opened, without extended attributes.
    ///
    /// This, and not the metadata of the walk, belongs to the content that is read: a change during
    /// the reading then shows as a change in the next backup.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its length is known only when it was read to its end. [`size`](Self::size) is 0 then,
    /// and [`extents`](Self::extents) has none.
    pub fn has_unknown_size(&self) -> bool {
        self.has_unknown_size
    }

    /// Its length when it was opened.
    pub fn size(&self) -> u64 {
        self.stat.stx_size
    }

    /// Reads at an offset until the buffer is full or the file ends; returns how many bytes.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&self.fd, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(SourceError::io("read", &self.path, error)),
            }
        }
        Ok(done)
    }

    /// Continues to read where the last call ended, until the buffer is full or the file ends.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let bytes = self.read_at(self.position, buffer)?;
        self.position += bytes as u64;
        Ok(bytes)
    }

    /// The extents in order. A file without holes is one extent, and is not searched.
    pub fn extents(&self) -> Extents<'_> {
        let has_holes = self.stat.stx_blocks.saturating_mul(512) < self.stat.stx_size;
        let sparse = has_holes && holes_are_true(&self.fd, self.age());
        Extents { file: self, offset: 0, sparse }
    }

    /// How long ago its inode changed.
    fn age(&self) -> Duration {
        let changed = inode::timestamp_of(self.stat.stx_ctime);
        let age = SystemClock.now().0.saturating_sub(changed.0);
        Duration::from_nanos(u64::try_from(age).unwrap_or(0))
    }

    /// How it changed since it was opened; `None` for most files.
    pub fn change(&self) -> Result<Option<FileChange>, SourceError> {
        // Nothing of it is read, and asking for its attributes dates a file of sysfs now.
        if matches!(self.zero_size, ZeroSize::MadeUp { has_lengths: false, .. }) {
            return Ok(None);
        }
        let now = inode::stat_fd(&self.fd)
            .map_err(|error| SourceError::io("read the metadata of", &self.path, error))?;
        let mtime = inode::timestamp_of(now.stx_mtime);
        // Not the metadata: a foreign tree may be known better than it is shown.
        let before = &self.stat;
        // The size may have become known by the reading.
        let same = (self.has_unknown_size || now.stx_size == before.stx_size)
            && mtime == inode::timestamp_of(before.stx_mtime)
            && inode::timestamp_of(now.stx_ctime) == inode::timestamp_of(before.stx_ctime);
        let change = FileChange { size_before: before.stx_size, size: now.stx_size, mtime };
        Ok((!same).then_some(change))
    }
}

/// The first run of stored bytes at or after an offset of a file of `size` bytes, as the file
/// system reports it. Moves the position of the descriptor.
pub(crate) fn extent_behind(
    fd: BorrowedFd<'_>,
    offset: u64,
    size: u64,
) -> Result<Option<Extent>, Errno> {
    if offset >= size {
        return Ok(None);
    }
    let begin = match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(begin) if begin < size => begin,
        // Only a hole follows, or the file has become shorter.
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        // This file system does not know about holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => offset,
        Err(error) => return Err(error),
    };
    let end = match rustix::fs::seek(fd, SeekFrom::Hole(begin)) {
        Ok(end) => end.min(size),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NXIO) => size,
        Err(error) => return Err(error),
    };
    Ok((begin < end).then(|| Extent { offset: begin, bytes: end - begin }))
}

/// Iterates over the extents of a file; after an error it ends.
#[derive(Debug)]
pub struct Extents<'a> {
    file: &'a SourceFile,
    /// What is before it was returned.
    offset: u64,
    /// Whether to ask the file system at all.
    sparse: bool,
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let size = self.file.size();
        if self.offset >= size {
            return None;
        }
        let found = match self.sparse {
            true => extent_behind(self.file.fd.as_fd(), self.offset, size),
            false => Ok(Some(Extent { offset: 0, bytes: size })),
        };
        self.offset = match &found {
            Ok(Some(extent)) => extent.offset + extent.bytes,
            Ok(None) | Err(_) => size,
        };
        found
            .map_err(|error| SourceError::io("find the holes of", &self.file.path, error))
            .transpose()
    }
}

/// What the kernel has for the time after which it takes a lease away, unless it is set otherwise.
const LEASE_BREAK_SECONDS: u64 = 45;

/// Opens a name that was a regular file. If something else has taken its place, that is not read,
/// and the call does not wait for it.
pub(crate) fn open(
    directory: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    path: &Path,
) -> Result<(OwnedFd, Statx), SourceError> {
    let changed = |now| SourceError::Changed { path: path.to_owned(), now };
    let fd =
        inode::open_to_read(directory, name, rustix::fs::OFlags::NOFOLLOW).map_err(|error| {
            match error {
                Errno::NOENT => SourceError::Vanished { path: path.to_owned() },
                // The kernel has asked the holder of the lease to give it up.
                Errno::AGAIN if is_file(directory, name) => {
                    SourceError::Leased { path: path.to_owned() }
                }
                Errno::LOOP => changed(inode::kind_text(FileType::Symlink)),
                // A socket, or a device without a driver.
                Errno::NXIO | Errno::NODEV => changed("something that cannot be opened"),
                _ => SourceError::io("open", path, error),
            }
        })?;
    let stat = inode::stat_fd(fd.as_fd())
        .map_err(|error| SourceError::io("read the metadata of", path, error))?;
    match inode::kind_of(&stat) {
        FileType::RegularFile => Ok((fd, stat)),
        other => Err(changed(inode::kind_text(other))),
    }
}

fn is_file(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> bool {
    inode::stat_at(directory, name).is_ok_and(|stat| inode::kind_of(&stat) == FileType::RegularFile)
}

/// How long the kernel lets the holder of a lease keep it once it was asked for, and a bit.
pub(crate) fn lease_break_time() -> Duration {
    let seconds = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    let seconds = seconds.ok().and_then(|seconds| seconds.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(LEASE_BREAK_SECONDS)) + Duration::from_secs(2)
}
