//! The repository's configuration: what is decided once, at `init`, and readable without a key.
//! The document: `docs/format/repository.md`.
//!
//! A program older than the one that made the repository still reads it: the signature covers
//! fields that it does not know, and a chunker or naming that it does not know is reported only
//! when it is needed to store something.

use minicbor::{Decoder, Encoder};
use strongroom_base::keys::TAG_BYTES;
use strongroom_base::seal::{AuthorityKey, AuthorityPublicKey, SIGNATURE_BYTES};
use strongroom_base::{NamingKeys, RepositoryId, Timestamp};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::{decode_map, expect_array};
use strongroom_chunk::{AlignedChunker, Chunker, Limits};

/// What is decided once, at `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The repository's name for ever.
    pub id: RepositoryId,
    /// When it was made.
    pub created: Timestamp,
    /// How streams are cut, by their kind, in the order of [`StreamKind::ALL`].
    pub chunkers: [StreamChunker; 3],
    /// An arena is closed once its blocks have this many bytes.
    pub arena_bytes: u32,
    /// Parity shards per thousand data shards of an arena.
    pub parity_per_mille: u32,
    /// How chunks are named, and with it the form of recipes: [`NAMING_FINGERPRINT`] or
    /// [`NAMING_LOCATION`].
    pub naming: u8,
    /// Whether arenas are padded, so that their lengths reveal less.
    pub padding: bool,
    /// How names are taken: [`STORE_EXCLUSIVE`] or [`STORE_AGREED`].
    pub store: u8,
}

/// What a stream holds, for the purpose of chunking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamKind {
    /// Files, and what is read from standard input.
    Files = 0,
    /// Disk images.
    Images = 1,
    /// Memory.
    Memory = 2,
}

/// How streams of one kind are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamChunker {
    /// Which rule: [`Chunker::ALGORITHM`], [`AlignedChunker::ALGORITHM`], or an unknown one.
    pub algorithm: u16,
    /// The least and the greatest length of a chunk, in bytes.
    pub limits: Limits,
}

/// An arena is closed at this size by default: small enough to hold four in the memory of a client
/// (two being built, two being written).
pub const ARENA_BYTES_DEFAULT: u32 = 16 << 20;
/// Arenas of a repository are at most this large.
pub const ARENA_BYTES_MAX: u32 = 1 << 30;
/// Chunks of a repository are at most this long, for any configuration.
pub const CHUNK_BYTES_MAX: usize = 1 << 22;
/// Compare-by-hash: recipes hold fingerprints and locations.
pub const NAMING_FINGERPRINT: u8 = 0;
/// Compare-by-value: recipes hold locations alone, and what has the tag of a chunk is read and
/// compared with it.
pub const NAMING_LOCATION: u8 = 1;
/// The place creates objects exclusively.
pub const STORE_EXCLUSIVE: u8 = 1;
/// It does not: creators agree by notes ([`AgreedBackend`](strongroom_backend::AgreedBackend)).
pub const STORE_AGREED: u8 = 2;

/// The context of the signature.
const SIGNATURE_CONTEXT: &str = "strongroom v0 configuration";

mod key {
    pub const ID: u64 = 0;
    pub const CREATED: u64 = 1;
    pub const CHUNKERS: u64 = 2;
    pub const ARENA_BYTES: u64 = 3;
    pub const PARITY: u64 = 4;
    pub const NAMING: u64 = 5;
    pub const PADDING: u64 = 6;
    pub const STORE: u64 = 7;
}

impl StreamKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Files, Self::Images, Self::Memory];
}

impl Config {
    /// The chunkers of new repositories, with these bounds for the chunks of files.
    pub fn chunkers(files: Limits) -> [StreamChunker; 3] {
        let aligned = StreamChunker {
            algorithm: AlignedChunker::ALGORITHM,
            limits: Limits::new(32 << 10, 96 << 10).expect("multiples of a page, in order"),
        };
        [StreamChunker { algorithm: Chunker::ALGORITHM, limits: files }, aligned, aligned]
    }

    /// The keys that name chunks, as this repository uses them.
    pub fn naming_keys(&self, keys: NamingKeys) -> NamingKeys {
        if self.naming == NAMING_LOCATION { keys.by_value(TAG_BYTES) } else { keys }
    }

    /// How streams of a kind are cut.
    pub fn chunker(&self, kind: StreamKind) -> StreamChunker {
        self.chunkers[kind as usize]
    }

    /// The configuration's bytes, signed by the owner.
    pub fn pack(&self, authority: &AuthorityKey) -> Vec<u8> {
        let mut bytes = self.encode();
        let signature = authority.sign(SIGNATURE_CONTEXT, &bytes);
        bytes.extend_from_slice(&signature);
        bytes
    }

    /// True if the owner signed these bytes. Their content does not matter.
    pub fn is_authentic(bytes: &[u8], authority: &AuthorityPublicKey) -> bool {
        let parts = bytes.split_last_chunk::<SIGNATURE_BYTES>();
        parts.is_some_and(|(map, signature)| authority.verifies(SIGNATURE_CONTEXT, map, signature))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let limit = |bytes: usize| u32::try_from(bytes).expect("chunks are short");
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(8)?;
            cbor.u64(key::ID)?.bytes(&self.id.0)?;
            cbor.u64(key::CREATED)?.i64(self.created.0)?;
            cbor.u64(key::CHUNKERS)?.map(self.chunkers.len() as u64)?;
            for (kind, chunker) in StreamKind::ALL.iter().zip(&self.chunkers) {
                cbor.u8(*kind as u8)?.array(3)?.u16(chunker.algorithm)?;
                cbor.u32(limit(chunker.limits.min()))?.u32(limit(chunker.limits.max()))?;
            }
            cbor.u64(key::ARENA_BYTES)?.u32(self.arena_bytes)?;
            cbor.u64(key::PARITY)?.u32(self.parity_per_mille)?;
            cbor.u64(key::NAMING)?.u8(self.naming)?;
            cbor.u64(key::PADDING)?.bool(self.padding)?;
            cbor.u64(key::STORE)?.u8(self.store)?;
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// The configuration in `bytes`. Whether it is authentic is checked once a key is available.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = |detail: String| FormatError::damaged("configuration", detail);
        let too_short = || damaged("it has no signature".to_owned());
        let (map, _) = bytes.split_last_chunk::<SIGNATURE_BYTES>().ok_or_else(too_short)?;
        let (mut id, mut created, mut chunkers) = (None, None, [None; 3]);
        let (mut arena_bytes, mut parity) = (None, None);
        let (mut naming, mut padding, mut store) = (None, None, None);
        let mut cbor = Decoder::new(map);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::ID => id = cbor.bytes()?.try_into().ok().map(RepositoryId),
                key::CREATED => created = Some(Timestamp(cbor.i64()?)),
                key::CHUNKERS => chunkers = decode_chunkers(cbor)?,
                key::ARENA_BYTES => arena_bytes = Some(cbor.u32()?),
                key::PARITY => parity = Some(cbor.u32()?),
                key::NAMING => naming = Some(cbor.u8()?),
                key::PADDING => padding = Some(cbor.bool()?),
                key::STORE => store = Some(cbor.u8()?),
                _ => cbor.skip()?,
            }
            Ok(())
        })
        .map_err(|error| damaged(error.to_string()))?;
        if cbor.position() < map.len() {
            return Err(damaged("bytes are left over".to_owned()));
        }
        let config = (|| {
            let [files, images, memory] = chunkers;
            Some(Self {
                id: id?,
                created: created?,
                chunkers: [files?, images?, memory?],
                arena_bytes: arena_bytes.filter(|bytes| *bytes <= ARENA_BYTES_MAX)?,
                parity_per_mille: parity.filter(|parity| *parity <= 1000)?,
                naming: naming?,
                padding: padding?,
                store: store?,
            })
        })();
        config.ok_or_else(|| damaged("a field is missing or out of bounds".to_owned()))
    }
}

type CborError = minicbor::decode::Error;

/// The chunkers by kind; a kind that this program does not know is left out.
fn decode_chunkers(cbor: &mut Decoder<'_>) -> Result<[Option<StreamChunker>; 3], CborError> {
    let mut chunkers = [None; 3];
    decode_map(cbor, |cbor, kind| {
        expect_array(cbor, 3)?;
        let (algorithm, min, max) = (cbor.u16()?, cbor.u32()?, cbor.u32()?);
        let limits = Limits::new(min as usize, max as usize).ok();
        let limits = limits.filter(|limits| limits.max() <= CHUNK_BYTES_MAX);
        let known = usize::try_from(kind).ok().and_then(|kind| chunkers.get_mut(kind));
        if let Some(known) = known {
            *known = limits.map(|limits| StreamChunker { algorithm, limits });
        }
        Ok(())
    })?;
    Ok(chunkers)
}

#[cfg(test)]
mod tests;
