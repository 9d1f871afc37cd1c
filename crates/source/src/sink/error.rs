//! What can go wrong while a tree is restored.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// What is tried when a file gets a further name.
pub(super) const LINK: &str = "create the hard link";

/// Why something could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The kernel refused.
    #[error("cannot {operation} {path:?}: {error}")]
    Io {
        /// What was tried, to be read after "cannot".
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The kernel refused one extended attribute.
    #[error(
        "cannot {operation} the extended attribute {:?} of {path:?}: {error}",
        String::from_utf8_lossy(name)
    )]
    Xattr {
        /// What was tried, to be read after "cannot".
        operation: &'static str,
        /// The attribute.
        name: Vec<u8>,
        /// What has the attribute.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Something else must replace a directory, and nothing may be deleted.
    #[error(
        "{path:?} is a directory, and {wanted} must be restored there: move it away, or allow \
         deleting, and restore again"
    )]
    DirectoryInTheWay {
        /// The directory.
        path: PathBuf,
        /// What must be restored there, with its article.
        wanted: &'static str,
    },
    /// A directory to be removed holds a mounted file system.
    #[error("{path:?} was not removed, because a file system is mounted there: unmount it first")]
    MountInTheWay {
        /// Where it is mounted.
        path: PathBuf,
    },
    /// A directory to be removed is one that is to be kept.
    #[error("{path:?} was not removed, because it holds the repository or its cache")]
    KeptInTheWay {
        /// The directory.
        path: PathBuf,
    },
    /// A directory into which something was to be restored is one that is to be kept.
    #[error("nothing was restored into {path:?}, because it holds the repository or its cache")]
    Kept {
        /// The directory.
        path: PathBuf,
    },
    /// A directory of which names were to be removed is the root of a file system that was not there
    /// when the backup was made.
    #[error(
        "nothing was removed from {path:?}: a file system is mounted there that was not when the backup \
         was made; unmount it, or remove from it what is not wanted"
    )]
    MountNotCleared {
        /// Where it is mounted.
        path: PathBuf,
    },
    /// A directory of which names were to be removed was missing when the backup was made.
    #[error(
        "nothing was removed from {path:?}: the snapshot says that what was in it was missing when the \
         backup was made, such as a disk that was not mounted; restore an older snapshot, or remove what \
         is not wanted"
    )]
    MissingNotCleared {
        /// The directory, or what was missing.
        path: PathBuf,
    },
    /// A directory above what was backed up is a symbolic link in the target.
    #[error(
        "nothing was restored below {path:?}: it is a symbolic link. Restore the path beyond it by itself, \
         `strongroom restore SNAPSHOT:PATH --in-place`, which follows the link"
    )]
    LinkInTheWay {
        /// The link.
        path: PathBuf,
    },
    /// The kernel said that it did something, and the file system does not keep it. Said once of a file
    /// system.
    #[error(
        "{path:?} has another {what} than was restored: this file system does not keep it, and of what \
         follows on it that is not said again"
    )]
    NotKept {
        /// The first of which it was seen.
        path: PathBuf,
        /// What it does not keep.
        what: &'static str,
    },
    /// What the restore was to create exists already: another process made it, or this file
    /// system takes another name of the snapshot for the same.
    #[error("{path:?} was not written, because it already exists")]
    Taken {
        /// Its path.
        path: PathBuf,
    },
    /// What the restore was writing has lost its name.
    #[error(
        "{path:?} is not restored: while it was being written, another process removed it or put \
         something in its place; restore again"
    )]
    Meddled {
        /// Its path.
        path: PathBuf,
    },
    /// A file that has all its content is still held: a mistake in this program.
    #[error(
        "{path:?} is not restored: it was still being written when it was complete, which is a fault of \
         this program; restore again"
    )]
    StillOpen {
        /// Its path.
        path: PathBuf,
    },
    /// A further name of a file whose first name has not come back.
    #[error(
        "{path:?} is not restored: it is another name of {}, which is not restored",
        first.display()
    )]
    FirstName {
        /// The further name.
        path: PathBuf,
        /// The first one.
        first: PathBuf,
    },
    /// A file does not contain what was written to it.
    #[error(
        "{path:?} is not what was written to it ({wrong} wrong parts): check the disk, and restore \
         again"
    )]
    ReadsOtherwise {
        /// The file.
        path: PathBuf,
        /// How many chunks and holes are wrong.
        wrong: usize,
    },
    /// A directory was moved while its content was removed.
    #[error("{path:?} was moved while it was being removed; the rest of it was not removed")]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
    /// The entry has a name that could lead elsewhere.
    #[error("{:?} in {directory:?} is not a valid name", String::from_utf8_lossy(name))]
    BadName {
        /// The directory that it belongs to.
        directory: PathBuf,
        /// The name.
        name: Vec<u8>,
    },
    /// A file or a directory is made by a method of its own.
    #[error("{path:?} is not a special file")]
    NotSpecial {
        /// Where it belongs.
        path: PathBuf,
    },
}

impl TargetError {
    pub(crate) fn io(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), error: error.into() }
    }

    /// Whether what was wanted is a further name of a file, and the target has no hard links there: its
    /// file system has none, or no more of this file, or is another, or this user may not make them.
    pub fn is_lack_of_links(&self) -> bool {
        const REFUSALS: [Errno; 5] =
            [Errno::PERM, Errno::XDEV, Errno::MLINK, Errno::OPNOTSUPP, Errno::NOSYS];
        let refusal = |error: &io::Error| error.raw_os_error().map(Errno::from_raw_os_error);
        match self {
            Self::Io { operation: LINK, error, .. } => {
                refusal(error).is_some_and(|error| REFUSALS.contains(&error))
            }
            _ => false,
        }
    }

    /// Whether this user may not do it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The path that it is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Xattr { path, .. }
            | Self::DirectoryInTheWay { path, .. }
            | Self::MountInTheWay { path }
            | Self::KeptInTheWay { path }
            | Self::Kept { path }
            | Self::MountNotCleared { path }
            | Self::MissingNotCleared { path }
            | Self::LinkInTheWay { path }
            | Self::NotKept { path, .. }
            | Self::Taken { path }
            | Self::Meddled { path }
            | Self::StillOpen { path }
            | Self::FirstName { path, .. }
            | Self::ReadsOtherwise { path, .. }
            | Self::Moved { path }
            | Self::NotSpecial { path } => path,
            Self::BadName { directory, .. } => directory,
        }
    }
}
