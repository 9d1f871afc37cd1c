//! The bytes of an arena's body: head, block frames, chunk directories, summary.
//! The document: `docs/format/arena.md`.
//!
//! ```text
//! head | block … block | summary | head again
//! block   = frame | sealed payload
//! payload = directory | the chunks' bytes
//! ```

use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_base::{ArenaId, Fingerprint};

/// First bytes of an arena's head.
pub const HEAD_MAGIC: [u8; 8] = *b"ARENA HD";
/// Bytes of an arena's head.
pub const HEAD_BYTES: usize = 128;
/// The cipher suite this program writes: AES-256-GCM blocks, HPKE with X25519 for the arena key.
pub const SUITE: u8 = 1;
/// Bytes of a sealed arena key.
pub const SEALED_KEY_BYTES: usize = 80;

/// First bytes of a block's frame.
pub const FRAME_MAGIC: [u8; 4] = *b"BLK.";
/// Bytes of a block's frame.
pub const FRAME_BYTES: usize = 32;
/// The part of a frame that is authenticated with the block.
pub const FRAME_AUTHENTICATED_BYTES: usize = 28;
/// A block holds at most so many bytes before compression.
pub const BLOCK_RAW_BYTES_MAX: usize = 4 << 20;
/// A block holds at most so many chunks.
pub const BLOCK_CHUNKS_MAX: usize = 1 << 14;

/// Bytes of a chunk's entry in a block's directory, without its bases.
pub const DIRECTORY_ENTRY_BYTES: usize = 12;
/// Bytes of a base's location.
pub const BASE_BYTES: usize = 20;
/// A delta has at most so many bases.
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
/// Bytes of what stands before a sealed summary: its length in the clear, and its salt.
pub const SEALED_SUMMARY_HEAD_BYTES: usize = 8 + SUMMARY_SALT_BYTES;
/// Bytes of a summary's salt.
pub const SUMMARY_SALT_BYTES: usize = 16;
/// A summary is at most so long; a length beyond it is damage.
pub const SUMMARY_BYTES_MAX: usize = 64 << 20;

/// Bytes that are not the structure they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged {0}")]
pub struct FormatError(pub &'static str);

fn wrong(what: &'static str) -> impl Fn(LengthError) -> FormatError {
    move |_| FormatError(what)
}

/// How a block's payload is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As it is: compression gained nothing.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
}

impl Codec {
    fn from_number(number: u8) -> Result<Self, FormatError> {
        match number {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            _ => Err(FormatError("codec")),
        }
    }
}

/// What stands at both ends of an arena's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaHead {
    /// How many blocks follow.
    pub block_count: u32,
    /// Bytes of all blocks with their frames.
    pub blocks_bytes: u64,
    /// Bytes of the sealed summary.
    pub summary_bytes: u64,
    /// The arena's key, sealed to the repository's public key.
    pub sealed_key: [u8; SEALED_KEY_BYTES],
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
        bytes.put(&[0; 12]);
        bytes.put_u32(crc32c::crc32c(&bytes));
        bytes.try_into().expect("the fields of a head add up to its size")
    }

    /// The head in `bytes`, checksum first.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("arena head");
        let bytes = bytes.get(..HEAD_BYTES).ok_or(FormatError("arena head"))?;
        check_crc(bytes).ok_or(FormatError("arena head"))?;
        let mut fields = LeReader::new(bytes);
        if fields.array().map_err(&damaged)? != HEAD_MAGIC {
            return Err(FormatError("arena head"));
        }
        if fields.u8().map_err(&damaged)? != SUITE {
            return Err(FormatError("arena head: its cipher suite is not known to this program"));
        }
        fields.take(3).map_err(&damaged)?;
        let head = Self {
            block_count: fields.u32().map_err(&damaged)?,
            blocks_bytes: fields.u64().map_err(&damaged)?,
            summary_bytes: fields.u64().map_err(&damaged)?,
            sealed_key: fields.array().map_err(&damaged)?,
        };
        fields.take(16).map_err(&damaged)?;
        fields.finish().map_err(&damaged)?;
        if head.summary_bytes > SUMMARY_BYTES_MAX as u64 || head.blocks_bytes > u64::from(u32::MAX)
        {
            return Err(FormatError("arena head"));
        }
        Ok(head)
    }

    /// Where the sealed summary begins in the body.
    pub fn summary_offset(&self) -> u64 {
        HEAD_BYTES as u64 + self.blocks_bytes
    }
}

/// What stands in front of each block, in the clear: enough to find and check it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFrame {
    /// The block's number in its arena, and its nonce. Numbers ascend; rewriting leaves gaps.
    pub number: u32,
    /// The slot of its first chunk.
    pub first_slot: u32,
    /// How many chunks it holds.
    pub chunk_count: u32,
    /// Bytes of the payload before compression.
    pub raw_bytes: u32,
    /// Bytes that follow the frame: ciphertext and tag.
    pub sealed_bytes: u32,
    /// How the payload is kept.
    pub codec: Codec,
}

impl BlockFrame {
    /// The frame's bytes.
    pub fn pack(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = Vec::with_capacity(FRAME_BYTES);
        bytes.put(&FRAME_MAGIC);
        bytes.put_u32(self.number);
        bytes.put_u32(self.first_slot);
        bytes.put_u32(self.chunk_count);
        bytes.put_u32(self.raw_bytes);
        bytes.put_u32(self.sealed_bytes);
        bytes.put_u8(self.codec as u8);
        bytes.put(&[0; 3]);
        bytes.put_u32(crc32c::crc32c(&bytes));
        bytes.try_into().expect("the fields of a frame add up to its size")
    }

    /// The frame in `bytes`, checksum first.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("block frame");
        let bytes = bytes.get(..FRAME_BYTES).ok_or(FormatError("block frame"))?;
        check_crc(bytes).ok_or(FormatError("block frame"))?;
        let mut fields = LeReader::new(bytes);
        if fields.array().map_err(&damaged)? != FRAME_MAGIC {
            return Err(FormatError("block frame"));
        }
        let frame = Self {
            number: fields.u32().map_err(&damaged)?,
            first_slot: fields.u32().map_err(&damaged)?,
            chunk_count: fields.u32().map_err(&damaged)?,
            raw_bytes: fields.u32().map_err(&damaged)?,
            sealed_bytes: fields.u32().map_err(&damaged)?,
            codec: Codec::from_number(fields.u8().map_err(&damaged)?)?,
        };
        // Authenticated as zeros, so other bytes would go unnoticed by who reads the frame.
        let reserved: [u8; 3] = fields.array().map_err(&damaged)?;
        fields.take(4).map_err(&damaged)?;
        fields.finish().map_err(&damaged)?;
        if reserved != [0; 3] {
            return Err(FormatError("block frame"));
        }
        if frame.is_consistent() { Ok(frame) } else { Err(FormatError("block frame")) }
    }

    fn is_consistent(&self) -> bool {
        self.raw_bytes as usize <= BLOCK_RAW_BYTES_MAX
            && self.sealed_bytes as usize <= BLOCK_RAW_BYTES_MAX + 16
            && self.sealed_bytes >= 16
            && (1..=BLOCK_CHUNKS_MAX as u32).contains(&self.chunk_count)
            && self.first_slot.checked_add(self.chunk_count).is_some()
    }

    /// What is authenticated with the block: the frame, and which arena it belongs to.
    pub fn aad(&self, arena: ArenaId) -> [u8; FRAME_AUTHENTICATED_BYTES + ArenaId::BYTES] {
        let mut aad = [0; FRAME_AUTHENTICATED_BYTES + ArenaId::BYTES];
        aad[..FRAME_AUTHENTICATED_BYTES].copy_from_slice(&self.pack()[..FRAME_AUTHENTICATED_BYTES]);
        aad[FRAME_AUTHENTICATED_BYTES..].copy_from_slice(&arena.0);
        aad
    }
}

/// Where a delta's base is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseLocation {
    /// The arena.
    pub arena: ArenaId,
    /// The slot in it. Its chunk is stored whole: deltas are never more than one step deep.
    pub slot: u32,
}

/// How one chunk stands in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Bytes it takes in the payload.
    pub stored_bytes: u32,
    /// Bytes of the chunk itself.
    pub chunk_bytes: u32,
    /// None for a chunk stored whole; for a delta, what it copies from.
    pub bases: Vec<BaseLocation>,
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
        return Err(FormatError("chunk directory"));
    }
    let mut entries = Vec::with_capacity(chunk_count as usize);
    let mut stored_sum = 0;
    for _ in 0..chunk_count {
        let stored_bytes = fields.u32().map_err(&damaged)?;
        let chunk_bytes = fields.u32().map_err(&damaged)?;
        let base_count = fields.u32().map_err(&damaged)? as usize;
        let fits = match base_count {
            0 => stored_bytes == chunk_bytes,
            _ => base_count <= BASES_MAX && chunk_bytes as usize <= BLOCK_RAW_BYTES_MAX,
        };
        if !fits {
            return Err(FormatError("chunk directory"));
        }
        let mut bases = Vec::with_capacity(base_count);
        for _ in 0..base_count {
            let arena = ArenaId(fields.array().map_err(&damaged)?);
            bases.push(BaseLocation { arena, slot: fields.u32().map_err(&damaged)? });
        }
        stored_sum += stored_bytes as usize;
        entries.push(DirectoryEntry { stored_bytes, chunk_bytes, bases });
    }
    if fields.remaining() != stored_sum {
        return Err(FormatError("chunk directory"));
    }
    Ok((entries, payload.len() - stored_sum))
}

/// What an arena holds and where, in stream order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The blocks, by ascending number.
    pub blocks: Vec<SummaryBlock>,
    /// The chunks of all blocks, block after block.
    pub slots: Vec<SummarySlot>,
}

/// A block, as a summary tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryBlock {
    /// What stands in its frame.
    pub frame: BlockFrame,
    /// Where its frame begins, counted from the end of the arena's head.
    pub offset: u32,
}

impl SummaryBlock {
    /// Where the block ends, counted from the end of the arena's head.
    fn end(&self) -> u64 {
        u64::from(self.offset) + FRAME_BYTES as u64 + u64::from(self.frame.sealed_bytes)
    }
}

/// A chunk, as a summary tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarySlot {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk itself.
    pub chunk_bytes: u32,
    /// What it is a delta of; none where it is stored whole.
    pub bases: Vec<BaseLocation>,
}

impl Summary {
    /// The summary's bytes, before compression and sealing.
    pub fn pack(&self) -> Vec<u8> {
        let base_count: usize = self.slots.iter().map(|slot| slot.bases.len()).sum();
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
            bytes.put_u32(block.frame.first_slot);
            bytes.put_u32(block.frame.chunk_count);
            bytes.put_u32(block.frame.raw_bytes);
            bytes.put_u32(block.frame.sealed_bytes);
            bytes.put_u32(block.offset);
            bytes.put_u32(block.frame.codec as u32);
        }
        // Column by column: fingerprints do not compress, the rest does.
        for slot in &self.slots {
            bytes.put(&slot.fingerprint.0);
        }
        for slot in &self.slots {
            bytes.put_u32(slot.chunk_bytes);
        }
        for slot in &self.slots {
            bytes.put_u32(count(slot.bases.len()));
        }
        for (place, slot) in self.slots.iter().enumerate() {
            for base in &slot.bases {
                bytes.put_u32(count(place));
                bytes.put(&base.arena.0);
                bytes.put_u32(base.slot);
            }
        }
        bytes
    }

    /// The summary in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = wrong("summary");
        let mut fields = LeReader::new(bytes);
        if fields.array().map_err(&damaged)? != SUMMARY_MAGIC {
            return Err(FormatError("summary"));
        }
        fields.u32().map_err(&damaged)?;
        let block_count = fields.u32().map_err(&damaged)? as usize;
        let slot_count = fields.u32().map_err(&damaged)? as usize;
        let base_count = fields.u32().map_err(&damaged)? as usize;
        let expected = (block_count as u128) * SUMMARY_BLOCK_BYTES as u128
            + (slot_count as u128) * SUMMARY_SLOT_BYTES as u128
            + (base_count as u128) * SUMMARY_BASE_BYTES as u128;
        if fields.remaining() as u128 != expected {
            return Err(FormatError("summary"));
        }
        let blocks = unpack_summary_blocks(&mut fields, block_count)?;
        let slots = unpack_summary_slots(&mut fields, slot_count, base_count)?;
        fields.finish().map_err(&damaged)?;
        let summary = Self { blocks, slots };
        if summary.is_consistent() { Ok(summary) } else { Err(FormatError("summary")) }
    }

    fn is_consistent(&self) -> bool {
        let chunks: u64 = self.blocks.iter().map(|block| u64::from(block.frame.chunk_count)).sum();
        let ascending = |pair: &[SummaryBlock]| {
            let [before, after] = [&pair[0].frame, &pair[1].frame];
            before.number < after.number
                && before.first_slot + before.chunk_count <= after.first_slot
                && pair[0].end() <= u64::from(pair[1].offset)
        };
        // The frames first: their sums are within bounds only if they are.
        self.blocks.iter().all(|block| block.frame.is_consistent())
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
        let codec = u8::try_from(next()?).map_err(|_| FormatError("summary"))?;
        let codec = Codec::from_number(codec)?;
        let frame = BlockFrame { number, first_slot, chunk_count, raw_bytes, sealed_bytes, codec };
        blocks.push(SummaryBlock { frame, offset });
    }
    Ok(blocks)
}

fn unpack_summary_slots(
    fields: &mut LeReader<'_>,
    slot_count: usize,
    base_count: usize,
) -> Result<Vec<SummarySlot>, FormatError> {
    let damaged = wrong("summary");
    let mut slots = Vec::with_capacity(slot_count);
    for _ in 0..slot_count {
        let fingerprint = Fingerprint(fields.array().map_err(&damaged)?);
        slots.push(SummarySlot { fingerprint, chunk_bytes: 0, bases: Vec::new() });
    }
    for slot in &mut slots {
        slot.chunk_bytes = fields.u32().map_err(&damaged)?;
    }
    let mut base_counts = Vec::with_capacity(slot_count);
    for _ in 0..slot_count {
        base_counts.push(fields.u32().map_err(&damaged)? as usize);
    }
    for _ in 0..base_count {
        let place = fields.u32().map_err(&damaged)? as usize;
        let arena = ArenaId(fields.array().map_err(&damaged)?);
        let base = BaseLocation { arena, slot: fields.u32().map_err(&damaged)? };
        slots.get_mut(place).ok_or(FormatError("summary"))?.bases.push(base);
    }
    let counted = slots.iter().zip(&base_counts).all(|(slot, count)| slot.bases.len() == *count);
    if counted { Ok(slots) } else { Err(FormatError("summary")) }
}

fn check_crc(bytes: &[u8]) -> Option<()> {
    let (covered, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(covered).to_le_bytes() == *checksum).then_some(())
}

const _: () = {
    assert!(HEAD_BYTES == 8 + 1 + 3 + 4 + 8 + 8 + SEALED_KEY_BYTES + 12 + 4);
    assert!(FRAME_BYTES == 4 + 5 * 4 + 1 + 3 + 4);
    assert!(SUMMARY_SLOT_BYTES == Fingerprint::BYTES + 4 + 4);
    assert!(SUMMARY_BASE_BYTES == 4 + BASE_BYTES);
};
