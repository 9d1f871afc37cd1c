//! `auto` compression: the level goes up while the workers are idle, and down while they are what
//! everything else waits for.

use std::sync::atomic::{AtomicUsize, Ordering};

use strongroom_arena::CompressionLevel;

/// Where on [`CompressionLevel::LADDER`] the workers are.
pub struct Ladder {
    step: AtomicUsize,
    /// Blocks in a row that found the queue empty.
    idle: AtomicUsize,
    /// Blocks in a row that found the queue full.
    busy: AtomicUsize,
}

/// This many blocks in a row have to agree before the level changes.
const PATIENCE: usize = 3;

impl Ladder {
    /// At the default level.
    pub fn new() -> Self {
        let first = CompressionLevel::LADDER.iter().position(|l| *l == CompressionLevel::DEFAULT);
        let step = AtomicUsize::new(first.expect("the default is on the ladder"));
        Self { step, idle: AtomicUsize::new(0), busy: AtomicUsize::new(0) }
    }

    /// The level of the next block, by how many wait behind it in a queue with this much room.
    pub fn level(&self, waiting: usize, room: usize) -> CompressionLevel {
        let last = CompressionLevel::LADDER.len() - 1;
        let step = self.step.load(Ordering::Relaxed);
        let go_up = is_lasting(waiting == 0, &self.idle);
        let go_down = is_lasting(waiting >= room, &self.busy);
        let next = if go_up {
            (step + 1).min(last)
        } else if go_down {
            step.saturating_sub(1)
        } else {
            step
        };
        self.step.store(next, Ordering::Relaxed);
        CompressionLevel::LADDER[next]
    }
}

/// True once a condition held for [`PATIENCE`] blocks in a row; it is counted from the start then.
fn is_lasting(holds: bool, in_a_row: &AtomicUsize) -> bool {
    if holds && in_a_row.fetch_add(1, Ordering::Relaxed) + 1 < PATIENCE {
        return false;
    }
    in_a_row.store(0, Ordering::Relaxed);
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_rises_while_workers_are_idle_and_falls_while_all_wait_for_them() {
        let ladder = Ladder::new();
        let levels = |waiting: usize| (0..40).map(|_| ladder.level(waiting, 2)).collect::<Vec<_>>();
        assert_eq!(levels(1), vec![CompressionLevel::DEFAULT; 40]);
        let rising = levels(0);
        assert_eq!(rising[..2], [CompressionLevel::DEFAULT; 2]);
        assert_eq!(rising.last(), CompressionLevel::LADDER.last());
        assert_eq!(levels(2).last(), CompressionLevel::LADDER.first());
        assert!((0..7).all(|_| ladder.level(0, 2) <= ladder.level(2, 2)), "one a turn is nothing");
    }
}
