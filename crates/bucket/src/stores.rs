//! What the program had stored and does not know to be committed. The agent's word is taken for it only
//! on the connection of the store: the next agent knows nothing of it, and may find an older version of
//! the same number.
//!
//! - Of each version, the last store counts.
//! - A store ends in one of two ways: a wait on its connection succeeds, or it has failed. What has
//!   failed stays so until the version is stored again.

use std::collections::BTreeMap;

/// Stores that are remembered.
const STORES_MAX: usize = 1_024;

/// The name and the version of a store.
pub type Version = (String, u64);

/// Stores that are not known to be committed.
#[derive(Debug, Default)]
pub struct Stores {
    last: BTreeMap<Version, Store>,
    /// Stores that are not captured.
    sent: BTreeMap<u32, Version>,
    /// Requests that wait for a version, and the number of its last store by then.
    waiting: BTreeMap<u32, (Version, u64)>,
    /// Stores so far.
    count: u64,
    /// One was dropped. The agent of this connection knows of it.
    has_dropped: bool,
    /// One was dropped of which no agent knows whether it is committed.
    is_unsure: bool,
}

#[derive(Debug)]
struct Store {
    /// It is the n-th.
    number: u64,
    /// The agent has captured it.
    is_captured: bool,
    /// Why it is not committed, or not known to be.
    failure: Option<String>,
}

impl Stores {
    /// A version is to be stored, maybe again.
    pub fn begin(&mut self, request: u32, version: Version) {
        self.count += 1;
        let store = Store { number: self.count, is_captured: false, failure: None };
        self.last.insert(version.clone(), store);
        self.sent.insert(request, version);
        if self.last.len() > STORES_MAX {
            let oldest = self.last.iter().min_by_key(|(_, store)| store.number);
            if let Some(oldest) = oldest.map(|(version, _)| version.clone()) {
                let store = self.last.remove(&oldest);
                self.has_dropped = true;
                self.is_unsure |= store.is_some_and(|store| store.failure.is_some());
            }
        }
    }

    /// A store is captured.
    pub fn captured(&mut self, request: u32) {
        if let Some(store) = self.sent.remove(&request).and_then(|it| self.last.get_mut(&it)) {
            store.is_captured = true;
        }
    }

    /// A store has failed, if the request is one.
    pub fn failed(&mut self, request: u32, reason: &str) {
        self.waiting.remove(&request);
        if let Some(store) = self.sent.remove(&request).and_then(|it| self.last.get_mut(&it)) {
            store.failure = Some(reason.to_owned());
        }
    }

    /// A request is about to wait for a version.
    ///
    /// # Errors
    ///
    /// It is not committed, or the agent cannot know whether it is.
    pub fn wait(&mut self, request: u32, version: &Version) -> Result<(), String> {
        self.check(version)?;
        if let Some(store) = self.last.get(version) {
            self.waiting.insert(request, (version.clone(), store.number));
        }
        Ok(())
    }

    /// Why a version is not committed, or the agent cannot know whether it is.
    pub fn check(&self, version: &Version) -> Result<(), String> {
        match self.last.get(version) {
            Some(Store { failure: Some(reason), .. }) => Err(reason.clone()),
            None if self.is_unsure => Err(FORGOTTEN.to_owned()),
            _ => Ok(()),
        }
    }

    /// A request is carried out. If it waited for a version, that is committed as it was stored last.
    pub fn done(&mut self, request: u32) {
        if let Some((version, number)) = self.waiting.remove(&request)
            && self.last.get(&version).is_some_and(|store| store.number == number)
        {
            self.last.remove(&version);
        }
    }

    /// The connection is lost.
    pub fn lose(&mut self) {
        self.is_unsure |= self.has_dropped;
        self.sent.clear();
        self.waiting.clear();
        for store in self.last.values_mut() {
            let reason = if store.is_captured { UNKNOWN } else { NOT_CAPTURED };
            store.failure.get_or_insert_with(|| reason.to_owned());
        }
    }
}

const NOT_CAPTURED: &str = "the agent ended before it had captured it: store it again";
const UNKNOWN: &str =
    "the agent ended before it was known to be committed: store it again, and wait for it";
const FORGOTTEN: &str = "it is not known whether it was committed as it was stored last, since later \
    versions were stored and not waited for: store it again, and wait for it";

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> Version {
        ("n".to_owned(), number)
    }

    #[test]
    fn a_wait_counts_for_the_store_before_it_alone() {
        let mut stores = Stores::default();
        stores.begin(1, version(7));
        stores.captured(1);
        stores.wait(2, &version(7)).unwrap();
        stores.begin(3, version(7));
        stores.captured(3);
        stores.done(2);
        stores.lose();
        assert!(stores.check(&version(7)).unwrap_err().contains("known to be committed"));
        stores.begin(4, version(7));
        stores.captured(4);
        stores.wait(5, &version(7)).unwrap();
        stores.done(5);
        stores.lose();
        assert_eq!(stores.check(&version(7)), Ok(()));
    }

    #[test]
    fn what_failed_stays_so_until_it_is_stored_again() {
        let mut stores = Stores::default();
        stores.begin(1, version(7));
        stores.failed(1, "no room");
        stores.lose();
        for _ in 0..2 {
            assert_eq!(stores.wait(2, &version(7)), Err("no room".to_owned()));
        }
        stores.begin(3, version(7));
        stores.failed(1, "too late");
        assert_eq!(stores.wait(4, &version(7)), Ok(()));
    }

    #[test]
    fn the_oldest_are_dropped_and_the_next_agent_is_not_asked_for_them() {
        let mut stores = Stores::default();
        for number in 0..=STORES_MAX as u64 {
            stores.begin(number as u32, version(number));
        }
        assert_eq!((stores.last.len(), stores.check(&version(0))), (STORES_MAX, Ok(())));
        stores.lose();
        assert!(stores.check(&version(0)).unwrap_err().contains("not waited for"));
    }
}
