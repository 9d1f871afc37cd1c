//! Replacing what exists: a new entry is made under a temporary name and renamed when it is
//! complete. So a name never holds parts of two things, whenever the restore ends.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, OFlags, RenameFlags};
use rustix::io::Errno;
use strongroom_catalog::Metadata;

use crate::file::{Extent, extent_behind};
use crate::inode;

use super::Target;
use super::directories::DirectoryId;
use super::error::{LINK, TargetError};
use super::file::TargetFile;
use super::leftovers::{self, TEMPORARY};
use super::make::unlink;
use super::remove;

/// At most this many temporary names are tried: leftovers of another process with the same number
/// end.
const ATTEMPTS_MAX: usize = 10_000;

/// What a name of the target is before a file takes it.
#[derive(Debug)]
pub enum Existing {
    /// Nothing.
    Nothing,
    /// A regular file that can be read.
    File(ExistingFile),
    /// Anything else that a file may replace.
    Other,
}

/// A regular file of the target, open to be read.
#[derive(Debug)]
pub struct ExistingFile {
    file: File,
    size: u64,
    names: u64,
    is_changeable: bool,
}

impl ExistingFile {
    /// Its length.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many names it has.
    pub fn names(&self) -> u64 {
        self.names
    }

    /// True if it may be changed where it is: it has no other name, and the metadata can be set.
    pub fn is_changeable(&self) -> bool {
        self.is_changeable
    }

    /// Asks the kernel to forget what it keeps of the file in memory, so that the next bytes come
    /// from the disk. What is not yet written stays.
    pub fn forget_cached(&self) {
        // It is advice: if the kernel refuses, the bytes come from memory.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    /// Fills the buffer.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// The first run of stored bytes at or behind an offset; what precedes it is a hole.
    pub fn next_extent(&self, offset: u64) -> Option<Extent> {
        let all = Extent { offset, bytes: self.size.saturating_sub(offset) };
        // If holes cannot be asked for, all of it is read.
        let found = extent_behind(self.file.as_fd(), offset, self.size);
        found.unwrap_or(Some(all).filter(|all| all.bytes > 0))
    }
}

impl Target {
    /// What a name is before a file takes it. A directory is an error if nothing may be deleted.
    pub fn existing(&self, directory: DirectoryId, name: &[u8]) -> Result<Existing, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let failed = |error| TargetError::io("replace", &self.path_of(directory, name), error);
        let Some(stat) = self.stat(&fd, &c_name).map_err(failed)? else {
            return Ok(Existing::Nothing);
        };
        match inode::kind_of(&stat) {
            FileType::Directory => {
                self.make_way(&fd, &c_name, directory, FileType::RegularFile)?;
                Ok(Existing::Other)
            }
            FileType::RegularFile => Ok(self.open_existing(&fd, &c_name)),
            _ => Ok(Existing::Other),
        }
    }

    fn open_existing(&self, fd: &OwnedFd, name: &CStr) -> Existing {
        let Ok(file) = inode::open_to_read(fd.as_fd(), name, OFlags::NOFOLLOW) else {
            return Existing::Other;
        };
        match inode::stat_fd(&file) {
            Ok(stat) if inode::kind_of(&stat) == FileType::RegularFile => {
                let is_changeable = stat.stx_nlink == 1 && self.owns(&stat);
                let (size, names) = (stat.stx_size, stat.stx_nlink.into());
                Existing::File(ExistingFile { file: file.into(), size, names, is_changeable })
            }
            _ => Existing::Other,
        }
    }

    /// Makes a file that is to become `size` bytes long, under a temporary name, which is returned
    /// too. Messages show the name that it will have.
    pub fn create_temporary(
        &self,
        directory: DirectoryId,
        name: &[u8],
        size: u64,
    ) -> Result<(Vec<u8>, TargetFile), TargetError> {
        self.sweep(directory);
        for _ in 0..ATTEMPTS_MAX {
            let temporary = self.temporary_name().into_bytes();
            match self.create_file(directory, &temporary, size) {
                // Another restore sweeps at this moment.
                Ok(file) if !leftovers::claim(&file) => {}
                Ok(file) => return Ok((temporary, file.known_as(self.path_of(directory, name)))),
                Err(TargetError::Taken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(TargetError::Taken { path: self.path_of(directory, TEMPORARY.as_bytes()) })
    }

    /// Restores the metadata of a file whose content is right already. Returns what of it could not
    /// be applied.
    pub fn apply_file_metadata(
        &self,
        directory: DirectoryId,
        name: &[u8],
        metadata: &Metadata,
    ) -> Result<Vec<TargetError>, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        self.apply_to_name(&fd, &c_name, directory, metadata)
    }

    /// Gives a name of a directory another name in it that is free. Returns false if it is not.
    pub fn rename_to_free(
        &self,
        directory: DirectoryId,
        old: &[u8],
        new: &[u8],
    ) -> Result<bool, TargetError> {
        let (fd, old) = self.place(directory, old)?;
        let new_name = self.checked_name(directory, new)?;
        let renamed = rustix::fs::renameat_with(&fd, &old, &fd, &new_name, RenameFlags::NOREPLACE);
        let renamed = match renamed {
            // This file system does not know such a rename.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match self.stat(&fd, &new_name) {
                    Ok(Some(_)) => Err(Errno::EXIST),
                    Ok(None) => rustix::fs::renameat(&fd, &old, &fd, &new_name),
                    Err(error) => Err(error),
                }
            }
            other => other,
        };
        is_free(renamed)
            .map_err(|error| TargetError::io("rename to", &self.path_of(directory, new), error))
    }

    /// Gives another name, which must be free, to something that is not a directory. Returns false
    /// if it is not free.
    pub fn link_to_free(
        &self,
        existing: (DirectoryId, &[u8]),
        new: (DirectoryId, &[u8]),
    ) -> Result<bool, TargetError> {
        let (from, from_name) = self.place(existing.0, existing.1)?;
        let (to, to_name) = self.place(new.0, new.1)?;
        let linked = rustix::fs::linkat(&from, &from_name, &to, &to_name, AtFlags::empty());
        is_free(linked).map_err(|error| TargetError::io(LINK, &self.path_of(new.0, new.1), error))
    }

    /// Makes something under a name of an open directory. If the name `is_taken`, makes it under a
    /// temporary name and renames it.
    pub(super) fn make_in_place(
        &self,
        directory: (DirectoryId, &OwnedFd),
        name: &CStr,
        is_taken: bool,
        failed: &dyn Fn(Errno) -> TargetError,
        make: impl Fn(&CStr) -> Result<(), Errno>,
    ) -> Result<(), TargetError> {
        if !is_taken {
            return make(name).map_err(failed);
        }
        let fd = directory.1;
        for _ in 0..ATTEMPTS_MAX {
            let temporary = CString::new(self.temporary_name()).expect("it holds no NUL");
            match make(&temporary) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
                Ok(()) => {
                    let renamed = self.rename_over(directory, &temporary, name, failed);
                    if renamed.is_err() && unlink(fd, &temporary) == Err(Errno::ISDIR) {
                        // The first failure is the one to report.
                        let _ = rustix::fs::unlinkat(fd, &temporary, AtFlags::REMOVEDIR);
                    }
                    return renamed;
                }
            }
        }
        Err(failed(Errno::EXIST))
    }

    /// Renames what is complete, and replaces what has the name. A directory and anything else do not
    /// replace each other in one step: what has the name is removed only now.
    pub(super) fn rename_over(
        &self,
        (directory, fd): (DirectoryId, &OwnedFd),
        old: &CStr,
        name: &CStr,
        failed: &dyn Fn(Errno) -> TargetError,
    ) -> Result<(), TargetError> {
        match rustix::fs::renameat(fd, old, fd, name) {
            Err(Errno::ISDIR) if self.options.delete => {
                let path = || self.path_of(directory, name.to_bytes());
                remove::remove(fd.as_fd(), name, &self.kept, &path)?;
            }
            Err(Errno::NOTDIR) => unlink(fd, name).map_err(failed)?,
            renamed => return renamed.map_err(failed),
        }
        rustix::fs::renameat(fd, old, fd, name).map_err(failed)
    }

    /// Removes what killed restores have left in a directory, once.
    pub(super) fn sweep(&self, directory: DirectoryId) {
        if self.directories.is_to_be_swept(directory)
            && let Ok(fd) = self.directory(directory)
        {
            leftovers::sweep(fd.as_fd());
        }
    }

    fn temporary_name(&self) -> String {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        format!("{TEMPORARY}{}-{number}", std::process::id())
    }
}

/// Whether a name that had to be free was free.
fn is_free(made: Result<(), Errno>) -> Result<bool, Errno> {
    match made {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}
