//! The parts of a stream in their order. What a node names that cannot be read is one of them, so that a
//! reader goes on behind it (`docs/format/recipe.md`, *What a crash or damage can leave*).

use strongroom_catalog::{ChunkRef, Recipe, RecipeReader};
use strongroom_repository::{ChunkReader, RepositoryError};

/// A part of a stream.
#[derive(Debug)]
pub enum Part {
    /// A chunk or a hole, and the place in the stream where it begins.
    Chunk(u64, ChunkRef),
    /// A part that is damaged or lost.
    Lost(LostPart),
}

/// A part of a stream that cannot be read, because a node of the recipe cannot.
#[derive(Debug)]
pub struct LostPart {
    /// Where in the stream it begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Why.
    pub why: RepositoryError,
}

/// The parts of a stream that are yet to come.
pub struct Parts<'r>(RecipeReader<'r, ChunkReader>);

impl<'r> Parts<'r> {
    /// From the start of the stream.
    pub fn new(recipe: &Recipe, reader: &'r ChunkReader) -> Self {
        Self(RecipeReader::new(recipe, reader))
    }

    /// Skips to the part that holds the stream's byte at `offset`. Returns it if it is lost, and with it
    /// what lies before `offset`.
    pub fn seek_forward(&mut self, offset: u64) -> Result<Option<LostPart>, RepositoryError> {
        let sought =
            self.read(|recipe| recipe.seek_forward(offset).map_err(RepositoryError::from))?;
        Ok(sought.err())
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    ///
    /// The repository cannot be read; damage is a part.
    pub fn next(&mut self) -> Result<Option<Part>, RepositoryError> {
        let next = self.read(|recipe| recipe.next_chunk().map_err(RepositoryError::from))?;
        Ok(match next {
            Ok(chunk) => chunk.map(|(offset, chunk)| Part::Chunk(offset, chunk)),
            Err(lost) => Some(Part::Lost(lost)),
        })
    }

    /// Reads on. After damage the recipe goes on behind what is lost.
    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut RecipeReader<'r, ChunkReader>) -> Result<T, RepositoryError>,
    ) -> Result<Result<T, LostPart>, RepositoryError> {
        let offset = self.0.offset();
        match read(&mut self.0) {
            Err(why) if why.is_damage() => {
                let bytes = self.0.offset() - offset;
                Ok(Err(LostPart { offset, bytes, why }))
            }
            Err(error) => Err(error),
            Ok(read) => Ok(Ok(read)),
        }
    }
}
