//! What the parent has of a machine.

use std::collections::BTreeMap;

use strongroom_catalog::tree::find_entry;
use strongroom_catalog::{Entry, Recipe, Snapshot, TreeReader};
use strongroom_disk::Volume;
use strongroom_repository::{ChunkReader, DISK_SUFFIX};

use super::{Disk, LOGICAL_VOLUMES, MachineOptions, raw_name};

/// What the parent has of the machine.
#[derive(Default)]
pub struct Earlier {
    /// The tree of `/`.
    pub root: Option<Recipe>,
    /// The machine's folder.
    pub folder: Option<Recipe>,
    /// Whether zeros are in place of what could not be read of a disk: then the folder is partial.
    pub has_lost: bool,
    /// What is in it, and in its folders, by path.
    pub known: BTreeMap<Vec<u8>, Entry>,
}

impl Earlier {
    /// What a parent has. What of it cannot be read counts as missing.
    pub fn of(parent: Option<&Snapshot>, stored: &MachineOptions, reader: &ChunkReader) -> Self {
        let Some(parent) = parent else { return Self::default() };
        let name = stored.name.as_bytes();
        let found = find_entry(&parent.root, name, reader).ok().flatten();
        let has_lost = found.as_ref().is_some_and(Entry::is_partial);
        let folder = found.and_then(|entry| entry.tree().cloned());
        let mut known = BTreeMap::new();
        let mut list = |above: &[u8], tree: &Recipe| {
            let mut entries = TreeReader::new(tree, reader);
            let mut found = Vec::new();
            while let Ok(Some(entry)) = entries.next_entry() {
                found.push(entry);
            }
            for entry in &found {
                known.insert([above, &entry.name].concat(), entry.clone());
            }
            found
        };
        if let Some(folder) = &folder {
            for entry in list(b"", folder) {
                if let Some(tree) = entry.tree() {
                    list(&[&entry.name[..], b"/"].concat(), tree);
                }
            }
        }
        Self { root: Some(parent.root.clone()), folder, has_lost, known }
    }

    /// What a disk was.
    pub fn image(&self, disk: &str) -> Option<&Recipe> {
        self.known.get(raw_name(disk).as_bytes())?.content()
    }

    /// The disks, and how long each was.
    pub fn disks(&self) -> Vec<(String, u64)> {
        let disk = |(path, entry): (&Vec<u8>, &Entry)| {
            let name = path.strip_suffix(DISK_SUFFIX.as_bytes())?;
            let name = String::from_utf8(name.to_vec()).ok()?;
            (!name.contains('/')).then_some((name, entry.content()?.stream_bytes()))
        };
        self.known.iter().filter_map(disk).collect()
    }

    /// The tree that a volume was.
    pub fn tree(&self, disks: &[Disk], volume: &Volume) -> Option<Recipe> {
        self.volume(disks, volume)?.tree().cloned()
    }

    /// What a volume was.
    pub fn volume(&self, disks: &[Disk], volume: &Volume) -> Option<&Entry> {
        self.known
            .get(&[folder_of(disks, volume).as_bytes(), b"/", volume.name.as_bytes()].concat())
    }
}

/// The folder of a volume.
pub fn folder_of<'d>(disks: &'d [Disk], volume: &Volume) -> &'d str {
    volume.disk.map_or(LOGICAL_VOLUMES, |disk| &disks[disk].name)
}
