//! What is opened for its path alone: its mode can be changed without the right to read it, and
//! without following a symbolic link.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

/// Opens a name in a directory for its path alone; a symbolic link is itself.
pub(super) fn open(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Lets the owner of a directory list, change and enter it: users other than root need that
/// permission.
pub(super) fn let_owner_in(
    directory: BorrowedFd<'_>,
    name: &CStr,
    stat: &Statx,
) -> Result<(), Errno> {
    if stat.stx_mode & 0o700 == 0o700 {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(u32::from(stat.stx_mode & 0o7777) | 0o700);
    chmod(&open(directory, name)?, mode)
}

/// Changes the mode of what is open for its path alone.
pub(super) fn chmod(fd: &impl AsFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(proc_path(fd), mode)
}

/// A path that leads to what is open, and no further if that is a symbolic link.
pub(super) fn proc_path(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
