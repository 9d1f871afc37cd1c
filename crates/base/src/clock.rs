//! Time as a parameter. Safety never depends on it; snapshots are only named by it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch, UTC, negative before it: the years 1677 to 2262. A time
/// outside of these becomes the nearest one inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// In the year 2262, and any later time.
    pub const LATEST: Self = Self(i64::MAX);
    /// In the year 1677, and any earlier time.
    pub const EARLIEST: Self = Self(i64::MIN);
}

/// A source of the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).map_or(Timestamp::LATEST, Timestamp),
            Err(before) => i64::try_from(before.duration().as_nanos())
                .map_or(Timestamp::EARLIEST, |nanos| Timestamp(-nanos)),
        }
    }
}

/// A clock that does not move, for tests.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// Measures how long something takes, for reports and for how long a cache is kept. Nothing that is
/// stored depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts to measure.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
