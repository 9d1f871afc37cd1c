//! What can be said of an object's bytes without a key.

use crate::ObjectName;

/// How much of an object there is in some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Soundness {
    /// Too little, or something else.
    Damaged,
    /// Enough to compute it; or nothing can be said.
    Repairable,
    /// All of it.
    Whole,
}

/// Says it of the bytes under a name. Nothing in this crate knows what an object holds, so who opens
/// a place gives it one.
pub type Judge = fn(&ObjectName, &[u8]) -> Soundness;
