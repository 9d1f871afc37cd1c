//! The content of a file, a directory, or a value that is in blocks.

use std::ops::{ControlFlow, Range};

use crate::error::Result;
use crate::file_system::{Piece, Source};

use super::blocks::Blocks;
use super::inode::{Fork, Inode};
use super::mapping;

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
    let mut lost = None;
    mapping::data(blocks, inode, Fork::Data, wanted, &mut |mapped| {
        let place = match blocks.place(mapped.physical, mapped.count) {
            Ok(place) => place,
            Err(error) => {
                lost = Some(error);
                return ControlFlow::Break(());
            }
        };
        let Some(offset) = mapped.logical.checked_mul(block_bytes).filter(|at| *at < end) else {
            return ControlFlow::Continue(());
        };
        let bytes = (mapped.count * block_bytes).min(size - offset);
        let whole = Piece {
            offset,
            bytes,
            source: match mapped.unwritten {
                true => Source::Unwritten(place),
                false => Source::Volume(place),
            },
        };
        split(blocks, whole, place, &mut |piece| {
            let is_wanted = piece.offset < end && piece.offset + piece.bytes > range.start;
            if is_wanted { take(piece) } else { ControlFlow::Continue(()) }
        })
    })?;
    lost.map_or(Ok(()), Err)
}

/// Separates the bytes that are newer in the log from the others.
fn split(
    blocks: &Blocks<'_>,
    whole: Piece,
    place: u64,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let end = place + whole.bytes;
    let mut at = place;
    while at < end {
        let newer = blocks.first_newer(at..end).unwrap_or(end..end);
        let newer = newer.start.max(at)..newer.end.min(end);
        let (stop, source) = match (newer.start == at, whole.source) {
            (true, Source::Volume(_)) => (newer.end, Source::Inside),
            (true, other) => (newer.end, other),
            (false, Source::Volume(_)) => (newer.start, Source::Volume(at)),
            (false, _) => (newer.start, Source::Unwritten(at)),
        };
        take(Piece { offset: whole.offset + (at - place), bytes: stop - at, source })?;
        at = stop;
    }
    ControlFlow::Continue(())
}

/// Reads the content from `offset` on; holes are zeros. Returns how many bytes there were.
pub(super) fn read(
    blocks: &Blocks<'_>,
    inode: &Inode,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    let bytes = inode.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
    read_fork(blocks, inode, Fork::Data, offset, &mut buffer[..bytes])?;
    Ok(bytes)
}

/// Fills the buffer from a byte of a fork on, which need not be before the end of the file.
pub(super) fn read_fork(
    blocks: &Blocks<'_>,
    inode: &Inode,
    fork: Fork,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let block_bytes = blocks.block_bytes();
    buffer.fill(0);
    if buffer.is_empty() {
        return Ok(());
    }
    let end = offset.saturating_add(buffer.len() as u64);
    let wanted = offset / block_bytes..end.div_ceil(block_bytes);
    let mut result = Ok(());
    mapping::data(blocks, inode, fork, wanted, &mut |mapped| {
        let Some(start) = mapped.logical.checked_mul(block_bytes) else {
            return ControlFlow::Break(());
        };
        let stop = start.saturating_add(mapped.count * block_bytes);
        let (from, to) = (start.max(offset), stop.min(end));
        if mapped.unwritten || from >= to {
            return ControlFlow::Continue(());
        }
        let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
        let place = blocks.place(mapped.physical, mapped.count);
        match place.and_then(|place| blocks.read_bytes(place + (from - start), part)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    result
}
