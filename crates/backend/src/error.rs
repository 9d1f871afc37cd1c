//! What can go wrong with a place that keeps objects.

use std::fmt;
use std::io;

use crate::name::ObjectName;

/// What was being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening the place itself.
    Open,
    /// Reading an object, or its size.
    Read,
    /// Creating or replacing an object.
    Write,
    /// Removing an object.
    Remove,
    /// Listing a folder.
    List,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Remove => "remove",
            Self::List => "list",
        })
    }
}

/// What can go wrong with a place that keeps objects.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// There is no such object.
    #[error("{name} is not there")]
    NotFound {
        /// The object.
        name: ObjectName,
    },
    /// Somebody created it first.
    #[error("{name} is there already")]
    AlreadyExists {
        /// The object.
        name: ObjectName,
    },
    /// The place is full.
    #[error("no space left to write {name}")]
    NoSpace {
        /// The object that did not fit.
        name: ObjectName,
    },
    /// An object too large for this machine's memory.
    #[error("{name} has {bytes} bytes, too many to read whole")]
    TooLarge {
        /// The object.
        name: ObjectName,
        /// Its size.
        bytes: u64,
    },
    /// Anything else that the system says.
    #[error("cannot {operation} {what}: {source}")]
    Io {
        /// What was being done.
        operation: Operation,
        /// To which object or place.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl BackendError {
    /// The error of an operation on an object, sorted by what the system said.
    pub fn io(operation: Operation, name: &ObjectName, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound if operation != Operation::Write => {
                Self::NotFound { name: name.clone() }
            }
            io::ErrorKind::AlreadyExists => Self::AlreadyExists { name: name.clone() },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { name: name.clone() }
            }
            _ => Self::Io { operation, what: name.to_string(), source },
        }
    }

    /// True where the object is simply not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
