//! Extended attributes of a name in a directory, read and written without opening it.
//!
//! The kernel's calls take a path or an open file. A path of the form `/proc/self/fd/N/name`
//! is one name below an open directory, so it can neither grow too long nor lead elsewhere.

use std::collections::HashSet;
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use strongroom_catalog::Xattr;

/// The kernel lets neither a list nor a value grow longer.
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

/// A path of one name below an open directory; it lasts as long as the descriptor.
pub(crate) fn proc_path(directory: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut path = Vec::with_capacity(32 + name.count_bytes());
    // Writing to a vector does not fail.
    let _ = write!(path, "/proc/self/fd/{}/", directory.as_raw_fd());
    path.extend_from_slice(name.to_bytes());
    path
}

/// A path that leads to what is open and no further, also where that is a symbolic link.
pub(crate) fn proc_path_of(fd: BorrowedFd<'_>) -> Vec<u8> {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes()
}

/// All attributes of a name, sorted by theirs. A symbolic link is itself.
pub(crate) fn read(directory: BorrowedFd<'_>, name: &CStr) -> Result<Vec<Xattr>, Errno> {
    let path = proc_path(directory, name);
    let list = with_room(|list| rustix::fs::llistxattr(&path, spare_capacity(list)))?;
    let mut xattrs = Vec::new();
    for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match with_room(|value| rustix::fs::lgetxattr(&path, name, spare_capacity(value))) {
            Ok(value) => xattrs.push(Xattr { name: name.to_vec(), value }),
            // Taken off since it was listed.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    xattrs.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    Ok(xattrs)
}

/// Calls with little room first, and with all the room there can be need for where that is short.
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
