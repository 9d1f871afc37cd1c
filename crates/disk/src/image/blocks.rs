//! What images share whose tables give a place for each block of the disk, or none.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::read::ReadAt;

use super::Image;
use super::error::{ImageError, ImageResult};

/// Blocks that one search for data looks at: a fraction of a second.
const STEPS_MAX: u64 = 1 << 22;

/// Where the bytes of a part of the disk are.
pub(super) enum Content {
    /// From this byte of the file on.
    Stored(u64),
    /// In a block that was decompressed, from this byte of it on.
    Decompressed(Arc<[u8]>, usize),
    Zeros,
}

/// A disk whose parts are at places of one file.
pub(super) trait Blocks: Send + Sync {
    /// Bytes of the disk.
    fn disk_bytes(&self) -> u64;

    /// The file with its path, for messages.
    fn file(&self) -> (&dyn Image, &Path);

    /// Where the block is that has the byte `at` of the disk, from there on, and where it ends.
    fn block(&self, at: u64) -> ImageResult<(Content, u64)>;

    /// Whether `block` would say zeros, and where the block ends. Nothing is decompressed.
    fn is_zeros(&self, at: u64) -> ImageResult<(bool, u64)> {
        let (content, end) = self.block(at)?;
        Ok((matches!(content, Content::Zeros), end))
    }
}

/// The image that blocks make.
pub(super) struct OfBlocks<B>(pub B);

impl<B: Blocks> ReadAt for OfBlocks<B> {
    fn size(&self) -> u64 {
        self.0.disk_bytes()
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (file, path) = self.0.file();
        while !buffer.is_empty() {
            let (content, end) = self.0.block(offset)?;
            let count = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let (now, rest) = buffer.split_at_mut(count.clamp(1, buffer.len()));
            match content {
                Content::Zeros => now.fill(0),
                Content::Stored(place) => {
                    let last = place.checked_add(now.len() as u64);
                    if last.is_none_or(|last| last > file.size()) {
                        let what = "a block is behind the end of the file";
                        return Err(ImageError::damaged(path, what, place).into());
                    }
                    file.read_at(place, now)?;
                }
                Content::Decompressed(block, from) => {
                    let part = block.get(from..).and_then(|rest| rest.get(..now.len()));
                    now.copy_from_slice(part.ok_or(io::ErrorKind::InvalidData)?);
                }
            }
            offset += now.len() as u64;
            buffer = rest;
        }
        Ok(())
    }
}

impl<B: Blocks> Image for OfBlocks<B> {
    fn next_data_in(&self, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
        let (mut at, limit) = (range.start, range.end.min(self.size()));
        let mut steps_left = STEPS_MAX;
        let mut start = None;
        while at < limit && steps_left > 0 {
            let (is_zeros, end) = self.0.is_zeros(at)?;
            match start {
                Some(_) if is_zeros => break,
                None if !is_zeros => start = Some(at),
                _ => {}
            }
            at = end.clamp(at + 1, limit);
            steps_left -= 1;
        }
        // A search without end is not worth it: a little more is read.
        let more = || (at < limit).then(|| at..(at + (64 << 10)).min(limit));
        Ok(start.map(|start| start..at).or_else(more))
    }
}
