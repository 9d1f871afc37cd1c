//! How chunks are packed.

use strongroom_arena::CompressionLevel;

/// Arenas that are written at the same time, at most.
const WRITERS_MAX: usize = 2;
/// Threads that compress by default, at most: each holds a block before and after.
const WORKERS_MAX: usize = 8;
/// How many blocks back the lengths of blocks count when an arena is closed: as many as the most
/// workers may not have compressed yet, on any machine, so that the same chunks give the same arenas
/// on all.
pub const BLOCKS_UNKNOWN: usize = WORKERS_MAX + 2;

/// Blocks that may wait for a worker. Far away the line is what all wait for, so a block that waits
/// only takes memory; but by how many wait, `auto` decides how hard to compress.
pub fn jobs_waiting(options: &PackOptions, is_far: bool) -> usize {
    match options.compression {
        Compression::Level(_) if is_far => 0,
        _ => options.workers.div_ceil(2),
    }
}

/// Blocks of one lane that may be between the caller and their arena: what the workers have, what
/// waits for them, and one that waits for another before it.
pub fn blocks_in_flight(options: &PackOptions, is_far: bool) -> usize {
    options.workers + jobs_waiting(options, is_far) + 1
}

/// A block of data is closed at this many bytes: as many as its bound leaves beside the directory.
pub const DATA_BLOCK_BYTES: usize = 15 << 18;
/// A block of metadata is closed at this many bytes at the latest. Trees are read a few at a time.
pub const METADATA_BLOCK_BYTES_MAX: usize = 1 << 20;

/// Threads that write arenas. Each holds one: far away, the next can be on its way while the place
/// is still storing the one before.
pub fn writers_for(requests_in_flight: usize) -> usize {
    requests_in_flight.clamp(1, WRITERS_MAX)
}

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
