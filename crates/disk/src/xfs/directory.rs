//! The names of a directory: in the inode, or in blocks of data, of which the hash trees and lists
//! of free space behind them say nothing new.

use std::ops::ControlFlow;

use strongroom_catalog::entry::is_valid_name;

use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, be64, byte, part};
use crate::file_system::Entry;

use super::blocks::Blocks;
use super::file::read_fork;
use super::inode::{Fork, Format, Inode};
use super::mapping;

/// Blocks of data are before this byte of a directory, all others behind it.
const DATA_END: u64 = 32 << 30;
const BLOCK_V4: u32 = 0x5844_3242;
const DATA_V4: u32 = 0x5844_3244;
const BLOCK_V5: u32 = 0x5844_4233;
const DATA_V5: u32 = 0x5844_4433;
const UNUSED: u16 = 0xffff;

type Take<'t> = &'t mut dyn FnMut(Entry<'_>) -> ControlFlow<()>;

/// Gives all names to `take`. After damage it goes on with the next block.
pub(super) fn entries(blocks: &Blocks<'_>, inode: &Inode, take: Take<'_>) -> Result<()> {
    if inode.format(Fork::Data)? == Format::Local {
        return short(blocks, inode, take);
    }
    let unit = blocks.superblock.directory_bytes as u64;
    let per_unit = unit / blocks.block_bytes();
    let (mut next, mut damage, mut flow) = (0, None, ControlFlow::Continue(()));
    let end = DATA_END / blocks.block_bytes();
    let mut bytes = vec![0; unit as usize];
    mapping::data(blocks, inode, Fork::Data, 0..end, &mut |mapped| {
        let stop = (mapped.logical + mapped.count).min(end);
        next = next.max(mapped.logical / per_unit * per_unit);
        while next < stop && flow.is_continue() {
            match unit_names(blocks, inode, next * blocks.block_bytes(), &mut bytes, take) {
                Ok(found) => flow = found,
                Err(error) => damage = damage.take().or(Some(error)),
            }
            next += per_unit;
        }
        flow
    })?;
    damage.map_or(Ok(()), Err)
}

/// The names of one block of a directory, which can consist of several blocks of the volume.
fn unit_names(
    blocks: &Blocks<'_>,
    inode: &Inode,
    start: u64,
    bytes: &mut [u8],
    take: Take<'_>,
) -> Result<ControlFlow<()>> {
    read_fork(blocks, inode, Fork::Data, start, bytes)?;
    let is_v5 = blocks.superblock.is_v5;
    let header = if is_v5 { 64 } else { 16 };
    let end = match (be32(bytes, 0), is_v5) {
        (DATA_V4, false) | (DATA_V5, true) => bytes.len(),
        // At the end are a hash list and its length.
        (BLOCK_V4, false) | (BLOCK_V5, true) => {
            let leaves = be32(bytes, bytes.len() - 8) as usize;
            let list = leaves.checked_mul(8).and_then(|list| list.checked_add(8));
            list.and_then(|list| bytes.len().checked_sub(list)).unwrap_or(0)
        }
        _ => return Err(inode.damaged("block of a directory, by inode")),
    };
    if is_v5 && !is_intact(blocks, inode, start, bytes)? {
        return Err(inode.damaged("checksum of a directory, by inode"));
    }
    let area = bytes.get(header..end).ok_or_else(|| inode.damaged("a directory, by inode"))?;
    names(blocks, inode, area, take)
}

fn is_intact(blocks: &Blocks<'_>, inode: &Inode, start: u64, bytes: &[u8]) -> Result<bool> {
    if super::superblock::is_sum_right(bytes, 4) {
        return Ok(be64(bytes, 40) == inode.number && blocks.is_ours(bytes, 24));
    }
    // What the log changed has no checksum yet.
    let first = start / blocks.block_bytes();
    let wanted = first..first + bytes.len() as u64 / blocks.block_bytes();
    let mut is_newer = false;
    mapping::data(blocks, inode, Fork::Data, wanted, &mut |mapped| {
        if let Ok(place) = blocks.place(mapped.physical, mapped.count) {
            let range = place..place + mapped.count * blocks.block_bytes();
            is_newer |= blocks.first_newer(range).is_some();
        }
        ControlFlow::Continue(())
    })?;
    Ok(is_newer && be64(bytes, 40) == inode.number)
}

fn names(
    blocks: &Blocks<'_>,
    inode: &Inode,
    area: &[u8],
    take: Take<'_>,
) -> Result<ControlFlow<()>> {
    let damaged = || inode.damaged("entries of a directory, by inode");
    let kind_bytes = usize::from(blocks.superblock.has_file_types);
    let (mut rest, mut has_bad_name) = (area, false);
    while !rest.is_empty() {
        if be16(rest, 0) == UNUSED {
            let length = usize::from(be16(rest, 2));
            let is_right = length >= 8 && length.is_multiple_of(8);
            rest = rest.get(length..).filter(|_| is_right).ok_or_else(damaged)?;
            continue;
        }
        let name_bytes = usize::from(byte(rest, 8));
        let length = (9 + name_bytes + kind_bytes + 2).next_multiple_of(8);
        let (entry, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
        rest = after;
        match name(&entry[9..9 + name_bytes], be64(entry, 0), take) {
            Some(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
            Some(ControlFlow::Continue(())) => {}
            None => has_bad_name = true,
        }
    }
    if has_bad_name { Err(damaged()) } else { Ok(ControlFlow::Continue(())) }
}

/// Gives a name to `take`; `None` if it is invalid.
fn name(name: &[u8], inode: u64, take: Take<'_>) -> Option<ControlFlow<()>> {
    if name == b"." || name == b".." {
        return Some(ControlFlow::Continue(()));
    }
    is_valid_name(name).then(|| take(Entry { name, inode }))
}

/// The names of a directory that is in its inode.
fn short(blocks: &Blocks<'_>, inode: &Inode, take: Take<'_>) -> Result<()> {
    let damaged = || -> DiskError { inode.damaged("entries of a directory, by inode") };
    let area = inode.area(Fork::Data);
    let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
    let area = area.get(..size).ok_or_else(damaged)?;
    let width = if byte(area, 1) == 0 { 4 } else { 8 };
    let kind_bytes = usize::from(blocks.superblock.has_file_types);
    let mut rest = part(area, 2 + width, area.len());
    for _ in 0..byte(area, 0) {
        let name_bytes = usize::from(byte(rest, 0));
        let length = 3 + name_bytes + kind_bytes + width;
        let (entry, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
        rest = after;
        let number = &entry[length - width..];
        let number = if width == 4 { be32(number, 0).into() } else { be64(number, 0) };
        match name(&entry[3..3 + name_bytes], number, take) {
            Some(ControlFlow::Break(())) => break,
            Some(ControlFlow::Continue(())) => {}
            None => return Err(damaged()),
        }
    }
    Ok(())
}
