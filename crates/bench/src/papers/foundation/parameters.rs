//! The sizes of §4 and §5, of which the paper's figures are made, and ours.

/// How blocks are named, found and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// An index on the disk, asked for each block.
    Venti,
    /// Foundation, blocks named by SHA-1.
    Hash,
    /// Foundation, blocks named by their place in the log.
    Value,
    /// Strongroom.
    Ours,
}

impl Mode {
    /// In the order of the tables.
    pub const ALL: [Self; 4] = [Self::Venti, Self::Hash, Self::Value, Self::Ours];

    /// Name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Venti => "Venti",
            Self::Hash => "compare-by-hash",
            Self::Value => "compare-by-value",
            Self::Ours => "ours",
        }
    }
}

/// What the simulator assumes, for all modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Of what is written and read at once.
    pub block_bytes: u64,
    /// Of an arena.
    pub arena_bytes: u64,
    /// What the index is made for: it is 90 % full with a log of this size.
    pub log_bytes_max: u64,
    /// Cache of index entries: Foundation's is this large; Venti's has the buffer's room too.
    pub index_cache_bytes: u64,
    /// Buffer of entries that are not in the index yet.
    pub write_buffer_bytes: u64,
    /// Cache of blocks.
    pub block_cache_bytes: u64,
    /// Summaries in memory.
    pub summaries_cached: u64,
    /// What is read of Foundation's index at once.
    pub bucket_bytes: u64,
    /// One fresh block in this many seems to be known.
    pub false_positive_period: u64,
    /// Room that the system has for pages of our index.
    pub page_cache_bytes: u64,
    /// Ours: chunks that are sealed together, in bytes.
    pub unit_bytes: u64,
}

/// The paper's (§4, §5.1), with blocks of 512 bytes. The size of a bucket is Venti's: the paper does
/// not give its own.
pub const PAPER: Parameters = Parameters {
    block_bytes: 512,
    arena_bytes: 16 << 20,
    log_bytes_max: 100_000_000_000,
    index_cache_bytes: 64 << 20,
    write_buffer_bytes: 128 << 20,
    block_cache_bytes: 1 << 20,
    summaries_cached: 10,
    bucket_bytes: 8 << 10,
    false_positive_period: 1_000,
    page_cache_bytes: 0,
    unit_bytes: 256 << 10,
};

/// Ours: what is sealed together by default, for files (`DATA_BLOCK_BYTES` of the engine). Images
/// that are read here and there want less (docs/design/0003-arenas.md).
pub const LARGE_UNIT_BYTES: u64 = 15 << 18;

/// Bytes of a place in the log, in the index (§4).
const OFFSET_BYTES: u64 = 6;
/// Bytes of a place in the log, in memory. With it, buffers of 128 MB are full after 2.3 and 4 GB of
/// blocks of 512 bytes, as §5.1 says; with six bytes they would be full after 2.5 and 4.6 GB.
const OFFSET_BYTES_IN_MEMORY: u64 = 8;

/// Ours: bytes of a page of the index.
pub const PAGE_BYTES: u64 = 4 << 10;
/// Ours: records of a page, of 40 bytes each, beside its checksum.
pub const PAGE_RECORDS: u64 = 102;
/// Ours: one new key in this many has the same eight bits as a known one.
pub const FILTER_PERIOD: u64 = 256;
/// Ours: bytes written to the index for a key, merges included, as measured with 10^7 keys
/// (docs/design/0008-index.md).
pub const INDEX_BYTES_A_KEY: u64 = 192;
/// Ours: records of the table of the newest insertions.
pub const TABLE_RECORDS: u64 = 229_376;
/// Ours: bytes of parity for a thousand bytes.
pub const PARITY_PER_MILLE: u64 = 30;
/// Ours: bytes of blocks in the reader's cache.
pub const BLOCK_CACHE_BYTES: u64 = 16 << 20;
/// Ours: bytes of summaries in the reader's cache.
pub const SUMMARY_CACHE_BYTES: u64 = 8 << 20;
/// Ours: chunks that a restore sorts at a time.
pub const BATCH_CHUNKS: usize = 200_000;
/// Ours: bytes of the image that are read before what is in them is looked up.
pub const READ_AHEAD_BYTES: u64 = 1 << 20;

impl Parameters {
    /// Blocks in an arena.
    pub fn arena_blocks(&self) -> u64 {
        self.arena_bytes / self.block_bytes
    }

    /// Bytes of a name in the index: SHA-1, or four bytes of MD4 where four more choose the bucket.
    fn name_bytes(mode: Mode) -> u64 {
        if mode == Mode::Value { 4 } else { 20 }
    }

    /// Bytes of a name in memory and in summaries, where no bucket says half of it.
    fn whole_name_bytes(mode: Mode) -> u64 {
        if mode == Mode::Value { 8 } else { 20 }
    }

    /// Bytes of the index.
    pub fn index_bytes(&self, mode: Mode) -> u64 {
        let entry = Self::name_bytes(mode) + OFFSET_BYTES;
        self.log_bytes_max / self.block_bytes * entry * 10 / 9
    }

    /// Bytes of a summary of this many blocks.
    pub fn summary_bytes(&self, mode: Mode, blocks: u64) -> u64 {
        blocks * (Self::whole_name_bytes(mode) + OFFSET_BYTES)
    }

    /// Entries that the buffer holds; Venti has none.
    pub fn buffer_entries(&self, mode: Mode) -> u64 {
        if mode == Mode::Venti { 0 } else { self.write_buffer_bytes / Self::memory_bytes(mode) }
    }

    /// Entries that the cache of the index holds.
    pub fn cache_entries(&self, mode: Mode) -> u64 {
        let buffer = if mode == Mode::Venti { self.write_buffer_bytes } else { 0 };
        (self.index_cache_bytes + buffer) / Self::memory_bytes(mode)
    }

    fn memory_bytes(mode: Mode) -> u64 {
        Self::whole_name_bytes(mode) + OFFSET_BYTES_IN_MEMORY
    }

    /// Ours: chunks that are sealed together.
    pub fn unit_blocks(&self) -> u64 {
        (self.unit_bytes / self.block_bytes).clamp(1, self.arena_blocks())
    }

    /// Ours: bytes before the first block of an arena (docs/format/arena.md): header, head, and a
    /// sealed summary with 40 bytes a slot and 28 a block, up to a multiple of 4096.
    pub fn preamble_bytes(&self, blocks: u64) -> u64 {
        let units = blocks.div_ceil(self.unit_blocks());
        (272 + 16 + 8 + 20 + 28 * units + 40 * blocks + 16).next_multiple_of(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own sums (§4, §5.1) check what was derived.
    #[test]
    fn sizes_are_the_papers() {
        let gigabytes = |bytes: u64| (bytes as f64 / 1e8).round() / 10.0;
        assert_eq!(gigabytes(PAPER.index_bytes(Mode::Hash)), 5.6);
        assert_eq!(gigabytes(PAPER.index_bytes(Mode::Value)), 2.2);
        let full_after = |mode| (PAPER.buffer_entries(mode) * 512) as f64 / (1u64 << 30) as f64;
        assert_eq!((full_after(Mode::Hash) * 10.0).round() / 10.0, 2.3);
        assert_eq!(full_after(Mode::Value), 4.0);
        let summary = PAPER.summary_bytes(Mode::Hash, PAPER.arena_blocks());
        assert_eq!((100.0 * summary as f64 / PAPER.arena_bytes as f64).round(), 5.0);
        let summaries = (PAPER.summaries_cached * summary) as f64 / 1e6;
        assert!((8.0..10.0).contains(&summaries), "approximately 10 MB, here {summaries}");
    }

    #[test]
    fn a_preamble_by_hand() {
        let nights = Parameters { block_bytes: 32 << 10, ..PAPER };
        assert_eq!((nights.arena_blocks(), nights.unit_blocks()), (512, 8));
        // 332 + 64 blocks of 28 + 512 slots of 40 = 22,604.
        assert_eq!(nights.preamble_bytes(512), 24_576);
        assert_eq!(nights.preamble_bytes(1), 4_096);
    }
}
