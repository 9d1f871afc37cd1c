//! Where a server waits for its clients: a Unix socket, or TCP on the loopback.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::stream::Stream;

/// How long the door stays closed if the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A place where clients can connect.
#[derive(Debug)]
pub struct Listener(Door);

#[derive(Debug)]
enum Door {
    /// The path is removed at the end.
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// A Unix socket at a path where nothing is. Only its owner may connect; between its making and
    /// the change of its mode, the directory must keep others out. It is removed at the end.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let listener = Self(Door::Unix(listener, path.to_owned()));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::chmod(path, mode)?;
        listener.set_nonblocking()
    }

    /// TCP at an address of the loopback; port 0 is any that is free. Every user of the machine can
    /// connect. Other addresses are refused, because nothing encrypts the connection.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "NBD is not encrypted: only addresses of the loopback are served",
            ));
        }
        Self(Door::Tcp(TcpListener::bind(address)?)).set_nonblocking()
    }

    /// The address, if it is one of TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Door::Unix(..) => None,
            Door::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// A client may leave between the poll and its admission; then nothing may wait for the next.
    fn set_nonblocking(self) -> io::Result<Self> {
        match &self.0 {
            Door::Unix(listener, _) => listener.set_nonblocking(true)?,
            Door::Tcp(listener) => listener.set_nonblocking(true)?,
        }
        Ok(self)
    }

    /// Gives each connection to `admit`, until the other end of `woken` is closed.
    pub(super) fn wait_for_guests(self, woken: &UnixStream, admit: &dyn Fn(Stream)) {
        loop {
            let mut awaited =
                [PollFd::new(&self, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
            match poll(&mut awaited, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
            if !awaited[1].revents().is_empty() {
                return;
            }
            match self.accept() {
                Ok(stream) => admit(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Often too many open files: others have to end first.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Door::Unix(listener, _) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Door::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Door::Unix(listener, _) => listener.as_fd(),
            Door::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Door::Unix(_, path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
