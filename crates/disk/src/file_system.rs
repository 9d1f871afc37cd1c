//! What every file system can say, and which one is on a volume.

use std::ops::{ControlFlow, Range};

use strongroom_catalog::{DeviceNumber, Metadata};

use crate::error::{DiskError, Result};
use crate::free::FreeMap;
use crate::understood::NotUnderstood;

/// A file system on a volume. All offsets are bytes of the volume.
pub trait FileSystem: Send + Sync {
    /// What the file system says of itself.
    fn facts(&self) -> &Facts;

    /// The inode of the root directory.
    fn root(&self) -> u64;

    /// What an inode is, with its metadata and extended attributes.
    fn node(&self, inode: u64) -> Result<Node>;

    /// Gives the names of a directory to `take`, without `.` and `..`, in the order of the disk,
    /// until `take` breaks.
    ///
    /// # Errors
    ///
    /// If a part of the directory is damaged, the names of the other parts are given, and the error
    /// of the first damaged part is returned.
    fn entries(
        &self,
        directory: u64,
        take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Gives the parts of a file's content that have bytes in `range` to `take`, in ascending order
    /// and without overlap, until `take` breaks. What lies between them is holes. A part can begin
    /// before the range and end behind it, never behind the end of the file.
    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Reads the content of a file from `offset` on, holes as zeros. Returns how many bytes of the
    /// buffer were filled: fewer than it has only at the end of the file.
    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The bytes that nothing needs. It reads all allocation maps and all inodes.
    ///
    /// # Errors
    ///
    /// Unless the volume is clean or its journal was replayed, this is an error.
    fn free(&self) -> Result<FreeMap>;

    /// Files whose content nothing needs once the machine is off, such as `pagefile.sys`. They are
    /// files as any other, and their bytes are not free: a caller can treat the pieces of such a file
    /// as it treats a swap area.
    ///
    /// # Errors
    ///
    /// Unless the volume is clean or its journal was replayed, this is an error.
    fn page_files(&self) -> Result<Vec<u64>> {
        self.facts().state.check_trusted()?;
        Ok(Vec::new())
    }
}

/// What a file system says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Which file system.
    pub kind: Kind,
    /// The label; any bytes, often none.
    pub label: Vec<u8>,
    /// The UUID as it is stored. A serial number is shorter: it is the first bytes, the others are
    /// zero.
    pub uuid: [u8; 16],
    /// Whether what we see is what the kernel would show.
    pub state: State,
    /// Bytes of a block: files and free space begin at multiples of it.
    pub block_bytes: u64,
    /// Bytes of the volume that the file system covers.
    pub bytes: u64,
}

/// Which file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Without a journal and without what came later.
    Ext2,
    /// With a journal.
    Ext3,
    /// With extents or anything else that came with ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// FAT with entries of 12 bits.
    Fat12,
    /// FAT with entries of 16 bits.
    Fat16,
    /// FAT with entries of 32 bits, of which 28 are used.
    Fat32,
    /// exFAT, of large memory cards.
    ExFat,
    /// Of Windows.
    Ntfs,
    /// Btrfs.
    Btrfs,
}

/// Whether what we see is what the kernel would show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Unmounted cleanly.
    Clean,
    /// Not unmounted cleanly; the journal was replayed in memory.
    Replayed {
        /// Transactions that were replayed.
        transactions: u32,
        /// Blocks (of XFS: sectors) that are read from the journal instead of their place.
        blocks: u64,
    },
    /// Not unmounted cleanly, and seen as it is: files may be older than the kernel would show them,
    /// or damaged, and nothing counts as free.
    Dirty(Unclean),
    /// It has something that this crate does not know: it is seen as far as it is known, and nothing
    /// counts as free.
    NotUnderstood(NotUnderstood),
}

/// Why a volume is only seen as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclean {
    /// It has no journal, and was not unmounted.
    NoJournal,
    /// The kernel had noted errors in it.
    Errors,
    /// Its journal is on another device.
    JournalElsewhere,
    /// Its journal is damaged.
    JournalDamaged,
    /// Its journal has features that we do not know.
    JournalUnknown,
    /// Its journal has fast commits, which are not replayed.
    FastCommits,
    /// Its journal ends within a change that only the file system itself can complete.
    JournalUnfinished,
    /// Its journal has more changes than are kept in memory.
    JournalTooLarge,
    /// Its journal has changes that we cannot replay.
    JournalInUse,
    /// It belongs to a machine that is hibernated, which will go on with what it has in memory.
    Hibernated,
    /// It has a log of files that were synchronized just before it stopped, which is not replayed.
    LogTree,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name: any bytes but NUL and `/`, neither empty nor `.` nor `..`.
    pub name: &'a [u8],
    /// The inode that it leads to.
    pub inode: u64,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Its metadata, as root sees it in Linux: ACLs are among the extended attributes. Device and
    /// names of owners are left out; the volume does not know them.
    pub metadata: Metadata,
    /// Names and content are encrypted (fscrypt) and cannot be read.
    pub encrypted: bool,
    /// The content is covered by a hash tree (fs-verity), which is not part of the content.
    pub verity: bool,
}

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points; empty if it is encrypted.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// Consecutive bytes of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin in the file.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
    /// Where they come from.
    pub source: Source,
}

/// Where the bytes of a file come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The volume has them as they are, from this byte on.
    Volume(u64),
    /// They were allocated and never written: they are zeros, other than the volume's bytes from
    /// this one on.
    Unwritten(u64),
    /// The volume does not have them as they are, in this order (they are inside of metadata, or in
    /// the journal): [`FileSystem::read`] gives them.
    Inside,
}

impl Piece {
    /// The pieces of consecutive bytes of a volume if what is behind the first `written` bytes of the
    /// file was never written.
    pub(crate) fn of_volume(
        offset: u64,
        bytes: u64,
        place: u64,
        written: u64,
    ) -> [Option<Self>; 2] {
        let first = written.clamp(offset, offset + bytes) - offset;
        let volume = Self { offset, bytes: first, source: Source::Volume(place) };
        let unwritten = Self {
            offset: offset + first,
            bytes: bytes - first,
            source: Source::Unwritten(place + first),
        };
        [volume, unwritten].map(|piece| (piece.bytes > 0).then_some(piece))
    }
}

impl State {
    /// True if the allocation maps describe what we see.
    pub fn is_trusted(&self) -> bool {
        matches!(self, Self::Clean | Self::Replayed { .. })
    }

    /// An error unless [`State::is_trusted`].
    pub(crate) fn check_trusted(&self) -> Result<()> {
        match self {
            Self::Dirty(_) => Err(DiskError::unsupported("free space of an unclean volume")),
            Self::NotUnderstood(why) => Err((*why).into()),
            Self::Clean | Self::Replayed { .. } => Ok(()),
        }
    }
}
