//! Images in VMware's format VMDK: sparse and stream-optimized extents, flat ones, and disks of
//! several of these.
//!
//! The source is VMware's "Virtual Disk Format 5.0". Differences to a parent disk are refused.

mod descriptor;
mod sparse;

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::read::ReadAt;

use super::chain::Chain;
use super::error::{ImageError, ImageResult};
use super::{Image, RawImage};

use descriptor::{Descriptor, Extent, Storage};
use sparse::Sparse;

const SECTOR: u64 = 512;
/// The longest descriptor that is a file of its own. That of 2,000 extents has a tenth of it.
const DESCRIPTOR_BYTES_MAX: u64 = 1 << 20;

/// A disk of one extent or several.
pub(super) struct Vmdk {
    /// In order and without gaps.
    parts: Vec<Part>,
    bytes: u64,
}

struct Part {
    start: u64,
    end: u64,
    /// Where the part is in the image.
    from: u64,
    /// `None` if it is all zeros.
    image: Option<Box<dyn Image>>,
}

impl Vmdk {
    pub(super) fn open(file: Box<dyn Image>, path: &Path, chain: &mut Chain) -> ImageResult<Self> {
        let read = |at: u64, bytes: u64| {
            let mut buffer = vec![0; bytes.min(file.size().saturating_sub(at)) as usize];
            file.read_at(at, &mut buffer).map_err(|error| ImageError::io(path, error))?;
            Ok::<_, ImageError>(buffer)
        };
        let mut vmdk = Self { parts: Vec::new(), bytes: 0 };
        let magic = read(0, 4)?;
        if magic == b"COWD" {
            return Err(ImageError::unsupported(path, "an extent of a snapshot (COWD)"));
        }
        if magic == b"KDMV" {
            let sparse = Sparse::open(file, path, chain)?;
            // An extent of a disk of several is no disk.
            let descriptor = Descriptor::read(&sparse.0.descriptor()?, path)?;
            if descriptor.extents.len() != 1 {
                return Err(ImageError::OneExtent { path: path.into() });
            }
            vmdk.push(sparse.size(), 0, Some(Box::new(sparse)));
            return Ok(vmdk);
        }
        if file.size() == 0 || file.size() > DESCRIPTOR_BYTES_MAX {
            return Err(ImageError::OtherFormat { path: path.into(), format: "vmdk" });
        }
        let descriptor = Descriptor::read(&read(0, file.size())?, path)?;
        for extent in &descriptor.extents {
            vmdk.push_extent(extent, path, chain)?;
        }
        Ok(vmdk)
    }

    fn push_extent(&mut self, extent: &Extent, path: &Path, chain: &mut Chain) -> ImageResult<()> {
        let bytes = extent.sectors * SECTOR;
        let (from, name) = match &extent.storage {
            Storage::Zeros => {
                self.push(bytes, 0, None);
                return Ok(());
            }
            Storage::Flat { name, sector } => (sector * SECTOR, name),
            Storage::Sparse { name } => (0, name),
        };
        let (place, file): (_, RawImage) = chain.referred(path, name)?;
        let image: Box<dyn Image> = match extent.storage {
            Storage::Sparse { .. } => Box::new(Sparse::open(Box::new(file), &place, chain)?),
            _ => Box::new(file),
        };
        if from.checked_add(bytes).is_none_or(|end| end > image.size()) {
            let what = "an extent is shorter than its disk says";
            return Err(ImageError::damaged(&place, what, image.size()));
        }
        self.push(bytes, from, Some(image));
        Ok(())
    }

    fn push(&mut self, bytes: u64, from: u64, image: Option<Box<dyn Image>>) {
        // The descriptor bounds the sum.
        let start = self.bytes;
        self.bytes += bytes;
        self.parts.push(Part { start, end: self.bytes, from, image });
    }

    /// The part with a byte of the disk.
    fn part(&self, at: u64) -> Option<&Part> {
        let index = self.parts.partition_point(|part| part.end <= at);
        self.parts.get(index)
    }
}

impl ReadAt for Vmdk {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let part = self.part(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
            let count = buffer.len().min(usize::try_from(part.end - offset).unwrap_or(usize::MAX));
            let (now, rest) = buffer.split_at_mut(count);
            match &part.image {
                Some(image) => image.read_at(part.from + (offset - part.start), now)?,
                None => now.fill(0),
            }
            offset += count as u64;
            buffer = rest;
        }
        Ok(())
    }
}

impl Image for Vmdk {
    fn next_data_in(&self, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
        let (mut at, end) = (range.start, range.end.min(self.bytes));
        while at < end {
            let Some(part) = self.part(at) else { break };
            let until = part.end.min(end);
            if let Some(image) = &part.image {
                let inside = |at: u64| part.from + (at - part.start);
                let found = image.next_data_in(inside(at)..inside(until))?;
                let outside = |at: u64| at - part.from + part.start;
                if let Some(found) = found {
                    return Ok(Some(outside(found.start)..outside(found.end)));
                }
            }
            at = until;
        }
        Ok(None)
    }
}
