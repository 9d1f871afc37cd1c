//! Opening a file again that this restore has begun to write: few files are open at a time.
//!
//! What has the name may be another file by then. It is neither written nor removed, and nothing takes
//! the place of what was written: the file would be finished with holes in place of its content.

use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::file_system;
use crate::inode::{self, InodeId};

use super::Target;
use super::directories::DirectoryId;
use super::error::TargetError;
use super::file::{BegunFile, TargetFile};

impl Target {
    /// Opens a file again that was begun under this name. Messages show the name that it will have.
    ///
    /// # Errors
    /// Another file has the name, or none ([`TargetError::Meddled`]), or it cannot be opened.
    pub fn reopen_file(
        &self,
        directory: DirectoryId,
        name: &[u8],
        shown: &[u8],
        begun: &BegunFile,
        size: u64,
    ) -> Result<TargetFile, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let path = self.path_of(directory, shown);
        let failed = |error| TargetError::io("open for writing", &path, error);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&fd, &c_name, flags, Mode::empty()) {
            Ok(file) => file,
            // Nothing, a link, a directory, or a socket.
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(TargetError::Meddled { path });
            }
            Err(error) => return Err(failed(error)),
        };
        let stat = inode::stat_fd(&file).map_err(failed)?;
        let is_file = inode::kind_of(&stat) == FileType::RegularFile;
        let id = InodeId::of(&stat);
        let is_same = id.inode == begun.id.inode
            || (file_system::renumbers(&file)
                && stat.stx_size >= begun.length.load(Ordering::Relaxed));
        if !is_file || id.device != begun.id.device || !is_same {
            return Err(TargetError::Meddled { path });
        }
        Ok(TargetFile::reopened(file, path, &stat, begun, size))
    }
}
