//! Blocks: neighbouring new chunks, compressed and sealed together.
//!
//! A [`BlockDraft`] gathers chunks; a [`BlockSealer`] turns it into the bytes of a block in an
//! arena; [`open_block`] returns the chunks. The three know nothing of files or threads.

use std::io::Cursor;
use std::sync::Arc;

use strongroom_base::seal::{SealKey, TAG_BYTES};
use strongroom_base::{ArenaId, Fingerprint, Location};
use zstd::zstd_safe::CParameter;

use crate::decompress::decompress;
use crate::format::{
    BASE_BYTES, BASES_MAX, BLOCK_CHUNKS_MAX, BLOCK_HEAD_BYTES, BLOCK_RAW_BYTES_MAX, BlockFrame,
    BlockHead, CHUNK_BYTES_MAX, Codec, DirectoryEntry, FRAME_BYTES, FormatError, SEALED_BYTES_MAX,
    SUMMARY_BASE_BYTES, SUMMARY_SLOT_BYTES, pack_directory, unpack_directory,
};
use crate::recycled::Recycled;
use crate::slots::SummarySlot;

/// Chunks on their way into a block.
#[derive(Debug)]
pub struct BlockDraft {
    number: u32,
    first_slot: u32,
    entries: Vec<DirectoryEntry>,
    /// [`DIRECTORY_ROOM`], then the chunks.
    bytes: Vec<u8>,
    bases: usize,
}

/// Bytes in front of a draft's chunks, for the directory. It is enough for nearly every block, and
/// directory and chunks are then together without being copied.
const DIRECTORY_ROOM: usize = 32 << 10;

impl BlockDraft {
    /// An empty block; its first chunk will have slot `first_slot`.
    pub fn new(number: u32, first_slot: u32) -> Self {
        Self::within(Vec::new(), number, first_slot)
    }

    /// An empty block in the memory of one that was sealed.
    pub fn within(mut bytes: Vec<u8>, number: u32, first_slot: u32) -> Self {
        bytes.clear();
        bytes.resize(DIRECTORY_ROOM, 0);
        Self { number, first_slot, entries: Vec::new(), bytes, bases: 0 }
    }

    /// The memory of a block that is no longer needed.
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    /// The chunks, one after the other.
    fn data(&self) -> &[u8] {
        &self.bytes[DIRECTORY_ROOM..]
    }

    /// Directory and chunks, in the form in which they are compressed together. The draft is used
    /// up.
    fn payload(&mut self) -> &[u8] {
        let directory = pack_directory(&self.entries);
        let start = DIRECTORY_ROOM.saturating_sub(directory.len());
        self.bytes.splice(start..DIRECTORY_ROOM, directory);
        &self.bytes[start..]
    }

    /// Adds a chunk, whole or as a delta, and returns its slot.
    pub fn push(&mut self, chunk: StoredChunk<'_>) -> u32 {
        let (stored, bases) = match chunk {
            StoredChunk::Whole(bytes) => (bytes, &[][..]),
            StoredChunk::Delta { instructions, bases, .. } => (instructions, bases),
        };
        assert!(bases.len() <= BASES_MAX, "a delta keeps to its bound");
        let stored_bytes = u32::try_from(stored.len()).expect("a chunk is shorter than a block");
        let chunk_bytes = chunk.chunk_bytes();
        self.entries.push(DirectoryEntry { stored_bytes, chunk_bytes, bases: bases.to_vec() });
        self.bytes.extend_from_slice(stored);
        self.bases += bases.len();
        self.next_slot() - 1
    }

    /// The slot of the first chunk.
    pub fn first_slot(&self) -> u32 {
        self.first_slot
    }

    /// The chunk in a slot, if it was gathered.
    pub fn chunk(&self, slot: u32) -> Option<StoredChunk<'_>> {
        let place = slot.checked_sub(self.first_slot)? as usize;
        let (before, rest) = self.entries.split_at_checked(place)?;
        let entry = rest.first().filter(|entry| !entry.is_absent())?;
        let stored = before.iter().filter(|entry| !entry.is_absent());
        let start: usize = stored.map(|entry| entry.stored_bytes as usize).sum();
        Some(entry.stored_in(&self.data()[start..]))
    }

    /// Leaves out a slot whose chunk is no longer wanted.
    pub fn push_absent(&mut self) {
        self.entries.push(DirectoryEntry::ABSENT);
    }

    /// Bytes of the gathered chunks and of the names of their bases.
    pub fn bytes(&self) -> usize {
        self.data().len() + self.bases * BASE_BYTES
    }

    /// True if a sample has all bytes about equally often: such a block is stored without
    /// compression, or nearly so.
    pub fn is_flat(&self) -> bool {
        sample(self.data()).is_some_and(|sample| is_flat(&sample))
    }

    /// True if nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The slot that the next chunk gets.
    pub fn next_slot(&self) -> u32 {
        self.first_slot + self.chunk_count()
    }

    /// How many chunks were gathered.
    pub fn chunk_count(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("at most BLOCK_CHUNKS_MAX chunks")
    }

    /// True if a chunk that takes `stored_bytes` should go into another block, when a block is to
    /// hold about `target_bytes`.
    pub fn is_full_for(&self, stored_bytes: usize, target_bytes: usize) -> bool {
        let next = self.bytes() + stored_bytes;
        !self.is_empty() && (next > target_bytes || self.entries.len() >= BLOCK_CHUNKS_MAX)
    }
}

/// A block in the form that it has in an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBlock {
    /// What is in front of it.
    pub frame: BlockFrame,
    /// What is sealed with its payload.
    pub head: BlockHead,
    /// Frame, ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// Compresses and seals blocks. Each thread has its own.
pub struct BlockSealer {
    compressor: zstd::bulk::Compressor<'static>,
}

/// At the default level zstd remembers this many places of a block, as a power of two: twice its
/// own choice, which was made for shorter input.
const DEFAULT_TABLE_LOG: u32 = 18;

/// zstd's levels, as `--compression` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompressionLevel(i32);

impl CompressionLevel {
    /// The default.
    pub const DEFAULT: Self = Self(3);

    /// The levels between which `auto` moves.
    pub const LADDER: [Self; 8] =
        [Self(-1), Self(1), Self(2), Self(3), Self(5), Self(7), Self(9), Self(12)];

    /// A level from −7 (fastest) to 22 (smallest).
    pub fn new(level: i32) -> Option<Self> {
        (-7..=22).contains(&level).then_some(Self(level))
    }
}

impl BlockSealer {
    /// A sealer that compresses at `level`, and finds repetitions anywhere in a block.
    pub fn new(level: CompressionLevel) -> Self {
        let mut compressor = zstd::bulk::Compressor::default();
        compressor
            .set_parameter(CParameter::WindowLog(CHUNK_BYTES_MAX.ilog2()))
            .expect("zstd takes every window from 1 KiB to 1 GiB");
        let mut sealer = Self { compressor };
        sealer.set_level(level);
        sealer
    }

    /// Compresses the draft if that gains at least 3 %, and seals it.
    pub fn seal(&mut self, mut draft: BlockDraft, arena: ArenaId, key: &SealKey) -> SealedBlock {
        self.seal_within(Vec::new(), &mut draft, arena, key)
    }

    /// As [`BlockSealer::seal`], in the memory of a block that is no longer needed; only the memory
    /// of the draft is left.
    pub fn seal_within(
        &mut self,
        bytes: Vec<u8>,
        draft: &mut BlockDraft,
        arena: ArenaId,
        key: &SealKey,
    ) -> SealedBlock {
        self.pack_within(bytes, draft).seal(arena, key)
    }

    /// The draft's block before it is sealed, in the memory of one that is no longer needed; only the memory
    /// of the draft is left.
    pub(crate) fn pack_within(
        &mut self,
        mut bytes: Vec<u8>,
        draft: &mut BlockDraft,
    ) -> PackedBlock {
        assert!(!draft.is_empty(), "a block holds a chunk");
        let is_random = self.looks_random(draft.data());
        let (number, first_slot) = (draft.number, draft.first_slot);
        let chunk_count = draft.chunk_count();
        let payload = draft.payload();
        assert!(payload.len() <= BLOCK_RAW_BYTES_MAX, "a block keeps to its bound");
        bytes.clear();
        bytes.resize(PAYLOAD_START, 0);
        let codec = match !is_random && self.compress_behind(&mut bytes, payload) {
            true => Codec::Zstd,
            false => {
                bytes.truncate(PAYLOAD_START);
                bytes.reserve(payload.len() + TAG_BYTES);
                bytes.extend_from_slice(payload);
                Codec::Raw
            }
        };
        let raw_bytes = u32::try_from(payload.len()).expect("checked above");
        let head = BlockHead { first_slot, chunk_count, raw_bytes, codec };
        PackedBlock::of(number, head, bytes)
    }

    /// Compresses at another level from now on.
    pub fn set_level(&mut self, level: CompressionLevel) {
        // Zero lets zstd choose by the level.
        let table_log = if level == CompressionLevel::DEFAULT { DEFAULT_TABLE_LOG } else { 0 };
        self.compressor
            .set_compression_level(level.0)
            .and_then(|()| self.compressor.set_parameter(CParameter::HashLog(table_log)))
            .expect("zstd takes every level from -7 to 22, and tables of 2^6 to 2^30 places");
    }

    /// Appends the payload, compressed, and returns whether that was worth it.
    fn compress_behind(&mut self, bytes: &mut Vec<u8>, payload: &[u8]) -> bool {
        let start = bytes.len();
        bytes.reserve(zstd::zstd_safe::compress_bound(payload.len()) + TAG_BYTES);
        let mut behind = Cursor::new(bytes);
        behind.set_position(start as u64);
        let compressed_bytes = self
            .compressor
            .compress_to_buffer(payload, &mut behind)
            .expect("zstd compresses anything into a buffer of its own bound");
        compressed_bytes * 100 <= payload.len() * 97
    }
}

/// Bytes in front of a block's payload.
const PAYLOAD_START: usize = FRAME_BYTES + BLOCK_HEAD_BYTES;

/// A block that is not sealed yet.
#[derive(Debug)]
pub(crate) struct PackedBlock {
    pub frame: BlockFrame,
    pub head: BlockHead,
    /// Frame, head and payload.
    pub bytes: Vec<u8>,
}

impl PackedBlock {
    /// Fills in frame and head in front of the payload.
    fn of(number: u32, head: BlockHead, mut bytes: Vec<u8>) -> Self {
        let sealed_bytes = bytes.len() - FRAME_BYTES + TAG_BYTES;
        let sealed_bytes = u32::try_from(sealed_bytes).expect("a block keeps to its bound");
        let frame = BlockFrame { number, sealed_bytes };
        bytes[..FRAME_BYTES].copy_from_slice(&frame.pack());
        bytes[FRAME_BYTES..PAYLOAD_START].copy_from_slice(&head.pack());
        Self { frame, head, bytes }
    }

    /// The block at the start of `bytes`, opened and not decompressed.
    pub(crate) fn unsealed(
        bytes: &[u8],
        arena: ArenaId,
        key: &SealKey,
    ) -> Result<Self, BlockError> {
        let frame = BlockFrame::unpack(bytes)?;
        let damaged = BlockError::Damaged { number: frame.number };
        let end = FRAME_BYTES + frame.sealed_bytes as usize;
        let mut bytes = bytes.get(..end).ok_or(damaged)?.to_vec();
        let number = u64::from(frame.number);
        let opened = key.open(number, &frame.aad(arena), &mut bytes[FRAME_BYTES..]);
        let (head, _) = opened.map_err(|_| damaged)?.split_at(BLOCK_HEAD_BYTES);
        let head = BlockHead::unpack(head)?;
        bytes.truncate(end - TAG_BYTES);
        Ok(Self { frame, head, bytes })
    }

    /// Seals head and payload.
    pub(crate) fn seal(mut self, arena: ArenaId, key: &SealKey) -> SealedBlock {
        let (frame, head) = (self.frame, self.head);
        key.seal_from(FRAME_BYTES, u64::from(frame.number), &frame.aad(arena), &mut self.bytes);
        SealedBlock { frame, head, bytes: self.bytes }
    }
}

/// Bytes of the shortest block of padding.
pub(crate) const PADDING_BYTES_MIN: usize = PAYLOAD_START + TAG_BYTES;
/// Bytes of the longest block of padding.
pub(crate) const PADDING_BYTES_MAX: usize = FRAME_BYTES + SEALED_BYTES_MAX;

/// A block of padding that has this many bytes with its frame.
pub(crate) fn seal_padding(
    number: u32,
    block_bytes: usize,
    arena: ArenaId,
    key: &SealKey,
) -> SealedBlock {
    assert!(
        (PADDING_BYTES_MIN..=PADDING_BYTES_MAX).contains(&block_bytes),
        "it keeps to its bound"
    );
    let mut bytes = Vec::with_capacity(block_bytes);
    bytes.resize(block_bytes - TAG_BYTES, 0);
    PackedBlock::of(number, BlockHead::PADDING, bytes).seal(arena, key)
}

/// Parts of a block's data that are sampled before it is compressed.
const SAMPLES: usize = 8;
/// Bytes of each.
const SAMPLE_BYTES: usize = 2 << 10;

impl BlockSealer {
    /// True if a sample has all bytes about equally often and does not compress either: media,
    /// archives, ciphertext. Saves the time that zstd takes to find that out.
    fn looks_random(&mut self, data: &[u8]) -> bool {
        let Some(sample) = sample(data).filter(|sample| is_flat(sample)) else {
            return false;
        };
        let compressed = self.compressor.compress(&sample);
        compressed.is_ok_and(|compressed| compressed.len() * 100 > sample.len() * 99)
    }
}

/// Bytes from all over a block's data; `None` for a short one.
fn sample(data: &[u8]) -> Option<Vec<u8>> {
    if data.len() < 2 * SAMPLES * SAMPLE_BYTES {
        return None;
    }
    let parts = data.chunks_exact(data.len() / SAMPLES);
    Some(parts.flat_map(|part| &part[..SAMPLE_BYTES]).copied().collect())
}

/// True if all bytes occur about equally often.
fn is_flat(sample: &[u8]) -> bool {
    let mut counts = [0_u64; 256];
    sample.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    // How often two bytes of the sample are the same: in noise once in 256.
    let pairs: u64 = counts.iter().map(|count| count * count.saturating_sub(1)).sum();
    let length = sample.len() as u64;
    pairs * 256 * 10 <= length * (length - 1) * 11
}

/// A block's chunks, in memory.
#[derive(Debug, Clone)]
pub struct OpenBlock {
    head: BlockHead,
    /// The payload, perhaps with other bytes in front of it.
    payload: Arc<Recycled>,
    chunks: Vec<OpenChunk>,
}

#[derive(Debug, Clone)]
struct OpenChunk {
    /// Where its bytes begin in what holds the payload.
    start: usize,
    entry: DirectoryEntry,
}

/// A chunk in the form in which a block keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredChunk<'b> {
    /// Its bytes.
    Whole(&'b [u8]),
    /// How to make it from other chunks.
    Delta {
        /// The instructions.
        instructions: &'b [u8],
        /// What they copy from.
        bases: &'b [Location],
        /// Bytes of the chunk.
        chunk_bytes: u32,
    },
}

impl StoredChunk<'_> {
    /// Bytes of the chunk that it represents.
    pub fn chunk_bytes(&self) -> u32 {
        match self {
            Self::Whole(bytes) => {
                u32::try_from(bytes.len()).expect("a chunk is shorter than a block")
            }
            Self::Delta { chunk_bytes, .. } => *chunk_bytes,
        }
    }

    /// Bytes that it takes in a block, before compression.
    pub fn stored_bytes(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Delta { instructions, bases, .. } => {
                instructions.len() + bases.len() * BASE_BYTES
            }
        }
    }

    /// What it copies from; empty if it is whole.
    pub fn bases(&self) -> &[Location] {
        match self {
            Self::Whole(_) => &[],
            Self::Delta { bases, .. } => bases,
        }
    }
}

impl DirectoryEntry {
    /// The chunk, whose bytes begin here.
    fn stored_in<'b>(&'b self, bytes: &'b [u8]) -> StoredChunk<'b> {
        let stored = &bytes[..self.stored_bytes as usize];
        match self.bases.as_slice() {
            [] => StoredChunk::Whole(stored),
            bases => {
                let chunk_bytes = self.chunk_bytes;
                StoredChunk::Delta { instructions: stored, bases, chunk_bytes }
            }
        }
    }
}

impl SummarySlot {
    /// The slot of a stored chunk.
    pub fn of(fingerprint: Fingerprint, chunk: StoredChunk<'_>) -> Self {
        Self { fingerprint, chunk_bytes: chunk.chunk_bytes(), bases: chunk.bases().to_vec() }
    }

    /// Bytes that it takes in a summary, before compression.
    pub fn packed_bytes(&self) -> usize {
        SUMMARY_SLOT_BYTES + self.bases.len() * SUMMARY_BASE_BYTES
    }
}

impl OpenBlock {
    /// The chunk in a slot of the arena, if this block holds it.
    pub fn chunk(&self, slot: u32) -> Option<StoredChunk<'_>> {
        let place = slot.checked_sub(self.head.first_slot)? as usize;
        let chunk = self.chunks.get(place).filter(|chunk| !chunk.entry.is_absent())?;
        Some(chunk.entry.stored_in(&self.payload[chunk.start..]))
    }

    /// The head that was sealed with its payload.
    pub fn head(&self) -> BlockHead {
        self.head
    }

    /// The slots it holds.
    pub fn slots(&self) -> std::ops::Range<u32> {
        self.head.slots()
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let bases: usize = self.chunks.iter().map(|chunk| chunk.entry.bases.capacity()).sum();
        size_of::<Self>()
            + self.payload.capacity()
            + self.chunks.capacity() * size_of::<OpenChunk>()
            + bases * size_of::<Location>()
    }
}

/// Why a block cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Its bytes are not what was sealed.
    #[error("block {number} is damaged")]
    Damaged {
        /// The block's number.
        number: u32,
    },
    /// Its structure is wrong.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Opens the block at the start of `bytes`; its frame says how many of them it needs.
pub fn open_block(bytes: &[u8], arena: ArenaId, key: &SealKey) -> Result<OpenBlock, BlockError> {
    let frame = BlockFrame::unpack(bytes)?;
    let damaged = BlockError::Damaged { number: frame.number };
    let end = FRAME_BYTES + frame.sealed_bytes as usize;
    let mut sealed = Recycled::copy_of(bytes.get(FRAME_BYTES..end).ok_or(damaged)?);
    let opened = key.open(u64::from(frame.number), &frame.aad(arena), &mut sealed);
    let (head, kept) = opened.map_err(|_| damaged)?.split_at(BLOCK_HEAD_BYTES);
    let head = BlockHead::unpack(head)?;
    let raw_bytes = head.raw_bytes as usize;
    let (payload, start) = match head.codec {
        Codec::Raw => {
            let bytes = sealed.len() - TAG_BYTES;
            sealed.bytes_mut().truncate(bytes);
            (sealed, BLOCK_HEAD_BYTES)
        }
        Codec::Zstd => {
            let payload = decompress(kept, raw_bytes).map_err(|_| damaged)?;
            (payload, 0)
        }
        Codec::Padding => (Recycled::default(), 0),
    };
    if payload.len() - start != raw_bytes {
        return Err(damaged);
    }
    let (entries, directory_bytes) = unpack_directory(&payload[start..], head.chunk_count)?;
    let mut start = start + directory_bytes;
    let chunks = entries
        .into_iter()
        .map(|entry| {
            let chunk = OpenChunk { start, entry };
            start += chunk.entry.stored_bytes as usize;
            chunk
        })
        .collect();
    Ok(OpenBlock { head, payload: Arc::new(payload), chunks })
}

#[cfg(test)]
mod tests;
