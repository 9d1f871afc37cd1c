//! Free blocks: those that the allocation maps call free, without all that inodes and the file
//! system itself have.

use std::ops::{ControlFlow, Range};

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::free::FreeMap;
use crate::understood::ext as words;

use super::blocks::Blocks;
use super::groups::{Group, copied_blocks};
use super::inode::Inode;
use super::mapping::{self, Part};

/// Bytes of inodes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// The free bytes of a volume whose maps can be trusted.
pub(super) fn map(blocks: &Blocks<'_>) -> Result<FreeMap> {
    let superblock = &blocks.superblock;
    let block_bytes = blocks.block_bytes();
    let mut map = FreeMap::new(superblock.blocks * block_bytes, block_bytes);
    let mut pending = 0..0;
    for group in 0..superblock.groups() {
        let descriptor = Group::read(blocks, group)?;
        free_in_group(blocks, group, &descriptor, &mut |range| {
            if pending.end == range.start {
                pending.end = range.end;
            } else {
                map.add(in_bytes(&pending, block_bytes));
                pending = range;
            }
        })?;
    }
    map.add(in_bytes(&pending, block_bytes));
    let mut keep = |first: u64, count: u64| {
        map.keep(in_bytes(&(first..first.saturating_add(count)), block_bytes));
    };
    // The boot block, the superblock, and what protects against mounting twice.
    keep(0, 2048_u64.div_ceil(block_bytes));
    keep(superblock.mmp_block, 1);
    let mut mapped = 0;
    for group in 0..superblock.groups() {
        let descriptor = Group::read(blocks, group)?;
        keep(superblock.group_start(group), copied_blocks(blocks, group));
        keep(descriptor.block_map, 1);
        keep(descriptor.inode_map, 1);
        keep(descriptor.inode_table, table_blocks(blocks));
        mapped += keep_mapped(blocks, group, &descriptor, &mut keep)?;
        // Blocks that files share are counted for each; more than that is a lie, and endless.
        if mapped / 4 > superblock.blocks {
            return Err(DiskError::damaged("more blocks than the volume has, by group", group));
        }
    }
    Ok(map)
}

fn in_bytes(range: &Range<u64>, block_bytes: u64) -> Range<u64> {
    range.start.saturating_mul(block_bytes)..range.end.saturating_mul(block_bytes)
}

fn table_blocks(blocks: &Blocks<'_>) -> u64 {
    let superblock = &blocks.superblock;
    let bytes = u64::from(superblock.inodes_per_group) * superblock.inode_bytes as u64;
    bytes.div_ceil(blocks.block_bytes())
}

/// Gives the runs of blocks that a group's map calls free, if the map is what it was when it was
/// written.
fn free_in_group(
    blocks: &Blocks<'_>,
    group: u64,
    descriptor: &Group,
    take: &mut dyn FnMut(Range<u64>),
) -> Result<()> {
    let superblock = &blocks.superblock;
    let (start, end) = (superblock.group_start(group), superblock.group_end(group));
    if descriptor.has_no_map {
        take(start..end);
        return Ok(());
    }
    let Ok(map) = blocks.read(descriptor.block_map, 1) else { return Ok(()) };
    let clusters = (end - start).div_ceil(superblock.cluster_blocks);
    let is_used = |cluster: u64| map[(cluster / 8) as usize] >> (cluster % 8) & 1 != 0;
    let free = (0..clusters).filter(|&cluster| !is_used(cluster)).count() as u64;
    if free != u64::from(descriptor.free_clusters) || !is_checksum_right(blocks, &map, descriptor) {
        return Ok(());
    }
    let mut cluster = 0;
    while cluster < clusters {
        let first = cluster;
        while cluster < clusters && !is_used(cluster) {
            cluster += 1;
        }
        if first < cluster {
            let block = |cluster| start + cluster * superblock.cluster_blocks;
            take(block(first)..block(cluster).min(end));
        }
        cluster += 1;
    }
    Ok(())
}

fn is_checksum_right(blocks: &Blocks<'_>, map: &[u8], descriptor: &Group) -> bool {
    let superblock = &blocks.superblock;
    if !superblock.has_checksums() {
        return true;
    }
    let bytes = superblock.blocks_per_group / superblock.cluster_blocks / 8;
    let found = crc32c(superblock.seed, &map[..bytes as usize]);
    let is_wide = superblock.descriptor_bytes >= 64;
    descriptor.block_map_checksum == if is_wide { found } else { found & 0xffff }
}

/// Keeps all blocks that the inodes of a group have. Returns how many there are.
fn keep_mapped(
    blocks: &Blocks<'_>,
    group: u64,
    descriptor: &Group,
    keep: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let superblock = &blocks.superblock;
    let per_group = superblock.inodes_per_group;
    let used = per_group.saturating_sub(descriptor.unused_inodes);
    let used = if descriptor.has_no_inodes { 0 } else { u64::from(used) };
    let per_block = (superblock.block_bytes / superblock.inode_bytes) as u64;
    let per_read = (READ_BYTES / blocks.block_bytes()).max(1) * per_block;
    let mut mapped = 0;
    let mut index = 0;
    while index < used {
        let count = per_read.min(used - index);
        let first = descriptor.inode_table.saturating_add(index / per_block);
        let table = blocks.read(first, count.div_ceil(per_block))?;
        for (raw, inside) in table.chunks(superblock.inode_bytes).zip(0..count) {
            let number = group * u64::from(per_group) + index + inside + 1;
            let inode = Inode::of_raw(blocks, number, raw.to_vec());
            if is_live(blocks, &inode) {
                inode.check(blocks)?;
                mapped += keep_inode(blocks, &inode, keep)?;
            }
        }
        index += count;
    }
    Ok(mapped)
}

/// Deleted inodes have a time at which they were deleted. In inodes that are deleted but still open
/// that field is zero or a number of an inode.
fn is_live(blocks: &Blocks<'_>, inode: &Inode) -> bool {
    let is_made = inode.mode() != 0 || inode.number == 1;
    is_made && (inode.links() != 0 || inode.deleted_at() <= blocks.superblock.inodes)
}

fn keep_inode(blocks: &Blocks<'_>, inode: &Inode, keep: &mut dyn FnMut(u64, u64)) -> Result<u64> {
    words::INODE.check(inode.flags())?;
    let mut mapped = 0;
    if inode.xattr_block() != 0 {
        keep(inode.xattr_block(), 1);
    }
    if !inode.has_mapping(blocks) {
        return Ok(0);
    }
    mapping::parts(blocks, inode, 0..u64::MAX, &mut |part| {
        let (first, count) = match part {
            Part::Data(data) => (data.physical, data.count),
            Part::Meta(block) => (block, 1),
        };
        mapped += count;
        keep(first, count);
        ControlFlow::Continue(())
    })?;
    Ok(mapped)
}
