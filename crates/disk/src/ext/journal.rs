//! The journal (jbd2), replayed in memory: which blocks are newer in it than in their place.
//!
//! The log is a ring of transactions, each of descriptors with the blocks that they announce,
//! revocations, and a commit. As in the kernel, three passes go over it: the first finds the last
//! transaction that was committed, the second collects the revocations, the third takes the blocks.
//! Only positions are kept, no content.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::checksum::{crc32_msb_first, crc32c};
use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, be64, byte, le16, le32, part};
use crate::file_system::Unclean;
use crate::understood::{NotUnderstood, ext as words};

use super::blocks::{Blocks, JOURNAL_MAGIC, JournalCopy, Overlay};
use super::inode::Inode;
use super::mapping::{self, Mapped};

const HEADER_BYTES: usize = 12;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const REVOCATIONS: u32 = 5;
/// A superblock that knows features.
const SUPERBLOCK_V2: u32 = 4;

const COMPAT_CHECKSUM: u32 = 1;
const BITS_64: u32 = 2;
const CHECKSUM_V2: u32 = 8;
const CHECKSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
/// Fast commits have this many blocks at the end of the journal if its superblock says nothing.
const FAST_BLOCKS: u32 = 256;
const FAST_HEAD: u16 = 9;
/// The kernel has none in a journal of which fewer blocks are left.
const RING_BLOCKS_MIN: u32 = 1024;

const TAG_ESCAPED: u32 = 1;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

/// What a replay found.
pub(super) struct Replay {
    pub overlay: Overlay,
    pub transactions: u32,
    /// The journal notes an error of the file system.
    pub has_error: bool,
}

/// Replays the journal that the superblock names. The inner error says why that cannot be done.
pub(super) fn replay(blocks: &Blocks<'_>) -> Result<Result<Replay, Unclean>> {
    match try_replay(blocks) {
        Ok(replay) => Ok(Ok(replay)),
        Err(Stop::Unclean(unclean)) => Ok(Err(unclean)),
        Err(Stop::Disk(DiskError::Io(error))) => Err(error.into()),
        Err(Stop::Disk(_)) => Ok(Err(Unclean::JournalDamaged)),
    }
}

/// What the superblock of the journal says and is not known here, if it can be read.
pub(super) fn unknown(blocks: &Blocks<'_>) -> Option<NotUnderstood> {
    let mut log = Log::empty(blocks).ok()?;
    let superblock = log.read(0).ok()?;
    log.take_features(&superblock).err()
}

enum Stop {
    Unclean(Unclean),
    Disk(DiskError),
}

impl From<DiskError> for Stop {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

const DAMAGED: Stop = Stop::Unclean(Unclean::JournalDamaged);

fn try_replay(blocks: &Blocks<'_>) -> Result<Replay, Stop> {
    let log = Log::open(blocks)?;
    let mut overlay = Overlay::new();
    let end = log.committed_end()?;
    if log.start != 0 {
        let revoked = log.revoked(end)?;
        log.take_blocks(end, &revoked, &mut overlay)?;
    }
    if log.has_fast_commits(end)? {
        return Err(Stop::Unclean(Unclean::FastCommits));
    }
    let transactions = end.wrapping_sub(log.sequence);
    Ok(Replay { overlay, transactions, has_error: log.has_error })
}

/// The journal's ring of blocks.
struct Log<'j, 'a> {
    blocks: &'j Blocks<'a>,
    map: Vec<Mapped>,
    /// The ring's first block, and the one behind its last.
    first: u32,
    last: u32,
    /// The blocks in which fast commits can be.
    fast: Range<u32>,
    /// The first transaction, and the block with which it begins; zero if there is none.
    sequence: u32,
    start: u32,
    compat: u32,
    incompat: u32,
    seed: u32,
    has_error: bool,
}

/// A block of the log with a header.
struct Record {
    kind: u32,
    sequence: u32,
    at: u32,
    bytes: Vec<u8>,
}

/// A block that a descriptor announces.
struct Tag {
    block: u64,
    flags: u32,
    checksum: u32,
}

impl<'j, 'a> Log<'j, 'a> {
    fn open(blocks: &'j Blocks<'a>) -> Result<Self, Stop> {
        let mut log = Self::empty(blocks)?;
        let superblock = log.read(0)?;
        log.take_superblock(part(&superblock, 0, 1024))?;
        Ok(log)
    }

    /// A journal of which only the blocks are known.
    fn empty(blocks: &'j Blocks<'a>) -> Result<Self> {
        let inode = Inode::read(blocks, blocks.superblock.journal_inode.into())?;
        let mut map = Vec::new();
        mapping::data(blocks, &inode, 0..u64::from(u32::MAX), &mut |mapped| {
            map.push(mapped);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(Self {
            blocks,
            map,
            first: 0,
            last: 1,
            fast: 0..0,
            sequence: 0,
            start: 0,
            compat: 0,
            incompat: 0,
            seed: 0,
            has_error: false,
        })
    }

    fn take_features(&mut self, bytes: &[u8]) -> Result<(), NotUnderstood> {
        if be32(bytes, 4) == SUPERBLOCK_V2 {
            self.compat = be32(bytes, 0x24);
            self.incompat = be32(bytes, 0x28);
            words::JOURNAL_COMPAT.check(self.compat)?;
            words::JOURNAL_INCOMPAT.check(self.incompat)?;
            words::JOURNAL_RO_COMPAT.check(be32(bytes, 0x2c))?;
        }
        let checksums = [
            self.compat & COMPAT_CHECKSUM != 0,
            self.incompat & CHECKSUM_V2 != 0,
            self.incompat & CHECKSUM_V3 != 0,
        ];
        if checksums.into_iter().filter(|has| *has).count() > 1 {
            return Err(NotUnderstood::Form("a journal of ext4 with several kinds of checksums"));
        }
        Ok(())
    }

    fn take_superblock(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let kind = be32(bytes, 4);
        if !bytes.starts_with(&JOURNAL_MAGIC) || !matches!(kind, 3 | SUPERBLOCK_V2) {
            return Err(DAMAGED);
        }
        self.take_features(bytes).map_err(|_| Stop::Unclean(Unclean::JournalUnknown))?;
        self.seed = crc32c(!0, part(bytes, 0x30, 16));
        if self.has_checksums() {
            let mut covered = bytes.to_vec();
            covered[0xfc..0x100].fill(0);
            if byte(bytes, 0x50) != 4 || crc32c(!0, &covered) != be32(bytes, 0xfc) {
                return Err(DAMAGED);
            }
        }
        self.first = be32(bytes, 0x14);
        self.last = be32(bytes, 0x10);
        self.sequence = be32(bytes, 0x18);
        self.start = be32(bytes, 0x1c);
        self.has_error = be32(bytes, 0x20) != 0;
        let length = self.map.last().map_or(0, |mapped| mapped.logical + mapped.count);
        if be32(bytes, 0xc) as usize != self.blocks.superblock.block_bytes
            || u64::from(self.last) > length
        {
            return Err(DAMAGED);
        }
        if self.incompat & FAST_COMMIT != 0 {
            let given = be32(bytes, 0x54);
            let count = if given == 0 { FAST_BLOCKS } else { given };
            let ring_last = self.last.checked_sub(count).filter(|last| *last >= RING_BLOCKS_MIN);
            let ring_last = ring_last.ok_or(Stop::Unclean(Unclean::JournalUnknown))?;
            // The kernel begins with the second of these blocks.
            self.fast = ring_last..self.last;
            self.last = ring_last;
        }
        let is_ring = self.first >= 1 && self.first < self.last;
        if !is_ring || (self.start != 0 && !(self.first..self.last).contains(&self.start)) {
            return Err(DAMAGED);
        }
        Ok(())
    }

    fn has_checksums(&self) -> bool {
        self.incompat & (CHECKSUM_V2 | CHECKSUM_V3) != 0
    }

    /// The block of the volume that is a block of the journal.
    fn place(&self, at: u32) -> Result<u64> {
        let at = u64::from(at);
        let next = self.map.partition_point(|mapped| mapped.logical <= at);
        let mapped = next.checked_sub(1).map(|index| self.map[index]);
        match mapped {
            Some(mapped) if at < mapped.logical + mapped.count && !mapped.unwritten => {
                Ok(mapped.physical + (at - mapped.logical))
            }
            _ => Err(DiskError::damaged("a hole in the journal, by block", at)),
        }
    }

    fn read(&self, at: u32) -> Result<Vec<u8>> {
        self.blocks.read(self.place(at)?, 1)
    }

    /// The block of the ring that is `count` behind another.
    fn after(&self, at: u32, count: u32) -> u32 {
        let ring = self.last - self.first;
        self.first + ((at - self.first) + count % ring) % ring
    }

    /// Goes over the log up to a transaction, or to its end, until `visit` returns false. Returns
    /// the transaction that would have come next.
    fn walk(
        &self,
        end: Option<u32>,
        visit: &mut dyn FnMut(&Record) -> Result<bool, Stop>,
    ) -> Result<u32, Stop> {
        let (mut at, mut sequence) = (self.start, self.sequence);
        let mut left = self.last - self.first;
        while self.start != 0 && end != Some(sequence) && left > 0 {
            let bytes = self.read(at)?;
            let kind = be32(&bytes, 4);
            if !bytes.starts_with(&JOURNAL_MAGIC) || be32(&bytes, 8) != sequence {
                break;
            }
            let used = match kind {
                DESCRIPTOR => 1 + self.tags(&bytes).len() as u32,
                COMMIT | REVOCATIONS => 1,
                _ => break,
            };
            let record = Record { kind, sequence, at, bytes };
            if !visit(&record)? {
                break;
            }
            if kind == COMMIT {
                sequence = sequence.wrapping_add(1);
            }
            left = left.saturating_sub(used);
            at = self.after(at, used);
        }
        Ok(sequence)
    }

    /// The transaction behind the last one that was committed.
    fn committed_end(&self) -> Result<u32, Stop> {
        let mut last_commit_time = 0;
        let mut is_doubtful = false;
        let mut state = !0;
        self.walk(None, &mut |record| {
            if record.kind != COMMIT {
                is_doubtful |= self.has_checksums() && !self.is_tail_right(&record.bytes);
                if record.kind == DESCRIPTOR && self.compat & COMPAT_CHECKSUM != 0 {
                    state = self.old_checksum(record, state)?;
                }
                return Ok(true);
            }
            // Blocks of an earlier round of the ring have an earlier time.
            let time = be64(&record.bytes, 48);
            if is_doubtful {
                return if time >= last_commit_time { Err(DAMAGED) } else { Ok(false) };
            }
            if !self.is_commit_right(&record.bytes, state) {
                return Ok(false);
            }
            state = !0;
            last_commit_time = time;
            Ok(true)
        })
    }

    fn is_tail_right(&self, bytes: &[u8]) -> bool {
        let (covered, tail) = bytes.split_at(bytes.len() - 4);
        crc32c(crc32c(self.seed, covered), &[0; 4]) == be32(tail, 0)
    }

    fn is_commit_right(&self, bytes: &[u8], state: u32) -> bool {
        let stored = be32(bytes, 16);
        if self.has_checksums() {
            let mut covered = bytes.to_vec();
            covered[16..20].fill(0);
            return crc32c(self.seed, &covered) == stored;
        }
        if self.compat & COMPAT_CHECKSUM == 0 {
            return true;
        }
        let (kind, size) = (byte(bytes, 12), byte(bytes, 13));
        (kind, size, stored) == (0, 0, 0) || (kind, size, stored) == (1, 4, state)
    }

    /// The first version's checksum goes over descriptors and all that they announce.
    fn old_checksum(&self, record: &Record, state: u32) -> Result<u32> {
        let mut state = crc32_msb_first(state, &record.bytes);
        for index in 1..=self.tags(&record.bytes).len() as u32 {
            state = crc32_msb_first(state, &self.read(self.after(record.at, index))?);
        }
        Ok(state)
    }

    /// Blocks that were freed: copies of them up to this transaction no longer count.
    fn revoked(&self, end: u32) -> Result<BTreeMap<u64, u32>, Stop> {
        let mut revoked = BTreeMap::new();
        let reached = self.walk(Some(end), &mut |record| {
            if record.kind != REVOCATIONS {
                return Ok(true);
            }
            let room = record.bytes.len() - if self.has_checksums() { 4 } else { 0 };
            let used = be32(&record.bytes, HEADER_BYTES) as usize;
            if used > room || used < HEADER_BYTES + 4 {
                return Err(DAMAGED);
            }
            let width = if self.incompat & BITS_64 != 0 { 8 } else { 4 };
            for entry in record.bytes[HEADER_BYTES + 4..used].chunks_exact(width) {
                let block = if width == 8 { be64(entry, 0) } else { be32(entry, 0).into() };
                let newest = revoked.entry(block).or_insert(record.sequence);
                if record.sequence.wrapping_sub(*newest).cast_signed() > 0 {
                    *newest = record.sequence;
                }
            }
            Ok(true)
        })?;
        if reached == end { Ok(revoked) } else { Err(DAMAGED) }
    }

    fn take_blocks(
        &self,
        end: u32,
        revoked: &BTreeMap<u64, u32>,
        overlay: &mut Overlay,
    ) -> Result<(), Stop> {
        let block_bytes = self.blocks.block_bytes();
        let reached = self.walk(Some(end), &mut |record| {
            if record.kind != DESCRIPTOR {
                return Ok(true);
            }
            for (tag, index) in self.tags(&record.bytes).iter().zip(1..) {
                let is_revoked = revoked.get(&tag.block).is_some_and(|&sequence| {
                    sequence.wrapping_sub(record.sequence).cast_signed() >= 0
                });
                if is_revoked {
                    continue;
                }
                let at = self.after(record.at, index);
                if !self.is_block_right(tag, record.sequence, at)?
                    || tag.block >= self.blocks.superblock.blocks
                {
                    return Err(DAMAGED);
                }
                let offset = self.place(at)? * block_bytes;
                let is_escaped = tag.flags & TAG_ESCAPED != 0;
                overlay.insert(tag.block, JournalCopy { offset, is_escaped });
            }
            Ok(true)
        })?;
        if reached == end { Ok(()) } else { Err(DAMAGED) }
    }

    fn is_block_right(&self, tag: &Tag, sequence: u32, at: u32) -> Result<bool> {
        if !self.has_checksums() {
            return Ok(true);
        }
        let sequence = [24, 16, 8, 0].map(|shift| (sequence >> shift) as u8);
        let found = crc32c(crc32c(self.seed, &sequence), &self.read(at)?);
        let is_whole = self.incompat & CHECKSUM_V3 != 0;
        Ok(tag.checksum == if is_whole { found } else { found & 0xffff })
    }

    fn tags(&self, descriptor: &[u8]) -> Vec<Tag> {
        let is_v3 = self.incompat & CHECKSUM_V3 != 0;
        let is_wide = self.incompat & BITS_64 != 0;
        let v2_bytes = if self.incompat & CHECKSUM_V2 != 0 { 2 } else { 0 };
        let tag_bytes = match (is_v3, is_wide) {
            (true, _) => 16,
            (false, true) => 12 + v2_bytes,
            (false, false) => 8 + v2_bytes,
        };
        let end = descriptor.len() - if self.has_checksums() { 4 } else { 0 };
        let mut tags = Vec::new();
        let mut at = HEADER_BYTES;
        while at + tag_bytes <= end {
            let bytes = &descriptor[at..at + tag_bytes];
            let high = if is_wide { u64::from(be32(bytes, 8)) << 32 } else { 0 };
            let (flags, checksum) = match is_v3 {
                true => (be32(bytes, 4), be32(bytes, 12)),
                false => (be16(bytes, 6).into(), be16(bytes, 4).into()),
            };
            tags.push(Tag { block: u64::from(be32(bytes, 0)) | high, flags, checksum });
            at += tag_bytes + if flags & TAG_SAME_UUID == 0 { 16 } else { 0 };
            if flags & TAG_LAST != 0 {
                break;
            }
        }
        tags
    }

    /// Whether there are fast commits that the last transaction does not have: they belong to one
    /// that was not committed. Each block of their part of the journal is looked at.
    fn has_fast_commits(&self, end: u32) -> Result<bool> {
        for at in self.fast.clone() {
            let block = match self.read(at) {
                Ok(block) => block,
                Err(DiskError::Io(error)) => return Err(error.into()),
                Err(_) => return Ok(true),
            };
            // A tag, its length, features, and the transaction that it continues.
            let is_head = le16(&block, 0) == FAST_HEAD;
            if is_head && le32(&block, 8).wrapping_sub(end).cast_signed() >= 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
