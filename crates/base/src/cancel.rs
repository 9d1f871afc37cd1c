//! A request to stop, passed down to everything that runs long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once to request an orderly stop; checked by the loops that do the work.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

/// The work stopped because a stop was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

impl Cancel {
    /// Without a request to stop.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a flag of the caller's, such as one that a signal sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Requests an orderly stop; may be called from a signal handler's thread.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once a stop was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once a stop was requested.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}
