//! The superblock of ext2, ext3 and ext4: geometry, features and state, checked.

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, le64, part, until_nul, uuid};
use crate::file_system::Kind;
use crate::understood::{NotUnderstood, ext as words};

/// Where the superblock is, and how long.
pub(super) const OFFSET: u64 = 1024;
pub(super) const BYTES: usize = 1024;

const MAGIC: u16 = 0xef53;

/// Features that a reader must know.
pub(super) mod incompat {
    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const JOURNAL_DEV: u32 = 0x8;
    pub const META_BG: u32 = 0x10;
    pub const BITS_64: u32 = 0x80;
    pub const EA_INODE: u32 = 0x400;
    pub const CSUM_SEED: u32 = 0x2000;
    pub const LARGEDIR: u32 = 0x4000;

    /// Those of ext3.
    pub const OLD: u32 = FILETYPE | RECOVER | META_BG;
}

/// Features that a writer must know.
pub(super) mod ro_compat {
    pub const SPARSE_SUPER: u32 = 0x1;
    pub const LARGE_FILE: u32 = 0x2;
    pub const BTREE_DIR: u32 = 0x4;
    pub const GDT_CSUM: u32 = 0x10;
    pub const BIGALLOC: u32 = 0x200;
    pub const METADATA_CSUM: u32 = 0x400;

    /// Those of ext3.
    pub const OLD: u32 = SPARSE_SUPER | LARGE_FILE | BTREE_DIR;
}

const HAS_JOURNAL: u32 = 0x4;
const SPARSE_SUPER2: u32 = 0x200;

/// Unmounted cleanly.
const STATE_VALID: u16 = 1;
/// The kernel noted an error.
const STATE_ERROR: u16 = 2;

/// What a superblock says. `block_bytes * blocks` is at most the size of the volume, and every
/// divisor is not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub block_bytes: usize,
    pub blocks: u64,
    pub first_data_block: u64,
    /// Blocks of a cluster, the unit of the allocation maps; a power of two.
    pub cluster_blocks: u64,
    pub blocks_per_group: u64,
    pub inodes: u32,
    pub inodes_per_group: u32,
    pub inode_bytes: usize,
    pub descriptor_bytes: usize,
    pub first_meta_group: u64,
    /// Blocks behind the group descriptors into which these can grow.
    pub reserved_descriptor_blocks: u64,
    /// With `SPARSE_SUPER2`, the groups that have copies of the superblock.
    pub backup_groups: Option<[u32; 2]>,
    pub mmp_block: u64,
    pub incompat: u32,
    pub ro_compat: u32,
    pub has_journal: bool,
    pub journal_inode: u32,
    pub state: u16,
    /// What checksums of metadata begin with.
    pub seed: u32,
    pub uuid: [u8; 16],
    pub label: Vec<u8>,
    /// What it says and is not known here: nothing is free.
    pub unknown: Option<NotUnderstood>,
}

impl Superblock {
    /// Takes a superblock apart; `None` if it is of another file system.
    pub(super) fn parse(bytes: &[u8], volume_bytes: u64) -> Result<Option<Self>> {
        if le16(bytes, 0x38) != MAGIC {
            return Ok(None);
        }
        let is_old = le32(bytes, 0x4c) == 0;
        let feature = |at| if is_old { 0 } else { le32(bytes, at) };
        let (compat, incompat, ro_compat) = (feature(0x5c), feature(0x60), feature(0x64));
        check_features(bytes, incompat, ro_compat)?;
        let block_shift = le32(bytes, 0x18);
        if block_shift > 6 {
            return Err(damaged("size of a block"));
        }
        let wide = incompat & incompat::BITS_64 != 0;
        let high = |at| if wide { u64::from(le32(bytes, at)) << 32 } else { 0 };
        let cluster_shift = match ro_compat & ro_compat::BIGALLOC {
            0 => 0,
            _ => le32(bytes, 0x1c).wrapping_sub(block_shift),
        };
        if cluster_shift > 20 {
            return Err(damaged("size of a cluster"));
        }
        let has_backup_groups = compat & SPARSE_SUPER2 != 0;
        let superblock = Self {
            block_bytes: 1024 << block_shift,
            blocks: u64::from(le32(bytes, 4)) | high(0x150),
            first_data_block: le32(bytes, 0x14).into(),
            cluster_blocks: 1 << cluster_shift,
            blocks_per_group: le32(bytes, 0x20).into(),
            inodes: le32(bytes, 0),
            inodes_per_group: le32(bytes, 0x28),
            inode_bytes: if is_old { 128 } else { le16(bytes, 0x58).into() },
            descriptor_bytes: if wide { le16(bytes, 0xfe).into() } else { 32 },
            first_meta_group: le32(bytes, 0x104).into(),
            reserved_descriptor_blocks: le16(bytes, 0xce).into(),
            backup_groups: has_backup_groups.then(|| [le32(bytes, 0x24c), le32(bytes, 0x250)]),
            mmp_block: le64(bytes, 0x168),
            incompat,
            ro_compat,
            has_journal: compat & HAS_JOURNAL != 0,
            journal_inode: le32(bytes, 0xe0),
            state: le16(bytes, 0x3a),
            seed: match incompat & incompat::CSUM_SEED {
                0 => crc32c(!0, &uuid(bytes, 0x68)),
                _ => le32(bytes, 0x270),
            },
            uuid: uuid(bytes, 0x68),
            label: until_nul(part(bytes, 0x78, 16)).to_vec(),
            unknown: unknown(bytes, compat, ro_compat).err(),
        };
        superblock.check(volume_bytes)?;
        Ok(Some(superblock))
    }

    fn check(&self, volume_bytes: u64) -> Result<()> {
        let block_bytes = self.block_bytes as u64;
        let bytes = self.blocks.checked_mul(block_bytes);
        if bytes.is_none_or(|bytes| bytes > volume_bytes) {
            return Err(damaged("it is larger than its volume"));
        }
        let is_small = block_bytes == 1024 && self.cluster_blocks == 1;
        if self.first_data_block > u64::from(block_bytes == 1024)
            || (is_small && self.first_data_block != 1)
            || self.blocks <= self.first_data_block
        {
            return Err(damaged("first block"));
        }
        let clusters = self.blocks_per_group / self.cluster_blocks;
        let is_grouped = (256..=8 * block_bytes).contains(&clusters)
            && clusters.is_multiple_of(8)
            && self.blocks_per_group.is_multiple_of(self.cluster_blocks);
        if !is_grouped {
            return Err(damaged("blocks of a group"));
        }
        let is_sized = self.inode_bytes.is_power_of_two()
            && (128..=self.block_bytes).contains(&self.inode_bytes);
        if !is_sized {
            return Err(damaged("size of an inode"));
        }
        let inodes = u64::from(self.inodes_per_group);
        let expected = self.groups().checked_mul(inodes);
        if inodes == 0 || inodes > 8 * block_bytes || expected != Some(self.inodes.into()) {
            return Err(damaged("number of inodes"));
        }
        let is_described = self.descriptor_bytes.is_power_of_two()
            && (32..=self.block_bytes).contains(&self.descriptor_bytes);
        if !is_described {
            return Err(damaged("size of a group descriptor"));
        }
        Ok(())
    }

    /// Number of groups.
    pub(super) fn groups(&self) -> u64 {
        (self.blocks - self.first_data_block).div_ceil(self.blocks_per_group)
    }

    /// The first block of a group.
    pub(super) fn group_start(&self, group: u64) -> u64 {
        self.first_data_block + group * self.blocks_per_group
    }

    /// The block behind a group's last.
    pub(super) fn group_end(&self, group: u64) -> u64 {
        (self.group_start(group) + self.blocks_per_group).min(self.blocks)
    }

    /// Whether a group has a copy of the superblock and of group descriptors.
    pub(super) fn has_copy(&self, group: u64) -> bool {
        if let Some(backups) = self.backup_groups {
            return group == 0 || backups.iter().any(|&backup| u64::from(backup) == group);
        }
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        group < 2
            || self.ro_compat & ro_compat::SPARSE_SUPER == 0
            || [3, 5, 7].into_iter().any(is_power_of)
    }

    /// Whether metadata has checksums.
    pub(super) fn has_checksums(&self) -> bool {
        self.ro_compat & ro_compat::METADATA_CSUM != 0
    }

    pub(super) fn is_valid(&self) -> bool {
        self.state & STATE_VALID != 0
    }

    pub(super) fn has_errors(&self) -> bool {
        self.state & STATE_ERROR != 0
    }

    pub(super) fn needs_recovery(&self) -> bool {
        self.incompat & incompat::RECOVER != 0
    }

    pub(super) fn kind(&self) -> Kind {
        let is_new = self.incompat & !incompat::OLD != 0 || self.ro_compat & !ro_compat::OLD != 0;
        match (is_new, self.has_journal) {
            (true, _) => Kind::Ext4,
            (false, true) => Kind::Ext3,
            (false, false) => Kind::Ext2,
        }
    }
}

fn damaged(what: &'static str) -> DiskError {
    DiskError::damaged(what, OFFSET)
}

fn check_features(bytes: &[u8], incompat: u32, ro_compat: u32) -> Result<()> {
    if incompat & incompat::JOURNAL_DEV != 0 {
        return Err(DiskError::unsupported("a journal's own device"));
    }
    words::INCOMPAT.check(incompat)?;
    let has_checksum = ro_compat & ro_compat::METADATA_CSUM != 0;
    if has_checksum && byte(bytes, 0x175) != 1 {
        return Err(DiskError::unsupported("checksums of ext4 other than CRC-32C"));
    }
    if has_checksum && crc32c(!0, part(bytes, 0, 0x3fc)) != le32(bytes, 0x3fc) {
        return Err(damaged("checksum of the superblock"));
    }
    Ok(())
}

/// What of a superblock is not known, and does not keep its files from being read.
fn unknown(bytes: &[u8], compat: u32, ro_compat: u32) -> Result<(), NotUnderstood> {
    words::COMPAT.check(compat)?;
    words::RO_COMPAT.check(ro_compat)?;
    words::STATE.check(le16(bytes, 0x3a))?;
    let revision = le32(bytes, 0x4c);
    if revision > 1 {
        return Err(NotUnderstood::Form("a revision of ext4 after 1"));
    }
    if revision == 1 {
        words::FLAGS.check(le32(bytes, 0x160))?;
    }
    // Inodes of the Hurd have other fields. FreeBSD's are those of Linux.
    if !matches!(le32(bytes, 0x48), 0 | 3) {
        return Err(NotUnderstood::Form("ext4 of another system than Linux"));
    }
    if ro_compat & ro_compat::BIGALLOC == 0 && le32(bytes, 0x1c) != le32(bytes, 0x18) {
        return Err(NotUnderstood::Form("ext4 with fragments"));
    }
    Ok(())
}
