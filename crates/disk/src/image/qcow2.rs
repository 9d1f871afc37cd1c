//! Images in QEMU's format qcow2, version 2 and 3, with their chains of backing files.
//!
//! What is read is the active state: snapshots inside of an image are not looked at. Reading needs
//! no reference counts, so images that were not closed properly can be read as well.
//!
//! Memory is bounded by constants for a whole chain, no matter how large its disks are: pieces of
//! tables, and clusters that were decompressed, are kept in two caches that all images of a chain
//! share.

mod bitmaps;
mod compressed;
mod header;
mod mapping;
mod writer;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::caches::Caches;
use super::chain::Chain;
use super::error::{ImageError, ImageResult};
use super::{Format, Image};
use crate::read::ReadAt;

use header::Header;
use mapping::{Content, Cursor, Extent};

pub use bitmaps::{Bitmap, DirtyRanges};
pub use writer::Qcow2Writer;

/// Entries of tables that one search for data looks at: a fraction of a second.
const STEPS_MAX: u64 = 1 << 23;

/// A qcow2 image that is open for reading.
pub struct Qcow2 {
    /// For messages.
    path: PathBuf,
    /// Which image of its chain it is.
    layer: u32,
    header: Header,
    /// Header, tables, and clusters unless there is a data file.
    file: Box<dyn Image>,
    data_file: Option<Box<dyn Image>>,
    backing: Option<Box<dyn Image>>,
    caches: Arc<Caches>,
}

impl Qcow2 {
    /// An image of a chain, with all those below it. The chain has entered it already.
    pub(super) fn in_chain(
        file: Box<dyn Image>,
        path: &Path,
        chain: &mut Chain,
    ) -> ImageResult<Self> {
        let header = Header::read(&*file, path)?;
        let layer = chain.layer();
        let data_file = match &header.data_file {
            None => None,
            Some(None) => {
                let what = "a data file that its header does not name";
                return Err(ImageError::unsupported(path, what));
            }
            Some(Some(name)) => Some(chain.open_raw(path, name)?),
        };
        let backing = match &header.backing {
            None => None,
            Some(backing) => {
                let format = match (&backing.format, chain.backing_format) {
                    (Some(name), _) => Format::of_qemu(name).ok_or_else(|| {
                        let what = format!("a backing file in the format {name:?}");
                        ImageError::unsupported(path, what)
                    })?,
                    (None, Some(format)) => format,
                    (None, None) => {
                        let backing = backing.name.clone();
                        return Err(ImageError::BackingFormat { path: path.into(), backing });
                    }
                };
                Some(chain.open_backing(path, &backing.name, format)?)
            }
        };
        let caches = chain.caches();
        let image = Self { path: path.into(), layer, header, file, data_file, backing, caches };
        image.check_tables()?;
        Ok(image)
    }

    /// Reads the file of the image: the caller has compared the place with its size.
    fn read_file(&self, offset: u64, buffer: &mut [u8]) -> ImageResult<()> {
        self.file.read_at(offset, buffer).map_err(|error| ImageError::io(&self.path, error))
    }

    /// Where clusters are, if they are not compressed.
    fn cluster_file(&self) -> &dyn Image {
        self.data_file.as_deref().unwrap_or(&*self.file)
    }

    fn read_stored(&self, place: u64, buffer: &mut [u8]) -> io::Result<()> {
        let file = self.cluster_file();
        let there = file.size().saturating_sub(place).min(buffer.len() as u64) as usize;
        let (stored, missing) = buffer.split_at_mut(there);
        // The last cluster of a file need not be whole. Anything else was cut off.
        let last_end = file.size().checked_next_multiple_of(self.header.cluster_bytes());
        let end = place + (stored.len() + missing.len()) as u64;
        if last_end.is_some_and(|last_end| end > last_end) {
            let what = "a cluster is behind the end of the file";
            return Err(ImageError::damaged(&self.path, what, place).into());
        }
        missing.fill(0);
        file.read_at(place, stored)
    }

    fn read_backing(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(backing) = &self.backing else {
            buffer.fill(0);
            return Ok(());
        };
        // What is behind the end of the backing file is zeros.
        let there = backing.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (there, behind) = buffer.split_at_mut(there);
        behind.fill(0);
        if there.is_empty() { Ok(()) } else { backing.read_at(offset, there) }
    }

    /// The first part of an extent that may have other bytes than zeros.
    fn data_of(&self, extent: &Extent) -> io::Result<Option<Range<u64>>> {
        let Extent { start, end, content } = *extent;
        Ok(match content {
            Content::Zeros => None,
            Content::Compressed { .. } => Some(start..end),
            Content::Stored(place) => {
                // Clusters that were allocated in advance can be holes of the file.
                let file = self.cluster_file();
                let stored_end = (place + (end - start)).min(file.size());
                // Reading what is behind the end of the file fails, or gives zeros.
                let behind = start + stored_end.saturating_sub(place)..end;
                let found =
                    if place < stored_end { file.next_data_in(place..stored_end)? } else { None };
                let found =
                    found.map(|found| start + (found.start - place)..start + (found.end - place));
                found.or((!behind.is_empty()).then_some(behind))
            }
            Content::Backing => match &self.backing {
                Some(backing) if start < backing.size() => {
                    backing.next_data_in(start..end.min(backing.size()))?
                }
                _ => None,
            },
        })
    }
}

impl ReadAt for Qcow2 {
    fn size(&self) -> u64 {
        self.header.disk_bytes
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        let end = end.filter(|&end| end <= self.size()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut cursor = Cursor::new(self);
        while !buffer.is_empty() {
            let extent = cursor.extent(offset, end, u64::MAX)?;
            let (now, rest) = buffer.split_at_mut((extent.end - offset) as usize);
            match extent.content {
                Content::Stored(place) => self.read_stored(place, now)?,
                Content::Compressed { offset: place, bytes } => {
                    let cluster = self.decompressed(place, bytes)?;
                    let inside = (offset % self.header.cluster_bytes()) as usize;
                    now.copy_from_slice(&cluster[inside..inside + now.len()]);
                }
                Content::Zeros => now.fill(0),
                Content::Backing => self.read_backing(offset, now)?,
            }
            offset = extent.end;
            buffer = rest;
        }
        Ok(())
    }
}

impl Image for Qcow2 {
    fn next_data_in(&self, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
        let (mut at, end) = (range.start, range.end.min(self.size()));
        let mut cursor = Cursor::new(self);
        let mut found: Option<Range<u64>> = None;
        while at < end && cursor.steps < STEPS_MAX {
            let extent = cursor.extent(at, end, STEPS_MAX)?;
            let data = self.data_of(&extent)?;
            let is_next = data.as_ref().is_some_and(|data| data.start == at);
            if found.is_some() && !is_next {
                break;
            }
            at = data.as_ref().map_or(extent.end, |data| data.end);
            if let Some(data) = data {
                found = Some(found.map_or(data.start, |found| found.start)..data.end);
                if at < extent.end {
                    break;
                }
            }
        }
        // A search without end is not worth it: a cluster more is read.
        let more = || (at < end).then(|| at..(at + self.header.cluster_bytes()).min(end));
        Ok(found.or_else(more))
    }
}
