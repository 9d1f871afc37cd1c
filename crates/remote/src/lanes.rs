//! How many requests are in flight at a time: as many as suit the place, found by trying.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Answers in a row after which one more request is tried at a time.
const QUIET_ANSWERS: usize = 32;

/// A limit of the requests in flight. It is halved when the place asks for fewer, and grows by one
/// after a number of answers without such a complaint.
#[derive(Debug)]
pub(crate) struct Lanes {
    max: usize,
    // A plain mutex: held while numbers change. Waiting is on the condition.
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    limit: usize,
    taken: usize,
    quiet: usize,
}

/// The right to have one request in flight, until it is dropped.
pub(crate) struct Lane<'a>(&'a Lanes);

impl Lanes {
    /// At most `max` requests at a time.
    pub(crate) fn new(max: usize) -> Self {
        let state = State { limit: max.max(1), taken: 0, quiet: 0 };
        Self { max: max.max(1), state: Mutex::new(state), freed: Condvar::new() }
    }

    /// The most requests at a time.
    pub(crate) fn most(&self) -> usize {
        self.max
    }

    /// Waits until one more request may be in flight.
    pub(crate) fn take(&self) -> Lane<'_> {
        let mut state = self.state();
        while state.taken >= state.limit {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += 1;
        Lane(self)
    }

    /// The place answered.
    pub(crate) fn answered(&self) {
        let mut state = self.state();
        state.quiet += 1;
        if state.quiet >= QUIET_ANSWERS && state.limit < self.max {
            state.quiet = 0;
            state.limit += 1;
            drop(state);
            self.freed.notify_one();
        }
    }

    /// The place asked for fewer requests.
    pub(crate) fn is_too_many(&self) {
        let mut state = self.state();
        state.quiet = 0;
        state.limit = (state.limit / 2).max(1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.0.state().taken -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_halves_and_grows_again() {
        let lanes = Lanes::new(8);
        let limit = || lanes.state().limit;
        lanes.is_too_many();
        lanes.is_too_many();
        assert_eq!(limit(), 2);
        (0..QUIET_ANSWERS * 3).for_each(|_| lanes.answered());
        assert_eq!(limit(), 5);
        (0..QUIET_ANSWERS * 30).for_each(|_| lanes.answered());
        assert_eq!(limit(), 8);
        (0..9).for_each(|_| lanes.is_too_many());
        assert_eq!(limit(), 1);
    }

    #[test]
    fn no_more_are_in_flight_than_allowed() {
        let lanes = Lanes::new(3);
        let most = Mutex::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _lane = lanes.take();
                        let mut now = most.lock().unwrap();
                        now.0 += 1;
                        now.1 = now.1.max(now.0);
                        drop(now);
                        std::thread::yield_now();
                        most.lock().unwrap().0 -= 1;
                    }
                });
            }
        });
        let (left, most) = most.into_inner().unwrap();
        assert!(left == 0 && most <= 3, "{most}");
    }
}
