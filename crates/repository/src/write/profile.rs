//! How long each stage of a backup was at work: which one bound it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strongroom_base::Stopwatch;

/// A stage of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Listing directories, and asking for what stands in them.
    Walk,
    /// Opening, reading, cutting and naming the chunks of files.
    Read,
    /// The thread that compares with the parent, looks chunks up, encodes deltas and builds trees,
    /// waiting for another stage.
    Wait,
    /// Compressing and sealing blocks.
    Compress,
    /// Parity and signatures of arenas.
    Protect,
    /// Writing arenas to the backend.
    Write,
}

/// Time at work, summed over the threads of each stage.
#[derive(Debug, Default)]
pub struct StageTimes {
    nanoseconds: [AtomicU64; 6],
}

impl StageTimes {
    /// Does some work of a stage.
    pub fn time<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let begun = Stopwatch::start();
        let made = work();
        self.add(stage, begun.elapsed());
        made
    }

    /// Adds time that a stage was at work.
    pub fn add(&self, stage: Stage, spent: Duration) {
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds[stage as usize].fetch_add(spent, Ordering::Relaxed);
    }

    /// How long a stage was at work so far.
    pub fn of(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.nanoseconds[stage as usize].load(Ordering::Relaxed))
    }
}

/// What each stage of a backup took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    /// From beginning to end.
    pub whole: Duration,
    /// Walking: on one thread.
    pub walk: Duration,
    /// Reading, on so many threads.
    pub read: (Duration, usize),
    /// Comparing with the parent, looking up, encoding, building trees: on one thread.
    pub store: Duration,
    /// Compressing, on so many threads.
    pub compress: (Duration, usize),
    /// Parity and signatures: on one thread.
    pub protect: Duration,
    /// Writing: on one thread.
    pub write: Duration,
}

impl Profile {
    /// The stages by name, each with the share of its threads' time that it was at work; the one
    /// that bound the backup is the one nearest to 1.
    pub fn shares(&self) -> [(&'static str, f64); 6] {
        let share = |busy: Duration, threads: usize| {
            let whole = self.whole.as_secs_f64() * threads.max(1) as f64;
            if whole > 0.0 { busy.as_secs_f64() / whole } else { 0.0 }
        };
        [
            ("walk", share(self.walk, 1)),
            ("read", share(self.read.0, self.read.1)),
            ("store", share(self.store, 1)),
            ("compress", share(self.compress.0, self.compress.1)),
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
        let times = StageTimes::default();
        times.time(Stage::Compress, || std::thread::sleep(Duration::from_millis(20)));
        assert!(times.of(Stage::Compress) >= Duration::from_millis(20));
        assert_eq!(times.of(Stage::Read), Duration::ZERO);
        let second = Duration::from_secs(1);
        let profile = Profile {
            whole: second * 2,
            walk: second / 2,
            read: (second, 4),
            store: second,
            compress: (second * 3, 2),
            protect: second / 4,
            write: second / 8,
        };
        let shares = profile.shares().map(|(_, share)| share);
        assert_eq!(shares, [0.25, 0.125, 0.5, 0.75, 0.125, 0.0625]);
        assert_eq!(Profile::default().shares().map(|(_, share)| share), [0.0; 6]);
    }
}
