//! How short and how long a chunk may be.

use std::fmt;

/// The page of a disk image, in bytes: the unit in which file systems place content.
pub const PAGE_BYTES: usize = 4096;

/// The least and the greatest length of a chunk, in bytes.
///
/// Only the last chunk of a stream may be shorter than `min`; none is longer than `max`. Invariants:
/// `8 <= min <= max <= 2^30`, so the window before every candidate lies inside the chunk and
/// positions fit 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    min: usize,
    max: usize,
}

impl Limits {
    /// 48 KiB to 80 KiB: 64 KiB and a quarter of it either way.
    pub const DEFAULT: Limits = Limits { min: 48 << 10, max: 80 << 10 };

    /// The shortest `min` allowed: the width of the hashed window.
    pub const MIN_BYTES: usize = 8;

    /// The longest `max` allowed.
    pub const MAX_BYTES: usize = 1 << 30;

    /// Limits of `min` to `max` bytes.
    ///
    /// # Errors
    ///
    /// [`LimitsError`] when `8 <= min <= max <= 2^30` does not hold.
    pub fn new(min: usize, max: usize) -> Result<Limits, LimitsError> {
        if Limits::MIN_BYTES <= min && min <= max && max <= Limits::MAX_BYTES {
            Ok(Limits { min, max })
        } else {
            Err(LimitsError::OutOfOrder { min, max })
        }
    }

    /// The least length of a chunk that is not the last, in bytes.
    #[must_use]
    pub fn min(self) -> usize {
        self.min
    }

    /// The greatest length of a chunk, in bytes.
    #[must_use]
    pub fn max(self) -> usize {
        self.max
    }

    /// The length halfway: a rest of at most this many bytes is one chunk.
    #[must_use]
    pub fn target(self) -> usize {
        self.min + (self.max - self.min) / 2
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

/// Why a pair of lengths cannot be [`Limits`] of a chunker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitsError {
    /// `8 <= min <= max <= 2^30` does not hold.
    OutOfOrder {
        /// The least length asked for, in bytes.
        min: usize,
        /// The greatest length asked for, in bytes.
        max: usize,
    },
    /// An aligned chunker was asked for a limit that is not a multiple of the page.
    NotAligned {
        /// The least length asked for, in bytes.
        min: usize,
        /// The greatest length asked for, in bytes.
        max: usize,
    },
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitsError::OutOfOrder { min, max } => write!(
                f,
                "chunk limits must satisfy {} <= min <= max <= {}, not min {min}, max {max}",
                Limits::MIN_BYTES,
                Limits::MAX_BYTES
            ),
            LimitsError::NotAligned { min, max } => write!(
                f,
                "aligned chunk limits must be multiples of {}, not min {min}, max {max}",
                PAGE_BYTES
            ),
        }
    }
}

impl std::error::Error for LimitsError {}
