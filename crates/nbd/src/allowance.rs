//! How much may be in flight: requests, and the bytes that they hold in memory.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a thread that waits looks whether waiting still has a purpose.
const LOOK: Duration = Duration::from_millis(200);

/// A limit on requests and on bytes. What is taken is given back by [`Allowance::give`].
#[derive(Debug)]
pub struct Allowance {
    // A plain mutex: held for a few additions.
    taken: Mutex<Taken>,
    changed: Condvar,
    requests_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    requests: usize,
    bytes: usize,
}

impl Allowance {
    pub fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self { taken: Mutex::default(), changed: Condvar::new(), requests_max, bytes_max }
    }

    /// Takes one request of this many bytes, and waits until it fits. One request always fits, even
    /// if it is larger than the limit. Returns false if `gives_up` said so first; then nothing was
    /// taken.
    pub fn take(&self, bytes: usize, gives_up: &dyn Fn() -> bool) -> bool {
        let mut taken = self.taken();
        loop {
            if gives_up() {
                return false;
            }
            let fits = taken.requests < self.requests_max
                && taken.bytes.saturating_add(bytes) <= self.bytes_max;
            if fits || taken.requests == 0 {
                taken.requests += 1;
                taken.bytes += bytes;
                return true;
            }
            taken = self.wait(taken);
        }
    }

    /// Gives one request back.
    pub fn give(&self, bytes: usize) {
        let mut taken = self.taken();
        taken.requests -= 1;
        taken.bytes -= bytes;
        drop(taken);
        self.changed.notify_all();
    }

    /// Waits until nothing is in flight.
    pub fn wait_until_empty(&self) {
        let mut taken = self.taken();
        while taken.requests > 0 {
            taken = self.wait(taken);
        }
    }

    fn wait<'a>(&self, taken: MutexGuard<'a, Taken>) -> MutexGuard<'a, Taken> {
        let waited = self.changed.wait_timeout(taken, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_waits() {
        let allowance = Allowance::new(2, 100);
        let never = || false;
        assert!(allowance.take(1000, &never), "one always fits");
        assert!(!allowance.take(1, &|| true));
        allowance.give(1000);
        assert!(allowance.take(50, &never) && allowance.take(50, &never));
        std::thread::scope(|scope| {
            let third = scope.spawn(|| allowance.take(10, &never));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!third.is_finished());
            allowance.give(50);
            assert!(third.join().unwrap());
        });
        allowance.give(50);
        allowance.give(10);
        allowance.wait_until_empty();
    }
}
