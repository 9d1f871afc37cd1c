//! Free clusters: those that all copies of the table call free, if the tree agrees with the table.

use std::ops::ControlFlow;

use crate::claims::Claims;
use crate::clusters::FIRST;
use crate::error::{DiskError, Result};
use crate::free::FreeMap;

use super::{Fat, Place};

/// Directories that are waiting to be looked at.
const WAITING_MAX: usize = 1 << 20;

/// The free bytes of a volume whose table can be trusted.
///
/// Nothing is free if a chain is broken, leads back, or shares a cluster with another: then the table
/// and the directories were not written together.
pub(super) fn map(fat: &Fat<'_>) -> Result<FreeMap> {
    let clusters = &fat.clusters;
    let mut claims = Claims::new(clusters);
    let mut waiting = Vec::new();
    if let Place::Chain(chain) = fat.root_place() {
        claims.claim(clusters, chain)?;
    }
    waiting.push(fat.root_place());
    while let Some(place) = waiting.pop() {
        let mut result = Ok(());
        fat.used(place, &mut |_, entry, _| {
            if entry.first != 0 && result.is_ok() {
                result = claims.claim(clusters, super::chain(entry.first));
                if entry.is_directory {
                    waiting.push(Place::Chain(super::chain(entry.first)));
                }
            }
            let goes_on = result.is_ok() && waiting.len() <= WAITING_MAX;
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        if waiting.len() > WAITING_MAX {
            return Err(DiskError::unsupported("this many directories in one"));
        }
    }
    let mut map = FreeMap::new(fat.facts.bytes, fat.facts.block_bytes);
    add(fat, &mut map)?;
    Ok(map)
}

/// Adds what all copies of the table call free.
fn add(fat: &Fat<'_>, map: &mut FreeMap) -> Result<()> {
    let clusters = &fat.clusters;
    let (per_page, width) = (clusters.width.per_page(), clusters.width);
    let end = u64::from(clusters.count) + u64::from(FIRST);
    let mut pending = 0..0;
    for page in 0..end.div_ceil(per_page) {
        let copies = fat.tables.iter().map(|table| clusters.page(table, page));
        let copies = copies.collect::<Result<Vec<_>>>()?;
        let first = page * per_page;
        for number in first.max(FIRST.into())..(first + per_page).min(end) {
            let is_free = |copy: &Vec<u8>| width.entry(copy, number - first) == 0;
            if !copies.iter().all(is_free) {
                continue;
            }
            let place = clusters.place(number as u32);
            if pending.end != place {
                map.add(pending);
                pending = place..place;
            }
            pending.end = place + clusters.cluster_bytes;
        }
    }
    map.add(pending);
    Ok(())
}
