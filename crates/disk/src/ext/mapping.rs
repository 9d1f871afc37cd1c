//! Which blocks a file has: the tree of extents of ext4, and the block lists of ext2.
//!
//! Every walk is bounded: a file has each block of the volume at most once, and extents are in
//! ascending order. A file that contradicts either is damaged.

use std::ops::{ControlFlow, Range};

use crate::checksum::crc32c;
use crate::error::Result;
use crate::fields::{le16, le32, part};

use super::blocks::Blocks;
use super::inode::{Inode, flag};

const EXTENT_MAGIC: u16 = 0xf30a;
const EXTENT_BYTES: usize = 12;
/// The depth that a file of 2^32 blocks can need.
const DEPTH_MAX: u16 = 5;
/// Longer extents are unwritten ones.
const WRITTEN_MAX: u16 = 32768;
/// Block numbers in an inode before the lists.
const DIRECT: usize = 12;

/// Consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    /// The first block, counted in the file.
    pub logical: u64,
    /// The first block of the volume.
    pub physical: u64,
    pub count: u64,
    pub unwritten: bool,
}

/// A part of what a file has.
pub(super) enum Part {
    Data(Mapped),
    /// A block with the mapping itself.
    Meta(u64),
}

/// Gives the blocks of the file in a range of its blocks, in ascending order.
pub(super) fn data(
    blocks: &Blocks<'_>,
    inode: &Inode,
    range: Range<u64>,
    take: &mut dyn FnMut(Mapped) -> ControlFlow<()>,
) -> Result<()> {
    parts(blocks, inode, range, &mut |part| match part {
        Part::Data(mapped) => take(mapped),
        Part::Meta(_) => ControlFlow::Continue(()),
    })
}

/// Gives the blocks of the file in a range of its blocks, and those of the mapping that lead there.
pub(super) fn parts(
    blocks: &Blocks<'_>,
    inode: &Inode,
    range: Range<u64>,
    take: &mut dyn FnMut(Part) -> ControlFlow<()>,
) -> Result<()> {
    let mut walk = Walk { blocks, inode, range, take, end: 0, seen: 0, pending: None };
    let flow = if inode.has(flag::EXTENTS) {
        walk.extents(inode.block_area(), None)?
    } else {
        walk.lists()?
    };
    if flow.is_continue() {
        let _ = walk.flush();
    }
    Ok(())
}

struct Walk<'w, 'a> {
    blocks: &'w Blocks<'a>,
    inode: &'w Inode,
    range: Range<u64>,
    take: &'w mut dyn FnMut(Part) -> ControlFlow<()>,
    /// The block behind the last extent.
    end: u64,
    /// Blocks of the volume that were seen.
    seen: u64,
    /// Blocks that the next ones may continue.
    pending: Option<Mapped>,
}

type Flow = Result<ControlFlow<()>>;
const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

impl Walk<'_, '_> {
    fn count(&mut self, blocks: u64) -> Result<()> {
        self.seen += blocks;
        if self.seen > self.blocks.superblock.blocks {
            return Err(self.inode.damaged("more blocks than the volume has, by inode"));
        }
        Ok(())
    }

    fn data(&mut self, mapped: Mapped) -> Flow {
        self.count(mapped.count)?;
        let behind = mapped.physical.checked_add(mapped.count);
        let is_there = mapped.physical >= self.blocks.superblock.first_data_block
            && mapped.physical != 0
            && behind.is_some_and(|behind| behind <= self.blocks.superblock.blocks);
        if !is_there {
            return Err(self.inode.damaged("blocks outside of the volume, by inode"));
        }
        if mapped.logical >= self.range.end || mapped.logical + mapped.count <= self.range.start {
            return Ok(GO_ON);
        }
        if let Some(before) = &mut self.pending
            && before.logical + before.count == mapped.logical
            && before.physical + before.count == mapped.physical
            && before.unwritten == mapped.unwritten
        {
            before.count += mapped.count;
            return Ok(GO_ON);
        }
        let flow = self.flush();
        self.pending = Some(mapped);
        Ok(flow)
    }

    fn flush(&mut self) -> ControlFlow<()> {
        self.pending.take().map_or(GO_ON, |mapped| (self.take)(Part::Data(mapped)))
    }

    fn meta(&mut self, block: u64) -> Flow {
        self.count(1)?;
        Ok((self.take)(Part::Meta(block)))
    }

    fn extents(&mut self, node: &[u8], depth: Option<u16>) -> Flow {
        let (entries, room) = (usize::from(le16(node, 2)), usize::from(le16(node, 4)));
        let own_depth = le16(node, 6);
        let is_right = le16(node, 0) == EXTENT_MAGIC
            && entries <= room
            && (room + 1) * EXTENT_BYTES <= node.len()
            && own_depth <= DEPTH_MAX
            && depth.is_none_or(|depth| depth == own_depth);
        if !is_right {
            return Err(self.inode.damaged("extent tree, by inode"));
        }
        let entry = |index: usize| part(node, (index + 1) * EXTENT_BYTES, EXTENT_BYTES);
        for index in 0..entries {
            let flow = if own_depth == 0 {
                self.extent(entry(index))?
            } else {
                let next = (index + 1 < entries).then(|| u64::from(le32(entry(index + 1), 0)));
                self.child(entry(index), next.unwrap_or(u64::MAX), own_depth - 1)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(GO_ON)
    }

    fn extent(&mut self, entry: &[u8]) -> Flow {
        let (logical, length) = (u64::from(le32(entry, 0)), le16(entry, 4));
        let unwritten = length > WRITTEN_MAX;
        let count = u64::from(if unwritten { length - WRITTEN_MAX } else { length });
        let physical = u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32;
        if count == 0 || logical < self.end {
            return Err(self.inode.damaged("order of extents, by inode"));
        }
        self.end = logical + count;
        self.data(Mapped { logical, physical, count, unwritten })
    }

    fn child(&mut self, entry: &[u8], next: u64, depth: u16) -> Flow {
        let first = u64::from(le32(entry, 0));
        if first >= self.range.end || next <= self.range.start {
            return Ok(GO_ON);
        }
        let block = u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32;
        if self.meta(block)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let node = self.blocks.get(block)?;
        if self.blocks.superblock.has_checksums() {
            let tail = (usize::from(le16(&node, 4)) + 1) * EXTENT_BYTES;
            if tail + 4 > node.len() || crc32c(self.inode.seed, &node[..tail]) != le32(&node, tail)
            {
                return Err(self.inode.damaged("checksum of an extent tree, by inode"));
            }
        }
        self.extents(&node, Some(depth))
    }

    fn lists(&mut self) -> Flow {
        let area = self.inode.block_area();
        let per_block = self.blocks.block_bytes() / 4;
        let mut logical = 0;
        for index in 0..DIRECT + 3 {
            let depth = index.saturating_sub(DIRECT - 1) as u32;
            let span = per_block.pow(depth);
            let flow = self.list(le32(area, index * 4), depth, span, logical)?;
            if flow.is_break() {
                return Ok(flow);
            }
            logical += span;
        }
        Ok(GO_ON)
    }

    /// A block number at a depth, which leads to `span` blocks of the file.
    fn list(&mut self, block: u32, depth: u32, span: u64, logical: u64) -> Flow {
        let is_wanted = logical < self.range.end && self.range.start < logical + span;
        if block == 0 || !is_wanted {
            return Ok(GO_ON);
        }
        let block = u64::from(block);
        if depth == 0 {
            return self.data(Mapped { logical, physical: block, count: 1, unwritten: false });
        }
        if self.meta(block)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let list = self.blocks.get(block)?;
        let span = span / (self.blocks.block_bytes() / 4);
        for (index, number) in list.as_chunks::<4>().0.iter().enumerate() {
            let number = u32::from_le_bytes(*number);
            let flow = self.list(number, depth - 1, span, logical + index as u64 * span)?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(GO_ON)
    }
}
