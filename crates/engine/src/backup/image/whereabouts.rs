//! Where each chunk of a disk went, by its place on the disk: from this the recipes of files are
//! made. It is kept in a file without a name, so memory does not grow with the disk.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use strongroom_base::{ArenaId, Fingerprint, Location};
use strongroom_catalog::ChunkRef;

use crate::backup::scratch::scratch_file;

/// A record: where on the disk, then the reference.
const RECORD_BYTES: usize = 8 + 32 + 16 + 4 + 8;
/// One record of this many is remembered.
const STRIDE: usize = 64;

/// References while a disk is stored.
pub struct WhereaboutsWriter {
    file: BufWriter<File>,
    /// The places of every [`STRIDE`]th record.
    marks: Vec<u64>,
    records: usize,
    end: u64,
}

/// The references of a disk that is stored.
pub struct Whereabouts {
    file: File,
    marks: Vec<u64>,
    records: usize,
}

impl WhereaboutsWriter {
    /// An empty one, in a folder of this machine; in memory if there is none that takes it.
    pub fn begin(folder: Option<&Path>) -> io::Result<Self> {
        Ok(Self::new(scratch_file(folder)?))
    }

    fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), marks: Vec::new(), records: 0, end: 0 }
    }

    /// Appends the next chunk of the disk, or hole.
    pub fn push(&mut self, chunk: &ChunkRef) -> io::Result<()> {
        if self.records.is_multiple_of(STRIDE) {
            self.marks.push(self.end);
        }
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&self.end.to_le_bytes());
        record[8..40].copy_from_slice(&chunk.fingerprint.0);
        record[40..56].copy_from_slice(&chunk.location.arena.0);
        record[56..60].copy_from_slice(&chunk.location.slot.to_le_bytes());
        record[60..].copy_from_slice(&chunk.stream_bytes.to_le_bytes());
        self.file.write_all(&record)?;
        self.records += 1;
        self.end += chunk.stream_bytes;
        Ok(())
    }

    /// All of the disk was appended.
    pub fn finish(self) -> io::Result<Whereabouts> {
        let Self { file, marks, records, .. } = self;
        Ok(Whereabouts {
            file: file.into_inner().map_err(io::IntoInnerError::into_error)?,
            marks,
            records,
        })
    }
}

impl Whereabouts {
    /// Gives the chunks that make a range of the disk. Returns false if they do not: then a chunk
    /// begins before it or ends behind it, or a part is a hole.
    pub fn each(
        &self,
        range: Range<u64>,
        give: &mut dyn FnMut(ChunkRef) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mark = self.marks.partition_point(|mark| *mark <= range.start);
        let Some(mark) = mark.checked_sub(1) else { return Ok(range.is_empty()) };
        let mut next = range.start;
        let mut buffer = [0; RECORD_BYTES * STRIDE];
        for first in (mark * STRIDE..self.records).step_by(STRIDE) {
            let count = STRIDE.min(self.records - first);
            let buffer = &mut buffer[..count * RECORD_BYTES];
            self.file.read_exact_at(buffer, (first * RECORD_BYTES) as u64)?;
            for record in buffer.chunks_exact(RECORD_BYTES) {
                let (offset, chunk) = unpack(record);
                if next >= range.end {
                    return Ok(next == range.end);
                }
                if offset + chunk.stream_bytes <= next {
                    continue;
                }
                if offset != next || chunk.is_hole() || offset + chunk.stream_bytes > range.end {
                    return Ok(false);
                }
                give(chunk)?;
                next += chunk.stream_bytes;
            }
        }
        Ok(next == range.end)
    }
}

fn unpack(record: &[u8]) -> (u64, ChunkRef) {
    let number =
        |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
    let slot = u32::from_le_bytes(record[56..60].try_into().expect("four bytes"));
    let arena = ArenaId(record[40..56].try_into().expect("sixteen bytes"));
    let chunk = ChunkRef {
        fingerprint: Fingerprint(record[8..40].try_into().expect("thirty-two bytes")),
        location: Location { arena, slot },
        stream_bytes: number(60),
    };
    (number(0), chunk)
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    fn chunk(number: u32, bytes: u64) -> ChunkRef {
        let location = Location { arena: ArenaId([number as u8; 16]), slot: number };
        ChunkRef { fingerprint: Fingerprint([number as u8 | 1; 32]), location, stream_bytes: bytes }
    }

    #[test]
    fn a_range_is_the_chunks_that_make_it() {
        let mut random = Random::new(3);
        let mut writer = WhereaboutsWriter::new(tempfile::tempfile().unwrap());
        let mut all = Vec::new();
        let mut offset = 0;
        for number in 0..1000 {
            let bytes = 1 + random.below(9000);
            let one = if number % 7 == 6 { ChunkRef::hole(bytes) } else { chunk(number, bytes) };
            writer.push(&one).unwrap();
            all.push((offset, one));
            offset += bytes;
        }
        let whereabouts = writer.finish().unwrap();
        for _ in 0..2000 {
            let from = random.below(1000) as usize;
            let to = (from + random.below(200) as usize).min(999);
            let shift = if random.once_in(3) { random.below(2) } else { 0 };
            let range = all[from].0 + shift..all[to].0;
            if range.start > range.end {
                continue;
            }
            let expected: Vec<ChunkRef> = all[from..to].iter().map(|(_, chunk)| *chunk).collect();
            let is_whole =
                (shift == 0 || range.is_empty()) && !expected.iter().any(ChunkRef::is_hole);
            let mut found = Vec::new();
            let given = whereabouts.each(range.clone(), &mut |chunk| {
                found.push(chunk);
                Ok(())
            });
            assert_eq!(given.unwrap(), is_whole, "{range:?}");
            assert!(!is_whole || range.is_empty() || found == expected);
        }
    }
}
