//! Is the content of two files the same?

use strongroom_base::Cancel;
use strongroom_catalog::{ChunkRef, Recipe, RecipeReader};
use strongroom_repository::{ChunkReader, RepositoryError};
use strongroom_source::SourceFile;

use crate::error::EngineError;

/// At most this much of a hole is compared at a time.
const PIECE_BYTES: usize = 64 << 10;

/// True if two recipes, each read by its own reader, make the same stream. Chunks are compared by name as long as they are at the
/// same places, and are read only from the first difference on: a hole on one side alone, or
/// another cut, is no difference.
pub fn same_recipes(
    [one, other]: [&Recipe; 2],
    readers: [&ChunkReader; 2],
) -> Result<bool, EngineError> {
    if one.same_stream(other) {
        return Ok(true);
    }
    if one.stream_bytes() != other.stream_bytes() {
        return Ok(false);
    }
    let (mut one, mut other) = (Pieces::new(one, readers[0]), Pieces::new(other, readers[1]));
    loop {
        let (Some(a), Some(b)) = (one.front()?, other.front()?) else {
            return Ok(true);
        };
        let at_starts = one.taken == 0 && other.taken == 0;
        if at_starts && a.stream_bytes == b.stream_bytes {
            // By value, the same bytes may be in two places.
            let is_proof = !readers[0].naming().is_by_value();
            if a.fingerprint != b.fingerprint && is_proof && !a.is_hole() && !b.is_hole() {
                return Ok(false);
            }
            if a.fingerprint == b.fingerprint {
                one.take(a.stream_bytes);
                other.take(a.stream_bytes);
                continue;
            }
        }
        let bytes = one.left(&a).min(other.left(&b));
        if !(a.is_hole() && b.is_hole()) {
            let same = match (one.bytes(bytes)?, other.bytes(bytes)?) {
                (Some(a), Some(b)) => a == b,
                (Some(bytes), None) | (None, Some(bytes)) => bytes.iter().all(|byte| *byte == 0),
                (None, None) => true,
            };
            if !same {
                return Ok(false);
            }
        }
        one.take(bytes);
        other.take(bytes);
    }
}

/// A stream, piece by piece.
struct Pieces<'r> {
    reader: &'r ChunkReader,
    recipe: RecipeReader<'r, ChunkReader>,
    front: Option<ChunkRef>,
    /// How many bytes of the front have been compared.
    taken: u64,
    /// The front's bytes, once they were needed.
    chunk: Option<Vec<u8>>,
}

impl<'r> Pieces<'r> {
    fn new(recipe: &Recipe, reader: &'r ChunkReader) -> Self {
        let recipe = RecipeReader::new(recipe, reader);
        Self { reader, recipe, front: None, taken: 0, chunk: None }
    }

    /// The current chunk or hole.
    fn front(&mut self) -> Result<Option<ChunkRef>, EngineError> {
        while self.front.is_none_or(|front| front.stream_bytes == self.taken) {
            let next = self.recipe.next_chunk()?;
            (self.front, self.taken, self.chunk) = (next.map(|(_, chunk)| chunk), 0, None);
            if self.front.is_none() {
                break;
            }
        }
        Ok(self.front)
    }

    fn left(&self, front: &ChunkRef) -> u64 {
        front.stream_bytes - self.taken
    }

    /// The next bytes of the front; `None` for a hole.
    fn bytes(&mut self, count: u64) -> Result<Option<&[u8]>, EngineError> {
        let Some(front) = self.front.filter(|front| !front.is_hole()) else { return Ok(None) };
        if self.chunk.is_none() {
            self.chunk = Some(self.reader.read_data(&front)?);
        }
        let chunk = self.chunk.as_deref().unwrap_or_default();
        let wrong = RepositoryError::ChunkLost {
            fingerprint: front.fingerprint,
            location: front.location,
            why: "it has another length than the recipe says".to_owned(),
        };
        let start = usize::try_from(self.taken).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        chunk.get(start..end).map(Some).ok_or_else(|| wrong.into())
    }

    fn take(&mut self, bytes: u64) {
        self.taken += bytes;
    }
}

/// True if a file of the machine is the stream that a recipe makes. Of the stream only the recipe
/// is read.
pub fn same_as_file(
    recipe: &Recipe,
    file: &SourceFile,
    reader: &ChunkReader,
    cancel: &Cancel,
) -> Result<bool, EngineError> {
    let bytes = recipe.stream_bytes();
    if bytes != file.size() && !file.has_unknown_size() {
        return Ok(false);
    }
    if file.has_unknown_size() && file.read_at(bytes, &mut [0])? > 0 {
        return Ok(false);
    }
    let mut recipe = RecipeReader::new(recipe, reader);
    let mut buffer = Vec::new();
    while let Some((offset, chunk)) = recipe.next_chunk()? {
        cancel.check()?;
        let same = if chunk.is_hole() {
            is_zeros(file, offset, chunk.stream_bytes, &mut buffer, cancel)?
        } else {
            let Ok(bytes) = usize::try_from(chunk.stream_bytes) else { return Ok(false) };
            buffer.resize(bytes, 0);
            let count = file.read_at(offset, &mut buffer)?;
            count == bytes && reader.is_data(&chunk, &buffer)?
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_zeros(
    file: &SourceFile,
    offset: u64,
    bytes: u64,
    buffer: &mut Vec<u8>,
    cancel: &Cancel,
) -> Result<bool, EngineError> {
    let mut done = 0;
    while done < bytes {
        cancel.check()?;
        let piece = (bytes - done).min(PIECE_BYTES as u64);
        // A piece is at most PIECE_BYTES.
        buffer.resize(piece as usize, 0);
        let count = file.read_at(offset + done, buffer)?;
        if count as u64 != piece || buffer.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        done += piece;
    }
    Ok(true)
}
