//! The ring of records: where the newest ends, where the oldest that still counts begins.
//!
//! Each sector of the log begins with the number of the round in which it was written, so the end
//! of the newest record is where this number falls. A record keeps the bytes that these numbers
//! replace in its header.

use crate::checksum::crc32c;
use crate::error::Result;
use crate::fields::{be32, be64, byte, le32, part};

use super::super::blocks::Blocks;
use super::{DAMAGED, Stop};
use crate::file_system::Unclean;

const SECTOR: usize = 512;
const MAGIC: u32 = 0xfeed_babe;
/// The bytes and the byte order of a machine that is not IRIX or big-endian.
const FORMAT: u32 = 1;
/// Bytes of a header that its checksum covers, and of a header that follows it.
const HEADER_BYTES: usize = 328;
const MORE_BYTES: usize = 260;
/// Bytes of which a header keeps what was replaced.
const KEPT_BYTES: u32 = 32 << 10;
/// The largest record, with what it takes in sectors.
const RECORD_BYTES_MAX: u32 = 256 << 10;
/// Records that can be on their way to the disk at once.
const IN_FLIGHT: usize = 8;
/// Sectors before the end in which some can be missing: all that can be in flight.
const DOUBTFUL: u64 = IN_FLIGHT as u64 * RECORD_BYTES_MAX as u64 / SECTOR as u64;
/// Sectors that are read at once in a search.
const READ: u64 = 128;
const UNMOUNT: u8 = 0x20;

/// The records that a replay needs: from one sector up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    tail: u64,
    /// The sector of the last record.
    last: u64,
}

/// A record.
pub(super) struct Record {
    /// Which one, in the order of the log: round and sector.
    pub lsn: u64,
    pub operations: u32,
    /// Its content, with what the numbers of rounds had replaced.
    pub bytes: Vec<u8>,
}

/// The header of a record.
struct Header {
    sector: u64,
    bytes: Vec<u8>,
    /// Sectors of the header, and of the content.
    head_sectors: u64,
    content_sectors: u64,
}

impl Header {
    fn length(&self) -> u32 {
        be32(&self.bytes, 12)
    }

    fn lsn(&self) -> u64 {
        be64(&self.bytes, 16)
    }

    fn tail(&self) -> u64 {
        u64::from(be32(&self.bytes, 28))
    }

    fn sectors(&self) -> u64 {
        self.head_sectors + self.content_sectors
    }
}

/// The log as a ring of sectors.
pub(super) struct Ring<'r, 'a> {
    blocks: &'r Blocks<'a>,
    start: u64,
    sectors: u64,
}

impl<'r, 'a> Ring<'r, 'a> {
    pub(super) fn open(blocks: &'r Blocks<'a>) -> Result<Self> {
        let superblock = &blocks.superblock;
        let start = blocks.place(superblock.log_start, superblock.log_blocks)?;
        let sectors = superblock.log_blocks * blocks.block_bytes() / SECTOR as u64;
        Ok(Self { blocks, start, sectors })
    }

    /// Reads sectors; behind the last one the first follows.
    fn read(&self, sector: u64, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * SECTOR];
        let first = count.min(self.sectors - sector) as usize * SECTOR;
        let (now, rest) = bytes.split_at_mut(first);
        self.blocks.reader.read_at(self.start + sector * SECTOR as u64, now)?;
        self.blocks.reader.read_at(self.start, rest)?;
        Ok(bytes)
    }

    /// The sector that is `count` behind another.
    fn after(&self, sector: u64, count: u64) -> u64 {
        (sector + count) % self.sectors
    }

    fn distance(&self, from: u64, to: u64) -> u64 {
        (to + self.sectors - from) % self.sectors
    }

    fn round_at(&self, sector: u64) -> Result<u32> {
        Ok(round(&self.read(sector, 1)?))
    }

    /// What must be replayed; `None` if the last record says that the volume was unmounted.
    pub(super) fn span(&self) -> Result<Option<Span>, Stop> {
        if self.sectors < 2 {
            return Err(DAMAGED);
        }
        let Some(end) = self.end()? else { return Ok(None) };
        let Some(newest) = self.newest(end)? else { return Err(DAMAGED) };
        if self.is_unmount(&newest)? {
            return Ok(None);
        }
        let newest = self.intact(newest)?;
        if self.is_unmount(&newest)? {
            return Ok(None);
        }
        Ok(Some(Span { tail: newest.tail(), last: newest.sector }))
    }

    /// The sector behind the newest; `None` if nothing was ever written.
    fn end(&self) -> Result<Option<u64>, Stop> {
        let (first, last) = (self.round_at(0)?, self.round_at(self.sectors - 1)?);
        if first == 0 {
            return Ok(None);
        }
        let doubtful = DOUBTFUL.min(self.sectors);
        if first == last {
            // The whole ring has one number, but for what is missing before its end.
            let hole = self.find(self.sectors - doubtful, doubtful, first.wrapping_sub(1))?;
            return Ok(Some(hole.unwrap_or(0)));
        }
        let end = self.first_of(last)?;
        // Sectors that were not written when others behind them were have the last round's number.
        if end >= doubtful {
            return Ok(Some(self.find(end - doubtful, doubtful, last)?.unwrap_or(end)));
        }
        let before = doubtful - end;
        if last > 0
            && let Some(hole) = self.find(self.sectors - before, before, last - 1)?
        {
            return Ok(Some(hole));
        }
        Ok(Some(self.find(0, end, last)?.unwrap_or(end)))
    }

    /// The first sector of the older round, which is all behind it.
    fn first_of(&self, round: u32) -> Result<u64> {
        let (mut newer, mut older) = (0, self.sectors - 1);
        while newer + 1 < older {
            let middle = newer + (older - newer) / 2;
            if self.round_at(middle)? == round { older = middle } else { newer = middle }
        }
        Ok(older)
    }

    /// The first of some sectors that has a round's number.
    fn find(&self, start: u64, count: u64, wanted: u32) -> Result<Option<u64>> {
        let mut at = 0;
        while at < count {
            let now = READ.min(count - at);
            let bytes = self.read(start + at, now)?;
            if let Some(index) = bytes.chunks(SECTOR).position(|sector| round(sector) == wanted) {
                return Ok(Some(start + at + index as u64));
            }
            at += now;
        }
        Ok(None)
    }

    /// The last record that is complete before a sector.
    fn newest(&self, end: u64) -> Result<Option<Header>, Stop> {
        let mut end = end;
        let mut left = self.sectors;
        while left > 0 {
            let Some(header) = self.header_before(end, &mut left)? else { return Ok(None) };
            if header.sectors() == self.distance(header.sector, end) {
                return Ok(Some(header));
            }
            end = header.sector;
        }
        Ok(None)
    }

    /// The header that is nearest before a sector, within `left` sectors.
    fn header_before(&self, end: u64, left: &mut u64) -> Result<Option<Header>, Stop> {
        let mut end = end;
        while *left > 0 {
            let count = READ.min(*left).min(if end == 0 { self.sectors } else { end });
            let start = if end == 0 { self.sectors - count } else { end - count };
            let bytes = self.read(start, count)?;
            let found = bytes.chunks(SECTOR).rposition(|sector| be32(sector, 0) == MAGIC);
            if let Some(index) = found {
                *left -= count - index as u64;
                return Ok(Some(self.header(start + index as u64)?));
            }
            *left -= count;
            end = start;
        }
        Ok(None)
    }

    fn header(&self, sector: u64) -> Result<Header, Stop> {
        if sector >= self.sectors {
            return Err(DAMAGED);
        }
        let bytes = self.read(sector, 1)?;
        let (version, length, size) = (be32(&bytes, 8), be32(&bytes, 12), be32(&bytes, 320));
        if be32(&bytes, 0) != MAGIC || length == 0 || length > RECORD_BYTES_MAX {
            return Err(DAMAGED);
        }
        if !matches!(version, 1 | 2) || be32(&bytes, 300) != FORMAT {
            return Err(Stop::Unclean(Unclean::JournalUnknown));
        }
        if part(&bytes, 304, 16) != self.blocks.superblock.uuid {
            return Err(DAMAGED);
        }
        let head_sectors = match version {
            2 if size > RECORD_BYTES_MAX => return Err(DAMAGED),
            2 => size.div_ceil(KEPT_BYTES).max(1).into(),
            _ => 1,
        };
        let content_sectors = u64::from(length).div_ceil(SECTOR as u64);
        if head_sectors + content_sectors > self.sectors
            || u64::from(length) > head_sectors * u64::from(KEPT_BYTES)
        {
            return Err(DAMAGED);
        }
        let bytes = self.read(sector, head_sectors)?;
        Ok(Header { sector, bytes, head_sectors, content_sectors })
    }

    fn is_unmount(&self, header: &Header) -> Result<bool> {
        if be32(&header.bytes, 40) != 1 {
            return Ok(false);
        }
        let operation = self.read(self.after(header.sector, header.head_sectors), 1)?;
        Ok(byte(&operation, 9) & UNMOUNT != 0)
    }

    /// The newest record before which all that were in flight with it are intact: it, or one before
    /// it. A power cut leaves records half-written.
    fn intact(&self, newest: Header) -> Result<Header, Stop> {
        let mut left = self.sectors.saturating_sub(newest.sectors());
        let mut flight = vec![newest];
        while flight.len() <= IN_FLIGHT {
            let end = flight.last().map_or(0, |header| header.sector);
            match self.header_before(end, &mut left) {
                Ok(Some(header)) if header.sectors() == self.distance(header.sector, end) => {
                    flight.push(header);
                }
                // Before the first record there is none, or a part of one that was overwritten.
                _ => break,
            }
        }
        let mut found = None;
        for header in flight.into_iter().rev() {
            if !self.is_intact(&header)? {
                break;
            }
            found = Some(header);
        }
        found.ok_or(DAMAGED)
    }

    fn content(&self, header: &Header) -> Result<Vec<u8>> {
        self.read(self.after(header.sector, header.head_sectors), header.content_sectors)
    }

    fn is_intact(&self, header: &Header) -> Result<bool> {
        let content = self.content(header)?;
        Ok(is_sum_right(header, part(&content, 0, header.length() as usize)))
    }

    /// Gives the records of a span to `take`, the oldest first.
    pub(super) fn records(
        &self,
        span: Span,
        take: &mut dyn FnMut(Record) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let (mut at, mut left) = (span.tail, self.sectors);
        let mut before = 0;
        loop {
            let header = self.header(at)?;
            let is_next = header.lsn() > before
                && header.lsn() & 0xffff_ffff == at
                && header.lsn() >> 32 == u64::from(be32(&header.bytes, 4));
            left = left.checked_sub(header.sectors()).filter(|_| is_next).ok_or(DAMAGED)?;
            before = header.lsn();
            let mut bytes = self.content(&header)?;
            bytes.truncate(header.length() as usize);
            if !is_sum_right(&header, &bytes) {
                return Err(DAMAGED);
            }
            restore_replaced(&header, &mut bytes);
            let operations = be32(&header.bytes, 40);
            take(Record { lsn: header.lsn(), operations, bytes })?;
            if at == span.last {
                return Ok(());
            }
            at = self.after(at, header.sectors());
        }
    }
}

/// The number of the round in which a sector was written.
fn round(sector: &[u8]) -> u32 {
    if be32(sector, 0) == MAGIC { be32(sector, 4) } else { be32(sector, 0) }
}

fn is_sum_right(header: &Header, content: &[u8]) -> bool {
    let stored = le32(&header.bytes, 32);
    let state = crc32c(!0, part(&header.bytes, 0, 32));
    let state = crc32c(state, &[0; 4]);
    let mut state = crc32c(state, part(&header.bytes, 36, HEADER_BYTES - 36));
    let heads = content.len().div_ceil(KEPT_BYTES as usize);
    for index in 1..heads {
        state = crc32c(state, part(&header.bytes, index * SECTOR, MORE_BYTES));
    }
    !crc32c(state, content) == stored
}

/// Puts back what the numbers of rounds had replaced.
fn restore_replaced(header: &Header, bytes: &mut [u8]) {
    const PER_HEAD: usize = KEPT_BYTES as usize / SECTOR;
    for (index, sector) in bytes.chunks_mut(SECTOR).enumerate() {
        let at = match index / PER_HEAD {
            0 => 44 + index * 4,
            head => head * SECTOR + 4 + index % PER_HEAD * 4,
        };
        let count = sector.len().min(4);
        sector[..count].copy_from_slice(part(&header.bytes, at, count));
    }
}
