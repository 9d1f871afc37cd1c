//! Where a repository is, as a person writes it.
//!
//! The one place that knows which kinds of places there are: a new one is a variant of [`Place`],
//! an arm of each function here, and an implementation of [`Backend`].

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Backend, BackendError, LocalBackend, Operation};

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A folder of this machine.
    Folder(PathBuf),
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It names something on another machine or in a service.
    #[error("this version keeps repositories in local folders, not at {}", .place.display())]
    Remote {
        /// What was written.
        place: OsString,
    },
    /// It is empty.
    #[error("the name of the repository's folder is empty")]
    Empty,
}

impl Place {
    /// The place that a text names.
    ///
    /// As with rsync and scp, a colon before the first slash makes it remote: `s3:bucket`,
    /// `sftp://host/folder`, `me@host:folder`. A folder with such a name is written `./s3:bucket`.
    pub fn parse(text: &OsStr) -> Result<Self, PlaceError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(PlaceError::Empty);
        }
        if let Some(path) = bytes.strip_prefix(b"file://") {
            return Ok(Self::Folder(PathBuf::from(OsStr::from_bytes(path))));
        }
        let first = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
        if first.contains(&b':') {
            return Err(PlaceError::Remote { place: text.to_owned() });
        }
        Ok(Self::Folder(PathBuf::from(text)))
    }

    /// Opens the place; none if nothing is there.
    pub fn open(&self) -> Result<Option<Arc<dyn Backend>>, BackendError> {
        let Self::Folder(path) = self;
        match LocalBackend::open(path) {
            Ok(backend) => Ok(Some(Arc::new(backend))),
            Err(BackendError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the place if it does not exist, and opens it.
    pub fn create(&self) -> Result<Arc<dyn Backend>, BackendError> {
        let Self::Folder(path) = self;
        Ok(Arc::new(LocalBackend::create(path)?))
    }

    /// Whether nothing exists there except, perhaps, this folder: not even files that no
    /// [`Backend`] would list.
    pub fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        let Self::Folder(path) = self;
        match std::fs::read_dir(path) {
            Ok(mut entries) => {
                Ok(entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == folder)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(source) => Err(BackendError::at_path(Operation::Open, path, source)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Folder(path) = self;
        write!(f, "{}", path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_is_remote() {
        for (text, path) in [
            ("/room", Some("/room")),
            ("room", Some("room")),
            ("./s3:bucket", Some("./s3:bucket")),
            ("/mnt/10:30", Some("/mnt/10:30")),
            ("file:///room", Some("/room")),
            ("s3:bucket/x", None),
            ("s3://bucket/x", None),
            ("sftp:host:/x", None),
            ("me@host:room", None),
            ("", None),
        ] {
            let parsed = Place::parse(text.as_ref()).ok();
            assert_eq!(parsed, path.map(|path| Place::Folder(path.into())), "{text:?}");
        }
    }
}
