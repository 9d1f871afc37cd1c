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

    /// The range for programs: `[low, high)`, with nothing in the place of an end that is open, and
    /// keys as people see them.
    pub fn interval(&self) -> String {
        let high = self.high.as_deref().map_or_else(String::new, key_text);
        format!("[{}, {high})", key_text(&self.low))
    }
}

/// The range for people: "all keys", "below m", "from f to m" or "from m". The key at its end is the
/// first one of the next range. Keys that are no plain text are hexadecimal digits behind "0x".
impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = key_text(&self.low);
        match self.high.as_deref().map(key_text) {
            None if low.is_empty() => write!(f, "all keys"),
            None => write!(f, "from {low}"),
            Some(high) if low.is_empty() => write!(f, "below {high}"),
            Some(high) => write!(f, "from {low} to {high}"),
        }
    }
}

fn key_text(key: &[u8]) -> String {
    if key.iter().all(u8::is_ascii_graphic) {
        return key.iter().map(|byte| char::from(*byte)).collect();
    }
    key.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_programs_see_the_ends_that_a_range_has() {
        let cases = [
            ("", "", "all keys", "[, )"),
            ("", "m", "below m", "[, m)"),
            ("m", "", "from m", "[m, )"),
            ("f", "m", "from f to m", "[f, m)"),
            ("\u{1}\0", "\u{7f}", "from 0x0100 to 0x7f", "[0x0100, 0x7f)"),
        ];
        for (low, high, people, programs) in cases {
            let high = (!high.is_empty()).then(|| high.as_bytes().to_vec());
            let range = KeyRange { low: low.as_bytes().to_vec(), high };
            assert_eq!((range.to_string(), range.interval()), (people.into(), programs.into()));
        }
    }
}
