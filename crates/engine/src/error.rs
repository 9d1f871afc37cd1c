//! What can stop a verb, with the data of the failure.

use std::path::PathBuf;

use strongroom_arena::ArenaError;
use strongroom_backend::BackendError;
use strongroom_base::units::{bytes_text, counted};
use strongroom_base::{Cancelled, Printable};
use strongroom_catalog::{CatalogError, FormatError, TreeWriteError};
use strongroom_index::IndexError;
use strongroom_repository::{ErrorKind, RepositoryError};
use strongroom_source::{SourceError, TargetError};

/// What can stop a verb.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The repository: what it holds, or the place that keeps it.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The files to be backed up, or to be restored, cannot be reached at all.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The place to restore into cannot be reached at all.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A drill has no folder to restore into.
    #[error("cannot make a scratch folder in {}: {error}", Printable::path(.folder))]
    Scratch {
        /// Where it was to be made.
        folder: PathBuf,
        /// Why it was not.
        error: std::io::Error,
    },
    /// A part of the sample of a drill waits in an archive, or must not be read: nothing is known of it.
    #[error("the drill cannot restore {}: {why}", Printable::path(.path))]
    Withheld {
        /// The first file.
        path: PathBuf,
        /// What the place said.
        why: String,
    },
    /// There is no room for the sample of a drill.
    #[error(
        "there is no disk for the drill: the sample needs {}, and {} has {} free",
        bytes_text(*.needed), Printable::path(.folder), bytes_text(*.free)
    )]
    NoRoom {
        /// Where the sample was to be restored.
        folder: PathBuf,
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that are free, less what is left to others.
        free: u64,
    },
    /// A part of a disk differs from what was stored, although the disk says that it was not written
    /// since: nothing that it says of what was written can be believed.
    #[error(
        "the disk {disk} differs at byte {offset} from what was stored, but is not marked as \
         written since: what notes the writes is wrong, and snapshots since it was last read as a \
         whole may lack some"
    )]
    DiskDenied {
        /// The disk.
        disk: String,
        /// Where.
        offset: u64,
    },
    /// The image of a machine that runs was lost.
    #[error("the image of the disk {disk} was lost while it was read: {why}")]
    DiskBroken {
        /// The disk.
        disk: String,
        /// Why.
        why: String,
    },
    /// A region of memory cannot be read to its end, or is no more what it was.
    #[error("the region {} cannot be stored: {error}", Printable::path(.path))]
    Region {
        /// Where it is.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A folder of a snapshot holds more than any folder of regions of memory.
    #[error(
        "{} is no folder of regions: it holds more than 65536 files and folders, or paths of more than \
         4096 bytes",
        Printable::path(.path)
    )]
    NoRegions {
        /// The folder.
        path: PathBuf,
    },
    /// Regions of memory changed each time that they were read.
    #[error(
        "{chunks} of the regions' chunks of 64 KiB changed while they were read the last time: what \
         would be stored is of no instant"
    )]
    Fuzzy {
        /// Chunks that differed when they were read the last time.
        chunks: u64,
    },
    /// A part of another snapshot is no longer there.
    #[error(
        "{} is no longer complete in the snapshot that was to be combined: a part of it was removed, \
         or is damaged",
        Printable::path(.path)
    )]
    PartGone {
        /// What it is a part of.
        path: PathBuf,
    },
    /// The programs that write to regions of memory could not be stopped, or let go on.
    #[error("{0}")]
    Still(String),
    /// A range of a file begins behind its end.
    #[error(
        "{} has {}: none of it is at offset {offset}",
        Printable::path(.path), counted(*.bytes, "byte", "bytes")
    )]
    BehindEnd {
        /// The file, in its snapshot.
        path: PathBuf,
        /// Where the range begins.
        offset: u64,
        /// The length of the file.
        bytes: u64,
    },
    /// What a backup keeps on this machine meanwhile could not be written or read.
    #[error("cannot keep what a backup remembers meanwhile: {0}")]
    Whereabouts(#[source] std::io::Error),
    /// Writing what is read to a stream failed.
    #[error("cannot write the output: {0}")]
    Output(#[source] std::io::Error),
    /// Reading what is to be stored from a stream failed.
    #[error("cannot read the input: {0}")]
    Input(#[source] std::io::Error),
}

/// What the repository's floor turns into its own error becomes one of ours in one step.
macro_rules! by_way_of_the_repository {
    ($($lower:ty),+ $(,)?) => {
        $(impl From<$lower> for EngineError {
            fn from(error: $lower) -> Self {
                RepositoryError::from(error).into()
            }
        })+
    };
}

by_way_of_the_repository! {
    ArenaError,
    BackendError,
    Cancelled,
    CatalogError<RepositoryError>,
    FormatError,
    IndexError,
    TreeWriteError<RepositoryError>,
}

impl EngineError {
    /// The kind of error, by which a caller decides what to do next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Repository(error) => error.kind(),
            Self::NoRoom { .. } => ErrorKind::NoSpace,
            Self::Withheld { .. } => ErrorKind::Withheld,
            Self::Source(_)
            | Self::Target(_)
            | Self::Scratch { .. }
            | Self::DiskDenied { .. }
            | Self::DiskBroken { .. }
            | Self::Region { .. }
            | Self::PartGone { .. }
            | Self::Fuzzy { .. }
            | Self::Still(_)
            | Self::BehindEnd { .. }
            | Self::Whereabouts(_)
            | Self::Output(_)
            | Self::NoRegions { .. }
            | Self::Input(_) => ErrorKind::Other,
        }
    }

    /// Whether it is an object that a newer program made.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Repository(error) if error.is_unknown())
    }

    /// Whether stored data is wrong, and not the caller or the machine.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Repository(error) if error.is_damage())
    }
}
