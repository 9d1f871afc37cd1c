//! One inode as it is stored: its fields, its checksum, its times, its two forks.

use strongroom_base::Timestamp;
use strongroom_catalog::DeviceNumber;

use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, be64, byte, part};

use super::blocks::Blocks;

pub(super) const MAGIC: u16 = 0x494e;
pub(super) const CRC_AT: usize = 100;
const OLD_BYTES: usize = 100;
const NEW_BYTES: usize = 176;

/// Bits of the flags.
mod flag {
    pub const REALTIME: u16 = 1;
}

/// Bits of the flags that came with version 5.
pub(super) mod flag2 {
    pub const BIG_TIME: u64 = 8;
    pub const LARGE_COUNTS: u64 = 0x10;
}

/// The type bits of a mode.
pub(super) mod kind {
    pub const FIFO: u16 = 0o1;
    pub const CHAR_DEVICE: u16 = 0o2;
    pub const DIRECTORY: u16 = 0o4;
    pub const BLOCK_DEVICE: u16 = 0o6;
    pub const FILE: u16 = 0o10;
    pub const SYMLINK: u16 = 0o12;
    pub const SOCKET: u16 = 0o14;
}

/// One of the two things that an inode leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fork {
    /// The content.
    Data,
    /// The extended attributes.
    Xattrs,
}

/// How a fork is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Device,
    /// In the inode.
    Local,
    /// A list of extents in the inode.
    Extents,
    /// A tree of extents, whose root is in the inode.
    Tree,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inode {
    pub number: u64,
    /// All of its bytes.
    pub raw: Vec<u8>,
}

/// The byte of the volume at which an inode is.
pub(super) fn place(blocks: &Blocks<'_>, number: u64) -> Result<u64> {
    let superblock = &blocks.superblock;
    let shift = superblock.inode_shift;
    let inside = (number & ((1 << shift) - 1)) * superblock.inode_bytes as u64;
    let block = blocks.place(number >> shift, 1);
    Ok(block.map_err(|_| DiskError::damaged("number of an inode", number))? + inside)
}

impl Inode {
    /// Reads an inode and verifies it.
    pub(super) fn read(blocks: &Blocks<'_>, number: u64) -> Result<Self> {
        let superblock = &blocks.superblock;
        let offset = place(blocks, number)?;
        let block = blocks.get(number >> superblock.inode_shift)?;
        let inside = (offset % blocks.block_bytes()) as usize;
        let raw = part(&block, inside, superblock.inode_bytes).to_vec();
        let inode = Self { number, raw };
        inode.check(blocks, offset)?;
        Ok(inode)
    }

    /// Verifies that this is an inode, with this number, as it was written.
    pub(super) fn check(&self, blocks: &Blocks<'_>, offset: u64) -> Result<()> {
        let is_v5 = blocks.superblock.is_v5;
        let is_right = be16(&self.raw, 0) == MAGIC
            && (self.version() == 3) == is_v5
            && (1..=3).contains(&self.version());
        if !is_right {
            return Err(self.damaged("there is no inode with this number"));
        }
        if !blocks.is_intact(offset, &self.raw, CRC_AT) {
            return Err(self.damaged("checksum of an inode"));
        }
        if is_v5 && (be64(&self.raw, 152) != self.number || !blocks.is_ours(&self.raw, 160)) {
            return Err(self.damaged("an inode that says it is another"));
        }
        if self.fork_offset() != 0 && self.start() + self.fork_offset() >= self.raw.len() {
            return Err(self.damaged("place of extended attributes, by inode"));
        }
        Ok(())
    }

    pub(super) fn damaged(&self, what: &'static str) -> DiskError {
        DiskError::damaged(what, self.number)
    }

    fn version(&self) -> u8 {
        byte(&self.raw, 4)
    }

    fn start(&self) -> usize {
        if self.version() == 3 { NEW_BYTES } else { OLD_BYTES }
    }

    fn fork_offset(&self) -> usize {
        usize::from(byte(&self.raw, 82)) * 8
    }

    /// The bytes of a fork that are in the inode.
    pub(super) fn area(&self, fork: Fork) -> &[u8] {
        let rest = part(&self.raw, self.start(), self.raw.len());
        match (fork, self.fork_offset()) {
            (Fork::Data, 0) => rest,
            (Fork::Data, offset) => part(rest, 0, offset),
            (Fork::Xattrs, 0) => &[],
            (Fork::Xattrs, offset) => part(rest, offset, rest.len()),
        }
    }

    pub(super) fn format(&self, fork: Fork) -> Result<Format> {
        match byte(&self.raw, if fork == Fork::Data { 5 } else { 83 }) {
            0 if fork == Fork::Data => Ok(Format::Device),
            1 => Ok(Format::Local),
            2 => Ok(Format::Extents),
            3 => Ok(Format::Tree),
            _ => Err(self.damaged("format of an inode")),
        }
    }

    pub(super) fn has_xattrs(&self) -> bool {
        self.fork_offset() != 0
    }

    /// The number of extents of a fork.
    pub(super) fn extents(&self, fork: Fork) -> u64 {
        let is_large = self.flags2() & flag2::LARGE_COUNTS != 0;
        match (fork, is_large) {
            (Fork::Data, true) => be64(&self.raw, 24),
            (Fork::Data, false) => be32(&self.raw, 76).into(),
            (Fork::Xattrs, true) => be32(&self.raw, 76).into(),
            (Fork::Xattrs, false) => be16(&self.raw, 80).into(),
        }
    }

    fn flags2(&self) -> u64 {
        if self.version() == 3 { be64(&self.raw, 120) } else { 0 }
    }

    /// Its content is on a realtime device.
    pub(super) fn is_realtime(&self) -> bool {
        be16(&self.raw, 90) & flag::REALTIME != 0
    }

    /// The type bits of the mode.
    pub(super) fn kind(&self) -> u16 {
        self.mode() >> 12
    }

    pub(super) fn mode(&self) -> u16 {
        be16(&self.raw, 2)
    }

    pub(super) fn uid(&self) -> u32 {
        be32(&self.raw, 8)
    }

    pub(super) fn gid(&self) -> u32 {
        be32(&self.raw, 12)
    }

    pub(super) fn links(&self) -> u32 {
        if self.version() == 1 { be16(&self.raw, 6).into() } else { be32(&self.raw, 16) }
    }

    pub(super) fn size(&self) -> u64 {
        be64(&self.raw, 56)
    }

    pub(super) fn mtime(&self) -> Timestamp {
        self.time(40)
    }

    pub(super) fn ctime(&self) -> Timestamp {
        self.time(48)
    }

    /// Signed seconds and nanoseconds; or nanoseconds since the end of 1901.
    fn time(&self, at: usize) -> Timestamp {
        const SECOND: i128 = 1_000_000_000;
        let time = if self.flags2() & flag2::BIG_TIME != 0 {
            i128::from(be64(&self.raw, at)) + i128::from(i32::MIN) * SECOND
        } else {
            let seconds = be32(&self.raw, at).cast_signed();
            i128::from(seconds) * SECOND + i128::from(be32(&self.raw, at + 4))
        };
        Timestamp(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// The device of a special file.
    pub(super) fn device(&self) -> DeviceNumber {
        let stored = be32(self.area(Fork::Data), 0);
        DeviceNumber { major: (stored >> 18) & 0x3fff, minor: stored & 0x3_ffff }
    }
}
