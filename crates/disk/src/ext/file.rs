//! The content of a file whose inode leads to blocks.

use std::ops::{ControlFlow, Range};

use crate::error::Result;
use crate::file_system::{Piece, Source};

use super::blocks::Blocks;
use super::inode::Inode;
use super::mapping::{self, Mapped};

/// Gives the parts of the content that have bytes in a range of bytes.
pub(super) fn pieces(
    blocks: &Blocks<'_>,
    inode: &Inode,
    range: Range<u64>,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<()> {
    let (block_bytes, size) = (blocks.block_bytes(), inode.size());
    let end = range.end.min(size);
    if range.start >= end {
        return Ok(());
    }
    let wanted = range.start / block_bytes..end.div_ceil(block_bytes);
    mapping::data(blocks, inode, wanted, &mut |mapped| {
        let mut flow = ControlFlow::Continue(());
        split(blocks, mapped, &mut |part, is_newer| {
            let offset = part.logical * block_bytes;
            let bytes = (part.count * block_bytes).min(size.saturating_sub(offset));
            // An index can lead to blocks on both sides of the range.
            if bytes == 0 || offset >= end || offset + bytes <= range.start || flow.is_break() {
                return;
            }
            let place = part.physical * block_bytes;
            let source = match (is_newer, part.unwritten) {
                (_, true) => Source::Unwritten(place),
                (true, false) => Source::Inside,
                (false, false) => Source::Volume(place),
            };
            flow = take(Piece { offset, bytes, source });
        });
        flow
    })
}

/// Separates the blocks that are newer in the journal from the others.
fn split(blocks: &Blocks<'_>, mapped: Mapped, take: &mut dyn FnMut(Mapped, bool)) {
    let end = mapped.physical + mapped.count;
    let mut at = mapped.physical;
    while at < end {
        let mut newer = blocks.first_newer(at, end).unwrap_or(end);
        let is_newer = newer == at;
        if is_newer {
            while newer < end && blocks.first_newer(newer, newer + 1).is_some() {
                newer += 1;
            }
        }
        let part = Mapped {
            logical: mapped.logical + (at - mapped.physical),
            physical: at,
            count: newer - at,
            unwritten: mapped.unwritten,
        };
        take(part, is_newer);
        at = newer;
    }
}

/// Reads the content from `offset` on; holes are zeros. Returns how many bytes there were.
pub(super) fn read(
    blocks: &Blocks<'_>,
    inode: &Inode,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    let block_bytes = blocks.block_bytes();
    let bytes = inode.size().saturating_sub(offset).min(buffer.len() as u64);
    let buffer = &mut buffer[..bytes as usize];
    buffer.fill(0);
    if bytes == 0 {
        return Ok(0);
    }
    let end = offset + bytes;
    let wanted = offset / block_bytes..end.div_ceil(block_bytes);
    let mut result = Ok(bytes as usize);
    mapping::data(blocks, inode, wanted, &mut |mapped| {
        let start = mapped.logical * block_bytes;
        let (from, to) = (start.max(offset), (start + mapped.count * block_bytes).min(end));
        if mapped.unwritten || from >= to {
            return ControlFlow::Continue(());
        }
        let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
        match blocks.read_bytes(mapped.physical * block_bytes + (from - start), part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    result
}
