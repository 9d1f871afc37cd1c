//! Trees: one directory each, its entries sorted by name, kept as a stream of chunks.
//!
//! A chunk of a tree ends between two entries, after a name whose own hash decides so: a change of
//! one entry changes one chunk, even in a large directory.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use strongroom_base::regimes::{Regime, reached, reached_if};

use crate::entry::{Entry, is_valid_name};
use crate::format::{EntryUnpacker, FormatError, put_entry};
use crate::recipe::{RecipeBuilder, RecipeReader};
use crate::reference::{ChunkRef, Recipe};
use crate::store::{CatalogError, Part, ReadChunk, WriteChunk};

/// An entry has at most this many bytes: no file system of Linux has larger attributes.
pub const ENTRY_BYTES_MAX: usize = 2 << 20;

/// Stores the tree of one directory, entry by entry, in the order of their names.
#[derive(Debug, Default)]
pub struct TreeWriter {
    chunk: Draft,
    /// Where in the tree's stream the chunk begins.
    offset: u64,
    /// Chunks that ended.
    chunks: u64,
    recipe: RecipeBuilder,
    /// Empty before the first entry.
    last_name: Vec<u8>,
}

/// The current chunk of a [`TreeWriter`]. While all its entries are the first entries of a stored
/// chunk, it is only a place in that chunk.
#[derive(Debug, Default)]
struct Draft {
    /// The stored chunk, and how many of its bytes the draft begins with.
    same: Option<(Arc<TreeChunk>, usize)>,
    /// What follows; empty while the draft is in step with a stored chunk.
    bytes: Vec<u8>,
}

/// A chunk of a stored tree.
#[derive(Debug)]
struct TreeChunk {
    chunk: ChunkRef,
    bytes: Vec<u8>,
}

/// An entry in a stored tree.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    chunk: Arc<TreeChunk>,
    place: Range<usize>,
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
    /// No entry can have its name: a reader would take the tree for damaged.
    #[error("no entry can have its name")]
    InvalidName,
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
        if !is_valid_name(&entry.name) {
            return Err(TreeWriteError::InvalidName);
        }
        let chunk = self.chunk.as_bytes();
        let before = chunk.len();
        put_entry(chunk, entry);
        let bytes = chunk.len() - before;
        if bytes > ENTRY_BYTES_MAX {
            chunk.truncate(before);
            return Err(TreeWriteError::EntryTooLarge { bytes });
        }
        Ok(self.end_entry(&entry.name, writer)?)
    }

    /// Appends an entry of another tree, from [`TreeReader::stored`]. A chunk that consists of only
    /// such entries, and of all entries of a stored chunk, is named and not made again.
    pub fn push_stored<W: WriteChunk>(
        &mut self,
        name: &[u8],
        entry: &StoredEntry,
        writer: &mut W,
    ) -> Result<(), W::Error> {
        self.chunk.push_stored(entry);
        self.end_entry(name, writer)
    }

    /// The recipe of the whole tree.
    pub fn finish<W: WriteChunk>(self, writer: &mut W) -> Result<Recipe, W::Error> {
        self.finish_by(RecipeBuilder::finish, writer)
    }

    /// The recipe of the tree of `/`, which no other tree names: one reference, by which all of it is
    /// found if its snapshot is lost.
    pub fn finish_root<W: WriteChunk>(self, writer: &mut W) -> Result<Recipe, W::Error> {
        self.finish_by(RecipeBuilder::finish_as_one, writer)
    }

    fn finish_by<W: WriteChunk>(
        mut self,
        finish: impl Fn(RecipeBuilder, &mut W) -> Result<Recipe, W::Error>,
        writer: &mut W,
    ) -> Result<Recipe, W::Error> {
        if self.chunk.len() > 0 {
            self.end_chunk(writer)?;
        }
        let tree = finish(self.recipe, writer)?;
        reached_if(self.chunks > 1, Regime::TreeOfChunks);
        reached_if(tree.depth >= 1, Regime::TreeWithNode);
        reached_if(tree.depth >= 3, Regime::TreeOfDepth3);
        Ok(tree)
    }

    fn end_entry<W: WriteChunk>(&mut self, name: &[u8], writer: &mut W) -> Result<(), W::Error> {
        assert!(self.last_name.as_slice() < name, "entries come sorted by name");
        self.last_name.clear();
        self.last_name.extend_from_slice(name);
        let limits = writer.limits();
        let ends = self.chunk.len() >= limits.tree_chunk_bytes_min && name_ends_chunk(name);
        if ends || self.chunk.len() >= limits.tree_chunk_bytes_max {
            self.end_chunk(writer)?;
        }
        Ok(())
    }

    fn end_chunk<W: WriteChunk>(&mut self, writer: &mut W) -> Result<(), W::Error> {
        let chunk = match self.chunk.whole() {
            Some(stored) if writer.holds(&stored)? => {
                reached(Regime::TreeChunkNamedAgain);
                stored
            }
            _ => {
                let part = Part { level: 0, offset: self.offset };
                let bytes = self.chunk.as_bytes();
                let (fingerprint, location) = writer.write_chunk(bytes, part)?;
                ChunkRef { fingerprint, location, stream_bytes: bytes.len() as u64 }
            }
        };
        self.offset += chunk.stream_bytes;
        self.chunks += 1;
        self.chunk.clear();
        self.recipe.push(chunk, writer)
    }
}

impl Draft {
    fn len(&self) -> usize {
        self.same.as_ref().map_or(0, |(_, bytes)| *bytes) + self.bytes.len()
    }

    /// The stored chunk, if it equals that chunk completely.
    fn whole(&self) -> Option<ChunkRef> {
        let (stored, bytes) = self.same.as_ref()?;
        (*bytes == stored.bytes.len()).then_some(stored.chunk)
    }

    /// Its bytes, no longer in step with a stored chunk.
    fn as_bytes(&mut self) -> &mut Vec<u8> {
        if let Some((stored, bytes)) = self.same.take() {
            self.bytes.extend_from_slice(&stored.bytes[..bytes]);
        }
        &mut self.bytes
    }

    fn push_stored(&mut self, entry: &StoredEntry) {
        let StoredEntry { chunk, place } = entry;
        match &mut self.same {
            Some((same, bytes)) if Arc::ptr_eq(same, chunk) && *bytes == place.start => {
                *bytes = place.end;
            }
            None if self.bytes.is_empty() && place.start == 0 => {
                self.same = Some((chunk.clone(), place.end));
            }
            _ => self.as_bytes().extend_from_slice(&chunk.bytes[place.clone()]),
        }
    }

    fn clear(&mut self) {
        self.same = None;
        self.bytes.clear();
    }
}

/// One name in 256, by FNV-1a and a last mixing step. Frozen: with other cuts, every large tree
/// would be stored again.
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
    /// `None` before the first entry.
    chunk: Option<Arc<TreeChunk>>,
    /// Where the last entry is in the chunk.
    last: Range<usize>,
}

impl<'r, R: ReadChunk> TreeReader<'r, R> {
    /// The tree that a recipe makes.
    pub fn new(tree: &Recipe, reader: &'r R) -> Self {
        let (recipe, unpacker) = (RecipeReader::new(tree, reader), EntryUnpacker::default());
        Self { reader, recipe, unpacker, chunk: None, last: 0..0 }
    }

    /// Moves to the next entry; returns false if there is none.
    pub fn advance(&mut self) -> Result<bool, CatalogError<R::Error>> {
        loop {
            let bytes = self.chunk.as_ref().map_or(&[][..], |chunk| &chunk.bytes);
            let start = self.last.end;
            if start < bytes.len() {
                let end = self.unpacker.unpack(bytes, start);
                // The entry after a damaged one cannot be found.
                self.last = start..*end.as_ref().unwrap_or(&bytes.len());
                end?;
                return Ok(true);
            }
            let Some((_, chunk)) = self.recipe.next_chunk()? else { return Ok(false) };
            if chunk.is_hole() {
                return Err(FormatError::damaged("tree", "a hole").into());
            }
            let bytes = self.reader.read_chunk(&chunk).map_err(CatalogError::Chunk)?;
            if bytes.is_empty() {
                return Err(FormatError::empty_tree_chunk().into());
            }
            if bytes.len() as u64 != chunk.stream_bytes {
                let detail = "a chunk of another length than the reference to it says";
                return Err(FormatError::damaged("tree", detail).into());
            }
            self.chunk = Some(Arc::new(TreeChunk { chunk, bytes }));
            self.last = 0..0;
        }
    }

    /// The entry to which [`TreeReader::advance`] moved.
    pub fn entry(&self) -> &Entry {
        self.unpacker.entry()
    }

    /// The same, with its place in the tree; `None` before the first.
    pub fn stored(&self) -> Option<StoredEntry> {
        Some(StoredEntry { chunk: self.chunk.clone()?, place: self.last.clone() })
    }

    /// The next entry.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, CatalogError<R::Error>> {
        Ok(self.advance()?.then(|| self.entry().clone()))
    }

    /// All remaining entries.
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
