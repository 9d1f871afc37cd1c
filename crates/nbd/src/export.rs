//! What a server offers: a disk, and the names under which there are disks.

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A part of a disk. Parts follow each other, so it says no offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How long it is, in bytes. Not zero.
    pub bytes: u64,
    /// It is not stored, and reads as zeros.
    pub is_hole: bool,
}

/// How zeros are to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// The space must stay allocated: no hole may be made.
    pub keeps_space: bool,
    /// If it is no faster than to write the zeros, nothing is done, and the error is
    /// [`io::ErrorKind::Unsupported`].
    pub only_if_fast: bool,
}

/// A disk. Many threads call it at the same time; ranges are never outside of it.
pub trait Export: Send + Sync {
    /// The size of the disk in bytes. It does not change.
    fn size(&self) -> u64;

    /// No client may write.
    fn is_read_only(&self) -> bool {
        true
    }

    /// A client may use several connections at once: what was flushed on one is seen on all.
    fn allows_several_connections(&self) -> bool {
        self.is_read_only()
    }

    /// Appends what the disk holds in a range. After an error, what was appended is of no use.
    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()>;

    /// What the disk holds from `range.start` on: at least one extent, at most 65,536. It may say less
    /// than the whole range; what it says behind `range.end` is ignored.
    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { bytes: range.end - range.start, is_hole: false }])
    }

    /// Writes `bytes` at `offset`. It need not last before [`Export::flush`].
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Makes a range zeros.
    fn write_zeroes(&self, _range: Range<u64>, _zeroing: Zeroing) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// What a range holds is needed no more.
    fn trim(&self, _range: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Returns when everything that was written before is on the medium.
    fn flush(&self) -> io::Result<()> {
        if self.is_read_only() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// A range will soon be read.
    fn cache(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

/// The disks that a server has. A disk is opened when a client asks for it, so thousands of names
/// cost nothing.
pub trait Exports: Send + Sync {
    /// All names, for clients that want a list. One that is longer than 4096 bytes is left out.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The disk of a name. The empty name is a client that named none. An error of the kind
    /// [`io::ErrorKind::NotFound`] means that there is none of this name.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Export>>;
}
