//! The entries that describe a file together, and those that describe the volume.

use strongroom_base::Timestamp;

use crate::clusters::{Chain, Content};
use crate::dos_time::timestamp;
use crate::fields::{byte, le16, le32, le64, part};
use crate::wide;

/// The bytes of an entry.
pub(super) const BYTES: u64 = 32;
/// The most entries of a file: its own, one for the content, and 17 for a name of 255 units.
pub(super) const ENTRIES_MAX: usize = 19;

const IN_USE: u8 = 0x80;
const SECONDARY: u8 = 0x40;
const BENIGN: u8 = 0x20;
const BITMAP: u8 = 0x81;
const CASE_TABLE: u8 = 0x82;
const LABEL: u8 = 0x83;
const FILE: u8 = 0x85;
const STREAM: u8 = 0xc0;
const NAME: u8 = 0xc1;
/// Units of a name in an entry.
const NAME_UNITS: usize = 15;

const READ_ONLY: u16 = 0x01;
const DIRECTORY: u16 = 0x10;

/// The content has clusters that follow each other; the table says nothing of them.
const NO_CHAIN: u8 = 2;

/// A file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub name: Vec<u8>,
    pub is_directory: bool,
    pub is_read_only: bool,
    pub mtime: Timestamp,
    pub first: u32,
    pub no_chain: bool,
    pub bytes: u64,
    pub written: u64,
}

/// What an entry begins.
pub(super) enum Slot {
    /// Behind the last entry.
    End,
    /// Not in use, or of no interest.
    Other,
    /// More of a file.
    Secondary,
    /// A file of this number of entries.
    File(usize),
    Label(Vec<u8>),
    /// Which clusters are in use; one of two maps.
    Bitmap {
        copy: u8,
        content: (u32, u64),
    },
    /// Of a kind that is not known here, and that no system may overlook.
    Critical,
    /// Which letters are the same.
    CaseTable {
        content: (u32, u64),
    },
}

impl Slot {
    pub(super) fn parse(slot: &[u8]) -> Self {
        let content = (le32(slot, 20), le64(slot, 24));
        match byte(slot, 0) {
            0 => Self::End,
            FILE => Self::File(usize::from(byte(slot, 1)) + 1),
            LABEL => {
                let units = usize::from(byte(slot, 1)).min(11) * 2;
                Self::Label(wide::utf8(wide::units(part(slot, 2, units))))
            }
            BITMAP => Self::Bitmap { copy: byte(slot, 1) & 1, content },
            CASE_TABLE => Self::CaseTable { content },
            kind if kind & (IN_USE | SECONDARY) == IN_USE | SECONDARY => Self::Secondary,
            kind if kind & (IN_USE | SECONDARY | BENIGN) == IN_USE => Self::Critical,
            _ => Self::Other,
        }
    }
}

impl Set {
    /// Takes the entries of a file apart; `None` if they contradict their checksum or themselves.
    pub(super) fn parse(entries: &[u8]) -> Option<Self> {
        let mut slots = entries.chunks_exact(BYTES as usize);
        let (file, stream) = (slots.next()?, slots.next()?);
        let is_right = byte(file, 0) == FILE
            && byte(stream, 0) == STREAM
            && checksum(entries) == le16(file, 2);
        let name_units = usize::from(byte(stream, 3));
        let names: Vec<&[u8]> = slots.take_while(|slot| byte(slot, 0) == NAME).collect();
        if !is_right || names.len() < name_units.div_ceil(NAME_UNITS) {
            return None;
        }
        let units = names.iter().flat_map(|slot| wide::units(part(slot, 2, NAME_UNITS * 2)));
        let attributes = le16(file, 4);
        let (bytes, written) = (le64(stream, 24), le64(stream, 8));
        (written <= bytes).then(|| Self {
            name: wide::utf8(units.take(name_units)),
            is_directory: attributes & DIRECTORY != 0,
            is_read_only: attributes & READ_ONLY != 0,
            mtime: time(le32(file, 12), byte(file, 21), byte(file, 23)),
            first: le32(stream, 20),
            no_chain: byte(stream, 1) & NO_CHAIN != 0,
            bytes,
            written,
        })
    }

    /// Where the content is; `None` if there is none.
    pub(super) fn content(&self, cluster_bytes: u64) -> Option<Content> {
        let consecutive = self.no_chain.then(|| self.bytes.div_ceil(cluster_bytes));
        let chain = Chain { first: self.first, consecutive };
        (self.bytes > 0).then_some(Content { chain, bytes: self.bytes, written: self.written })
    }
}

/// The checksum of the entries of a file, which leaves out itself.
fn checksum(entries: &[u8]) -> u16 {
    let bytes = entries.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    bytes.fold(0, |sum: u16, (_, byte)| sum.rotate_right(1).wrapping_add(u16::from(*byte)))
}

/// A time of DOS, with hundredths of a second, and the distance from UTC in quarters of an hour if it
/// is known: otherwise it is taken as UTC.
fn time(stored: u32, hundredths: u8, zone: u8) -> Timestamp {
    let Timestamp(nanos) = timestamp((stored >> 16) as u16, stored as u16);
    let is_known = zone & 0x80 != 0;
    let quarters = if is_known { i64::from((zone << 1).cast_signed() >> 1) } else { 0 };
    let seconds = quarters * 15 * 60;
    Timestamp(nanos + i64::from(hundredths.min(199)) * 10_000_000 - seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_zone_if_it_is_known() {
        let stored = (46 << 9 | 11 << 5 | 25) << 16 | 12 << 11;
        let noon = 1_795_564_800 + 12 * 3600;
        let seconds = |hundredths, zone| {
            let Timestamp(nanos) = time(stored, hundredths, zone);
            (nanos / 1_000_000_000, nanos % 1_000_000_000)
        };
        assert_eq!(seconds(0, 0), (noon, 0));
        assert_eq!(seconds(0, 4), (noon, 0), "not known");
        assert_eq!(seconds(150, 0x80 | 4), (noon + 1 - 3600, 500_000_000), "one hour east");
        assert_eq!(seconds(0, 0x80 | 0x74), (noon + 3 * 3600, 0), "three hours west");
    }
}
