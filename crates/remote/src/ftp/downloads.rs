//! Transfers that have more to give.
//!
//! FTP has no request for a part of an object: a server sends from a place on to the end. So a
//! transfer stays open when its reader has enough, and the next part is taken from the same stream.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_backend::ObjectName;

use super::control::{Control, Stream};

/// Transfers that are kept: each holds a connection.
const KEPT_MAX: usize = 4;
/// A stream is read on to a place at most this far ahead: less than what is on its way anyway.
const AHEAD_MAX: u64 = 512 << 10;

/// A transfer of an object.
pub(super) struct Download {
    pub(super) name: ObjectName,
    /// Where in the object the stream is.
    pub(super) at: u64,
    pub(super) control: Control,
    pub(super) stream: Stream,
}

/// Transfers of which nothing is being read now, the oldest first.
#[derive(Default)]
pub(super) struct Downloads {
    // A plain mutex: held for a look or a change of the list.
    kept: Mutex<VecDeque<Download>>,
}

impl Downloads {
    /// The one that comes to this place of the object next, if one does soon.
    pub(super) fn take(&self, name: &ObjectName, offset: u64) -> Option<Download> {
        let mut kept = self.lock();
        let comes_soon = |download: &Download| {
            download.name == *name
                && (download.at..=download.at.saturating_add(AHEAD_MAX)).contains(&offset)
        };
        let fitting = kept.iter().enumerate().filter(|(_, download)| comes_soon(download));
        let (place, _) = fitting.max_by_key(|(_, download)| download.at)?;
        kept.remove(place)
    }

    /// Keeps one. Returns the oldest if there are too many.
    pub(super) fn keep(&self, download: Download) -> Option<Download> {
        let mut kept = self.lock();
        kept.push_back(download);
        if kept.len() > KEPT_MAX { kept.pop_front() } else { None }
    }

    /// Drops those of an object, or all.
    pub(super) fn drop_of(&self, name: Option<&ObjectName>) {
        self.lock().retain(|download| name.is_some_and(|name| download.name != *name));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Download>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
