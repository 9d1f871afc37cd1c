//! Which chunk of a directory's tree holds which entries.

use strongroom_catalog::ChunkRef;

/// Where a directory's entries are.
pub struct Shape {
    /// The chunks of its tree that hold entries, in order.
    pub pages: Vec<PageRef>,
    /// How many entries the directory has.
    pub entries: u32,
}

/// A chunk of a tree.
pub struct PageRef {
    /// The chunk.
    pub chunk: ChunkRef,
    /// The place of its first entry in the directory.
    pub first_place: u32,
    /// The name of its first entry.
    pub first_name: Vec<u8>,
}

impl Shape {
    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let names: usize = self.pages.iter().map(|page| page.first_name.capacity()).sum();
        size_of::<Self>() + self.pages.capacity() * size_of::<PageRef>() + names
    }
}
