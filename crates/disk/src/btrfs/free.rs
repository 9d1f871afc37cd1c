//! Free bytes: what no chunk has, and what in a chunk the tree of extents does not have; without
//! all nodes and extents that the trees lead to.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use crate::error::{DiskError, Result};
use crate::fields::le64;
use crate::free::FreeMap;

use super::chunks::Chunk;
use super::file::{self, EXTENT};
use super::nodes::{Key, Nodes, walk, walk_unseen};
use super::roots::{self, EXTENTS, Found, GROUPS};
use super::superblock::{PLACES, Root};

const EXTENT_ITEM: u8 = 168;
const NODE_ITEM: u8 = 169;
const GROUP_ITEM: u8 = 192;
/// What the kernel leaves at the start of a device, and around each copy of the superblock.
const START_BYTES: u64 = 1 << 20;
const COPY_BYTES: u64 = 64 << 10;

/// The free bytes of a volume whose maps can be trusted.
pub(super) fn map(nodes: &Nodes<'_>) -> Result<FreeMap> {
    let superblock = &nodes.superblock;
    if !superblock.has_known_maps() {
        return Err(DiskError::unsupported("allocation maps of an unknown kind"));
    }
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
        let end = chunk.logical + chunk.bytes;
        let (mut at, mut sum, mut gaps) = (chunk.logical, 0_u64, Vec::new());
        let mut is_right = true;
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
            is_right &= key.object >= at && bytes <= end - key.object;
            if !is_right {
                return ControlFlow::Break(());
            }
            if key.object > at {
                gaps.push(at..key.object);
            }
            (at, sum) = (key.object + bytes, sum + bytes);
            ControlFlow::Continue(())
        })?;
        // A chunk whose extents contradict each other or its count has nothing that is free.
        if !is_right || used.get(&chunk.logical) != Some(&sum) {
            continue;
        }
        gaps.push(at..end);
        for place in &chunk.places {
            for gap in &gaps {
                let start = place + (gap.start - chunk.logical);
                map.add(start..start + (gap.end - gap.start));
            }
        }
    }
    Ok(())
}

/// Keeps all that the trees lead to.
fn keep_trees(nodes: &Nodes<'_>, all: &[Found], map: &mut FreeMap) -> Result<()> {
    let superblock = &nodes.superblock;
    let first = [superblock.roots, superblock.chunks];
    let others = all.iter().filter(|found| !found.is_deleted).map(|found| found.root);
    // Snapshots share nodes.
    let mut seen = HashSet::new();
    for root in first.into_iter().chain(others) {
        let mut extents = Vec::new();
        let mut fresh = Vec::new();
        let mut problem = Ok(());
        let mut see = |logical| {
            let is_new = seen.insert(logical);
            if is_new {
                fresh.push(logical);
            }
            is_new
        };
        walk_unseen(nodes, root, &mut see, &mut |key, bytes| {
            if key.kind != EXTENT {
                return ControlFlow::Continue(());
            }
            match file::needed(bytes) {
                Ok(Some(extent)) if extents.last() != Some(&extent) => extents.push(extent),
                Ok(_) => {}
                Err(error) => problem = Err(error),
            }
            if extents.len() >= 1 << 16 {
                problem = keep_all(nodes, extents.drain(..), map);
            }
            if problem.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        problem?;
        keep_all(nodes, extents.into_iter(), map)?;
        let node_bytes = superblock.node_bytes as u64;
        keep_all(nodes, fresh.into_iter().map(|logical| (logical, node_bytes)), map)?;
    }
    Ok(())
}

fn keep_all(
    nodes: &Nodes<'_>,
    extents: impl Iterator<Item = (u64, u64)>,
    map: &mut FreeMap,
) -> Result<()> {
    for (logical, bytes) in extents {
        let (chunk, inside): (&Chunk, u64) = nodes.chunks.find(logical, bytes)?;
        for place in &chunk.places {
            map.keep(place + inside..place + inside + bytes);
        }
    }
    Ok(())
}
