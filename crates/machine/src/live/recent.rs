//! What the guest wrote just before the instant, which is what it is going to write again: read before
//! all else, and released.
//!
//! While something is still to be read, the guest's first write to each cluster of it waits until the
//! old bytes are in the store. A guest writes most often to few places: a journal, a database's
//! log, the pages of a table. A bitmap notes for a moment before the instant which they are
//! ([`RECENT`](crate::bitmaps::RECENT)).

use std::ops::Range;

use super::reader::{Failure, Reader};
use super::released::CLUSTER_BYTES;

/// At most this much is kept in memory, of all disks together.
pub const KEPT_BYTES_MAX: u64 = 24 << 20;
/// Read at once.
const PART_BYTES: u64 = 256 << 10;

/// The bytes of some clusters, as they were at the instant.
#[derive(Debug, Default)]
pub struct Recent {
    /// Where each part begins, and its bytes. Sorted; they do not overlap.
    parts: Vec<(u64, Vec<u8>)>,
}

impl Recent {
    /// Reads and releases the clusters of ranges that are sorted, as far as there is room for them.
    /// What cannot be read is left to who needs it.
    pub fn take(reader: &dyn Reader, ranges: &[Range<u64>], room: u64) -> Self {
        let recent = Self::read(reader, ranges, room);
        for range in recent.ranges() {
            // By the first cluster one finds out whether the instant still exists.
            let released = range.start.max(CLUSTER_BYTES)..range.end;
            if !released.is_empty() {
                reader.release(released);
            }
        }
        recent
    }

    fn read(reader: &dyn Reader, ranges: &[Range<u64>], mut room: u64) -> Self {
        let (mut parts, mut at) = (Vec::new(), 0);
        for range in ranges {
            at = at.max(range.start - range.start % CLUSTER_BYTES);
            let end = range.end.next_multiple_of(CLUSTER_BYTES).min(reader.size());
            while at < end && room > 0 {
                let part = at..end.min(at + PART_BYTES.min(room));
                at = part.end;
                room -= part.end - part.start;
                let mut bytes = vec![0; (part.end - part.start) as usize];
                if reader.read_at(part.start, &mut bytes).is_err() {
                    return Self { parts };
                }
                parts.push((part.start, bytes));
            }
        }
        Self { parts }
    }

    /// What is kept, sorted. QEMU refuses to say whether it is data.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.parts.iter().map(|(start, bytes)| *start..start + bytes.len() as u64).collect()
    }

    /// How many bytes are kept.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Fills `buffer` by what is kept, and asks for the rest.
    pub fn read_at(
        &self,
        offset: u64,
        mut buffer: &mut [u8],
        ask: impl Fn(u64, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let end_of = |(start, bytes): &(u64, Vec<u8>)| start + bytes.len() as u64;
        let mut at = offset;
        let first = self.parts.partition_point(|part| end_of(part) <= at);
        for (start, bytes) in &self.parts[first..] {
            let before = start.saturating_sub(at).min(buffer.len() as u64);
            if before > 0 {
                let (asked, rest) = buffer.split_at_mut(before as usize);
                ask(at, asked)?;
                (buffer, at) = (rest, at + before);
            }
            if buffer.is_empty() {
                return Ok(());
            }
            let kept = &bytes[(at - start) as usize..];
            let length = kept.len().min(buffer.len());
            let (filled, rest) = buffer.split_at_mut(length);
            filled.copy_from_slice(&kept[..length]);
            (buffer, at) = (rest, at + length as u64);
        }
        if buffer.is_empty() { Ok(()) } else { ask(at, buffer) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    /// A disk that refuses what was released.
    struct Plain {
        bytes: Vec<u8>,
        released: Mutex<Vec<Range<u64>>>,
    }

    impl Reader for Plain {
        fn size(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
            let end = offset + buffer.len() as u64;
            let released = self.released.lock().unwrap();
            if released.iter().any(|range| offset < range.end && range.start < end) {
                return Err(Failure::Refused(std::io::ErrorKind::InvalidInput.into()));
            }
            buffer.copy_from_slice(&self.bytes[offset as usize..end as usize]);
            Ok(())
        }

        fn release(&self, range: Range<u64>) {
            assert!(range.start.is_multiple_of(CLUSTER_BYTES), "{range:?}");
            assert!(range.end.is_multiple_of(CLUSTER_BYTES) || range.end == self.size());
            self.released.lock().unwrap().push(range);
        }
    }

    proptest! {
        #[test]
        fn what_was_read_first_is_read_as_it_was(
            written in proptest::collection::vec((0u64..1_400_000, 1u64..300_000), 0..8),
            size in 1usize..1_400_000,
            reads in proptest::collection::vec((0usize..1_400_000, 0usize..900_000), 1..20),
        ) {
            let bytes: Vec<u8> = (0..size).map(|at| (at / 512 * 7 + at) as u8).collect();
            let disk = Plain { bytes, released: Mutex::default() };
            let mut ranges: Vec<Range<u64>> = written
                .iter()
                .map(|(start, length)| *start..(start + length).min(size as u64))
                .filter(|range| !range.is_empty())
                .collect();
            ranges.sort_by_key(|range| range.start);
            let recent = Recent::take(&disk, &ranges, KEPT_BYTES_MAX);
            let released = disk.released.lock().unwrap().clone();
            for range in &ranges {
                let is_released = |at: u64| released.iter().any(|range| range.contains(&at));
                for at in [range.start, range.end - 1] {
                    prop_assert_eq!(is_released(at), at >= CLUSTER_BYTES, "{}", at);
                }
            }
            for (start, length) in reads {
                let start = start.min(size);
                let end = (start + length).min(size);
                let mut buffer = vec![0; end - start];
                let ask = |offset, part: &mut [u8]| disk.read_at(offset, part);
                prop_assert!(recent.read_at(start as u64, &mut buffer, ask).is_ok());
                prop_assert!(buffer == disk.bytes[start..end]);
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let disk = Plain { bytes: vec![7; 30 << 20], released: Mutex::default() };
        let everything = 0..disk.size();
        let recent = Recent::take(&disk, std::slice::from_ref(&everything), KEPT_BYTES_MAX);
        assert_eq!(recent.bytes(), KEPT_BYTES_MAX);
        let mut buffer = vec![0; 30 << 20];
        let ask = |offset, part: &mut [u8]| disk.read_at(offset, part);
        assert!(recent.read_at(0, &mut buffer, ask).is_ok());
        assert!(buffer == disk.bytes);
    }
}
