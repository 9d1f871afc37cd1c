//! The content of a file as a reader of its own: an image or a swap area inside a file.

use std::io;

use crate::error::{DiskError, Result};
use crate::file_system::{FileSystem, NodeKind};
use crate::read::ReadAt;

/// Reads the content of one regular file.
#[derive(Clone, Copy)]
pub struct FileContent<'a> {
    files: &'a dyn FileSystem,
    inode: u64,
    bytes: u64,
}

impl<'a> FileContent<'a> {
    /// The content of a regular file.
    pub fn open(files: &'a dyn FileSystem, inode: u64) -> Result<Self> {
        let node = files.node(inode)?;
        if node.kind != NodeKind::File {
            return Err(DiskError::damaged("this inode is not a regular file", inode));
        }
        Ok(Self { files, inode, bytes: node.metadata.size })
    }
}

impl ReadAt for FileContent<'_> {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.files.read(self.inode, offset, buffer) {
            Ok(bytes) if bytes == buffer.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(DiskError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}
