//! The target: entries put back into a directory of this machine.
//!
//! The folder is called `sink`, as tools of many kinds ignore folders called `target`.
//!
//! Invariants:
//! - every call names one entry of one open directory; symbolic links inside the target are never
//!   followed, so nothing outside of it is touched;
//! - names come from a repository and are not trusted: one that could lead elsewhere is refused;
//! - what has to be written is created for its owner alone, and gets its mode when it is finished.

mod apply;
mod compare;
mod directories;
mod error;
mod file;
mod leftovers;
mod make;
mod mounts;
mod path_only;
mod remove;
mod reopen;
mod replace;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use strongroom_catalog::entry::is_valid_name;

use crate::accounts::Accounts;
use crate::inode::{self, InodeId};
use crate::listing::Listing;

pub use compare::Differences;
use directories::Directories;
pub use directories::DirectoryId;
pub use error::TargetError;
pub use file::{BegunFile, TargetFile};
use mounts::Mounts;
pub use replace::{Existing, ExistingFile};

/// How entries are put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetOptions {
    /// Owners are put back. If they are not, or cannot be, set-uid and set-gid bits that would mean
    /// another owner are left off.
    pub owner: bool,
    /// Owners are put back by number, even if this machine knows the name. Needed if the target is
    /// a system with its own `/etc/passwd`.
    pub numeric_owner: bool,
    /// Extended attributes are put back, ACLs and capabilities among them.
    pub xattrs: bool,
    /// A directory that is in the place of something else is removed with all it holds.
    pub delete: bool,
    /// Files that exist and differ are rewritten where they are, not replaced by whole ones.
    pub patch: bool,
}

impl Default for TargetOptions {
    /// Everything that this process may put back; nothing is deleted.
    fn default() -> Self {
        let owner = rustix::process::geteuid().is_root();
        Self { owner, numeric_owner: false, xattrs: true, delete: false, patch: false }
    }
}

/// A directory that entries are put back into. All methods may be called by many threads.
#[derive(Debug)]
pub struct Target {
    root: Arc<OwnedFd>,
    root_path: PathBuf,
    options: TargetOptions,
    accounts: Accounts,
    directories: Directories,
    mounts: Mounts,
    /// Directories that are never removed.
    kept: Vec<InodeId>,
    /// Attributes of root that an entry lacks stay.
    keeps_trusted: bool,
    is_root_user: bool,
    /// Directories that were opened to their owner, and the modes that they had. Of the directories that
    /// are being filled.
    opened: Mutex<BTreeMap<DirectoryId, Mode>>,
    /// What file systems do not keep, by their devices: it was reported.
    not_kept: Mutex<BTreeSet<(u64, &'static str)>>,
    /// The number of temporary names used.
    temporaries: AtomicU64,
}

impl Target {
    /// Opens the directory to restore into, and makes it and its ancestors if they are missing. The
    /// path is the caller's: links on the way are followed.
    pub fn open(path: &Path, options: TargetOptions) -> Result<Self, TargetError> {
        std::fs::create_dir_all(path)
            .map_err(|error| TargetError::io("create the directory", path, error))?;
        let failed = |error| TargetError::io("open the directory", path, error);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mounts = Mounts::default();
        let root = match rustix::fs::open(path, flags | OFlags::RDONLY, Mode::empty()) {
            // It may be searched, and that is enough for what is put below it.
            Err(Errno::ACCESS) => rustix::fs::open(path, flags | OFlags::PATH, Mode::empty()),
            opened => opened,
        };
        let root = Arc::new(root.map_err(failed)?);
        let stat = inode::stat_fd(&root).map_err(failed)?;
        let again = || rustix::fs::openat(&root, c".", flags | OFlags::RDONLY, Mode::empty());
        mounts.note(&stat, again).map_err(failed)?;
        leftovers::sweep(root.as_fd());
        Ok(Self {
            root,
            root_path: path.to_owned(),
            options,
            accounts: Accounts::of_this_machine(),
            directories: Directories::default(),
            mounts,
            kept: Vec::new(),
            keeps_trusted: false,
            is_root_user: rustix::process::geteuid().is_root(),
            opened: Mutex::default(),
            not_kept: Mutex::default(),
            temporaries: AtomicU64::new(0),
        })
    }

    /// The same target, which removes none of these directories, nor what is below them.
    #[must_use]
    pub fn keeping(mut self, directories: Vec<InodeId>) -> Self {
        self.kept = directories;
        self
    }

    /// The same target, for entries whose attributes of root (`trusted.`) may not be known: those that
    /// an entry lacks stay.
    #[must_use]
    pub fn keeping_trusted(mut self) -> Self {
        self.keeps_trusted = true;
        self
    }

    /// Holds a directory once more. It is held once when it gets its number, which is valid until
    /// each hold was released.
    pub fn hold(&self, directory: DirectoryId) {
        self.directories.hold(directory);
    }

    /// Ends one hold of a directory.
    pub fn release(&self, directory: DirectoryId) {
        self.directories.release(directory);
    }

    /// How many directories are held, or have one below them that is.
    pub fn directories_held(&self) -> usize {
        self.directories.count()
    }

    /// The names in a directory of the target, sorted bytewise.
    pub fn list(&self, directory: DirectoryId) -> Result<Vec<Vec<u8>>, TargetError> {
        let fd = self.directory(directory)?;
        let failed = |error| TargetError::io("list", &self.path_of(directory, b""), error);
        // A fresh descriptor, because a listing begins where the last one on it ended.
        let fresh = inode::open_to_read(fd.as_fd(), c".", OFlags::DIRECTORY).map_err(failed)?;
        let (names, error) = Listing::read(fresh.as_fd(), &mut Vec::new());
        error.map_or(Ok(()), |error| Err(failed(error)))?;
        Ok((0..names.len()).map(|place| names.name(place).to_bytes().to_vec()).collect())
    }

    /// Removes a name, and all that is below it if it is a directory. Returns how many names were
    /// removed; none if it does not exist. Nothing is removed from a file system mounted inside,
    /// nor from a directory that is to be kept.
    pub fn remove(&self, directory: DirectoryId, name: &[u8]) -> Result<u64, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        remove::remove(fd.as_fd(), &c_name, &self.kept, &|| self.path_of(directory, name))
    }

    /// Gives a name of a directory another name in it, and replaces what has that name.
    pub fn rename(
        &self,
        directory: DirectoryId,
        old: &[u8],
        new: &[u8],
    ) -> Result<(), TargetError> {
        let (fd, old) = self.place(directory, old)?;
        let new_name = self.checked_name(directory, new)?;
        let failed = |error| TargetError::io("rename to", &self.path_of(directory, new), error);
        self.rename_over((directory, &fd), &old, &new_name, &failed)
    }

    /// Flushes all that was written to the disk, or to the disks if others are mounted inside.
    pub fn sync(&self) -> Result<(), TargetError> {
        self.mounts.sync().map_err(|error| TargetError::io("flush", &self.root_path, error))
    }

    /// The full path of a name in a directory, or with an empty name of the directory itself.
    pub fn path_of(&self, directory: DirectoryId, name: &[u8]) -> PathBuf {
        let mut path = self.directories.path_below(&self.root_path, directory);
        if !name.is_empty() {
            path.push(OsStr::from_bytes(name));
        }
        path
    }

    /// An open directory and a name that can only be in it.
    fn place(
        &self,
        directory: DirectoryId,
        name: &[u8],
    ) -> Result<(Arc<OwnedFd>, CString), TargetError> {
        Ok((self.directory(directory)?, self.checked_name(directory, name)?))
    }

    fn checked_name(&self, directory: DirectoryId, name: &[u8]) -> Result<CString, TargetError> {
        let bad = || TargetError::BadName {
            directory: self.path_of(directory, b""),
            name: name.to_vec(),
        };
        if !is_valid_name(name) {
            return Err(bad());
        }
        CString::new(name).map_err(|_| bad())
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<DirectoryId, Mode>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self, directory: DirectoryId) -> Result<Arc<OwnedFd>, TargetError> {
        self.directories.open(&self.root, directory).map_err(|error| {
            TargetError::io("open the directory", &self.path_of(directory, b""), error)
        })
    }
}

impl Drop for Target {
    /// A restore that ends early has not left these.
    fn drop(&mut self) {
        let opened: Vec<DirectoryId> = self.opened().keys().copied().collect();
        // Deepest first: those below were numbered later.
        for directory in opened.into_iter().rev() {
            let _ = self.leave_directory(directory);
        }
    }
}
