//! What each stage of a backup took: which one limited it.

use std::time::Duration;

use strongroom_repository::{Stage, StageTimes};

/// What each stage of a backup took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    /// From beginning to end.
    pub whole: Duration,
    /// Walking: on one thread.
    pub walk: Duration,
    /// Reading, summed over its threads.
    pub read: Duration,
    /// Threads that read.
    pub readers: usize,
    /// Comparing with the parent, looking up, encoding, building trees: on one thread.
    pub store: Duration,
    /// Compressing, summed over its threads.
    pub compress: Duration,
    /// Threads that compress.
    pub workers: usize,
    /// Parity and signatures: on one thread.
    pub protect: Duration,
    /// Writing: on one thread.
    pub write: Duration,
}

impl Profile {
    /// What was counted since a backup began `whole` ago.
    pub fn new(whole: Duration, times: &StageTimes, readers: usize, workers: usize) -> Self {
        Self {
            whole,
            walk: times.of(Stage::Walk),
            read: times.of(Stage::Read),
            readers,
            store: whole.saturating_sub(times.of(Stage::Wait)),
            compress: times.of(Stage::Compress),
            workers,
            protect: times.of(Stage::Protect),
            write: times.of(Stage::Write),
        }
    }

    /// The stages by name, each with the share of its threads' time that it was at work; the one
    /// that limited the backup is the one nearest to 1.
    pub fn shares(&self) -> [(&'static str, f64); 6] {
        let share = |busy: Duration, threads: usize| {
            let whole = self.whole.as_secs_f64() * threads.max(1) as f64;
            if whole > 0.0 { busy.as_secs_f64() / whole } else { 0.0 }
        };
        [
            ("walk", share(self.walk, 1)),
            ("read", share(self.read, self.readers)),
            ("store", share(self.store, 1)),
            ("compress", share(self.compress, self.workers)),
            ("protect", share(self.protect, 1)),
            ("write", share(self.write, 1)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_stage_has_the_largest_share() {
        let second = Duration::from_secs(1);
        let times = StageTimes::default();
        for (stage, spent) in [
            (Stage::Walk, second / 2),
            (Stage::Read, second),
            (Stage::Wait, second),
            (Stage::Compress, second * 3),
            (Stage::Protect, second / 4),
            (Stage::Write, second / 8),
        ] {
            times.add(stage, spent);
        }
        let shares = Profile::new(second * 2, &times, 4, 2).shares().map(|(_, share)| share);
        assert_eq!(shares, [0.25, 0.125, 0.5, 0.75, 0.125, 0.0625]);
        assert_eq!(Profile::default().shares().map(|(_, share)| share), [0.0; 6]);
    }
}
