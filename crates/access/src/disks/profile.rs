//! What a machine reads when it starts, in this order.
//!
//! The first start from the archive records it. Later starts fetch it before the machine asks, so a
//! repository far away answers many requests at a time instead of one after another. It is a cache:
//! without it, or with a wrong one, a start only takes longer.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Reads are recorded in units of this many bytes.
const UNIT_BYTES: u64 = 64 << 10;
/// What is recorded at most: with the blocks around it, it has to fit into the cache.
const BYTES_MAX: u64 = 48 << 20;
const MAGIC: &[u8; 8] = b"srboot01";
const HASH_BYTES: usize = 32;
const UNIT_NUMBER_BYTES: usize = 8;

/// What was read, in the order of the first reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    order: Vec<u64>,
    known: HashSet<u64>,
}

impl Profile {
    /// Notes a read.
    pub fn note(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for unit in range.start / UNIT_BYTES..=(range.end - 1) / UNIT_BYTES {
            if self.order.len() as u64 * UNIT_BYTES >= BYTES_MAX {
                return;
            }
            if self.known.insert(unit) {
                self.order.push(unit);
            }
        }
    }

    /// Nothing was read.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The parts of the disk that were read; neighbours that were read in order are one part.
    pub fn parts(&self) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        for unit in &self.order {
            let start = unit.saturating_mul(UNIT_BYTES);
            let end = start.saturating_add(UNIT_BYTES);
            match parts.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => parts.push(start..end),
            }
        }
        parts
    }

    /// The bytes of its file: magic, the units in order, a hash of both.
    fn pack(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        self.order.iter().for_each(|unit| bytes.extend_from_slice(&unit.to_le_bytes()));
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    /// Reads the bytes of a file; nothing if they are no profile.
    fn unpack(bytes: &[u8]) -> Option<Self> {
        let (body, hash) = bytes.split_last_chunk::<HASH_BYTES>()?;
        if blake3::hash(body).as_bytes() != hash {
            return None;
        }
        let units = body.strip_prefix(MAGIC)?;
        let (units, rest) = units.as_chunks::<UNIT_NUMBER_BYTES>();
        if !rest.is_empty() || units.len() as u64 > BYTES_MAX / UNIT_BYTES {
            return None;
        }
        let order: Vec<u64> = units.iter().map(|unit| u64::from_le_bytes(*unit)).collect();
        Some(Self { known: order.iter().copied().collect(), order })
    }

    /// Reads one that was written; nothing if there is none, or none that can be used.
    pub fn read(path: &Path) -> Option<Self> {
        let longest = MAGIC.len() as u64 + BYTES_MAX / UNIT_BYTES * 8 + HASH_BYTES as u64;
        let is_short = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= longest);
        if !is_short {
            return None;
        }
        Self::unpack(&std::fs::read(path).ok()?)
    }

    /// Writes it, in place of one that was there.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut other = path.as_os_str().to_owned();
        other.push(format!(".{}.new", std::process::id()));
        let other = Path::new(&other);
        std::fs::write(other, self.pack())?;
        std::fs::rename(other, path).inspect_err(|_| {
            let _ = std::fs::remove_file(other);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Profile {
        let mut profile = Profile::default();
        for (offset, bytes) in [(0, 512), (512, 512), (1 << 20, 200 << 10), (4096, 1), (70_000, 9)]
        {
            profile.note(offset..offset + bytes);
        }
        profile
    }

    #[test]
    fn reads_are_kept_once_and_in_order() {
        let unit = UNIT_BYTES;
        let parts = [0..unit, 16 * unit..20 * unit, unit..2 * unit];
        assert_eq!(sample().parts(), parts);
        let mut full = Profile::default();
        full.note(0..u64::MAX);
        let all = 0..BYTES_MAX;
        assert_eq!(full.parts(), std::slice::from_ref(&all));
    }

    #[test]
    fn a_file_that_is_no_profile_is_none() {
        let bytes = sample().pack();
        assert_eq!(Profile::unpack(&bytes), Some(sample()));
        for length in 0..bytes.len() {
            assert_eq!(Profile::unpack(&bytes[..length]), None, "{length}");
        }
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1;
            assert_eq!(Profile::unpack(&flipped), None, "{place}");
        }
    }
}
