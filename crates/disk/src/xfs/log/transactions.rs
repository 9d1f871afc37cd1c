//! Transactions, put together of operations that can be in several records and be split.

use std::collections::BTreeMap;

use crate::fields::{be32, byte, le16, le32};

use super::ring::Record;
use super::{DAMAGED, Stop};
use crate::file_system::Unclean;

const OP_BYTES: usize = 12;
const CLIENT_TRANSACTION: u8 = 0x69;
const CLIENT_LOG: u8 = 0xaa;

const START: u8 = 1;
const COMMIT: u8 = 2;
const CONTINUE: u8 = 4;
const CONTINUED: u8 = 8;
const END: u8 = 0x10;
const UNMOUNT: u8 = 0x20;

/// "TRAN", in the byte order of the machine.
const HEAD_MAGIC: u32 = 0x5452_414e;
const HEAD_BYTES: usize = 16;
/// The kernel's limit for the parts of an item.
const PARTS_MAX: usize = 16_384;
/// Bytes of transactions that are not committed yet.
const OPEN_BYTES_MAX: usize = 64 << 20;
/// What a part takes besides its bytes.
const PART_COST: usize = 64;

/// A transaction that was committed.
pub(super) struct Transaction {
    /// The record in which it began.
    pub lsn: u64,
    pub items: Vec<Item>,
}

/// One thing that changed: the first part says what, the others are the new bytes.
pub(super) struct Item {
    wanted: usize,
    pub parts: Vec<Vec<u8>>,
}

impl Item {
    /// What the first part says of the kind of the item.
    pub(super) fn kind(&self) -> u16 {
        self.parts.first().map_or(0, |head| le16(head, 0))
    }

    /// A part; empty if there is none.
    pub(super) fn part(&self, index: usize) -> &[u8] {
        self.parts.get(index).map_or(&[], Vec::as_slice)
    }
}

#[derive(Default)]
struct Open {
    lsn: u64,
    /// Bytes of the head, which can be split too.
    head: Vec<u8>,
    items: Vec<Item>,
    bytes: usize,
}

/// The transactions that are not committed yet.
#[derive(Default)]
pub(super) struct Transactions {
    open: BTreeMap<u32, Open>,
    bytes: usize,
}

impl Transactions {
    /// Takes the operations of a record, and gives what they commit to `take`.
    pub(super) fn record(
        &mut self,
        record: Record,
        take: &mut dyn FnMut(&Transaction) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut rest = &record.bytes[..];
        for _ in 0..record.operations {
            if rest.is_empty() {
                break;
            }
            let (head, after) = rest.split_at_checked(OP_BYTES).ok_or(DAMAGED)?;
            let length = be32(head, 4) as usize;
            let (content, after) = after.split_at_checked(length).ok_or(DAMAGED)?;
            rest = after;
            if !matches!(byte(head, 8), CLIENT_TRANSACTION | CLIENT_LOG) {
                return Err(DAMAGED);
            }
            self.operation(record.lsn, be32(head, 0), byte(head, 9), content, take)?;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        lsn: u64,
        id: u32,
        flags: u8,
        content: &[u8],
        take: &mut dyn FnMut(&Transaction) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if flags & START != 0 {
            return match self.open.insert(id, Open { lsn, ..Open::default() }) {
                None => Ok(()),
                Some(_) => Err(DAMAGED),
            };
        }
        // What began before the tail was committed, and is in its place.
        let Some(open) = self.open.get_mut(&id) else { return Ok(()) };
        let flags = flags & !END;
        let flags = if flags & CONTINUED != 0 { flags & !CONTINUE } else { flags };
        match flags {
            0 | CONTINUE => open.add(content)?,
            CONTINUED => open.extend(content)?,
            COMMIT | UNMOUNT => {
                let Some(open) = self.open.remove(&id) else { return Err(DAMAGED) };
                self.bytes -= open.bytes;
                return if flags == COMMIT { take(&open.committed()?) } else { Ok(()) };
            }
            _ => return Err(DAMAGED),
        }
        let cost = content.len() + PART_COST;
        (open.bytes, self.bytes) = (open.bytes + cost, self.bytes + cost);
        if self.bytes > OPEN_BYTES_MAX {
            return Err(Stop::Unclean(Unclean::JournalTooLarge));
        }
        Ok(())
    }
}

impl Open {
    fn has_head(&self) -> bool {
        self.head.len() == HEAD_BYTES
    }

    fn add(&mut self, content: &[u8]) -> Result<(), Stop> {
        if content.is_empty() {
            return Ok(());
        }
        if !self.has_head() {
            let is_head = self.head.is_empty() && content.len() <= HEAD_BYTES;
            if !is_head || le32(content, 0) != HEAD_MAGIC {
                return Err(DAMAGED);
            }
            self.head.extend_from_slice(content);
            return Ok(());
        }
        if self.items.last().is_none_or(|item| item.parts.len() == item.wanted) {
            let wanted = usize::from(le16(content, 2));
            if wanted == 0 || wanted > PARTS_MAX {
                return Err(DAMAGED);
            }
            self.items.push(Item { wanted, parts: Vec::new() });
        }
        let item = self.items.last_mut().ok_or(DAMAGED)?;
        item.parts.push(content.to_vec());
        Ok(())
    }

    fn extend(&mut self, content: &[u8]) -> Result<(), Stop> {
        if !self.has_head() {
            if self.head.len() + content.len() > HEAD_BYTES {
                return Err(DAMAGED);
            }
            self.head.extend_from_slice(content);
            return Ok(());
        }
        let item = self.items.last_mut().ok_or(DAMAGED)?;
        item.parts.last_mut().ok_or(DAMAGED)?.extend_from_slice(content);
        Ok(())
    }

    fn committed(self) -> Result<Transaction, Stop> {
        let is_whole = self.items.iter().all(|item| item.parts.len() == item.wanted);
        if is_whole { Ok(Transaction { lsn: self.lsn, items: self.items }) } else { Err(DAMAGED) }
    }
}
