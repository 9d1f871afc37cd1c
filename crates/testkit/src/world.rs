//! A clock for tests, which never says the same twice.

use std::sync::atomic::{AtomicI64, Ordering};

use strongroom_base::{Clock, Timestamp};

/// Starts at a fixed moment and goes on by one second each time it is asked.
#[derive(Debug)]
pub struct TickingClock(AtomicI64);

impl TickingClock {
    /// Noon of a day in 2026.
    pub const START: Timestamp = Timestamp(1_780_000_000_000_000_000);

    /// A clock that starts at [`TickingClock::START`].
    pub fn new() -> Self {
        Self(AtomicI64::new(Self::START.0))
    }
}

impl Default for TickingClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1_000_000_000, Ordering::Relaxed))
    }
}
