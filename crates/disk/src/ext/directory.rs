//! The names of a directory, read block after block: the hash tree of large directories is made so
//! that its own blocks look empty.

use std::ops::ControlFlow;

use strongroom_catalog::entry::is_valid_name;

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, part};
use crate::file_system::Entry;

use super::blocks::Blocks;
use super::inline;
use super::inode::{Inode, flag};
use super::mapping;
use super::superblock::incompat;

const HEADER_BYTES: usize = 8;
/// The last entry of a block is none, and has the checksum.
const TAIL_BYTES: usize = 12;
const TAIL_KIND: u8 = 0xde;

type Take<'t> = &'t mut dyn FnMut(Entry<'_>) -> ControlFlow<()>;

/// Gives all names to `take`. After damage it goes on with the next block.
pub(super) fn entries(blocks: &Blocks<'_>, inode: &Inode, take: Take<'_>) -> Result<()> {
    if inode.has(flag::INLINE_DATA) {
        for area in inline::directory(inode)? {
            if names(blocks, inode, area, take)?.is_break() {
                break;
            }
        }
        return Ok(());
    }
    let mut damage = None;
    let count = inode.size().div_ceil(blocks.block_bytes());
    mapping::data(blocks, inode, 0..count, &mut |mapped| {
        let wanted = mapped.count.min(count.saturating_sub(mapped.logical));
        for block in mapped.physical..mapped.physical + wanted {
            match block_names(blocks, inode, block, take) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(stop) => return stop,
                Err(error) => damage = damage.take().or(Some(error)),
            }
        }
        ControlFlow::Continue(())
    })?;
    damage.map_or(Ok(()), Err)
}

fn block_names(
    blocks: &Blocks<'_>,
    inode: &Inode,
    block: u64,
    take: Take<'_>,
) -> Result<ControlFlow<()>> {
    let bytes = blocks.get(block)?;
    let names_end = if blocks.superblock.has_checksums() && !is_hash_node(&bytes) {
        let at = bytes.len() - TAIL_BYTES;
        let tail = &bytes[at..];
        let is_tail = le32(tail, 0) == 0
            && usize::from(le16(tail, 4)) == TAIL_BYTES
            && le16(tail, 6) == u16::from(TAIL_KIND) << 8;
        if !is_tail || crc32c(inode.seed, &bytes[..at]) != le32(tail, 8) {
            return Err(DiskError::damaged("checksum of a directory, by block", block));
        }
        at
    } else {
        bytes.len()
    };
    names(blocks, inode, &bytes[..names_end], take)
}

/// The root of a hash tree begins with `.` and `..`, which fills the block. The other nodes are one
/// empty entry. Both have checksums of hashes, which are not used here.
fn is_hash_node(block: &[u8]) -> bool {
    let first = record_bytes(block, block.len());
    if first == block.len() {
        return le32(block, 0) == 0;
    }
    let second = part(block, first, block.len());
    first == 12
        && part(block, HEADER_BYTES, 2) == b".\0"
        && record_bytes(second, block.len()) == block.len() - first
        && part(second, HEADER_BYTES, 2) == b".."
        && byte(second, 6) == 2
        // A root's info: zero, and a length of 8.
        && le32(block, 24) == 0
        && byte(block, 29) == 8
}

/// The length of an entry. Blocks of 64 KiB need one more bit than there is.
fn record_bytes(entry: &[u8], block_bytes: usize) -> usize {
    match le16(entry, 4) {
        0 | 0xffff if block_bytes == 1 << 16 => 1 << 16,
        bytes if block_bytes == 1 << 16 => {
            usize::from(bytes & 0xfffc) | usize::from(bytes & 3) << 16
        }
        bytes => bytes.into(),
    }
}

fn names(
    blocks: &Blocks<'_>,
    inode: &Inode,
    area: &[u8],
    take: Take<'_>,
) -> Result<ControlFlow<()>> {
    let has_kinds = blocks.superblock.incompat & incompat::FILETYPE != 0;
    let damaged = || inode.damaged("entries of a directory, by inode");
    let mut rest = area;
    let mut has_bad_name = false;
    while !rest.is_empty() {
        let bytes = record_bytes(rest, blocks.superblock.block_bytes);
        if bytes < HEADER_BYTES || bytes > rest.len() || !bytes.is_multiple_of(4) {
            return Err(damaged());
        }
        let (entry, after) = rest.split_at(bytes);
        rest = after;
        let number = le32(entry, 0);
        let name_bytes = if has_kinds { byte(entry, 6).into() } else { le16(entry, 6) };
        if number == 0 {
            continue;
        }
        let name = entry.get(HEADER_BYTES..HEADER_BYTES + usize::from(name_bytes));
        let name = name.ok_or_else(damaged)?;
        if name == b"." || name == b".." {
            continue;
        }
        if !is_valid_name(name) {
            has_bad_name = true;
        } else if take(Entry { name, inode: number.into() }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    if has_bad_name { Err(damaged()) } else { Ok(ControlFlow::Continue(())) }
}
