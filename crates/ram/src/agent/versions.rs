//! Versions that a program had stored since it connected, and who waits for them.

use std::collections::{BTreeMap, VecDeque};

use super::limits::ENDED_MAX;
use crate::about::VersionText;

type Key = (String, u64);

/// The versions of a bucket.
#[derive(Default)]
pub struct Versions {
    known: BTreeMap<Key, Version>,
    /// Those that have ended, oldest first: at most [`ENDED_MAX`].
    ended: VecDeque<Key>,
    /// One that failed is forgotten. The repository may have an earlier version of its number.
    is_unsure: bool,
    /// Requests that wait.
    waiting: usize,
}

/// How far a version is.
enum Version {
    /// It is being stored, or will be, this many times. These requests wait for the last of them.
    Storing { times: usize, waiting: Vec<u32> },
    /// It is committed, or failed for this reason.
    Ended(Result<(), String>),
}

/// What is known of a version for which a request asks.
pub enum Known {
    /// The request waits for it.
    Later,
    /// How it ended.
    Ended(Result<(), String>),
    /// Nothing: it may be in the repository.
    Nothing,
}

impl Versions {
    /// A version is to be stored, maybe again.
    pub fn begin(&mut self, version: &VersionText) {
        let key = key(version);
        match self.known.get_mut(&key) {
            Some(Version::Storing { times, .. }) => *times += 1,
            Some(Version::Ended(_)) | None => {
                self.ended.retain(|ended| *ended != key);
                self.known.insert(key, Version::Storing { times: 1, waiting: Vec::new() });
            }
        }
    }

    /// A version is committed, or failed. Returns the requests that waited for it.
    pub fn end(&mut self, version: &VersionText, outcome: &Result<(), String>) -> Vec<u32> {
        let key = key(version);
        if let Some(Version::Storing { times, .. }) = self.known.get_mut(&key)
            && *times > 1
        {
            *times -= 1;
            return Vec::new();
        }
        let ended = Version::Ended(outcome.clone());
        let waiting = match self.known.insert(key.clone(), ended) {
            Some(Version::Storing { waiting, .. }) => waiting,
            _ => Vec::new(),
        };
        self.waiting -= waiting.len();
        self.forget_oldest(key);
        waiting
    }

    /// A request asks for a version.
    pub fn ask(&mut self, request: u32, name: &str, version: u64) -> Known {
        match self.known.get_mut(&(name.to_owned(), version)) {
            Some(Version::Storing { waiting, .. }) => {
                waiting.push(request);
                self.waiting += 1;
                Known::Later
            }
            Some(Version::Ended(outcome)) => Known::Ended(outcome.clone()),
            None if self.is_unsure => Known::Ended(Err(FORGOTTEN.to_owned())),
            None => Known::Nothing,
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The oldest that is committed is forgotten first, since the repository has it; once that is not
    /// asked, the oldest.
    fn forget_oldest(&mut self, newest: Key) {
        self.ended.push_back(newest);
        if self.ended.len() <= ENDED_MAX {
            return;
        }
        let is_committed = |key| matches!(self.known.get(key), Some(Version::Ended(Ok(()))));
        let at = self.ended.iter().position(is_committed).filter(|_| !self.is_unsure);
        self.is_unsure |= at.is_none();
        if let Some(oldest) = self.ended.remove(at.unwrap_or(0)) {
            self.known.remove(&oldest);
        }
    }
}

fn key(version: &VersionText) -> Key {
    (version.name.clone(), version.version)
}

const FORGOTTEN: &str = "the agent does not know any more how it ended, since many versions failed: \
    store it again";

#[cfg(test)]
mod tests {
    use super::*;

    fn end(versions: &mut Versions, number: u64, outcome: &Result<(), String>) {
        let version = VersionText { name: "v".to_owned(), version: number };
        versions.begin(&version);
        versions.end(&version, outcome);
    }

    #[test]
    fn kept_1_12_what_failed_is_not_looked_up_in_the_repository() {
        let mut versions = Versions::default();
        let failed = Err("no room".to_owned());
        end(&mut versions, 0, &Ok(()));
        end(&mut versions, 0, &failed);
        for number in 1..2 * ENDED_MAX as u64 {
            end(&mut versions, number, &Ok(()));
        }
        assert!(versions.known.len() == ENDED_MAX && versions.ended.len() == ENDED_MAX);
        assert!(
            matches!(versions.ask(1, "v", 0), Known::Ended(Err(_))),
            "an older one has its name"
        );
        assert!(matches!(versions.ask(1, "v", 1), Known::Nothing), "the repository has it");
        // Of more failures than that, it is not known which they were.
        for number in 1..=ENDED_MAX as u64 {
            end(&mut versions, number, &failed);
        }
        assert!(matches!(versions.ask(1, "v", 0), Known::Ended(Err(_))));
        end(&mut versions, 0, &Ok(()));
        assert!(matches!(versions.ask(1, "v", 0), Known::Ended(Ok(()))));
    }
}
