//! Content-defined and aligned chunkers, and deltas; pure functions over bytes.
//!
//! A chunker decides where a stream is cut into chunks. It reads nothing, holds nothing between
//! calls and names nothing: fingerprints, compression and storage are other crates' work.
//!
//! * [`Chunker`] cuts anywhere: the cut is the position with the smallest keyed hash of the eight
//!   bytes before it, among all positions that [`Limits`] allow (MinCDC with an 8-byte window).
//!   Inserting a byte moves the cuts after it along, so the chunks there stay the same.
//! * [`AlignedChunker`] cuts only at multiples of [`PAGE_BYTES`]: for disk images, whose contents
//!   move by whole pages.
//!
//! [`delta`] encodes a chunk against a basis, the stream's previous version.
//!
//! # The rule, which is format law
//!
//! Cut points decide what deduplicates against what, so a repository keeps its limits, key and
//! algorithm id ([`Chunker::ALGORITHM`], [`AlignedChunker::ALGORITHM`]) for ever, and the golden
//! vectors in `tests/it/golden.rs` freeze the rule. [`mod@reference`] is the rule as code: short, slow
//! and obviously right. In words, with `rest` the bytes from the last cut to the end of the stream:
//!
//! 1. If `rest` is empty there is no further chunk.
//! 2. If `rest` has at most `target` = (min + max) / 2 bytes, it is the last chunk, whole.
//! 3. Otherwise the candidates are the cut positions `min ..= min(max, length of rest)`, for the
//!    aligned chunker only those that are multiples of the page. The candidate with the smallest
//!    hash is the cut; of equal ones, the earliest.
//!
//! The choice depends on `rest` alone, never on how it was fed, and on the end of the stream only
//! where fewer than `max` bytes are left. So a chunk is decided as soon as `max` bytes are at hand,
//! without looking further ahead, and appending to a stream never moves a cut that had `max` bytes
//! after the one before it.
//!
//! # Floor
//!
//! Floor 1: depends on nothing at all.

mod limits;

mod content;

mod aligned;

pub mod delta;

mod key;
pub mod reference;
mod scan;

pub use aligned::AlignedChunker;
pub use content::Chunker;
pub use key::Key;
pub use limits::{Limits, LimitsError, PAGE_BYTES};
