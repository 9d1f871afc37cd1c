//! The six ways through the pseudocode (figures 5 and 6), each simulated alone.

use super::disk::Work;
use super::log::Log;
use super::modes::{Habit, Reader, Writer};
use super::ours::OurWriter;
use super::parameters::{Mode, Parameters};

/// A way through the pseudocode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Blocks in the order in which they were written.
    SequentialRead,
    /// Each from another arena than the ones before it.
    OutOfOrderRead,
    /// Known blocks in the order in which they were written first.
    SequentialDuplicate,
    /// Known blocks in another order, of which no cache knows anything.
    OutOfOrderDuplicate,
    /// The same, if the index entry is in memory and the block is not.
    OutOfOrderCached,
    /// New blocks.
    Fresh,
}

impl Case {
    /// In the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::SequentialRead,
        Self::OutOfOrderRead,
        Self::SequentialDuplicate,
        Self::OutOfOrderDuplicate,
        Self::OutOfOrderCached,
        Self::Fresh,
    ];

    /// Name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SequentialRead => "sequential read",
            Self::OutOfOrderRead => "out-of-order read",
            Self::SequentialDuplicate => "sequential duplicate write",
            Self::OutOfOrderDuplicate => "out-of-order duplicate write, entry not cached",
            Self::OutOfOrderCached => "out-of-order duplicate write, entry cached",
            Self::Fresh => "fresh write",
        }
    }
}

/// How large a case is.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Arenas that are read or written in order.
    pub arenas_in_order: u64,
    /// Arenas that are visited in turn; more than any cache of summaries holds.
    pub arenas_visited: u64,
    /// Blocks that are read or written out of order in each of them, at most half of them.
    pub visits: u64,
    /// Times that the buffer of index entries is filled by fresh writes.
    pub flushes: u64,
}

impl Extent {
    /// What the document shows.
    pub const FULL: Self =
        Self { arenas_in_order: 64, arenas_visited: 512, visits: 2_048, flushes: 1 };

    /// Blocks of a case: whole arenas, visits, or whole buffers.
    pub fn blocks(&self, case: Case, mode: Mode, parameters: &Parameters) -> u64 {
        let stored = self.arenas(case) * parameters.arena_blocks();
        match case {
            Case::SequentialRead | Case::SequentialDuplicate => stored,
            Case::Fresh if matches!(mode, Mode::Hash | Mode::Value) => {
                self.flushes * parameters.buffer_entries(mode)
            }
            Case::Fresh => stored,
            _ => self.arenas_visited * self.visits(parameters),
        }
    }

    /// Arenas that are full when a case begins, or that fresh writes fill.
    pub fn arenas(&self, case: Case) -> u64 {
        match case {
            Case::SequentialRead | Case::SequentialDuplicate | Case::Fresh => self.arenas_in_order,
            _ => self.arenas_visited,
        }
    }

    fn visits(&self, parameters: &Parameters) -> u64 {
        self.visits.min(parameters.arena_blocks() / 2)
    }

    /// The blocks out of order: one of each arena in turn, from the middle of arenas on, so that
    /// no block of ours is read twice and none lies beside the summary.
    fn out_of_order(&self, parameters: &Parameters) -> Vec<u32> {
        let arena_blocks = parameters.arena_blocks();
        let block = |visit, arena| (arena * arena_blocks + arena_blocks / 2 + visit) as u32;
        (0..self.visits(parameters))
            .flat_map(|visit| (0..self.arenas_visited).map(move |arena| block(visit, arena)))
            .collect()
    }
}

/// What a case asks of the disks, by simulation.
pub fn simulate(case: Case, mode: Mode, parameters: &Parameters, extent: &Extent) -> Work {
    let stored = extent.arenas(case) * parameters.arena_blocks();
    let first = if case == Case::Fresh { stored } else { 0 };
    let blocks = match case {
        Case::SequentialRead | Case::SequentialDuplicate | Case::Fresh => {
            let blocks = extent.blocks(case, mode, parameters);
            (first as u32..(first + blocks) as u32).collect()
        }
        _ => extent.out_of_order(parameters),
    };
    let log = Log::filled(stored as u32);
    let is_read = matches!(case, Case::SequentialRead | Case::OutOfOrderRead);
    match mode {
        Mode::Ours if is_read => {
            let writer = OurWriter::new(*parameters, log);
            let mut reader = writer.reader();
            blocks.iter().for_each(|block| reader.read(*block));
            Work { archive: reader.traffic(), ..Work::default() }
        }
        Mode::Ours => {
            let mut writer = OurWriter::new(*parameters, log);
            if case == Case::OutOfOrderCached {
                writer.remember();
            }
            writer.backup(&blocks);
            writer.work()
        }
        _ if is_read => {
            let mut reader = Reader::new(mode, *parameters, &log);
            blocks.iter().for_each(|block| reader.read(*block));
            Work { archive: reader.traffic(), ..Work::default() }
        }
        _ => {
            let log = if case == Case::Fresh { Log::default() } else { log };
            let mut writer = Writer::new(mode, *parameters, Habit::Everything, log);
            if case == Case::OutOfOrderCached {
                writer.remember(blocks.iter().copied());
            }
            writer.write_all(&blocks);
            writer.work()
        }
    }
}
