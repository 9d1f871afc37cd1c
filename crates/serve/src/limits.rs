//! What connections may take of this machine, all of them together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Condvar, Mutex, PoisonError};

/// Objects are checked in memory; all checks together take no more than this, unless one object is
/// larger: then it is checked alone.
pub(crate) const CHECKED_BYTES: usize = 64 << 20;
/// A listing counts as no more of it than this, so that a room whose disk hangs leaves something to others.
const LISTED_BYTES_MAX: usize = CHECKED_BYTES / 4;
/// What an object of a listing takes in memory, about.
const LISTED_BYTES: usize = 256;
/// Listings that wait in memory because no disk takes them have no more bytes than this in all.
const KEPT_BYTES: usize = 64 << 20;
/// Those of one token.
const KEPT_BYTES_OF_ONE: usize = KEPT_BYTES / 2;

/// Memory for checks and listings, shared by all connections.
#[derive(Debug)]
pub struct Limits {
    // Plain mutexes: held while a number or an entry changes. Waiting is on the conditions.
    free: Mutex<usize>,
    freed: Condvar,
    /// Tokens and rooms for which a listing is made now.
    listing: Mutex<BTreeSet<String>>,
    listed: Condvar,
    /// Bytes of listings that wait in memory, by their tokens.
    kept: Mutex<HashMap<String, usize>>,
}

/// The right to hold this many bytes, until it is dropped.
pub(crate) struct Allowance<'a> {
    limits: &'a Limits,
    bytes: usize,
}

/// The right to make a listing, until it is dropped.
pub(crate) struct Turn<'a> {
    limits: &'a Limits,
    key: String,
}

/// Bytes of a listing that waits in memory, until it is dropped.
pub(crate) struct Kept<'a> {
    limits: &'a Limits,
    token: String,
    bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            free: Mutex::new(CHECKED_BYTES),
            freed: Condvar::new(),
            listing: Mutex::default(),
            listed: Condvar::new(),
            kept: Mutex::default(),
        }
    }
}

impl Limits {
    /// Waits until this many bytes may be held.
    pub(crate) fn take(&self, bytes: usize) -> Allowance<'_> {
        let bytes = bytes.min(CHECKED_BYTES);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < bytes {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Allowance { limits: self, bytes }
    }

    /// Waits until this many objects may be in memory for a listing.
    pub(crate) fn take_listing(&self, objects: usize) -> Allowance<'_> {
        self.take(objects.saturating_mul(LISTED_BYTES).min(LISTED_BYTES_MAX))
    }

    /// Waits until no other listing is made for this token.
    pub(crate) fn turn_of_token(&self, token: &str) -> Turn<'_> {
        self.turn(format!("token {token}"))
    }

    /// Waits until no other listing of this room is made. A token has its own turn before, so that in a room
    /// each token waits for one listing of each other.
    pub(crate) fn turn_of_room(&self, room: &str) -> Turn<'_> {
        self.turn(format!("room {room}"))
    }

    fn turn(&self, key: String) -> Turn<'_> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        while listing.contains(&key) {
            listing = self.listed.wait(listing).unwrap_or_else(PoisonError::into_inner);
        }
        listing.insert(key.clone());
        Turn { limits: self, key }
    }

    /// Room for a listing that waits in memory.
    pub(crate) fn keep(&self, token: &str) -> Kept<'_> {
        Kept { limits: self, token: token.to_owned(), bytes: 0 }
    }
}

impl Kept<'_> {
    /// Takes room for this many bytes in all; false, and nothing is changed, if there is none. One that waits
    /// alone may have any: a listing comes before every removal, and so before there is room on a disk.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let mut kept = self.limits.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize = kept.values().sum::<usize>() - self.bytes;
        let own = kept.get(&self.token).copied().unwrap_or(0) - self.bytes;
        let is_more = bytes > self.bytes;
        let is_much = others + bytes > KEPT_BYTES || own + bytes > KEPT_BYTES_OF_ONE;
        if is_more && is_much && others > 0 {
            return false;
        }
        match own + bytes {
            0 => kept.remove(&self.token),
            bytes => kept.insert(self.token.clone(), bytes),
        };
        self.bytes = bytes;
        true
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.hold(0);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut listing = self.limits.listing.lock().unwrap_or_else(PoisonError::into_inner);
        listing.remove(&self.key);
        self.limits.listed.notify_all();
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        *self.limits.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.limits.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// A room whose disk hangs, or a token that lists without end, holds up itself alone.
    #[test]
    fn a_listing_waits_for_no_other_token_and_room() {
        let limits = Limits::default();
        let _hangs = (limits.turn_of_token("a"), limits.turn_of_room("a"));
        let _memory = limits.take_listing(usize::MAX);
        let (sender, made) = channel();
        std::thread::scope(|scope| {
            let list = |token: &'static str, room: &'static str| {
                let (limits, sender) = (&limits, sender.clone());
                scope.spawn(move || {
                    let _turns = (limits.turn_of_token(token), limits.turn_of_room(room));
                    let _memory = limits.take_listing(100_000);
                    sender.send(token).unwrap();
                });
            };
            list("a", "a");
            list("b", "b");
            let first = made.recv_timeout(Duration::from_secs(20));
            let second = made.recv_timeout(Duration::from_millis(200));
            drop(_hangs);
            assert_eq!((first, second.is_err()), (Ok("b"), true));
            assert_eq!(made.recv_timeout(Duration::from_secs(20)), Ok("a"));
        });
    }

    #[test]
    fn what_waits_in_memory_is_bounded_for_a_token_and_in_all() {
        let limits = Limits::default();
        let mut of_a = limits.keep("a");
        assert!(of_a.hold(3 * KEPT_BYTES) && of_a.hold(KEPT_BYTES_OF_ONE), "alone");
        let [mut more, mut of_b, mut of_c] = ["a", "b", "c"].map(|token| limits.keep(token));
        assert!(!more.hold(1));
        assert!(of_b.hold(1) && !of_a.hold(KEPT_BYTES_OF_ONE + 1));
        assert!(of_b.hold(KEPT_BYTES_OF_ONE) && !of_c.hold(1));
        drop(of_a);
        assert!(more.hold(1) && of_c.hold(1));
        drop((more, of_b, of_c));
        assert!(limits.kept.lock().unwrap().is_empty());
    }
}
