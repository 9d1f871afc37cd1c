//! Where a symbolic link points: in the inode, or in blocks with a header each.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::fields::{be32, be64, part};
use crate::read::read_vec;

use super::blocks::Blocks;
use super::file;
use super::inode::{Fork, Format, Inode};
use super::mapping;

/// The kernel's limit.
const TARGET_BYTES_MAX: u64 = 1024;
const MAGIC: u32 = 0x5853_4c4d;
const HEADER_BYTES: usize = 56;

/// The target of a symbolic link.
pub(super) fn target(blocks: &Blocks<'_>, inode: &Inode) -> Result<Vec<u8>> {
    let damaged = || inode.damaged("target of a symbolic link, by inode");
    let bytes = inode.size();
    if bytes == 0 || bytes > TARGET_BYTES_MAX {
        return Err(damaged());
    }
    if inode.format(Fork::Data)? == Format::Local {
        let target = inode.area(Fork::Data).get(..bytes as usize);
        return Ok(target.ok_or_else(damaged)?.to_vec());
    }
    if !blocks.superblock.is_v5 {
        let mut target = vec![0; bytes as usize];
        file::read(blocks, inode, 0, &mut target)?;
        return Ok(target);
    }
    // Each extent has one header, for any length.
    let mut extents = Vec::new();
    let end = (TARGET_BYTES_MAX * 2).div_ceil(blocks.block_bytes()) + 1;
    mapping::data(blocks, inode, Fork::Data, 0..end, &mut |mapped| {
        extents.push(mapped);
        ControlFlow::Continue(())
    })?;
    let mut target = Vec::new();
    for mapped in extents {
        if mapped.count > end || target.len() as u64 == bytes {
            break;
        }
        let place = blocks.place(mapped.physical, mapped.count)?;
        let stored = (mapped.count * blocks.block_bytes()) as usize;
        let mut block = read_vec(blocks.reader, place, stored)?;
        blocks.read_bytes(place, &mut block)?;
        let here = (bytes as usize - target.len()).min(stored - HEADER_BYTES);
        let is_right = be32(&block, 0) == MAGIC
            && be32(&block, 4) as usize == target.len()
            && be32(&block, 8) as usize == here
            && be64(&block, 32) == inode.number
            && blocks.is_intact(place, &block, 12);
        if !is_right {
            return Err(damaged());
        }
        target.extend_from_slice(part(&block, HEADER_BYTES, here));
    }
    if target.len() as u64 == bytes { Ok(target) } else { Err(damaged()) }
}
