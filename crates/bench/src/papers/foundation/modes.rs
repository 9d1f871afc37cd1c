//! Venti and both modes of Foundation, by the pseudocode of figure 4 as §3 describes it, with the
//! caches of §4.

use super::disk::{Arm, Region, Traffic, Work};
use super::log::{Log, Slot};
use super::parameters::{Mode, Parameters};
use super::recent::Recent;

/// What a process keeps from one night to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// The buffer of index entries, which it could make again from the log; caches begin empty.
    Buffer,
    /// Nothing: the buffer is written into the index at the end of each night.
    Nothing,
    /// The buffer and all caches, as one that never ends.
    Everything,
}

/// Writes nights into a log.
pub struct Writer {
    mode: Mode,
    parameters: Parameters,
    habit: Habit,
    log: Log,
    /// Entries of slots below this one are in the index; those from here on are in the buffer.
    flushed: Slot,
    /// Fresh blocks that the filter was asked about.
    asked: u64,
    entries: Recent,
    blocks: Recent,
    summaries: Recent,
    local: Arm,
    archive: Arm,
}

impl Writer {
    /// A writer to a log that may hold blocks already; their entries are in the index.
    pub fn new(mode: Mode, parameters: Parameters, habit: Habit, log: Log) -> Self {
        Self {
            mode,
            parameters,
            habit,
            flushed: log.next(),
            log,
            asked: 0,
            entries: Recent::new(parameters.cache_entries(mode)),
            blocks: Recent::new(parameters.block_cache_bytes / parameters.block_bytes),
            summaries: Recent::new(parameters.summaries_cached),
            local: Arm::default(),
            archive: Arm::default(),
        }
    }

    /// Puts entries into the cache of the index without reading them.
    pub fn remember(&mut self, blocks: impl Iterator<Item = u32>) {
        blocks.for_each(|block| self.entries.put(block));
    }

    /// Writes a night's blocks, as they lie on the disk.
    pub fn backup(&mut self, blocks: &[u32]) {
        if self.habit != Habit::Everything {
            self.entries.clear();
            self.blocks.clear();
            self.summaries.clear();
        }
        self.write_all(blocks);
        if self.habit == Habit::Nothing {
            self.flush();
        }
    }

    /// Writes blocks with the caches as they are.
    pub fn write_all(&mut self, blocks: &[u32]) {
        let bytes = self.parameters.block_bytes;
        for (place, block) in (0..).zip(blocks) {
            self.local.read(Region::Image, place * bytes, bytes);
            self.write(*block);
        }
    }

    /// Applies what is in the buffer, in one pass over the whole index: read, and written.
    pub fn flush(&mut self) {
        if self.flushed < self.log.next() {
            let bytes = self.parameters.index_bytes(self.mode);
            self.archive.read(Region::Index, 0, bytes);
            self.archive.write(Region::Index, 0, bytes);
            self.flushed = self.log.next();
        }
    }

    /// All that it asked of the disks.
    pub fn work(&self) -> Work {
        Work { local: self.local.traffic(), archive: self.archive.traffic() }
    }

    /// What is stored.
    pub fn log(&self) -> &Log {
        &self.log
    }

    fn write(&mut self, block: u32) {
        let Some(slot) = self.find(block) else { return self.append(block) };
        // The bytes are compared; for Venti and by hash, the name says enough.
        if self.mode == Mode::Value && !self.blocks.uses(slot) {
            let bytes = self.parameters.block_bytes;
            let (arena, offset) = place(&self.parameters, slot);
            self.archive.read(Region::Arena(arena), offset, bytes);
            self.blocks.put(slot);
        }
    }

    /// Where a block is, if the log has it.
    fn find(&mut self, block: u32) -> Option<Slot> {
        let slot = self.log.slot(block);
        match slot {
            Some(slot) if self.knows(block, slot) => return Some(slot),
            None if self.mode != Mode::Venti && !self.is_false_positive() => return None,
            _ => self.archive.read_at_random(self.parameters.bucket_bytes),
        }
        let slot = slot?;
        self.entries.put(block);
        if self.mode != Mode::Venti {
            let (arena, _) = place(&self.parameters, slot);
            let blocks = self.parameters.arena_blocks();
            let bytes = self.parameters.summary_bytes(self.mode, blocks);
            self.archive.read(Region::Summary(arena), 0, bytes);
            self.summaries.put(arena);
        }
        Some(slot)
    }

    /// Whether memory says where a block is.
    fn knows(&mut self, block: u32, slot: Slot) -> bool {
        // By value a block's name is its place, which is what is looked for.
        if self.mode != Mode::Value && self.blocks.uses(slot) {
            return true;
        }
        if self.entries.uses(block) || slot >= self.flushed {
            return true;
        }
        let (arena, _) = place(&self.parameters, slot);
        // The summary of the arena that is being written has not been written yet.
        let (open, _) = place(&self.parameters, self.log.next());
        self.mode != Mode::Venti && (arena == open || self.summaries.uses(arena))
    }

    /// The paper's simulator draws lots. Counted out, the same number of blocks costs the same.
    fn is_false_positive(&mut self) -> bool {
        let turn = self.asked % self.parameters.false_positive_period;
        self.asked += 1;
        turn == self.parameters.false_positive_period / 2
    }

    fn append(&mut self, block: u32) {
        let bytes = self.parameters.block_bytes;
        let slot = self.log.append(block);
        let (arena, offset) = place(&self.parameters, slot);
        if offset == 0 && arena > 0 && self.mode != Mode::Venti {
            let blocks = self.parameters.arena_blocks();
            let summary = self.parameters.summary_bytes(self.mode, blocks);
            self.archive.write(Region::Summary(arena - 1), 0, summary);
        }
        self.archive.write(Region::Arena(arena), offset, bytes);
        self.blocks.put(slot);
        if self.mode == Mode::Venti {
            self.archive.write_at_random(self.parameters.bucket_bytes);
            self.entries.put(block);
            self.flushed = self.log.next();
        } else if u64::from(self.log.next() - self.flushed)
            >= self.parameters.buffer_entries(self.mode)
        {
            self.flush();
        }
    }
}

/// Reads blocks. All entries are in the index, and all caches are empty when it begins.
pub struct Reader<'l> {
    mode: Mode,
    parameters: Parameters,
    log: &'l Log,
    entries: Recent,
    blocks: Recent,
    summaries: Recent,
    arm: Arm,
    hits: u64,
}

impl<'l> Reader<'l> {
    /// A reader of what a log holds.
    pub fn new(mode: Mode, parameters: Parameters, log: &'l Log) -> Self {
        Self {
            mode,
            parameters,
            log,
            entries: Recent::new(parameters.cache_entries(mode)),
            blocks: Recent::new(parameters.block_cache_bytes / parameters.block_bytes),
            summaries: Recent::new(parameters.summaries_cached),
            arm: Arm::default(),
            hits: 0,
        }
    }

    /// Reads a block that the log holds; one that it does not hold is ignored.
    pub fn read(&mut self, block: u32) {
        let Some(slot) = self.log.slot(block) else { return };
        if self.blocks.uses(slot) {
            self.hits += 1;
            return;
        }
        let (arena, offset) = place(&self.parameters, slot);
        // By value, the name is the place.
        if self.mode != Mode::Value {
            self.locate(block, arena);
        }
        self.arm.read(Region::Arena(arena), offset, self.parameters.block_bytes);
        self.blocks.put(slot);
    }

    /// All that was asked of the archive's disk.
    pub fn traffic(&self) -> Traffic {
        self.arm.traffic()
    }

    /// Blocks that were in the cache.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    fn locate(&mut self, block: u32, arena: u32) {
        if self.entries.uses(block) || self.mode == Mode::Hash && self.summaries.uses(arena) {
            return;
        }
        self.arm.read_at_random(self.parameters.bucket_bytes);
        self.entries.put(block);
        if self.mode == Mode::Hash {
            let first = u64::from(arena) * self.parameters.arena_blocks();
            let blocks = (u64::from(self.log.next()) - first).min(self.parameters.arena_blocks());
            let bytes = self.parameters.summary_bytes(self.mode, blocks);
            self.arm.read(Region::Summary(arena), 0, bytes);
            self.summaries.put(arena);
        }
    }
}

/// The arena of a slot, and the bytes before it there.
fn place(parameters: &Parameters, slot: Slot) -> (u32, u64) {
    let (slot, blocks) = (u64::from(slot), parameters.arena_blocks());
    ((slot / blocks) as u32, slot % blocks * parameters.block_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::parameters;
    use super::*;

    /// Arenas of four blocks, a buffer of ten entries by hash.
    fn small() -> Parameters {
        Parameters {
            block_bytes: 512,
            arena_bytes: 2_048,
            log_bytes_max: 51_200,
            index_cache_bytes: 280,
            write_buffer_bytes: 280,
            block_cache_bytes: 512,
            summaries_cached: 1,
            bucket_bytes: 64,
            false_positive_period: 8,
            ..parameters::PAPER
        }
    }

    fn archive(mode: Mode, log: Log, nights: &[&[u32]]) -> Traffic {
        let mut writer = Writer::new(mode, small(), Habit::Buffer, log);
        for night in nights {
            writer.backup(night);
        }
        assert_eq!(writer.work().local.seeks, nights.len() as u64);
        writer.work().archive
    }

    #[test]
    fn venti_by_hand() {
        // Two fresh blocks: three seeks each. The third is in the cache. The next night it is not.
        let traffic = archive(Mode::Venti, Log::default(), &[&[0, 1, 0], &[0]]);
        assert_eq!(traffic, Traffic { seeks: 7, read: 3 * 64, written: 2 * (512 + 64) });
    }

    #[test]
    fn fresh_blocks_by_hand() {
        // Five blocks: the fifth begins an arena after the summary of the first, 4 × 26 bytes, and
        // the filter errs about it.
        let traffic = archive(Mode::Hash, Log::default(), &[&[0, 1, 2, 3, 4]]);
        assert_eq!(traffic, Traffic { seeks: 4, read: 64, written: 5 * 512 + 104 });
        // Ten fill the buffer: the index of 100 × 26 / 0.9 bytes is read and written.
        let traffic = archive(Mode::Hash, Log::default(), &[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]);
        let written = 10 * 512 + 2 * 104 + 2_888;
        assert_eq!(traffic, Traffic { seeks: 8, read: 64 + 2_888, written });
    }

    #[test]
    fn duplicates_by_hand() {
        // A bucket and a summary for each of two arenas; by value, the blocks too.
        let night: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7];
        let traffic = archive(Mode::Hash, Log::filled(12), &[night]);
        assert_eq!(traffic, Traffic { seeks: 4, read: 2 * (64 + 104), written: 0 });
        let traffic = archive(Mode::Value, Log::filled(12), &[night]);
        assert_eq!(traffic, Traffic { seeks: 6, read: 2 * (64 + 56) + 8 * 512, written: 0 });
    }

    #[test]
    fn reads_by_hand() {
        let log = Log::filled(12);
        let read = |mode, blocks: &[u32]| {
            let mut reader = Reader::new(mode, small(), &log);
            blocks.iter().for_each(|block| reader.read(*block));
            (reader.traffic(), reader.hits())
        };
        let traffic = |seeks, read| Traffic { seeks, read, written: 0 };
        // The second block is found in the summary; the third is in the cache of blocks.
        assert_eq!(read(Mode::Hash, &[0, 1, 1]), (traffic(3, 64 + 104 + 1_024), 1));
        assert_eq!(read(Mode::Venti, &[0, 1, 1]), (traffic(4, 2 * 64 + 1_024), 1));
        assert_eq!(read(Mode::Value, &[0, 1, 1]), (traffic(1, 1_024), 1));
        // One summary fits: going to and fro loads it each time; an entry is remembered.
        assert_eq!(read(Mode::Hash, &[0, 4, 1, 0]), (traffic(10, 3 * 168 + 4 * 512), 0));
        assert_eq!(read(Mode::Value, &[0, 4, 1, 0]), (traffic(4, 4 * 512), 0));
    }
}
