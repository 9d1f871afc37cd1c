//! ext2, ext3 and ext4, read as the kernel would show them after a mount.
//!
//! Read of it: block sizes of 1 to 64 KiB, extents and block lists, all layouts of groups, inline
//! data, hash trees (as plain directories), extended attributes in each of their places, and
//! metadata checksums, which are verified. The journal is replayed in memory ([`journal`]), except
//! for fast commits: a volume that has some is seen as it was before them, and nothing is free. Files that are encrypted keep their metadata; their names and content are
//! refused.

mod superblock;

mod blocks;

mod groups;

mod inode;

mod mapping;

mod journal;

mod file;

mod xattr;

mod inline;

mod directory;

mod free;

use std::ops::{ControlFlow, Range};

use strongroom_catalog::Metadata;

use crate::error::{DiskError, Result};
use crate::file_system::{Entry, Facts, FileSystem, Node, NodeKind, Piece, Source, State, Unclean};
use crate::free::FreeMap;
use crate::read::{ReadAt, read_vec};

use blocks::{Blocks, Overlay};
use inode::{Inode, flag, kind};
use superblock::Superblock;

const ROOT: u64 = 2;

/// A file system of the ext family.
pub struct Ext<'a> {
    blocks: Blocks<'a>,
    facts: Facts,
}

impl<'a> Ext<'a> {
    /// Opens the file system of a volume, and replays its journal in memory if it needs that; `None`
    /// if the volume has another file system or none.
    pub fn open(volume: &'a dyn ReadAt) -> Result<Option<Self>> {
        let bytes = volume.size();
        if bytes < superblock::OFFSET + superblock::BYTES as u64 {
            return Ok(None);
        }
        let stored = read_vec(volume, superblock::OFFSET, superblock::BYTES)?;
        let Some(superblock) = Superblock::parse(&stored, bytes)? else { return Ok(None) };
        let seen = Blocks::new(volume, superblock, Overlay::new());
        let (blocks, state) = if !seen.superblock.needs_recovery() {
            let state = resting_state(&seen.superblock);
            (seen, state)
        } else if !seen.superblock.has_journal || seen.superblock.journal_inode == 0 {
            (seen, State::Dirty(Unclean::JournalElsewhere))
        } else {
            recovered(volume, seen)?
        };
        let superblock = &blocks.superblock;
        let has_journal = superblock.has_journal && superblock.journal_inode != 0;
        let of_journal = || has_journal.then(|| journal::unknown(&blocks)).flatten();
        let unknown = superblock.unknown.or_else(of_journal);
        let state = unknown.map_or(state, State::NotUnderstood);
        let facts = Facts {
            kind: superblock.kind(),
            label: superblock.label.clone(),
            uuid: superblock.uuid,
            state,
            block_bytes: blocks.block_bytes(),
            bytes: superblock.blocks * blocks.block_bytes(),
        };
        Ok(Some(Self { blocks, facts }))
    }

    /// A regular file whose content can be read.
    fn file(&self, number: u64) -> Result<Inode> {
        let inode = Inode::read(&self.blocks, number)?;
        if inode.kind() != kind::FILE {
            return Err(inode.damaged("this inode is not a regular file"));
        }
        refuse_encrypted(&inode)?;
        Ok(inode)
    }

    fn target(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.has(flag::ENCRYPTED) {
            return Ok(Vec::new());
        }
        if inode.has(flag::INLINE_DATA) {
            return inline::content(inode);
        }
        // The kernel stores targets of less than a block.
        if inode.size() >= self.blocks.block_bytes() {
            return Err(inode.damaged("length of a symbolic link, by inode"));
        }
        let mut target = vec![0; inode.size() as usize];
        if inode.is_short_link(&self.blocks) {
            let stored = inode.block_area().get(..target.len());
            let stored = stored.ok_or_else(|| inode.damaged("length of a symbolic link, by inode"));
            target.copy_from_slice(stored?);
        } else {
            file::read(&self.blocks, inode, 0, &mut target)?;
        }
        Ok(target)
    }

    fn kind(&self, inode: &Inode) -> Result<NodeKind> {
        Ok(match inode.kind() {
            kind::FILE => NodeKind::File,
            kind::DIRECTORY => NodeKind::Directory,
            kind::SYMLINK => NodeKind::Symlink { target: self.target(inode)? },
            kind::FIFO => NodeKind::Fifo,
            kind::SOCKET => NodeKind::Socket,
            kind::CHAR_DEVICE => NodeKind::CharDevice(inode.device()),
            kind::BLOCK_DEVICE => NodeKind::BlockDevice(inode.device()),
            _ => return Err(inode.damaged("type of an inode")),
        })
    }
}

/// The state of a volume whose journal is empty, or that has none.
fn resting_state(superblock: &Superblock) -> State {
    match (superblock.is_valid(), superblock.has_errors(), superblock.has_journal) {
        (_, true, _) | (false, false, true) => State::Dirty(Unclean::Errors),
        (false, false, false) => State::Dirty(Unclean::NoJournal),
        (true, false, _) => State::Clean,
    }
}

/// The blocks after the journal was replayed; as they are, if it cannot be.
fn recovered<'a>(volume: &'a dyn ReadAt, seen: Blocks<'a>) -> Result<(Blocks<'a>, State)> {
    let replay = match journal::replay(&seen)? {
        Ok(replay) => replay,
        Err(unclean) => return Ok((seen, State::Dirty(unclean))),
    };
    let blocks = Blocks::new(volume, seen.superblock.clone(), replay.overlay);
    let mut stored = vec![0; superblock::BYTES];
    blocks.read_bytes(superblock::OFFSET, &mut stored)?;
    let Ok(Some(newer)) = Superblock::parse(&stored, volume.size()) else {
        return Ok((seen, State::Dirty(Unclean::JournalDamaged)));
    };
    // The journal's blocks were counted in the old geometry.
    if newer.block_bytes != seen.superblock.block_bytes {
        return Ok((seen, State::Dirty(Unclean::JournalDamaged)));
    }
    let state = if replay.has_error || newer.has_errors() || !newer.is_valid() {
        State::Dirty(Unclean::Errors)
    } else {
        State::Replayed { transactions: replay.transactions, blocks: blocks.newer() }
    };
    Ok((blocks.with_superblock(newer), state))
}

fn refuse_encrypted(inode: &Inode) -> Result<()> {
    if inode.has(flag::ENCRYPTED) {
        return Err(DiskError::unsupported("encrypted names and content"));
    }
    Ok(())
}

impl FileSystem for Ext<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        ROOT
    }

    fn node(&self, number: u64) -> Result<Node> {
        let inode = Inode::read(&self.blocks, number)?;
        if inode.links() == 0 || inode.has(flag::EA_INODE) {
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
        Ok(Node {
            kind: self.kind(&inode)?,
            metadata,
            encrypted: inode.has(flag::ENCRYPTED),
            verity: inode.has(flag::VERITY),
        })
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
        refuse_encrypted(&inode)?;
        directory::entries(&self.blocks, &inode, take)
    }

    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.file(file)?;
        if !inode.has(flag::INLINE_DATA) {
            return file::pieces(&self.blocks, &inode, range, take);
        }
        let bytes = inode.size();
        if range.start < range.end.min(bytes) {
            let _ = take(Piece { offset: 0, bytes, source: Source::Inside });
        }
        Ok(())
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let inode = self.file(file)?;
        if !inode.has(flag::INLINE_DATA) {
            return file::read(&self.blocks, &inode, offset, buffer);
        }
        let content = inline::content(&inode)?;
        let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..));
        let rest = rest.unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        free::map(&self.blocks)
    }
}
