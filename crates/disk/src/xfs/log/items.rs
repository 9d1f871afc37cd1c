//! The items of a transaction, carried out in memory: parts of blocks, inodes, new inodes.

use std::collections::BTreeSet;

use crate::fields::{be16, be32, be64, le16, le32, le64, part};
use crate::file_system::Unclean;

use super::super::blocks::{Overlay, SECTOR_BYTES};
use super::super::superblock::Superblock;
use super::newer::{Cancelled, Newer};
use super::transactions::{Item, Transaction};
use super::{DAMAGED, Stop, inodes};

mod kind {
    pub const FREE: u16 = 0x1236;
    pub const FREE_DONE: u16 = 0x1237;
    pub const INODE: u16 = 0x123b;
    pub const BUFFER: u16 = 0x123c;
    pub const QUOTA: u16 = 0x123d;
    pub const QUOTA_OFF: u16 = 0x123e;
    pub const NEW_INODES: u16 = 0x123f;
    pub const OWNER: u16 = 0x1240;
    pub const OWNER_DONE: u16 = 0x1241;
    pub const REFERENCE: u16 = 0x1242;
    pub const REFERENCE_DONE: u16 = 0x1243;
    pub const MAP: u16 = 0x1244;
    pub const MAP_DONE: u16 = 0x1245;
    pub const XATTR: u16 = 0x1246;
    pub const XATTR_DONE: u16 = 0x1247;
    pub const EXCHANGE: u16 = 0x1248;
    pub const EXCHANGE_DONE: u16 = 0x1249;
}

mod flag {
    /// The block has inodes, of which only the list of deleted ones changed.
    pub const INODES: u16 = 1;
    /// The block was freed.
    pub const CANCEL: u16 = 2;
}

/// Bytes that a bit of a buffer's map covers.
const CHUNK: usize = 128;
/// Changes that were begun and not completed.
const INTENTS_MAX: usize = 100_000;

/// The first pass: notes which blocks a transaction freed.
pub(super) fn note_cancelled(
    cancelled: &mut Cancelled,
    transaction: &Transaction,
) -> Result<(), Stop> {
    let buffers = transaction.items.iter().filter(|item| item.kind() == kind::BUFFER);
    let mut freed = buffers.map(Buffer::of).filter(Buffer::is_cancel);
    freed.try_for_each(|buffer| cancelled.add(buffer.key()))
}

/// What an item says of a buffer.
struct Buffer {
    flags: u16,
    sectors: u64,
    first: u64,
    map: Vec<u32>,
}

impl Buffer {
    fn of(item: &Item) -> Self {
        let head = item.part(0);
        let words = (le32(head, 16) as usize).min(head.len() / 4);
        let map = (0..words).map(|word| le32(head, 20 + word * 4)).collect();
        Self { flags: le16(head, 4), sectors: le16(head, 6).into(), first: le64(head, 8), map }
    }

    fn is_cancel(&self) -> bool {
        self.flags & flag::CANCEL != 0
    }

    fn key(&self) -> (u64, u64) {
        (self.first, self.sectors)
    }

    /// The order within a transaction: blocks, what changes inodes, lists of inodes, what is freed.
    fn rank(&self) -> u8 {
        match self.flags {
            flags if flags & flag::CANCEL != 0 => 3,
            flags if flags & flag::INODES != 0 => 2,
            _ => 0,
        }
    }

    /// The runs of chunks that changed: first and count.
    fn runs(&self) -> Vec<(usize, usize)> {
        let is_set = |bit: usize| self.map[bit / 32] >> (bit % 32) & 1 != 0;
        let bits = self.map.len() * 32;
        let (mut runs, mut bit) = (Vec::new(), 0);
        while bit < bits {
            let first = bit;
            while bit < bits && is_set(bit) {
                bit += 1;
            }
            if first < bit {
                runs.push((first, bit - first));
            }
            bit += 1;
        }
        runs
    }
}

/// The second pass.
pub(super) struct Replayer<'r, 'a> {
    newer: Newer<'r, 'a>,
    /// Changes of maps, attributes and exchanges that were begun and not completed.
    intents: BTreeSet<(u16, u64)>,
    transactions: u32,
}

impl<'r, 'a> Replayer<'r, 'a> {
    pub(super) fn new(newer: Newer<'r, 'a>) -> Self {
        Self { newer, intents: BTreeSet::new(), transactions: 0 }
    }

    pub(super) fn finish(self) -> Result<(Overlay, u32), Stop> {
        if !self.intents.is_empty() {
            return Err(Stop::Unclean(Unclean::JournalUnfinished));
        }
        Ok((self.newer.overlay, self.transactions))
    }

    pub(super) fn take(&mut self, transaction: &Transaction) -> Result<(), Stop> {
        self.transactions = self.transactions.saturating_add(1);
        let rank = |item: &Item| match item.kind() {
            kind::BUFFER => Buffer::of(item).rank(),
            kind::NEW_INODES => 0,
            _ => 1,
        };
        let mut items: Vec<&Item> = transaction.items.iter().collect();
        items.sort_by_key(|item| rank(item));
        items.into_iter().try_for_each(|item| self.item(item, transaction.lsn))
    }

    fn item(&mut self, item: &Item, lsn: u64) -> Result<(), Stop> {
        let id = le64(item.part(0), 8);
        match item.kind() {
            kind::BUFFER => return self.buffer(&Buffer::of(item), item, lsn),
            kind::INODE => return inodes::change(&mut self.newer, item, lsn),
            kind::NEW_INODES => return inodes::create(&mut self.newer, item),
            kind::MAP | kind::XATTR | kind::EXCHANGE => {
                self.intents.insert((item.kind(), id));
            }
            kind::MAP_DONE | kind::XATTR_DONE | kind::EXCHANGE_DONE => {
                self.intents.remove(&(item.kind() - 1, id));
            }
            // What is to be freed, or to change in trees that no reader needs, can wait: it is
            // still in use. Quotas are no reader's.
            kind::FREE | kind::FREE_DONE | kind::OWNER | kind::OWNER_DONE => {}
            kind::REFERENCE | kind::REFERENCE_DONE | kind::QUOTA | kind::QUOTA_OFF => {}
            _ => return Err(Stop::Unclean(Unclean::JournalUnknown)),
        }
        if self.intents.len() > INTENTS_MAX {
            return Err(Stop::Unclean(Unclean::JournalTooLarge));
        }
        Ok(())
    }

    fn buffer(&mut self, buffer: &Buffer, item: &Item, lsn: u64) -> Result<(), Stop> {
        if buffer.is_cancel() {
            self.newer.cancelled.forget_one(buffer.key());
            return Ok(());
        }
        if buffer.flags & flag::INODES != 0 || self.newer.cancelled.contains(buffer.key()) {
            return Ok(());
        }
        let start = buffer.first.checked_mul(SECTOR_BYTES).ok_or(DAMAGED)?;
        let bytes = (buffer.sectors * SECTOR_BYTES) as usize;
        let old = self.newer.read(start, bytes)?;
        // What is newer in its place than this transaction stays, unless an earlier one was taken.
        let is_taken = self.newer.overlay.first(start..start + bytes as u64).is_some();
        if !is_taken
            && lsn_of(&self.newer.blocks.superblock, &old).is_some_and(|known| known >= lsn)
        {
            return Ok(());
        }
        let mut parts = item.parts.iter().skip(1);
        for (mut first, mut count) in buffer.runs() {
            // A run can be in several parts.
            while count > 0 {
                let part = parts.next().ok_or(DAMAGED)?;
                let here = count.min(part.len() / CHUNK);
                let (from, length) = (first * CHUNK, here * CHUNK);
                if here == 0 || from + length > bytes {
                    return Err(DAMAGED);
                }
                self.newer.write(start + from as u64, &part[..length])?;
                (first, count) = (first + here, count - here);
            }
        }
        Ok(())
    }
}

/// The newest change that a block has in its place; `None` if it does not say, or is not of
/// this file system: then the log is right.
fn lsn_of(superblock: &Superblock, block: &[u8]) -> Option<u64> {
    let (lsn_at, uuid_at) = match (be32(block, 0), be16(block, 8), be16(block, 0)) {
        // Trees of groups.
        (0x4142_3342 | 0x4142_3343 | 0x4941_4233 | 0x4649_4233, ..) => (24, 32),
        (0x524d_4233 | 0x5233_4643, ..) => (24, 32),
        // Trees of extents.
        (0x424d_4133, ..) => (32, 40),
        // Headers of groups: free blocks, their list, inodes.
        (0x5841_4746, ..) => (208, 64),
        (0x5841_464c, ..) => (24, 8),
        (0x5841_4749, ..) => (320, 296),
        // Symbolic links.
        (0x5853_4c4d, ..) => (48, 16),
        // Directories: one block, data, free space.
        (0x5844_4233 | 0x5844_4433 | 0x5844_4633, ..) => (16, 24),
        // The superblock.
        (0x5846_5342, ..) => (240, 32),
        // Directories: leaves of two kinds. Attributes: leaves. Nodes of both.
        (_, 0x3df1 | 0x3dff | 0x3bee | 0x3ebe, _) => (24, 32),
        _ => return None,
    };
    let is_superblock = lsn_at == 240;
    let uuid = if is_superblock { superblock.uuid } else { superblock.meta_uuid };
    let is_ours = part(block, uuid_at, 16) == uuid;
    let lsn = be64(block, lsn_at);
    (is_ours && lsn != 0 && lsn != u64::MAX).then_some(lsn)
}
