//! The parent's counterpart of a directory that the walk is in, read along with the walk; and what was
//! in the directory then and is not there any more.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use strongroom_base::Monitor;
use strongroom_catalog::{EntryKind, Recipe, TreeReader};
use strongroom_repository::ChunkReader;

use super::sources::is_without_key;

/// At most this many directories that are gone are remembered of one.
const DIRECTORIES_MAX: usize = 4096;

/// The parent's counterpart of a directory.
pub struct ParentDirectory<'r> {
    entries: Option<TreeReader<'r, ChunkReader>>,
    at: At,
    /// The directory's path.
    pub path: Vec<u8>,
    /// On which device it was then, and is now; none if it was not there. Of `/`, which no entry
    /// describes, this is the present one twice.
    pub devices: Option<[u64; 2]>,
    /// On which device it was then, as far as that is certain.
    device: Option<u64>,
    /// On which devices directories in it were that are on its own now, and how many.
    devices_then: BTreeMap<u64, u64>,
    /// All that is in it is listed, or the walk says of each name why not.
    pub is_listed: bool,
    /// Names of mounts that were gone already when the parent was made, until they are asked for.
    pub missing: BTreeSet<Vec<u8>>,
    /// Entries that were asked for.
    found: u64,
    /// Names that were not, but such as a directory shows whose names are encrypted and that has no key.
    gone: u64,
    /// Directories that were not asked for and may have been mounts.
    directories: Vec<GoneDirectory>,
}

#[derive(Debug)]
struct GoneDirectory {
    name: Vec<u8>,
    device: u64,
    inode: u64,
    had_entries: bool,
}

/// Where the reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the next entry.
    Before,
    /// At an entry that comes after all that were asked for.
    Ahead,
    /// At an entry that was asked for.
    Asked,
}

/// The names of a directory that are not there any more.
#[derive(Debug, Default)]
pub struct Gone {
    /// Directories that were mounts, and whether there was anything in them.
    pub mounts: Vec<(Vec<u8>, bool)>,
    /// More names are gone than are there. Those that a directory shows that has no key to its names are
    /// not counted: they go when the key comes.
    pub is_most: bool,
}

impl<'r> ParentDirectory<'r> {
    /// The directory of this tree; empty if there is none.
    pub fn new(tree: Option<&Recipe>, reader: &'r ChunkReader) -> Self {
        Self {
            entries: tree.map(|tree| TreeReader::new(tree, reader)),
            at: At::Before,
            path: Vec::new(),
            devices: None,
            device: None,
            devices_then: BTreeMap::new(),
            is_listed: false,
            missing: BTreeSet::new(),
            found: 0,
            gone: 0,
            directories: Vec::new(),
        }
    }

    /// This directory at a path of this machine, with the device that it was on and the one that it is on.
    pub fn here(self, path: Vec<u8>, devices: Option<[u64; 2]>) -> Self {
        let is_certain = path != b"/";
        let device = devices.filter(|_| is_certain).map(|[then, _]| then);
        Self { path, devices, device, ..self }
    }

    /// The devices of a directory in this one, then and now. No entry describes `/`, so its device then is
    /// taken to be that of most directories that are on its device now.
    pub fn learn_device(&mut self, [then, now]: [u64; 2]) {
        if self.device.is_none() && self.devices.is_some_and(|[_, of_this]| of_this == now) {
            *self.devices_then.entry(then).or_default() += 1;
        }
    }

    /// The tree, at the entry of a name that does not come before one that was asked for. A tree that
    /// cannot be read counts as missing: its files are read again, and that heals it.
    pub fn find(
        &mut self,
        name: &[u8],
        monitor: &dyn Monitor,
    ) -> Option<&TreeReader<'r, ChunkReader>> {
        self.missing.remove(name);
        loop {
            if self.at == At::Before && !self.advance(monitor) {
                return None;
            }
            match self.entries.as_ref()?.entry().name.as_slice().cmp(name) {
                Ordering::Less => self.pass(),
                Ordering::Equal => {
                    self.found += u64::from(self.at == At::Ahead);
                    self.at = At::Asked;
                    return self.entries.as_ref();
                }
                Ordering::Greater => return None,
            }
        }
    }

    /// Whether there is any entry, or any that comes after those that were asked for.
    pub fn has_entries(&mut self, monitor: &dyn Monitor) -> bool {
        if self.at == At::Asked {
            self.at = At::Before;
        }
        self.at == At::Ahead || self.advance(monitor)
    }

    /// The entries that were not asked for; none if the walk did not list all.
    pub fn into_gone(mut self, monitor: &dyn Monitor) -> Gone {
        if !self.is_listed {
            return Gone::default();
        }
        while self.has_entries(monitor) {
            self.pass();
        }
        let learnt = self.devices_then.iter().max_by_key(|(_, count)| **count);
        // If it is not known what was on the same device, nothing was a mount.
        let device = self.device.or(learnt.map(|(device, _)| *device));
        let was_mount = |it: &GoneDirectory| device.is_some_and(|above| it.was_mount(above));
        let mounts = self.directories.into_iter().filter(was_mount);
        let mounts = mounts.map(|it| (it.name, it.had_entries));
        let mounts = mounts.chain(self.missing.into_iter().map(|name| (name, true))).collect();
        Gone { mounts, is_most: self.gone > self.found }
    }

    /// Goes on behind the current entry.
    fn pass(&mut self) {
        let was_asked = std::mem::replace(&mut self.at, At::Before) == At::Asked;
        let Some(entries) = self.entries.as_ref().filter(|_| !was_asked) else { return };
        let entry = entries.entry();
        self.missing.remove(&entry.name);
        self.gone += u64::from(!is_without_key(&entry.name));
        let EntryKind::Directory { tree, .. } = &entry.kind else { return };
        let metadata = &entry.metadata;
        let directory = GoneDirectory {
            name: entry.name.clone(),
            device: metadata.device,
            inode: metadata.inode,
            had_entries: tree.stream_bytes() > 0,
        };
        let may_be = self.device.is_none_or(|above| directory.was_mount(above));
        if may_be && self.directories.len() < DIRECTORIES_MAX {
            self.directories.push(directory);
        }
    }

    fn advance(&mut self, monitor: &dyn Monitor) -> bool {
        let Some(entries) = &mut self.entries else { return false };
        let advanced = entries.advance().unwrap_or_else(|error| {
            monitor.detail(&format!("the parent's tree cannot be read: {error}"));
            false
        });
        self.at = if advanced { At::Ahead } else { At::Before };
        if !advanced {
            self.entries = None;
        }
        advanced
    }
}

impl GoneDirectory {
    /// Whether it was a mount, by the device of the directory that it was in. A subvolume of Btrfs has a
    /// device of its own as well, and is removed like a directory.
    fn was_mount(&self, above: u64) -> bool {
        /// The inode of the first directory of every subvolume.
        const SUBVOLUME: u64 = 256;
        let is_without_disk = rustix::fs::major(self.device) == 0;
        self.device != above && !(is_without_disk && self.inode == SUBVOLUME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_another_device_and_is_no_subvolume() {
        let gone =
            |device, inode| GoneDirectory { name: b"a".to_vec(), device, inode, had_entries: true };
        let [disk, other, without] =
            [(8, 1), (8, 2), (0, 40)].map(|(major, minor)| rustix::fs::makedev(major, minor));
        assert!(gone(other, 2).was_mount(disk) && gone(without, 34).was_mount(disk));
        assert!(!gone(disk, 7).was_mount(disk) && !gone(without, 256).was_mount(disk));
        assert!(gone(other, 256).was_mount(disk), "no subvolume has a disk's number");
    }
}
