//! The directories of a target by number, some of them open.
//!
//! Invariants: a directory's number is above its parent's; at most [`OPEN_MAX`] descriptors are
//! kept, those used last; each was opened from its parent by one name and through no link.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::inode;

/// How many directories are kept open.
const OPEN_MAX: usize = 128;

/// A directory of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(u32);

impl DirectoryId {
    /// The directory that is restored into.
    pub const ROOT: Self = Self(0);
}

/// All directories that were given a number.
#[derive(Debug, Default)]
pub(super) struct Directories(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Parent and name of each but the root; directory 1 is the first.
    known: Vec<(DirectoryId, CString)>,
    open: HashMap<DirectoryId, Open>,
    /// When each was last used; the first is the first to be closed.
    by_use: BTreeMap<u64, DirectoryId>,
    uses: u64,
}

#[derive(Debug)]
struct Open {
    fd: Arc<OwnedFd>,
    used: u64,
}

impl Directories {
    pub(super) fn add(&self, parent: DirectoryId, name: &CStr) -> DirectoryId {
        let mut table = self.table();
        table.known.push((parent, name.to_owned()));
        DirectoryId(u32::try_from(table.known.len()).unwrap_or(u32::MAX))
    }

    /// The path of a directory, for messages.
    pub(super) fn path_below(&self, root: &Path, directory: DirectoryId) -> PathBuf {
        let table = self.table();
        let mut path = root.to_owned();
        for place in table.way(directory, |_| false).1 {
            path.push(OsStr::from_bytes(table.known[place as usize - 1].1.to_bytes()));
        }
        path
    }

    /// A descriptor of a directory, opened again from the nearest open ancestor if needed.
    pub(super) fn open(
        &self,
        root: &Arc<OwnedFd>,
        directory: DirectoryId,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if directory == DirectoryId::ROOT {
            return Ok(root.clone());
        }
        let mut table = self.table();
        if let Some(fd) = table.used(directory) {
            return Ok(fd);
        }
        let (from, way) = table.way(directory, |above| table.open.contains_key(&above));
        let mut fd = table.used(from).unwrap_or_else(|| root.clone());
        for place in way {
            let name = &table.known[place as usize - 1].1;
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
            fd = Arc::new(inode::open_to_read(fd.as_fd(), name, flags)?);
            table.keep(DirectoryId(place), fd.clone());
        }
        Ok(fd)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// From the nearest ancestor that is suitable, or the root, down to this one.
    fn way(
        &self,
        directory: DirectoryId,
        will_do: impl Fn(DirectoryId) -> bool,
    ) -> (DirectoryId, Vec<u32>) {
        let (mut above, mut way) = (directory, Vec::new());
        while above != DirectoryId::ROOT && !will_do(above) {
            way.push(above.0);
            above = self.known[above.0 as usize - 1].0;
        }
        way.reverse();
        (above, way)
    }

    fn used(&mut self, directory: DirectoryId) -> Option<Arc<OwnedFd>> {
        let open = self.open.get_mut(&directory)?;
        self.by_use.remove(&open.used);
        self.uses += 1;
        open.used = self.uses;
        self.by_use.insert(self.uses, directory);
        Some(open.fd.clone())
    }

    fn keep(&mut self, directory: DirectoryId, fd: Arc<OwnedFd>) {
        self.uses += 1;
        self.by_use.insert(self.uses, directory);
        self.open.insert(directory, Open { fd, used: self.uses });
        if self.open.len() > OPEN_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.open.remove(&oldest);
        }
    }
}
