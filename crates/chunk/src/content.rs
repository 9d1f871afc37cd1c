//! The chunker that cuts anywhere.

use crate::{Key, Limits, scan};

/// Cuts a stream where its content says, at any byte.
///
/// Source: MinCDC (the minimum of a hash over the allowed positions), here with a window of eight
/// bytes and a key. See the crate's documentation for the rule.
#[derive(Clone, Copy, Debug)]
pub struct Chunker {
    limits: Limits,
    key: Key,
    path: scan::Path,
}

impl Chunker {
    /// The id by which a repository records that its streams were cut by this rule.
    pub const ALGORITHM: u16 = 1;

    /// A chunker of these limits under this key, on the fastest path this processor has.
    #[must_use]
    pub fn new(limits: Limits, key: Key) -> Chunker {
        Chunker { limits, key, path: scan::Path::detect() }
    }

    /// The same chunker on a path of the caller's choice.
    #[cfg(test)]
    pub(crate) fn on(self, path: scan::Path) -> Chunker {
        Chunker { path, ..self }
    }

    /// The limits of its chunks.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The length of the next chunk; `window` is the bytes from the last cut on.
    ///
    /// With `at_end`, `window` reaches the end of the stream. `None` means that more bytes are
    /// needed; this never happens once `window` has `limits().max()` bytes. At the end it means
    /// that the window is empty and the stream is cut to its last byte. Longer windows give the
    /// same answer.
    #[must_use]
    pub fn cut(&self, window: &[u8], at_end: bool) -> Option<usize> {
        match span(self.limits, window.len(), at_end) {
            Span::Undecided => None,
            Span::Whole => Some(window.len()),
            Span::Search { last } => {
                // The first window hashed ends at `min`, the last one at `last`.
                let first = self.limits.min() - scan::WINDOW_BYTES;
                Some(self.limits.min() + self.path.first_minimum(self.key, &window[first..last]))
            }
        }
    }

    /// The chunks of a whole stream, in order. Together they are the stream; an empty one has none.
    pub fn split<'a>(&self, stream: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let chunker = *self;
        split(stream, move |rest| chunker.cut(rest, true))
    }
}

/// What the length of the window alone decides.
pub(crate) enum Span {
    /// More bytes are needed, or none are left.
    Undecided,
    /// The whole window is the last chunk.
    Whole,
    /// The candidates go from the least length to `last`.
    Search {
        /// The greatest length that the chunk may have; more than the target.
        last: usize,
    },
}

/// What `window_bytes` bytes from the last cut decide under `limits`.
pub(crate) fn span(limits: Limits, window_bytes: usize, at_end: bool) -> Span {
    if window_bytes == 0 || (!at_end && window_bytes < limits.max()) {
        Span::Undecided
    } else if window_bytes <= limits.target() {
        Span::Whole
    } else {
        Span::Search { last: limits.max().min(window_bytes) }
    }
}

/// The pieces of `stream` that `cut` makes, until it makes none.
pub(crate) fn split(
    stream: &[u8],
    cut: impl Fn(&[u8]) -> Option<usize>,
) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let (chunk, after) = rest.split_at(cut(rest)?);
        rest = after;
        Some(chunk)
    })
}
