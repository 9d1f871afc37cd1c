//! How much of something each user has: it is counted as long as it is there, so that no one counts it
//! again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts, by user.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: usize,
    /// Users who have any.
    of_user: BTreeMap<u32, usize>,
}

/// One that is counted until it is dropped.
#[derive(Debug)]
pub struct Counted {
    counts: Counts,
    user: u32,
}

impl Counts {
    /// One more of a user.
    pub fn count(&self, user: u32) -> Counted {
        let mut state = self.state();
        state.all += 1;
        *state.of_user.entry(user).or_default() += 1;
        drop(state);
        Counted { counts: self.clone(), user }
    }

    /// How many a user has.
    pub fn of(&self, user: u32) -> usize {
        self.state().of_user.get(&user).copied().unwrap_or_default()
    }

    /// How many all have.
    pub fn all(&self) -> usize {
        self.state().all
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.counts.state();
        state.all -= 1;
        if let Some(count) = state.of_user.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                state.of_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_not_counted() {
        let counts = Counts::default();
        let (one, two, other) = (counts.count(1), counts.count(1), counts.count(2));
        assert_eq!((counts.of(1), counts.of(2), counts.of(3), counts.all()), (2, 1, 0, 3));
        drop((one, other));
        assert_eq!((counts.of(1), counts.of(2), counts.all()), (1, 0, 1));
        drop(two);
        assert_eq!(counts.state().of_user.len(), 0);
    }
}
