//! Btrfs on one device, read as the kernel would show it with the option `subvolid=5`.
//!
//! Read of it: subvolumes and snapshots as folders where they are, extents of all kinds (compressed
//! ones are decompressed), extended attributes, one or two copies of chunks, and the checksums of
//! metadata, which are verified. The log of synchronized files is not replayed: a volume that has
//! one is seen as it was before. Several devices are refused.

mod superblock;

mod checksum;

mod key;

mod chunks;

mod nodes;

mod roots;

mod inode;

mod directory;

mod file;

mod compression;

mod lzo;

mod free;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use strongroom_base::ByteCache;
use strongroom_catalog::Metadata;

use crate::error::Result;
use crate::file_system::{Entry, Facts, FileSystem, Kind, Node, NodeKind, Piece, State, Unclean};
use crate::free::FreeMap;
use crate::read::ReadAt;

use chunks::Chunks;
use directory::EMPTY_FOLDER;
use inode::Inode;
use nodes::Nodes;
use roots::FileTrees;
use superblock::Superblock;

/// Decompressed extents that are kept.
const CACHE_BYTES: usize = 4 << 20;
/// The kernel's limit is below a sector.
const TARGET_BYTES_MAX: u64 = 64 << 10;

type Content = Arc<[u8]>;

/// Btrfs on a volume.
pub struct Btrfs<'a> {
    nodes: Nodes<'a>,
    trees: FileTrees,
    facts: Facts,
    decompressed: ByteCache<(u64, u64, u64, u8), Content>,
}

/// The type bits of a mode.
mod kind {
    pub const FIFO: u16 = 0o1;
    pub const CHAR_DEVICE: u16 = 0o2;
    pub const DIRECTORY: u16 = 0o4;
    pub const BLOCK_DEVICE: u16 = 0o6;
    pub const FILE: u16 = 0o10;
    pub const SYMLINK: u16 = 0o12;
    pub const SOCKET: u16 = 0o14;
}

impl<'a> Btrfs<'a> {
    /// Opens the file system of a volume; `None` if the volume has another file system or none.
    pub fn open(volume: &'a dyn ReadAt) -> Result<Option<Self>> {
        let Some(superblock) = Superblock::read(volume)? else { return Ok(None) };
        let system = Chunks::of_system(&superblock)?;
        let chunks = nodes::all_chunks(&Nodes::new(volume, superblock.clone(), system))?;
        let nodes = Nodes::new(volume, superblock, chunks);
        let trees = FileTrees::read(&nodes)?;
        let superblock = &nodes.superblock;
        let state = match (superblock.unknown, superblock.has_errors, superblock.has_log) {
            (Some(unknown), _, _) => State::NotUnderstood(unknown),
            (None, true, _) => State::Dirty(Unclean::Errors),
            (None, false, true) => State::Dirty(Unclean::LogTree),
            (None, false, false) => State::Clean,
        };
        let facts = Facts {
            kind: Kind::Btrfs,
            label: superblock.label.clone(),
            uuid: superblock.uuid,
            state,
            block_bytes: superblock.sector_bytes,
            bytes: superblock.bytes,
        };
        let decompressed = ByteCache::new(CACHE_BYTES);
        Ok(Some(Self { nodes, trees, facts, decompressed }))
    }

    fn inode(&self, number: u64) -> Result<Inode> {
        let (tree, inside) = self.trees.split(number)?;
        Inode::read(&self.nodes, tree, inside)
    }

    /// A regular file.
    fn file(&self, number: u64) -> Result<Inode> {
        let inode = self.inode(number)?;
        if inode.kind() != kind::FILE {
            return Err(inode.damaged("this inode is not a regular file"));
        }
        Ok(inode)
    }

    fn is_empty_folder(&self, number: u64) -> Result<bool> {
        Ok(self.trees.split(number)?.1 == EMPTY_FOLDER)
    }

    fn kind(&self, inode: &Inode) -> Result<NodeKind> {
        Ok(match inode.kind() {
            kind::FILE => NodeKind::File,
            kind::DIRECTORY => NodeKind::Directory,
            kind::SYMLINK => {
                if inode.size() == 0 || inode.size() > TARGET_BYTES_MAX {
                    return Err(inode.damaged("length of a symbolic link, by inode"));
                }
                let mut target = vec![0; inode.size() as usize];
                file::read(self, inode, 0, &mut target)?;
                NodeKind::Symlink { target }
            }
            kind::FIFO => NodeKind::Fifo,
            kind::SOCKET => NodeKind::Socket,
            kind::CHAR_DEVICE => NodeKind::CharDevice(inode.device()),
            kind::BLOCK_DEVICE => NodeKind::BlockDevice(inode.device()),
            _ => return Err(inode.damaged("type of an inode")),
        })
    }
}

impl FileSystem for Btrfs<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        self.trees.top()
    }

    fn node(&self, number: u64) -> Result<Node> {
        if self.is_empty_folder(number)? {
            let metadata = Metadata { mode: 0o755, inode: number, links: 1, ..Metadata::default() };
            let kind = NodeKind::Directory;
            return Ok(Node { kind, metadata, encrypted: false, verity: false });
        }
        let mut inode = self.inode(number)?;
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
            xattrs: std::mem::take(&mut inode.xattrs),
            ..Metadata::default()
        };
        let verity = inode.is_verity();
        Ok(Node { kind: self.kind(&inode)?, metadata, encrypted: false, verity })
    }

    fn entries(
        &self,
        directory: u64,
        take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.is_empty_folder(directory)? {
            return Ok(());
        }
        let inode = self.inode(directory)?;
        if inode.kind() != kind::DIRECTORY {
            return Err(inode.damaged("this inode is not a directory"));
        }
        directory::entries(&self.nodes, &self.trees, &inode, take)
    }

    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        file::pieces(&self.nodes, &self.file(file)?, range, take)
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        file::read(self, &self.file(file)?, offset, buffer)
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        free::map(&self.nodes)
    }
}
