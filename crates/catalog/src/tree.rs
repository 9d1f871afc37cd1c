//! Trees: one directory each, its entries sorted by name, kept as a stream of chunks.
//!
//! A chunk of a tree ends between two entries, at a name that says so by its own hash: a change of
//! one entry changes one chunk, however large the directory.

use std::cmp::Ordering;
use std::ops::Range;

use crate::entry::Entry;
use crate::format::{EntryUnpacker, FormatError, put_entry};
use crate::recipe::{ChunkRef, Recipe, RecipeBuilder, RecipeReader};
use crate::store::{CatalogError, Part, ReadChunk, WriteChunk};

/// A chunk of a tree has at least so many bytes, unless it is the last. Well below the distance
/// of names that end a chunk, so that cuts fall into step again right after a change.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// A chunk of a tree ends once it has so many bytes.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// An entry's bytes are at most so many: attributes beyond that no file system of Linux has.
pub const ENTRY_BYTES_MAX: usize = 2 << 20;

/// Stores the tree of one directory, entry by entry, in the order of their names.
#[derive(Debug, Default)]
pub struct TreeWriter {
    chunk: Vec<u8>,
    /// Where in the tree's stream the chunk begins.
    offset: u64,
    recipe: RecipeBuilder,
    /// Empty before the first entry.
    last_name: Vec<u8>,
}

/// Why an entry cannot be put into a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeWriteError<E: std::error::Error + 'static> {
    /// Its attributes are too large.
    #[error("its metadata takes {bytes} bytes, more than the {ENTRY_BYTES_MAX} that an entry may")]
    EntryTooLarge {
        /// What they would take.
        bytes: usize,
    },
    /// A chunk cannot be kept.
    #[error(transparent)]
    Chunk(#[from] E),
}

impl TreeWriter {
    /// The tree of an empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an entry, whose name comes after all before.
    pub fn push<W: WriteChunk>(
        &mut self,
        entry: &Entry,
        writer: &mut W,
    ) -> Result<(), TreeWriteError<W::Error>> {
        let before = self.chunk.len();
        put_entry(&mut self.chunk, entry);
        let bytes = self.chunk.len() - before;
        if bytes > ENTRY_BYTES_MAX {
            self.chunk.truncate(before);
            return Err(TreeWriteError::EntryTooLarge { bytes });
        }
        Ok(self.end_entry(&entry.name, writer)?)
    }

    /// Appends an entry as it stands in another tree, [`TreeReader::last_bytes`].
    pub fn push_bytes<W: WriteChunk>(
        &mut self,
        name: &[u8],
        entry: &[u8],
        writer: &mut W,
    ) -> Result<(), W::Error> {
        self.chunk.extend_from_slice(entry);
        self.end_entry(name, writer)
    }

    /// The recipe of the whole tree.
    pub fn finish<W: WriteChunk>(mut self, writer: &mut W) -> Result<Recipe, W::Error> {
        if !self.chunk.is_empty() {
            self.end_chunk(writer)?;
        }
        self.recipe.finish(writer)
    }

    fn end_entry<W: WriteChunk>(&mut self, name: &[u8], writer: &mut W) -> Result<(), W::Error> {
        assert!(self.last_name.as_slice() < name, "entries come sorted by name");
        self.last_name.clear();
        self.last_name.extend_from_slice(name);
        let ends = self.chunk.len() >= CHUNK_BYTES_MIN && name_ends_chunk(name);
        if ends || self.chunk.len() >= CHUNK_BYTES_MAX {
            self.end_chunk(writer)?;
        }
        Ok(())
    }

    fn end_chunk<W: WriteChunk>(&mut self, writer: &mut W) -> Result<(), W::Error> {
        let part = Part { level: 0, offset: self.offset };
        let (fingerprint, location) = writer.write_chunk(&self.chunk, part)?;
        let stream_bytes = self.chunk.len() as u64;
        self.offset += stream_bytes;
        self.chunk.clear();
        self.recipe.push(ChunkRef { fingerprint, location, stream_bytes }, writer)
    }
}

/// One name in 256, by FNV-1a and a last mixing step. Frozen: other cuts would store every
/// large tree anew.
fn name_ends_chunk(name: &[u8]) -> bool {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 56 == 0
}

/// Reads a tree, entry by entry.
pub struct TreeReader<'r, R> {
    reader: &'r R,
    recipe: RecipeReader<'r, R>,
    unpacker: EntryUnpacker,
    chunk: Vec<u8>,
    /// Where the last entry stands in the chunk.
    last: Range<usize>,
}

impl<'r, R: ReadChunk> TreeReader<'r, R> {
    /// The tree that a recipe makes.
    pub fn new(tree: &Recipe, reader: &'r R) -> Self {
        let (recipe, unpacker) = (RecipeReader::new(tree, reader), EntryUnpacker::default());
        Self { reader, recipe, unpacker, chunk: Vec::new(), last: 0..0 }
    }

    /// The next entry.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, CatalogError<R::Error>> {
        loop {
            let start = self.last.end;
            if start < self.chunk.len() {
                let unpacked = self.unpacker.unpack(&self.chunk, start);
                // What follows something damaged cannot be told from it.
                self.last = start..unpacked.as_ref().map_or(self.chunk.len(), |(_, end)| *end);
                return Ok(Some(unpacked?.0));
            }
            let Some((_, chunk)) = self.recipe.next_chunk()? else { return Ok(None) };
            self.chunk = self.reader.read_chunk(&chunk).map_err(CatalogError::Chunk)?;
            self.last = 0..0;
            if self.chunk.is_empty() {
                return Err(FormatError::empty_tree_chunk().into());
            }
        }
    }

    /// The entry told last, as it stands in the tree.
    pub fn last_bytes(&self) -> &[u8] {
        &self.chunk[self.last.clone()]
    }

    /// All the entries that are left.
    pub fn read_all(mut self) -> Result<Vec<Entry>, CatalogError<R::Error>> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// The entry of a name in a tree.
pub fn find_entry<R: ReadChunk>(
    tree: &Recipe,
    name: &[u8],
    reader: &R,
) -> Result<Option<Entry>, CatalogError<R::Error>> {
    let mut entries = TreeReader::new(tree, reader);
    while let Some(entry) = entries.next_entry()? {
        match entry.name.as_slice().cmp(name) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(Some(entry)),
            Ordering::Greater => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
