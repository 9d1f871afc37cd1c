//! Extended attributes, read and written without opening what has them.
//!
//! The kernel's calls take a path or an open file. A path of the form `/proc/self/fd/N/name` is one
//! name below an open directory, so it can neither be too long nor lead elsewhere.

use std::collections::HashSet;
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use strongroom_catalog::Xattr;

/// The kernel's limit for a list and for a value.
const BYTES_MAX: usize = 64 * 1024;
/// Enough for nearly every list and value.
const BYTES_AT_FIRST: usize = 1024;

/// Remembers which file systems have no extended attributes at all.
#[derive(Debug, Default)]
pub(crate) struct XattrSupport(Mutex<HashSet<u64>>);

impl XattrSupport {
    pub(crate) fn lacks(&self, device: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&device)
    }

    pub(crate) fn note_lack(&self, device: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(device);
    }
}

/// Something that has extended attributes.
pub(crate) enum Bearer<'a> {
    /// A file or directory that is open for more than its path.
    Open(BorrowedFd<'a>),
    /// A path below `/proc/self/fd`; a symbolic link at its end is itself.
    Name(Vec<u8>),
    /// The path of a descriptor that was opened for its path only; it leads to that file, and no
    /// further.
    PathOnly(Vec<u8>),
}

impl<'a> Bearer<'a> {
    pub(crate) fn open(fd: &'a impl AsFd) -> Self {
        Self::Open(fd.as_fd())
    }

    pub(crate) fn name(directory: BorrowedFd<'_>, name: &CStr) -> Self {
        let mut path = Vec::with_capacity(32 + name.count_bytes());
        // Writing to a vector does not fail.
        let _ = write!(path, "/proc/self/fd/{}/", directory.as_raw_fd());
        path.extend_from_slice(name.to_bytes());
        Self::Name(path)
    }

    pub(crate) fn path_only(fd: &impl AsFd) -> Self {
        Self::PathOnly(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into_bytes())
    }

    /// All attributes, sorted by name.
    pub(crate) fn read(&self) -> Result<Vec<Xattr>, Errno> {
        let list = with_room(|list| self.list(list)).map_err(missing_proc)?;
        let mut xattrs = Vec::new();
        for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match with_room(|value| self.get(name, value)) {
                Ok(value) => xattrs.push(Xattr { name: name.to_vec(), value }),
                // Removed since it was listed.
                Err(Errno::NODATA) => {}
                Err(error) => return Err(error),
            }
        }
        xattrs.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(xattrs)
    }

    pub(crate) fn set(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            Self::Name(path) => rustix::fs::lsetxattr(path, name, value, flags),
            Self::PathOnly(path) => rustix::fs::setxattr(path, name, value, flags),
        }
    }

    pub(crate) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fremovexattr(fd, name),
            Self::Name(path) => rustix::fs::lremovexattr(path, name),
            Self::PathOnly(path) => rustix::fs::removexattr(path, name),
        }
    }

    fn list(&self, list: &mut Vec<u8>) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, spare_capacity(list)),
            Self::Name(path) => rustix::fs::llistxattr(path, spare_capacity(list)),
            Self::PathOnly(path) => rustix::fs::listxattr(path, spare_capacity(list)),
        }
    }

    fn get(&self, name: &[u8], value: &mut Vec<u8>) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, spare_capacity(value)),
            Self::Name(path) => rustix::fs::lgetxattr(path, name, spare_capacity(value)),
            Self::PathOnly(path) => rustix::fs::getxattr(path, name, spare_capacity(value)),
        }
    }
}

/// If `/proc` is not mounted, that is what is missing, and not the file.
fn missing_proc(error: Errno) -> Errno {
    let mounted = || rustix::fs::access("/proc/self/fd", rustix::fs::Access::EXISTS).is_ok();
    if error == Errno::NOENT && !mounted() { Errno::NOSYS } else { error }
}

/// Calls with little room first, and again with all the room that can be needed if that is short.
fn with_room(mut call: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(BYTES_AT_FIRST);
    match call(&mut bytes) {
        Err(Errno::RANGE) => {
            bytes = Vec::with_capacity(BYTES_MAX);
            call(&mut bytes)?;
        }
        other => {
            other?;
        }
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}
