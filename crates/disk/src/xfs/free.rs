//! Free blocks: those that both trees of a group call free, without all that inodes and the file
//! system itself have.

use std::ops::ControlFlow;

use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, be64, part};
use crate::free::FreeMap;

use super::blocks::Blocks;
use super::groups::{self, FreeHeader};
use super::inode::{Fork, Inode};
use super::mapping::{self, Part};
use super::superblock::incompat;
use super::tree::{self, Found};

/// Inodes of a record.
const CHUNK: u64 = 64;
/// Inodes that a bit of a record's holes covers.
const HOLE: u64 = 4;
/// Files can share blocks; this many times the volume in all is a lie, and endless.
const SHARED_MAX: u64 = 1024;

/// The free bytes of a volume whose maps can be trusted.
pub(super) fn map(blocks: &Blocks<'_>) -> Result<FreeMap> {
    let superblock = &blocks.superblock;
    let mut map = FreeMap::new(superblock.blocks * blocks.block_bytes(), blocks.block_bytes());
    for group in 0..u64::from(superblock.groups) {
        let mut add = |first: u64, count: u64| {
            let start = in_bytes(blocks, group, first);
            map.add(start..start + count * blocks.block_bytes());
        };
        // A group whose trees are damaged or contradict each other has nothing that is free.
        let added = check_trees(blocks, group)
            .and_then(|header| add_free(blocks, group, &header, &mut add));
        if let Err(DiskError::Io(error)) = added {
            return Err(error.into());
        }
    }
    let mut keep = Keep { blocks, map, mapped: 0, meta: 0 };
    keep.block(superblock.log_start, superblock.log_blocks)?;
    for group in 0..u64::from(superblock.groups) {
        keep.group(group)?;
    }
    Ok(keep.map)
}

fn in_bytes(blocks: &Blocks<'_>, group: u64, inside: u64) -> u64 {
    (group * blocks.superblock.group_blocks + inside) * blocks.block_bytes()
}

/// A run of free blocks: the first and how many.
fn run(record: &[u8]) -> (u64, u64) {
    (be32(record, 0).into(), be32(record, 4).into())
}

/// What two trees with the same records have in common, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Digest {
    records: u64,
    blocks: u64,
    mixed: u64,
}

impl Digest {
    fn add(&mut self, (first, count): (u64, u64)) {
        let mixed = (first << 32 | count).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.records += 1;
        self.blocks += count;
        self.mixed = self.mixed.wrapping_add(mixed ^ mixed >> 29);
    }
}

/// Verifies that both trees of a group's free blocks are intact and have the same.
fn check_trees(blocks: &Blocks<'_>, group: u64) -> Result<FreeHeader> {
    let damaged = || super::group_damaged("maps of free blocks, by group", group);
    let header = groups::free_header(blocks, group)?;
    let end = blocks.superblock.blocks_of(group);
    let (mut by_block, mut by_length, mut behind) = (Digest::default(), Digest::default(), 0);
    let root = header.by_block;
    tree::walk(blocks, &tree::FREE_BY_BLOCK, group, root.block, root.levels, &mut |found| {
        let Found::Record(record) = found else { return Ok(()) };
        let (first, count) = run(record);
        if first < behind || count == 0 || first + count > end {
            return Err(damaged());
        }
        behind = first + count;
        by_block.add((first, count));
        Ok(())
    })?;
    let root = header.by_length;
    tree::walk(blocks, &tree::FREE_BY_LENGTH, group, root.block, root.levels, &mut |found| {
        if let Found::Record(record) = found {
            by_length.add(run(record));
        }
        Ok(())
    })?;
    if by_block.blocks != header.free_blocks || by_length != by_block {
        return Err(damaged());
    }
    Ok(header)
}

/// Gives the free runs of a group, whose trees were verified, to `add`.
fn add_free(
    blocks: &Blocks<'_>,
    group: u64,
    header: &FreeHeader,
    add: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let end = blocks.superblock.blocks_of(group);
    let kept_for_trees = groups::kept_for_trees(blocks, group, header)?;
    let root = header.by_block;
    tree::walk(blocks, &tree::FREE_BY_BLOCK, group, root.block, root.levels, &mut |found| {
        if let Found::Record(record) = found {
            let (first, count) = run(record);
            add(first, count);
        }
        Ok(())
    })?;
    kept_for_trees.into_iter().filter(|block| u64::from(*block) < end).for_each(|block| {
        add(block.into(), 1);
    });
    Ok(())
}

/// What is subtracted from the free bytes.
struct Keep<'k, 'a> {
    blocks: &'k Blocks<'a>,
    map: FreeMap,
    /// Blocks that files have, those that they share counted for each.
    mapped: u64,
    /// Blocks with maps of files.
    meta: u64,
}

impl Keep<'_, '_> {
    fn block(&mut self, block: u64, count: u64) -> Result<()> {
        let start = self.blocks.place(block, count)?;
        self.map.keep(start..start + count * self.blocks.block_bytes());
        Ok(())
    }

    fn group(&mut self, group: u64) -> Result<()> {
        let blocks = self.blocks;
        let start = in_bytes(blocks, group, 0);
        self.map.keep(start..start + 4 * blocks.superblock.sector_bytes as u64);
        let free = groups::free_header(blocks, group)?;
        let inodes = groups::inodes_header(blocks, group)?;
        let FreeHeader { by_block, by_length, owners, references, .. } = free;
        let trees = [
            (&tree::FREE_BY_BLOCK, Some(by_block)),
            (&tree::FREE_BY_LENGTH, Some(by_length)),
            (&tree::OWNERS, owners),
            (&tree::REFERENCES, references),
            (&tree::FREE_INODES, inodes.free_inodes),
        ];
        for (kind, root) in trees {
            let Some(root) = root else { continue };
            tree::walk(blocks, kind, group, root.block, root.levels, &mut |found| match found {
                Found::Block(inside) => self.block(blocks.join(group, inside), 1),
                Found::Record(_) => Ok(()),
            })?;
        }
        let root = inodes.inodes;
        tree::walk(
            blocks,
            &tree::INODES,
            group,
            root.block,
            root.levels,
            &mut |found| match found {
                Found::Block(inside) => self.block(blocks.join(group, inside), 1),
                Found::Record(record) => self.chunk(group, record),
            },
        )
    }

    /// 64 inodes, of which some blocks can be missing.
    fn chunk(&mut self, group: u64, record: &[u8]) -> Result<()> {
        let superblock = &self.blocks.superblock;
        let is_sparse = superblock.incompat & incompat::SPARSE != 0;
        let holes = if is_sparse { be16(record, 4) } else { 0 };
        let (first, free) = (u64::from(be32(record, 0)), be64(record, 8));
        let number = group << (superblock.group_shift + superblock.inode_shift) | first;
        let per_block = 1_u64 << superblock.inode_shift;
        let mut index = 0;
        while index < CHUNK {
            let block = (number + index) >> superblock.inode_shift;
            let inside = (number + index) % per_block;
            let count = (per_block - inside).min(CHUNK - index);
            let is_hole = |index: u64| holes >> (index / HOLE) & 1 != 0;
            if (index..index + count).all(is_hole) {
                index += count;
                continue;
            }
            self.block(block, 1)?;
            let bytes = self.blocks.read(block, 1)?;
            for index in index..index + count {
                if free >> index & 1 != 0 || is_hole(index) {
                    continue;
                }
                let at = ((number + index) % per_block) as usize * superblock.inode_bytes;
                let raw = part(&bytes, at, superblock.inode_bytes).to_vec();
                let inode = Inode { number: number + index, raw };
                let offset = self.blocks.place(block, 1)? + at as u64;
                inode.check(self.blocks, offset)?;
                self.inode(&inode)?;
            }
            index += count;
        }
        Ok(())
    }

    /// Keeps all blocks that an inode has.
    fn inode(&mut self, inode: &Inode) -> Result<()> {
        if inode.is_realtime() {
            return Err(inode.damaged("content on a realtime device, by inode"));
        }
        for fork in [Fork::Data, Fork::Xattrs] {
            if fork == Fork::Xattrs && !inode.has_xattrs() {
                continue;
            }
            let mut kept = Ok(());
            mapping::parts(self.blocks, inode, fork, 0..u64::MAX, &mut |part| {
                let (first, count) = match part {
                    Part::Data(data) => (data.physical, data.count),
                    Part::Meta(block) => {
                        self.meta += 1;
                        (block, 1)
                    }
                };
                self.mapped = self.mapped.saturating_add(count);
                kept = self.block(first, count);
                if kept.is_ok() && self.is_a_lie() {
                    kept = Err(inode.damaged("more blocks than the volume has, by inode"));
                }
                if kept.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            kept?;
        }
        Ok(())
    }

    fn is_a_lie(&self) -> bool {
        let blocks = self.blocks.superblock.blocks;
        self.meta > blocks || self.mapped / SHARED_MAX > blocks
    }
}
