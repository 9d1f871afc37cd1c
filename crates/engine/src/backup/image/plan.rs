//! How a disk is cut: segments, one after another, from its first byte to its last.

use std::ops::Range;

use strongroom_catalog::ChunkRef;

use super::map::{DiskMap, Extent, FileOnVolume};

/// The block that most file systems have; what is left of the last one behind the end of a file is a
/// segment of its own.
const BLOCK_BYTES: u64 = 4096;

/// A part of a disk that is cut by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub start: u64,
    /// How long it is; not zero.
    pub bytes: u64,
    /// What is in it.
    pub content: Content,
}

/// What is in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A part of a file, from this byte of it on.
    File(FileOnVolume, u64),
    /// Anything else.
    Other,
    /// It is not read, and counts as zeros.
    Zeros,
    /// A chunk that the parent has in this place, and that was not written since.
    Kept {
        /// The chunk.
        chunk: ChunkRef,
        /// It is compared with the disk.
        is_sampled: bool,
    },
}

impl Content {
    /// Whether all of it is read.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::File(..) | Self::Other)
    }
}

impl Segment {
    /// Its bytes of the disk.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes
    }

    /// What of it is before a byte of the disk that is inside of it, and the rest.
    pub fn split(self, at: u64) -> (Self, Self) {
        let before = at - self.start;
        let content = match self.content {
            Content::File(file, from) => Content::File(file, from.saturating_add(before)),
            other => other,
        };
        (Self { bytes: before, ..self }, Self { start: at, bytes: self.bytes - before, content })
    }
}

/// The segments of a disk.
pub struct Plan<'m> {
    extents: std::iter::Peekable<std::slice::Iter<'m, Extent>>,
    zeros: std::iter::Peekable<std::slice::Iter<'m, Range<u64>>>,
    at: u64,
    end: u64,
}

impl<'m> Plan<'m> {
    /// For a disk of this size. Of extents that overlap, the one that begins first has the bytes;
    /// an extent has them before anything that counts as zeros.
    pub fn new(map: &'m DiskMap, bytes: u64) -> Self {
        let (extents, zeros) = (map.extents.iter().peekable(), map.zeros.iter().peekable());
        Self { extents, zeros, at: 0, end: bytes }
    }

    /// The rest of the next extent that is not behind.
    fn next_extent(&mut self) -> Option<Segment> {
        while let Some(extent) = self.extents.peek() {
            let end = extent.start.saturating_add(extent.bytes).min(self.end);
            if end > self.at {
                let start = extent.start.max(self.at);
                let from = extent.file_offset.saturating_add(start - extent.start);
                let content = Content::File(extent.file, from);
                return Some(Segment { start, bytes: end - start, content });
            }
            self.extents.next();
        }
        None
    }

    /// The rest of the next zeros that are not behind.
    fn next_zeros(&mut self) -> Option<Range<u64>> {
        while let Some(zeros) = self.zeros.peek() {
            if zeros.end > self.at && zeros.start < zeros.end {
                return Some(zeros.start.max(self.at)..zeros.end.min(self.end));
            }
            self.zeros.next();
        }
        None
    }
}

impl Iterator for Plan<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        if self.at >= self.end {
            return None;
        }
        let extent = self.next_extent();
        let until = extent.map_or(self.end, |extent| extent.start);
        let segment = match (extent, self.next_zeros()) {
            (Some(extent), _) if extent.start == self.at => extent,
            (_, Some(zeros)) if zeros.start == self.at => {
                let bytes = zeros.end.min(until) - self.at;
                Segment { start: self.at, bytes, content: Content::Zeros }
            }
            (_, zeros) => {
                let until = zeros.map_or(until, |zeros| zeros.start.min(until));
                // Behind the end of a file, the rest of its last block.
                let until = match self.at % BLOCK_BYTES {
                    0 => until,
                    into => until.min(self.at + (BLOCK_BYTES - into)),
                };
                Segment { start: self.at, bytes: until - self.at, content: Content::Other }
            }
        };
        self.at += segment.bytes;
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    /// Against a byte by byte list.
    #[test]
    fn segments_are_the_disk_once_and_never_zeros_where_a_file_is() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let size = 1 + random.below(40_000);
            let mut map = DiskMap::default();
            let (mut files, mut free) = (vec![None; size as usize], vec![false; size as usize]);
            for inode in 0..random.below(8) {
                let (start, bytes) = (random.below(size), 1 + random.below(9000));
                let file_offset = random.below(100_000);
                map.extents.push(Extent { start, bytes, file: (0, inode), file_offset });
            }
            for _ in 0..random.below(8) {
                let start = random.below(size);
                map.zeros.push(start..start + random.below(9000));
            }
            map.extents.sort_unstable();
            map.zeros.sort_unstable_by_key(|range| range.start);
            let plan: Vec<Segment> = Plan::new(&map, size).collect();
            map.tidy();
            assert_eq!(Plan::new(&map, size).collect::<Vec<_>>(), plan, "seed {seed}");
            for extent in map.extents.iter().rev() {
                for byte in extent.start..(extent.start + extent.bytes).min(size) {
                    files[byte as usize] =
                        Some((extent.file, extent.file_offset + (byte - extent.start)));
                }
            }
            for range in &map.zeros {
                free[range.start as usize..range.end.min(size) as usize].fill(true);
            }
            let mut at = 0;
            for segment in Plan::new(&map, size) {
                assert_eq!(segment.start, at, "seed {seed}");
                assert!(segment.bytes > 0, "seed {seed}");
                at += segment.bytes;
                for byte in segment.start..at {
                    let (file, is_free) = (files[byte as usize], free[byte as usize]);
                    match segment.content {
                        Content::File(of, from) => {
                            // Which of several files is any of them; that it is one is what counts.
                            assert!(file.is_some(), "seed {seed}");
                            if map.extents.len() == 1 {
                                assert_eq!(file, Some((of, from + (byte - segment.start))));
                            }
                        }
                        Content::Zeros => assert!(file.is_none() && is_free, "seed {seed}"),
                        Content::Other => assert!(file.is_none() && !is_free, "seed {seed}"),
                        Content::Kept { .. } => unreachable!("a plan keeps nothing"),
                    }
                }
            }
            assert_eq!(at, size, "seed {seed}");
        }
    }
}
