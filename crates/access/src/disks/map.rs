//! Where the bytes of a disk are: its recipe, searched from the top.
//!
//! The recipe of a large disk is a tree with millions of references. Only the nodes on the way to a
//! byte are read, and nodes that were read are kept for all disks together: those of two nights of a
//! machine are mostly the same.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use strongroom_base::{ByteCache, Fingerprint};
use strongroom_catalog::recipe::read_node;
use strongroom_catalog::{ChunkRef, ReadChunk, Recipe};
use strongroom_nbd::Extent;

use crate::chunks::Failure;

/// The most extents of one answer.
const EXTENTS_MAX: usize = 1 << 16;
/// The most chunks that are looked at for one answer about extents: some 8 GiB of a disk.
const CHUNKS_MAX: usize = 1 << 17;

/// The references of one node, with the place of each in the part of the disk that it covers.
struct Node {
    /// Where each reference ends. They ascend.
    ends: Vec<u64>,
    refs: Vec<ChunkRef>,
}

impl Node {
    fn new(refs: Vec<ChunkRef>) -> Self {
        let mut end = 0_u64;
        let ends = refs.iter().map(|chunk| {
            end = end.saturating_add(chunk.stream_bytes);
            end
        });
        Self { ends: ends.collect(), refs }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.ends.capacity() * size_of::<u64>()
            + self.refs.capacity() * size_of::<ChunkRef>()
    }

    fn start_of(&self, place: usize) -> u64 {
        place.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

/// The nodes that were read, of all disks.
pub struct Nodes<R> {
    reader: Arc<R>,
    kept: ByteCache<Fingerprint, Arc<Node>>,
}

impl<R: ReadChunk<Error = Failure>> Nodes<R> {
    /// Reads nodes with this reader, and keeps this many bytes of them.
    pub fn new(reader: Arc<R>, bytes_max: usize) -> Self {
        Self { reader, kept: ByteCache::new(bytes_max) }
    }

    fn node(&self, chunk: &ChunkRef) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.kept.get(&chunk.fingerprint) {
            // Two references may name one node and say that it has another length.
            if node.ends.last() == Some(&chunk.stream_bytes) {
                return Ok(node);
            }
        }
        let node = Arc::new(Node::new(read_node(chunk, &*self.reader)?));
        self.kept.put(chunk.fingerprint, node.clone(), node.heap_bytes());
        Ok(node)
    }
}

/// The recipe of a disk.
pub struct DiskMap {
    depth: u8,
    top: Arc<Node>,
    bytes: u64,
}

/// A chunk or hole, or a run of them, that was found.
struct Position {
    node: Arc<Node>,
    /// Which of the node's references it is.
    place: usize,
    /// Where on the disk the node begins.
    node_start: u64,
    /// The node's references are chunks, not nodes.
    is_leaf: bool,
}

impl DiskMap {
    /// The map of a recipe. It fails if the disk were larger than any file can be.
    pub fn new(recipe: &Recipe) -> Result<Self, Failure> {
        let bytes = recipe.stream_bytes();
        if bytes > i64::MAX as u64 {
            return Err(Failure::damage("the recipe is for more bytes than a file can have"));
        }
        let refs = recipe.refs.iter().filter(|chunk| chunk.stream_bytes > 0).copied();
        Ok(Self { depth: recipe.depth, bytes, top: Arc::new(Node::new(refs.collect())) })
    }

    /// The size of the disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Calls `visit` with each chunk or hole that has a byte of the range, in order, and with the
    /// byte of the disk that it begins at. `visit` may end this.
    pub fn for_each<R: ReadChunk<Error = Failure>, E: From<Failure>>(
        &self,
        range: Range<u64>,
        nodes: &Nodes<R>,
        mut visit: impl FnMut(u64, &ChunkRef) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut offset = range.start;
        let end = range.end.min(self.bytes);
        while offset < end {
            let Position { node, place, node_start, is_leaf } = self.find(offset, nodes)?;
            // Of a node that names nodes, only the hole that was found.
            let last = if is_leaf { node.refs.len() - 1 } else { place };
            for place in place..=last {
                let start = node_start + node.start_of(place);
                if start >= end || visit(start, &node.refs[place])?.is_break() {
                    return Ok(());
                }
                offset = node_start + node.ends[place];
            }
        }
        Ok(())
    }

    /// The chunk or hole that has a byte within the disk.
    fn find<R: ReadChunk<Error = Failure>>(
        &self,
        offset: u64,
        nodes: &Nodes<R>,
    ) -> Result<Position, Failure> {
        let (mut node, mut node_start, mut depth) = (self.top.clone(), 0, self.depth);
        loop {
            let within = offset - node_start;
            let place = node.ends.partition_point(|end| *end <= within);
            let Some(chunk) = node.refs.get(place) else {
                return Err(Failure::damage("the recipe ends before its disk"));
            };
            if depth == 0 || chunk.is_hole() {
                return Ok(Position { node, place, node_start, is_leaf: depth == 0 });
            }
            let below = nodes.node(chunk)?;
            node_start += node.start_of(place);
            node = below;
            depth -= 1;
        }
    }

    /// Data and holes of a range, in long runs: at least one, and perhaps not the whole range.
    pub fn extents<R: ReadChunk<Error = Failure>>(
        &self,
        range: Range<u64>,
        nodes: &Nodes<R>,
    ) -> Result<Vec<Extent>, Failure> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut chunks = 0;
        self.for_each(range.clone(), nodes, |start, chunk| {
            let end = start + chunk.stream_bytes;
            let bytes = end.min(range.end) - start.max(range.start);
            let is_full = extents.len() == EXTENTS_MAX;
            match extents.last_mut() {
                Some(last) if last.is_hole == chunk.is_hole() => last.bytes += bytes,
                _ if is_full => return Ok(ControlFlow::Break(())),
                _ => extents.push(Extent { bytes, is_hole: chunk.is_hole() }),
            }
            chunks += 1;
            Ok::<_, Failure>(if chunks == CHUNKS_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok(extents)
    }
}

#[cfg(test)]
mod tests;
