//! Building an arena: blocks in, one sealed object out.

use strongroom_base::keys::{authenticate, derive_object_key};
use strongroom_base::le::{LeReader, LeWrite};
use strongroom_base::seal::SealKey;
use strongroom_base::{ArenaId, Entropy, WriteKeys};

use crate::block::SealedBlock;
use crate::envelope::format::{ObjectKind, Origin};
use crate::envelope::{self, HEADROOM, Identity, Redundancy};
use crate::format::{
    ArenaHead, HEAD_BYTES, SEALED_KEY_BYTES, SUMMARY_BYTES_MAX, SUMMARY_SALT_BYTES, Summary,
    SummaryBlock, SummarySlot,
};

/// What an arena holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArenaContent {
    /// Chunks of files, disks, memory.
    Data,
    /// Trees and recipe nodes.
    Metadata,
}

impl ArenaContent {
    /// The kind of object that holds such an arena.
    pub fn object_kind(self) -> ObjectKind {
        match self {
            Self::Data => ObjectKind::DataArena,
            Self::Metadata => ObjectKind::MetadataArena,
        }
    }

    /// What the arena of this name holds: the first bit of the name tells, so that a listing
    /// parts the few arenas of metadata from the many of data without opening any.
    pub fn of(id: ArenaId) -> Self {
        if id.0[0] & 0x80 == 0 { Self::Data } else { Self::Metadata }
    }

    fn draw_id(self, entropy: &dyn Entropy) -> ArenaId {
        let mut id = ArenaId(strongroom_base::entropy::random_array(entropy));
        id.0[0] = match self {
            Self::Data => id.0[0] & 0x7f,
            Self::Metadata => id.0[0] | 0x80,
        };
        id
    }
}

/// What distinguishes one arena from another before anything is in it.
pub struct ArenaSeed {
    /// Its name, drawn at random.
    pub id: ArenaId,
    /// Seals its blocks, drawn at random.
    pub key: SealKey,
    sealed_key: [u8; SEALED_KEY_BYTES],
}

/// What arena keys are sealed as.
pub(crate) const KEY_INFO: &str = "strongroom v0 arena key";
const SUMMARY_CONTEXT: &str = "strongroom v0 arena summary";

impl ArenaSeed {
    /// Draws a name and a key.
    pub fn draw(content: ArenaContent, keys: &WriteKeys, entropy: &dyn Entropy) -> Self {
        let id = content.draw_id(entropy);
        let key: [u8; 32] = strongroom_base::entropy::random_array(entropy);
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
    /// Headroom of the envelope, room for the head, then the blocks.
    object: Vec<u8>,
    summary: Summary,
}

/// Room for what stands before the blocks.
const BLOCKS_START: usize = HEADROOM + HEAD_BYTES;

impl ArenaBuilder {
    /// An empty arena, in the memory of an object that is no longer needed, with room for blocks
    /// of so many bytes and what comes behind them: an arena that outgrows its room is moved, and
    /// takes twice its memory meanwhile.
    pub fn new(seed: &ArenaSeed, memory: Vec<u8>, blocks_bytes: usize) -> Self {
        let mut builder = Self::within(memory, seed.id, seed.sealed_key);
        builder.object.reserve_exact(blocks_bytes + blocks_bytes / 16);
        builder
    }

    /// An arena that takes the place of an older generation of itself.
    pub(crate) fn rebuilding(id: ArenaId, sealed_key: [u8; SEALED_KEY_BYTES]) -> Self {
        Self::within(Vec::new(), id, sealed_key)
    }

    fn within(mut object: Vec<u8>, id: ArenaId, sealed_key: [u8; SEALED_KEY_BYTES]) -> Self {
        object.clear();
        object.resize(BLOCKS_START, 0);
        Self { id, sealed_key, object, summary: Summary::default() }
    }

    /// Appends a block and what it holds. Blocks come in ascending order.
    pub fn push(&mut self, block: &SealedBlock, slots: impl IntoIterator<Item = SummarySlot>) {
        let offset = u32::try_from(self.blocks_bytes()).expect("an arena is at most 4 GiB");
        let before = self.summary.slots.len();
        self.summary.slots.extend(slots);
        assert_eq!(
            self.summary.slots.len() - before,
            block.frame.chunk_count as usize,
            "each chunk of a block has its slot"
        );
        assert!(
            self.summary.blocks.last().is_none_or(|last| last.frame.number < block.frame.number),
            "blocks come in order"
        );
        self.summary.blocks.push(SummaryBlock { frame: block.frame, offset });
        self.object.extend_from_slice(&block.bytes);
    }

    /// Bytes of the blocks so far.
    pub fn blocks_bytes(&self) -> usize {
        self.object.len() - BLOCKS_START
    }

    /// Seals the summary, adds parity, and gives the object and its summary.
    pub fn finish(
        mut self,
        generation: u32,
        origin: Origin,
        keys: &WriteKeys,
        redundancy: Redundancy,
    ) -> FinishedArena {
        let sealed = seal_summary(&self.summary, self.id, generation, &keys.summary_key);
        let head = ArenaHead {
            block_count: u32::try_from(self.summary.blocks.len()).expect("blocks have u32 numbers"),
            blocks_bytes: self.blocks_bytes() as u64,
            summary_bytes: sealed.len() as u64,
            sealed_key: self.sealed_key,
        };
        self.object.extend_from_slice(&sealed);
        self.object.extend_from_slice(&head.pack());
        self.object[HEADROOM..BLOCKS_START].copy_from_slice(&head.pack());
        let kind = ArenaContent::of(self.id).object_kind();
        let identity = Identity { kind, id: self.id.0, generation, origin };
        let object = envelope::seal(self.object, identity, redundancy);
        FinishedArena { id: self.id, object, summary: self.summary }
    }
}

/// An arena ready to be written.
pub struct FinishedArena {
    /// Its name.
    pub id: ArenaId,
    /// Its bytes.
    pub object: Vec<u8>,
    /// What it holds.
    pub summary: Summary,
}

/// The key of one summary. The salt is a tag of what is sealed, so that two who rewrite an arena
/// at the same time, differently, never seal two messages under one key and number.
fn summary_key(
    arena: ArenaId,
    generation: u32,
    salt: [u8; SUMMARY_SALT_BYTES],
    key: &[u8; 32],
) -> SealKey {
    let mut object = arena.0.to_vec();
    object.put_u32(generation);
    object.put(&salt);
    SealKey::new(&derive_object_key(SUMMARY_CONTEXT, key, &object))
}

fn seal_summary(summary: &Summary, arena: ArenaId, generation: u32, key: &[u8; 32]) -> Vec<u8> {
    let plain = summary.pack();
    let length = (plain.len() as u64).to_le_bytes();
    let mut sealed = zstd::bulk::compress(&plain, 3).expect("zstd compresses into its own bound");
    let tag = authenticate(key, &sealed);
    let salt = *tag.first_chunk().expect("a tag is longer than a salt");
    summary_key(arena, generation, salt, key).seal(0, &length, &mut sealed);
    let mut bytes = length.to_vec();
    bytes.put(&salt);
    bytes.append(&mut sealed);
    bytes
}

/// Opens what [`ArenaBuilder::finish`] sealed.
pub(crate) fn open_summary(
    sealed: &[u8],
    arena: ArenaId,
    generation: u32,
    key: &[u8; 32],
) -> Option<Summary> {
    let mut fields = LeReader::new(sealed);
    let length: [u8; 8] = fields.array().ok()?;
    let salt = fields.array().ok()?;
    let mut sealed = fields.take(fields.remaining()).ok()?.to_vec();
    let opened = summary_key(arena, generation, salt, key).open(0, &length, &mut sealed).ok()?;
    let length = usize::try_from(u64::from_le_bytes(length)).ok()?;
    if length > SUMMARY_BYTES_MAX {
        return None;
    }
    let plain = zstd::bulk::decompress(opened, length).ok()?;
    Summary::unpack(&plain).ok()
}
