//! What can go wrong while a tree is read.

use std::io;
use std::path::{Path, PathBuf};

/// Why something of a tree could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No path was given.
    #[error("no path is given: name at least one file or directory")]
    NoPaths,
    /// A path that was given does not exist.
    #[error("{path:?} does not exist")]
    Missing {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It existed when its directory was listed, and is gone.
    #[error("{path:?} vanished while its directory was being read")]
    Vanished {
        /// The path.
        path: PathBuf,
    },
    /// Something else has taken its place since it was listed.
    #[error("{path:?} was replaced by {now} while it was being read")]
    Changed {
        /// What was replaced.
        path: PathBuf,
        /// What is there now, with its article.
        now: &'static str,
    },
    /// A directory was moved away while something below it was being read.
    #[error("{path:?} was moved while it was being read; the rest of it was not stored")]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
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
    /// The kernel lists an extended attribute and does not give it.
    #[error(
        "cannot read the extended attribute {:?} of {path:?}: {error}",
        String::from_utf8_lossy(name)
    )]
    Xattr {
        /// The attribute.
        name: Vec<u8>,
        /// What has it.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Another process holds a lease on a file, and has not given it up yet: a file server whose client
    /// has the file open.
    #[error(
        "cannot open {path:?}: another process, such as a file server, holds a lease on it and has not \
         given it up"
    )]
    Leased {
        /// The file.
        path: PathBuf,
    },
    /// A file that says that it is empty was read, and did not end.
    #[error(
        "{path:?} says that it is empty, and did not end after {bytes} bytes: it was not stored"
    )]
    Endless {
        /// Its path.
        path: PathBuf,
        /// How much of it was read.
        bytes: u64,
    },
    /// A program that shows the tree of another machine shows nothing of it.
    #[error("of the {files} files that the program says are in it, it shows none")]
    NothingShown {
        /// How many there are.
        files: u64,
    },
    /// A file of a type that no Linux program can make.
    #[error("{path:?} is of the unknown file type {kind:#o}")]
    UnknownKind {
        /// Its path.
        path: PathBuf,
        /// The type bits of its mode.
        kind: u16,
    },
    /// An invalid exclude pattern.
    #[error("{}invalid pattern {pattern:?}: {reason}", place(file.as_deref(), *line))]
    Pattern {
        /// The file that contains it; `None` if it was given alone.
        file: Option<PathBuf>,
        /// The line, counted from one; if it was given alone, its number in the list.
        line: usize,
        /// The pattern as it was written.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl SourceError {
    pub(crate) fn io(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), error: error.into() }
    }

    /// Whether it is encrypted by its file system, and the kernel has no key to it.
    pub fn lacks_key(&self) -> bool {
        let no_key = rustix::io::Errno::NOKEY.raw_os_error();
        matches!(self, Self::Io { error, .. } if error.raw_os_error() == Some(no_key))
    }

    /// The path that it is about, if it is about one file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::NoPaths | Self::NothingShown { .. } => None,
            Self::Missing { path }
            | Self::Vanished { path }
            | Self::Changed { path, .. }
            | Self::Moved { path }
            | Self::Io { path, .. }
            | Self::Xattr { path, .. }
            | Self::Leased { path }
            | Self::Endless { path, .. }
            | Self::UnknownKind { path, .. } => Some(path),
            Self::Pattern { file, .. } => file.as_deref(),
        }
    }
}

fn place(file: Option<&Path>, line: usize) -> String {
    file.map(|file| format!("{}:{line}: ", file.display())).unwrap_or_default()
}
