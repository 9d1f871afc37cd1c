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
        let known = self.known.entry(key(version)).or_insert(Version::Ended(Ok(())));
        match known {
            Version::Storing { times, .. } => *times += 1,
            Version::Ended(_) => *known = Version::Storing { times: 1, waiting: Vec::new() },
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
            None => Known::Nothing,
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    fn forget_oldest(&mut self, newest: Key) {
        self.ended.push_back(newest);
        if self.ended.len() <= ENDED_MAX {
            return;
        }
        let Some(oldest) = self.ended.pop_front() else { return };
        // It may have been stored again since.
        if matches!(self.known.get(&oldest), Some(Version::Ended(_)))
            && !self.ended.contains(&oldest)
        {
            self.known.remove(&oldest);
        }
    }
}

fn key(version: &VersionText) -> Key {
    (version.name.clone(), version.version)
}
