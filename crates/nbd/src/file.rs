//! A raw image in a file, as an export that is only read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::export::{Export, Extent};
use crate::sparse::{append_of, extents_of};

/// A file whose bytes are those of a disk. It should not change while it is offered.
#[derive(Debug)]
pub struct FileExport {
    file: File,
    size: u64,
}

impl FileExport {
    /// Opens a raw image.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // A block device has no size of its own, but an end.
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self { file, size })
    }
}

impl Export for FileExport {
    fn size(&self) -> u64 {
        self.size
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        append_of(&self.file, range, bytes)
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        extents_of(&self.file, range)
    }

    fn cache(&self, range: Range<u64>) -> io::Result<()> {
        let bytes = std::num::NonZeroU64::new(range.end - range.start);
        let advice = rustix::fs::Advice::WillNeed;
        rustix::fs::fadvise(&self.file, range.start, bytes, advice)?;
        Ok(())
    }
}
