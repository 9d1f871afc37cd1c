//! Why something of a disk could not be read.

use std::io;

use crate::understood::NotUnderstood;

/// Why something of a disk could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The reader failed.
    #[error("the disk could not be read: {0}")]
    Io(#[from] io::Error),
    /// A structure contradicts itself, the disk, or its checksum.
    #[error("damaged at {at}: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Which block, inode or byte of the volume is meant; `what` says which of these.
        at: u64,
    },
    /// It has flags or a form that this crate does not know.
    #[error("not understood: {0}")]
    NotUnderstood(#[from] NotUnderstood),
    /// It is intact as far as we know, but we cannot read it.
    #[error("not supported: {what}")]
    Unsupported {
        /// What would have to be supported.
        what: &'static str,
    },
}

/// The result of reading something of a disk.
pub type Result<T, E = DiskError> = std::result::Result<T, E>;

impl DiskError {
    pub(crate) fn damaged(what: &'static str, at: u64) -> Self {
        Self::Damaged { what, at }
    }

    pub(crate) fn unsupported(what: &'static str) -> Self {
        Self::Unsupported { what }
    }
}
