//! A record of the MFT, and the attributes in it.

use std::sync::Arc;

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, le64, part};

/// The unit that a disk writes whole.
const SECTOR_BYTES: usize = 512;

const IN_USE: u16 = 1;
const DIRECTORY: u16 = 2;

/// The kinds of attributes that are used here.
pub(super) mod kind {
    pub const STANDARD_INFORMATION: u32 = 0x10;
    pub const ATTRIBUTE_LIST: u32 = 0x20;
    pub const FILE_NAME: u32 = 0x30;
    pub const VOLUME_NAME: u32 = 0x60;
    pub const VOLUME_INFORMATION: u32 = 0x70;
    pub const DATA: u32 = 0x80;
    pub const INDEX_ROOT: u32 = 0x90;
    pub const INDEX_ALLOCATION: u32 = 0xa0;
    pub const BITMAP: u32 = 0xb0;
    pub const REPARSE_POINT: u32 = 0xc0;
    pub const END: u32 = u32::MAX;
}

/// A name of the form 8.3 beside one for Windows.
pub(super) const DOS_NAME: u8 = 2;

/// The end of each sector has a number that is the same in all sectors that were written together;
/// puts back what was there. Checks the four bytes that the structure begins with.
pub(super) fn fix_up(bytes: &mut [u8], magic: &[u8; 4], at: u64) -> Result<()> {
    if part(bytes, 0, 4) != magic {
        return Err(DiskError::damaged("a structure that begins with other letters", at));
    }
    let (start, count) = (usize::from(le16(bytes, 4)), usize::from(le16(bytes, 6)));
    let saved = bytes.get(start..start + 2 * count).map(<[u8]>::to_vec).unwrap_or_default();
    let (number, saved) = saved.split_at(2.min(saved.len()));
    if count == 0 || saved.len() != bytes.len() / SECTOR_BYTES * 2 {
        return Err(DiskError::damaged("the ends of sectors", at));
    }
    for (sector, end) in bytes.chunks_exact_mut(SECTOR_BYTES).zip(saved.chunks_exact(2)) {
        let place = &mut sector[SECTOR_BYTES - 2..];
        if place != number {
            return Err(DiskError::damaged("sectors that were not written together", at));
        }
        place.copy_from_slice(end);
    }
    Ok(())
}

/// A record of the MFT, put back together.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub number: u64,
    bytes: Arc<[u8]>,
}

/// The number of the record that a reference means.
pub(super) fn number_of(reference: u64) -> u64 {
    reference & 0xffff_ffff_ffff
}

/// How many times the record had been given to another file when the reference was made.
pub(super) fn sequence_of(reference: u64) -> u16 {
    (reference >> 48) as u16
}

impl Record {
    /// A record from its stored bytes.
    pub(super) fn parse(number: u64, mut stored: Vec<u8>) -> Result<Self> {
        fix_up(&mut stored, b"FILE", number)?;
        Ok(Self::of_fixed(number, stored.into()))
    }

    /// A record that was parsed before.
    pub(super) fn of_fixed(number: u64, bytes: Arc<[u8]>) -> Self {
        Self { number, bytes }
    }

    pub(super) fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    pub(super) fn is_in_use(&self) -> bool {
        le16(&self.bytes, 22) & IN_USE != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        le16(&self.bytes, 22) & DIRECTORY != 0
    }

    pub(super) fn sequence(&self) -> u16 {
        le16(&self.bytes, 16)
    }

    /// The reference by which directories name it.
    pub(super) fn reference(&self) -> u64 {
        self.number | u64::from(self.sequence()) << 48
    }

    /// The record that this one extends; zero if it is a file of its own.
    pub(super) fn base(&self) -> u64 {
        le64(&self.bytes, 32)
    }

    /// Its attributes, in the order of the record.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Result<Attribute>> + '_ {
        let used = (le32(&self.bytes, 24) as usize).min(self.bytes.len());
        let mut at = usize::from(le16(&self.bytes, 20));
        std::iter::from_fn(move || {
            let kind = le32(part(&self.bytes, at, 4), 0);
            if at >= used || kind == kind::END {
                return None;
            }
            let length = le32(&self.bytes, at + 4) as usize;
            let end = at + length;
            if length < 24 || end > used {
                at = used;
                return Some(Err(DiskError::damaged("attributes of a record", self.number)));
            }
            let attribute = Attribute { record: self.bytes.clone(), start: at, end };
            at = end;
            Some(Ok(attribute))
        })
    }
}

/// An attribute of a file, or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    record: Arc<[u8]>,
    start: usize,
    end: usize,
}

impl Attribute {
    fn raw(&self) -> &[u8] {
        &self.record[self.start..self.end]
    }

    pub(super) fn kind(&self) -> u32 {
        le32(self.raw(), 0)
    }

    pub(super) fn is_resident(&self) -> bool {
        byte(self.raw(), 8) == 0
    }

    /// Its name in UTF-16; empty for the usual one.
    pub(super) fn name(&self) -> &[u8] {
        let raw = self.raw();
        part(raw, le16(raw, 10).into(), usize::from(byte(raw, 9)) * 2)
    }

    pub(super) fn flags(&self) -> u16 {
        le16(self.raw(), 12)
    }

    pub(super) fn id(&self) -> u16 {
        le16(self.raw(), 14)
    }

    /// The value, which is in the record; empty if it is elsewhere.
    pub(super) fn value(&self) -> &[u8] {
        let raw = self.raw();
        if !self.is_resident() {
            return &[];
        }
        part(raw, le16(raw, 20).into(), le32(raw, 16) as usize)
    }

    /// The first cluster, counted in the attribute, that this part describes.
    pub(super) fn lowest(&self) -> u64 {
        if self.is_resident() { 0 } else { le64(self.raw(), 16) }
    }

    /// The cluster behind the last one that this part describes.
    pub(super) fn end(&self) -> u64 {
        if self.is_resident() { 0 } else { le64(self.raw(), 24).wrapping_add(1) }
    }

    /// How many clusters are compressed together, as a power of two; zero if none are.
    pub(super) fn unit_power(&self) -> u8 {
        byte(self.raw(), 34)
    }

    /// Bytes of the value; only the first part of an attribute knows.
    pub(super) fn data_bytes(&self) -> u64 {
        if self.is_resident() { self.value().len() as u64 } else { le64(self.raw(), 48) }
    }

    /// Bytes from the start that were ever written; only the first part of an attribute knows.
    pub(super) fn written_bytes(&self) -> u64 {
        if self.is_resident() { self.value().len() as u64 } else { le64(self.raw(), 56) }
    }

    /// The runs of clusters, as they are stored.
    pub(super) fn mapping(&self) -> &[u8] {
        let raw = self.raw();
        if self.is_resident() { &[] } else { part(raw, le16(raw, 32).into(), raw.len()) }
    }
}
