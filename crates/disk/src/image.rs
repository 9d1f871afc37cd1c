//! Images of disks: files and block devices that hold the bytes of a disk, in one of several formats.
//!
//! [`open_image`] recognises the format. Any bytes are an image: nothing here panics, hangs, or takes
//! more memory than constants allow, and files that an image refers to are followed within bounds.

mod at_rest;
mod blocks;
mod caches;
mod chain;
mod error;
mod format;
mod in_use;
mod open;
mod qcow2;
mod vhd;
mod vhdx;
mod vmdk;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;

use crate::read::ReadAt;

pub use at_rest::AtRest;
pub use error::ImageError;
pub use format::{Format, UnknownFormat, container_of};
pub use in_use::is_in_use;
pub use open::{ImageOptions, OpenedImage, image_over, open_image};
pub use qcow2::{Bitmap, DirtyRanges, Qcow2, Qcow2Writer};

/// An image of a disk.
pub trait Image: ReadAt {
    /// The next bytes, from `offset` on, that may be other than zeros: a range that ends behind
    /// `offset`. `None` if only zeros follow.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.next_data_in(offset..self.size())
    }

    /// The same, in this range alone: nothing behind it is looked at.
    fn next_data_in(&self, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
        let range = range.start..range.end.min(self.size());
        Ok((!range.is_empty()).then_some(range))
    }

    /// Says that a range will not be read again, so that what keeps it may let it go.
    fn release(&self, _range: Range<u64>) {}

    /// Why nothing more can be read, and what was read is worth nothing: the image of a machine
    /// that runs can be lost as a whole. Asked after a read that failed, and at the end.
    fn broken(&self) -> Option<String> {
        None
    }
}

/// A file, or a block device, that holds the bytes of a disk as they are.
#[derive(Debug)]
pub struct RawImage {
    file: File,
    bytes: u64,
    /// It is a file that takes less room than it has bytes.
    has_holes: bool,
}

impl RawImage {
    /// Opens it for reading.
    ///
    /// # Errors
    ///
    /// It does not exist, cannot be read, or is neither a file nor a block device.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Asked before it is opened: opening a pipe would wait for its other end.
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is neither a file nor a block device",
            ));
        }
        let file = File::open(path)?;
        // The size of a block device is where its end is.
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
        let has_holes = kind.is_file() && file.metadata()?.blocks() < bytes.div_ceil(512);
        Ok(Self { file, bytes, has_holes })
    }
}

impl ReadAt for RawImage {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

impl Image for RawImage {
    fn next_data_in(&self, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
        let range = range.start..range.end.min(self.bytes);
        if range.is_empty() || !self.has_holes {
            return Ok((!range.is_empty()).then_some(range));
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(range.start)) {
            Ok(start) if start < range.end => start,
            Ok(_) | Err(rustix::io::Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
        Ok(Some(start..end.min(range.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_of_a_file_are_no_data() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10 << 20).unwrap();
        file.as_file().write_all_at(&[7; 4096], 4 << 20).unwrap();
        let image = RawImage::open(file.path()).unwrap();
        assert_eq!(image.size(), 10 << 20);
        assert_eq!(image.next_data(0).unwrap(), Some(4 << 20..(4 << 20) + 4096));
        assert_eq!(image.next_data(5 << 20).unwrap(), None);
        let mut bytes = [0; 2];
        image.read_at((4 << 20) - 1, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 7]);
        assert!(image.read_at((10 << 20) - 1, &mut bytes).is_err());
        assert!(RawImage::open(Path::new("/dev/null")).is_err());
    }
}
