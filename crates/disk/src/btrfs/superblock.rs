//! The superblock of Btrfs: where the first trees are, and which features there are. It has up to
//! three copies.

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, le64, part, until_nul, uuid};
use crate::read::{ReadAt, read_vec};
use crate::understood::{NotUnderstood, btrfs as words};

use super::checksum::Checksum;

/// Where the copies are.
pub(super) const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
pub(super) const BYTES: usize = 4096;
const MAGIC: &[u8] = b"_BHRfS_M";
const LEVELS_MAX: u8 = 7;

mod flag {
    pub const ERROR: u64 = 4;
    pub const METADUMP: u64 = 3 << 33;
    pub const CHANGING: u64 = 3 << 35;
}

/// Features without which a reader would misread.
mod incompat {
    pub const MIXED_REFERENCES: u64 = 0x1;
    pub const METADATA_UUID: u64 = 0x400;
    pub const ZONED: u64 = 0x1000;
}

/// Features without which a writer would do damage.
mod compat_ro {
    pub const BLOCK_GROUP_TREE: u64 = 8;
}

/// The root of a tree: the place of a node, its level, and the transaction that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Root {
    pub logical: u64,
    pub level: u8,
    pub generation: u64,
}

/// What is in the superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub uuid: [u8; 16],
    /// The UUID in the nodes of trees.
    pub node_uuid: [u8; 16],
    pub label: Vec<u8>,
    pub generation: u64,
    pub roots: Root,
    pub chunks: Root,
    /// There is a log of files that were synchronized.
    pub has_log: bool,
    /// Bytes of the device.
    pub bytes: u64,
    pub device: u64,
    pub sector_bytes: u64,
    pub node_bytes: usize,
    pub checksum: Checksum,
    /// The chunks in which the tree of chunks is.
    pub system_chunks: Vec<u8>,
    pub has_errors: bool,
    pub has_group_tree: bool,
    /// What it says and is not known here: nothing is free.
    pub unknown: Option<NotUnderstood>,
}

impl Superblock {
    /// Reads the superblock of a volume; `None` if it has another file system or none. If the first
    /// copy is damaged, the newest of the others is used, and counts as one with errors.
    pub(super) fn read(volume: &dyn ReadAt) -> Result<Option<Self>> {
        let first = match Self::copy(volume, PLACES[0]) {
            Ok(copy) => return Ok(copy),
            Err(DiskError::Damaged { what, at }) => DiskError::Damaged { what, at },
            Err(error) => return Err(error),
        };
        let others = PLACES[1..].iter().filter_map(|place| Self::copy(volume, *place).ok()?);
        let newest = others.max_by_key(|copy| copy.generation);
        newest.map(|copy| Some(Self { has_errors: true, ..copy })).ok_or(first)
    }

    fn copy(volume: &dyn ReadAt, place: u64) -> Result<Option<Self>> {
        if volume.size() < place + BYTES as u64 {
            return Ok(None);
        }
        let bytes = read_vec(volume, place, BYTES)?;
        if part(&bytes, 64, 8) != MAGIC {
            return Ok(None);
        }
        let damaged = |what| DiskError::damaged(what, place);
        let checksum = Checksum::of_kind(le16(&bytes, 196))?;
        if !checksum.is_right(&bytes) || le64(&bytes, 48) != place {
            return Err(damaged("checksum of the superblock of Btrfs, by byte"));
        }
        let (flags, incompat, compat_ro) = (le64(&bytes, 56), le64(&bytes, 188), le64(&bytes, 180));
        check_features(&bytes, flags, incompat)?;
        let has_node_uuid = incompat & incompat::METADATA_UUID != 0;
        let generation = le64(&bytes, 72);
        let root = |at, level_at, generation| Root {
            logical: le64(&bytes, at),
            level: byte(&bytes, level_at),
            generation,
        };
        let superblock = Self {
            uuid: uuid(&bytes, 32),
            node_uuid: uuid(&bytes, if has_node_uuid { 571 } else { 32 }),
            label: until_nul(part(&bytes, 299, 256)).to_vec(),
            generation,
            roots: root(80, 198, generation),
            chunks: root(88, 199, le64(&bytes, 164)),
            has_log: le64(&bytes, 96) != 0,
            bytes: le64(&bytes, 209),
            device: le64(&bytes, 201),
            sector_bytes: le32(&bytes, 144).into(),
            node_bytes: le32(&bytes, 148) as usize,
            checksum,
            system_chunks: part(&bytes, 811, 2048.min(le32(&bytes, 160) as usize)).to_vec(),
            has_errors: flags & (flag::ERROR | flag::CHANGING) != 0,
            has_group_tree: compat_ro & compat_ro::BLOCK_GROUP_TREE != 0,
            unknown: unknown(&bytes).err(),
        };
        if superblock.bytes > volume.size() {
            return Err(damaged("Btrfs is larger than its volume, by byte"));
        }
        let is_sized = |bytes: u64| (4096..=65536).contains(&bytes) && bytes.is_power_of_two();
        let is_right = is_sized(superblock.sector_bytes)
            && is_sized(superblock.node_bytes as u64)
            && superblock.node_bytes as u64 >= superblock.sector_bytes
            && superblock.roots.level <= LEVELS_MAX
            && superblock.chunks.level <= LEVELS_MAX;
        if is_right { Ok(Some(superblock)) } else { Err(damaged("sizes of Btrfs, by byte")) }
    }
}

fn check_features(bytes: &[u8], flags: u64, incompat: u64) -> Result<()> {
    if le64(bytes, 136) != 1 {
        return Err(DiskError::unsupported("Btrfs on several devices"));
    }
    if incompat & incompat::ZONED != 0 {
        return Err(DiskError::unsupported("Btrfs on a zoned device"));
    }
    words::INCOMPAT.check(incompat)?;
    if flags & flag::METADUMP != 0 {
        return Err(DiskError::unsupported("a dump of the metadata of Btrfs"));
    }
    Ok(())
}

/// What of a superblock is not known, and does not keep its files from being read.
fn unknown(bytes: &[u8]) -> Result<(), NotUnderstood> {
    words::FLAGS.check(le64(bytes, 56))?;
    words::COMPAT.check(le64(bytes, 172))?;
    words::RO_COMPAT.check(le64(bytes, 180))?;
    if le64(bytes, 188) & incompat::MIXED_REFERENCES == 0 {
        return Err(NotUnderstood::Form("a form of Btrfs from before 2.6.31"));
    }
    Ok(())
}
