//! What was found of a region so far: of each chunk where it is, and its marks. It is kept in a file
//! without a name, so memory does not grow with the region; zeros are holes in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use strongroom_base::{ArenaId, Fingerprint, Location};
use strongroom_catalog::ChunkRef;
use strongroom_source::memory::mark::Mark;

use super::{CHUNK_BYTES, PAGES};
use crate::backup::scratch::scratch_file;
use crate::error::EngineError;

/// Fingerprint, arena, slot, bytes, marks.
const RECORD_BYTES: usize = 32 + 16 + 4 + 4 + PAGES * Mark::BYTES;
/// Records that are read at a time.
const RECORDS: u64 = 1 << 12;

/// One chunk of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Where it is; a hole for zeros.
    pub chunk: ChunkRef,
    /// The marks of its pages; those behind the region's end are of zeros.
    pub marks: [Mark; PAGES],
}

impl Record {
    /// A chunk of zeros.
    pub fn zeros(bytes: usize) -> Self {
        Self { chunk: ChunkRef::hole(bytes as u64), marks: [Mark::ZEROS; PAGES] }
    }

    fn pack(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        if self.chunk.is_hole() {
            return record;
        }
        record[..32].copy_from_slice(&self.chunk.fingerprint.0);
        record[32..48].copy_from_slice(&self.chunk.location.arena.0);
        record[48..52].copy_from_slice(&self.chunk.location.slot.to_le_bytes());
        // No chunk of a region is longer than 64 KiB.
        record[52..56].copy_from_slice(&(self.chunk.stream_bytes as u32).to_le_bytes());
        for (part, mark) in record[56..].chunks_exact_mut(Mark::BYTES).zip(self.marks) {
            part.copy_from_slice(&mark.0);
        }
        record
    }

    fn unpack(record: &[u8; RECORD_BYTES], bytes: usize) -> Self {
        let number =
            |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
        if number(52) == 0 {
            return Self::zeros(bytes);
        }
        let arena = ArenaId(record[32..48].try_into().expect("sixteen bytes"));
        let chunk = ChunkRef {
            fingerprint: Fingerprint(record[..32].try_into().expect("thirty-two bytes")),
            location: Location { arena, slot: number(48) },
            stream_bytes: number(52).into(),
        };
        let mut marks = [Mark::ZEROS; PAGES];
        for (mark, part) in marks.iter_mut().zip(record[56..].chunks_exact(Mark::BYTES)) {
            mark.0.copy_from_slice(part);
        }
        Self { chunk, marks }
    }
}

/// The records of a region.
pub struct Draft {
    file: File,
}

impl Draft {
    /// An empty one: a region of zeros.
    pub fn begin(folder: Option<&Path>) -> io::Result<Self> {
        Ok(Self { file: scratch_file(folder)? })
    }

    /// Sets the records of chunks from a byte of the region on, which is a multiple of a chunk's.
    pub fn write(&self, start: u64, records: &[Record]) -> io::Result<()> {
        let packed: Vec<u8> = records.iter().flat_map(Record::pack).collect();
        let at = place(start);
        let is_behind = at >= self.file.metadata()?.len();
        if is_behind && packed.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.file.write_all_at(&packed, at)
    }

    /// The records of chunks of these lengths, from a byte of the region on.
    pub fn read(&self, start: u64, lengths: &[usize]) -> io::Result<Vec<Record>> {
        let mut packed = vec![0; lengths.len() * RECORD_BYTES];
        let mut filled = 0;
        // What was never written is zeros.
        while filled < packed.len() {
            let at = place(start) + filled as u64;
            match self.file.read_at(&mut packed[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let (records, _) = packed.as_chunks();
        Ok(records
            .iter()
            .zip(lengths)
            .map(|(record, bytes)| Record::unpack(record, *bytes))
            .collect())
    }

    /// Gives all records of a region of this length, in order.
    pub fn each(
        &self,
        region_bytes: u64,
        give: &mut dyn FnMut(Record) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let step = RECORDS * CHUNK_BYTES as u64;
        let mut start = 0;
        while start < region_bytes {
            let lengths = lengths(start, (start + step).min(region_bytes));
            let records = self.read(start, &lengths).map_err(EngineError::Whereabouts)?;
            records.into_iter().try_for_each(&mut *give)?;
            start += step;
        }
        Ok(())
    }
}

fn place(start: u64) -> u64 {
    start / CHUNK_BYTES as u64 * RECORD_BYTES as u64
}

/// The lengths of the chunks from `start`, a multiple of a chunk's, up to `end`.
pub fn lengths(start: u64, end: u64) -> Vec<usize> {
    let bytes = end - start;
    let whole = bytes / CHUNK_BYTES as u64;
    // Shorter than a chunk.
    let rest = (bytes % CHUNK_BYTES as u64) as usize;
    (0..whole).map(|_| CHUNK_BYTES).chain((rest > 0).then_some(rest)).collect()
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    #[test]
    fn records_are_what_was_written_last_and_zeros_elsewhere() {
        let mut random = Random::new(4);
        let draft = Draft { file: tempfile::tempfile().unwrap() };
        const CHUNKS: u64 = 300;
        let bytes = CHUNKS * CHUNK_BYTES as u64 - 100;
        let all = lengths(0, bytes);
        let mut expected: Vec<Record> = all.iter().map(|bytes| Record::zeros(*bytes)).collect();
        for round in 0..200 {
            let first = random.below(CHUNKS) as usize;
            let last = (first + random.below(20) as usize).min(all.len() - 1);
            let records: Vec<Record> = (first..=last)
                .map(|place| {
                    if random.once_in(3) {
                        return Record::zeros(all[place]);
                    }
                    let chunk = ChunkRef {
                        fingerprint: Fingerprint([round as u8 | 1; 32]),
                        location: Location { arena: ArenaId([place as u8; 16]), slot: round },
                        stream_bytes: all[place] as u64,
                    };
                    Record { chunk, marks: [Mark([round as u8; Mark::BYTES]); PAGES] }
                })
                .collect();
            draft.write((first * CHUNK_BYTES) as u64, &records).unwrap();
            expected[first..=last].copy_from_slice(&records);
        }
        let mut found = Vec::new();
        draft
            .each(bytes, &mut |record| {
                found.push(record);
                Ok(())
            })
            .unwrap();
        assert_eq!(found, expected);
    }
}
