//! What can go wrong with a place that keeps objects.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

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
    #[error("{name} does not exist")]
    NotFound {
        /// The object.
        name: ObjectName,
    },
    /// The name is taken by an object with other bytes.
    #[error("{name} already exists")]
    AlreadyExists {
        /// The object.
        name: ObjectName,
    },
    /// The place is full.
    #[error("no space left to write {name}")]
    NoSpace {
        /// The object that did not fit.
        name: ObjectName,
        /// Whether it may exist all the same, or come to exist: room was lacking only after that was decided.
        may_exist: bool,
    },
    /// An object that claims to be larger than an object of its kind can be.
    #[error("{name} has {bytes} bytes, more than any object of its kind")]
    TooLarge {
        /// The object.
        name: ObjectName,
        /// How many bytes it has, or claims to have.
        bytes: u64,
    },
    /// The system refuses this object, or a part of it; others may well be readable. Examples are a
    /// bad sector, a directory in the place of the object, and a missing permission
    /// ([`BackendError::withheld`]).
    #[error("cannot read {name}: {source}")]
    Unreadable {
        /// The object.
        name: ObjectName,
        /// What the system reported.
        source: io::Error,
    },
    /// The place does not have this operation.
    #[error("{place} cannot {ability}")]
    Unsupported {
        /// The place.
        place: String,
        /// What it lacks.
        ability: &'static str,
        /// The object.
        name: ObjectName,
    },
    /// The place answered, and refuses.
    #[error("cannot {operation} {what}: {answer}")]
    Refused {
        /// What was being done.
        operation: Operation,
        /// To which object or place.
        what: String,
        /// Why, as far as it is known.
        refusal: Refusal,
        /// What the place answered.
        answer: String,
    },
    /// Anything else that the system reports.
    #[error("cannot {operation} {what}: {source}")]
    Io {
        /// What was being done.
        operation: Operation,
        /// To which object or place.
        what: String,
        /// What the system reported.
        source: io::Error,
    },
}

/// Why a place refuses. Each has another next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There are no credentials for it.
    NoCredentials,
    /// The credentials are wrong or expired.
    Credentials,
    /// The credentials do not allow this operation.
    Right,
    /// The object is in an archive, and has to be brought back before it can be read.
    Archived,
    /// The bucket, share or account does not exist.
    NoSuchPlace,
    /// The bucket is in another region.
    Region,
    /// The clocks of this machine and of the place differ too much.
    Clock,
    /// The certificate or host key is not one that this machine trusts.
    Identity,
    /// The quota is used up.
    Quota,
    /// An object is locked until a time.
    Locked,
    /// The place found the bytes to be damaged or not allowed.
    Content,
    /// It keeps no earlier versions of its objects, or does not show them.
    NoVersions,
    /// Its listings lag behind, so no two machines could rely on what they see.
    Listings,
    /// The program at the far end is of another version, or is another program.
    Version,
    /// Any other reason.
    Other,
}

/// Why an object that exists is not given to the caller. Nothing is known of its bytes: it is neither
/// damaged nor lost, and there is nothing to repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Withheld {
    /// It is in an archive, and has to be brought back before it can be read.
    Archived,
    /// The user, the key or the token may not read it.
    Forbidden,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Archived => "waiting in an archive",
            Self::Forbidden => "not readable by this key",
        })
    }
}

impl BackendError {
    /// The error of an operation on an object, by the kind of what the system reported.
    pub fn io(operation: Operation, name: &ObjectName, source: io::Error) -> Self {
        match source.kind() {
            _ if operation == Operation::Read && concerns_one_object(&source) => {
                Self::Unreadable { name: name.clone(), source }
            }
            io::ErrorKind::NotFound if operation != Operation::Write => {
                Self::NotFound { name: name.clone() }
            }
            io::ErrorKind::AlreadyExists => Self::AlreadyExists { name: name.clone() },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { name: name.clone(), may_exist: false }
            }
            _ => Self::Io { operation, what: name.to_string(), source },
        }
    }

    /// Marks an error of a step after which the object may exist.
    pub(crate) fn unsettled(self) -> Self {
        match self {
            Self::NoSpace { name, .. } => Self::NoSpace { name, may_exist: true },
            other => other,
        }
    }

    /// The error of an operation on a path that is no object.
    pub(crate) fn at_path(operation: Operation, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, what: path.display().to_string(), source }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the medium refuses this object, or a part of it.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. }) && !self.is_withheld()
    }

    /// Whether this object cannot be read: damage, which says nothing about other objects.
    pub fn is_damage(&self) -> bool {
        self.is_unreadable() || matches!(self, Self::TooLarge { .. })
    }

    /// Whether something else than a file is in the place of the object, such as a FIFO: it holds
    /// nothing. What the system itself calls unsupported says nothing of that.
    pub fn is_no_file(&self) -> bool {
        let source = match self {
            Self::Unreadable { source, .. } | Self::Io { source, .. } => source,
            _ => return false,
        };
        let is_odd = source.kind() == io::ErrorKind::Unsupported && source.raw_os_error().is_none();
        is_odd || self.is_directory()
    }

    /// Whether a directory is in the place of the object. It may hold anything, so no program takes
    /// it away.
    pub fn is_directory(&self) -> bool {
        matches!(
            self,
            Self::Unreadable { source, .. } | Self::Io { source, .. }
                if source.kind() == io::ErrorKind::IsADirectory
        )
    }

    /// Why the object is not given to the caller, if that is all that was wrong with reading it; the same
    /// for the listing of a folder.
    pub fn withheld(&self) -> Option<Withheld> {
        match self {
            Self::Refused { operation: Operation::Read | Operation::List, refusal, .. } => {
                match refusal {
                    Refusal::Archived => Some(Withheld::Archived),
                    Refusal::Right => Some(Withheld::Forbidden),
                    _ => None,
                }
            }
            Self::Unreadable { source, .. }
            | Self::Io { operation: Operation::List, source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(Withheld::Forbidden)
            }
            _ => None,
        }
    }

    /// Whether the object exists and is not given to the caller: this says nothing of its bytes.
    pub fn is_withheld(&self) -> bool {
        self.withheld().is_some()
    }

    /// The place sent fewer bytes of an object than it has: an answer that was cut short, not damage.
    pub fn cut_short(name: &ObjectName, sent: u64, bytes: u64) -> Self {
        let why = format!("the place sent {sent} bytes of it, and says that it has {bytes}");
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, why);
        Self::Io { operation: Operation::Read, what: name.to_string(), source }
    }
}

/// Whether a failure to read is a matter of the one object, and not of the machine, the connection
/// or the whole place.
fn concerns_one_object(error: &io::Error) -> bool {
    if matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory | io::ErrorKind::Unsupported
    ) {
        return true;
    }
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::IO
                | Errno::LOOP
                | Errno::NXIO
                | Errno::NODEV
                // What block devices and file systems report when a checksum does not match.
                | Errno::NODATA
                | Errno::ILSEQ
                | Errno::BADMSG
                | Errno::UCLEAN
                | Errno::REMOTEIO
        )
    )
}
