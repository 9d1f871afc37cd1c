//! The chunker for disk images: cuts at multiples of the page only.

use crate::content::{Span, span, split};
use crate::{Key, Limits, LimitsError, PAGE_BYTES, scan};

/// Cuts a stream at multiples of [`PAGE_BYTES`] from its start, where the content says.
/// The cut is after the page with the smallest keyed hash, and the hash covers the *whole* page:
/// pages of file-system metadata and of many file formats begin or end alike, so a hash of a few of
/// their bytes would tie. A page of zeros has the greatest hash, so a cut follows zeros only if
/// every candidate does. See the crate's documentation for the rule.
#[derive(Clone, Copy, Debug)]
pub struct AlignedChunker {
    /// Both limits are multiples of the page.
    limits: Limits,
    key: Key,
    path: scan::Path,
}

impl AlignedChunker {
    /// The id by which a repository records that its streams were cut by this rule.
    pub const ALGORITHM: u16 = 2;

    /// A chunker of these limits under this key, on the fastest path this processor has.
    ///
    /// # Errors
    ///
    /// [`LimitsError::NotAligned`] when a limit is not a multiple of [`PAGE_BYTES`].
    pub fn new(limits: Limits, key: Key) -> Result<AlignedChunker, LimitsError> {
        let (min, max) = (limits.min(), limits.max());
        if !min.is_multiple_of(PAGE_BYTES) || !max.is_multiple_of(PAGE_BYTES) {
            return Err(LimitsError::NotAligned { min, max });
        }
        Ok(AlignedChunker { limits, key, path: scan::Path::detect() })
    }

    /// The same chunker on a path of the caller's choice.
    #[cfg(test)]
    pub(crate) fn on(self, path: scan::Path) -> AlignedChunker {
        AlignedChunker { path, ..self }
    }

    /// The limits of its chunks.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The length of the next chunk, `window` being the bytes from the last cut on.
    ///
    /// As [`Chunker::cut`](crate::Chunker::cut), and the length is a multiple of the page unless
    /// the chunk is the stream's last.
    #[must_use]
    pub fn cut(&self, window: &[u8], at_end: bool) -> Option<usize> {
        match span(self.limits, window.len(), at_end) {
            Span::Undecided => None,
            Span::Whole => Some(window.len()),
            Span::Search { last } => {
                // A page that is not whole ends at no candidate; the scan leaves it out.
                let first = self.limits.min() - PAGE_BYTES;
                let pages = self.path.first_minimum_page(self.key, &window[first..last]);
                Some(self.limits.min() + pages * PAGE_BYTES)
            }
        }
    }

    /// The chunks of a whole stream, in order. Together they are the stream; an empty one has none.
    pub fn split<'a>(&self, stream: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let chunker = *self;
        split(stream, move |rest| chunker.cut(rest, true))
    }
}
