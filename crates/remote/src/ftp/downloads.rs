//! Transfers that have more to give.
//!
//! FTP has no request for a part of an object: a server sends from a place on to the end. So a
//! transfer stays open when its reader has enough, and the next part is taken from the same stream.
//! Of several readers of one object, one reads at a time, the one with the least offset first: so
//! their parts follow one another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

/// Who reads which object.
#[derive(Default)]
pub(super) struct Turns {
    // A plain mutex: held for a look or a change; the turn itself is waited for.
    objects: Mutex<Objects>,
    changed: Condvar,
}

#[derive(Default)]
struct Objects {
    /// Those that are being read, each with the offsets that wait, and a number for each wait.
    read: BTreeMap<ObjectName, BTreeSet<(u64, u64)>>,
    waits: u64,
}

/// The right to read an object, until it is dropped.
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    name: ObjectName,
}

impl Turns {
    /// Waits until no one else reads the object.
    pub(super) fn wait(&self, name: &ObjectName, offset: u64) -> Turn<'_> {
        let mut objects = self.lock();
        objects.waits += 1;
        let own = (offset, objects.waits);
        if let Some(waiting) = objects.read.get_mut(name) {
            waiting.insert(own);
            // The reader that ends takes the next one out: that has its turn then.
            while objects.read.get(name).is_some_and(|waiting| waiting.contains(&own)) {
                objects = self.changed.wait(objects).unwrap_or_else(PoisonError::into_inner);
            }
        } else {
            objects.read.insert(name.clone(), BTreeSet::new());
        }
        Turn { turns: self, name: name.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut objects = self.turns.lock();
        let next = objects.read.get_mut(&self.name).and_then(BTreeSet::pop_first);
        if next.is_none() {
            objects.read.remove(&self.name);
        }
        drop(objects);
        self.turns.changed.notify_all();
    }
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
