//! A physical volume: its label, and the text of its group.

use crate::checksum::crc32;
use crate::error::Result;
use crate::fields::{le32, le64, part};
use crate::read::{ReadAt, read_vec};

/// The label is in one of the first four sectors.
const LABEL_SECTORS: usize = 4;
const SECTOR_BYTES: usize = 512;
const MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// What LVM's checksums begin with.
const CRC_START: u32 = 0xf597_a6cf;
/// Metadata areas of a physical volume: LVM makes at most two.
const AREAS_MAX: usize = 8;
/// Bytes of a group's text. 1 MiB is a group of a few thousand volumes.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// A physical volume that was found.
pub(super) struct Physical {
    /// Its UUID, 32 characters without hyphens.
    pub(super) id: String,
    /// The texts of its group, usually one, or two that are the same. None if it has no metadata
    /// area in use.
    pub(super) texts: Vec<String>,
    /// A metadata area is damaged.
    pub(super) is_damaged: bool,
}

/// The physical volume that a partition or a disk is; `None` if it is something else.
pub(super) fn find(reader: &dyn ReadAt) -> Result<Option<Physical>> {
    if reader.size() < (LABEL_SECTORS * SECTOR_BYTES) as u64 {
        return Ok(None);
    }
    let head = read_vec(reader, 0, LABEL_SECTORS * SECTOR_BYTES)?;
    let sectors = head.chunks(SECTOR_BYTES).enumerate();
    let Some((_, label)) = sectors.into_iter().find(|(index, sector)| is_label(*index, sector))
    else {
        return Ok(None);
    };
    let header = part(label, le32(label, 20) as usize, SECTOR_BYTES);
    let id = String::from_utf8_lossy(part(header, 0, 32)).into_owned();
    let mut physical = Physical { id, texts: Vec::new(), is_damaged: false };
    for (offset, bytes) in metadata_areas(part(header, 40, SECTOR_BYTES)) {
        match text(reader, offset, bytes) {
            Ok(Some(text)) => physical.texts.push(text),
            Ok(None) => {}
            Err(_) => physical.is_damaged = true,
        }
    }
    Ok(Some(physical))
}

fn is_label(index: usize, sector: &[u8]) -> bool {
    sector.starts_with(b"LABELONE")
        && part(sector, 24, 8) == b"LVM2 001"
        && le64(sector, 8) == index as u64
        && crc32(CRC_START, &sector[20..]) == le32(sector, 16)
}

/// The list of data areas ends with a zero, as that of metadata areas behind it does.
fn metadata_areas(lists: &[u8]) -> Vec<(u64, u64)> {
    let pairs = lists.chunks_exact(16).map(|pair| (le64(pair, 0), le64(pair, 8)));
    let behind_data = pairs.skip_while(|(offset, _)| *offset != 0).skip(1);
    behind_data.take_while(|(offset, _)| *offset != 0).take(AREAS_MAX).collect()
}

/// The text of a metadata area, which is used as a ring; `None` if the area is not in use.
fn text(reader: &dyn ReadAt, offset: u64, bytes: u64) -> Result<Option<String>> {
    let damaged = || crate::error::DiskError::damaged("metadata area of LVM, by byte", offset);
    let header = read_vec(reader, offset, SECTOR_BYTES)?;
    let is_right = crc32(CRC_START, &header[4..]) == le32(&header, 0)
        && part(&header, 4, 16) == MAGIC
        && le64(&header, 24) == offset
        && le64(&header, 32) == bytes;
    if !is_right {
        return Err(damaged());
    }
    let (start, length) = (le64(&header, 40), le64(&header, 48));
    let is_ignored = le32(&header, 60) & 1 != 0;
    if start == 0 || is_ignored {
        return Ok(None);
    }
    let ring_start = SECTOR_BYTES as u64;
    let ring = bytes.saturating_sub(ring_start);
    if start < ring_start || start >= bytes || length > ring || length > TEXT_BYTES_MAX {
        return Err(damaged());
    }
    let first = length.min(bytes - start);
    let at = |inside: u64| offset.checked_add(inside).ok_or_else(damaged);
    let mut text = read_vec(reader, at(start)?, first as usize)?;
    text.extend(read_vec(reader, at(ring_start)?, (length - first) as usize)?);
    if crc32(CRC_START, &text) != le32(&header, 56) {
        return Err(damaged());
    }
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    text.truncate(end);
    String::from_utf8(text).map(Some).map_err(|_| damaged())
}
