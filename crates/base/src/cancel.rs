//! A wish to stop, handed down to everything that runs long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once by whoever wants an orderly stop; asked by the loops that do the work.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

/// The work stopped because it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

impl Cancel {
    /// Nobody has asked to stop yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A wish that is told by this flag, such as one that a signal sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Asks for an orderly stop; may be called from a signal handler's thread.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once a stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a stop was asked for.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}
