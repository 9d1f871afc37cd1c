//! One regular file while it is written.

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, Statx};
use rustix::io::Errno;
use strongroom_base::aligned::{cut, write_aligned};

use crate::file::{Extent, extent_behind};
use crate::inode::{self, InodeId};

use super::error::TargetError;
use super::path_only::proc_path;

/// A regular file, open for reading and writing; many threads may write at once.
///
/// When all is written, it is given to [`Target::finish_file`](super::Target::finish_file), which
/// extends it to its final length if it is still shorter.
#[derive(Debug)]
pub struct TargetFile {
    fd: OwnedFd,
    path: PathBuf,
    /// The length that it will have.
    size: u64,
    /// The length that it has at least; also for those who open it again.
    length: Arc<AtomicU64>,
    fresh: bool,
    /// The mode of a file that existed, until it is first written to. Then others are shut out,
    /// because what is written may be less public than what was there.
    open_to_others: AtomicBool,
    /// The kernel lets one writer at a time into a file and makes the others spin. Here they sleep,
    /// and leave their core to other threads.
    turn: Mutex<()>,
    /// Seeking moves the one position of the descriptor.
    seek: Mutex<()>,
    /// Writes past the kernel's cache; opened when first wanted, `None` if that is of no use.
    past_cache: OnceLock<Option<OwnedFd>>,
}

/// A file that is being written, by which it is known when it is opened again.
#[derive(Debug, Clone)]
pub struct BegunFile {
    pub(super) id: InodeId,
    /// Whether this restore made it.
    is_made: bool,
    /// The length that it has at least.
    pub(super) length: Arc<AtomicU64>,
}

/// The kernel takes at most this many parts at once.
const PARTS_MAX: usize = 1024;

/// If at least this many bytes are written at once, the disk writes them while the next are made,
/// and a flush at the end has little left to do.
const LARGE_MIN: usize = 1 << 20;

/// File systems of disks that write at once what goes past the cache: ext4 and XFS, by their
/// `statfs` numbers. On others each write would wait for a network, or would not be compressed.
const PAST_CACHE_GOOD: [u32; 2] = [0xef53, 0x5846_5342];

/// What is written at a time if a hole cannot be punched.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl TargetFile {
    pub(super) fn fresh(fd: OwnedFd, path: PathBuf, size: u64) -> Self {
        Self {
            fd,
            path,
            size,
            length: Arc::default(),
            fresh: true,
            open_to_others: AtomicBool::new(false),
            turn: Mutex::default(),
            seek: Mutex::default(),
            past_cache: OnceLock::new(),
        }
    }

    /// One that was begun, closed, and opened again.
    pub(super) fn reopened(
        fd: OwnedFd,
        path: PathBuf,
        stat: &Statx,
        begun: &BegunFile,
        size: u64,
    ) -> Self {
        begun.length.fetch_max(stat.stx_size, Ordering::Relaxed);
        Self {
            length: begun.length.clone(),
            fresh: begun.is_made,
            // One that this restore made is its owner's alone, as far as the file system knows modes.
            open_to_others: AtomicBool::new(!begun.is_made && is_open_to_others(stat)),
            ..Self::fresh(fd, path, size)
        }
    }

    pub(super) fn of_existing(
        fd: OwnedFd,
        path: PathBuf,
        stat: Statx,
        size: u64,
    ) -> Result<Self, TargetError> {
        let file = Self {
            length: Arc::new(AtomicU64::new(stat.stx_size)),
            fresh: false,
            open_to_others: AtomicBool::new(is_open_to_others(&stat)),
            ..Self::fresh(fd, path, size)
        };
        // Setting the same length would still change the time.
        if stat.stx_size != size {
            file.shut_others_out()?;
            file.set_length(size)?;
        }
        Ok(file)
    }

    /// True if the file is new, so that all of it is a hole.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// What it is known by when it is opened again, after it was closed.
    pub fn begun(&self) -> Result<BegunFile, TargetError> {
        let stat =
            inode::stat_fd(&self.fd).map_err(|error| self.failed("read the metadata of", error))?;
        let (id, length) = (InodeId::of(&stat), self.length.clone());
        Ok(BegunFile { id, is_made: self.fresh, length })
    }

    /// Its descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same file, with another path for messages.
    pub(super) fn known_as(self, path: PathBuf) -> Self {
        Self { path, ..self }
    }

    /// Writes all of `bytes`.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.write_parts_at(offset, &mut [IoSlice::new(bytes)]).map(drop)
    }

    /// Writes all of these bytes, one part after the other. Returns how many of them wait in the
    /// kernel's cache for a flush; the others went past it.
    pub fn write_parts_at(
        &self,
        offset: u64,
        parts: &mut [IoSlice<'_>],
    ) -> Result<u64, TargetError> {
        self.shut_others_out()?;
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let past = if bytes < LARGE_MIN { 0..0 } else { self.write_past_cache(offset, parts)? };
        if past.is_empty() {
            self.write_through_cache(offset, parts)?;
            if let Some(length) = NonZeroU64::new(bytes as u64).filter(|_| bytes >= LARGE_MIN) {
                // The kernel begins at once to write what it is advised is not needed. It may
                // refuse.
                let _ = rustix::fs::fadvise(&self.fd, offset, Some(length), Advice::DontNeed);
            }
            return Ok(bytes as u64);
        }
        let waiting = (bytes - past.len()) as u64;
        for edge in [0..past.start, past.end..bytes] {
            let begin = offset + edge.start as u64;
            let mut parts: Vec<_> = cut(parts, edge).map(IoSlice::new).collect();
            self.write_through_cache(begin, &mut parts)?;
        }
        Ok(waiting)
    }

    /// Writes what is aligned, past the kernel's cache: this saves the time of copying many bytes
    /// into the cache, and keeps there what others need. Returns which bytes these were.
    fn write_past_cache(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<Range<usize>, TargetError> {
        let Some(fd) = self.past_cache.get_or_init(|| self.open_past_cache()) else {
            return Ok(0..0);
        };
        let write = |piece: &[u8], place| Ok(rustix::io::pwrite(fd, piece, place)?);
        let written = write_aligned(offset, parts, write).map_err(|error| {
            self.failed("write to", Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        self.length.fetch_max(offset + written.end as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn open_past_cache(&self) -> Option<OwnedFd> {
        let magic = rustix::fs::fstatfs(&self.fd).ok()?.f_type;
        PAST_CACHE_GOOD.iter().find(|good| i64::from(**good) == magic as i64)?;
        // Several threads may write at once if the file is long enough already.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.reach_size().ok()?;
        drop(turn);
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        rustix::fs::open(proc_path(&self.fd), flags, Mode::empty()).ok()
    }

    fn write_through_cache(
        &self,
        mut offset: u64,
        mut parts: &mut [IoSlice<'_>],
    ) -> Result<(), TargetError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let some = &parts[..parts.len().min(PARTS_MAX)];
            match rustix::io::pwritev(&self.fd, some, offset) {
                Ok(0) => return Err(self.failed("write to", Errno::NOSPC)),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut parts, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("write to", error)),
            }
        }
        self.length.fetch_max(offset, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the file's content until the buffer is full or the file ends; returns how many bytes.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TargetError> {
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&self.fd, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("read", error)),
            }
        }
        Ok(done)
    }

    /// Makes a range a hole, as far as the file system can; it reads as zeros in any case. If it is
    /// a hole already, nothing is changed.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<(), TargetError> {
        let end = offset.saturating_add(bytes).min(self.size);
        let mut from = offset;
        while let Some(extent) = self.next_extent(from)?.filter(|extent| extent.offset < end) {
            let extent_end = (extent.offset + extent.bytes).min(end);
            self.shut_others_out()?;
            self.zero(extent.offset, extent_end - extent.offset)?;
            from = extent_end;
        }
        Ok(())
    }

    /// The first run of stored bytes at or after an offset; what precedes it is a hole.
    pub fn next_extent(&self, offset: u64) -> Result<Option<Extent>, TargetError> {
        let _guard = self.seek.lock().unwrap_or_else(PoisonError::into_inner);
        extent_behind(self.fd.as_fd(), offset, self.size)
            .map_err(|error| self.failed("find the holes of", error))
    }

    pub(super) fn into_parts(self) -> (OwnedFd, PathBuf) {
        (self.fd, self.path)
    }

    /// Extends it to its final length: writing has done that for most files. Not while others
    /// write.
    pub fn reach_size(&self) -> Result<(), TargetError> {
        if self.length.load(Ordering::Relaxed) < self.size {
            self.set_length(self.size)?;
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<(), TargetError> {
        rustix::fs::ftruncate(&self.fd, length)
            .map_err(|error| self.failed("change the length of", error))?;
        self.length.store(length, Ordering::Relaxed);
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64) -> Result<(), TargetError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.fd, flags, offset, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(self.failed("make a hole in", error)),
        }
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).min(ZEROS.len() as u64);
            self.write_at(offset + done, &ZEROS[..step as usize])?;
            done += step;
        }
        Ok(())
    }

    fn shut_others_out(&self) -> Result<(), TargetError> {
        if !self.open_to_others.load(Ordering::Acquire) {
            return Ok(());
        }
        // If two threads come at once, both do it: neither may write before.
        rustix::fs::fchmod(&self.fd, Mode::RUSR | Mode::WUSR)
            .map_err(|error| self.failed("change the mode of", error))?;
        self.open_to_others.store(false, Ordering::Release);
        Ok(())
    }

    fn failed(&self, operation: &'static str, error: Errno) -> TargetError {
        TargetError::io(operation, &self.path, error)
    }
}

fn is_open_to_others(stat: &Statx) -> bool {
    stat.stx_mode & 0o7077 != 0
}
