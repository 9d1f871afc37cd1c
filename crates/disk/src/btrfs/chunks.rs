//! Chunks: which bytes of the device are which logical bytes.

use crate::error::{DiskError, Result};
use crate::fields::{le16, le64, part};
use crate::understood::btrfs as words;

use super::key::{Key, key};
use super::superblock::Superblock;

const CHUNK: u8 = 228;
/// Below the keys of all chunks in their tree.
pub(super) const FIRST: Key = Key { object: 256, kind: CHUNK, offset: 0 };
const HEAD_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;
const KEY_BYTES: usize = 17;
/// Stripes over several devices: RAID 0, 10, 5, 6.
const STRIPED: u64 = 0x8 | 0x40 | 0x80 | 0x100;
/// The most chunks: a thousand for each terabyte is usual.
const CHUNKS_MAX: usize = 1 << 18;

/// Consecutive logical bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub logical: u64,
    pub bytes: u64,
    /// Where the copies of it begin on this device.
    pub places: Vec<u64>,
}

/// All chunks, in the order of their logical bytes, without overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chunks {
    list: Vec<Chunk>,
}

impl Chunks {
    /// The chunks that the superblock has: those with the tree of all chunks.
    pub(super) fn of_system(superblock: &Superblock) -> Result<Self> {
        let mut chunks = Self::default();
        let mut rest = &superblock.system_chunks[..];
        while rest.len() > KEY_BYTES + HEAD_BYTES {
            let found = key(rest);
            rest = part(rest, KEY_BYTES, rest.len());
            let length = HEAD_BYTES + STRIPE_BYTES * usize::from(le16(rest, 44));
            chunks.add(superblock, found, part(rest, 0, length))?;
            rest = part(rest, length, rest.len());
        }
        chunks.sort()?;
        Ok(chunks)
    }

    /// Adds a chunk. At the end they must be sorted.
    pub(super) fn add(&mut self, superblock: &Superblock, key: Key, bytes: &[u8]) -> Result<()> {
        let damaged = || DiskError::damaged("a chunk, by logical byte", key.offset);
        let (logical, length, kind) = (key.offset, le64(bytes, 0), le64(bytes, 24));
        let stripes = usize::from(le16(bytes, 44));
        let list = bytes.get(HEAD_BYTES..HEAD_BYTES + stripes * STRIPE_BYTES);
        let list = list.ok_or_else(damaged)?;
        if key.kind != CHUNK || length == 0 || logical.checked_add(length).is_none() {
            return Err(damaged());
        }
        words::CHUNK.check(kind)?;
        if kind & STRIPED != 0 && stripes > 1 {
            return Err(DiskError::unsupported("Btrfs with stripes over several devices"));
        }
        let mut places = Vec::new();
        for stripe in list.chunks_exact(STRIPE_BYTES) {
            if le64(stripe, 0) != superblock.device {
                continue;
            }
            let place = le64(stripe, 8);
            if place.checked_add(length).is_none_or(|end| end > superblock.bytes) {
                return Err(damaged());
            }
            places.push(place);
        }
        if places.is_empty() || self.list.len() == CHUNKS_MAX {
            return Err(damaged());
        }
        self.list.push(Chunk { logical, bytes: length, places });
        Ok(())
    }

    /// Sorts the chunks, of which no two may overlap.
    pub(super) fn sort(&mut self) -> Result<()> {
        self.list.sort_unstable_by_key(|chunk| chunk.logical);
        for pair in self.list.windows(2) {
            if pair[0].logical + pair[0].bytes > pair[1].logical {
                return Err(DiskError::damaged("chunks that overlap, by byte", pair[1].logical));
            }
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.list.iter()
    }

    /// The chunk that has some logical bytes, and how far inside of it they begin.
    pub(super) fn find(&self, logical: u64, bytes: u64) -> Result<(&Chunk, u64)> {
        let damaged = || DiskError::damaged("bytes that no chunk has, by logical byte", logical);
        let next = self.list.partition_point(|chunk| chunk.logical <= logical);
        let chunk = next.checked_sub(1).map(|index| &self.list[index]).ok_or_else(damaged)?;
        let inside = logical - chunk.logical;
        let is_there = inside.checked_add(bytes).is_some_and(|end| end <= chunk.bytes);
        if is_there { Ok((chunk, inside)) } else { Err(damaged()) }
    }

    /// The byte of the device at which some logical bytes begin: of the first copy.
    pub(super) fn place(&self, logical: u64, bytes: u64) -> Result<u64> {
        let (chunk, inside) = self.find(logical, bytes)?;
        Ok(chunk.places.first().copied().unwrap_or_default() + inside)
    }
}
