//! Deltas: a chunk as its differences from a basis, which is one or more other chunks.
//!
//! ```text
//! delta = kind | copies or same offset
//! ```
//!
//! - *Copies* (`copies.rs`): copies out of the basis, from any place, and literals.
//! - *Same offset* (`same_offset.rs`): differences from the bytes of the basis in the same place.
//!
//! Numbers are LEB128. Ops and literals are separate: a delta is compressed with its neighbours in
//! a block, and each of the two compresses best beside its like.
//!
//! The document: `docs/format/delta.md`. The rule for decoding is frozen. How a delta is searched
//! for and which kind is chosen is not.

mod bytes;
mod copies;
mod same_offset;

pub use bytes::DeltaError;
pub use copies::Basis;

use std::ops::Range;

use bytes::Kind;

/// A chunk as a delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The delta, as [`apply`] takes it.
    pub bytes: Vec<u8>,
    /// The chunks of the basis that it is a delta of: together they are its basis.
    pub chunks: Range<usize>,
}

impl Basis {
    /// The shorter delta found for a chunk, of either kind; `None` if it would take more than
    /// `bytes_max`. The chunk would begin at `in_place` of the basis if nothing had moved.
    #[must_use]
    pub fn encode(&self, chunk: &[u8], in_place: usize, bytes_max: usize) -> Option<Encoded> {
        let copies = self.copies(chunk, bytes_max);
        let whole_basis = 0..self.ends().len();
        let mut best = copies.bytes.map(|bytes| Encoded { bytes, chunks: whole_basis });
        let elsewhere = copies.start.filter(|start| *start != in_place);
        for start in [Some(in_place), elsewhere].into_iter().flatten() {
            let bytes_max = best.as_ref().map_or(bytes_max, |best| best.bytes.len());
            best = self.differences(chunk, start, bytes_max).or(best);
        }
        best
    }

    /// A delta of the kind *same offset*, of no more chunks of the basis than are in its place.
    fn differences(&self, chunk: &[u8], start: usize, bytes_max: usize) -> Option<Encoded> {
        let ends = self.ends();
        let first = ends.partition_point(|end| *end <= start);
        let last = ends.partition_point(|end| *end < start.saturating_add(chunk.len()));
        let last = last.min(ends.len().checked_sub(1)?);
        let chunks = first..last + 1;
        let from = first.checked_sub(1).map_or(0, |before| ends[before]);
        let basis = self.bytes().get(from..ends[last]).filter(|_| !chunks.is_empty())?;
        let bytes = same_offset::encode(chunk, basis, start - from, bytes_max)?;
        Some(Encoded { bytes, chunks })
    }
}

/// The chunk that a delta makes of its basis. For any bytes, it takes no more memory than that
/// chunk.
///
/// # Errors
///
/// The bytes are not a delta, or not of this basis, or make a chunk of another length.
pub fn apply(delta: &[u8], basis: &[u8], chunk_bytes: usize) -> Result<Vec<u8>, DeltaError> {
    let (kind, rest) = delta.split_first().ok_or(DeltaError::Damaged("it is empty"))?;
    match *kind {
        kind if kind == Kind::Copies as u8 => copies::apply(rest, basis, chunk_bytes),
        kind if kind == Kind::SameOffset as u8 => same_offset::apply(rest, basis, chunk_bytes),
        kind => Err(DeltaError::UnknownKind(kind)),
    }
}

/// Where in its basis the chunk of a delta begins, if most of it is in one place there. A chunk
/// that resembles this one can then be compared with the same basis. Of bytes that are not a delta,
/// the answer is `None` or any number.
#[must_use]
pub fn start_in_basis(delta: &[u8]) -> Option<usize> {
    let (kind, mut rest) = delta.split_first()?;
    match *kind {
        kind if kind == Kind::Copies as u8 => copies::start(rest).ok()?,
        kind if kind == Kind::SameOffset as u8 => {
            bytes::take_number(&mut rest).ok().map(|start| start as usize)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
