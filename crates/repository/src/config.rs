//! The repository's configuration: what is decided once, at `init`, and readable without a key.
//! The document: `docs/format/repository.md`.

use minicbor::{Decoder, Encoder};
use strongroom_base::keys::authenticate;
use strongroom_base::{RepositoryId, Timestamp, WriteKeys};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::{decode_map, expect_array};
use strongroom_chunk::{Chunker, Limits};

/// What is decided once, at `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The repository's name for ever.
    pub id: RepositoryId,
    /// When it was made.
    pub created: Timestamp,
    /// Bounds of a chunk's length, in bytes.
    pub chunk_limits: Limits,
    /// An arena is closed once its blocks have so many bytes.
    pub arena_bytes: u32,
    /// Parity shards per thousand data shards of an arena.
    pub parity_per_mille: u32,
}

/// An arena is closed at so many bytes unless told otherwise: small enough to hold four in the
/// memory of a client (two being built, two being written).
pub const ARENA_BYTES_DEFAULT: u32 = 16 << 20;
/// Arenas of a repository are at most so large.
pub const ARENA_BYTES_MAX: u32 = 64 << 20;

/// Chunks of a repository are at most so long, whatever its configuration says.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

mod key {
    pub const ID: u64 = 0;
    pub const CREATED: u64 = 1;
    pub const CHUNKER: u64 = 2;
    pub const ARENA_BYTES: u64 = 3;
    pub const PARITY: u64 = 4;
    pub const TAG: u64 = 5;
}

impl Config {
    /// The configuration's bytes, with a tag by which a holder of the keys knows it again.
    pub fn pack(&self, keys: &WriteKeys) -> Vec<u8> {
        let tag = authenticate(&keys.config_key, &self.encode(None));
        self.encode(Some(&tag))
    }

    /// True where `bytes` is this configuration as a holder of the keys wrote it.
    pub fn is_authentic(&self, bytes: &[u8], keys: &WriteKeys) -> bool {
        self.pack(keys) == bytes
    }

    fn encode(&self, tag: Option<&[u8; 32]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let limit = |bytes: usize| u32::try_from(bytes).expect("chunks are short");
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(5 + u64::from(tag.is_some()))?;
            cbor.u64(key::ID)?.bytes(&self.id.0)?;
            cbor.u64(key::CREATED)?.i64(self.created.0)?;
            cbor.u64(key::CHUNKER)?.array(3)?.u16(Chunker::ALGORITHM)?;
            cbor.u32(limit(self.chunk_limits.min()))?.u32(limit(self.chunk_limits.max()))?;
            cbor.u64(key::ARENA_BYTES)?.u32(self.arena_bytes)?;
            cbor.u64(key::PARITY)?.u32(self.parity_per_mille)?;
            if let Some(tag) = tag {
                cbor.u64(key::TAG)?.bytes(tag)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// The configuration in `bytes`. Whether it is authentic is asked when a key is at hand.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = |detail: String| FormatError { what: "configuration", detail };
        let (mut id, mut created) = (None, None);
        let (mut chunk_limits, mut arena_bytes, mut parity) = (None, None, None);
        let mut cbor = Decoder::new(bytes);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::ID => id = cbor.bytes()?.try_into().ok().map(RepositoryId),
                key::CREATED => created = Some(Timestamp(cbor.i64()?)),
                key::CHUNKER => {
                    expect_array(cbor, 3)?;
                    let (algorithm, min, max) = (cbor.u16()?, cbor.u32()?, cbor.u32()?);
                    if algorithm == Chunker::ALGORITHM {
                        chunk_limits = Limits::new(min as usize, max as usize)
                            .ok()
                            .filter(|limits| limits.max() <= CHUNK_BYTES_MAX);
                    }
                }
                key::ARENA_BYTES => arena_bytes = Some(cbor.u32()?),
                key::PARITY => parity = Some(cbor.u32()?),
                _ => cbor.skip()?,
            }
            Ok(())
        })
        .map_err(|error| damaged(error.to_string()))?;
        if cbor.position() < bytes.len() {
            return Err(damaged("bytes are left over".to_owned()));
        }
        let config = (|| {
            Some(Self {
                id: id?,
                created: created?,
                chunk_limits: chunk_limits?,
                arena_bytes: arena_bytes.filter(|bytes| *bytes <= ARENA_BYTES_MAX)?,
                parity_per_mille: parity.filter(|parity| *parity <= 1000)?,
            })
        })();
        config.ok_or_else(|| damaged("a field is missing or out of bounds".to_owned()))
    }
}

#[cfg(test)]
mod tests;
