//! The entries of directories, chunk by chunk of their trees, in a bounded cache.
//!
//! A directory of a million names is never whole in memory: its *shape* tells which chunk of its
//! tree holds which places, and of the chunks only those last used are kept. Chunks are kept by
//! their fingerprints, so what is alike in many snapshots is kept once.

use std::ops::Deref;
use std::sync::Arc;

use strongroom_base::{ByteCache, Fingerprint};
use strongroom_catalog::format::unpack_entries;
use strongroom_catalog::{ChunkRef, Entry, ReadChunk, RecipeReader};

use super::chunks::{Chunks, Failure};
use super::nodes::Directory;
use super::shape::{PageRef, Shape};

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
}

impl Listings {
    /// Keeps entries that take at most this many bytes in memory, or one longer chunk of them.
    pub fn new(chunks: Arc<Chunks>, memory_bytes_max: usize) -> Self {
        Self { chunks, pages: ByteCache::new(memory_bytes_max) }
    }

    /// The entry at a place of a directory.
    pub fn entry(&self, directory: &Directory, place: u32) -> Result<Option<EntryRef>, Failure> {
        let shape = self.shape(directory)?;
        if place >= shape.entries {
            return Ok(None);
        }
        let number = shape.pages.partition_point(|page| page.first_place <= place) - 1;
        let within = (place - shape.pages[number].first_place) as usize;
        let page = self.page(&shape.pages[number].chunk)?;
        Ok((within < page.entries.len()).then_some(EntryRef { page, within }))
    }

    /// The entry of a name in a directory, and its place.
    pub fn find(
        &self,
        directory: &Directory,
        name: &[u8],
    ) -> Result<Option<(u32, EntryRef)>, Failure> {
        let shape = self.shape(directory)?;
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
    pub fn count(&self, directory: &Directory) -> Result<u32, Failure> {
        Ok(self.shape(directory)?.entries)
    }

    fn shape(&self, directory: &Directory) -> Result<Arc<Shape>, Failure> {
        if let Some(shape) = directory.shape.get() {
            return Ok(shape.clone());
        }
        let shape = Arc::new(self.read_shape(directory)?);
        Ok(directory.shape.get_or_init(|| shape).clone())
    }

    fn read_shape(&self, directory: &Directory) -> Result<Shape, Failure> {
        let mut recipe = RecipeReader::new(&directory.tree, &*self.chunks);
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
