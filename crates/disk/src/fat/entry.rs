//! An entry of a FAT directory.

use strongroom_base::Timestamp;

use crate::dos_time::timestamp;
use crate::fields::{byte, le16, le32};

/// The bytes of an entry.
pub(super) const BYTES: u64 = 32;

const READ_ONLY: u8 = 0x01;
const LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
/// Read-only, hidden, system and label together: a part of a long name.
const LONG_NAME: u8 = 0x0f;

/// What an entry is.
pub(super) enum Slot {
    /// Behind the last entry.
    End,
    Deleted,
    LongName,
    Label,
    Used(Entry),
}

/// A name that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub stored_name: [u8; 11],
    /// Which parts of the name are in lower case.
    pub case: u8,
    pub is_directory: bool,
    pub is_read_only: bool,
    /// The first cluster; zero if it has none.
    pub first: u32,
    pub bytes: u32,
    pub mtime: Timestamp,
}

impl Slot {
    /// Takes an entry apart. Only in FAT32 does the number of the cluster have an upper half.
    pub(super) fn parse(slot: &[u8], is_32: bool) -> Self {
        let attributes = byte(slot, 11);
        let stored_name = slot.first_chunk().copied().unwrap_or_default();
        match byte(slot, 0) {
            0 => return Self::End,
            0xe5 => return Self::Deleted,
            _ if attributes & 0x3f == LONG_NAME => return Self::LongName,
            _ if attributes & LABEL != 0 => return Self::Label,
            _ => {}
        }
        let upper = if is_32 { u32::from(le16(slot, 20)) << 16 } else { 0 };
        Self::Used(Entry {
            stored_name,
            case: byte(slot, 12),
            is_directory: attributes & DIRECTORY != 0,
            is_read_only: attributes & READ_ONLY != 0,
            first: upper | u32::from(le16(slot, 26)),
            bytes: le32(slot, 28),
            mtime: timestamp(le16(slot, 24), le16(slot, 22)),
        })
    }
}

impl Entry {
    /// The entry of a directory that leads to itself or to the directory above.
    pub(super) fn is_dots(&self) -> bool {
        matches!(&self.stored_name, b".          " | b"..         ")
    }
}
