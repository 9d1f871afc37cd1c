//! A sparse extent: a directory of tables, which say where each grain is. The grains of an extent
//! for streams are compressed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};

use crate::fields::{le16, le32, le64};
use crate::image::Image;
use crate::image::blocks::{Blocks, Content, OfBlocks};
use crate::image::caches::Caches;
use crate::image::chain::Chain;
use crate::image::error::{ImageError, ImageResult};
use crate::understood::image as words;

use super::SECTOR;

/// The directory is behind everything else, as it was written last.
const AT_END: u64 = u64::MAX;
/// Where the second header is then, counted from the end of the file.
const FOOTER: u64 = 1024;
/// Flags of the header.
const HAS_ZEROED: u32 = 1 << 2;
const IS_COMPRESSED: u32 = 1 << 16;
const DEFLATE: u16 = 1;
/// The entry of a grain that reads as zeros, if the header says that there are such.
const ZEROED: u32 = 1;
/// A compressed grain begins with its place on the disk and its length.
const MARKER_BYTES: u64 = 12;
/// QEMU's limits, and larger than those of VMware.
const GRAIN_BYTES_MAX: u64 = 2 << 20;
const DESCRIPTOR_BYTES_MAX: u64 = 64 << 10;
const DIRECTORY_BYTES_MAX: u64 = 128 << 20;
const TABLE_ENTRIES_MAX: u64 = 512;

pub(super) struct Sparse {
    path: PathBuf,
    layer: u32,
    file: Box<dyn Image>,
    header: Header,
    caches: Arc<Caches>,
}

/// All sizes and places in bytes.
#[derive(Debug, Clone, Copy)]
struct Header {
    disk_bytes: u64,
    grain_bytes: u64,
    /// Entries of a table.
    table_entries: u64,
    descriptor: (u64, u64),
    /// Where the used entries of the directory begin and end.
    directory: (u64, u64),
    has_zeroed: bool,
    is_compressed: bool,
}

impl Sparse {
    pub(super) fn open(
        file: Box<dyn Image>,
        path: &Path,
        chain: &mut Chain,
    ) -> ImageResult<OfBlocks<Self>> {
        let mut header = Header::read(&*file, path, 0)?;
        if header.directory.0 == AT_END {
            // The descriptor is still where the first header says.
            let descriptor = header.descriptor;
            header = Header::read(&*file, path, file.size().saturating_sub(FOOTER))?;
            header.descriptor = descriptor;
        }
        header.check(&*file, path)?;
        let (layer, caches) = (chain.layer(), chain.caches());
        Ok(OfBlocks(Self { path: path.into(), layer, file, header, caches }))
    }

    /// The text that says of which extents the disk is made. Only the first extent has it.
    pub(super) fn descriptor(&self) -> ImageResult<Vec<u8>> {
        let (at, bytes) = self.header.descriptor;
        let bytes = bytes.min(DESCRIPTOR_BYTES_MAX).min(self.file.size().saturating_sub(at));
        let mut text = vec![0; bytes as usize];
        if at > 0 && bytes > 0 {
            self.file.read_at(at, &mut text).map_err(|error| ImageError::io(&self.path, error))?;
        }
        Ok(text)
    }

    /// The entry of the grain with this byte of the disk; `None` if there is no table for it.
    fn entry(&self, at: u64) -> ImageResult<Option<u32>> {
        let header = &self.header;
        let grain = at / header.grain_bytes;
        let piece = |table, at| self.caches.piece(self.layer, &*self.file, &self.path, table, at);
        let directory_at = header.directory.0 + grain / header.table_entries * 4;
        let table = le32(piece(header.directory, directory_at)?.from(directory_at), 0);
        if table == 0 {
            return Ok(None);
        }
        let start = u64::from(table) * SECTOR;
        let entry_at = start + grain % header.table_entries * 4;
        let table = (start, start + header.table_entries * 4);
        Ok(Some(le32(piece(table, entry_at)?.from(entry_at), 0)))
    }

    /// All that a compressed grain has: the last one of a disk may be shorter.
    fn decompress(&self, at: u64) -> ImageResult<Vec<u8>> {
        let damaged = |what| ImageError::damaged(&self.path, what, at);
        let read = |at: u64, bytes: u64| {
            let end = at.checked_add(bytes).filter(|&end| end <= self.file.size());
            end.ok_or_else(|| damaged("a grain is behind the end of the file"))?;
            let mut buffer = vec![0; bytes as usize];
            self.file
                .read_at(at, &mut buffer)
                .map_err(|error| ImageError::io(&self.path, error))?;
            Ok(buffer)
        };
        let bytes = u64::from(le32(&read(at, MARKER_BYTES)?, 8));
        // What does not compress becomes a little larger.
        if bytes == 0 || bytes > self.header.grain_bytes * 2 {
            return Err(damaged("the length of a compressed grain is invalid"));
        }
        let compressed = read(at + MARKER_BYTES, bytes)?;
        let mut grain = vec![0; self.header.grain_bytes as usize];
        let mut stream = Decompress::new(true);
        let ended = stream.decompress(&compressed, &mut grain, FlushDecompress::Finish);
        if !matches!(ended, Ok(Status::StreamEnd)) {
            return Err(damaged("a grain cannot be decompressed"));
        }
        grain.truncate(usize::try_from(stream.total_out()).unwrap_or(usize::MAX));
        Ok(grain)
    }
}

impl Header {
    fn read(file: &dyn Image, path: &Path, at: u64) -> ImageResult<Self> {
        let damaged = |what| ImageError::damaged(path, what, at);
        let mut bytes = [0; SECTOR as usize];
        if at.checked_add(SECTOR).is_none_or(|end| end > file.size()) {
            return Err(damaged("the file is too short for its header"));
        }
        file.read_at(at, &mut bytes).map_err(|error| ImageError::io(path, error))?;
        if !bytes.starts_with(b"KDMV") {
            return Err(damaged("the header of a sparse extent is absent"));
        }
        let version = le32(&bytes, 4);
        if !(1..=3).contains(&version) {
            return Err(ImageError::unsupported(path, format!("version {version} of VMDK")));
        }
        let flags = le32(&bytes, 8);
        words::VMDK.check(flags).map_err(|why| ImageError::unsupported(path, why.to_string()))?;
        let is_compressed = flags & IS_COMPRESSED != 0;
        if is_compressed && le16(&bytes, 77) != DEFLATE {
            let what = format!("compression of type {}", le16(&bytes, 77));
            return Err(ImageError::unsupported(path, what));
        }
        let place = |at| le64(&bytes, at).checked_mul(SECTOR).unwrap_or(AT_END);
        let header = Self {
            disk_bytes: place(12),
            grain_bytes: place(20),
            descriptor: (place(28), place(36)),
            table_entries: u64::from(le32(&bytes, 44)),
            // The other directory is a copy.
            directory: (place(56), 0),
            has_zeroed: flags & HAS_ZEROED != 0,
            is_compressed,
        };
        Ok(header)
    }

    /// Checks the sizes, and finds the end of the directory.
    fn check(&mut self, file: &dyn Image, path: &Path) -> ImageResult<()> {
        let damaged = |what| Err(ImageError::damaged(path, what, 0));
        let is_grain = self.grain_bytes.is_power_of_two() && self.grain_bytes >= SECTOR;
        if !is_grain || self.grain_bytes > GRAIN_BYTES_MAX {
            return damaged("the size of grains is invalid");
        }
        if !(1..=TABLE_ENTRIES_MAX).contains(&self.table_entries) {
            return damaged("the size of tables is invalid");
        }
        if self.disk_bytes > i64::MAX as u64 {
            return damaged("the size of the disk is invalid");
        }
        let bytes = self.disk_bytes.div_ceil(self.grain_bytes * self.table_entries) * 4;
        let end = self.directory.0.checked_add(bytes).filter(|&end| end <= file.size());
        match end {
            Some(end) if bytes <= DIRECTORY_BYTES_MAX => self.directory.1 = end,
            _ => return damaged("the directory is behind the end of the file"),
        }
        Ok(())
    }
}

impl Blocks for Sparse {
    fn disk_bytes(&self) -> u64 {
        self.header.disk_bytes
    }

    fn file(&self) -> (&dyn Image, &Path) {
        (&*self.file, &self.path)
    }

    fn block(&self, at: u64) -> ImageResult<(Content, u64)> {
        let (is_zeros, end) = self.is_zeros(at)?;
        if is_zeros {
            return Ok((Content::Zeros, end));
        }
        let inside = at % self.header.grain_bytes;
        let place = u64::from(self.entry(at)?.unwrap_or(0)) * SECTOR;
        if !self.header.is_compressed {
            return Ok((Content::Stored(place + inside), end));
        }
        let grain = self.caches.cluster(self.layer, place, || self.decompress(place))?;
        if (grain.len() as u64) < inside + (end - at) {
            return Err(ImageError::damaged(&self.path, "a grain is too short", place));
        }
        Ok((Content::Decompressed(grain, inside as usize), end))
    }

    fn is_zeros(&self, at: u64) -> ImageResult<(bool, u64)> {
        let Header { grain_bytes, table_entries, has_zeroed, .. } = self.header;
        let (reach, is_zeros) = match self.entry(at)? {
            None => (grain_bytes * table_entries, true),
            Some(entry) => (grain_bytes, entry == 0 || (entry == ZEROED && has_zeroed)),
        };
        let end = at - at % reach + reach;
        Ok((is_zeros, end.min(self.header.disk_bytes)))
    }
}
