//! Regions of memory: shared memory, huge pages and mapped files, read while their owners write.
//!
//! A region is read by `pread` and never through a mapping: its owner may cut it short at any time,
//! and a process that reads a mapping behind its end is killed (SIGBUS). The kernel's notes of what was
//! written are of no use here: they are of one page table, so what another process writes through its
//! own mapping is in none that we could ask (`docs/design/0035-memory.md`).

pub mod freezer;
pub mod handed;
pub mod huge;
pub mod mark;
pub mod process;
mod system;
pub mod writers;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use strongroom_base::Timestamp;
use strongroom_catalog::Metadata;

/// Its owner cut it short.
const SHORTER: &str = "it became shorter while it was read: store it again";

/// A region of memory, which may change while it is read. Many threads read it at the same time.
pub trait Memory: Send + Sync {
    /// How long it is, in bytes. It is read up to there.
    fn bytes(&self) -> u64;

    /// Fills `buffer` with what is at `offset`. It fails if the region ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Whether a range may hold anything but zeros.
    fn has_data(&self, _range: Range<u64>) -> bool {
        true
    }

    /// Finds out whether this is still the whole region that is there by its name.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whom it belongs to, and its times.
    fn metadata(&self) -> Metadata;
}

/// A region that is a file: POSIX shared memory, a file of huge pages, one that a program has
/// mapped, or a memfd by its name below `/proc`.
#[derive(Debug)]
pub struct MemoryFile {
    /// Its name; none of a file that another process has handed over.
    path: Option<PathBuf>,
    file: File,
    bytes: u64,
    metadata: Metadata,
    /// It is another file than the owner's.
    is_held: bool,
    /// The owner has the same position in it, which is left alone.
    is_shared: bool,
}

impl MemoryFile {
    /// Opens a region.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        // A pipe is not waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
        let metadata = metadata_of(&file)?;
        Ok(Self {
            path: Some(path.to_owned()),
            bytes: metadata.size,
            file,
            metadata,
            is_held: false,
            is_shared: false,
        })
    }

    /// The same region as it is in this moment, if its file system can hold on to it (XFS, Btrfs):
    /// a file without a name that shares its blocks. The kernel stops writers to a mapping until it
    /// has it, so it is the region at one instant.
    pub fn hold_on(&self) -> io::Result<Self> {
        let folder = self.path.as_deref().and_then(Path::parent).ok_or(Errno::NOENT)?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let held = rustix::fs::open(folder, flags, rustix::fs::Mode::RUSR)?;
        rustix::fs::ioctl_ficlone(&held, &self.file)?;
        let file = File::from(held);
        let bytes = file.metadata()?.len();
        let metadata = Metadata { size: bytes, ..self.metadata.clone() };
        let path = self.path.clone();
        Ok(Self { path, file, bytes, metadata, is_held: true, is_shared: false })
    }
}

impl Memory for MemoryFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other(SHORTER),
            _ => error,
        })
    }

    fn has_data(&self, range: Range<u64>) -> bool {
        if self.is_shared {
            return true;
        }
        // The position of the file is used for nothing else. What knows no holes is all data.
        match rustix::fs::seek(&self.file, SeekFrom::Data(range.start)) {
            Ok(data) => data < range.end,
            Err(Errno::NXIO) => false,
            Err(_) => true,
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.is_held {
            return Ok(());
        }
        let here = metadata_of(&self.file)?;
        // What it lost may never have been read: behind the end, as in a hole, there is no data.
        if here.size < self.bytes {
            return Err(io::Error::other(SHORTER));
        }
        let Some(path) = &self.path else { return Ok(()) };
        let now = File::open(path).and_then(|file| metadata_of(&file));
        if now.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(io::Error::other("it was removed while it was read"));
        }
        if now.is_ok_and(|now| (here.device, here.inode) != (now.device, now.inode)) {
            return Err(io::Error::other("another file took its name: store it again"));
        }
        if here.size > self.bytes {
            return Err(io::Error::other("it became longer while it was read: store it again"));
        }
        Ok(())
    }

    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }
}

fn metadata_of(file: &File) -> io::Result<Metadata> {
    let stat = crate::inode::stat_fd(file.as_fd())?;
    if crate::inode::kind_of(&stat) != FileType::RegularFile {
        let kind = crate::inode::kind_text(crate::inode::kind_of(&stat));
        return Err(io::Error::other(format!("it is {kind}, and no region of memory")));
    }
    if system::is_made_up(file) {
        return Err(io::Error::other("it is made by the kernel, and no region of memory"));
    }
    let time = |at: rustix::fs::StatxTimestamp| {
        Timestamp(at.tv_sec.saturating_mul(1_000_000_000).saturating_add(at.tv_nsec.into()))
    };
    Ok(Metadata {
        mode: stat.stx_mode & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        inode: stat.stx_ino,
        device: crate::inode::device_of(&stat),
        links: stat.stx_nlink.into(),
        size: stat.stx_size,
        ..Metadata::default()
    })
}

#[cfg(test)]
mod tests;
