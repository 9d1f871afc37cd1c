//! The agent's side: it listens on a Unix socket, and speaks with one program over each connection.
//!
//! A program is not trusted: each message is checked before it is returned, and one that breaks the
//! protocol ends its connection. What the agent must answer, and when, is in
//! `docs/format/bucket.md`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, chmod, fstat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with,
};

use crate::format::MessageError;
use crate::message::{FromProgram, ToProgram};
use crate::peer::peer_of;
use crate::wire::{self, Packet};

pub use crate::peer::Peer;

/// Programs that may wait to be let in.
const BACKLOG: i32 = 64;
/// How long a program may leave messages unread before its connection ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a connection is of no use any more, or none could be made.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    /// Another agent listens.
    #[error("another agent listens on {}: end it, or choose another socket", .0.display())]
    Taken(PathBuf),
    /// Something else is there.
    #[error("{} exists and is no socket: remove it, or choose another path", .0.display())]
    NoSocket(PathBuf),
    /// The socket could not be made.
    #[error("cannot listen on {}: {source}", socket.display())]
    Listen {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system failed.
    #[error("the connection with a program failed: {0}")]
    System(#[from] io::Error),
    /// The program sent what is no message.
    #[error("the program broke the protocol: {0}")]
    Message(#[from] MessageError),
    /// The program sent more than a message may have, or a descriptor beside the wrong message.
    #[error("the program broke the protocol: {0}")]
    Packet(&'static str),
    /// The program reads nothing.
    #[error("the program did not read its messages for 10 seconds")]
    Stuck,
}

/// A socket on which programs are awaited. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

/// A connection with a program. It may be used by several threads.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: Peer,
}

/// What came from a program.
#[derive(Debug)]
pub enum Received {
    /// A message. Only [`FromProgram::Region`] has a descriptor; it is not there if this process may open
    /// no more files.
    Message(FromProgram, Option<OwnedFd>),
    /// Nothing within the time.
    Nothing,
    /// The program closed the connection, or died.
    End,
}

impl Listener {
    /// Listens on a path, with the mode of the socket's file (0o600: the same user alone; 0o666: all).
    /// A socket that an agent left behind is replaced.
    ///
    /// # Errors
    ///
    /// If another agent listens there, or the path cannot be used.
    pub fn bind(path: &Path, mode: u32) -> Result<Self, ServedError> {
        let failed = |source: io::Error| ServedError::Listen { socket: path.to_owned(), source };
        let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
        remove_stale(path, &address)?;
        let socket = new_socket().map_err(|error| failed(error.into()))?;
        bind(&socket, &address).map_err(|error| failed(error.into()))?;
        let listener = Self { socket, path: path.to_owned() };
        set_mode(path, mode).map_err(&failed)?;
        listen(&listener.socket, BACKLOG).map_err(|error| failed(error.into()))?;
        Ok(listener)
    }

    /// The next program. `None` if none came within the time; without a time it waits for ever.
    ///
    /// # Errors
    ///
    /// If the system fails.
    pub fn accept(&self, time: Option<Duration>) -> Result<Option<Connection>, ServedError> {
        if !wire::wait_readable(self.socket.as_fd(), time).map_err(io::Error::from)? {
            return Ok(None);
        }
        let socket = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            // It went away again.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let peer = peer_of(socket.as_fd())?;
        Ok(Some(Connection { socket, peer }))
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// To be polled: readable when a program waits.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another process may have removed it, and the next agent replaces it.
        drop(fs::remove_file(&self.path));
    }
}

impl Connection {
    /// Who is on the other side.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The next message. With a time of zero it returns at once; without a time it waits for ever.
    ///
    /// # Errors
    ///
    /// If the program broke the protocol. Then the connection is to be dropped.
    pub fn receive(&self, time: Option<Duration>) -> Result<Received, ServedError> {
        if !wire::wait_readable(self.socket.as_fd(), time).map_err(io::Error::from)? {
            return Ok(Received::Nothing);
        }
        let packet = match wire::receive(self.socket.as_fd()) {
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            packet => packet.map_err(io::Error::from)?,
        };
        match packet {
            Packet::Message(bytes, descriptor) => {
                let message = FromProgram::unpack(&bytes)?;
                let is_region = matches!(message, FromProgram::Region { .. });
                if is_region != descriptor.is_some() {
                    return Err(ServedError::Packet("an area has one descriptor, others none"));
                }
                Ok(Received::Message(message, descriptor))
            }
            Packet::WithoutDescriptor(bytes) => match FromProgram::unpack(&bytes)? {
                message @ FromProgram::Region { .. } => Ok(Received::Message(message, None)),
                _ => Err(ServedError::Packet("an area has one descriptor, others none")),
            },
            Packet::Oversized => Err(ServedError::Packet("a message is too long")),
            Packet::End => Ok(Received::End),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// If the program is gone or reads nothing. Then the connection is to be dropped.
    pub fn send(&self, message: &ToProgram) -> Result<(), ServedError> {
        match wire::send(self.socket.as_fd(), &message.pack(), None, Some(PATIENCE)) {
            Err(Errno::TIMEDOUT) => Err(ServedError::Stuck),
            sent => Ok(sent.map_err(io::Error::from)?),
        }
    }

    /// Whether the program has ended the connection. What it sent before may still be there.
    pub fn is_over(&self) -> bool {
        wire::is_over(self.socket.as_fd())
    }

    /// Ends the connection for all threads that use it.
    pub fn end(&self) {
        // The program may have ended it before.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// To be polled: readable when a message or the end is there.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sets the mode of a socket that was just made. Who may write to its folder could have put a link to
/// something else in its place.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let socket = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("something else took its place"));
    }
    let itself = format!("/proc/self/fd/{}", socket.as_raw_fd());
    Ok(chmod(itself, Mode::from_raw_mode(mode))?)
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), ServedError> {
    let failed = |source: io::Error| ServedError::Listen { socket: path.to_owned(), source };
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !kind.is_socket() {
        return Err(ServedError::NoSocket(path.to_owned()));
    }
    let socket = new_socket().map_err(|error| failed(error.into()))?;
    match connect(&socket, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed),
        Ok(()) => Err(ServedError::Taken(path.to_owned())),
        Err(error) => Err(failed(error.into())),
    }
}
