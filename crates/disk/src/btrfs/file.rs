//! The content of a file: extents of the device, of which some are compressed, and content that is
//! in its tree.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le64, part};
use crate::file_system::{Piece, Source};
use crate::read::read_vec;

use super::compression::{self, BYTES_MAX};
use super::inode::Inode;
use super::key::Key;
use super::nodes::{Nodes, floor, walk};
use super::{Btrfs, Content};

pub(super) const EXTENT: u8 = 108;
const INLINE_HEAD_BYTES: usize = 21;
const HEAD_BYTES: usize = 53;
const INLINE: u8 = 0;
const REGULAR: u8 = 1;
const PREALLOCATED: u8 = 2;

/// An extent of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where it begins in the file, and how many bytes of the file it has.
    pub offset: u64,
    pub bytes: u64,
    pub place: Place,
}

/// Where an extent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: it is zeros.
    Hole,
    /// In the tree.
    Inline { compression: u8, stored: Vec<u8> },
    /// On the device, from a logical byte on.
    Device { logical: u64, unwritten: bool },
    /// On the device and compressed: from a logical byte on are `stored` bytes, which have `whole`
    /// bytes of content, of which those from `skipped` on are wanted.
    Compressed { compression: u8, logical: u64, stored: u64, whole: u64, skipped: u64 },
}

/// Takes an item apart. The bounds of all numbers are checked here.
fn extent(offset: u64, bytes: &[u8]) -> Option<Extent> {
    let (whole, compression, kind) = (le64(bytes, 8), byte(bytes, 16), byte(bytes, 20));
    if byte(bytes, 17) != 0 || le16(bytes, 18) != 0 {
        return None;
    }
    if kind == INLINE {
        let stored = bytes.get(INLINE_HEAD_BYTES..)?.to_vec();
        let is_right = whole <= BYTES_MAX && (compression != 0 || whole == stored.len() as u64);
        let place = Place::Inline { compression, stored };
        return is_right.then_some(Extent { offset, bytes: whole, place });
    }
    if bytes.len() < HEAD_BYTES || !matches!(kind, REGULAR | PREALLOCATED) {
        return None;
    }
    let (logical, stored) = (le64(bytes, 21), le64(bytes, 29));
    let (skipped, count) = (le64(bytes, 37), le64(bytes, 45));
    offset.checked_add(count)?;
    let place = match (logical, compression) {
        (0, _) => Place::Hole,
        (_, 0) => {
            (skipped.checked_add(count)? <= stored).then_some(())?;
            let unwritten = kind == PREALLOCATED;
            Place::Device { logical: logical.checked_add(skipped)?, unwritten }
        }
        (_, compression) => {
            let is_right = whole <= BYTES_MAX
                && stored <= BYTES_MAX
                && skipped.checked_add(count)? <= whole
                && kind == REGULAR;
            is_right.then_some(())?;
            Place::Compressed { compression, logical, stored, whole, skipped }
        }
    };
    (count > 0).then_some(Extent { offset, bytes: count, place })
}

/// Gives the extents of a file that have bytes in a range to `take`.
pub(super) fn extents(
    nodes: &Nodes<'_>,
    inode: &Inode,
    range: Range<u64>,
    take: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<()> {
    let key = |offset| Key { object: inode.number, kind: EXTENT, offset };
    let first = floor(nodes, inode.tree.root, key(range.start))?;
    let is_ours = |found: &Key| found.object == inode.number && found.kind == EXTENT;
    let first = first.filter(is_ours).unwrap_or(key(0));
    let (mut problem, mut end) = (Ok(()), 0);
    walk(nodes, inode.tree.root, first, &mut |found, bytes| {
        if !is_ours(&found) || found.offset >= range.end {
            return ControlFlow::Break(());
        }
        match extent(found.offset, bytes).filter(|extent| extent.offset >= end) {
            Some(extent) => {
                end = extent.offset + extent.bytes;
                if end <= range.start { ControlFlow::Continue(()) } else { take(extent) }
            }
            None => {
                problem = Err(inode.damaged("an extent, by inode"));
                ControlFlow::Break(())
            }
        }
    })?;
    problem
}

/// Gives the parts of the content that have bytes in a range.
pub(super) fn pieces(
    nodes: &Nodes<'_>,
    inode: &Inode,
    range: Range<u64>,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<()> {
    let size = inode.size();
    let range = range.start..range.end.min(size);
    if range.is_empty() {
        return Ok(());
    }
    let mut problem = Ok(());
    extents(nodes, inode, range, &mut |extent| {
        let bytes = extent.bytes.min(size - extent.offset);
        let source = match extent.place {
            Place::Hole => return ControlFlow::Continue(()),
            Place::Inline { .. } | Place::Compressed { .. } => Source::Inside,
            Place::Device { logical, unwritten } => match nodes.chunks.place(logical, bytes) {
                Ok(place) if unwritten => Source::Unwritten(place),
                Ok(place) => Source::Volume(place),
                Err(error) => {
                    problem = Err(error);
                    return ControlFlow::Break(());
                }
            },
        };
        if bytes == 0 {
            return ControlFlow::Continue(());
        }
        take(Piece { offset: extent.offset, bytes, source })
    })?;
    problem
}

/// Reads the content from `offset` on; holes are zeros. Returns how many bytes there were.
pub(super) fn read(
    btrfs: &Btrfs<'_>,
    inode: &Inode,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    let bytes = inode.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
    let buffer = &mut buffer[..bytes];
    buffer.fill(0);
    if bytes == 0 {
        return Ok(0);
    }
    let end = offset + bytes as u64;
    let mut result = Ok(bytes);
    extents(&btrfs.nodes, inode, offset..end, &mut |extent| {
        let (from, to) = (extent.offset.max(offset), (extent.offset + extent.bytes).min(end));
        if from >= to {
            return ControlFlow::Continue(());
        }
        let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
        match read_extent(btrfs, &extent, from - extent.offset, part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    result
}

/// Fills the buffer from a byte of an extent on.
fn read_extent(btrfs: &Btrfs<'_>, extent: &Extent, inside: u64, buffer: &mut [u8]) -> Result<()> {
    let nodes = &btrfs.nodes;
    let sector_bytes = nodes.superblock.sector_bytes as usize;
    let copy = |content: &[u8], from: u64, buffer: &mut [u8]| {
        let found = part(content, from as usize, buffer.len());
        buffer[..found.len()].copy_from_slice(found);
    };
    match &extent.place {
        Place::Hole | Place::Device { unwritten: true, .. } => {}
        Place::Device { logical, unwritten: false } => {
            let place = nodes.chunks.place(logical + inside, buffer.len() as u64)?;
            nodes.reader.read_at(place, buffer)?;
        }
        Place::Inline { compression: 0, stored } => copy(stored, inside, buffer),
        Place::Inline { compression, stored } => {
            let bytes = extent.bytes as usize;
            let content = compression::decompress(*compression, stored, bytes, sector_bytes)?;
            copy(&content, inside, buffer);
        }
        Place::Compressed { compression, logical, stored, whole, skipped } => {
            let key = (*logical, *stored, *whole, *compression);
            let content: Content = match btrfs.decompressed.get(&key) {
                Some(known) => known,
                None => {
                    let place = nodes.chunks.place(*logical, *stored)?;
                    let bytes = read_vec(nodes.reader, place, *stored as usize)?;
                    let content = compression::decompress(
                        *compression,
                        &bytes,
                        *whole as usize,
                        sector_bytes,
                    )?;
                    let content: Content = Arc::from(content);
                    btrfs.decompressed.put(key, content.clone(), content.len());
                    content
                }
            };
            copy(&content, skipped + inside, buffer);
        }
    }
    Ok(())
}

/// The bytes of the device that an item of a file needs: logical bytes and how many.
pub(super) fn needed(bytes: &[u8]) -> Result<Option<(u64, u64)>> {
    if byte(bytes, 20) == INLINE {
        return Ok(None);
    }
    if bytes.len() < HEAD_BYTES {
        return Err(DiskError::damaged("an extent of a file, by its length", bytes.len() as u64));
    }
    let (logical, stored) = (le64(bytes, 21), le64(bytes, 29));
    Ok((logical != 0).then_some((logical, stored)))
}
