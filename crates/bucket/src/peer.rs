//! Who is at the other end of a Unix socket. A process outside of this one's PID namespace has the
//! number 0, which no `Pid` can have, so the answer of the kernel is read as plain numbers.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The level of options of all sockets.
const SOL_SOCKET: c_int = 1;
/// The option that says who connected.
const SO_PEERCRED: c_int = 17;

/// Who is on the other side, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The process that connected, if it has a number in the PID namespace of this one.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// `struct ucred` of Linux.
#[repr(C)]
struct Credentials {
    pid: i32,
    uid: u32,
    gid: u32,
}

// SAFETY: the declaration is that of POSIX.
unsafe extern "C" {
    fn getsockopt(
        socket: c_int,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        length: *mut u32,
    ) -> c_int;
}

/// Who connected a socket.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut found = Credentials { pid: 0, uid: 0, gid: 0 };
    let bytes = size_of::<Credentials>();
    let mut length = bytes as u32;
    // SAFETY: the value has as many bytes as the length says, and any bytes are valid numbers.
    let outcome = unsafe {
        let value = (&raw mut found).cast();
        getsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_PEERCRED, value, &raw mut length)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let Credentials { pid, uid, gid } = found;
    Ok(Peer { pid: Some(pid).filter(|&pid| pid > 0), uid, gid })
}
