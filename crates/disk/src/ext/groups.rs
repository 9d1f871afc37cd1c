//! Group descriptors: where a group's maps and inodes are, and what is known of them.

use crate::checksum::{crc16, crc32c};
use crate::error::{DiskError, Result};
use crate::fields::{le16, le32, part};
use crate::understood::ext as words;

use super::blocks::Blocks;
use super::superblock::{incompat, ro_compat};

/// The table of inodes was never written to its end.
const INODES_UNUSED: u16 = 1;
/// The block map was never written: all blocks are free but those with metadata.
const BLOCKS_UNUSED: u16 = 2;

/// What a descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub block_map: u64,
    pub inode_map: u64,
    pub inode_table: u64,
    pub free_clusters: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// All of its inodes were never used.
    pub has_no_inodes: bool,
    /// Its block map was never written.
    pub has_no_map: bool,
    /// The checksum of the block map: 16 bits of it if the descriptor is short.
    pub block_map_checksum: u32,
}

impl Group {
    /// Reads a descriptor. `group` is below the number of groups.
    pub(super) fn read(blocks: &Blocks<'_>, group: u64) -> Result<Self> {
        let superblock = &blocks.superblock;
        let per_block = (superblock.block_bytes / superblock.descriptor_bytes) as u64;
        let block = blocks.get(descriptor_block(blocks, group / per_block))?;
        let at = (group % per_block) as usize * superblock.descriptor_bytes;
        let bytes = part(&block, at, superblock.descriptor_bytes);
        check(blocks, group, bytes)?;
        let is_wide = superblock.descriptor_bytes >= 64;
        let high32 = |at| if is_wide { u64::from(le32(bytes, at)) << 32 } else { 0 };
        let high16 = |at| if is_wide { u32::from(le16(bytes, at)) << 16 } else { 0 };
        let has_flags =
            superblock.ro_compat & (ro_compat::GDT_CSUM | ro_compat::METADATA_CSUM) != 0;
        let flags = if has_flags { le16(bytes, 0x12) } else { 0 };
        words::GROUP.check(flags)?;
        let unused = u32::from(le16(bytes, 0x1c)) | high16(0x32);
        Ok(Self {
            block_map: u64::from(le32(bytes, 0)) | high32(0x20),
            inode_map: u64::from(le32(bytes, 4)) | high32(0x24),
            inode_table: u64::from(le32(bytes, 8)) | high32(0x28),
            free_clusters: u32::from(le16(bytes, 0xc)) | high16(0x2c),
            unused_inodes: if has_flags { unused } else { 0 },
            has_no_inodes: flags & INODES_UNUSED != 0,
            has_no_map: flags & BLOCKS_UNUSED != 0,
            block_map_checksum: u32::from(le16(bytes, 0x18)) | high16(0x38),
        })
    }
}

/// Where a block of descriptors is.
fn descriptor_block(blocks: &Blocks<'_>, index: u64) -> u64 {
    let superblock = &blocks.superblock;
    let is_spread = superblock.incompat & incompat::META_BG != 0;
    let behind_superblock = 1024 / superblock.block_bytes as u64 + 1;
    if !is_spread || index < superblock.first_meta_group {
        return behind_superblock + index;
    }
    let per_block = (superblock.block_bytes / superblock.descriptor_bytes) as u64;
    let group = index * per_block;
    let mut behind = u64::from(superblock.has_copy(group));
    if superblock.block_bytes == 1024 && index == 0 && superblock.first_data_block == 0 {
        behind += 1;
    }
    superblock.group_start(group) + behind
}

/// The blocks at the start of a group that have copies of the superblock and of descriptors, as a
/// number of blocks. More is counted than there is, never less.
pub(super) fn copied_blocks(blocks: &Blocks<'_>, group: u64) -> u64 {
    let superblock = &blocks.superblock;
    let per_block = (superblock.block_bytes / superblock.descriptor_bytes) as u64;
    let descriptor_blocks = superblock.groups().div_ceil(per_block);
    let is_spread = superblock.incompat & incompat::META_BG != 0;
    let boot = u64::from(superblock.first_data_block == 0 && superblock.block_bytes == 1024);
    let copy = u64::from(superblock.has_copy(group));
    let table = match (superblock.has_copy(group), is_spread) {
        (true, false) => descriptor_blocks + superblock.reserved_descriptor_blocks,
        (true, true) => descriptor_blocks.min(superblock.first_meta_group),
        (false, _) => 0,
    };
    // The first two groups and the last one of a metagroup have its descriptors.
    let place = group % per_block;
    let own = is_spread && (place < 2 || place == per_block - 1);
    boot + copy + table + u64::from(own)
}

fn check(blocks: &Blocks<'_>, group: u64, bytes: &[u8]) -> Result<()> {
    let superblock = &blocks.superblock;
    let number = (group as u32).to_le_bytes();
    let mut covered = bytes.to_vec();
    let expected = le16(bytes, 0x1e);
    let found = if superblock.has_checksums() {
        covered[0x1e..0x20].fill(0);
        crc32c(crc32c(superblock.seed, &number), &covered) as u16
    } else if superblock.ro_compat & ro_compat::GDT_CSUM != 0 {
        let state = crc16(crc16(!0, &superblock.uuid), &number);
        let state = crc16(state, &covered[..0x1e]);
        match superblock.incompat & incompat::BITS_64 {
            0 => state,
            _ => crc16(state, part(&covered, 0x20, covered.len())),
        }
    } else {
        expected
    };
    if found == expected {
        Ok(())
    } else {
        Err(DiskError::damaged("checksum of a group's descriptor, by group", group))
    }
}
