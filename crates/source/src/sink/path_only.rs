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
/// permission. Returns the mode that it had, if that is another one.
pub(super) fn let_owner_in(
    directory: BorrowedFd<'_>,
    name: &CStr,
    stat: &Statx,
) -> Result<Option<Mode>, Errno> {
    if stat.stx_mode & 0o700 == 0o700 {
        return Ok(None);
    }
    let former = Mode::from_raw_mode(u32::from(stat.stx_mode & 0o7777));
    chmod(&open(directory, name)?, former | Mode::RWXU)?;
    Ok(Some(former))
}

/// Changes the mode of what is open for its path alone.
pub(super) fn chmod(fd: &impl AsFd, mode: Mode) -> Result<(), Errno> {
    match rustix::fs::chmod(proc_path(fd), mode) {
        Err(Errno::NOENT) => chmod_without_proc(fd, mode),
        changed => changed,
    }
}

/// The same where no `/proc` is mounted; it takes Linux 6.6.
fn chmod_without_proc(fd: &impl AsFd, mode: Mode) -> Result<(), Errno> {
    /// `fchmodat2`: newer calls have the same number on all machines.
    const NUMBER: libc::c_long = 452;
    let (fd, flags) = (fd.as_fd().as_raw_fd(), libc::AT_EMPTY_PATH);
    // SAFETY: the kernel gets numbers, and reads an empty text that outlives the call.
    let result = unsafe { libc::syscall(NUMBER, fd, c"".as_ptr(), mode.as_raw_mode(), flags) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOENT)),
    }
}

/// A path that leads to what is open, and no further if that is a symbolic link.
pub(super) fn proc_path(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_changed_without_proc_as_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(folder.path()).unwrap();
        let (kind, usual) = (rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(&directory, c"pipe", kind, usual, 0).unwrap();
        let pipe = open(directory.as_fd(), c"pipe").unwrap();
        let mode_of = || rustix::fs::fstat(&pipe).unwrap().st_mode & 0o7777;
        for bits in [0o644, 0o4755, 0] {
            let mode = Mode::from_raw_mode(bits);
            match chmod_without_proc(&pipe, mode) {
                // Linux before 6.6.
                Err(Errno::NOSYS) => return,
                changed => changed.unwrap(),
            }
            let without = mode_of();
            rustix::fs::chmod(proc_path(&pipe), usual).unwrap();
            rustix::fs::chmod(proc_path(&pipe), mode).unwrap();
            assert_eq!((without, mode_of()), (bits, bits));
        }
        // A symbolic link has no mode.
        rustix::fs::symlinkat(c"pipe", &directory, c"link").unwrap();
        let link = open(directory.as_fd(), c"link").unwrap();
        assert_eq!(chmod_without_proc(&link, usual), chmod(&link, usual));
    }
}
