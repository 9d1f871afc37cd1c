//! The bytes of an arena's body: head, block frames, chunk directories, summary.
//! The document: `docs/format/arena.md`.
//!
//! ```text
//! head | sealed summary | block … block | head again
//! block          = frame | sealed( head | payload, perhaps compressed )
//! payload        = directory | the chunks' bytes
//! sealed summary = salt | sealed( lengths | compressed summary | zeros )
//! ```

use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_base::seal::TAG_BYTES;
use strongroom_base::{ArenaId, DomainId, Fingerprint, Location};

use crate::envelope::HEADROOM;
use crate::slots::Slots;

/// First bytes of an arena's head.
pub const HEAD_MAGIC: [u8; 8] = *b"ARENA HD";
/// Bytes of an arena's head.
pub const HEAD_BYTES: usize = 144;
/// The cipher suite this program writes: AES-256-GCM blocks, HPKE with X25519 for the arena key.
pub const SUITE: u8 = 1;
/// Bytes of a sealed arena key.
pub const SEALED_KEY_BYTES: usize = 80;
/// Bytes of the salt of blocks that were sealed again.
pub const BLOCKS_SALT_BYTES: usize = 12;

/// Where the sealed summary begins in the object.
pub const SUMMARY_START: usize = HEADROOM + HEAD_BYTES;
/// A writer makes the blocks of an arena begin at a multiple of this in the object, so that the
/// length of the summary reveals less …
pub const BLOCKS_ALIGNMENT: usize = 4096;
/// … and those of a small arena at a multiple of this: more would cost too much in a small backup.
pub const BLOCKS_ALIGNMENT_SMALL: usize = 512;
/// An arena with fewer bytes of blocks is small.
pub const SMALL_BLOCKS_BYTES: usize = 256 << 10;
/// Blocks and the rest of an arena have at most this many bytes together.
pub const ARENA_BYTES_MAX: u64 = u32::MAX as u64;

/// First bytes of a block's frame.
pub const FRAME_MAGIC: [u8; 4] = *b"BLK.";
/// Bytes of a block's frame, which is in the clear.
pub const FRAME_BYTES: usize = 16;
/// The part of a frame that is authenticated with the block.
pub const FRAME_AUTHENTICATED_BYTES: usize = 12;
/// Bytes of a block's head, which is sealed with its payload.
pub const BLOCK_HEAD_BYTES: usize = 16;
/// A chunk has at most this many bytes.
pub const CHUNK_BYTES_MAX: usize = 1 << 22;
/// A block has at most this many bytes before compression: the longest chunk and its directory.
pub const BLOCK_RAW_BYTES_MAX: usize = CHUNK_BYTES_MAX + (1 << 12);
/// Bytes that follow the longest frame.
pub const SEALED_BYTES_MAX: usize = BLOCK_HEAD_BYTES + BLOCK_RAW_BYTES_MAX + TAG_BYTES;
/// A block has at most this many chunks.
pub const BLOCK_CHUNKS_MAX: usize = 1 << 14;

/// Bytes of a chunk's entry in a block's directory, without its bases.
pub const DIRECTORY_ENTRY_BYTES: usize = 12;
/// Bytes of a base's location.
pub const BASE_BYTES: usize = 20;
/// A delta has at most this many bases.
pub const BASES_MAX: usize = 16;

/// First bytes of a summary.
pub const SUMMARY_MAGIC: [u8; 4] = *b"SUM.";
/// Bytes of a summary before its tables.
pub const SUMMARY_HEAD_BYTES: usize = 20;
/// Bytes of a block's entry in a summary.
pub const SUMMARY_BLOCK_BYTES: usize = 28;
/// Bytes of a slot's entry in a summary.
pub const SUMMARY_SLOT_BYTES: usize = 40;
/// Bytes of a base's entry in a summary.
pub const SUMMARY_BASE_BYTES: usize = 24;
/// Bytes of a sealed summary besides the compressed one and the zeros: salt, lengths and tag.
pub const SEALED_SUMMARY_EXTRA_BYTES: usize =
    SUMMARY_SALT_BYTES + SUMMARY_LENGTHS_BYTES + TAG_BYTES;
/// Bytes of a summary's salt.
pub const SUMMARY_SALT_BYTES: usize = 16;
/// Bytes of the two lengths that are sealed with a summary.
pub const SUMMARY_LENGTHS_BYTES: usize = 8;
/// A summary has at most this many bytes; a length beyond it is damage.
pub const SUMMARY_BYTES_MAX: usize = 64 << 20;

/// Bytes that are not the structure they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They contradict themselves.
    #[error("damaged {0}")]
    Damaged(&'static str),
    /// They use an algorithm that this program does not know: a newer one made them.
    #[error("unknown {0}: a newer program made it")]
    Unknown(&'static str),
}

fn wrong(what: &'static str) -> impl Fn(LengthError) -> FormatError {
    move |_| FormatError::Damaged(what)
}

/// How a block's payload is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed: compression gained nothing.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// No chunks, only bytes that make the arena longer.
    Padding = 2,
}

impl Codec {
    fn from_number(number: u8) -> Result<Self, FormatError> {
        match number {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            2 => Ok(Self::Padding),
            _ => Err(FormatError::Unknown("codec")),
        }
    }
}

/// The first and the last bytes of an arena's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaHead {
    /// How many blocks there are, without those of padding.
    pub block_count: u32,
    /// Bytes of all blocks with their frames, and of padding.
    pub blocks_bytes: u64,
    /// Bytes of the sealed summary. The blocks begin after it.
    pub summary_bytes: u64,
    /// The arena's key, sealed to the repository's public key.
    pub sealed_key: [u8; SEALED_KEY_BYTES],
    /// Whose summary key opens the summary.
    pub domain: DomainId,
    /// Zero as long as the blocks are sealed under the arena's key itself. A rewriting that takes
    /// chunks out of blocks draws it, and seals the blocks that are left under another key.
    pub salt: [u8; BLOCKS_SALT_BYTES],
}

impl ArenaHead {
    /// The head's bytes.
    pub fn pack(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.put(&HEAD_MAGIC);
        bytes.put_u8(SUITE);
        bytes.put(&[0; 3]);
        bytes.put_u32(self.block_count);
        bytes.put_u64(self.blocks_bytes);
        bytes.put_u64(self.summary_bytes);
        bytes.put(&self.sealed_key);
        bytes.put(&self.domain.0);
        bytes.put(&self.salt);
        bytes.put_u32(crc32c::crc32c(&bytes));
        bytes.try_into().expect("the fields of a head add up to its size")
    }

    /// The head in `bytes`, checksum first.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("arena head");
        let bytes = bytes.get(..HEAD_BYTES).ok_or(FormatError::Damaged("arena head"))?;
        check_crc(bytes).ok_or(FormatError::Damaged("arena head"))?;
        let mut fields = LeReader::new(bytes);
        if fields.array().map_err(&damaged)? != HEAD_MAGIC {
            return Err(FormatError::Damaged("arena head"));
        }
        if fields.u8().map_err(&damaged)? != SUITE {
            return Err(FormatError::Unknown("cipher suite"));
        }
        fields.take(3).map_err(&damaged)?;
        let head = Self {
            block_count: fields.u32().map_err(&damaged)?,
            blocks_bytes: fields.u64().map_err(&damaged)?,
            summary_bytes: fields.u64().map_err(&damaged)?,
            sealed_key: fields.array().map_err(&damaged)?,
            domain: DomainId(fields.array().map_err(&damaged)?),
            salt: fields.array().map_err(&damaged)?,
        };
        fields.take(4).map_err(&damaged)?;
        fields.finish().map_err(&damaged)?;
        if head.is_consistent() { Ok(head) } else { Err(FormatError::Damaged("arena head")) }
    }

    fn is_consistent(&self) -> bool {
        (SEALED_SUMMARY_EXTRA_BYTES as u64..=SUMMARY_BYTES_MAX as u64).contains(&self.summary_bytes)
            && self.blocks_bytes <= ARENA_BYTES_MAX
    }

    /// Where the blocks begin in the object.
    pub fn blocks_start(&self) -> u64 {
        SUMMARY_START as u64 + self.summary_bytes
    }

    /// Bytes of the body of an arena with this head.
    pub fn body_bytes(&self) -> u64 {
        2 * HEAD_BYTES as u64 + self.summary_bytes + self.blocks_bytes
    }
}

/// What is in front of each block, in the clear: enough to find and check the block alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFrame {
    /// The block's number in its arena, and its nonce. Numbers ascend; rewriting leaves gaps.
    pub number: u32,
    /// Bytes that follow the frame: ciphertext and tag.
    pub sealed_bytes: u32,
}

impl BlockFrame {
    /// The frame's bytes.
    pub fn pack(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = Vec::with_capacity(FRAME_BYTES);
        bytes.put(&FRAME_MAGIC);
        bytes.put_u32(self.number);
        bytes.put_u32(self.sealed_bytes);
        bytes.put_u32(crc32c::crc32c(&bytes));
        bytes.try_into().expect("the fields of a frame add up to its size")
    }

    /// The frame in `bytes`, checksum first.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("block frame");
        let bytes = bytes.get(..FRAME_BYTES).ok_or(FormatError::Damaged("block frame"))?;
        check_crc(bytes).ok_or(FormatError::Damaged("block frame"))?;
        let mut fields = LeReader::new(bytes);
        if fields.array().map_err(&damaged)? != FRAME_MAGIC {
            return Err(FormatError::Damaged("block frame"));
        }
        let number = fields.u32().map_err(&damaged)?;
        let frame = Self { number, sealed_bytes: fields.u32().map_err(&damaged)? };
        fields.take(4).map_err(&damaged)?;
        fields.finish().map_err(&damaged)?;
        if frame.is_consistent() { Ok(frame) } else { Err(FormatError::Damaged("block frame")) }
    }

    fn is_consistent(&self) -> bool {
        (BLOCK_HEAD_BYTES + TAG_BYTES..=SEALED_BYTES_MAX).contains(&(self.sealed_bytes as usize))
    }

    /// What is authenticated with the block: the frame, and the arena to which it belongs.
    pub fn aad(&self, arena: ArenaId) -> [u8; FRAME_AUTHENTICATED_BYTES + ArenaId::BYTES] {
        let mut aad = [0; FRAME_AUTHENTICATED_BYTES + ArenaId::BYTES];
        aad[..FRAME_AUTHENTICATED_BYTES].copy_from_slice(&self.pack()[..FRAME_AUTHENTICATED_BYTES]);
        aad[FRAME_AUTHENTICATED_BYTES..].copy_from_slice(&arena.0);
        aad
    }
}

/// What is sealed in front of a block's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// The slot of its first chunk.
    pub first_slot: u32,
    /// How many chunks it holds: none in a block of padding, otherwise at least one.
    pub chunk_count: u32,
    /// Bytes of the payload before compression.
    pub raw_bytes: u32,
    /// How the payload is kept.
    pub codec: Codec,
}

impl BlockHead {
    /// The head of a block of padding.
    pub const PADDING: Self =
        Self { first_slot: 0, chunk_count: 0, raw_bytes: 0, codec: Codec::Padding };

    /// The head's bytes.
    pub fn pack(&self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(BLOCK_HEAD_BYTES);
        bytes.put_u32(self.first_slot);
        bytes.put_u32(self.chunk_count);
        bytes.put_u32(self.raw_bytes);
        bytes.put_u8(self.codec as u8);
        bytes.put(&[0; 3]);
        bytes.try_into().expect("the fields of a block's head add up to its size")
    }

    /// The head in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("block head");
        let mut fields = LeReader::new(bytes);
        let head = Self {
            first_slot: fields.u32().map_err(&damaged)?,
            chunk_count: fields.u32().map_err(&damaged)?,
            raw_bytes: fields.u32().map_err(&damaged)?,
            codec: Codec::from_number(fields.u8().map_err(&damaged)?)?,
        };
        fields.take(3).map_err(&damaged)?;
        fields.finish().map_err(&damaged)?;
        if head.is_consistent() { Ok(head) } else { Err(FormatError::Damaged("block head")) }
    }

    fn is_consistent(&self) -> bool {
        let has_chunks = (1..=BLOCK_CHUNKS_MAX as u32).contains(&self.chunk_count)
            && self.raw_bytes as usize <= BLOCK_RAW_BYTES_MAX
            && self.first_slot.checked_add(self.chunk_count).is_some();
        if self.codec == Codec::Padding { *self == Self::PADDING } else { has_chunks }
    }

    /// The slots of the block's chunks.
    pub fn slots(&self) -> std::ops::Range<u32> {
        self.first_slot..self.first_slot + self.chunk_count
    }
}

/// The length, in a directory, of a chunk that a rewriting left out.
const ABSENT_BYTES: u32 = u32::MAX;

/// How one chunk is kept in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Bytes it takes in the payload.
    pub stored_bytes: u32,
    /// Bytes of the chunk itself.
    pub chunk_bytes: u32,
    /// Empty for a chunk stored whole; for a delta, what it copies from.
    pub bases: Vec<Location>,
}

impl DirectoryEntry {
    /// A slot whose chunk a rewriting left out.
    pub const ABSENT: Self = Self { stored_bytes: 0, chunk_bytes: ABSENT_BYTES, bases: Vec::new() };

    /// Whether a rewriting left the chunk out.
    pub fn is_absent(&self) -> bool {
        *self == Self::ABSENT
    }
}

/// A directory's bytes.
pub fn pack_directory(entries: &[DirectoryEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * DIRECTORY_ENTRY_BYTES);
    for entry in entries {
        bytes.put_u32(entry.stored_bytes);
        bytes.put_u32(entry.chunk_bytes);
        bytes.put_u32(u32::try_from(entry.bases.len()).expect("at most BASES_MAX bases"));
        for base in &entry.bases {
            bytes.put(&base.arena.0);
            bytes.put_u32(base.slot);
        }
    }
    bytes
}

/// The directory of `chunk_count` chunks at the start of a payload, and its length.
pub fn unpack_directory(
    payload: &[u8],
    chunk_count: u32,
) -> Result<(Vec<DirectoryEntry>, usize), FormatError> {
    let damaged = wrong("chunk directory");
    let mut fields = LeReader::new(payload);
    if payload.len() / DIRECTORY_ENTRY_BYTES < chunk_count as usize {
        return Err(FormatError::Damaged("chunk directory"));
    }
    let mut entries = Vec::with_capacity(chunk_count as usize);
    let mut stored_sum = 0;
    for _ in 0..chunk_count {
        let stored_bytes = fields.u32().map_err(&damaged)?;
        let chunk_bytes = fields.u32().map_err(&damaged)?;
        let base_count = fields.u32().map_err(&damaged)? as usize;
        let fits = match base_count {
            0 => stored_bytes == chunk_bytes || (stored_bytes, chunk_bytes) == (0, ABSENT_BYTES),
            _ => base_count <= BASES_MAX && chunk_bytes as usize <= CHUNK_BYTES_MAX,
        };
        if !fits {
            return Err(FormatError::Damaged("chunk directory"));
        }
        let mut bases = Vec::with_capacity(base_count);
        for _ in 0..base_count {
            let arena = ArenaId(fields.array().map_err(&damaged)?);
            bases.push(Location { arena, slot: fields.u32().map_err(&damaged)? });
        }
        stored_sum += stored_bytes as usize;
        entries.push(DirectoryEntry { stored_bytes, chunk_bytes, bases });
    }
    if fields.remaining() != stored_sum {
        return Err(FormatError::Damaged("chunk directory"));
    }
    Ok((entries, payload.len() - stored_sum))
}

/// What an arena holds and where, in stream order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The blocks, by ascending number.
    pub blocks: Vec<SummaryBlock>,
    /// The chunks of all blocks, block after block.
    pub slots: Slots,
}

/// A block as described in a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryBlock {
    /// What its frame says.
    pub frame: BlockFrame,
    /// What its sealed head says.
    pub head: BlockHead,
    /// Where its frame begins, counted from the beginning of the blocks.
    pub offset: u32,
}

impl SummaryBlock {
    /// The part of its stored bytes that chunks of it take: as large as their share in the bytes of
    /// all its chunks.
    pub fn stored_share(&self, chunk_bytes: u64, all_bytes: u64) -> u64 {
        let share = u128::from(chunk_bytes) * u128::from(self.frame.sealed_bytes);
        let share = share / u128::from(all_bytes.max(1));
        u64::try_from(share).expect("a share of a block is not longer than the block")
    }

    /// Where the block ends, counted from the beginning of the blocks.
    fn end(&self) -> u64 {
        u64::from(self.offset) + FRAME_BYTES as u64 + u64::from(self.frame.sealed_bytes)
    }
}

impl Summary {
    /// The summary's bytes, before compression and sealing.
    pub fn pack(&self) -> Vec<u8> {
        let base_count = self.slots.base_count();
        let count = |length: usize| u32::try_from(length).expect("an arena is at most 4 GiB");
        let mut bytes = Vec::with_capacity(
            SUMMARY_HEAD_BYTES
                + self.blocks.len() * SUMMARY_BLOCK_BYTES
                + self.slots.len() * SUMMARY_SLOT_BYTES
                + base_count * SUMMARY_BASE_BYTES,
        );
        bytes.put(&SUMMARY_MAGIC);
        bytes.put_u32(0);
        bytes.put_u32(count(self.blocks.len()));
        bytes.put_u32(count(self.slots.len()));
        bytes.put_u32(count(base_count));
        for block in &self.blocks {
            bytes.put_u32(block.frame.number);
            bytes.put_u32(block.head.first_slot);
            bytes.put_u32(block.head.chunk_count);
            bytes.put_u32(block.head.raw_bytes);
            bytes.put_u32(block.frame.sealed_bytes);
            bytes.put_u32(block.offset);
            bytes.put_u32(block.head.codec as u32);
        }
        // Column by column: fingerprints do not compress, the rest does.
        self.slots.iter().for_each(|slot| bytes.put(&slot.fingerprint.0));
        self.slots.iter().for_each(|slot| bytes.put_u32(slot.chunk_bytes));
        self.slots.iter().for_each(|slot| bytes.put_u32(count(slot.bases.len())));
        for (place, base) in self.slots.owned_bases() {
            bytes.put_u32(place);
            bytes.put(&base.arena.0);
            bytes.put_u32(base.slot);
        }
        bytes
    }

    /// The summary in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("summary");
        let mut fields = LeReader::new(bytes);
        if fields.array().map_err(&damaged)? != SUMMARY_MAGIC {
            return Err(FormatError::Damaged("summary"));
        }
        fields.u32().map_err(&damaged)?;
        let block_count = fields.u32().map_err(&damaged)? as usize;
        let slot_count = fields.u32().map_err(&damaged)? as usize;
        let base_count = fields.u32().map_err(&damaged)? as usize;
        let expected = (block_count as u128) * SUMMARY_BLOCK_BYTES as u128
            + (slot_count as u128) * SUMMARY_SLOT_BYTES as u128
            + (base_count as u128) * SUMMARY_BASE_BYTES as u128;
        if fields.remaining() as u128 != expected {
            return Err(FormatError::Damaged("summary"));
        }
        let blocks = unpack_summary_blocks(&mut fields, block_count)?;
        let slots = unpack_summary_slots(&mut fields, slot_count, base_count)?;
        fields.finish().map_err(&damaged)?;
        let summary = Self { blocks, slots };
        if summary.is_consistent() { Ok(summary) } else { Err(FormatError::Damaged("summary")) }
    }

    fn is_consistent(&self) -> bool {
        let chunks: u64 = self.blocks.iter().map(|block| u64::from(block.head.chunk_count)).sum();
        let ascending = |pair: &[SummaryBlock]| {
            pair[0].frame.number < pair[1].frame.number
                && pair[0].head.slots().end <= pair[1].head.first_slot
                && pair[0].end() <= u64::from(pair[1].offset)
        };
        let is_consistent = |block: &SummaryBlock| {
            block.frame.is_consistent()
                && block.head.is_consistent()
                && block.head.codec != Codec::Padding
        };
        // The first generation had all slots up to the last, and a summary of them.
        let ends_in_bounds = |block: &SummaryBlock| {
            block.head.slots().end as usize <= SUMMARY_BYTES_MAX / SUMMARY_SLOT_BYTES
        };
        // Each block first: only then are their sums within bounds.
        self.blocks.iter().all(is_consistent)
            && self.blocks.last().is_none_or(ends_in_bounds)
            && self.blocks.windows(2).all(ascending)
            && chunks == self.slots.len() as u64
    }
}

fn unpack_summary_blocks(
    fields: &mut LeReader<'_>,
    count: usize,
) -> Result<Vec<SummaryBlock>, FormatError> {
    let damaged = wrong("summary");
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        let mut next = || fields.u32().map_err(&damaged);
        let [number, first_slot, chunk_count] = [next()?, next()?, next()?];
        let [raw_bytes, sealed_bytes, offset] = [next()?, next()?, next()?];
        let codec = u8::try_from(next()?).map_err(|_| FormatError::Damaged("summary"))?;
        let codec = Codec::from_number(codec)?;
        let frame = BlockFrame { number, sealed_bytes };
        let head = BlockHead { first_slot, chunk_count, raw_bytes, codec };
        blocks.push(SummaryBlock { frame, head, offset });
    }
    Ok(blocks)
}

fn unpack_summary_slots(
    fields: &mut LeReader<'_>,
    slot_count: usize,
    base_count: usize,
) -> Result<Slots, FormatError> {
    let damaged = wrong("summary");
    let mut column = |width| fields.take(slot_count * width).map(LeReader::new).map_err(&damaged);
    let (mut fingerprints, mut lengths) = (column(Fingerprint::BYTES)?, column(4)?);
    let mut base_counts = column(4)?;
    let mut slots = Slots::with_capacity(slot_count, base_count);
    for _ in 0..slot_count {
        let fingerprint = Fingerprint(fingerprints.array().map_err(&damaged)?);
        slots.push_whole(fingerprint, lengths.u32().map_err(&damaged)?);
    }
    for _ in 0..base_count {
        let place = fields.u32().map_err(&damaged)?;
        let arena = ArenaId(fields.array().map_err(&damaged)?);
        let base = Location { arena, slot: fields.u32().map_err(&damaged)? };
        if !slots.push_base(place, base) {
            return Err(FormatError::Damaged("summary"));
        }
    }
    for slot in slots.iter() {
        if base_counts.u32().map_err(&damaged)? as usize != slot.bases.len() {
            return Err(FormatError::Damaged("summary"));
        }
    }
    Ok(slots)
}

fn check_crc(bytes: &[u8]) -> Option<()> {
    let (covered, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(covered).to_le_bytes() == *checksum).then_some(())
}

const _: () = {
    assert!(HEAD_BYTES == 8 + 1 + 3 + 4 + 8 + 8 + SEALED_KEY_BYTES + DomainId::BYTES + 12 + 4);
    assert!(FRAME_BYTES == FRAME_AUTHENTICATED_BYTES + 4);
    assert!(BLOCK_HEAD_BYTES == 3 * 4 + 1 + 3);
    assert!(SUMMARY_SLOT_BYTES == Fingerprint::BYTES + 4 + 4);
    assert!(SUMMARY_BASE_BYTES == 4 + BASE_BYTES);
};
