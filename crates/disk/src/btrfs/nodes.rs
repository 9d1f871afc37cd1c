//! The nodes of trees, verified; and walks through trees.
//!
//! Every walk ends: levels fall from node to node, no node but a root is empty, and keys ascend. A
//! tree that contradicts this is damaged.

use std::ops::ControlFlow;
use std::sync::Arc;

use strongroom_base::ByteCache;

use crate::error::{DiskError, Result};
use crate::fields::{byte, le32, le64, part, uuid};
use crate::read::{ReadAt, read_vec};

use super::chunks::{self, Chunks};
use super::key::{Key, key};
use super::superblock::{Root, Superblock};

/// Nodes that are kept.
const CACHE_BYTES: usize = 8 << 20;
const HEAD_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const POINTER_BYTES: usize = 33;

/// The superblock, the chunks, and the nodes in them.
pub(super) struct Nodes<'a> {
    pub superblock: Superblock,
    pub chunks: Chunks,
    pub reader: &'a dyn ReadAt,
    cache: ByteCache<u64, Arc<[u8]>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(reader: &'a dyn ReadAt, superblock: Superblock, chunks: Chunks) -> Self {
        Self { superblock, chunks, reader, cache: ByteCache::new(CACHE_BYTES) }
    }

    /// A node, of the first copy of it that is intact.
    pub(super) fn get(&self, root: Root) -> Result<Node> {
        let bytes = match self.cache.get(&root.logical) {
            Some(known) => known,
            None => self.read(root)?,
        };
        let node = Node { level: root.level, bytes };
        // A cached node can be what another pointer is wrong about.
        node.check(root)?;
        Ok(node)
    }

    fn read(&self, root: Root) -> Result<Arc<[u8]>> {
        let (chunk, inside) = self.chunks.find(root.logical, self.superblock.node_bytes as u64)?;
        let mut first = None;
        for place in &chunk.places {
            match self.copy(place + inside, root) {
                Ok(bytes) => {
                    self.cache.put(root.logical, bytes.clone(), bytes.len());
                    return Ok(bytes);
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(DiskError::damaged("a node, by logical byte", root.logical)))
    }

    fn copy(&self, place: u64, root: Root) -> Result<Arc<[u8]>> {
        let bytes = read_vec(self.reader, place, self.superblock.node_bytes)?;
        let is_right = self.superblock.checksum.is_right(&bytes)
            && uuid(&bytes, 32) == self.superblock.node_uuid
            && le64(&bytes, 48) == root.logical;
        if !is_right {
            return Err(DiskError::damaged("checksum of a node, by logical byte", root.logical));
        }
        let node = Node { level: root.level, bytes: bytes.into() };
        node.check(root)?;
        Ok(node.bytes)
    }
}

/// A node.
pub(super) struct Node {
    level: u8,
    bytes: Arc<[u8]>,
}

impl Node {
    fn check(&self, root: Root) -> Result<()> {
        let is_right = byte(&self.bytes, 100) == root.level
            && le64(&self.bytes, 80) == root.generation
            && self.count() <= (self.bytes.len() - HEAD_BYTES) / self.entry_bytes();
        if is_right {
            return Ok(());
        }
        Err(DiskError::damaged("a node of another tree, by logical byte", root.logical))
    }

    fn entry_bytes(&self) -> usize {
        if self.level == 0 { ITEM_BYTES } else { POINTER_BYTES }
    }

    pub(super) fn count(&self) -> usize {
        le32(&self.bytes, 96) as usize
    }

    fn entry(&self, index: usize) -> &[u8] {
        part(&self.bytes, HEAD_BYTES + index * self.entry_bytes(), self.entry_bytes())
    }

    fn key(&self, index: usize) -> Key {
        key(self.entry(index))
    }

    /// The content of an item of a leaf.
    fn item(&self, index: usize) -> Option<&[u8]> {
        let entry = self.entry(index);
        let (offset, bytes) = (le32(entry, 17) as usize, le32(entry, 21) as usize);
        let start = HEAD_BYTES.checked_add(offset)?;
        self.bytes.get(start..start.checked_add(bytes)?)
    }

    /// The node that a pointer leads to.
    fn child(&self, index: usize) -> Root {
        let entry = self.entry(index);
        Root { logical: le64(entry, 17), level: self.level - 1, generation: le64(entry, 25) }
    }

    /// The first entry whose key is above another.
    fn above(&self, wanted: Key) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) <= wanted { low = middle + 1 } else { high = middle }
        }
        low
    }
}

type Take<'t> = &'t mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>;

/// Gives the items of a tree to `take`, from a key on, until `take` breaks.
pub(super) fn walk(nodes: &Nodes<'_>, root: Root, from: Key, take: Take<'_>) -> Result<()> {
    let mut walk = Walk { nodes, from, take, last: None, seen: &mut |_| true };
    walk.node(root, true).map(drop)
}

/// Gives all items of a tree to `take`; nodes for which `see` returns false are left out.
pub(super) fn walk_unseen(
    nodes: &Nodes<'_>,
    root: Root,
    see: &mut dyn FnMut(u64) -> bool,
    take: Take<'_>,
) -> Result<()> {
    let from = Key { object: 0, kind: 0, offset: 0 };
    let mut walk = Walk { nodes, from, take, last: None, seen: see };
    walk.node(root, true).map(drop)
}

struct Walk<'w, 'a> {
    nodes: &'w Nodes<'a>,
    from: Key,
    take: Take<'w>,
    /// The last key that was passed.
    last: Option<Key>,
    seen: &'w mut dyn FnMut(u64) -> bool,
}

impl Walk<'_, '_> {
    fn node(&mut self, root: Root, is_root: bool) -> Result<ControlFlow<()>> {
        if !(self.seen)(root.logical) {
            return Ok(ControlFlow::Continue(()));
        }
        let damaged = || DiskError::damaged("order of a tree, by logical byte", root.logical);
        let node = self.nodes.get(root)?;
        let count = node.count();
        if count == 0 && !(is_root && root.level == 0) {
            return Err(damaged());
        }
        // A child can have keys from its own on, up to the next one's.
        let above = node.above(self.from);
        if root.level > 0 {
            for index in above.saturating_sub(1)..count {
                if self.node(node.child(index), false)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        let is_first = above > 0 && node.key(above - 1) == self.from;
        for index in above - usize::from(is_first)..count {
            let key = node.key(index);
            if self.last.is_some_and(|last| last >= key) {
                return Err(damaged());
            }
            self.last = Some(key);
            let item = node.item(index).ok_or_else(damaged)?;
            if (self.take)(key, item).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The last key of a tree that is not above another; `None` if the node in which it would be has
/// none.
pub(super) fn floor(nodes: &Nodes<'_>, root: Root, wanted: Key) -> Result<Option<Key>> {
    let mut at = root;
    loop {
        let node = nodes.get(at)?;
        let above = node.above(wanted);
        if at.level == 0 {
            return Ok(above.checked_sub(1).map(|index| node.key(index)));
        }
        if node.count() == 0 {
            return Err(DiskError::damaged("an empty node, by logical byte", at.logical));
        }
        at = node.child(above.saturating_sub(1));
    }
}

/// The item of a tree with a key.
pub(super) fn find(nodes: &Nodes<'_>, root: Root, wanted: Key) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    walk(nodes, root, wanted, &mut |key, bytes| {
        if key == wanted {
            found = Some(bytes.to_vec());
        }
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// All chunks, by those with which the nodes are read.
pub(super) fn all_chunks(nodes: &Nodes<'_>) -> Result<Chunks> {
    let mut list = Chunks::default();
    let mut result = Ok(());
    walk(nodes, nodes.superblock.chunks, chunks::FIRST, &mut |key, bytes| {
        if (key.object, key.kind) != (chunks::FIRST.object, chunks::FIRST.kind) {
            return ControlFlow::Break(());
        }
        result = list.add(&nodes.superblock, key, bytes);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    result?;
    list.sort()?;
    Ok(list)
}
