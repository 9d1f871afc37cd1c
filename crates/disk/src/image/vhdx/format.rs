//! The headers, regions and metadata of a VHDX image.

use std::path::Path;

use crate::fields::{byte, le16, le32, le64, part, uuid};
use crate::image::Image;
use crate::image::error::{ImageError, ImageResult};

const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const HEADER_BYTES: usize = 4 << 10;
const REGION_TABLES: [u64; 2] = [192 << 10, 256 << 10];
const TABLE_BYTES: usize = 64 << 10;
/// Limits of the specification.
const REGIONS_MAX: usize = 2047;
const ITEMS_MAX: usize = 2047;
const DISK_BYTES_MAX: u64 = 64 << 40;

type Guid = [u8; 16];

/// As they are stored: the first three fields are little-endian.
const BLOCK_TABLE: Guid = guid(0x2dc2_7766, 0xf623, 0x4200, 0x9d64_115e_9bfd_4a08);
const METADATA: Guid = guid(0x8b7c_a206, 0x4790, 0x4b9a, 0xb8fe_575f_050f_886e);
const FILE_PARAMETERS: Guid = guid(0xcaa1_6737, 0xfa36, 0x4d43, 0xb3b6_33f0_aa44_e76b);
const DISK_SIZE: Guid = guid(0x2fa5_4224, 0xcd1b, 0x4876, 0xb211_5dbe_d83b_f4b8);
const SECTOR_SIZE: Guid = guid(0x8141_bf1d, 0xa96f, 0x4709, 0xba47_f233_a8fa_ab5f);
const PHYSICAL_SECTOR_SIZE: Guid = guid(0xcda3_48c7, 0x445d, 0x4471, 0x9cc9_e988_5251_c556);
const DISK_ID: Guid = guid(0xbeca_12ab, 0xb2e6, 0x4523, 0x93ef_c309_e000_c746);

/// What must be known to find a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    pub disk_bytes: u64,
    pub block_bytes: u64,
    /// After this many blocks there is an entry for a map of sectors.
    blocks_of_chunk: u64,
    /// Where the used entries of the table of blocks begin and end.
    pub table: (u64, u64),
}

impl Parameters {
    pub(super) fn read(file: &dyn Image, path: &Path) -> ImageResult<Self> {
        let mut magic = [0; 8];
        if file.size() < 8 || file.read_at(0, &mut magic).is_err() || &magic != b"vhdxfile" {
            return Err(ImageError::OtherFormat { path: path.into(), format: "vhdx" });
        }
        check_header(file, path)?;
        let regions = region_table(file, path)?;
        let metadata = region(&regions, METADATA)
            .ok_or_else(|| damaged(path, "there is no region of metadata", REGION_TABLES[0]))?;
        let table = region(&regions, BLOCK_TABLE)
            .ok_or_else(|| damaged(path, "there is no table of blocks", REGION_TABLES[0]))?;
        let mut parameters = Self::of_metadata(file, path, metadata)?;
        let blocks = parameters.disk_bytes.div_ceil(parameters.block_bytes);
        let entries = blocks.checked_sub(1).map_or(0, |last| parameters.entry_of(last) + 1);
        let end = table.0.checked_add(entries * 8).filter(|&end| end <= file.size());
        let end = end.filter(|_| entries * 8 <= table.1);
        let end = end.ok_or_else(|| damaged(path, "the table of blocks is too small", table.0))?;
        parameters.table = (table.0, end);
        Ok(parameters)
    }

    /// The entry of a block in the table.
    pub(super) fn entry_of(&self, block: u64) -> u64 {
        block + block / self.blocks_of_chunk
    }

    fn of_metadata(file: &dyn Image, path: &Path, region: (u64, u64)) -> ImageResult<Self> {
        let table = read(file, path, region.0, TABLE_BYTES)?;
        let count = usize::from(le16(&table, 10));
        if !table.starts_with(b"metadata") || count > ITEMS_MAX {
            return Err(damaged(path, "the table of metadata is invalid", region.0));
        }
        let (mut block_bytes, mut disk_bytes, mut sector_bytes) = (0, None, 0);
        for entry in table[32..].chunks_exact(32).take(count) {
            let (at, flags) = (u64::from(le32(entry, 16)), le32(entry, 24));
            let item = uuid(entry, 0);
            // Those of users can have the same names; none of the others is longer.
            if flags & 1 != 0 {
                continue;
            }
            let place = region.0.saturating_add(at);
            let content = || read(file, path, place, 8);
            match item {
                FILE_PARAMETERS => {
                    let content = content()?;
                    block_bytes = u64::from(le32(&content, 0));
                    if le32(&content, 4) & 2 != 0 {
                        return Err(ImageError::unsupported(path, "a parent disk"));
                    }
                }
                DISK_SIZE => disk_bytes = Some(le64(&content()?, 0)),
                SECTOR_SIZE => sector_bytes = u64::from(le32(&content()?, 0)),
                PHYSICAL_SECTOR_SIZE | DISK_ID => {}
                // The flag says that the disk cannot be understood without it.
                _ if flags & 4 != 0 => {
                    return Err(ImageError::unsupported(path, "metadata that is not known"));
                }
                _ => {}
            }
        }
        let is_block =
            block_bytes.is_power_of_two() && (1 << 20..=256 << 20).contains(&block_bytes);
        let disk_bytes = disk_bytes.filter(|&bytes| bytes <= DISK_BYTES_MAX);
        let is_sector = matches!(sector_bytes, 512 | 4096);
        let (Some(disk_bytes), true, true) = (disk_bytes, is_block, is_sector) else {
            return Err(damaged(path, "the sizes of disk, block and sector are invalid", region.0));
        };
        // Sectors of one map, which is a mebibyte long.
        let blocks_of_chunk = (sector_bytes << 23) / block_bytes;
        Ok(Self { disk_bytes, block_bytes, blocks_of_chunk, table: (0, 0) })
    }
}

/// Finds the current one of the two headers, and refuses what it says.
fn check_header(file: &dyn Image, path: &Path) -> ImageResult<()> {
    let headers = HEADERS.map(|at| read(file, path, at, HEADER_BYTES).ok());
    let sound = headers.iter().flatten().filter(|header| is_sound(header, b"head"));
    let header = sound.max_by_key(|header| le64(header, 8));
    let header = header.ok_or_else(|| damaged(path, "both headers are damaged", HEADERS[0]))?;
    if le16(header, 66) != 1 {
        return Err(ImageError::unsupported(path, format!("version {} of VHDX", le16(header, 66))));
    }
    if uuid(header, 48) != [0; 16] {
        return Err(ImageError::LogNotReplayed { path: path.into() });
    }
    Ok(())
}

/// The first of the two tables of regions that is sound.
fn region_table(file: &dyn Image, path: &Path) -> ImageResult<Vec<u8>> {
    let tables = REGION_TABLES.map(|at| read(file, path, at, TABLE_BYTES).ok());
    let mut sound = tables.into_iter().flatten().filter(|table| is_sound(table, b"regi"));
    let table = sound.next();
    let table = table
        .ok_or_else(|| damaged(path, "both tables of regions are damaged", REGION_TABLES[0]))?;
    for entry in regions(&table) {
        let is_known = [BLOCK_TABLE, METADATA].contains(&uuid(entry, 0));
        if !is_known && byte(entry, 28) & 1 != 0 {
            return Err(ImageError::unsupported(path, "a region that is not known"));
        }
    }
    Ok(table)
}

fn regions(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = (le32(table, 8) as usize).min(REGIONS_MAX);
    part(table, 16, count * 32).chunks_exact(32)
}

/// The place and length of a region.
fn region(table: &[u8], id: Guid) -> Option<(u64, u64)> {
    let entry = regions(table).find(|entry| uuid(entry, 0) == id)?;
    Some((le64(entry, 16), u64::from(le32(entry, 24))))
}

/// Its signature and its checksum, CRC-32C with zeros in its place, are right.
fn is_sound(bytes: &[u8], signature: &[u8]) -> bool {
    let crc = crc32c::crc32c(part(bytes, 0, 4));
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, part(bytes, 8, bytes.len()));
    bytes.starts_with(signature) && crc == le32(bytes, 4)
}

fn read(file: &dyn Image, path: &Path, at: u64, bytes: usize) -> ImageResult<Vec<u8>> {
    if at.checked_add(bytes as u64).is_none_or(|end| end > file.size()) {
        return Err(damaged(path, "a structure is behind the end of the file", at));
    }
    let mut buffer = vec![0; bytes];
    file.read_at(at, &mut buffer).map_err(|error| ImageError::io(path, error))?;
    Ok(buffer)
}

fn damaged(path: &Path, what: &'static str, at: u64) -> ImageError {
    ImageError::damaged(path, what, at)
}

#[expect(clippy::big_endian_bytes, reason = "the last field is stored as it is written")]
const fn guid(first: u32, second: u16, third: u16, last: u64) -> Guid {
    let (a, b, c, d) =
        (first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes(), last.to_be_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}
