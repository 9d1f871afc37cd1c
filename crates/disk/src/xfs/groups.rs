//! The headers of an allocation group: where its trees are, and the list of blocks that are kept
//! for these trees to grow.

use crate::error::Result;
use crate::fields::{be32, part};

use super::blocks::Blocks;
use super::group_damaged;

const FREE_MAGIC: u32 = 0x5841_4746;
const INODES_MAGIC: u32 = 0x5841_4749;
/// Of both headers.
const VERSION: u32 = 1;
const LIST_MAGIC: u32 = 0x5841_464c;
const LIST_HEADER_BYTES: usize = 36;

/// The root of a tree, and its levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Root {
    pub block: u32,
    pub levels: u32,
}

/// What a group has of free blocks.
pub(super) struct FreeHeader {
    pub by_block: Root,
    pub by_length: Root,
    pub owners: Option<Root>,
    pub references: Option<Root>,
    /// Blocks that the trees call free.
    pub free_blocks: u64,
    list: (u32, u32, u32),
}

/// What a group has of inodes.
pub(super) struct InodesHeader {
    pub inodes: Root,
    pub free_inodes: Option<Root>,
}

mod ro_compat {
    pub const FREE_INODES: u32 = 1;
    pub const OWNERS: u32 = 2;
    pub const REFERENCES: u32 = 4;
}

/// Reads the header of a group's free blocks.
pub(super) fn free_header(blocks: &Blocks<'_>, group: u64) -> Result<FreeHeader> {
    let (offset, sector) = blocks.header(group, 1)?;
    let damaged = || group_damaged("header of free blocks, by group", group);
    let is_right = be32(&sector, 0) == FREE_MAGIC
        && be32(&sector, 4) == VERSION
        && u64::from(be32(&sector, 8)) == group
        && u64::from(be32(&sector, 12)) == blocks.superblock.blocks_of(group)
        && blocks.is_ours(&sector, 64)
        && blocks.is_intact(offset, &sector, 216);
    if !is_right {
        return Err(damaged());
    }
    let root = |at, levels_at| Root { block: be32(&sector, at), levels: be32(&sector, levels_at) };
    let feature = |bit| blocks.superblock.ro_compat & bit != 0;
    Ok(FreeHeader {
        by_block: root(16, 28),
        by_length: root(20, 32),
        owners: feature(ro_compat::OWNERS).then(|| root(24, 36)),
        references: feature(ro_compat::REFERENCES).then(|| root(88, 92)),
        free_blocks: be32(&sector, 52).into(),
        list: (be32(&sector, 40), be32(&sector, 44), be32(&sector, 48)),
    })
}

/// Reads the header of a group's inodes.
pub(super) fn inodes_header(blocks: &Blocks<'_>, group: u64) -> Result<InodesHeader> {
    let (offset, sector) = blocks.header(group, 2)?;
    let is_right = be32(&sector, 0) == INODES_MAGIC
        && be32(&sector, 4) == VERSION
        && u64::from(be32(&sector, 8)) == group
        && blocks.is_ours(&sector, 296)
        && blocks.is_intact(offset, &sector, 312);
    if !is_right {
        return Err(group_damaged("header of inodes, by group", group));
    }
    let root = |at| Root { block: be32(&sector, at), levels: be32(&sector, at + 4) };
    let has_free = blocks.superblock.ro_compat & ro_compat::FREE_INODES != 0;
    Ok(InodesHeader { inodes: root(20), free_inodes: has_free.then(|| root(328)) })
}

/// The blocks of the group that are kept for its trees: nothing is in them.
pub(super) fn kept_for_trees(
    blocks: &Blocks<'_>,
    group: u64,
    header: &FreeHeader,
) -> Result<Vec<u32>> {
    let (offset, sector) = blocks.header(group, 3)?;
    let damaged = || group_damaged("list of free blocks, by group", group);
    let is_v5 = blocks.superblock.is_v5;
    let is_right = !is_v5
        || (be32(&sector, 0) == LIST_MAGIC
            && u64::from(be32(&sector, 4)) == group
            && blocks.is_ours(&sector, 8)
            && blocks.is_intact(offset, &sector, 32));
    let (first, last, count) = header.list;
    let area = part(&sector, if is_v5 { LIST_HEADER_BYTES } else { 0 }, sector.len());
    let slots = (area.len() / 4) as u32;
    if !is_right || first >= slots || last >= slots || count > slots {
        return Err(damaged());
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let distance = if last >= first { last - first } else { last + slots - first };
    if distance + 1 != count {
        return Err(damaged());
    }
    Ok((0..count).map(|index| be32(area, ((first + index) % slots) as usize * 4)).collect())
}
