//! Why an overlay cannot be opened.

use std::io;
use std::path::{Path, PathBuf};

/// Why an overlay cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The map is not one of an overlay, or is damaged.
    #[error("{path:?} is not the map of an overlay, or it is damaged")]
    NoMap {
        /// The map's file.
        path: PathBuf,
    },
    /// The overlay belongs to another base.
    #[error("{path:?} belongs to an overlay over another disk")]
    OtherBase {
        /// The map's file.
        path: PathBuf,
    },
    /// The map says that the overlay has data, but its file is missing or has another size.
    #[error("{path:?} is missing or has another size, but its map exists")]
    NoData {
        /// The overlay's file.
        path: PathBuf,
    },
    /// Another process uses it.
    #[error("the overlay of {path:?} is in use")]
    InUse {
        /// The map's file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("the overlay at {path:?} cannot be opened: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl OverlayError {
    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}
