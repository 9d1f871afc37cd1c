//! XFS of versions 4 and 5, read as the kernel would show it after a mount.
//!
//! Read of it: all sizes of blocks, inodes and directories, extents in lists and trees, sparse
//! chunks of inodes, large counts of extents, times up to 2486, extended attributes in each of
//! their places, and checksums, which are verified. The log of version 5 is replayed in memory
//! ([`log`]). Realtime devices and logs on other devices are refused.

mod superblock;

mod blocks;

mod tree;

mod groups;

mod inode;

mod mapping;

mod log;

mod file;

mod xattr;

mod directory;

mod symlink;

mod free;

use std::ops::{ControlFlow, Range};

use strongroom_catalog::Metadata;

use crate::error::{DiskError, Result};
use crate::file_system::{Entry, Facts, FileSystem, Kind, Node, NodeKind, Piece, State, Unclean};
use crate::free::FreeMap;
use crate::read::{ReadAt, read_vec};

use blocks::{Blocks, Overlay};
use inode::{Inode, kind};
use superblock::Superblock;

/// XFS on a volume.
pub struct Xfs<'a> {
    blocks: Blocks<'a>,
    facts: Facts,
}

impl<'a> Xfs<'a> {
    /// Opens the file system of a volume, and replays its log in memory if it needs that; `None` if
    /// the volume has another file system or none.
    pub fn open(volume: &'a dyn ReadAt) -> Result<Option<Self>> {
        let bytes = volume.size();
        if bytes < superblock::BYTES as u64 {
            return Ok(None);
        }
        let stored = read_vec(volume, 0, superblock::BYTES)?;
        let Some(superblock) = Superblock::parse(&stored, bytes)? else { return Ok(None) };
        superblock::check_sum(&read_vec(volume, 0, superblock.sector_bytes)?)?;
        let seen = Blocks::new(volume, superblock, Overlay::default());
        let (blocks, state) = match log::replay(&seen)? {
            _ if seen.superblock.needs_repair() => (seen, State::Dirty(Unclean::Errors)),
            Err(unclean) => (seen, State::Dirty(unclean)),
            Ok(None) => (seen, State::Clean),
            Ok(Some(replay)) => replayed(volume, seen, replay)?,
        };
        let superblock = &blocks.superblock;
        let state = superblock.unknown.map_or(state, State::NotUnderstood);
        let facts = Facts {
            kind: Kind::Xfs,
            label: superblock.label.clone(),
            uuid: superblock.uuid,
            state,
            block_bytes: blocks.block_bytes(),
            bytes: superblock.blocks * blocks.block_bytes(),
        };
        Ok(Some(Self { blocks, facts }))
    }

    /// A regular file.
    fn file(&self, number: u64) -> Result<Inode> {
        let inode = Inode::read(&self.blocks, number)?;
        if inode.kind() != kind::FILE {
            return Err(inode.damaged("this inode is not a regular file"));
        }
        if inode.is_realtime() {
            return Err(inode.damaged("content on a realtime device, by inode"));
        }
        Ok(inode)
    }

    fn kind(&self, inode: &Inode) -> Result<NodeKind> {
        Ok(match inode.kind() {
            kind::FILE => NodeKind::File,
            kind::DIRECTORY => NodeKind::Directory,
            kind::SYMLINK => NodeKind::Symlink { target: symlink::target(&self.blocks, inode)? },
            kind::FIFO => NodeKind::Fifo,
            kind::SOCKET => NodeKind::Socket,
            kind::CHAR_DEVICE => NodeKind::CharDevice(inode.device()),
            kind::BLOCK_DEVICE => NodeKind::BlockDevice(inode.device()),
            _ => return Err(inode.damaged("type of an inode")),
        })
    }
}

/// The blocks after the log was replayed; as they are, if the result is no file system.
fn replayed<'a>(
    volume: &'a dyn ReadAt,
    seen: Blocks<'a>,
    replay: log::Replay,
) -> Result<(Blocks<'a>, State)> {
    let mut stored = read_vec(volume, 0, superblock::BYTES)?;
    replay.overlay.apply(0, &mut stored);
    let newer = Superblock::parse(&stored, volume.size());
    let is_same = |newer: &Superblock| {
        let of = |s: &Superblock| (s.block_bytes, s.group_blocks, s.inode_bytes, s.sector_bytes);
        of(newer) == of(&seen.superblock) && newer.is_v5 == seen.superblock.is_v5
    };
    // The log was read in the old geometry.
    let Some(newer) = newer.ok().flatten().filter(is_same) else {
        return Ok((seen, State::Dirty(Unclean::JournalDamaged)));
    };
    let blocks = Blocks::new(volume, newer, replay.overlay);
    let state = if blocks.superblock.needs_repair() {
        State::Dirty(Unclean::Errors)
    } else {
        State::Replayed { transactions: replay.transactions, blocks: blocks.newer() }
    };
    Ok((blocks, state))
}

impl FileSystem for Xfs<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        self.blocks.superblock.root
    }

    fn node(&self, number: u64) -> Result<Node> {
        let inode = Inode::read(&self.blocks, number)?;
        if inode.links() == 0 {
            return Err(inode.damaged("a name leads to an inode without names"));
        }
        let metadata = Metadata {
            mode: inode.mode() & 0o7777,
            uid: inode.uid(),
            gid: inode.gid(),
            mtime: inode.mtime(),
            ctime: inode.ctime(),
            inode: number,
            links: inode.links().into(),
            size: inode.size(),
            xattrs: xattr::read(&self.blocks, &inode)?,
            ..Metadata::default()
        };
        Ok(Node { kind: self.kind(&inode)?, metadata, encrypted: false, verity: false })
    }

    fn entries(
        &self,
        directory: u64,
        take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = Inode::read(&self.blocks, directory)?;
        if inode.kind() != kind::DIRECTORY {
            return Err(inode.damaged("this inode is not a directory"));
        }
        directory::entries(&self.blocks, &inode, take)
    }

    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        file::pieces(&self.blocks, &self.file(file)?, range, take)
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        file::read(&self.blocks, &self.file(file)?, offset, buffer)
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        free::map(&self.blocks)
    }
}

fn group_damaged(what: &'static str, group: u64) -> DiskError {
    DiskError::damaged(what, group)
}
