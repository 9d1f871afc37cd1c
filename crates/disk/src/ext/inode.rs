//! One inode as it is stored: its fields, its checksum, its times.

use strongroom_base::Timestamp;
use strongroom_catalog::DeviceNumber;

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{le16, le32, part};

use super::blocks::Blocks;
use super::groups::Group;
use super::superblock::incompat;

/// Where the fields that not every inode has begin.
pub(super) const OLD_BYTES: usize = 128;
/// Block numbers, an extent tree's root, a short target, or the start of inline data.
pub(super) const BLOCK_AREA: std::ops::Range<usize> = 0x28..0x64;

/// Bits of an inode's flags.
pub(super) mod flag {
    pub const ENCRYPTED: u32 = 0x800;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const VERITY: u32 = 0x10_0000;
    pub const EA_INODE: u32 = 0x20_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

/// The type bits of a mode.
pub(super) mod kind {
    pub const FIFO: u16 = 0o1;
    pub const CHAR_DEVICE: u16 = 0o2;
    pub const DIRECTORY: u16 = 0o4;
    pub const BLOCK_DEVICE: u16 = 0o6;
    pub const FILE: u16 = 0o10;
    pub const SYMLINK: u16 = 0o12;
    pub const SOCKET: u16 = 0o14;
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inode {
    pub number: u64,
    /// All of its bytes.
    pub raw: Vec<u8>,
    /// What checksums of what belongs to it begin with.
    pub seed: u32,
    /// Directories may be larger than 4 GiB.
    has_large_directories: bool,
}

impl Inode {
    /// Reads an inode and verifies its checksum.
    pub(super) fn read(blocks: &Blocks<'_>, number: u64) -> Result<Self> {
        let superblock = &blocks.superblock;
        if number == 0 || number > superblock.inodes.into() {
            return Err(DiskError::damaged("number of an inode", number));
        }
        let per_group = u64::from(superblock.inodes_per_group);
        let group = Group::read(blocks, (number - 1) / per_group)?;
        let per_block = (superblock.block_bytes / superblock.inode_bytes) as u64;
        let index = (number - 1) % per_group;
        let inside = (index % per_block) as usize * superblock.inode_bytes;
        let block = group.inode_table.checked_add(index / per_block);
        let block = block.ok_or(DiskError::damaged("place of an inode", number))?;
        let raw = part(&blocks.get(block)?, inside, superblock.inode_bytes).to_vec();
        let inode = Self::of_raw(blocks, number, raw);
        inode.check(blocks)?;
        Ok(inode)
    }

    /// An inode whose bytes were read, not verified.
    pub(super) fn of_raw(blocks: &Blocks<'_>, number: u64, raw: Vec<u8>) -> Self {
        let seed = crc32c(blocks.superblock.seed, &(number as u32).to_le_bytes());
        let seed = crc32c(seed, part(&raw, 0x64, 4));
        let has_large_directories = blocks.superblock.incompat & incompat::LARGEDIR != 0;
        Self { number, raw, seed, has_large_directories }
    }

    /// Verifies the checksum, if there is one.
    pub(super) fn check(&self, blocks: &Blocks<'_>) -> Result<()> {
        if !blocks.superblock.has_checksums() {
            return Ok(());
        }
        let mut covered = self.raw.clone();
        covered[0x7c..0x7e].fill(0);
        let mut expected = u32::from(le16(&self.raw, 0x7c));
        let is_wide = self.extra_bytes() >= 4;
        if is_wide {
            covered[0x82..0x84].fill(0);
            expected |= u32::from(le16(&self.raw, 0x82)) << 16;
        }
        let found = crc32c(self.seed, &covered);
        let found = if is_wide { found } else { found & 0xffff };
        if found == expected { Ok(()) } else { Err(self.damaged("checksum of an inode")) }
    }

    pub(super) fn damaged(&self, what: &'static str) -> DiskError {
        DiskError::damaged(what, self.number)
    }

    /// The type bits of the mode.
    pub(super) fn kind(&self) -> u16 {
        self.mode() >> 12
    }

    pub(super) fn mode(&self) -> u16 {
        le16(&self.raw, 0)
    }

    pub(super) fn uid(&self) -> u32 {
        u32::from(le16(&self.raw, 2)) | u32::from(le16(&self.raw, 0x78)) << 16
    }

    pub(super) fn gid(&self) -> u32 {
        u32::from(le16(&self.raw, 0x18)) | u32::from(le16(&self.raw, 0x7a)) << 16
    }

    pub(super) fn links(&self) -> u16 {
        le16(&self.raw, 0x1a)
    }

    pub(super) fn flags(&self) -> u32 {
        le32(&self.raw, 0x20)
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    pub(super) fn deleted_at(&self) -> u32 {
        le32(&self.raw, 0x14)
    }

    pub(super) fn size(&self) -> u64 {
        let is_large = self.kind() == kind::FILE || self.has_large_directories;
        let high = if is_large { le32(&self.raw, 0x6c) } else { 0 };
        u64::from(le32(&self.raw, 4)) | u64::from(high) << 32
    }

    /// The block with extended attributes; zero if there is none.
    pub(super) fn xattr_block(&self) -> u64 {
        u64::from(le32(&self.raw, 0x68)) | u64::from(le16(&self.raw, 0x76)) << 32
    }

    /// Blocks that it has, in units that the flag `HUGE_FILE` decides; zero says that it has none.
    pub(super) fn blocks(&self) -> u64 {
        u64::from(le32(&self.raw, 0x1c)) | u64::from(le16(&self.raw, 0x74)) << 32
    }

    pub(super) fn block_area(&self) -> &[u8] {
        part(&self.raw, BLOCK_AREA.start, BLOCK_AREA.len())
    }

    /// Bytes of the fields behind the old ones; zero if these are invalid.
    pub(super) fn extra_bytes(&self) -> usize {
        let extra = usize::from(le16(&self.raw, OLD_BYTES));
        if OLD_BYTES + extra <= self.raw.len() { extra } else { 0 }
    }

    pub(super) fn ctime(&self) -> Timestamp {
        self.time(0xc, 0x84)
    }

    pub(super) fn mtime(&self) -> Timestamp {
        self.time(0x10, 0x88)
    }

    /// Signed seconds; if the inode has it, an extra field with two more bits and nanoseconds.
    fn time(&self, at: usize, extra_at: usize) -> Timestamp {
        let mut seconds = i64::from(le32(&self.raw, at).cast_signed());
        let mut nanos = 0;
        if extra_at + 4 <= OLD_BYTES + self.extra_bytes() {
            let extra = le32(&self.raw, extra_at);
            seconds += i64::from(extra & 3) << 32;
            nanos = extra >> 2;
        }
        let time = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Timestamp(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// The device of a special file: in the old form, or in the new one behind a zero.
    pub(super) fn device(&self) -> DeviceNumber {
        let (old, new) = (le32(self.block_area(), 0), le32(self.block_area(), 4));
        if old != 0 {
            return DeviceNumber { major: (old >> 8) & 0xff, minor: old & 0xff };
        }
        let minor = (new & 0xff) | ((new >> 12) & 0xf_ff00);
        DeviceNumber { major: (new >> 8) & 0xfff, minor }
    }

    /// A symbolic link whose target is in the inode itself.
    pub(super) fn is_short_link(&self, blocks: &Blocks<'_>) -> bool {
        if self.kind() != kind::SYMLINK || self.has(flag::INLINE_DATA) {
            return false;
        }
        if blocks.superblock.incompat & incompat::EA_INODE != 0 {
            return self.size() > 0 && self.size() < BLOCK_AREA.len() as u64;
        }
        let cluster_bytes = blocks.block_bytes() * blocks.superblock.cluster_blocks;
        let unit = if self.has(flag::HUGE_FILE) { blocks.block_bytes() } else { 512 };
        let xattrs = if self.xattr_block() != 0 { cluster_bytes / unit } else { 0 };
        self.blocks() == xattrs
    }

    /// Whether its block area leads to blocks.
    pub(super) fn has_mapping(&self, blocks: &Blocks<'_>) -> bool {
        // The list of bad blocks has no type.
        let is_mapped = matches!(self.kind(), kind::FILE | kind::DIRECTORY | kind::SYMLINK)
            || (self.number == 1 && self.mode() == 0);
        is_mapped && !self.has(flag::INLINE_DATA) && !self.is_short_link(blocks)
    }
}
