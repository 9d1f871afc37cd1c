//! How chunks are packed.

use strongroom_arena::CompressionLevel;

/// Threads that compress by default, at most: each holds a block before and after.
const WORKERS_MAX: usize = 8;
/// Blocks of one lane that may be between the caller and their arena: besides one for each worker,
/// one that waits to be compressed and one to be added.
pub const BLOCKS_IN_FLIGHT: usize = WORKERS_MAX + 2;

/// A block of data is closed at this many bytes: as many as its bound leaves beside the directory.
pub const DATA_BLOCK_BYTES: usize = 15 << 18;
/// A block of metadata is closed at this many bytes at the latest. Trees are read a few at a time.
pub const METADATA_BLOCK_BYTES_MAX: usize = 1 << 20;

/// How chunks are packed.
#[derive(Debug, Clone, Copy)]
pub struct PackOptions {
    /// How hard to compress.
    pub compression: Compression,
    /// A block is closed at this many bytes of chunks; one of metadata at 1 MiB at the latest.
    pub block_bytes: usize,
    /// Threads that compress.
    pub workers: usize,
    /// Encode new chunks as deltas against chunks that resemble them.
    pub deltas: bool,
}

/// How hard blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// At one level.
    Level(CompressionLevel),
    /// Harder while the threads that compress are idle, and less hard while everything else waits
    /// for them. The same input then gives other bytes each time.
    Auto,
}

impl Default for PackOptions {
    /// The default level over blocks of nearly 4 MiB, a worker for each core, and deltas.
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            compression: Compression::Level(CompressionLevel::DEFAULT),
            block_bytes: DATA_BLOCK_BYTES,
            workers: workers.min(WORKERS_MAX),
            deltas: true,
        }
    }
}
