//! Strongroom by the same counts: an index of its own on the machine's disk
//! (docs/design/0008-index.md), arenas with their summaries before the blocks
//! (docs/format/arena.md), and places of chunks in the recipes.
//!
//! Compression, deltas and what metadata adds are left out here, as the paper's simulator leaves
//! them out there.

use super::disk::{Arm, Region, Traffic, Work};
use super::log::{Log, Slot};
use super::parameters::{
    BLOCK_CACHE_BYTES, FILTER_PERIOD, INDEX_BYTES_A_KEY, PAGE_BYTES, PAGE_RECORDS,
    PARITY_PER_MILLE, Parameters, READ_AHEAD_BYTES, SUMMARY_CACHE_BYTES, TABLE_RECORDS,
};
use super::recent::Recent;

/// Writes nights into arenas.
pub struct OurWriter {
    parameters: Parameters,
    log: Log,
    /// Blocks of each arena that is written.
    arenas: Vec<u32>,
    /// Blocks of the arena that is being filled.
    filling: u32,
    /// Slots from here on are in the table of the newest insertions, `table` of them.
    table_from: Slot,
    table: u64,
    /// Records in segments.
    records: u64,
    asked: u64,
    /// Pages of the index that the system keeps.
    pages: Recent,
    local: Arm,
    archive: Arm,
}

impl OurWriter {
    /// A writer to whole arenas, whose chunks are in the segments of the index.
    pub fn new(parameters: Parameters, log: Log) -> Self {
        let arena_blocks = parameters.arena_blocks() as u32;
        assert!(log.next().is_multiple_of(arena_blocks), "arenas are whole");
        Self {
            parameters,
            arenas: vec![arena_blocks; (log.next() / arena_blocks) as usize],
            filling: 0,
            table_from: log.next(),
            table: 0,
            records: u64::from(log.next()),
            asked: 0,
            pages: Recent::new(parameters.page_cache_bytes / PAGE_BYTES),
            local: Arm::default(),
            archive: Arm::default(),
            log,
        }
    }

    /// Puts everything stored into the table of the newest insertions, as if this session had
    /// stored it.
    pub fn remember(&mut self) {
        self.table_from = 0;
    }

    /// Writes a night's blocks, as they lie on the disk. The system's cache begins empty.
    pub fn backup(&mut self, blocks: &[u32]) {
        self.pages.clear();
        let bytes = self.parameters.block_bytes;
        let piece_blocks = (READ_AHEAD_BYTES / bytes).max(1);
        for (number, piece) in (0..).zip(blocks.chunks(piece_blocks as usize)) {
            let offset = number * piece_blocks * bytes;
            self.local.read(Region::Image, offset, piece.len() as u64 * bytes);
            piece.iter().for_each(|block| self.write(*block));
        }
        self.seal();
        self.spill();
    }

    /// All that it asked of the disks.
    pub fn work(&self) -> Work {
        Work { local: self.local.traffic(), archive: self.archive.traffic() }
    }

    /// A reader of all that is stored; its caches are empty.
    pub fn reader(&self) -> OurReader<'_> {
        self.reader_of(self.parameters.unit_bytes)
    }

    /// The same, if this many bytes had been sealed together.
    pub fn reader_of(&self, unit_bytes: u64) -> OurReader<'_> {
        let parameters = Parameters { unit_bytes, ..self.parameters };
        OurReader::new(parameters, &self.log, &self.arenas)
    }

    /// Where a chunk is, by which a restore sorts.
    pub fn place(&self, block: u32) -> Option<Slot> {
        self.log.slot(block)
    }

    fn write(&mut self, block: u32) {
        match self.log.slot(block) {
            Some(slot) if slot >= self.table_from => return,
            Some(_) => return self.look_up(block),
            None => {}
        }
        self.asked += 1;
        if self.asked % FILTER_PERIOD == FILTER_PERIOD / 2 && self.records > 0 {
            self.look_up(block);
        }
        self.log.append(block);
        self.filling += 1;
        self.table += 1;
        if u64::from(self.filling) == self.parameters.arena_blocks() {
            self.seal();
        }
        if self.table == TABLE_RECORDS {
            self.spill();
        }
    }

    /// A page of records. The heads, a thirtieth of the whole, are in memory.
    fn look_up(&mut self, block: u32) {
        let pages = self.records.div_ceil(PAGE_RECORDS).max(1);
        let page = (u64::from(block).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) % pages;
        if !self.pages.uses(page as u32) {
            self.local.read_at_random(PAGE_BYTES);
            self.pages.put(page as u32);
        }
    }

    /// An arena is written at once, with its parity at the end.
    fn seal(&mut self) {
        if self.filling == 0 {
            return;
        }
        let blocks = u64::from(self.filling);
        let body = self.parameters.preamble_bytes(blocks) + blocks * self.parameters.block_bytes;
        let parity = (body * PARITY_PER_MILLE).div_ceil(1_000);
        self.archive.write(Region::Arena(self.arenas.len() as u32), 0, body + parity);
        self.arenas.push(self.filling);
        self.filling = 0;
        self.log.align(self.parameters.arena_blocks() as u32);
    }

    fn spill(&mut self) {
        if self.table > 0 {
            self.local.write_at_random(self.table * INDEX_BYTES_A_KEY);
            self.records += self.table;
        }
        (self.table, self.table_from) = (0, self.log.next());
    }
}

/// Reads chunks at the places that recipes give.
pub struct OurReader<'l> {
    parameters: Parameters,
    log: &'l Log,
    arenas: &'l [u32],
    units: Recent,
    summaries: Recent,
    arm: Arm,
    hits: u64,
}

impl<'l> OurReader<'l> {
    fn new(parameters: Parameters, log: &'l Log, arenas: &'l [u32]) -> Self {
        let unit_bytes = parameters.unit_blocks() * parameters.block_bytes;
        let summary_bytes = parameters.preamble_bytes(parameters.arena_blocks());
        Self {
            parameters,
            log,
            arenas,
            units: Recent::new(BLOCK_CACHE_BYTES / unit_bytes),
            summaries: Recent::new((SUMMARY_CACHE_BYTES / summary_bytes).max(1)),
            arm: Arm::default(),
            hits: 0,
        }
    }

    /// Reads a chunk that is stored: the sealed block that it is in.
    pub fn read(&mut self, block: u32) {
        let Some(slot) = self.log.slot(block) else { return };
        let arena_blocks = self.parameters.arena_blocks();
        let (arena, place) = (u64::from(slot) / arena_blocks, u64::from(slot) % arena_blocks);
        let unit_blocks = self.parameters.unit_blocks();
        let unit = place / unit_blocks;
        let key = (arena * arena_blocks.div_ceil(unit_blocks) + unit) as u32;
        if self.units.uses(key) {
            self.hits += 1;
            return;
        }
        let filled = u64::from(self.arenas.get(arena as usize).copied().unwrap_or_default());
        let preamble = self.parameters.preamble_bytes(filled);
        let region = Region::Arena(arena as u32);
        if !self.summaries.uses(arena as u32) {
            self.arm.read(region, 0, preamble);
            self.summaries.put(arena as u32);
        }
        let first = unit * unit_blocks;
        let bytes = unit_blocks.min(filled.saturating_sub(first)) * self.parameters.block_bytes;
        let offset = preamble + first * self.parameters.block_bytes;
        self.arm.read(region, offset, bytes);
        self.units.put(key);
    }

    /// All that was asked of the archive's disk.
    pub fn traffic(&self) -> Traffic {
        self.arm.traffic()
    }

    /// Chunks of which the block was in the cache.
    pub fn hits(&self) -> u64 {
        self.hits
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters;
    use super::*;

    /// Arenas of 64 blocks of 32 KiB, eight sealed together.
    fn small() -> Parameters {
        Parameters { block_bytes: 32 << 10, arena_bytes: 2 << 20, ..parameters::PAPER }
    }

    #[test]
    fn a_night_by_hand() {
        let mut writer = OurWriter::new(small(), Log::filled(64));
        // 70 fresh blocks: an arena of 64 and one of 6, each with 4096 bytes before it. One known
        // block: a page. The image is read in pieces of 32 blocks, the last one after the page.
        let mut night: Vec<u32> = vec![1_000; 71];
        night.iter_mut().zip(64..).for_each(|(block, fresh)| *block = fresh);
        night[40] = 7;
        writer.backup(&night);
        let work = writer.work();
        let body = |blocks: u64| 4_096 + blocks * 32_768;
        let written = [64, 6].map(|blocks| body(blocks) + (body(blocks) * 3).div_ceil(100));
        let archive = Traffic { seeks: 2, read: 0, written: written.iter().sum() };
        assert_eq!(work.archive, archive);
        let read = 71 * 32_768 + 4_096;
        assert_eq!(work.local, Traffic { seeks: 4, read, written: 70 * 192 });
        // Known now, in the segments; the blocks of one session are in the table.
        writer.backup(&[64, 500, 500]);
        let second = writer.work() - work;
        assert_eq!((second.archive.seeks, second.local.seeks), (1, 3));
    }

    #[test]
    fn reads_by_hand() {
        let mut writer = OurWriter::new(small(), Log::filled(128));
        writer.backup(&[128, 129]);
        let read = |blocks: &[u32]| {
            let mut reader = writer.reader();
            blocks.iter().for_each(|block| reader.read(*block));
            (reader.traffic(), reader.hits())
        };
        let traffic = |seeks, read| Traffic { seeks, read, written: 0 };
        // Summary, first block, second block: one movement.
        assert_eq!(read(&[0, 1, 8]), (traffic(1, 4_096 + 2 * 262_144), 1));
        assert_eq!(read(&[16, 0]), (traffic(3, 4_096 + 2 * 262_144), 0));
        // A block at the end of a session is as long as what is in it.
        assert_eq!(read(&[129]), (traffic(1, 4_096 + 2 * 32_768), 0));
    }
}
