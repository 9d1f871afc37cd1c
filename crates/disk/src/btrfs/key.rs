//! The names of items.

use crate::fields::{byte, le64};

/// The name of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
}

/// A key as it is stored.
pub(super) fn key(bytes: &[u8]) -> Key {
    Key { object: le64(bytes, 0), kind: byte(bytes, 8), offset: le64(bytes, 9) }
}
