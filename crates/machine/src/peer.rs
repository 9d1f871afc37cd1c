//! Who is at the other end of a Unix socket. A process outside of this one's PID namespace has the
//! number 0, which no `Pid` of rustix can have, so the answer of the kernel is read as plain numbers.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Who is on the other side, as the kernel says.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The process, if it has a number in the PID namespace of this one.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Who listens on a socket, or connected to it.
pub fn peer_of(socket: &UnixStream) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the value has as many bytes as the length says, and any bytes are valid numbers.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let libc::ucred { pid, uid, gid } = found;
    Ok(Peer { pid: Some(pid).filter(|&pid| pid > 0), uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_our_own_has_us_at_the_other_end() {
        let (ours, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_of(&ours).unwrap().pid, Some(std::process::id().cast_signed()));
    }
}
