//! The table of all files: its records, in which everything else is described.

use std::sync::Arc;

use strongroom_base::ByteCache;

use crate::error::{DiskError, Result};
use crate::read::{ReadAt, read_vec};

use super::FIRST_FILE;
use super::boot::Boot;
use super::record::{Attribute, Record, kind, number_of};
use super::runs::{Run, runs};

/// Records that are kept.
const CACHE_BYTES: usize = 8 << 20;
/// A table in more pieces than this is refused.
const RUNS_MAX: usize = 1 << 20;

/// The MFT, and what it describes.
pub(super) struct Mft<'a> {
    pub reader: &'a dyn ReadAt,
    pub boot: Boot,
    /// Where the table is, without gaps.
    runs: Vec<Run>,
    /// How many bytes of it were written.
    bytes: u64,
    /// How many records are in the parts that are known.
    pub records: u64,
    cache: ByteCache<u64, Arc<[u8]>>,
}

impl<'a> Mft<'a> {
    /// The table as its first record alone describes it.
    pub(super) fn begin(reader: &'a dyn ReadAt, boot: Boot) -> Result<Self> {
        let start = boot.mft_cluster * boot.cluster_bytes;
        let first = Record::parse(0, read_vec(reader, start, boot.record_bytes as usize)?)?;
        let record_bytes = boot.record_bytes;
        let cache = ByteCache::new(CACHE_BYTES);
        cache.put(0, first.bytes().clone(), first.bytes().len());
        let mut mft = Self { reader, boot, runs: Vec::new(), bytes: 0, records: 1, cache };
        let own =
            |attribute: &Attribute| attribute.kind() == kind::DATA && attribute.name().is_empty();
        let Some(data) = first.attributes().filter_map(Result::ok).find(own) else {
            return Err(damaged());
        };
        mft.bytes = data.written_bytes().min(data.data_bytes());
        if data.is_resident() || mft.bytes < record_bytes * FIRST_FILE {
            return Err(damaged());
        }
        mft.add(&data, 0)?;
        Ok(mft)
    }

    /// Adds the next part of the table, which a record describes.
    pub(super) fn add(&mut self, part: &Attribute, number: u64) -> Result<()> {
        let end = self.runs.last().map_or(0, |run| run.at + run.count);
        if part.lowest() != end {
            return Err(damaged());
        }
        for run in runs(part, self.boot.clusters, number) {
            self.runs.push(run?);
            if self.runs.len() > RUNS_MAX {
                return Err(DiskError::unsupported("an MFT in this many pieces"));
            }
        }
        let end = self.runs.last().map_or(0, |run| run.at + run.count);
        let bytes = self.bytes.min(end.saturating_mul(self.boot.cluster_bytes));
        self.records = bytes / self.boot.record_bytes;
        Ok(())
    }

    /// A record.
    pub(super) fn record(&self, number: u64) -> Result<Record> {
        let number = number_of(number);
        if let Some(known) = self.cache.get(&number) {
            return Ok(Record::of_fixed(number, known));
        }
        let record = Record::parse(number, self.stored(number, 1)?)?;
        self.cache.put(number, record.bytes().clone(), record.bytes().len());
        Ok(record)
    }

    /// Consecutive records as they are stored. The caller bounds how many.
    pub(super) fn stored(&self, first: u64, count: u64) -> Result<Vec<u8>> {
        if first.checked_add(count).is_none_or(|end| end > self.records) {
            return Err(DiskError::damaged("no file has this number", first));
        }
        let cluster_bytes = self.boot.cluster_bytes;
        let mut bytes = vec![0; (count * self.boot.record_bytes) as usize];
        let (mut at, mut rest) = (first * self.boot.record_bytes, &mut bytes[..]);
        while !rest.is_empty() {
            let cluster = at / cluster_bytes;
            let next = self.runs.partition_point(|run| run.at <= cluster);
            let run = next.checked_sub(1).and_then(|index| self.runs.get(index));
            let run = run.ok_or_else(damaged)?;
            let place = run.place.ok_or_else(damaged)? * cluster_bytes;
            let inside = at - run.at * cluster_bytes;
            let there = (run.count * cluster_bytes).saturating_sub(inside).min(rest.len() as u64);
            if there == 0 {
                return Err(damaged());
            }
            let (now, behind) = rest.split_at_mut(there as usize);
            self.reader.read_at(place + inside, now)?;
            at += there;
            rest = behind;
        }
        Ok(bytes)
    }
}

fn damaged() -> DiskError {
    DiskError::damaged("the table of all files, by record", 0)
}
