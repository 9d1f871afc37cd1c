//! Ranges of keys: which part of a file a bucket holds (SDDS-2002, §2).

use std::fmt;

/// Bytes that a key may have at most.
pub const KEY_BYTES_MAX: usize = 64;

/// The keys from `low` on, up to but without `high`; without `high`, up to the last one.
/// Keys are compared byte by byte. A file that is spread by a hash has ranges of the hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyRange {
    /// The first key.
    pub low: Vec<u8>,
    /// The first key behind it.
    pub high: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys.
    pub const fn whole() -> Self {
        Self { low: Vec::new(), high: None }
    }

    /// Whether there can be a key in it, and its ends are no longer than keys may be.
    pub fn is_valid(&self) -> bool {
        let fits = |key: &[u8]| key.len() <= KEY_BYTES_MAX;
        fits(&self.low) && self.high.as_ref().is_none_or(|high| fits(high) && *high > self.low)
    }

    /// Whether a key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.low.as_slice() && self.high.as_ref().is_none_or(|high| key < high.as_slice())
    }

    /// Whether a key can be in both.
    pub fn meets(&self, other: &Self) -> bool {
        let ends_behind =
            |range: &Self, key: &[u8]| range.high.as_ref().is_none_or(|high| high.as_slice() > key);
        ends_behind(self, &other.low) && ends_behind(other, &self.low)
    }
}

/// `[low, high)`, keys that are no plain text in hexadecimal digits.
impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = |f: &mut fmt::Formatter<'_>, key: &[u8]| {
            let is_plain = key.iter().all(|byte| byte.is_ascii_graphic());
            if is_plain {
                return key.iter().try_for_each(|byte| write!(f, "{}", char::from(*byte)));
            }
            write!(f, "0x")?;
            key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        write!(f, "[")?;
        key(f, &self.low)?;
        write!(f, ", ")?;
        if let Some(high) = &self.high {
            key(f, high)?;
        }
        write!(f, ")")
    }
}
