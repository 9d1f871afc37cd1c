//! The bytes of an envelope's header and signature table. The document: `docs/format/envelope.md`.

use strongroom_base::SnapshotId;
use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_galois::Signature;

/// First bytes of every object of a repository.
pub const MAGIC: [u8; 8] = *b"STRONGRM";
/// The format that this program writes.
pub const VERSION: u16 = 0;
/// Bytes of a header, and of the trailer, which is the header again.
pub const HEADER_BYTES: usize = 128;
/// Bytes of a proof that a newer program made an object.
pub const PROOF_BYTES: usize = 20;
/// Bytes of one signature in the table: two symbols of GF(2^16).
pub const SIGNATURE_BYTES: usize = 4;
/// Bytes of a table besides its signatures: its checksum.
pub const TABLE_EXTRA_BYTES: usize = 4;
/// Shards have at most 2^16 bytes: longer ones would outgrow a signature's certainty.
pub const SHARD_BYTES_LOG2_MAX: u8 = 16;
/// Shards have at least 2^6 bytes.
pub const SHARD_BYTES_LOG2_MIN: u8 = 6;
/// The positions that a code over GF(2^16) has.
pub const SHARDS_MAX: u64 = 1 << 16;

/// The required features that this program knows, a bit each: none yet.
pub const FEATURES_KNOWN: u32 = 0;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// The repository's configuration.
    Config,
    /// A key slot.
    KeySlot,
    /// An arena of data.
    DataArena,
    /// An arena of metadata: trees and recipe nodes.
    MetadataArena,
    /// A snapshot.
    Snapshot,
    /// A writer at work.
    Session,
    /// The end of a session that did not commit, in the place of its snapshot.
    Tombstone,
    /// A wish to forget a snapshot, or to keep it after all.
    Wish,
    /// What a collection may remove.
    Plan,
    /// What a collection removes.
    Verdict,
    /// The end of a collection.
    Done,
    /// The owner's confirmation of arenas of other domains.
    Vouchers,
    /// What the owner says of a snapshot: labels, a description, a hold.
    Remark,
    /// What the owner saw of other domains at one time.
    Look,
    /// What the owner says of the end of a domain.
    Ending,
    /// A kind that this program does not know, by its number: one that is reserved, or one that a
    /// newer program added. Never one of the numbers above.
    Unknown(u8),
}

impl ObjectKind {
    /// All kinds that this program knows, in the order of their numbers.
    pub const KNOWN: [Self; 15] = [
        Self::Config,
        Self::KeySlot,
        Self::DataArena,
        Self::MetadataArena,
        Self::Snapshot,
        Self::Session,
        Self::Tombstone,
        Self::Wish,
        Self::Plan,
        Self::Verdict,
        Self::Done,
        Self::Vouchers,
        Self::Remark,
        Self::Look,
        Self::Ending,
    ];

    /// What it is called in messages.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Config => "configuration",
            Self::KeySlot => "key slot",
            Self::DataArena => "data arena",
            Self::MetadataArena => "metadata arena",
            Self::Snapshot => "snapshot",
            Self::Session => "session",
            Self::Tombstone => "tombstone",
            Self::Wish => "wish",
            Self::Plan => "plan",
            Self::Verdict => "verdict",
            Self::Done => "end of a collection",
            Self::Vouchers => "vouchers",
            Self::Remark => "remark",
            Self::Look => "look",
            Self::Ending => "end of a domain",
            Self::Unknown(_) => "thing of an unknown kind",
        }
    }

    /// The number in a header.
    pub fn number(self) -> u8 {
        match self {
            Self::Config => 1,
            Self::KeySlot => 2,
            Self::DataArena => 3,
            Self::MetadataArena => 4,
            Self::Snapshot => 5,
            Self::Session => 6,
            Self::Tombstone => 7,
            Self::Wish => 8,
            Self::Plan => 9,
            Self::Verdict => 10,
            Self::Done => 11,
            Self::Vouchers => 14,
            Self::Remark => 17,
            Self::Look => 18,
            Self::Ending => 19,
            Self::Unknown(number) => number,
        }
    }

    /// The kind of a number.
    pub fn from_number(number: u8) -> Self {
        let known = Self::KNOWN.into_iter().find(|kind| kind.number() == number);
        known.unwrap_or(Self::Unknown(number))
    }
}

/// Which writer made an object. Any program can write a header, so decisions use only the sealed
/// copies of these fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The writer's session; zero for an object that belongs to none.
    pub session: SnapshotId,
    /// One more than the greatest sequence that the writer knew of (a Lamport clock).
    pub sequence: u64,
}

impl Origin {
    /// For an object that belongs to no session: the configuration and key slots.
    pub const NONE: Self = Self { session: SnapshotId::ZERO, sequence: 0 };
}

/// A header: the first and the last bytes of every object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What is inside.
    pub kind: ObjectKind,
    /// How often the object was rewritten with other content: 0 for the first writing.
    pub generation: u32,
    /// Which one: the object's identifier, zero-padded. It reveals swapped files.
    pub id: [u8; 16],
    /// Which writer made it.
    pub origin: Origin,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Shards have 2^this bytes; the last one of the body may be short.
    pub shard_bytes_log2: u8,
    /// Parity shards that follow; at most as many as data shards, so that the body bounds what a
    /// header can claim.
    pub parity_shards: u32,
    /// What a reader must know to understand the body, a bit each. Envelopes are checked and
    /// repaired without that.
    pub required_features: u32,
    /// BLAKE3-256 of the body.
    pub body_hash: [u8; 32],
    /// The proof that a newer program made the object (`envelope/newness.rs`); zero, as this program
    /// writes them. A repair keeps what it was.
    pub proof: [u8; PROOF_BYTES],
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// They do not begin as one.
    #[error("it is not an object of a Strongroom repository")]
    NotAnObject,
    /// Written by a newer program.
    #[error(
        "it has format version {version}; this program knows up to {VERSION}: update Strongroom"
    )]
    NewerVersion {
        /// The version it has.
        version: u16,
    },
    /// The checksum is wrong, or the fields contradict each other.
    #[error("its header is damaged")]
    Damaged,
}

impl From<LengthError> for HeaderError {
    fn from(_: LengthError) -> Self {
        Self::Damaged
    }
}

impl Header {
    /// The header's bytes.
    pub fn pack(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put(&MAGIC);
        bytes.put_u16(VERSION);
        bytes.put_u8(self.kind.number());
        bytes.put_u8(self.shard_bytes_log2);
        bytes.put_u32(self.generation);
        bytes.put(&self.id);
        bytes.put(&self.origin.session.0);
        bytes.put_u64(self.origin.sequence);
        bytes.put_u64(self.body_bytes);
        bytes.put_u32(self.parity_shards);
        bytes.put_u32(self.required_features);
        bytes.put(&self.body_hash);
        bytes.put(&self.proof);
        bytes.put_u32(crc32c::crc32c(&bytes));
        bytes.try_into().expect("the fields of a header add up to its size")
    }

    /// The header in `bytes`, checksum first.
    pub fn unpack(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut fields = LeReader::new(bytes.get(..HEADER_BYTES).ok_or(HeaderError::NotAnObject)?);
        if fields.array()? != MAGIC {
            return Err(HeaderError::NotAnObject);
        }
        if crc32c::crc32c(&bytes[..HEADER_BYTES - 4]).to_le_bytes()
            != bytes[HEADER_BYTES - 4..HEADER_BYTES]
        {
            return Err(HeaderError::Damaged);
        }
        let version = fields.u16()?;
        if version > VERSION {
            return Err(HeaderError::NewerVersion { version });
        }
        let kind = ObjectKind::from_number(fields.u8()?);
        let shard_bytes_log2 = fields.u8()?;
        let generation = fields.u32()?;
        let id = fields.array()?;
        let session = SnapshotId(fields.array()?);
        let origin = Origin { session, sequence: fields.u64()? };
        let body_bytes = fields.u64()?;
        let parity_shards = fields.u32()?;
        let required_features = fields.u32()?;
        let body_hash = fields.array()?;
        let proof = fields.array()?;
        fields.u32()?;
        fields.finish()?;
        let header = Self {
            kind,
            generation,
            id,
            origin,
            body_bytes,
            shard_bytes_log2,
            parity_shards,
            required_features,
            body_hash,
            proof,
        };
        if header.is_consistent() { Ok(header) } else { Err(HeaderError::Damaged) }
    }

    /// Whether a newer program made the object: its kind, or a feature that a reader must know, is
    /// unknown to this one. This program does not understand its body, but that is not damage.
    pub fn is_unknown(&self) -> bool {
        let known = ObjectKind::KNOWN.contains(&self.kind);
        !known || self.required_features & !FEATURES_KNOWN != 0
    }

    fn is_consistent(&self) -> bool {
        (SHARD_BYTES_LOG2_MIN..=SHARD_BYTES_LOG2_MAX).contains(&self.shard_bytes_log2)
            && self.body_bytes > 0
            && u64::from(self.parity_shards) <= self.body_bytes.div_ceil(1 << self.shard_bytes_log2)
            && self.body_bytes.div_ceil(1 << self.shard_bytes_log2)
                + u64::from(self.parity_shards).next_power_of_two()
                <= SHARDS_MAX
    }

    /// Bytes of a shard.
    pub fn shard_bytes(&self) -> usize {
        1 << self.shard_bytes_log2
    }

    /// Shards that the body is cut into.
    pub fn data_shards(&self) -> usize {
        self.body_bytes().div_ceil(self.shard_bytes())
    }

    /// Shards in all, parity too.
    pub fn shards(&self) -> usize {
        self.data_shards() + self.parity_shards as usize
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        usize::try_from(self.body_bytes).expect("at most 2^16 shards of 2^16 bytes")
    }

    /// Where the parts of the object are.
    pub fn layout(&self) -> Layout {
        let table_bytes = self.shards() * SIGNATURE_BYTES + TABLE_EXTRA_BYTES;
        let parity_bytes = self.parity_shards as usize * self.shard_bytes();
        let first_table = HEADER_BYTES + self.body_bytes();
        let parity = first_table + table_bytes;
        let second_table = parity + parity_bytes;
        let trailer = second_table + table_bytes;
        let object_bytes = trailer + HEADER_BYTES;
        Layout {
            table_bytes,
            parity_bytes,
            first_table,
            parity,
            second_table,
            trailer,
            object_bytes,
        }
    }
}

/// Offsets and sizes of an object's parts, in bytes. The body begins at [`HEADER_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each of the two tables.
    pub table_bytes: usize,
    /// Bytes of all parity shards.
    pub parity_bytes: usize,
    /// Where the first signature table begins; the body ends here.
    pub first_table: usize,
    /// Where the parity begins.
    pub parity: usize,
    /// Where the second signature table begins.
    pub second_table: usize,
    /// Where the trailer begins.
    pub trailer: usize,
    /// Bytes of the whole object.
    pub object_bytes: usize,
}

/// A signature table's bytes.
pub fn pack_table(signatures: &[Signature<2>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(signatures.len() * SIGNATURE_BYTES + TABLE_EXTRA_BYTES);
    for signature in signatures {
        bytes.put(&signature.to_le_bytes());
    }
    bytes.put_u32(crc32c::crc32c(&bytes));
    bytes
}

/// The signatures in a table's bytes; none if the checksum is wrong.
pub fn unpack_table(bytes: &[u8]) -> Option<Vec<Signature<2>>> {
    let (signatures, checksum) = bytes.split_last_chunk::<TABLE_EXTRA_BYTES>()?;
    if crc32c::crc32c(signatures).to_le_bytes() != *checksum {
        return None;
    }
    let signatures = signatures.as_chunks::<SIGNATURE_BYTES>().0;
    Some(signatures.iter().map(|bytes| Signature::from_le_bytes(*bytes)).collect())
}

const _: () =
    assert!(HEADER_BYTES == 8 + 2 + 1 + 1 + 4 + 16 + 16 + 8 + 8 + 4 + 4 + 32 + PROOF_BYTES + 4);
