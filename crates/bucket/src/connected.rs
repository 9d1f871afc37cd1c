//! A connection with the agent: how it is made, and how messages go over it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};

use crate::error::BucketError;
use crate::message::{FromProgram, PROTOCOL, ToProgram};
use crate::wire::{self, Packet};

/// How long the agent may take to greet.
const GREETING: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug, Clone)]
pub struct Connected {
    socket: Arc<OwnedFd>,
    /// It is the n-th.
    pub number: u64,
}

impl Connected {
    pub fn new(socket: OwnedFd, number: u64) -> Self {
        Self { socket: Arc::new(socket), number }
    }

    pub fn send(
        &self,
        message: &FromProgram,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), BucketError> {
        let sent = wire::send(self.socket.as_fd(), &message.pack(), descriptor, None);
        sent.map_err(|_| {
            self.end();
            BucketError::AgentGone
        })
    }

    /// The next message. `None` if the other side is gone, or does not keep to the protocol.
    pub fn receive(&self) -> Option<ToProgram> {
        loop {
            wire::wait_readable(self.socket.as_fd(), None).ok()?;
            match wire::receive(self.socket.as_fd()) {
                Ok(Packet::Message(bytes, None)) => return ToProgram::unpack(&bytes).ok(),
                Err(rustix::io::Errno::AGAIN) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    pub fn end(&self) {
        // It may have ended before.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// Connects and greets. Returns the socket once the agent has taken the bucket.
pub fn greet(path: &Path, file: &str, number: u32) -> Result<OwnedFd, BucketError> {
    let socket = exchange(path, file, number)
        .map_err(|source| BucketError::NoAgent { socket: path.to_owned(), source })?;
    let reason = match wire::receive(socket.as_fd()) {
        Ok(Packet::Message(bytes, None)) => match ToProgram::unpack(&bytes) {
            Ok(ToProgram::Welcome { protocol: PROTOCOL }) => return Ok(socket),
            Ok(ToProgram::Welcome { protocol }) => format!(
                "it speaks version {protocol} and this library version {PROTOCOL}: use those of one \
                 release"
            ),
            Ok(ToProgram::Refused { reason }) => reason,
            Ok(_) => "its first message is no greeting".to_owned(),
            Err(error) => error.to_string(),
        },
        Ok(_) => "its first message is no greeting".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(BucketError::Refused { socket: path.to_owned(), file: file.to_owned(), number, reason })
}

/// Connects, greets, and waits for the greeting.
fn exchange(path: &Path, file: &str, number: u32) -> Result<OwnedFd, io::Error> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let hello = FromProgram::Hello { protocol: PROTOCOL, file: file.to_owned(), bucket: number };
    wire::send(socket.as_fd(), &hello.pack(), None, Some(GREETING))?;
    if wire::wait_readable(socket.as_fd(), Some(GREETING))? {
        Ok(socket)
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}
