//! What one name in a directory is: its kind, its metadata, and where its content is.
//!
//! These types describe a file tree between the source that reads it, the tree that stores it and
//! the target that puts it back.

use std::sync::Arc;

use strongroom_base::Timestamp;

use crate::reference::Recipe;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name: any bytes but NUL and `/`, neither empty nor `.` nor `..`.
    pub name: Vec<u8>,
    /// What it is, with what only this kind has.
    pub kind: EntryKind,
    /// What every kind has.
    pub metadata: Metadata,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its content, holes included; as long as the file.
        content: Recipe,
    },
    /// A directory.
    Directory {
        /// Its tree.
        tree: Recipe,
        /// Part of its content is not in the tree: it was left out, could not be read, or was not
        /// reached.
        partial: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points: any bytes.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket. Only its name and metadata can be kept.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// The device of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// What every entry has, of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits with set-uid, set-gid and sticky: the low twelve bits of `st_mode`.
    pub mode: u16,
    /// Owner by number.
    pub uid: u32,
    /// Owner by name, if the number has one.
    pub user: Option<Arc<str>>,
    /// Group by number.
    pub gid: u32,
    /// Group by name, if the number has one.
    pub group: Option<Arc<str>>,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode: with size, mtime and inode number it shows that a file is
    /// unchanged.
    pub ctime: Timestamp,
    /// Inode number.
    pub inode: u64,
    /// Device the inode is on, as `st_dev`.
    pub device: u64,
    /// How many names the inode has. [`LinkKey`](crate::LinkKey) says which names are one file.
    pub links: u64,
    /// Size in bytes from `st_size` (for files equal to the content's length).
    pub size: u64,
    /// Extended attributes, sorted by name: capabilities, ACLs and security labels among them.
    pub xattrs: Vec<Xattr>,
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Name with its namespace, such as `user.comment` or `security.capability`.
    pub name: Vec<u8>,
    /// Value, any bytes.
    pub value: Vec<u8>,
}

impl Entry {
    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, EntryKind::Directory { .. })
    }

    /// True for a directory whose tree lacks something.
    pub fn is_partial(&self) -> bool {
        matches!(self.kind, EntryKind::Directory { partial: true, .. })
    }

    /// The recipe of a file's content.
    pub fn content(&self) -> Option<&Recipe> {
        match &self.kind {
            EntryKind::File { content } => Some(content),
            _ => None,
        }
    }

    /// Bytes that it takes on the heap. A name of an owner counts for each entry that has it.
    pub fn heap_bytes(&self) -> usize {
        let owners = [&self.metadata.user, &self.metadata.group];
        let owners = owners.into_iter().flatten().map(|name| 2 * size_of::<usize>() + name.len());
        let xattrs = self.metadata.xattrs.iter();
        let xattrs = xattrs.map(|x| size_of::<Xattr>() + x.name.capacity() + x.value.capacity());
        let kind = match &self.kind {
            EntryKind::File { content: recipe } | EntryKind::Directory { tree: recipe, .. } => {
                recipe.heap_bytes()
            }
            EntryKind::Symlink { target } => target.capacity(),
            _ => 0,
        };
        self.name.capacity() + kind + owners.chain(xattrs).sum::<usize>()
    }

    /// The recipe of a directory's tree.
    pub fn tree(&self) -> Option<&Recipe> {
        match &self.kind {
            EntryKind::Directory { tree, .. } => Some(tree),
            _ => None,
        }
    }
}

impl Metadata {
    /// Whether the content is still what it was, without opening the file.
    pub fn same_version_as(&self, other: &Metadata) -> bool {
        self.size == other.size
            && self.mtime == other.mtime
            && self.ctime == other.ctime
            && self.inode == other.inode
    }

    /// Permissions as `ls -l` shows them: nine letters such as `rwsr-x--T`.
    pub fn permissions_text(&self) -> String {
        let mut text = String::with_capacity(9);
        for (shift, special, set, unset) in
            [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
        {
            let bits = self.mode >> shift;
            text.push(if bits & 4 != 0 { 'r' } else { '-' });
            text.push(if bits & 2 != 0 { 'w' } else { '-' });
            text.push(match (self.mode & special != 0, bits & 1 != 0) {
                (true, true) => set,
                (true, false) => unset,
                (false, true) => 'x',
                (false, false) => '-',
            });
        }
        text
    }
}

/// True for bytes that may name an entry.
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == 0 || byte == b'/')
}

/// No file system of Linux has longer names.
pub const NAME_BYTES_MAX: usize = 1024;
