//! The blocks of the file system, as they are after the journal was replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_base::ByteCache;

use crate::error::{DiskError, Result};
use crate::read::{ReadAt, read_vec};

use super::superblock::Superblock;

/// Metadata blocks that are kept.
const CACHE_BYTES: usize = 8 << 20;

/// Blocks that are newer in the journal than in their place.
pub(super) type Overlay = BTreeMap<u64, JournalCopy>;

/// A block in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalCopy {
    /// The byte of the volume.
    pub offset: u64,
    /// Its first four bytes were cleared, as they are the journal's magic number.
    pub is_escaped: bool,
}

/// The journal's magic number, as it is stored.
pub(super) const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// The superblock, and the blocks that it describes.
pub(super) struct Blocks<'a> {
    pub superblock: Superblock,
    reader: &'a dyn ReadAt,
    overlay: Overlay,
    cache: ByteCache<u64, Arc<[u8]>>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(reader: &'a dyn ReadAt, superblock: Superblock, overlay: Overlay) -> Self {
        Self { superblock, reader, overlay, cache: ByteCache::new(CACHE_BYTES) }
    }

    /// The same blocks, described by a newer superblock with the same block size.
    pub(super) fn with_superblock(self, superblock: Superblock) -> Self {
        Self { superblock, ..self }
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes as u64
    }

    /// A block of metadata.
    pub(super) fn get(&self, block: u64) -> Result<Arc<[u8]>> {
        if let Some(known) = self.cache.get(&block) {
            return Ok(known);
        }
        let bytes: Arc<[u8]> = self.read(block, 1)?.into();
        self.cache.put(block, bytes.clone(), bytes.len());
        Ok(bytes)
    }

    /// Consecutive blocks, past the cache. The caller bounds how many.
    pub(super) fn read(&self, first: u64, count: u64) -> Result<Vec<u8>> {
        let end = first.checked_add(count);
        if end.is_none_or(|end| end > self.superblock.blocks) {
            return Err(DiskError::damaged("a block outside of the volume", first));
        }
        let block_bytes = self.block_bytes();
        let mut bytes = read_vec(self.reader, first * block_bytes, (count * block_bytes) as usize)?;
        for (block, copy) in self.overlay.range(first..first + count) {
            let at = ((block - first) * block_bytes) as usize;
            let place = &mut bytes[at..at + self.superblock.block_bytes];
            self.reader.read_at(copy.offset, place)?;
            if copy.is_escaped {
                place[..4].copy_from_slice(&JOURNAL_MAGIC);
            }
        }
        Ok(bytes)
    }

    /// Fills the buffer from a byte of the file system on. The caller has checked that the blocks
    /// exist.
    pub(super) fn read_bytes(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let block_bytes = self.block_bytes();
        let end = offset + buffer.len() as u64;
        let (first, last) = (offset / block_bytes, end.div_ceil(block_bytes));
        self.reader.read_at(offset, buffer)?;
        for block in self.overlay.range(first..last).map(|(block, _)| *block) {
            let newer = self.read(block, 1)?;
            let start = block * block_bytes;
            let (from, to) = (start.max(offset), (start + block_bytes).min(end));
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&newer[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    /// The first block of a range that is newer in the journal.
    pub(super) fn first_newer(&self, first: u64, end: u64) -> Option<u64> {
        self.overlay.range(first..end).next().map(|(block, _)| *block)
    }

    /// How many blocks are newer in the journal.
    pub(super) fn newer(&self) -> u64 {
        self.overlay.len() as u64
    }
}
