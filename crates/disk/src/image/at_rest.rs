//! An image that no machine may write to while it is read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use super::{Image, is_in_use};
use crate::read::{ReadAt, gives_nothing};

/// What is read past the memory of the kernel is a multiple of this, and aligned to it.
const DIRECT_BYTES: usize = 4096;

/// What of a file changes when it is written: its inode, its length and its time.
type State = (u64, u64, i64, i64);

/// An image that is [lost](Image::broken) if something writes to its file: what was read would be a
/// mixture of two states. So is one on a device that gives nothing any more.
pub struct AtRest {
    image: Box<dyn Image>,
    path: PathBuf,
    state: Option<State>,
}

impl AtRest {
    /// An image that was opened from this file, or this device.
    pub fn new(image: Box<dyn Image>, path: &Path) -> Self {
        Self { image, path: path.to_owned(), state: state_of(path) }
    }
}

/// Of a device nothing says whether it was written.
fn state_of(path: &Path) -> Option<State> {
    let found = std::fs::metadata(path).ok()?;
    let state = || (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    found.is_file().then(state)
}

/// Why a device gives nothing any more, if that is so. The kernel remembers what was read before: it is
/// not asked. A snapshot of LVM is so once it is full.
fn why_gone(path: &Path) -> Option<String> {
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    if !is_device {
        return None;
    }
    let flags = i32::try_from(OFlags::DIRECT.bits()).ok()?;
    let device = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(device) => device,
        Err(error) => {
            let errno = Errno::from_io_error(&error);
            let is_gone = errno.is_some_and(|errno| [Errno::NXIO, Errno::NODEV].contains(&errno));
            return is_gone.then(|| error.to_string());
        }
    };
    let read = |at: u64, _: &mut [u8]| {
        let mut room = vec![0; 2 * DIRECT_BYTES];
        let from = room.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES);
        match device.read_at(&mut room[from..from + DIRECT_BYTES], at)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    };
    let bytes = rustix::fs::seek(&device, SeekFrom::End(0)).unwrap_or(0);
    gives_nothing(bytes, &read).map(|error| format!("none of it can be read any more: {error}"))
}

impl ReadAt for AtRest {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buffer)
    }
}

impl Image for AtRest {
    fn next_data_in(&self, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
        self.image.next_data_in(range)
    }

    fn release(&self, range: Range<u64>) {
        self.image.release(range);
    }

    fn broken(&self) -> Option<String> {
        if is_in_use(&self.path) {
            return Some("QEMU has opened it meanwhile, and writes to it".to_owned());
        }
        if state_of(&self.path) != self.state {
            return Some("it was written meanwhile".to_owned());
        }
        why_gone(&self.path).or_else(|| self.image.broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::RawImage;

    #[test]
    fn an_image_that_is_written_while_it_is_read_is_lost() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let image = AtRest::new(Box::new(RawImage::open(file.path()).unwrap()), file.path());
        assert_eq!(image.broken(), None);
        image.read_at(0, &mut [0; 512]).unwrap();
        assert_eq!(image.broken(), None);
        file.as_file().write_all_at(b"a guest", 4096).unwrap();
        assert!(image.broken().is_some_and(|why| why.contains("written meanwhile")));
    }
}
