//! Free clusters: those that the map of all clusters calls free, without all that records have.

use crate::error::{DiskError, Result};
use crate::free::FreeMap;

use super::Ntfs;
use super::inode::Inode;
use super::mft::Mft;
use super::record::{Record, kind};
use super::runs::runs;
use super::stream::Stream;

const MFT: u64 = 0;
const BITMAP: u64 = 6;
/// Bytes that are read at once, of the map and of records.
const READ_BYTES: u64 = 1 << 20;

/// The free bytes of a volume whose map can be trusted.
pub(super) fn map(ntfs: &Ntfs<'_>) -> Result<FreeMap> {
    let (mft, boot) = (&ntfs.mft, &ntfs.mft.boot);
    let mut map = FreeMap::new(boot.clusters * boot.cluster_bytes, boot.cluster_bytes);
    let file = Inode::load(mft, BITMAP)?;
    let bits = file.stream(mft, kind::DATA, b"")?;
    let bits = bits.ok_or_else(|| file.damaged("map of the clusters, by record"))?;
    if bits.written < boot.clusters.div_ceil(8) {
        return Err(file.damaged("size of the map of the clusters, by record"));
    }
    add(mft, &bits, &mut map)?;
    keep(mft, &mut map)?;
    Ok(map)
}

/// Adds what the map calls free.
fn add(mft: &Mft<'_>, bits: &Stream, map: &mut FreeMap) -> Result<()> {
    let (clusters, cluster_bytes) = (mft.boot.clusters, mft.boot.cluster_bytes);
    let mut bytes = vec![0; READ_BYTES as usize];
    let mut pending = 0..0;
    for at in (0..clusters.div_ceil(8)).step_by(READ_BYTES as usize) {
        let read = bits.read(mft, at, &mut bytes)?;
        for (first, byte) in (at * 8..clusters).step_by(8).zip(&bytes[..read]) {
            if *byte == 0xff {
                continue;
            }
            for cluster in first..(first + 8).min(clusters) {
                if byte >> (cluster - first) & 1 != 0 {
                    continue;
                }
                if pending.end != cluster {
                    map.add(pending.start * cluster_bytes..pending.end * cluster_bytes);
                    pending = cluster..cluster;
                }
                pending.end = cluster + 1;
            }
        }
    }
    map.add(pending.start * cluster_bytes..pending.end * cluster_bytes);
    Ok(())
}

/// Keeps all clusters that records in use have. A record that is in use and damaged could have any.
fn keep(mft: &Mft<'_>, map: &mut FreeMap) -> Result<()> {
    let own = Inode::load(mft, MFT)?;
    let used = own.stream(mft, kind::BITMAP, b"")?;
    let used = used.ok_or_else(|| own.damaged("map of the records, by record"))?;
    let record_bytes = mft.boot.record_bytes;
    let per_read = (READ_BYTES / record_bytes).next_multiple_of(8);
    let mut bits = vec![0; (per_read / 8) as usize];
    let mut mapped = 0;
    let mut first = 0;
    while first < mft.records {
        let count = per_read.min(mft.records - first);
        bits.fill(0);
        used.read(mft, first / 8, &mut bits)?;
        let stored = mft.stored(first, count)?;
        for (number, stored) in (first..).zip(stored.chunks(record_bytes as usize)) {
            let inside = (number - first) as usize;
            let is_used = bits[inside / 8] >> (inside % 8) & 1 != 0;
            match Record::parse(number, stored.to_vec()) {
                Ok(record) if record.is_in_use() => mapped += keep_record(mft, &record, map)?,
                Ok(_) => {}
                Err(error) if is_used => return Err(error),
                Err(_) => {}
            }
        }
        // Files share no clusters.
        if mapped / 2 > mft.boot.clusters {
            return Err(DiskError::damaged("more clusters than the volume has, by record", first));
        }
        first += count;
    }
    Ok(())
}

fn keep_record(mft: &Mft<'_>, record: &Record, map: &mut FreeMap) -> Result<u64> {
    let cluster_bytes = mft.boot.cluster_bytes;
    let mut mapped = 0;
    for attribute in record.attributes() {
        let attribute = attribute?;
        if attribute.is_resident() {
            continue;
        }
        for run in runs(&attribute, mft.boot.clusters, record.number) {
            let run = run?;
            if let Some(place) = run.place {
                map.keep(place * cluster_bytes..(place + run.count) * cluster_bytes);
                mapped += run.count;
            }
        }
    }
    Ok(mapped)
}
