//! How much of the processors a backup takes while the guest runs.
//!
//! A guest's write wakes several threads of QEMU, one after another, and each may find its processor
//! taken. Few do if this process rests for as long as it works. Reading waits, and all else waits for
//! what is read.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use strongroom_base::Stopwatch;

/// Rests at most this long at once.
const REST_MAX: Duration = Duration::from_millis(100);

/// Rests while this process has used more than its share.
#[derive(Debug)]
pub struct Pace {
    /// Of how many processors.
    share: f64,
    since: Stopwatch,
    used_before: Duration,
}

impl Pace {
    /// From now on, `share` seconds of a processor's time for each second.
    pub fn new(share: f64) -> Self {
        Self { share, since: Stopwatch::start(), used_before: used() }
    }

    /// Waits until what was used is within the share.
    pub fn rest(&self) {
        loop {
            let owed = (used().saturating_sub(self.used_before)).div_f64(self.share);
            let Some(rest) = owed.checked_sub(self.since.elapsed()) else { return };
            if rest.is_zero() {
                return;
            }
            std::thread::sleep(rest.min(REST_MAX));
        }
    }
}

/// The processors' time that this process has used.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_followed_by_rest() {
        let pace = Pace::new(0.25);
        let (watch, before) = (Stopwatch::start(), used());
        while used().saturating_sub(before) < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        pace.rest();
        assert!(watch.elapsed() >= Duration::from_millis(200), "{:?}", watch.elapsed());
    }
}
