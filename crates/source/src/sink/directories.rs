//! The directories of a target by number, some of them open.
//!
//! Invariants:
//! - a number is given once, and is above its parent's;
//! - a directory is known as long as it is held, or one below it is known: a target of ten million
//!   directories takes no more memory than the few that are being filled;
//! - at most [`OPEN_MAX`] descriptors are kept, those used last; each was opened from its parent by
//!   one name and through no link.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::inode;

/// How many directories are kept open.
const OPEN_MAX: usize = 128;

/// A directory of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(u64);

impl DirectoryId {
    /// The directory that is restored into.
    pub const ROOT: Self = Self(0);
}

/// The directories that are held.
#[derive(Debug, Default)]
pub(super) struct Directories(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Each but the root.
    known: HashMap<DirectoryId, Known>,
    last: u64,
    open: HashMap<DirectoryId, Open>,
    /// When each was last used; the first is the first to be closed.
    by_use: BTreeMap<u64, DirectoryId>,
    uses: u64,
}

#[derive(Debug)]
struct Known {
    parent: DirectoryId,
    name: CString,
    /// How often it is held, and how many directories below it are known.
    holds: u32,
    /// Whether what killed restores left in it was looked for.
    swept: bool,
}

#[derive(Debug)]
struct Open {
    fd: Arc<OwnedFd>,
    used: u64,
}

impl Directories {
    /// Gives a directory a number, and holds it.
    pub(super) fn add(&self, parent: DirectoryId, name: &CStr) -> DirectoryId {
        let mut table = self.table();
        table.last += 1;
        let id = DirectoryId(table.last);
        table.hold(parent);
        table.known.insert(id, Known { parent, name: name.to_owned(), holds: 1, swept: false });
        id
    }

    /// Holds a directory once more.
    pub(super) fn hold(&self, directory: DirectoryId) {
        self.table().hold(directory);
    }

    /// Ends one hold of a directory, and forgets it with the last.
    pub(super) fn release(&self, directory: DirectoryId) {
        let mut table = self.table();
        let mut at = directory;
        while let Some(known) = table.known.get_mut(&at) {
            known.holds -= 1;
            if known.holds > 0 {
                return;
            }
            let parent = known.parent;
            table.forget(at);
            at = parent;
        }
    }

    /// Whether what killed restores left in a directory is to be looked for: once. In the root that
    /// was done when it was opened.
    pub(super) fn is_to_be_swept(&self, directory: DirectoryId) -> bool {
        let mut table = self.table();
        let known = table.known.get_mut(&directory);
        known.is_some_and(|known| !std::mem::replace(&mut known.swept, true))
    }

    /// How many directories are known.
    pub(super) fn count(&self) -> usize {
        self.table().known.len()
    }

    /// The path of a directory, for messages.
    pub(super) fn path_below(&self, root: &Path, directory: DirectoryId) -> PathBuf {
        let table = self.table();
        let mut path = root.to_owned();
        for at in table.way(directory, |_| false).1 {
            if let Some(known) = table.known.get(&at) {
                path.push(OsStr::from_bytes(known.name.to_bytes()));
            }
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
        for at in way {
            let name = &table.known.get(&at).ok_or(Errno::NOENT)?.name;
            fd = Arc::new(inode::open_directory_or_way(fd.as_fd(), name, false)?);
            table.keep(at, fd.clone());
        }
        Ok(fd)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// From the nearest ancestor that is suitable, or the root, down to this one. A directory that
    /// is not known is on the way by its number alone.
    fn way(
        &self,
        directory: DirectoryId,
        will_do: impl Fn(DirectoryId) -> bool,
    ) -> (DirectoryId, Vec<DirectoryId>) {
        let (mut above, mut way) = (directory, Vec::new());
        while above != DirectoryId::ROOT && !will_do(above) {
            way.push(above);
            above = self.known.get(&above).map_or(DirectoryId::ROOT, |known| known.parent);
        }
        way.reverse();
        (above, way)
    }

    fn hold(&mut self, directory: DirectoryId) {
        if let Some(known) = self.known.get_mut(&directory) {
            known.holds += 1;
        }
    }

    fn forget(&mut self, directory: DirectoryId) {
        self.known.remove(&directory);
        if let Some(open) = self.open.remove(&directory) {
            self.by_use.remove(&open.used);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_as_long_as_it_is_needed() {
        let directories = Directories::default();
        let mut way = vec![DirectoryId::ROOT];
        for depth in 0..10_000 {
            way.push(directories.add(way[depth], c"d"));
        }
        let deepest = way[10_000];
        directories.hold(deepest);
        way.iter().rev().for_each(|directory| directories.release(*directory));
        assert_eq!(directories.count(), 10_000, "the way to the one that is held");
        assert_eq!(directories.path_below(Path::new("/r"), way[2]), Path::new("/r/d/d"));
        directories.release(deepest);
        assert_eq!(directories.count(), 0);
        directories.release(deepest);
        let next = directories.add(DirectoryId::ROOT, c"e");
        assert!(next > deepest, "no number is given twice");
    }

    /// Sixty bytes and more were kept for each directory of a target, to the end of the restore.
    #[test]
    fn engine_22_directories_one_after_another_take_no_memory() {
        let directories = Directories::default();
        for _ in 0..100_000 {
            let above = directories.add(DirectoryId::ROOT, c"above");
            let below = directories.add(above, c"below");
            directories.release(above);
            assert_eq!(directories.count(), 2);
            directories.release(below);
        }
        assert_eq!(directories.count(), 0);
    }
}
