//! Figure 5: the disk operations of each case, counted by thought.
//!
//! The figure itself is not in the text that we have, so its counts were derived again, from these
//! sentences of the paper:
//!
//! - §3.1: a miss in both caches costs Venti "at least one seek to read the index"; the head is then
//!   elsewhere, so reading the block costs another. A fresh write is "three seeks: one to read the
//!   index and determine the write is fresh, one to append the new block to the log, and one to
//!   update the index" (§3.2), which also shows that returning to the log counts.
//! - §3.2: each time Foundation reads its index, "it loads and caches the entire summary for the
//!   arena", which "costs an additional seek", for "out-of-order disk reads and for the first disk
//!   read in each arena". Fresh writes do "no seeks within the index", except for false positives,
//!   until the buffer is full; then follows "a single, sequential pass over the index".
//! - §3.3: by value, reads need no index; candidates are found as by hash, and read: for sequential
//!   duplicates with "a seek only at the start of each new arena", otherwise with "a seek per
//!   write". If the entry is cached, Venti and hash do "without any disk activity at all".
//! - §5.1: the image is read from the local disk meanwhile, by an arm of its own.
//!
//! What the text leaves open, and what is assumed here: a pass over the index reads and writes all
//! of it, with a seek for each; a false positive costs a seek to the index and one back; a full
//! arena's summary is written at once, with a seek there and one to the next arena.

use super::cases::{Case, Extent};
use super::disk::{Traffic, Work};
use super::parameters::{
    FILTER_PERIOD, INDEX_BYTES_A_KEY, Mode, PAGE_BYTES, PARITY_PER_MILLE, Parameters,
    READ_AHEAD_BYTES, TABLE_RECORDS,
};

/// The seeks of the archive's disk in words, as figure 5 would say it.
pub fn in_words(case: Case, mode: Mode) -> &'static str {
    match (case, mode) {
        (Case::SequentialRead, Mode::Venti) => "index and log, each block",
        (Case::SequentialRead, Mode::Hash) => "index, summary and log, each arena",
        (Case::SequentialRead, Mode::Value) => "log, each arena",
        (Case::SequentialRead, Mode::Ours) => "arena with summary, each arena",
        (Case::OutOfOrderRead, Mode::Venti) => "index and log",
        (Case::OutOfOrderRead, Mode::Hash) => "index, summary and log",
        (Case::OutOfOrderRead, Mode::Value) => "log",
        (Case::OutOfOrderRead, Mode::Ours) => "summary and 256 KiB",
        (Case::SequentialDuplicate, Mode::Venti) => "index, each block",
        (Case::SequentialDuplicate, Mode::Hash) => "index and summary, each arena",
        (Case::SequentialDuplicate, Mode::Value) => "index, summary and log, each arena",
        (Case::OutOfOrderDuplicate, Mode::Venti) => "index",
        (Case::OutOfOrderDuplicate, Mode::Hash) => "index and summary",
        (Case::OutOfOrderDuplicate, Mode::Value) => "index, summary and log",
        (Case::OutOfOrderCached, Mode::Value) => "log",
        (Case::OutOfOrderCached, _) => "none",
        (Case::SequentialDuplicate | Case::OutOfOrderDuplicate, Mode::Ours) => "none; local: index",
        (Case::Fresh, Mode::Venti) => "index, log and index, each block",
        (Case::Fresh, Mode::Hash | Mode::Value) => "two for an arena, a flush, a false positive",
        (Case::Fresh, Mode::Ours) => "arena, each arena",
    }
}

/// What a case asks of the disks, by the counts.
pub fn predict(case: Case, mode: Mode, parameters: &Parameters, extent: &Extent) -> Work {
    let blocks = extent.blocks(case, mode, parameters);
    let archive = match mode {
        Mode::Ours => ours(case, blocks, parameters, extent),
        _ => theirs(case, mode, blocks, parameters, extent),
    };
    let local = match (case, mode) {
        (Case::SequentialRead | Case::OutOfOrderRead, _) => Traffic::default(),
        (_, Mode::Ours) => our_index(case, blocks, parameters),
        _ => Traffic { seeks: 1, read: blocks * parameters.block_bytes, written: 0 },
    };
    Work { local, archive }
}

fn theirs(case: Case, mode: Mode, blocks: u64, p: &Parameters, extent: &Extent) -> Traffic {
    let arenas = extent.arenas(case);
    let summary = p.summary_bytes(mode, p.arena_blocks());
    let (data, bucket) = (blocks * p.block_bytes, p.bucket_bytes);
    let reads = |seeks, read| Traffic { seeks, read, written: 0 };
    match (case, mode) {
        (Case::Fresh, Mode::Venti) => {
            Traffic { seeks: 3 * blocks, read: blocks * bucket, written: data + blocks * bucket }
        }
        (Case::Fresh, _) => fresh(mode, blocks, p),
        (Case::SequentialRead | Case::OutOfOrderRead, Mode::Venti) => {
            reads(2 * blocks, blocks * bucket + data)
        }
        (Case::SequentialDuplicate | Case::OutOfOrderDuplicate, Mode::Venti) => {
            reads(blocks, blocks * bucket)
        }
        (Case::SequentialRead, Mode::Hash) => reads(3 * arenas, arenas * (bucket + summary) + data),
        (Case::SequentialRead, _) => reads(arenas, data),
        (Case::OutOfOrderRead, Mode::Hash) => reads(3 * blocks, blocks * (bucket + summary) + data),
        (Case::OutOfOrderRead, _) => reads(blocks, data),
        (Case::SequentialDuplicate, Mode::Hash) => reads(2 * arenas, arenas * (bucket + summary)),
        (Case::SequentialDuplicate, _) => reads(3 * arenas, arenas * (bucket + summary) + data),
        (Case::OutOfOrderDuplicate, Mode::Hash) => reads(2 * blocks, blocks * (bucket + summary)),
        (Case::OutOfOrderDuplicate, _) => reads(3 * blocks, blocks * (bucket + summary) + data),
        (Case::OutOfOrderCached, Mode::Value) => reads(blocks, data),
        (Case::OutOfOrderCached, _) => Traffic::default(),
    }
}

/// Fresh writes of Foundation. The seeks back to the log are those after a flush and after a false
/// positive, but for those that coincide with a new arena or with each other.
fn fresh(mode: Mode, blocks: u64, p: &Parameters) -> Traffic {
    let (arena_blocks, buffer) = (p.arena_blocks(), p.buffer_entries(mode));
    let (period, first) = (p.false_positive_period, p.false_positive_period / 2);
    let arenas = blocks.div_ceil(arena_blocks);
    let summary = p.summary_bytes(mode, arena_blocks);
    let flushes = blocks / buffer;
    let errs = |block: u64| block % period == first;
    let errors = (first..blocks).step_by(period as usize);
    let after_errors = errors.clone().filter(|block| !block.is_multiple_of(arena_blocks));
    let after_flushes = (1..=flushes)
        .map(|flush| flush * buffer)
        .filter(|block| *block < blocks && !block.is_multiple_of(arena_blocks) && !errs(*block));
    let errors = errors.count() as u64;
    let back = (after_errors.count() + after_flushes.count()) as u64;
    let index = flushes * p.index_bytes(mode);
    Traffic {
        seeks: arenas + (arenas - 1) + 2 * flushes + errors + back,
        read: errors * p.bucket_bytes + index,
        written: blocks * p.block_bytes + (arenas - 1) * summary + index,
    }
}

fn ours(case: Case, blocks: u64, p: &Parameters, extent: &Extent) -> Traffic {
    let (arenas, data) = (extent.arenas(case), blocks * p.block_bytes);
    let preamble = p.preamble_bytes(p.arena_blocks());
    match case {
        Case::SequentialRead => {
            Traffic { seeks: arenas, read: arenas * preamble + data, written: 0 }
        }
        Case::OutOfOrderRead => {
            // The visits of an arena that share a sealed block find it read, if there are few
            // enough arenas; the cases are made so that there are not.
            let unit = p.unit_blocks() * p.block_bytes;
            Traffic { seeks: 2 * blocks, read: blocks * (preamble + unit), written: 0 }
        }
        Case::Fresh => {
            let body = preamble + p.arena_bytes;
            let written = arenas * (body + (body * PARITY_PER_MILLE).div_ceil(1_000));
            Traffic { seeks: arenas, read: 0, written }
        }
        _ => Traffic::default(),
    }
}

/// The local disk, with our index on it: the image is read in pieces, and the arm returns to it for
/// a piece if anything was looked up or written since the piece before.
fn our_index(case: Case, blocks: u64, p: &Parameters) -> Traffic {
    let piece_blocks = (READ_AHEAD_BYTES / p.block_bytes).max(1);
    let pieces = blocks.div_ceil(piece_blocks);
    let image = blocks * p.block_bytes;
    match case {
        Case::OutOfOrderCached => Traffic { seeks: 1, read: image, written: 0 },
        Case::Fresh => {
            let first = FILTER_PERIOD / 2;
            let errors = (first..=blocks).step_by(FILTER_PERIOD as usize).count() as u64;
            let spills = blocks.div_ceil(TABLE_RECORDS);
            // Whether one of the blocks `from` + 1 to `to`, counted from one, is `at` in a period.
            let has = |from: u64, to: u64, period: u64, at: u64| {
                (to + period - at) / period > (from + period - at) / period
            };
            let left = (0..pieces - 1).filter(|piece| {
                let (from, to) = (piece * piece_blocks, (piece + 1) * piece_blocks);
                has(from, to, FILTER_PERIOD, first) || has(from, to, TABLE_RECORDS, 0)
            });
            Traffic {
                seeks: 1 + left.count() as u64 + errors + spills,
                read: image + errors * PAGE_BYTES,
                written: blocks * INDEX_BYTES_A_KEY,
            }
        }
        _ => Traffic { seeks: pieces + blocks, read: image + blocks * PAGE_BYTES, written: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::simulate;
    use super::super::disk::PAPER as DISKS;
    use super::super::parameters;
    use super::*;

    /// Small enough for a test, with arenas, buffers and caches in the paper's proportions.
    fn small(block_bytes: u64) -> Parameters {
        Parameters {
            block_bytes,
            arena_bytes: 1_024 * block_bytes,
            log_bytes_max: 100_000 * block_bytes,
            write_buffer_bytes: 28 * 10_300,
            block_cache_bytes: 4 * block_bytes,
            ..parameters::PAPER
        }
    }

    const EXTENT: Extent =
        Extent { arenas_in_order: 300, arenas_visited: 400, visits: 2, flushes: 3 };

    #[test]
    fn simulation_and_counts_agree_exactly() {
        for parameters in [small(512), small(4_096), small(32_768)] {
            for (case, mode) in every() {
                let simulated = simulate(case, mode, &parameters, &EXTENT);
                let predicted = predict(case, mode, &parameters, &EXTENT);
                assert_eq!(simulated, predicted, "{case:?} {mode:?} {}", parameters.block_bytes);
            }
        }
    }

    /// Figure 6 by hand: what a block or an arena costs on the Maxtor, in milliseconds.
    #[test]
    fn speeds_by_hand() {
        let speed = |case, mode| {
            let blocks = Extent::FULL.blocks(case, mode, &parameters::PAPER);
            let work = predict(case, mode, &parameters::PAPER, &Extent::FULL);
            blocks as f64 * 512.0 / work.seconds(&DISKS) / 1e6
        };
        let near = |speed: f64, bytes: f64, milliseconds: f64| {
            let expected = bytes / milliseconds / 1e3;
            assert!((speed / expected - 1.0).abs() < 2e-3, "{speed} instead of {expected}");
        };
        let arena = f64::from(16 << 20);
        // Two seeks, and 8 KiB + 512 bytes at 32.2 MB/s.
        near(speed(Case::SequentialRead, Mode::Venti), 512.0, 27.2 + 8.704 / 32.2);
        // Three seeks; the arena, its summary and a bucket.
        let hash = 40.8 + (arena + 851_968.0 + 8_192.0) / 32_200.0;
        near(speed(Case::SequentialRead, Mode::Hash), arena, hash);
        near(speed(Case::SequentialRead, Mode::Value), arena, 13.6 + arena / 32_200.0);
        near(speed(Case::OutOfOrderRead, Mode::Value), 512.0, 13.6 + 0.512 / 32.2);
        near(speed(Case::OutOfOrderCached, Mode::Hash), 512.0, 0.512 / 38.5);
        near(speed(Case::Fresh, Mode::Venti), 512.0, 40.8 + 8.192 / 32.2 + 8.704 / 26.5);
        // A flush is 5.64 GB read and written, after 4,793,490 blocks.
        let blocks = 4_793_490.0;
        let flush = 5.642e9 / 32_200.0 + 5.642e9 / 26_500.0;
        let data = blocks * (512.0 + 26.0) / 26_500.0;
        let seeks = blocks / 1_000.0 * (27.2 + 8.192 / 32.2) + blocks / 32_768.0 * 27.2;
        near(speed(Case::Fresh, Mode::Hash), blocks * 512.0, flush + data + seeks);
    }

    /// The sentences of §5.1 that compare modes.
    #[test]
    fn the_order_is_the_papers() {
        let speed = |case, mode| {
            let blocks = Extent::FULL.blocks(case, mode, &parameters::PAPER);
            let work = predict(case, mode, &parameters::PAPER, &Extent::FULL);
            blocks as f64 / work.seconds(&DISKS)
        };
        let [venti, hash, value] =
            [Mode::Venti, Mode::Hash, Mode::Value].map(|mode| move |case| speed(case, mode));
        // Hash is much faster than Venti in sequence, slower out of order; value reads faster.
        assert!(hash(Case::SequentialRead) > 100.0 * venti(Case::SequentialRead));
        assert!(hash(Case::SequentialDuplicate) > 100.0 * venti(Case::SequentialDuplicate));
        assert!(hash(Case::OutOfOrderRead) < venti(Case::OutOfOrderRead));
        assert!(hash(Case::OutOfOrderDuplicate) < venti(Case::OutOfOrderDuplicate));
        for case in [Case::SequentialRead, Case::OutOfOrderRead] {
            assert!(value(case) > hash(case), "{case:?}");
        }
        // By value, duplicates are slower; the most so if only the block is not cached.
        assert!(value(Case::SequentialDuplicate) < hash(Case::SequentialDuplicate));
        assert!(value(Case::SequentialDuplicate) > 0.7 * hash(Case::SequentialDuplicate));
        assert!(value(Case::OutOfOrderCached) < hash(Case::OutOfOrderCached) / 500.0);
        assert_eq!(hash(Case::OutOfOrderCached), venti(Case::OutOfOrderCached));
        // Fresh writes: by value the buffer is full less often.
        assert!(value(Case::Fresh) > hash(Case::Fresh));
        assert!(hash(Case::Fresh) > 100.0 * venti(Case::Fresh));
    }

    fn every() -> impl Iterator<Item = (Case, Mode)> {
        Case::ALL.into_iter().flat_map(|case| Mode::ALL.map(|mode| (case, mode)))
    }
}
