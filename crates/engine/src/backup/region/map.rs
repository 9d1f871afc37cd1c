//! The marks of a region as they are stored: a file beside it (`docs/format/memory.md`).
//!
//! A snapshot has the marks of what it holds, so they describe what is committed and nothing else: a
//! store that fails changes none. A machine that can read the repository can go on from them.

use strongroom_catalog::{ChunkRef, Recipe, RecipeBuilder, RecipeReader};
use strongroom_repository::{ChunkReader, ChunkWriter, StreamBasis};
use strongroom_source::memory::mark::{Mark, PAGE_BYTES};

use super::draft::Draft;
use super::shared::Shared;
use super::{CHUNK_BYTES, PAGES};
use crate::error::EngineError;

/// What the file begins with: the magic, the bytes of a page, the seed, the bytes of the region.
const HEAD_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"SRMARKS\0";

/// What marks are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarksHead {
    /// What the hashes begin with.
    pub seed: u64,
    /// How long the region is.
    pub region_bytes: u64,
}

impl MarksHead {
    fn pack(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&(PAGE_BYTES as u64).to_le_bytes());
        head[16..24].copy_from_slice(&self.seed.to_le_bytes());
        head[24..].copy_from_slice(&self.region_bytes.to_le_bytes());
        head
    }

    fn unpack(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let number =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let is_known = head[..8] == MAGIC && number(8) == PAGE_BYTES as u64;
        is_known.then(|| Self { seed: number(16), region_bytes: number(24) })
    }
}

/// Marks of the parent, in order.
pub struct MarksReader<'r> {
    /// What they are of.
    pub head: MarksHead,
    recipe: RecipeReader<'r, ChunkReader>,
    reader: &'r ChunkReader,
    bytes: Vec<u8>,
    taken: usize,
    /// Zeros that follow.
    hole: u64,
    /// Bytes of the region whose marks were not taken.
    left: u64,
}

impl<'r> MarksReader<'r> {
    /// Begins to read marks; `None` if they are none, or cannot be read.
    pub fn open(marks: &Recipe, reader: &'r ChunkReader) -> Option<Self> {
        let (head, bytes) = (MarksHead { seed: 0, region_bytes: 0 }, Vec::new());
        let recipe = RecipeReader::new(marks, reader);
        let mut opened = Self { head, recipe, reader, bytes, taken: 0, hole: 0, left: 0 };
        let head = opened.take(HEAD_BYTES)?.try_into().expect("as long as was asked for");
        opened.head = MarksHead::unpack(head)?;
        opened.left = opened.head.region_bytes;
        Some(opened)
    }

    /// The marks of the next chunk, of this length; `None` from where they end, or cannot be read.
    pub fn next(&mut self, length: usize) -> Option<[Mark; PAGES]> {
        // The last chunk of the parent may have been shorter.
        let is_there =
            self.left >= length as u64 && (length == CHUNK_BYTES || self.left == length as u64);
        self.left = if is_there { self.left - length as u64 } else { 0 };
        let pages = if is_there { length.div_ceil(PAGE_BYTES) } else { return None };
        let mut marks = [Mark::ZEROS; PAGES];
        let Some(bytes) = self.take(pages * Mark::BYTES) else {
            // It is not known any more at which byte the marks of a later chunk begin.
            self.left = 0;
            return None;
        };
        for (mark, part) in marks.iter_mut().zip(bytes.chunks_exact(Mark::BYTES)) {
            mark.0.copy_from_slice(part);
        }
        Some(marks)
    }

    /// The next bytes of the file.
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        while self.bytes.len() - self.taken < count {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            if self.hole == 0 {
                let (_, chunk) = self.recipe.next_chunk().ok().flatten()?;
                match chunk.is_hole() {
                    true => self.hole = chunk.stream_bytes,
                    false => self.bytes.extend(self.reader.read_data(&chunk).ok()?),
                }
            }
            let zeros = self.hole.min(CHUNK_BYTES as u64);
            self.hole -= zeros;
            self.bytes.resize(self.bytes.len() + zeros as usize, 0);
        }
        self.taken += count;
        Some(&self.bytes[self.taken - count..self.taken])
    }
}

/// Stores the marks of a region.
pub fn write_marks(
    head: MarksHead,
    draft: &Draft,
    before: Option<&Recipe>,
    shared: &Shared<'_, '_>,
    writer: &mut ChunkWriter<'_>,
) -> Result<Recipe, EngineError> {
    let mut file = MarksFile {
        shared,
        in_place: before.map(|before| StreamBasis::new(shared.reader, before)),
        recipe: RecipeBuilder::new(),
        bytes: head.pack().to_vec(),
    };
    let mut left = head.region_bytes;
    draft.each(head.region_bytes, &mut |record| {
        let length = left.min(CHUNK_BYTES as u64);
        left -= length;
        let pages = (length as usize).div_ceil(PAGE_BYTES);
        file.bytes.extend(record.marks[..pages].iter().flat_map(|mark| mark.0));
        if file.bytes.len() < CHUNK_BYTES {
            return Ok(());
        }
        let rest = file.bytes.split_off(CHUNK_BYTES);
        file.put(writer)?;
        file.bytes = rest;
        Ok(())
    })?;
    file.put(writer)?;
    Ok(file.recipe.finish(&mut writer.metadata(file.in_place.as_mut()))?)
}

struct MarksFile<'f, 'r> {
    shared: &'f Shared<'f, 'r>,
    in_place: Option<StreamBasis<'r>>,
    recipe: RecipeBuilder,
    /// What is not stored yet.
    bytes: Vec<u8>,
}

impl MarksFile<'_, '_> {
    fn put(&mut self, writer: &mut ChunkWriter<'_>) -> Result<(), EngineError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let chunk = match self.bytes.iter().all(|byte| *byte == 0) {
            true => ChunkRef::hole(self.bytes.len() as u64),
            false => {
                let fingerprint = self.shared.cutter.fingerprint(&self.bytes);
                let offset = self.recipe.stream_bytes();
                writer.put_data(&self.bytes, fingerprint, offset, self.in_place.as_mut())?
            }
        };
        self.bytes.clear();
        Ok(self.recipe.push(chunk, &mut writer.metadata(self.in_place.as_mut()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_frozen() {
        let head = MarksHead { seed: 0x0102_0304_0506_0708, region_bytes: 9 };
        let packed = head.pack();
        assert_eq!(MarksHead::unpack(&packed), Some(head));
        let bytes =
            *b"SRMARKS\0\x00\x40\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0";
        assert_eq!(packed, bytes);
        for at in 0..16 {
            let mut other = packed;
            other[at] ^= 1;
            assert_eq!(MarksHead::unpack(&other), None, "another magic, or pages of another size");
        }
    }
}
