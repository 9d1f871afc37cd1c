//! The superblock of XFS: the geometry, and which features there are.

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, be64, byte, le32, part, until_nul, uuid};
use crate::understood::{NotUnderstood, xfs as words};

/// Bytes that have fields.
pub(super) const BYTES: usize = 512;

const MAGIC: u32 = 0x5846_5342;
const CRC_AT: usize = 224;
/// The smallest allocation group.
const GROUP_BLOCKS_MIN: u64 = 64;

mod version {
    pub const UNWRITTEN: u16 = 0x1000;
    pub const DIRECTORIES_V2: u16 = 0x2000;
    pub const MORE_BITS: u16 = 0x8000;
}

const FILE_TYPES_V4: u32 = 0x200;

/// Features without which a reader would misread.
pub(super) mod incompat {
    pub const FILE_TYPES: u32 = 1;
    pub const SPARSE: u32 = 2;
    pub const META_UUID: u32 = 4;
    pub const NEEDS_REPAIR: u32 = 0x10;
    pub const META_DIRECTORY: u32 = 0x100;
}

/// What is in the superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Metadata has checksums.
    pub is_v5: bool,
    pub block_bytes: usize,
    pub block_shift: u32,
    pub sector_bytes: usize,
    pub inode_bytes: usize,
    /// Inodes of a block, as a power of two.
    pub inode_shift: u32,
    pub blocks: u64,
    /// Blocks of an allocation group, but the last.
    pub group_blocks: u64,
    /// Bits of a block's number inside of its group.
    pub group_shift: u32,
    pub groups: u32,
    pub root: u64,
    /// The first block of the log, and how many it has.
    pub log_start: u64,
    pub log_blocks: u64,
    /// Bytes of a block of a directory.
    pub directory_bytes: usize,
    /// Entries of directories say what they lead to.
    pub has_file_types: bool,
    pub inode_alignment: u64,
    pub incompat: u32,
    pub ro_compat: u32,
    pub uuid: [u8; 16],
    /// The UUID in the other structures.
    pub meta_uuid: [u8; 16],
    pub label: Vec<u8>,
    pub is_in_progress: bool,
    /// What it says and is not known here: nothing is free.
    pub unknown: Option<NotUnderstood>,
}

impl Superblock {
    /// Takes a superblock apart; `None` if it is of another file system. The checksum is another
    /// function's: a superblock that comes from the log has none yet.
    pub(super) fn parse(bytes: &[u8], volume_bytes: u64) -> Result<Option<Self>> {
        if be32(bytes, 0) != MAGIC {
            return Ok(None);
        }
        let versions = be16(bytes, 100);
        let is_v5 = match versions & 0xf {
            4 => false,
            5 => true,
            _ => return Err(DiskError::unsupported("a version of XFS before 4 or after 5")),
        };
        if versions & version::DIRECTORIES_V2 == 0 {
            return Err(DiskError::unsupported("XFS with directories of version 1"));
        }
        let feature = |at| if is_v5 { be32(bytes, at) } else { 0 };
        let (ro_compat, incompat) = (feature(212), feature(216));
        check_features(bytes, incompat)?;
        let block_shift = u32::from(byte(bytes, 120));
        let directory_shift = block_shift + u32::from(byte(bytes, 192));
        if !(9..=16).contains(&block_shift) || directory_shift > 16 {
            return Err(damaged("size of a block of XFS, by byte"));
        }
        let more = if versions & version::MORE_BITS != 0 { be32(bytes, 200) } else { 0 };
        let has_meta_uuid = incompat & incompat::META_UUID != 0;
        let superblock = Self {
            is_v5,
            block_bytes: 1 << block_shift,
            block_shift,
            sector_bytes: be16(bytes, 102).into(),
            inode_bytes: be16(bytes, 104).into(),
            inode_shift: byte(bytes, 123).into(),
            blocks: be64(bytes, 8),
            group_blocks: be32(bytes, 84).into(),
            group_shift: byte(bytes, 124).into(),
            groups: be32(bytes, 88),
            root: be64(bytes, 56),
            log_start: be64(bytes, 48),
            log_blocks: be32(bytes, 96).into(),
            directory_bytes: 1 << directory_shift,
            has_file_types: match is_v5 {
                true => incompat & incompat::FILE_TYPES != 0,
                false => more & FILE_TYPES_V4 != 0,
            },
            inode_alignment: be32(bytes, 180).into(),
            incompat,
            ro_compat,
            uuid: uuid(bytes, 32),
            meta_uuid: uuid(bytes, if has_meta_uuid { 248 } else { 32 }),
            label: until_nul(part(bytes, 108, 12)).to_vec(),
            is_in_progress: byte(bytes, 126) != 0,
            unknown: unknown(bytes, is_v5).err(),
        };
        superblock.check(bytes, volume_bytes)?;
        Ok(Some(superblock))
    }

    fn check(&self, bytes: &[u8], volume_bytes: u64) -> Result<()> {
        let whole = self.blocks.checked_mul(self.block_bytes as u64);
        if be32(bytes, 4) as usize != self.block_bytes
            || whole.is_none_or(|whole| whole > volume_bytes)
        {
            return Err(damaged("XFS is larger than its volume, by byte"));
        }
        let is_sized = (512..=self.block_bytes.max(512)).contains(&self.sector_bytes)
            && self.sector_bytes.is_power_of_two()
            && (256..=2048.min(self.block_bytes)).contains(&self.inode_bytes)
            && self.inode_bytes.is_power_of_two()
            && self.block_bytes / self.inode_bytes == 1 << self.inode_shift.min(31);
        if !is_sized {
            return Err(damaged("size of a sector or an inode of XFS, by byte"));
        }
        let groups = u64::from(self.groups);
        let is_grouped = self.group_blocks >= GROUP_BLOCKS_MIN
            && self.group_shift <= 31
            && self.group_blocks <= 1 << self.group_shift
            && groups > 0
            && self.blocks <= groups.saturating_mul(self.group_blocks)
            && self.blocks > (groups - 1).saturating_mul(self.group_blocks);
        if !is_grouped {
            return Err(damaged("allocation groups of XFS, by byte"));
        }
        Ok(())
    }

    /// Blocks of a group; zero if there is no such group.
    pub(super) fn blocks_of(&self, group: u64) -> u64 {
        let start = group.saturating_mul(self.group_blocks);
        self.blocks.saturating_sub(start).min(self.group_blocks)
    }

    /// Whether the log is of a kind that we know.
    pub(super) fn has_known_log(&self) -> bool {
        self.is_v5 && self.unknown.is_none()
    }

    /// Whether `xfs_repair` was interrupted, or has yet to run.
    pub(super) fn needs_repair(&self) -> bool {
        self.is_in_progress || self.incompat & incompat::NEEDS_REPAIR != 0
    }
}

/// Verifies the checksum of a superblock as it is on the volume: over a whole sector.
pub(super) fn check_sum(sector: &[u8]) -> Result<()> {
    let is_v5 = be16(sector, 100) & 0xf == 5;
    if is_v5 && !is_sum_right(sector, CRC_AT) {
        return Err(damaged("checksum of the superblock of XFS, by byte"));
    }
    Ok(())
}

/// Whether a structure has the right checksum, which is at `at` and counts as zeros.
pub(super) fn is_sum_right(bytes: &[u8], at: usize) -> bool {
    let state = crc32c(!0, part(bytes, 0, at));
    let state = crc32c(state, &[0; 4]);
    !crc32c(state, part(bytes, at + 4, bytes.len())) == le32(bytes, at)
}

fn damaged(what: &'static str) -> DiskError {
    DiskError::damaged(what, 0)
}

fn check_features(bytes: &[u8], incompat: u32) -> Result<()> {
    if be64(bytes, 16) != 0 {
        return Err(DiskError::unsupported("XFS with a realtime device"));
    }
    if be64(bytes, 48) == 0 {
        return Err(DiskError::unsupported("XFS with its log on another device"));
    }
    if incompat & incompat::META_DIRECTORY != 0 {
        return Err(DiskError::unsupported("XFS with a directory of metadata"));
    }
    words::INCOMPAT.check(incompat)?;
    Ok(())
}

/// What of a superblock is not known, and does not keep its files from being read.
fn unknown(bytes: &[u8], is_v5: bool) -> Result<(), NotUnderstood> {
    let versions = be16(bytes, 100);
    words::VERSION.check(versions)?;
    words::FLAGS.check(byte(bytes, 178))?;
    if versions & version::UNWRITTEN == 0 || byte(bytes, 179) != 0 {
        return Err(NotUnderstood::Form("a form of XFS from before 2.6"));
    }
    let more = if versions & version::MORE_BITS != 0 { be32(bytes, 200) } else { 0 };
    if !is_v5 {
        return words::MORE_V4.check(more);
    }
    words::MORE_V5.check(more)?;
    words::COMPAT.check(be32(bytes, 208))?;
    words::RO_COMPAT.check(be32(bytes, 212))?;
    words::LOG_INCOMPAT.check(be32(bytes, 220))
}
