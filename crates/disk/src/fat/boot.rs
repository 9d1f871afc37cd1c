//! The boot sector of FAT12, FAT16 and FAT32: geometry, checked.

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, part};
use crate::file_system::Kind;
use crate::understood::{NotUnderstood, fat as words};

/// Enough of the boot sector for its fields and its mark.
pub(super) const BYTES: usize = 512;

/// Most clusters of FAT12, FAT16 and FAT32.
const CLUSTERS_MAX_12: u32 = 4084;
const CLUSTERS_MAX_16: u32 = 65524;
const CLUSTERS_MAX_32: u32 = 0x0fff_fff4;

/// What a boot sector says. Everything that it describes is inside of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    pub kind: Kind,
    pub sector_bytes: u64,
    pub cluster_bytes: u64,
    pub clusters: u32,
    /// Where each copy of the FAT begins that is kept up to date, the one to use first.
    pub fats: Vec<u64>,
    /// Bytes of a copy of the FAT.
    pub fat_bytes: u64,
    /// Where the root directory is.
    pub root: Root,
    /// Where the clusters begin.
    pub data_start: u64,
    /// Bytes of the volume that it covers.
    pub bytes: u64,
    pub serial: [u8; 4],
    /// In the code page of the machine that made it; padded with spaces.
    pub label: [u8; 11],
    /// It is in use, or was not unmounted.
    pub is_dirty: bool,
    /// Its surface is to be tested.
    pub has_errors: bool,
    /// What it says and is not known here: nothing is free.
    pub unknown: Option<NotUnderstood>,
}

/// Where the root directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// In its own place.
    Fixed { start: u64, bytes: u64 },
    /// In clusters, from this one on.
    Chain(u32),
}

impl Boot {
    /// Takes a boot sector apart; `None` if it is of another file system.
    pub(super) fn parse(sector: &[u8], volume_bytes: u64) -> Result<Option<Self>> {
        let sector_bytes = u64::from(le16(sector, 11));
        let cluster_sectors = u64::from(byte(sector, 13));
        let reserved = u64::from(le16(sector, 14));
        let copies = u64::from(byte(sector, 16));
        let media = byte(sector, 21);
        let is_fat = matches!(byte(sector, 0), 0xeb | 0xe9)
            && le16(sector, 510) == 0xaa55
            && matches!(sector_bytes, 512 | 1024 | 2048 | 4096)
            && cluster_sectors.is_power_of_two()
            && reserved > 0
            && matches!(copies, 1..=4)
            && (media == 0xf0 || media >= 0xf8);
        if !is_fat {
            return Ok(None);
        }
        let fat_sectors_16 = u64::from(le16(sector, 22));
        let is_32 = fat_sectors_16 == 0;
        let fat_sectors = if is_32 { le32(sector, 36).into() } else { fat_sectors_16 };
        let sectors = match le16(sector, 19) {
            0 => u64::from(le32(sector, 32)),
            sectors => sectors.into(),
        };
        let root_bytes = u64::from(le16(sector, 17)) * 32;
        let fats_end = reserved + copies * fat_sectors;
        let data_start = fats_end + root_bytes.div_ceil(sector_bytes);
        if sectors == 0 || fat_sectors == 0 || data_start >= sectors {
            return Err(damaged("geometry of a FAT volume"));
        }
        if sectors * sector_bytes > volume_bytes {
            return Err(damaged("it is larger than its volume"));
        }
        if is_32 && le16(sector, 42) != 0 {
            return Err(DiskError::unsupported("this version of FAT32"));
        }
        let clusters = u32::try_from((sectors - data_start) / cluster_sectors);
        let clusters = clusters.map_err(|_| damaged("number of clusters"))?;
        let (kind, bits) = match clusters {
            _ if is_32 => (Kind::Fat32, 32),
            0..=CLUSTERS_MAX_12 => (Kind::Fat12, 12),
            _ => (Kind::Fat16, 16),
        };
        let clusters_max = if is_32 { CLUSTERS_MAX_32 } else { CLUSTERS_MAX_16 };
        let fat_bytes = fat_sectors * sector_bytes;
        if clusters > clusters_max || (u64::from(clusters) + 2) * bits > fat_bytes * 8 {
            return Err(damaged("number of clusters"));
        }
        // From FAT32 on, one copy can be the only one that is written.
        let flags = if is_32 { le16(sector, 40) } else { 0 };
        let active = u64::from(flags & 15);
        let copies = match flags & 0x80 {
            0 => 0..copies,
            _ if active < copies => active..active + 1,
            _ => return Err(damaged("number of the FAT in use")),
        };
        let fat = |copy| (reserved + copy * fat_sectors) * sector_bytes;
        // What FAT12 and FAT16 have behind the geometry, FAT32 has later.
        let extra = if is_32 { 64 } else { 36 };
        let has_names = matches!(byte(sector, extra + 2), 0x28 | 0x29);
        let name = |at, bytes| if has_names { part(sector, extra + at, bytes) } else { &[] };
        let root = match is_32 {
            true => Root::Chain(le32(sector, 44)),
            false => Root::Fixed { start: fats_end * sector_bytes, bytes: root_bytes },
        };
        let state = byte(sector, extra + 1);
        Ok(Some(Self {
            kind,
            sector_bytes,
            cluster_bytes: cluster_sectors * sector_bytes,
            clusters,
            fats: copies.map(fat).collect(),
            fat_bytes,
            root,
            data_start: data_start * sector_bytes,
            bytes: sectors * sector_bytes,
            serial: name(3, 4).try_into().unwrap_or_default(),
            label: name(7, 11).try_into().unwrap_or([b' '; 11]),
            is_dirty: state & 1 != 0,
            has_errors: state & 2 != 0,
            unknown: words::STATE.check(state).and(words::FLAGS.check(flags)).err(),
        }))
    }
}

fn damaged(what: &'static str) -> DiskError {
    DiskError::damaged(what, 0)
}
