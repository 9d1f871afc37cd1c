//! Which blocks a fork of an inode has: a list of extents in the inode, or a tree.
//!
//! Every walk is bounded: extents are in ascending order, and each block of the tree has some. A
//! fork that contradicts this is damaged.

use std::ops::{ControlFlow, Range};

use crate::error::Result;
use crate::fields::{be16, be32, be64, part};

use super::blocks::Blocks;
use super::inode::{Fork, Format, Inode};

const RECORD_BYTES: usize = 16;
/// More levels than 2^48 extents need.
const LEVELS_MAX: u16 = 12;
const MAGIC_V4: u32 = 0x424d_4150;
const MAGIC_V5: u32 = 0x424d_4133;
/// Bytes before the records of a block of the tree.
pub(super) const HEADER_BYTES_V4: usize = 24;
pub(super) const HEADER_BYTES_V5: usize = 72;
/// Bytes before the records of the root.
pub(super) const ROOT_BYTES: usize = 4;

/// Consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    /// The first block, counted in the fork.
    pub logical: u64,
    /// The first block of the volume.
    pub physical: u64,
    pub count: u64,
    pub unwritten: bool,
}

/// A part of what a fork has.
pub(super) enum Part {
    Data(Mapped),
    /// A block with the mapping itself.
    Meta(u64),
}

/// Gives the blocks of the fork in a range of its blocks, in ascending order.
pub(super) fn data(
    blocks: &Blocks<'_>,
    inode: &Inode,
    fork: Fork,
    range: Range<u64>,
    take: &mut dyn FnMut(Mapped) -> ControlFlow<()>,
) -> Result<()> {
    parts(blocks, inode, fork, range, &mut |part| match part {
        Part::Data(mapped) => take(mapped),
        Part::Meta(_) => ControlFlow::Continue(()),
    })
}

/// Gives the blocks of the fork in a range of its blocks, and those of the mapping that lead there.
pub(super) fn parts(
    blocks: &Blocks<'_>,
    inode: &Inode,
    fork: Fork,
    range: Range<u64>,
    take: &mut dyn FnMut(Part) -> ControlFlow<()>,
) -> Result<()> {
    let area = inode.area(fork);
    let mut walk = Walk { blocks, inode, range, take, end: 0 };
    match inode.format(fork)? {
        Format::Device | Format::Local => {}
        Format::Extents => {
            let records = inode.extents(fork);
            let bytes = usize::try_from(records).ok().and_then(|n| n.checked_mul(RECORD_BYTES));
            let list = bytes.and_then(|bytes| area.get(..bytes));
            let list = list.ok_or_else(|| inode.damaged("number of extents, by inode"))?;
            let _ = walk.leaf(list)?;
        }
        Format::Tree => {
            let level = be16(area, 0);
            if level == 0 || level > LEVELS_MAX {
                return Err(inode.damaged("levels of an extent tree, by inode"));
            }
            let records = be16(area, 2).into();
            let _ = walk.node(part(area, ROOT_BYTES, area.len()), records, level)?;
        }
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
}

type Flow = Result<ControlFlow<()>>;
const GO_ON: ControlFlow<()> = ControlFlow::Continue(());
const STOP: ControlFlow<()> = ControlFlow::Break(());

impl Walk<'_, '_> {
    /// Keys, then pointers to blocks of the next level.
    fn node(&mut self, area: &[u8], records: usize, level: u16) -> Flow {
        let room = area.len() / 16;
        if records > room || records == 0 {
            return Err(self.inode.damaged("extent tree, by inode"));
        }
        let key = |index: usize| be64(area, index * 8);
        for index in 0..records {
            let next = if index + 1 < records { key(index + 1) } else { u64::MAX };
            if next < key(index) {
                return Err(self.inode.damaged("order of an extent tree, by inode"));
            }
            if key(index) >= self.range.end {
                return Ok(STOP);
            }
            if next <= self.range.start {
                continue;
            }
            let block = be64(area, room * 8 + index * 8);
            if (self.take)(Part::Meta(block)).is_break() || self.block(block, level - 1)?.is_break()
            {
                return Ok(STOP);
            }
        }
        Ok(GO_ON)
    }

    fn block(&mut self, block: u64, level: u16) -> Flow {
        let offset = self.blocks.place(block, 1)?;
        let bytes = self.blocks.get(block)?;
        let is_v5 = self.blocks.superblock.is_v5;
        let (magic, header) = match is_v5 {
            true => (MAGIC_V5, HEADER_BYTES_V5),
            false => (MAGIC_V4, HEADER_BYTES_V4),
        };
        let is_right = be32(&bytes, 0) == magic
            && be16(&bytes, 4) == level
            && (!is_v5 || be64(&bytes, 24) == offset / 512)
            && self.blocks.is_ours(&bytes, 40);
        if !is_right {
            return Err(self.inode.damaged("extent tree, by inode"));
        }
        if !self.blocks.is_intact(offset, &bytes, 64) {
            return Err(self.inode.damaged("checksum of an extent tree, by inode"));
        }
        let records = usize::from(be16(&bytes, 6));
        let area = part(&bytes, header, bytes.len());
        if level > 0 {
            return self.node(area, records, level);
        }
        let list = area.get(..records * RECORD_BYTES).filter(|list| !list.is_empty());
        self.leaf(list.ok_or_else(|| self.inode.damaged("extents of a tree, by inode"))?)
    }

    fn leaf(&mut self, list: &[u8]) -> Flow {
        let mut last: Option<Mapped> = None;
        for record in list.chunks_exact(RECORD_BYTES) {
            let mapped = extent(record);
            let is_right = mapped.count > 0 && mapped.logical >= self.end;
            if !is_right || self.blocks.place(mapped.physical, mapped.count).is_err() {
                return Err(self.inode.damaged("an extent, by inode"));
            }
            self.end = mapped.logical + mapped.count;
            if mapped.logical >= self.range.end || self.end <= self.range.start {
                continue;
            }
            if let Some(before) = &mut last
                && before.logical + before.count == mapped.logical
                && before.physical + before.count == mapped.physical
                && before.unwritten == mapped.unwritten
            {
                before.count += mapped.count;
                continue;
            }
            if let Some(before) = last.replace(mapped)
                && (self.take)(Part::Data(before)).is_break()
            {
                return Ok(STOP);
            }
        }
        Ok(last.map_or(GO_ON, |last| (self.take)(Part::Data(last))))
    }
}

/// 1 bit: unwritten; 54: block of the fork; 52: block of the volume; 21: how many.
fn extent(record: &[u8]) -> Mapped {
    let (high, low) = (be64(record, 0), be64(record, 8));
    Mapped {
        logical: (high >> 9) & ((1 << 54) - 1),
        physical: (high & 0x1ff) << 43 | low >> 21,
        count: low & ((1 << 21) - 1),
        unwritten: high >> 63 != 0,
    }
}
