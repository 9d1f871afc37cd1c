//! Building an arena: blocks in, one sealed object out.

use strongroom_base::keys::{authenticate, derive_object_key};
use strongroom_base::le::{LeReader, LeWrite};
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::seal::{AuthorityKey, AuthorityPublicKey, SealKey, TAG_BYTES};
use strongroom_base::{ArenaId, ArenaSecret, Entropy, Fingerprinter, NamingKeys, WriteKeys};

use crate::block::{
    OpenBlock, PADDING_BYTES_MAX, PADDING_BYTES_MIN, PackedBlock, SealedBlock, open_block,
    seal_padding,
};
use crate::blocks_key::{BlocksKey, KEY_INFO};
use crate::decompress::decompress;
use crate::envelope::format::{ObjectKind, Origin};
use crate::envelope::{self, HEADROOM, Identity, Redundancy};
use crate::error::ArenaError;
use crate::format::{
    ArenaHead, BLOCKS_ALIGNMENT, BLOCKS_ALIGNMENT_SMALL, BLOCKS_SALT_BYTES, BlockFrame, BlockHead,
    FRAME_BYTES, FormatError, HEAD_BYTES, SEALED_KEY_BYTES, SEALED_SUMMARY_EXTRA_BYTES,
    SMALL_BLOCKS_BYTES, SUMMARY_BYTES_MAX, SUMMARY_SALT_BYTES, SUMMARY_START, Summary,
    SummaryBlock,
};
use crate::mark::{SummaryBinding, is_marked, mark};
use crate::name::ArenaName;
use crate::recycled::Recycled;
use crate::slots::SummarySlot;

/// What an arena holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArenaContent {
    /// Chunks of files, disks, memory.
    Data,
    /// Trees and recipe nodes.
    Metadata,
}

impl ArenaContent {
    /// The key that names the chunks in such an arena.
    pub fn fingerprinter(self, naming: &NamingKeys) -> &Fingerprinter {
        match self {
            Self::Data => &naming.data,
            Self::Metadata => &naming.metadata,
        }
    }

    /// The kind of object that holds such an arena.
    pub fn object_kind(self) -> ObjectKind {
        match self {
            Self::Data => ObjectKind::DataArena,
            Self::Metadata => ObjectKind::MetadataArena,
        }
    }

    /// What the arena of this name holds. The first bit of the name decides, so that a listing
    /// separates the few arenas of metadata from the many of data without opening any.
    pub fn of(id: ArenaId) -> Self {
        if id.0[0] & 0x80 == 0 { Self::Data } else { Self::Metadata }
    }

    /// A new name of this kind.
    pub fn draw_id(self, entropy: &dyn Entropy) -> ArenaId {
        let mut id = ArenaId(strongroom_base::entropy::random_array(entropy));
        id.0[0] = match self {
            Self::Data => id.0[0] & 0x7f,
            Self::Metadata => id.0[0] | 0x80,
        };
        id
    }
}

/// What distinguishes one arena from another while it is still empty.
pub struct ArenaSeed {
    /// Its name, drawn at random.
    pub id: ArenaId,
    /// Seals its blocks, drawn at random.
    pub key: SealKey,
    sealed_key: [u8; SEALED_KEY_BYTES],
}

const SUMMARY_CONTEXT: &str = "strongroom v0 arena summary";

impl ArenaSeed {
    /// Draws a name and a key.
    pub fn draw(content: ArenaContent, keys: &WriteKeys, entropy: &dyn Entropy) -> Self {
        let id = content.draw_id(entropy);
        Self::with_key(id, strongroom_base::entropy::random_array(entropy), keys, entropy)
    }

    /// Draws a name. The key is derived from a secret, so that the holder of the secret can read
    /// the arena too.
    pub fn derive(
        content: ArenaContent,
        keys: &WriteKeys,
        secret: &ArenaSecret,
        entropy: &dyn Entropy,
    ) -> Self {
        let id = content.draw_id(entropy);
        Self::with_key(id, secret.arena_key(id), keys, entropy)
    }

    fn with_key(id: ArenaId, key: [u8; 32], keys: &WriteKeys, entropy: &dyn Entropy) -> Self {
        let sealed_key = keys
            .public_key
            .seal(KEY_INFO, &id.0, &key, entropy)
            .try_into()
            .expect("a sealed key of 32 bytes has 80");
        Self { id, key: SealKey::new(&key), sealed_key }
    }
}

/// An arena being built in memory, to be written once.
pub struct ArenaBuilder {
    id: ArenaId,
    sealed_key: [u8; SEALED_KEY_BYTES],
    salt: [u8; BLOCKS_SALT_BYTES],
    /// Marks a generation after the first.
    authority: Option<AuthorityKey>,
    /// Room for what comes before the blocks, then the blocks.
    memory: Vec<u8>,
    room_bytes: usize,
    summary: Summary,
}

/// How an arena is finished.
pub struct Finishing<'f> {
    /// How often the arena was rewritten.
    pub generation: u32,
    /// Which writer made it.
    pub origin: Origin,
    /// The writer's keys.
    pub keys: &'f WriteKeys,
    /// How much parity it gets.
    pub redundancy: Redundancy,
    /// The arena's key, if the arena is padded so that its body has one of few lengths ([`padme`]).
    pub padding: Option<&'f SealKey>,
}

/// For this many bytes of blocks, one byte is reserved for what comes before them. Chunks of 2 KiB,
/// as stored, need that much.
const ROOM_RATIO: usize = 64;

impl ArenaBuilder {
    /// An empty arena, in the memory of an object that is no longer needed, with room for blocks of
    /// `blocks_bytes` and for what comes before and after them. An arena that outgrows the room
    /// after the blocks is moved, and takes twice its memory meanwhile; if its summary outgrows the
    /// room before them, the blocks are moved.
    pub fn new(seed: &ArenaSeed, memory: Vec<u8>, blocks_bytes: usize) -> Self {
        let room_bytes = (blocks_bytes / ROOM_RATIO).next_multiple_of(BLOCKS_ALIGNMENT);
        let mut builder = Self::within(memory, room_bytes, seed.id, seed.sealed_key);
        builder.memory.reserve_exact(blocks_bytes + blocks_bytes / 16);
        builder
    }

    /// An arena that replaces older generations of itself, which the owner alone makes. It gets the
    /// owner's mark, if it is proved of which domain the arena is.
    pub(crate) fn rebuilding(
        id: ArenaId,
        head: &ArenaHead,
        authority: Option<&AuthorityKey>,
    ) -> Self {
        let builder = Self::within(Vec::new(), BLOCKS_ALIGNMENT, id, head.sealed_key);
        Self { salt: head.salt, authority: authority.cloned(), ..builder }
    }

    fn within(
        mut memory: Vec<u8>,
        room_bytes: usize,
        id: ArenaId,
        sealed_key: [u8; SEALED_KEY_BYTES],
    ) -> Self {
        memory.clear();
        memory.resize(room_bytes, 0);
        let (salt, summary) = ([0; BLOCKS_SALT_BYTES], Summary::default());
        Self { id, sealed_key, salt, authority: None, memory, room_bytes, summary }
    }

    /// Appends a block and its chunks. Blocks come in ascending order.
    pub fn push(&mut self, block: &SealedBlock, slots: impl IntoIterator<Item = SummarySlot>) {
        self.describe(block.frame, block.head, slots);
        self.memory.extend_from_slice(&block.bytes);
    }

    /// Appends a block that [`ArenaBuilder::seal_again`] seals with all others.
    pub(crate) fn push_unsealed(
        &mut self,
        block: &PackedBlock,
        slots: impl IntoIterator<Item = SummarySlot>,
    ) {
        self.describe(block.frame, block.head, slots);
        self.memory.extend_from_slice(&block.bytes);
        self.memory.extend_from_slice(&[0; TAG_BYTES]);
    }

    /// Seals the blocks of an arena that is rewritten, under a key and a salt that follow from all that is
    /// sealed: two programs that make the same of an arena make the same bytes, and if they do not, no
    /// message of one has key and number of a message of the other. Returns the key.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Damaged`] if the head does not hold the arena's key.
    pub(crate) fn seal_again(
        &mut self,
        key: &BlocksKey,
        generation: u32,
        is_padded: bool,
    ) -> Result<SealKey, ArenaError> {
        let summary = self.summary.pack();
        let mut hash = blake3::Hasher::new();
        // The length of padding, which is sealed too, follows from these.
        hash.update(&generation.to_le_bytes());
        hash.update(&[u8::from(is_padded), u8::from(self.authority.is_some())]);
        hash.update(&(summary.len() as u64).to_le_bytes());
        hash.update(&summary);
        hash.update(&self.memory[self.room_bytes..]);
        let (salt, key) = key.again(&hash.finalize())?;
        self.salt = salt;
        let mut rest = &mut self.memory[self.room_bytes..];
        for SummaryBlock { frame, .. } in &self.summary.blocks {
            let block = FRAME_BYTES + frame.sealed_bytes as usize;
            let block = rest.split_off_mut(..block).expect("each block was appended whole");
            key.seal_in_place(
                u64::from(frame.number),
                &frame.aad(self.id),
                &mut block[FRAME_BYTES..],
            );
        }
        Ok(key)
    }

    /// Takes a block and its chunks into the summary.
    fn describe(
        &mut self,
        frame: BlockFrame,
        head: BlockHead,
        slots: impl IntoIterator<Item = SummarySlot>,
    ) {
        let offset = u32::try_from(self.blocks_bytes()).expect("an arena is at most 4 GiB");
        let before = self.summary.slots.len();
        self.summary.slots.extend(slots);
        assert_eq!(
            self.summary.slots.len() - before,
            head.chunk_count as usize,
            "each chunk of a block has its slot"
        );
        assert!(
            self.summary.blocks.last().is_none_or(|last| last.frame.number < frame.number),
            "blocks come in order"
        );
        self.summary.blocks.push(SummaryBlock { frame, head, offset });
    }

    /// The slot after those of all blocks so far.
    pub fn next_slot(&self) -> u32 {
        self.summary.blocks.last().map_or(0, |block| block.head.slots().end)
    }

    /// The block with a slot, opened again; `None` if there is none, or it was sealed by another key.
    pub fn open_block_of(&self, slot: u32, key: &SealKey) -> Option<OpenBlock> {
        let blocks = &self.summary.blocks;
        let place = blocks.partition_point(|block| block.head.slots().end <= slot);
        let start = self.room_bytes + blocks.get(place)?.offset as usize;
        open_block(&self.memory[start..], self.id, key).ok()
    }

    /// Bytes of the blocks so far.
    pub fn blocks_bytes(&self) -> usize {
        self.memory.len() - self.room_bytes
    }

    /// Seals the summary, adds padding and parity, and returns the object and its summary.
    pub fn finish(mut self, finishing: Finishing<'_>) -> FinishedArena {
        let Finishing { generation, origin, keys, redundancy, padding } = finishing;
        let domain = keys.domain.id;
        reached_if(self.summary.blocks.len() > 1, Regime::ArenaOfBlocks);
        reached_if(generation > 0, Regime::ArenaRewritten);
        let binding = SummaryBinding { arena: self.id, generation, origin, domain };
        let alignment = alignment_of(self.blocks_bytes());
        let summary = self.summary.pack();
        let mark = self.authority.as_ref().map(|authority| mark(authority, &binding, &summary));
        let mark = mark.as_ref().map_or(&[][..], |mark| mark);
        let sealed = seal_summary(&summary, mark, &binding, &keys.domain.summary_key, alignment);
        if let Some(key) = padding {
            self.pad(sealed.len(), generation, key);
        }
        let head = ArenaHead {
            block_count: u32::try_from(self.summary.blocks.len()).expect("blocks have u32 numbers"),
            blocks_bytes: self.blocks_bytes() as u64,
            summary_bytes: sealed.len() as u64,
            sealed_key: self.sealed_key,
            domain,
            salt: self.salt,
        };
        let start = self.begin_object(SUMMARY_START + sealed.len());
        self.memory[start + HEADROOM..][..HEAD_BYTES].copy_from_slice(&head.pack());
        self.memory[start + SUMMARY_START..][..sealed.len()].copy_from_slice(&sealed);
        self.memory.extend_from_slice(&head.pack());
        let kind = ArenaContent::of(self.id).object_kind();
        let identity = Identity { kind, id: self.id.0, generation, origin };
        envelope::seal_from(start, &mut self.memory, identity, redundancy);
        let name = ArenaName { id: self.id, generation };
        FinishedArena { name, memory: self.memory, start, summary: self.summary }
    }

    /// Where the object begins, so that its blocks come after this many bytes. The blocks are moved
    /// if there is not enough room.
    fn begin_object(&mut self, front_bytes: usize) -> usize {
        if let Some(start) = self.room_bytes.checked_sub(front_bytes) {
            return start;
        }
        let blocks_bytes = self.blocks_bytes();
        let further = front_bytes - self.room_bytes;
        self.memory.resize(self.memory.len() + further, 0);
        self.memory.copy_within(self.room_bytes..self.room_bytes + blocks_bytes, front_bytes);
        self.room_bytes = front_bytes;
        0
    }

    /// Appends blocks of padding until the body has one of the lengths that [`padme`] gives.
    ///
    /// Their numbers are those of no block of another generation: two messages under one key and
    /// number would reveal each other.
    fn pad(&mut self, summary_bytes: usize, generation: u32, key: &SealKey) {
        let body_bytes = 2 * HEAD_BYTES + summary_bytes + self.blocks_bytes();
        let mut missing = padme(body_bytes + PADDING_BYTES_MIN) - body_bytes;
        let mut number = match generation {
            0 => self.summary.blocks.last().map_or(0, |last| last.frame.number + 1),
            rewritten => PADDING_FIRST | rewritten << PADDING_NUMBER_BITS,
        };
        while missing > 0 {
            let mut block_bytes = missing.min(PADDING_BYTES_MAX);
            if (1..PADDING_BYTES_MIN).contains(&(missing - block_bytes)) {
                block_bytes -= PADDING_BYTES_MIN;
            }
            let block = seal_padding(number, block_bytes, self.id, key);
            self.memory.extend_from_slice(&block.bytes);
            (missing, number) = (missing - block_bytes, number + 1);
        }
    }
}

/// Where the numbers of padding begin in an arena that was rewritten: above those of all blocks.
const PADDING_FIRST: u32 = 1 << 31;
/// How many numbers each generation has for its padding, as a power of two: more than the blocks of
/// padding that [`padme`] can ask for.
const PADDING_NUMBER_BITS: u32 = 8;

/// The smallest length that is at least this one and is one of few: a number whose binary digits
/// after the first log2(log2(length)) + 1 are zero. It is at most 12 % longer (Nikitin et al., PETS
/// 2019, "Reducing Metadata Leakage from Encrypted Files and Communication with PURBs", §4.4).
pub fn padme(length: usize) -> usize {
    let Some(digits) = length.checked_ilog2().filter(|digits| *digits > 0) else { return length };
    let kept = digits.ilog2() + 1;
    length.next_multiple_of(1 << (digits - kept.min(digits)))
}

/// An arena ready to be written.
pub struct FinishedArena {
    /// Its name.
    pub name: ArenaName,
    /// What it holds.
    pub summary: Summary,
    /// The object, perhaps with other bytes in front of it.
    memory: Vec<u8>,
    start: usize,
}

impl FinishedArena {
    /// Its bytes.
    pub fn object(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    /// The memory of an arena that is no longer needed.
    pub fn into_memory(self) -> Vec<u8> {
        self.memory
    }
}

impl SummaryBinding {
    /// The additional data of the seal.
    fn aad(&self, sealed_bytes: usize) -> Vec<u8> {
        let mut bytes = self.arena.0.to_vec();
        bytes.put_u32(self.generation);
        bytes.put(&self.origin.session.0);
        bytes.put_u64(self.origin.sequence);
        bytes.put(&self.domain.0);
        bytes.put_u64(sealed_bytes as u64);
        bytes
    }

    /// The key of one summary. The salt is a tag of all that is sealed and authenticated. So two
    /// programs that rewrite an arena at the same time, differently, never seal two messages under
    /// one key and number.
    fn key(&self, salt: [u8; SUMMARY_SALT_BYTES], summary_key: &[u8; 32]) -> [u8; 32] {
        let mut object = self.arena.0.to_vec();
        object.put_u32(self.generation);
        object.put(&salt);
        derive_object_key(SUMMARY_CONTEXT, summary_key, &object)
    }
}

/// The blocks of an arena begin at a multiple of this in the object, if they have this many bytes.
fn alignment_of(blocks_bytes: usize) -> usize {
    if blocks_bytes < SMALL_BLOCKS_BYTES { BLOCKS_ALIGNMENT_SMALL } else { BLOCKS_ALIGNMENT }
}

/// The sealed summary and its mark, padded so that the blocks after it begin at a multiple of
/// `alignment`.
fn seal_summary(
    plain: &[u8],
    mark: &[u8],
    binding: &SummaryBinding,
    summary_key: &[u8; 32],
    alignment: usize,
) -> Vec<u8> {
    let compressed = zstd::bulk::compress(plain, 3).expect("zstd compresses into its own bound");
    let length = |bytes: usize| u32::try_from(bytes).expect("a summary is at most 64 MiB");
    let least_bytes = SEALED_SUMMARY_EXTRA_BYTES + compressed.len() + mark.len();
    let sealed_bytes = (SUMMARY_START + least_bytes).next_multiple_of(alignment) - SUMMARY_START;
    let aad = binding.aad(sealed_bytes);
    let mut message = Vec::with_capacity(sealed_bytes);
    message.put_u32(length(plain.len()));
    message.put_u32(length(compressed.len()));
    message.put(&compressed);
    message.put(mark);
    message.resize(sealed_bytes - SUMMARY_SALT_BYTES - TAG_BYTES, 0);
    let tag = authenticate(summary_key, &[&aad[..], &message].concat());
    let salt = *tag.first_chunk().expect("a tag is longer than a salt");
    let mut sealed = Vec::with_capacity(sealed_bytes);
    sealed.put(&salt);
    sealed.append(&mut message);
    let key = SealKey::new(&binding.key(salt, summary_key));
    key.seal_from(SUMMARY_SALT_BYTES, 0, &aad, &mut sealed);
    sealed
}

/// The key of one sealed summary, from that of its domain.
pub(crate) fn key_of_summary(
    sealed: &[u8],
    binding: &SummaryBinding,
    summary_key: &[u8; 32],
) -> Result<[u8; 32], FormatError> {
    let salt = sealed.first_chunk().ok_or(FormatError::Damaged("summary"))?;
    Ok(binding.key(*salt, summary_key))
}

/// Opens what [`ArenaBuilder::finish`] sealed, with the key of this one summary; and says whether it
/// has the owner's mark.
pub(crate) fn open_summary(
    sealed: &[u8],
    binding: &SummaryBinding,
    key: &[u8; 32],
    authority: &AuthorityPublicKey,
) -> Result<(Summary, bool), FormatError> {
    let damaged = FormatError::Damaged("summary");
    let message = sealed.get(SUMMARY_SALT_BYTES..).ok_or(damaged)?;
    let (mut message, aad) = (Recycled::copy_of(message), binding.aad(sealed.len()));
    let opened = SealKey::new(key).open(0, &aad, &mut message);
    let mut fields = LeReader::new(opened.map_err(|_| damaged)?);
    let mut next = || fields.u32().map(|length| length as usize).map_err(|_| damaged);
    let (plain_bytes, compressed_bytes) = (next()?, next()?);
    let compressed = fields.take(compressed_bytes).map_err(|_| damaged)?;
    if plain_bytes > SUMMARY_BYTES_MAX {
        return Err(damaged);
    }
    let plain = decompress(compressed, plain_bytes).map_err(|_| damaged)?;
    let following = fields.take(fields.remaining()).map_err(|_| damaged)?;
    let is_marked = is_marked(authority, binding, &plain, following);
    Ok((Summary::unpack(&plain)?, is_marked))
}
