//! Fingerprint to opaque location: sealed sorted segments behind filters.
//!
//! The index answers one question: is this fingerprint known, and where? It is a *cache* in a local
//! directory. All of it can be lost and made again from arena summaries, so it is never flushed to
//! the medium and never repaired; it only promises that it **never gives a location that was not
//! put in for exactly that fingerprint**. If anything does not match, the error is
//! [`IndexError::Damaged`], and the caller starts over with [`Index::reset`].
//!
//! It knows nothing of arenas, encryption or the repository: a [`Value`] is a number, and the
//! *note* that is committed with the contents is bytes.
//!
//! # How it works
//!
//! * Insertions go to a table in memory (Foundation's buffered index updates). It is its own
//!   filter: asking it is one cache miss, as asking a Bloom filter in front of it would be.
//! * [`Index::flush`] seals the table into a **segment**: a file of records sorted by key in pages
//!   of 4 KiB. Thirty pages are a partition, and before them is its **head**, also one page: the
//!   first key of each page and an xor filter. So a key that is new costs one head of each segment,
//!   and a page of records for one false positive in 256; a key that is known costs one page more.
//! * The heads of the newest segments, which are the small ones, stay in memory, at most 16 MiB of
//!   them. The others are read for each look-up: they are a thirtieth of the whole and asked all
//!   the time, so the system keeps them in its page cache as long as it has room. In our own memory
//!   they need only eight bytes for each partition of 3060 records.
//! * When four segments are of like size they are merged into one, in a stream; and when the newer
//!   ones have a third of the oldest's records, all are. So most records are in one segment.
//! * A full table is spilled to a segment that no manifest names yet, so memory is bounded however
//!   much is inserted between two flushes.
//! * The manifest lists the segments that count. It is replaced by one atomic rename, and the
//!   replaced segments are removed only then, so other processes keep reading what they opened.
//!
//! # Who may use a directory at the same time
//!
//! Any number of handles, in one process or many. The first one holds the lock file and is the
//! writer ([`Index::is_writer`]). The others read what was committed when they opened, and keep
//! what they insert to themselves: in memory and, beyond the bound, in files without a name.
//!
//! # Floor
//!
//! Floor 2, though it uses no other floor.

mod index;

mod table;

mod segment;
mod segment_writer;
mod step;

mod filter;
mod merge;

mod directory;
mod format;

mod error;

pub use error::{Damage, IndexError, Result};
pub use index::{HEADS_MAX, Index, Stats, TABLE_RECORDS_MAX};

/// What is looked up: a fingerprint, which must be uniformly random (a keyed hash is).
///
/// The table, the filters and the sort each take eight bytes of it as they are.
pub type Key = [u8; 32];

/// What a key leads to: a number that only the caller understands, such as a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u64);

/// One fact of the index: this key is at this location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) location: Value,
}

/// The first eight bytes of `key`, as a number that compares as the bytes do.
pub(crate) fn key_prefix(key: &Key) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_le_bytes([h, g, f, e, d, c, b, a])
}
