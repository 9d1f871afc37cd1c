//! The entries of directories, chunk by chunk of their trees, in a bounded cache.
//!
//! A directory of a million names is never completely in memory: its *shape* says which chunk of
//! its tree holds which places, and only the chunks used last are kept. Chunks are kept by their
//! fingerprints, so what is the same in many snapshots is kept once.

use std::ops::Deref;
use std::sync::Arc;

use strongroom_base::{ByteCache, Fingerprint};
use strongroom_catalog::format::unpack_entries;
use strongroom_catalog::{ChunkRef, Entry, ReadChunk, Recipe, RecipeReader};

use super::shape::{PageRef, Shape};
use crate::chunks::{Chunks, Failure};

/// The entries of one chunk of a tree.
pub struct Page {
    entries: Vec<Entry>,
}

impl Page {
    fn memory_bytes(&self) -> usize {
        let heap: usize = self.entries.iter().map(Entry::heap_bytes).sum();
        size_of::<Self>() + self.entries.capacity() * size_of::<Entry>() + heap
    }
}

/// An entry in its page.
pub struct EntryRef {
    page: Arc<Page>,
    within: usize,
}

impl Deref for EntryRef {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.page.entries[self.within]
    }
}

/// Reads directories.
pub struct Listings {
    chunks: Arc<Chunks>,
    pages: ByteCache<Fingerprint, Arc<Page>>,
    /// By the name of the tree's recipe: one for a tree that many snapshots have.
    shapes: ByteCache<Fingerprint, Arc<Shape>>,
}

impl Listings {
    /// Keeps entries that take at most this many bytes in memory, or one longer chunk of them, and
    /// shapes that take a quarter as many.
    pub fn new(chunks: Arc<Chunks>, entry_bytes_max: usize) -> Self {
        let shapes = ByteCache::new(entry_bytes_max / 4);
        Self { chunks, pages: ByteCache::new(entry_bytes_max), shapes }
    }

    /// The entry at a place of a directory, of which this is the tree.
    pub fn entry(&self, tree: &Recipe, place: u32) -> Result<Option<EntryRef>, Failure> {
        let shape = self.shape(tree)?;
        if place >= shape.entries {
            return Ok(None);
        }
        let number = shape.pages.partition_point(|page| page.first_place <= place) - 1;
        let within = (place - shape.pages[number].first_place) as usize;
        let page = self.page(&shape.pages[number].chunk)?;
        Ok((within < page.entries.len()).then_some(EntryRef { page, within }))
    }

    /// The entry of a name in a directory, and its place.
    pub fn find(&self, tree: &Recipe, name: &[u8]) -> Result<Option<(u32, EntryRef)>, Failure> {
        let shape = self.shape(tree)?;
        let after = shape.pages.partition_point(|page| page.first_name.as_slice() <= name);
        let Some(number) = after.checked_sub(1) else { return Ok(None) };
        let page = self.page(&shape.pages[number].chunk)?;
        let found = page.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        // A page has fewer entries than bytes, and those are below 2^22.
        Ok(found.ok().map(|within| {
            (shape.pages[number].first_place + within as u32, EntryRef { page, within })
        }))
    }

    /// How many entries a directory has.
    pub fn count(&self, tree: &Recipe) -> Result<u32, Failure> {
        Ok(self.shape(tree)?.entries)
    }

    fn shape(&self, tree: &Recipe) -> Result<Arc<Shape>, Failure> {
        let key = name_of(tree);
        if let Some(shape) = self.shapes.get(&key) {
            return Ok(shape);
        }
        let shape = Arc::new(self.read_shape(tree)?);
        self.shapes.put(key, shape.clone(), shape.memory_bytes());
        Ok(shape)
    }

    fn read_shape(&self, tree: &Recipe) -> Result<Shape, Failure> {
        let mut recipe = RecipeReader::new(tree, &*self.chunks);
        let mut shape = Shape { pages: Vec::new(), entries: 0 };
        let mut last_name: Option<Vec<u8>> = None;
        while let Some((_, chunk)) = recipe.next_chunk()? {
            let page = self.page(&chunk)?;
            let (Some(first), Some(last)) = (page.entries.first(), page.entries.last()) else {
                continue;
            };
            if last_name.as_ref().is_some_and(|last| *last >= first.name) {
                return Err(Failure::damage("damaged tree: names out of order"));
            }
            last_name = Some(last.name.clone());
            let page_ref =
                PageRef { chunk, first_place: shape.entries, first_name: first.name.clone() };
            let count = u32::try_from(page.entries.len()).ok();
            shape.entries = count
                .and_then(|count| shape.entries.checked_add(count))
                .ok_or_else(|| Failure::damage("damaged tree: more entries than there can be"))?;
            shape.pages.push(page_ref);
        }
        Ok(shape)
    }

    fn page(&self, chunk: &ChunkRef) -> Result<Arc<Page>, Failure> {
        if let Some(page) = self.pages.get(&chunk.fingerprint) {
            return Ok(page);
        }
        let page = Arc::new(Page { entries: unpack_entries(&self.chunks.read_chunk(chunk)?)? });
        self.pages.put(chunk.fingerprint, page.clone(), page.memory_bytes());
        Ok(page)
    }
}

/// A name for a recipe: two with the same name lead to the same chunks, in the same order.
fn name_of(recipe: &Recipe) -> Fingerprint {
    if let (0, [chunk]) = (recipe.depth, &*recipe.refs) {
        return chunk.fingerprint;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[recipe.depth]);
    for chunk in &recipe.refs {
        hasher.update(&chunk.fingerprint.0);
    }
    Fingerprint(hasher.finalize().into())
}
