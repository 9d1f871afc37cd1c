//! What the catalog needs of a store of chunks.

use strongroom_base::{Fingerprint, Location, SizeLimits};

use crate::format::FormatError;
use crate::reference::ChunkRef;

/// Reads chunks of metadata.
pub trait ReadChunk {
    /// Why a chunk cannot be read.
    type Error: std::error::Error + 'static;

    /// The bytes of a chunk, verified against its fingerprint.
    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, Self::Error>;
}

/// Which part of a stream's recipe a chunk of metadata is. The same part of the parent's recipe is
/// likely to be much the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// 0: a chunk of the stream, a tree, itself; above: a node, this many levels above the stream.
    pub level: u8,
    /// Where in the stream it begins.
    pub offset: u64,
}

/// Keeps chunks of metadata, each once.
pub trait WriteChunk {
    /// Why a chunk cannot be kept.
    type Error: std::error::Error + 'static;

    /// Keeps a chunk, unless it is kept already, and returns its name and place.
    fn write_chunk(
        &mut self,
        chunk: &[u8],
        part: Part,
    ) -> Result<(Fingerprint, Location), Self::Error>;

    /// True if a chunk that was read is known to exist, so that naming it is enough.
    fn holds(&self, _chunk: &ChunkRef) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// The limits of what is made of the chunks.
    fn limits(&self) -> &SizeLimits {
        &SizeLimits::DEFAULT
    }
}

impl<R: ReadChunk + ?Sized> ReadChunk for &R {
    type Error = R::Error;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, Self::Error> {
        (**self).read_chunk(chunk)
    }
}

/// Why a tree or a recipe cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError<E: std::error::Error + 'static> {
    /// A chunk of it cannot be read.
    #[error(transparent)]
    Chunk(E),
    /// A chunk of it is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
}
