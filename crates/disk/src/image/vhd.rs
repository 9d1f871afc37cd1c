//! Images in Virtual PC's format: fixed ones, which are raw with a last sector, and dynamic ones.
//!
//! The source is Microsoft's "Virtual Hard Disk Image Format Specification", version 1.0.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fields::{be32, be64, part};

use super::Image;
use super::blocks::{Blocks, Content, OfBlocks};
use super::caches::Caches;
use super::chain::Chain;
use super::error::{ImageError, ImageResult};

const SECTOR: u64 = 512;
/// The kinds of disks in the last sector.
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;
/// The entry of a block that has only zeros.
const UNUSED: u32 = u32::MAX;

/// A fixed or dynamic image.
pub(super) struct Vhd {
    path: PathBuf,
    layer: u32,
    file: Box<dyn Image>,
    disk_bytes: u64,
    /// `None` if the disk is fixed.
    table: Option<Table>,
    caches: Arc<Caches>,
}

struct Table {
    /// Where its entries of four bytes begin and end.
    place: (u64, u64),
    block_bytes: u64,
    /// Before the bytes of each block there is a map of its sectors, padded to whole sectors.
    map_bytes: u64,
}

impl Vhd {
    pub(super) fn open(
        file: Box<dyn Image>,
        path: &Path,
        chain: &mut Chain,
    ) -> ImageResult<OfBlocks<Self>> {
        let size = file.size();
        let read = |at: u64, bytes: usize| {
            let mut buffer = vec![0; bytes.min(size.saturating_sub(at) as usize)];
            file.read_at(at, &mut buffer).map_err(|error| ImageError::io(path, error))?;
            Ok(buffer)
        };
        // In old versions the last sector has 511 bytes.
        let at = size.saturating_sub(SECTOR);
        let tail = read(at, SECTOR as usize)?;
        let short = usize::from(part(&tail, 1, 8) == b"conectix");
        let (footer, at) = (part(&tail, short, SECTOR as usize), at + short as u64);
        if !footer.starts_with(b"conectix") {
            return Err(ImageError::OtherFormat { path: path.into(), format: "vhd" });
        }
        let damaged = |what, at| ImageError::damaged(path, what, at);
        if !is_checked(footer, 64) {
            return Err(damaged("the checksum of the last sector is wrong", at));
        }
        let disk_bytes = be64(footer, 48);
        let table = match be32(footer, 60) {
            FIXED if disk_bytes <= at => None,
            FIXED => return Err(damaged("the file is shorter than the disk", at)),
            DYNAMIC => {
                let header_at = be64(footer, 16);
                let header = read(header_at, 1024)?;
                if !header.starts_with(b"cxsparse") || !is_checked(&header, 36) {
                    return Err(damaged("the header of a dynamic disk is invalid", header_at));
                }
                let (start, entries) = (be64(&header, 16), u64::from(be32(&header, 28)));
                let block_bytes = u64::from(be32(&header, 32));
                if !block_bytes.is_power_of_two() || block_bytes < SECTOR {
                    return Err(damaged("the size of blocks is invalid", header_at));
                }
                let end = start.checked_add(entries * 4).filter(|&end| end <= size);
                let end = end.filter(|_| disk_bytes.div_ceil(block_bytes) <= entries);
                let end = end.ok_or_else(|| damaged("the table of blocks is too small", start))?;
                let map_bytes = (block_bytes / SECTOR).div_ceil(8).next_multiple_of(SECTOR);
                Some(Table { place: (start, end), block_bytes, map_bytes })
            }
            DIFFERENCING => return Err(ImageError::unsupported(path, "a parent disk")),
            other => return Err(ImageError::unsupported(path, format!("the type {other}"))),
        };
        let (layer, caches) = (chain.layer(), chain.caches());
        Ok(OfBlocks(Self { path: path.into(), layer, file, disk_bytes, table, caches }))
    }
}

/// The checksum of a structure: all other bytes added, and inverted.
fn is_checked(bytes: &[u8], at: usize) -> bool {
    let sum: u32 = bytes.iter().map(|&byte| u32::from(byte)).sum();
    let own: u32 = part(bytes, at, 4).iter().map(|&byte| u32::from(byte)).sum();
    !(sum - own) == be32(bytes, at)
}

impl Blocks for Vhd {
    fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    fn file(&self) -> (&dyn Image, &Path) {
        (&*self.file, &self.path)
    }

    fn block(&self, at: u64) -> ImageResult<(Content, u64)> {
        let Some(table) = &self.table else { return Ok((Content::Stored(at), self.disk_bytes)) };
        let (index, inside) = (at / table.block_bytes, at % table.block_bytes);
        let entry = table.place.0 + index * 4;
        let piece = self.caches.piece(self.layer, &*self.file, &self.path, table.place, entry)?;
        let end = at - inside + table.block_bytes;
        let content = match be32(piece.from(entry), 0) {
            UNUSED => Content::Zeros,
            sector => Content::Stored(u64::from(sector) * SECTOR + table.map_bytes + inside),
        };
        Ok((content, end.min(self.disk_bytes)))
    }
}
