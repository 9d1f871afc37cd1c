//! Free clusters: those that the map calls free and that no file has.

use std::ops::ControlFlow;

use crate::claims::Claims;
use crate::clusters::{Chain, Content, FIRST};
use crate::error::{DiskError, Result};
use crate::free::FreeMap;
use crate::understood::NotUnderstood;

use super::ExFat;
use super::set::Slot;

/// Directories that are waiting to be looked at.
const WAITING_MAX: usize = 1 << 20;
/// Bytes of the map that are read at once.
const READ_BYTES: u64 = 64 << 10;

/// The free bytes of a volume whose map can be trusted. Nothing is free if a chain is broken, leads
/// back, or shares a cluster with another.
pub(super) fn map(exfat: &ExFat<'_>) -> Result<FreeMap> {
    let clusters = &exfat.clusters;
    let mut claims = Claims::new(clusters);
    claims.claim(clusters, exfat.root_chain())?;
    let mut bits = None;
    let (mut others, mut is_known) = (Vec::new(), true);
    exfat.clusters.slots(exfat.root_chain(), super::DIRECTORY_BYTES_MAX, &mut |_, slot| {
        match Slot::parse(slot) {
            Slot::End => return ControlFlow::Break(()),
            Slot::Bitmap { copy, content } => {
                if copy == exfat.active {
                    bits = Some(content);
                }
                others.push(content);
            }
            Slot::CaseTable { content } => others.push(content),
            Slot::Critical => is_known = false,
            _ => {}
        }
        // One table of letters and two maps are all that there can be.
        if others.len() > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if !is_known {
        return Err(NotUnderstood::Form("an entry of exFAT of an unknown kind").into());
    }
    for (first, _) in others {
        claims.claim(clusters, Chain { first, consecutive: None })?;
    }
    claim_files(exfat, &mut claims)?;
    let (first, bytes) =
        bits.ok_or_else(|| DiskError::damaged("there is no map of clusters", 0))?;
    if bytes < u64::from(clusters.count).div_ceil(8) {
        return Err(DiskError::damaged("size of the map of clusters", bytes));
    }
    let chain = Chain { first, consecutive: None };
    add(exfat, &Content { chain, bytes, written: bytes }, &claims)
}

fn claim_files(exfat: &ExFat<'_>, claims: &mut Claims) -> Result<()> {
    let clusters = &exfat.clusters;
    let mut waiting = vec![exfat.root_chain()];
    while let Some(directory) = waiting.pop() {
        let mut result = Ok(());
        exfat.sets(directory, &mut |_, set| {
            if let Some(content) = set.content(clusters.cluster_bytes) {
                result = claims.claim(clusters, content.chain);
                if set.is_directory {
                    waiting.push(content.chain);
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
    Ok(())
}

/// Adds what the map calls free, without what files have.
fn add(exfat: &ExFat<'_>, bits: &Content, claims: &Claims) -> Result<FreeMap> {
    let clusters = &exfat.clusters;
    let mut map = FreeMap::new(exfat.facts.bytes, exfat.facts.block_bytes);
    let mut bytes = vec![0; READ_BYTES as usize];
    let mut pending = 0..0;
    for at in (0..u64::from(clusters.count).div_ceil(8)).step_by(READ_BYTES as usize) {
        let read = clusters.read(bits, at, &mut bytes)?;
        for (first, byte) in (at * 8..).step_by(8).zip(&bytes[..read]) {
            for index in first..(first + 8).min(clusters.count.into()) {
                let cluster = index as u32 + FIRST;
                if byte >> (index - first) & 1 != 0 || claims.has(cluster) {
                    continue;
                }
                let place = clusters.place(cluster);
                if pending.end != place {
                    map.add(pending);
                    pending = place..place;
                }
                pending.end = place + clusters.cluster_bytes;
            }
        }
    }
    map.add(pending);
    Ok(map)
}
