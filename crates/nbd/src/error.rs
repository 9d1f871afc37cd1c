//! What can go wrong between a client and its server.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::wire::{Errno, ProtocolError};

/// Why a client could not do something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NbdError {
    /// The export could not be opened.
    #[error("cannot open the NBD export {export:?}: {cause}")]
    Open {
        /// The export's name.
        export: String,
        /// Why.
        cause: Cause,
    },
    /// A request failed.
    #[error("NBD export {export:?}: {asked} failed: {cause}")]
    Request {
        /// The export's name.
        export: String,
        /// The request.
        asked: Asked,
        /// Why.
        cause: Cause,
    },
}

impl NbdError {
    /// Why it failed.
    pub fn cause(&self) -> &Cause {
        match self {
            Self::Open { cause, .. } | Self::Request { cause, .. } => cause,
        }
    }
}

/// A request, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// What was asked for, such as `read`.
    pub command: &'static str,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes at {}", self.command, self.bytes, self.offset)
    }
}

/// Why a request or a connection failed. All but [`Cause::Refused`], [`Cause::NotOffered`],
/// [`Cause::Outside`] and [`Cause::Unaligned`] end the connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// The server refused. The connection goes on.
    #[error("the server answers: {errno}{}", in_brackets(message))]
    Refused {
        /// Its error number.
        errno: Errno,
        /// Its words, if it has any.
        message: String,
    },
    /// The server refused an option while the connection was being made.
    #[error("the server refuses{}", in_brackets(message))]
    NotOpened {
        /// The number of its answer.
        answer: u32,
        /// Its words, if it has any.
        message: String,
    },
    /// The server does not offer this.
    #[error("the server does not offer {0}")]
    NotOffered(&'static str),
    /// The range is not within the disk.
    #[error("the disk has only {size} bytes")]
    Outside {
        /// The size of the disk.
        size: u64,
    },
    /// A write does not begin and end at a block of the server.
    #[error("the server's blocks have {block_bytes} bytes")]
    Unaligned {
        /// The size of a block.
        block_bytes: u32,
    },
    /// The server broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The server did not answer in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server ended the connection.
    #[error("the server ended the connection")]
    Closed,
    /// The socket failed.
    #[error("{0}")]
    Io(Arc<io::Error>),
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(Arc::new(error)),
        }
    }
}

fn in_brackets(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message:?})") }
}
