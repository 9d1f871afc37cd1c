//! What a bucket is, beside its areas: the file `bucket.json` of its folder in a snapshot.
//!
//! It is written once the program holds still, when its range is known, but its place in the snapshot
//! is known before: so it always has the same length, filled up with spaces.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use strongroom_bucket::KeyRange;
use strongroom_catalog::Metadata;
use strongroom_source::memory::Memory;

use crate::hex::{hex, unhex};

/// The name of the file.
pub const ABOUT_NAME: &str = "bucket.json";
/// Bytes of the file: more than a bucket with as many areas as it may have needs.
pub const ABOUT_BYTES: usize = 512 << 10;

/// What a bucket is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The name of its file.
    pub file: String,
    /// Its number in the file.
    pub bucket: u32,
    /// The keys that it holds; none if it was given none.
    pub range: Option<RangeText>,
    /// How many times it was split or merged.
    pub split_version: u64,
    /// The round of a cluster in which it was stored.
    pub epoch: Option<u64>,
    /// The version as which its program had it stored.
    pub version: Option<VersionText>,
    /// Its areas.
    pub areas: Vec<AreaText>,
}

/// A range of keys, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeText {
    /// The first key.
    pub low: String,
    /// The first key behind it; none if it goes on to the last key.
    pub high: Option<String>,
}

/// What a program calls what it had stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionText {
    /// The name.
    pub name: String,
    /// The version of that name.
    pub version: u64,
}

/// An area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaText {
    /// Its name, which is that of a file beside this one.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The address at which its program maps it, if that matters.
    pub base: Option<u64>,
}

impl RangeText {
    /// Writes a range down.
    pub fn of(range: &KeyRange) -> Self {
        Self { low: hex(&range.low), high: range.high.as_deref().map(hex) }
    }

    /// The range; `None` if these are no digits, or no key can be in it.
    pub fn range(&self) -> Option<KeyRange> {
        let high = match &self.high {
            Some(high) => Some(unhex(high)?),
            None => None,
        };
        Some(KeyRange { low: unhex(&self.low)?, high }).filter(KeyRange::is_valid)
    }
}

impl About {
    /// The bytes of the file.
    fn pack(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("it consists of texts and numbers");
        assert!(bytes.len() < ABOUT_BYTES, "a bucket has no more areas than fit");
        bytes.resize(ABOUT_BYTES - 1, b' ');
        bytes.push(b'\n');
        bytes
    }

    /// Reads the file; `None` if it is another.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// The file, before and after it is written. Until then it is all zeros.
#[derive(Debug, Clone, Default)]
pub struct AboutFile(Arc<Mutex<Option<Vec<u8>>>>);

impl AboutFile {
    /// Writes it.
    pub fn write(&self, about: &About) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(about.pack());
    }
}

impl Memory for AboutFile {
    fn bytes(&self) -> u64 {
        ABOUT_BYTES as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = &*written else {
            buffer.fill(0);
            return Ok(());
        };
        let part = bytes.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn metadata(&self) -> Metadata {
        Metadata { mode: 0o600, size: ABOUT_BYTES as u64, links: 1, ..Metadata::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let range = KeyRange { low: b"a\xff".to_vec(), high: Some(b"b".to_vec()) };
        let area = AreaText { name: "\u{1}".repeat(64), bytes: u64::MAX, base: Some(u64::MAX) };
        let about = About {
            file: "cache".to_owned(),
            bucket: 7,
            range: Some(RangeText::of(&range)),
            split_version: 3,
            epoch: Some(9),
            version: Some(VersionText { name: "v".repeat(128), version: 4 }),
            areas: vec![area; 512],
        };
        let file = AboutFile::default();
        let mut bytes = vec![1; ABOUT_BYTES];
        file.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "nothing is written yet");
        file.write(&about);
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(About::unpack(&bytes), Some(about));
        assert_eq!(RangeText::of(&range).range(), Some(range));
        for (low, high) in [("6", None), ("zz", None), ("62", Some("61"))] {
            let text = RangeText { low: low.to_owned(), high: high.map(str::to_owned) };
            assert_eq!(text.range(), None, "{text:?}");
        }
    }
}
