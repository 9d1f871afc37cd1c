//! Streams into chunks: read, cut, store, through one buffer of fixed size.

use std::io::Read;

use strongroom_base::Cancel;
use strongroom_catalog::{ChunkRef, Recipe, RecipeBuilder};
use strongroom_chunk::Chunker;
use strongroom_source::SourceFile;

use crate::basis::StreamBasis;
use crate::chunk_writer::ChunkWriter;
use crate::error::EngineError;

/// Cuts streams and stores their chunks.
pub struct StreamCutter {
    chunker: Chunker,
    buffer: Vec<u8>,
}

/// Bytes read at a time. Large enough that a chunk is always within it.
const BUFFER_BYTES: usize = 2 << 20;

/// Is told how many bytes of a stream were dealt with, and what was written.
pub type Tell<'t> = dyn FnMut(u64, &ChunkWriter<'_>) + 't;

/// Fills a buffer from its start; tells how many bytes it got, and whether they were the last.
type Fill<'f> = dyn FnMut(&mut [u8]) -> Result<(usize, bool), EngineError> + 'f;

impl StreamCutter {
    /// A cutter with a buffer of its own.
    pub fn new(chunker: Chunker) -> Self {
        assert!(chunker.limits().max() <= BUFFER_BYTES / 2, "a chunk is well within the buffer");
        Self { chunker, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Stores a file's content, holes as holes. Stopped in the middle, it gives the error that
    /// says so; the chunks so far are kept for the next run.
    pub fn store_file(
        &mut self,
        file: &SourceFile,
        writer: &mut ChunkWriter<'_>,
        mut basis: Option<StreamBasis<'_>>,
        tell: &mut Tell<'_>,
        cancel: &Cancel,
    ) -> Result<Recipe, EngineError> {
        let mut recipe = RecipeBuilder::new();
        let mut at = 0;
        for extent in file.extents() {
            let extent = extent?;
            if extent.offset > at {
                let hole = ChunkRef::hole(extent.offset - at);
                recipe.push(hole, &mut writer.metadata(basis.as_mut()))?;
                at = extent.offset;
            }
            let end = extent.offset + extent.bytes;
            let mut read = |buffer: &mut [u8]| {
                cancel.check()?;
                let length = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let count = file.read_at(at, &mut buffer[..length])?;
                at += count as u64;
                Ok((count, at == end || count < length))
            };
            self.store(&mut read, &mut recipe, writer, &mut basis, tell)?;
            if at < end {
                // The file was cut short while it was read: what is left of it ends here.
                return recipe.finish(&mut writer.metadata(basis.as_mut()));
            }
        }
        if at < file.size() {
            let hole = ChunkRef::hole(file.size() - at);
            recipe.push(hole, &mut writer.metadata(basis.as_mut()))?;
        }
        recipe.finish(&mut writer.metadata(basis.as_mut()))
    }

    /// Stores what a reader gives, to its end.
    pub fn store_reader(
        &mut self,
        input: &mut dyn Read,
        writer: &mut ChunkWriter<'_>,
        mut basis: Option<StreamBasis<'_>>,
        tell: &mut Tell<'_>,
    ) -> Result<Recipe, EngineError> {
        let mut recipe = RecipeBuilder::new();
        let mut read = |buffer: &mut [u8]| loop {
            match input.read(buffer) {
                Ok(count) => return Ok((count, count == 0)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(EngineError::Input(error)),
            }
        };
        self.store(&mut read, &mut recipe, writer, &mut basis, tell)?;
        recipe.finish(&mut writer.metadata(basis.as_mut()))
    }

    /// Reads to the end of a run of data.
    fn store(
        &mut self,
        read: &mut Fill<'_>,
        recipe: &mut RecipeBuilder,
        writer: &mut ChunkWriter<'_>,
        basis: &mut Option<StreamBasis<'_>>,
        tell: &mut Tell<'_>,
    ) -> Result<(), EngineError> {
        let (mut filled, mut at_end) = (0, false);
        while !at_end {
            let (count, is_last) = read(&mut self.buffer[filled..])?;
            filled += count;
            at_end = is_last;
            let mut cut = 0;
            while let Some(length) = self.chunker.cut(&self.buffer[cut..filled], at_end) {
                let bytes = &self.buffer[cut..cut + length];
                let chunk = writer.put_data(bytes, recipe.stream_bytes(), basis.as_mut())?;
                recipe.push(chunk, &mut writer.metadata(basis.as_mut()))?;
                cut += length;
                tell(length as u64, writer);
            }
            self.buffer.copy_within(cut..filled, 0);
            filled -= cut;
        }
        assert_eq!(filled, 0, "at the end of a stream the chunker leaves nothing");
        Ok(())
    }
}
