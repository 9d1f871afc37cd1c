//! The target, entry by entry.
