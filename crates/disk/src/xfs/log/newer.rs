//! What a replay has so far: the newer bytes, and the blocks that must not be written any more.

use std::collections::BTreeMap;

use crate::error::DiskError;
use crate::file_system::Unclean;
use crate::read::read_vec;

use super::super::blocks::{Blocks, Overlay, SECTOR_BYTES};
use super::{DAMAGED, Stop};

/// Blocks that were freed; the log has about one for each hundred bytes.
const CANCELLED_MAX: usize = 1_000_000;

/// Blocks that were freed: how often, by their first sector and length.
#[derive(Default)]
pub(super) struct Cancelled(BTreeMap<(u64, u64), u32>);

impl Cancelled {
    pub(super) fn add(&mut self, key: (u64, u64)) -> Result<(), Stop> {
        let count = self.0.entry(key).or_insert(0);
        *count = count.checked_add(1).ok_or(DAMAGED)?;
        if self.0.len() > CANCELLED_MAX {
            return Err(Stop::Unclean(Unclean::JournalTooLarge));
        }
        Ok(())
    }

    pub(super) fn contains(&self, key: (u64, u64)) -> bool {
        self.0.contains_key(&key)
    }

    /// What follows the last time that a block was freed counts again.
    pub(super) fn forget_one(&mut self, key: (u64, u64)) {
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }
}

/// The volume as it is after what was replayed so far.
pub(super) struct Newer<'r, 'a> {
    pub blocks: &'r Blocks<'a>,
    pub cancelled: Cancelled,
    pub overlay: Overlay,
}

impl<'r, 'a> Newer<'r, 'a> {
    pub(super) fn new(blocks: &'r Blocks<'a>, cancelled: Cancelled) -> Self {
        Self { blocks, cancelled, overlay: Overlay::default() }
    }

    pub(super) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, Stop> {
        let mut found = read_vec(self.blocks.reader, offset, bytes)?;
        self.overlay.apply(offset, &mut found);
        Ok(found)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        let end = offset.checked_add(bytes.len() as u64).map(|end| end.div_ceil(SECTOR_BYTES));
        let is_there = end.is_some_and(|end| end * SECTOR_BYTES <= self.blocks.reader.size());
        if !is_there {
            return Err(Stop::Disk(DiskError::damaged("the log writes behind the end", offset)));
        }
        Ok(self.overlay.write(self.blocks.reader, offset, bytes)??)
    }
}
