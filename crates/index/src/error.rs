//! What can go wrong, as data.

use std::io;
use std::path::{Path, PathBuf};

/// The result of an operation on the index.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// Why the index cannot answer.
///
/// Both kinds may be treated as "the cache is broken": [`Index::reset`](crate::Index::reset), and
/// insert again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The operating system refused an operation.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory it was tried on.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// A file is not what was written.
    #[error("index file {} is damaged: {damage}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not match.
        damage: Damage,
    },
}

/// What does not match in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The manifest names the file, but it is not there.
    #[error("the file is missing")]
    Missing,
    /// The length differs from what the contents say.
    #[error("the file has the wrong length")]
    Length,
    /// It does not begin as such a file does.
    #[error("the {section} does not begin with its mark")]
    Magic {
        /// The part of the file.
        section: &'static str,
    },
    /// It is of a version that this program does not know.
    #[error("version {version} is not known")]
    Version {
        /// The version that was found.
        version: u32,
    },
    /// A checksum does not match.
    #[error("the checksum of the {section} does not match")]
    Checksum {
        /// The part of the file.
        section: &'static str,
    },
    /// The checksum matches, but the contents contradict each other or the manifest: another file,
    /// or a page of one, is in this place.
    #[error("the {section} belongs elsewhere")]
    Misplaced {
        /// The part of the file.
        section: &'static str,
    },
}

impl Damage {
    /// This damage, of the file at `path`.
    pub(crate) fn at(self, path: &Path) -> IndexError {
        IndexError::Damaged { path: path.to_owned(), damage: self }
    }
}

/// Names the operation and the file of an I/O error.
pub(crate) trait Context<T> {
    /// The same result, its error saying that it arose from `operation` on `path`.
    fn context(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| IndexError::Io { operation, path: path.to_owned(), source })
    }
}
