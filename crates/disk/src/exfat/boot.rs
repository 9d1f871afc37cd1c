//! The boot sectors of exFAT: geometry, checked.

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, le64, part};
use crate::read::{ReadAt, read_vec};
use crate::understood::{NotUnderstood, fat as words};

/// Enough of the first sector for its fields.
const BYTES: usize = 512;
/// Sectors that have a checksum, which is in the next.
const CHECKED: u64 = 11;

const CLUSTER_SHIFT_MAX: u8 = 25;
const CLUSTERS_MAX: u32 = u32::MAX - 10;

/// What the boot sectors say. Everything that they describe is inside of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    pub cluster_bytes: u64,
    pub clusters: u32,
    /// Where the copy of the table is that is in use, and its bytes.
    pub fat: u64,
    pub fat_bytes: u64,
    /// Which copy of the table, and of the map of clusters, is in use.
    pub active: u8,
    /// Where the clusters begin.
    pub data_start: u64,
    /// The first cluster of the root directory.
    pub root: u32,
    pub bytes: u64,
    pub serial: [u8; 4],
    pub is_dirty: bool,
    pub has_errors: bool,
    /// What it says and is not known here: nothing is free.
    pub unknown: Option<NotUnderstood>,
}

impl Boot {
    /// Reads the boot sectors; `None` if they are of another file system.
    pub(super) fn read(volume: &dyn ReadAt) -> Result<Option<Self>> {
        if volume.size() < BYTES as u64 {
            return Ok(None);
        }
        let sector = read_vec(volume, 0, BYTES)?;
        if part(&sector, 3, 8) != b"EXFAT   " {
            return Ok(None);
        }
        let (sector_shift, cluster_shift) = (byte(&sector, 108), byte(&sector, 109));
        if !(9..=12).contains(&sector_shift) || cluster_shift > CLUSTER_SHIFT_MAX - sector_shift {
            return Err(damaged("size of a sector or cluster"));
        }
        if le16(&sector, 104) >> 8 != 1 {
            return Err(DiskError::unsupported("this version of exFAT"));
        }
        let in_bytes = |sectors: u64| sectors.checked_mul(1 << sector_shift);
        let bytes = in_bytes(le64(&sector, 72)).filter(|&bytes| bytes <= volume.size());
        let bytes = bytes.ok_or_else(|| damaged("it is larger than its volume"))?;
        check(volume, 1 << sector_shift)?;
        let [fat, fat_bytes, data_start] =
            [80, 84, 88].map(|at| u64::from(le32(&sector, at)) << sector_shift);
        let copies = byte(&sector, 110);
        let flags = le16(&sector, 106);
        let active = (flags & 1) as u8;
        let clusters = le32(&sector, 92);
        let cluster_bytes = 1 << sector_shift << cluster_shift;
        let is_right = matches!(copies, 1 | 2)
            && active < copies
            && fat >= (CHECKED + 1) << sector_shift
            && (u64::from(clusters) + 2) * 4 <= fat_bytes
            && fat + fat_bytes * u64::from(copies) <= data_start
            && clusters <= CLUSTERS_MAX
            && data_start + u64::from(clusters) * cluster_bytes <= bytes;
        if !is_right {
            return Err(damaged("geometry of an exFAT volume"));
        }
        Ok(Some(Self {
            cluster_bytes,
            clusters,
            fat: fat + fat_bytes * u64::from(active),
            fat_bytes,
            active,
            data_start,
            root: le32(&sector, 96),
            bytes,
            serial: le32(&sector, 100).to_le_bytes(),
            is_dirty: flags & 2 != 0,
            has_errors: flags & 4 != 0,
            unknown: unknown(&sector).err(),
        }))
    }
}

/// Compares the boot sectors with their checksum, which leaves out what a mount changes.
fn check(volume: &dyn ReadAt, sector_bytes: u64) -> Result<()> {
    let sectors = read_vec(volume, 0, (sector_bytes * (CHECKED + 1)) as usize)?;
    let (checked, stored) = sectors.split_at((sector_bytes * CHECKED) as usize);
    let bytes = checked.iter().enumerate();
    let bytes = bytes.filter(|(at, _)| !matches!(at, 106 | 107 | 112));
    let sum =
        bytes.fold(0, |sum: u32, (_, byte)| sum.rotate_right(1).wrapping_add(u32::from(*byte)));
    if sum == le32(stored, 0) { Ok(()) } else { Err(damaged("checksum of the boot sectors")) }
}

fn unknown(sector: &[u8]) -> Result<(), NotUnderstood> {
    if le16(sector, 104) != 0x100 {
        return Err(NotUnderstood::Form("a version of exFAT other than 1.0"));
    }
    words::EXFAT.check(le16(sector, 106))
}

fn damaged(what: &'static str) -> DiskError {
    DiskError::damaged(what, 0)
}
