//! The trees of an allocation group: free blocks, inodes, owners, references.

use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, be64, part};

use super::blocks::Blocks;

/// More levels than any group needs.
const LEVELS_MAX: u32 = 12;
const NONE: u32 = u32::MAX;

/// A kind of tree.
pub(super) struct Kind {
    magic_v4: u32,
    magic_v5: u32,
    record_bytes: usize,
    key_bytes: usize,
}

/// Free blocks by number.
pub(super) const FREE_BY_BLOCK: Kind =
    Kind { magic_v4: 0x4142_5442, magic_v5: 0x4142_3342, record_bytes: 8, key_bytes: 8 };
/// Free blocks by length.
pub(super) const FREE_BY_LENGTH: Kind =
    Kind { magic_v4: 0x4142_5443, magic_v5: 0x4142_3343, record_bytes: 8, key_bytes: 8 };
/// Inodes, 64 in a record.
pub(super) const INODES: Kind =
    Kind { magic_v4: 0x4941_4254, magic_v5: 0x4941_4233, record_bytes: 16, key_bytes: 4 };
/// Those of the records of inodes that have free ones.
pub(super) const FREE_INODES: Kind =
    Kind { magic_v4: 0x4649_4254, magic_v5: 0x4649_4233, record_bytes: 16, key_bytes: 4 };
/// Owners of blocks.
pub(super) const OWNERS: Kind =
    Kind { magic_v4: 0, magic_v5: 0x524d_4233, record_bytes: 24, key_bytes: 40 };
/// Blocks that several files have.
pub(super) const REFERENCES: Kind =
    Kind { magic_v4: 0, magic_v5: 0x5233_4643, record_bytes: 12, key_bytes: 4 };

/// What a walk finds.
pub(super) enum Found<'b> {
    /// A block of the tree itself, by its number in the group.
    Block(u64),
    Record(&'b [u8]),
}

/// Walks through a tree of a group, in the order of its keys.
pub(super) fn walk(
    blocks: &Blocks<'_>,
    kind: &Kind,
    group: u64,
    root: u32,
    levels: u32,
    take: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    if levels == 0 || levels > LEVELS_MAX {
        return Err(DiskError::damaged("levels of a tree, by group", group));
    }
    let left = blocks.superblock.blocks_of(group);
    Walk { blocks, kind, group, left, take }.node(root, levels - 1)
}

struct Walk<'w, 'a> {
    blocks: &'w Blocks<'a>,
    kind: &'w Kind,
    group: u64,
    /// Blocks that the tree can still have.
    left: u64,
    take: &'w mut dyn FnMut(Found<'_>) -> Result<()>,
}

impl Walk<'_, '_> {
    fn node(&mut self, inside: u32, level: u32) -> Result<()> {
        let block = self.blocks.join(self.group, inside.into());
        let damaged = |what| DiskError::damaged(what, block);
        self.left = self.left.checked_sub(1).ok_or(damaged("a tree without end, by block"))?;
        (self.take)(Found::Block(inside.into()))?;
        // Trees are walked once; the cache is for what is read again.
        let offset = self.blocks.place(block, 1)?;
        let bytes = self.blocks.read(block, 1)?;
        let is_v5 = self.blocks.superblock.is_v5;
        let magic = if is_v5 { self.kind.magic_v5 } else { self.kind.magic_v4 };
        let is_right = be32(&bytes, 0) == magic
            && u32::from(be16(&bytes, 4)) == level
            && (!is_v5 || be64(&bytes, 16) == offset / 512)
            && self.blocks.is_ours(&bytes, 32);
        if !is_right || !self.blocks.is_intact(offset, &bytes, 52) {
            return Err(damaged("tree of a group, by block"));
        }
        let area = part(&bytes, if is_v5 { 56 } else { 16 }, bytes.len());
        let records = usize::from(be16(&bytes, 6));
        if level == 0 {
            let wanted = area.get(..records * self.kind.record_bytes);
            let wanted = wanted.ok_or(damaged("records of a tree, by block"))?;
            for record in wanted.chunks_exact(self.kind.record_bytes) {
                (self.take)(Found::Record(record))?;
            }
            return Ok(());
        }
        let room = area.len() / (self.kind.key_bytes + 4);
        if records > room {
            return Err(damaged("records of a tree, by block"));
        }
        for index in 0..records {
            let child = be32(area, room * self.kind.key_bytes + index * 4);
            if child == NONE {
                return Err(damaged("pointer of a tree, by block"));
            }
            self.node(child, level - 1)?;
        }
        Ok(())
    }
}
