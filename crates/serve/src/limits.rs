//! What connections may take of this machine, all of them together.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Objects are checked in memory; all checks together take no more than this, unless one object is
/// larger: then it is checked alone.
pub(crate) const CHECKED_BYTES: usize = 64 << 20;

/// Memory for checks and listings, shared by all connections.
#[derive(Debug)]
pub struct Limits {
    // A plain mutex: held while a listing is in memory.
    listing: Mutex<()>,
    // A plain mutex: held while a number changes. Waiting is on the condition.
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to hold this many bytes, until it is dropped.
pub(crate) struct Allowance<'a> {
    limits: &'a Limits,
    bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let free = Mutex::new(CHECKED_BYTES);
        Self { listing: Mutex::default(), free, freed: Condvar::new() }
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

    /// Waits until no other listing is in memory.
    pub(crate) fn list(&self) -> MutexGuard<'_, ()> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        *self.limits.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.limits.freed.notify_all();
    }
}
