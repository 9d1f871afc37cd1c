//! Free bytes: what no chunk has, and what in a chunk the tree of extents does not have; without
//! all nodes and extents that the trees lead to.

use std::collections::{BTreeMap, HashSet};
use std::ops::{ControlFlow, Range};

use crate::error::{DiskError, Result};
use crate::fields::le64;
use crate::free::FreeMap;

use super::chunks::Chunk;
use super::file::{self, EXTENT};
use super::key::Key;
use super::nodes::{Nodes, walk, walk_unseen};
use super::roots::{self, EXTENTS, Found, GROUPS};
use super::superblock::{PLACES, Root};

const EXTENT_ITEM: u8 = 168;
const NODE_ITEM: u8 = 169;
const GROUP_ITEM: u8 = 192;
/// What the kernel leaves at the start of a device, and around each copy of the superblock.
const START_BYTES: u64 = 1 << 20;
const COPY_BYTES: u64 = 64 << 10;
/// Files can share extents; this many times the volume in all is a lie, and endless.
const SHARED_MAX: u64 = 1024;
/// Nodes that are remembered while snapshots are walked through.
const NODES_MAX: usize = 4 << 20;

/// The free bytes of a volume whose maps can be trusted.
pub(super) fn map(nodes: &Nodes<'_>) -> Result<FreeMap> {
    let superblock = &nodes.superblock;
    let mut all = Vec::new();
    roots::roots(nodes, &mut |found| all.push(found))?;
    let root = |id: u64| all.iter().find(|found| found.id == id).map(|found| found.root);
    let no_tree = |id| DiskError::damaged("a tree is missing, by its number", id);
    let extents = root(EXTENTS).ok_or_else(|| no_tree(EXTENTS))?;
    let groups = match superblock.has_group_tree {
        true => root(GROUPS).ok_or_else(|| no_tree(GROUPS))?,
        false => extents,
    };
    let mut map = FreeMap::new(superblock.bytes, superblock.sector_bytes);
    map.add(START_BYTES..superblock.bytes);
    // What the chunks have is not free, but for what is added again.
    for chunk in nodes.chunks.iter() {
        chunk.places.iter().for_each(|place| map.keep(*place..place + chunk.bytes));
    }
    let used = used_of_groups(nodes, groups)?;
    add_free_of_chunks(nodes, extents, &used, &mut map)?;
    map.keep(0..START_BYTES);
    PLACES.iter().for_each(|place| map.keep(*place..place + COPY_BYTES));
    keep_trees(nodes, &all, &mut map)?;
    Ok(map)
}

/// How many bytes of each block group are used, by its first logical byte.
fn used_of_groups(nodes: &Nodes<'_>, groups: Root) -> Result<BTreeMap<u64, u64>> {
    let mut used = BTreeMap::new();
    for chunk in nodes.chunks.iter() {
        let wanted = Key { object: chunk.logical, kind: GROUP_ITEM, offset: chunk.bytes };
        walk(nodes, groups, wanted, &mut |key, bytes| {
            if key == wanted {
                used.insert(chunk.logical, le64(bytes, 0));
            }
            ControlFlow::Break(())
        })?;
    }
    Ok(used)
}

/// Adds the gaps between extents, chunk by chunk.
fn add_free_of_chunks(
    nodes: &Nodes<'_>,
    extents: Root,
    used: &BTreeMap<u64, u64>,
    map: &mut FreeMap,
) -> Result<()> {
    for chunk in nodes.chunks.iter() {
        // A chunk whose extents contradict each other or its count has nothing that is free.
        let found = gaps(nodes, extents, chunk, &mut |_| {})?;
        if found.is_none() || found != used.get(&chunk.logical).copied() {
            continue;
        }
        gaps(nodes, extents, chunk, &mut |gap| {
            for place in &chunk.places {
                let start = place + (gap.start - chunk.logical);
                map.add(start..start + (gap.end - gap.start));
            }
        })?;
    }
    Ok(())
}

/// Gives the logical bytes of a chunk that are in no extent to `take`. Returns how many are in one;
/// `None` if extents overlap or leave the chunk.
fn gaps(
    nodes: &Nodes<'_>,
    extents: Root,
    chunk: &Chunk,
    take: &mut dyn FnMut(Range<u64>),
) -> Result<Option<u64>> {
    let end = chunk.logical + chunk.bytes;
    let (mut at, mut sum, mut is_right) = (chunk.logical, 0_u64, true);
    let first = Key { object: chunk.logical, kind: 0, offset: 0 };
    walk(nodes, extents, first, &mut |key, _| {
        let bytes = match key.kind {
            EXTENT_ITEM => key.offset,
            NODE_ITEM => nodes.superblock.node_bytes as u64,
            _ => 0,
        };
        if key.object >= end {
            return ControlFlow::Break(());
        }
        if bytes == 0 {
            return ControlFlow::Continue(());
        }
        is_right = key.object >= at && bytes <= end - key.object;
        if !is_right {
            return ControlFlow::Break(());
        }
        if key.object > at {
            take(at..key.object);
        }
        (at, sum) = (key.object + bytes, sum + bytes);
        ControlFlow::Continue(())
    })?;
    if is_right && at < end {
        take(at..end);
    }
    Ok(is_right.then_some(sum))
}

/// Keeps all that the trees lead to.
fn keep_trees(nodes: &Nodes<'_>, all: &[Found], map: &mut FreeMap) -> Result<()> {
    let superblock = &nodes.superblock;
    let node_bytes = superblock.node_bytes as u64;
    let first = [superblock.roots, superblock.chunks];
    let others = all.iter().filter(|found| !found.is_deleted).map(|found| found.root);
    let mut keep = Keep { nodes, map, bytes: 0 };
    // Snapshots share nodes.
    let mut seen = HashSet::new();
    for root in first.into_iter().chain(others) {
        let (mut fresh, mut problem) = (Vec::new(), Ok(()));
        let mut see = |logical| {
            let is_new = seen.insert(logical);
            if is_new {
                fresh.push(logical);
            }
            is_new
        };
        walk_unseen(nodes, root, &mut see, &mut |key, bytes| {
            if key.kind == EXTENT {
                problem = file::needed(bytes).and_then(|extent| match extent {
                    Some((logical, bytes)) => keep.extent(logical, bytes),
                    None => Ok(()),
                });
            }
            if problem.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        problem?;
        fresh.into_iter().try_for_each(|logical| keep.extent(logical, node_bytes))?;
        if seen.len() > NODES_MAX {
            return Err(DiskError::unsupported("free space of Btrfs with 4 million nodes"));
        }
    }
    Ok(())
}

/// What is subtracted from the free bytes.
struct Keep<'k, 'a> {
    nodes: &'k Nodes<'a>,
    map: &'k mut FreeMap,
    /// Bytes that files have, those that they share counted for each.
    bytes: u64,
}

impl Keep<'_, '_> {
    fn extent(&mut self, logical: u64, bytes: u64) -> Result<()> {
        let (chunk, inside) = self.nodes.chunks.find(logical, bytes)?;
        for place in &chunk.places {
            self.map.keep(place + inside..place + inside + bytes);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes / SHARED_MAX > self.nodes.superblock.bytes {
            return Err(DiskError::damaged("more bytes than the volume has, by byte", logical));
        }
        Ok(())
    }
}
