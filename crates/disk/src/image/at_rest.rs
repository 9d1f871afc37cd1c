//! An image that no machine may write to while it is read.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Image, is_in_use};
use crate::read::ReadAt;

/// What of a file changes when it is written: its inode, its length and its time.
type State = (u64, u64, i64, i64);

/// An image that is [lost](Image::broken) if something writes to its file: what was read would be a
/// mixture of two states.
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
        self.image.broken()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

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
