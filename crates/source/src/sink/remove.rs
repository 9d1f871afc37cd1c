//! Removing a tree, one name at a time and with one directory open, however deep it is.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxAttributes};
use rustix::io::Errno;

use crate::inode::{self, InodeId};
use crate::listing::Listing;

use super::error::TargetError;
use super::path_only;

/// A directory that is being emptied.
struct Level {
    name: CString,
    id: InodeId,
    listing: Listing,
    next: usize,
}

/// Removes a name of an open directory, with all below it except the directories that are `kept`.
/// Returns how many names were removed. `path` gives the place of the name, for messages.
pub(super) fn remove(
    directory: BorrowedFd<'_>,
    name: &CStr,
    kept: &[InodeId],
    path: &dyn Fn() -> PathBuf,
) -> Result<u64, TargetError> {
    let failed = |error| TargetError::io("remove", &path(), error);
    match remove_leaf(directory, name, kept).map_err(failed)? {
        Leaf::Missing => Ok(0),
        Leaf::Kept => Err(TargetError::KeptInTheWay { path: path() }),
        Leaf::Removed => Ok(1),
        Leaf::Directory(stat) => {
            let above = inode::stat_fd(directory).map_err(failed)?;
            let is_root_user = rustix::process::geteuid().is_root();
            Removal { levels: Vec::new(), buffer: Vec::new(), kept, path, is_root_user, removed: 0 }
                .run(directory, name, &above, &stat)
        }
    }
}

struct Removal<'a> {
    levels: Vec<Level>,
    buffer: Vec<u8>,
    kept: &'a [InodeId],
    path: &'a dyn Fn() -> PathBuf,
    is_root_user: bool,
    /// Names that were removed so far.
    removed: u64,
}

impl Removal<'_> {
    fn run(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        above: &Statx,
        stat: &Statx,
    ) -> Result<u64, TargetError> {
        let mut fd = self.descend(directory, name, InodeId::of(above), stat)?;
        while let Some(level) = self.levels.last_mut() {
            if level.next < level.listing.len() {
                let name = level.listing.name(level.next).to_owned();
                level.next += 1;
                let id = level.id;
                let found = remove_leaf(fd.as_fd(), &name, self.kept);
                match found.map_err(|error| self.failed("remove", error, Some(&name)))? {
                    Leaf::Missing => {}
                    Leaf::Kept => {
                        return Err(TargetError::KeptInTheWay { path: self.place(Some(&name)) });
                    }
                    Leaf::Removed => self.removed += 1,
                    Leaf::Directory(stat) => fd = self.descend(fd.as_fd(), &name, id, &stat)?,
                }
                continue;
            }
            // The directory is empty: it is removed from its parent.
            let name = level.name.clone();
            self.removed += 1;
            if self.levels.len() == 1 {
                remove_empty(directory, &name)
                    .map_err(|error| self.failed("remove", error, None))?;
                return Ok(self.removed);
            }
            fd = self.ascend(&fd)?;
            self.levels.pop();
            remove_empty(fd.as_fd(), &name)
                .map_err(|error| self.failed("remove", error, Some(&name)))?;
        }
        Ok(self.removed)
    }

    fn descend(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        above: InodeId,
        seen: &Statx,
    ) -> Result<OwnedFd, TargetError> {
        let mounted = |stat: &Statx| {
            stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
                || inode::device_of(stat) != above.device
        };
        if mounted(seen) {
            return Err(TargetError::MountInTheWay { path: self.place(Some(name)) });
        }
        if !self.is_root_user {
            // If this is not allowed, the calls that follow report it.
            let _ = path_only::let_owner_in(directory, name, seen);
        }
        let failed =
            |removal: &Self, error| removal.failed("open the directory", error, Some(name));
        let fd = inode::open_to_read(directory, name, OFlags::DIRECTORY | OFlags::NOFOLLOW)
            .map_err(|error| failed(self, error))?;
        let stat = inode::stat_fd(&fd).map_err(|error| failed(self, error))?;
        if mounted(&stat) {
            return Err(TargetError::MountInTheWay { path: self.place(Some(name)) });
        }
        if self.kept.contains(&InodeId::of(&stat)) {
            return Err(TargetError::KeptInTheWay { path: self.place(Some(name)) });
        }
        let (listing, error) = Listing::read(fd.as_fd(), &mut self.buffer);
        if let Some(error) = error {
            return Err(failed(self, error));
        }
        let (name, id) = (name.to_owned(), InodeId::of(&stat));
        self.levels.push(Level { name, id, listing, next: 0 });
        Ok(fd)
    }

    /// Opens the parent directory, if it is still the one from which this one was reached.
    fn ascend(&self, fd: &OwnedFd) -> Result<OwnedFd, TargetError> {
        let above = self.levels.iter().rev().nth(1).map(|level| level.id);
        let opened = inode::open_to_read(fd.as_fd(), c"..", OFlags::DIRECTORY)
            .and_then(|fd| inode::stat_fd(&fd).map(|stat| (fd, InodeId::of(&stat))));
        match opened {
            Ok((fd, id)) if Some(id) == above => Ok(fd),
            Ok(_) => Err(TargetError::Moved { path: self.place(None) }),
            Err(error) => Err(self.failed("open the directory above", error, None)),
        }
    }

    fn failed(&self, operation: &'static str, error: Errno, name: Option<&CStr>) -> TargetError {
        TargetError::io(operation, &self.place(name), error)
    }

    /// The path of a name in the directory that is being emptied. The name of the first level
    /// itself is the path of the whole.
    fn place(&self, name: Option<&CStr>) -> PathBuf {
        let mut path = (self.path)();
        let names = self.levels.iter().map(|level| level.name.as_c_str()).chain(name);
        for name in names.skip(1) {
            path.push(OsStr::from_bytes(name.to_bytes()));
        }
        path
    }
}

/// What became of a name that was to be removed.
enum Leaf {
    Missing,
    Removed,
    /// It is to be kept.
    Kept,
    /// It is a directory, and still exists.
    Directory(Box<Statx>),
}

/// Removes a name that is not a directory.
fn remove_leaf(directory: BorrowedFd<'_>, name: &CStr, kept: &[InodeId]) -> Result<Leaf, Errno> {
    let stat = match inode::stat_at(directory, name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Leaf::Missing),
        Err(error) => return Err(error),
    };
    if inode::kind_of(&stat) == FileType::Directory {
        return Ok(Leaf::Directory(Box::new(stat)));
    }
    if kept.contains(&InodeId::of(&stat)) {
        return Ok(Leaf::Kept);
    }
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) => Ok(Leaf::Removed),
        Err(Errno::NOENT) => Ok(Leaf::Missing),
        Err(error) => Err(error),
    }
}

fn remove_empty(directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
