//! The blocks of the file system, as they are after the log was replayed.
//!
//! A block has the number of its group in the high bits and its number inside of the group in the
//! low ones. The log changes parts of blocks, in units of 128 bytes, so what it changed is kept in
//! memory, a sector at a time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use strongroom_base::ByteCache;

use crate::error::{DiskError, Result};
use crate::fields::part;
use crate::read::{ReadAt, read_vec};

use super::superblock::{Superblock, is_sum_right};

/// Metadata blocks that are kept.
const CACHE_BYTES: usize = 8 << 20;
/// The unit of the log and of what it changed.
pub(super) const SECTOR_BYTES: u64 = 512;
/// What a replay may keep: 48 MiB of sectors.
const NEWER_MAX: usize = (48 << 20) / SECTOR_BYTES as usize;

/// Sectors that are newer in the log than in their place.
#[derive(Debug, Clone, Default)]
pub(super) struct Overlay {
    sectors: BTreeMap<u64, Box<[u8; SECTOR_BYTES as usize]>>,
}

/// More was changed than a replay may keep.
pub(super) struct TooLarge;

impl Overlay {
    pub(super) fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// The first range of newer bytes that touches a range.
    pub(super) fn first(&self, range: Range<u64>) -> Option<Range<u64>> {
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        if sectors.is_empty() {
            return None;
        }
        let first = *self.sectors.range(sectors.clone()).next()?.0;
        let following = self.sectors.range(first..sectors.end).zip(first..);
        let count = following.take_while(|((at, _), expected)| **at == *expected).count() as u64;
        Some(first * SECTOR_BYTES..(first + count) * SECTOR_BYTES)
    }

    /// Puts the newer bytes into a buffer that was read from `offset`.
    pub(super) fn apply(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        if sectors.is_empty() {
            return;
        }
        for (sector, bytes) in self.sectors.range(sectors) {
            let start = sector * SECTOR_BYTES;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES).min(end));
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
    }

    /// Changes bytes. The caller has checked that the volume has them.
    pub(super) fn write(
        &mut self,
        reader: &dyn ReadAt,
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<Result<(), TooLarge>> {
        let mut at = offset;
        while !bytes.is_empty() {
            let (sector, inside) = (at / SECTOR_BYTES, (at % SECTOR_BYTES) as usize);
            let count = bytes.len().min(SECTOR_BYTES as usize - inside);
            if !self.sectors.contains_key(&sector) {
                if self.sectors.len() == NEWER_MAX {
                    return Ok(Err(TooLarge));
                }
                let mut content = Box::new([0; SECTOR_BYTES as usize]);
                reader.read_at(sector * SECTOR_BYTES, &mut content[..])?;
                self.sectors.insert(sector, content);
            }
            if let Some(content) = self.sectors.get_mut(&sector) {
                content[inside..inside + count].copy_from_slice(&bytes[..count]);
            }
            at += count as u64;
            bytes = &bytes[count..];
        }
        Ok(Ok(()))
    }
}

/// The superblock, and the blocks that it describes.
pub(super) struct Blocks<'a> {
    pub superblock: Superblock,
    pub reader: &'a dyn ReadAt,
    overlay: Overlay,
    cache: ByteCache<u64, Arc<[u8]>>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(reader: &'a dyn ReadAt, superblock: Superblock, overlay: Overlay) -> Self {
        Self { superblock, reader, overlay, cache: ByteCache::new(CACHE_BYTES) }
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes as u64
    }

    /// Splits a block's number into its group and its number there.
    pub(super) fn split(&self, block: u64) -> (u64, u64) {
        let shift = self.superblock.group_shift;
        (block >> shift, block & ((1 << shift) - 1))
    }

    /// The number of a block of a group.
    pub(super) fn join(&self, group: u64, inside: u64) -> u64 {
        group << self.superblock.group_shift | inside
    }

    /// The byte at which consecutive blocks begin; they are in one group.
    pub(super) fn place(&self, block: u64, count: u64) -> Result<u64> {
        let (group, inside) = self.split(block);
        let behind = inside.checked_add(count);
        if behind.is_none_or(|behind| behind > self.superblock.blocks_of(group)) {
            return Err(DiskError::damaged("a block outside of the volume", block));
        }
        Ok((group * self.superblock.group_blocks + inside) * self.block_bytes())
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
    pub(super) fn read(&self, block: u64, count: u64) -> Result<Vec<u8>> {
        let offset = self.place(block, count)?;
        let mut bytes = read_vec(self.reader, offset, (count * self.block_bytes()) as usize)?;
        self.overlay.apply(offset, &mut bytes);
        Ok(bytes)
    }

    /// Fills the buffer from a byte of the volume on. The caller has checked that it exists.
    pub(super) fn read_bytes(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reader.read_at(offset, buffer)?;
        self.overlay.apply(offset, buffer);
        Ok(())
    }

    /// A sector with one of the headers of a group.
    pub(super) fn header(&self, group: u64, index: u64) -> Result<(u64, Vec<u8>)> {
        let start = self.place(self.join(group, 0), 1)?;
        let bytes = self.superblock.sector_bytes;
        let offset = start + index * bytes as u64;
        let mut sector = read_vec(self.reader, offset, bytes)?;
        self.overlay.apply(offset, &mut sector);
        Ok((offset, sector))
    }

    /// The first newer bytes that touch a range of the volume.
    pub(super) fn first_newer(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.overlay.first(range)
    }

    /// How many sectors are newer in the log.
    pub(super) fn newer(&self) -> u64 {
        self.overlay.sectors()
    }

    /// Whether a structure that was read from `offset` has the right checksum at `at`. What the log
    /// changed has none until it is written, and version 4 has none at all.
    pub(super) fn is_intact(&self, offset: u64, bytes: &[u8], at: usize) -> bool {
        !self.superblock.is_v5
            || self.first_newer(offset..offset + bytes.len() as u64).is_some()
            || is_sum_right(bytes, at)
    }

    /// Whether a structure names the file system that it belongs to.
    pub(super) fn is_ours(&self, bytes: &[u8], at: usize) -> bool {
        !self.superblock.is_v5 || part(bytes, at, 16) == self.superblock.meta_uuid
    }
}
