//! Changes that a medium, a program or a person can make to a stored object.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use strongroom_backend::ObjectName;

/// A change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// All its bytes are gone, its name stays.
    Empty,
    /// Its second half is gone.
    Half,
    /// Its last byte is gone.
    LastByte,
    /// It is as long as before, and all zeros.
    Zeros,
    /// One bit is flipped, at this many thousandths of its length.
    FlipBit(u16),
    /// A run of bytes is changed: where, in thousandths of the length, and how many.
    Scratch(u16, u32),
    /// Other bytes follow it.
    Appended,
    /// It is gone.
    Removed,
    /// It changed places with another object of its folder, where there is one.
    Swapped,
}

impl Change {
    /// Every change, with flips in header, body and trailer.
    pub const ALL: [Self; 12] = [
        Self::Empty,
        Self::Half,
        Self::LastByte,
        Self::Zeros,
        Self::FlipBit(0),
        Self::FlipBit(100),
        Self::FlipBit(500),
        Self::FlipBit(1000),
        Self::Scratch(400, 300),
        Self::Appended,
        Self::Removed,
        Self::Swapped,
    ];

    /// The changed bytes of one object; none if it is removed. Swapping needs both objects, so it
    /// changes nothing here.
    pub fn on_bytes(self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let length = bytes.len();
        let place = |thousandths: u16| {
            (length * usize::from(thousandths) / 1000).min(length.saturating_sub(1))
        };
        match self {
            Self::Empty => bytes.clear(),
            Self::Half => bytes.truncate(length / 2),
            Self::LastByte => bytes.truncate(length.saturating_sub(1)),
            Self::Zeros => bytes.fill(0),
            Self::FlipBit(at) => {
                if let Some(byte) = bytes.get_mut(place(at)) {
                    *byte ^= 1 << (at % 8);
                }
            }
            Self::Scratch(at, run) => {
                bytes.iter_mut().skip(place(at)).take(run as usize).for_each(|byte| *byte ^= 0xa5);
            }
            Self::Appended => bytes.extend_from_slice(&[0x5a; 100]),
            Self::Removed => return None,
            Self::Swapped => {}
        }
        Some(bytes)
    }

    /// Changes one of many objects. Returns false if there is no object to swap it with.
    pub fn on_object(self, objects: &mut Objects, name: &ObjectName) -> bool {
        if self == Self::Swapped {
            let other = objects.keys().find(|other| {
                *other != name
                    && other.folder() == name.folder()
                    && objects[*other] != objects[name]
            });
            let Some(other) = other.cloned() else { return false };
            return swap(objects, name, &other);
        }
        let bytes = objects.remove(name).unwrap_or_else(|| panic!("{name} is there to be damaged"));
        if let Some(bytes) = self.on_bytes(bytes) {
            objects.insert(name.clone(), bytes);
        }
        true
    }

    /// Changes a file, such as one of a cache. Swapping leaves it as it is.
    pub fn on_file(self, path: &Path) {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let changed = match self.on_bytes(bytes) {
            Some(bytes) => fs::write(path, bytes),
            None => fs::remove_file(path),
        };
        changed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// The objects of a place, as `MemoryBackend::snapshot` gives them.
pub type Objects = BTreeMap<ObjectName, Vec<u8>>;

/// Swaps two objects. Returns false if they are the same.
pub fn swap(objects: &mut Objects, one: &ObjectName, other: &ObjectName) -> bool {
    let bytes = |name: &ObjectName| {
        objects.get(name).cloned().unwrap_or_else(|| panic!("{name} is there to be swapped"))
    };
    let (first, second) = (bytes(one), bytes(other));
    let differ = first != second;
    objects.insert(one.clone(), second);
    objects.insert(other.clone(), first);
    differ
}

/// The names of a folder's objects.
pub fn names_in(objects: &Objects, folder: &str) -> Vec<ObjectName> {
    objects.keys().filter(|name| name.folder() == folder).cloned().collect()
}

/// Every regular file below a folder, sorted.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_changes() {
        let one = ObjectName::new("arenas", "one");
        let before: Objects = [("one", 1_u8), ("two", 2)]
            .map(|(n, b)| (ObjectName::new("arenas", n), vec![b; 999]))
            .into();
        for change in Change::ALL {
            let mut objects = before.clone();
            assert!(change.on_object(&mut objects, &one));
            assert_ne!(objects, before, "{change:?}");
            let other = ObjectName::new("arenas", "two");
            let touches_other = objects.get(&other) != before.get(&other);
            assert_eq!(touches_other, change == Change::Swapped, "{change:?}");
        }
        let mut alone: Objects = [(one.clone(), vec![1])].into();
        assert!(!Change::Swapped.on_object(&mut alone, &one));
    }
}
