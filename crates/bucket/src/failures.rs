//! Stores of copies that failed after their calls had returned, until the program waits for them. A
//! program may never do so: of the oldest, nothing is kept, and its wait asks the agent alone.

use std::collections::{BTreeMap, VecDeque};

/// Failures that are kept.
const FAILURES_MAX: usize = 256;

/// The name and the version of a store.
pub type CopyName = (String, u64);

/// Why stores of copies failed.
#[derive(Debug, Default)]
pub struct Failures {
    reasons: BTreeMap<CopyName, String>,
    /// The keys of `reasons`, the one that failed first in front.
    order: VecDeque<CopyName>,
}

impl Failures {
    /// A store has failed.
    pub fn insert(&mut self, copy: CopyName, reason: String) {
        self.take(&copy);
        self.order.push_back(copy.clone());
        self.reasons.insert(copy, reason);
        if self.order.len() > FAILURES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.reasons.remove(&oldest);
        }
    }

    /// Why a store failed, if it did. It is forgotten.
    pub fn take(&mut self, copy: &CopyName) -> Option<String> {
        let reason = self.reasons.remove(copy)?;
        self.order.retain(|other| other != copy);
        Some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_until_they_are_taken() {
        let mut failures = Failures::default();
        for version in 0..FAILURES_MAX as u64 + 10 {
            failures.insert(("n".to_owned(), 5), "again".to_owned());
            failures.insert(("n".to_owned(), version), version.to_string());
        }
        assert_eq!(failures.reasons.len(), FAILURES_MAX);
        assert_eq!(failures.order.len(), FAILURES_MAX);
        assert_eq!(failures.take(&("n".to_owned(), 8)), None);
        assert_eq!(failures.take(&("n".to_owned(), 5)).as_deref(), Some("again"));
        assert_eq!(failures.take(&("n".to_owned(), 200)).as_deref(), Some("200"));
        assert_eq!(failures.take(&("n".to_owned(), 200)), None);
        assert_eq!(failures.order.len(), FAILURES_MAX - 2);
    }
}
