//! The events of a walk.

use std::path::PathBuf;

use strongroom_catalog::DeviceNumber;

use crate::error::SourceError;

use super::EntryHandle;

/// The next event of the walk. It may be kept, and sent to another thread.
#[derive(Debug)]
pub enum WalkEvent {
    /// A directory begins; what it holds follows, up to its [`LeaveDirectory`](Self::LeaveDirectory).
    EnterDirectory {
        /// The directory; that of `/` has an empty name.
        entry: EntryHandle,
        /// Everything in it is listed and follows, or an event says why not: a directory above a given
        /// path is entered for that alone.
        is_listed: bool,
    },
    /// The directory entered last, and not yet left, ends.
    LeaveDirectory,
    /// Anything but a directory.
    Leaf {
        /// The entry.
        entry: EntryHandle,
        /// Of which kind it is.
        kind: LeafKind,
    },
    /// Left out because it was asked for.
    Excluded {
        /// What is left out, or the directory whose content is left out.
        path: PathBuf,
        /// Why.
        why: ExcludeReason,
    },
    /// Something could not be read; the walk goes on.
    Problem {
        /// The path that could not be read.
        path: PathBuf,
        /// Why.
        error: SourceError,
    },
}

/// What a leaf is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink {
        /// Where it points: any bytes.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// Why something is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExcludeReason {
    /// A pattern matches it.
    Pattern,
    /// The directory holds a file of this name; its content is left out.
    Marker {
        /// The name.
        name: Vec<u8>,
    },
    /// The directory is a cache, by its `CACHEDIR.TAG`; its content but the tag is left out.
    CacheDirectory,
    /// Another file system is mounted on the directory; its content is left out.
    MountPoint,
    /// The file is longer than wanted.
    TooBig {
        /// Its length.
        bytes: u64,
    },
    /// The caller asked to skip this directory by its inode; its content is left out.
    SkippedInode,
}

/// What the walk has yielded so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Directories entered.
    pub directories: u64,
    /// Leaves yielded.
    pub leaves: u64,
    /// Things left out on request; what is below them is not counted.
    pub excluded: u64,
    /// Things that could not be read.
    pub problems: u64,
}
