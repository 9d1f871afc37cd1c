//! A walk through the files of a volume, sorted by name, as trees are.

use std::collections::HashSet;
use std::ops::ControlFlow;

use strongroom_disk::{FileSystem, Kind, Node, NodeKind, Volume};

/// Directories may be nested this deep: a path of the kernel is no longer.
const DEPTH_MAX: usize = 4096;
/// The names that are still to come take at most this many bytes of memory: ten million of them.
const NAMES_BYTES_MAX: usize = 1 << 30;
/// What a name takes besides its own bytes.
const NAME_BYTES: usize = 64;
/// An entry of a directory takes at least this many bytes of a volume, in any file system.
const ENTRY_BYTES_MIN: u64 = 8;
/// An entry of a volume whose bytes others have too counts as this many: each volume shows the same
/// files again then, and hardly any file system has an entry for each 256 of its bytes.
const SHARED_ENTRIES: u64 = 32;

/// Entries that all volumes of a machine may have together. A table of partitions can name one volume
/// a thousand times.
pub struct Entries {
    left: u64,
    are_used_up: bool,
}

impl Entries {
    /// Entries of a machine whose disks have this many bytes.
    pub fn of_machine(bytes: u64) -> Self {
        Self { left: bytes / ENTRY_BYTES_MIN, are_used_up: false }
    }

    /// Whether more were wanted than there are: some volume was not listed, or not to its end.
    pub fn are_used_up(&self) -> bool {
        self.are_used_up
    }

    /// Takes this many. False if there are fewer: none are left then.
    fn take(&mut self, entries: u64) -> bool {
        let left = self.left.checked_sub(entries);
        self.left = left.unwrap_or(0);
        self.are_used_up |= left.is_none();
        left.is_some()
    }
}

/// What is found.
pub enum Found {
    /// A directory begins.
    Enter {
        /// Its name; empty for the root.
        name: Vec<u8>,
        /// What it is.
        node: Box<Node>,
    },
    /// Something in the deepest directory.
    Leaf {
        /// Its name.
        name: Vec<u8>,
        /// Its inode.
        inode: u64,
        /// What it is.
        node: Box<Node>,
    },
    /// The deepest directory ends.
    Leave,
    /// Something in the deepest directory, or the rest of it, cannot be read.
    Lost {
        /// Its name; empty if it is not known.
        name: Vec<u8>,
        /// Why.
        why: String,
    },
}

/// The walk.
pub struct Walk<'v> {
    files: &'v dyn FileSystem,
    /// Names that are still to come in each directory that is open, the next one last.
    frames: Vec<Vec<(Vec<u8>, u64)>>,
    /// Bytes of memory that further names may take.
    names_left: usize,
    /// Entries that the volume has room for, besides those that were listed. A map of a directory can
    /// name one block for ever.
    entries_left: u64,
    /// Entries that the machine has room for.
    of_machine: &'v mut Entries,
    /// How many of these an entry takes.
    weight: u64,
    /// Directories that were entered: one that is entered again is a circle, or a lie.
    seen: HashSet<u64>,
    /// What of a directory that was just entered could not be listed.
    lost: Option<String>,
    begun: bool,
}

impl<'v> Walk<'v> {
    /// From the root on.
    pub fn new(files: &'v dyn FileSystem, volume: &Volume, of_machine: &'v mut Entries) -> Self {
        let weight = if volume.is_shared { SHARED_ENTRIES } else { 1 };
        Self { weight, ..Self::within(files, volume.bytes, of_machine, NAMES_BYTES_MAX) }
    }

    fn within(
        files: &'v dyn FileSystem,
        volume_bytes: u64,
        of_machine: &'v mut Entries,
        names_bytes_max: usize,
    ) -> Self {
        Self {
            of_machine,
            weight: 1,
            files,
            frames: Vec::new(),
            names_left: names_bytes_max,
            entries_left: volume_bytes / ENTRY_BYTES_MIN,
            seen: HashSet::new(),
            lost: None,
            begun: false,
        }
    }

    /// The directory that is open.
    fn list(&mut self, inode: u64) {
        let mut names = Vec::new();
        let (mut names_left, mut entries_left) = (self.names_left, self.entries_left);
        let mut cut = None;
        let listed = self.files.entries(inode, &mut |entry| {
            let room = names_left.checked_sub(entry.name.len() + NAME_BYTES);
            if !self.of_machine.take(self.weight) {
                cut =
                    Some("the volumes of the machine have more names than its disks have room for");
                return ControlFlow::Break(());
            }
            match (room, entries_left.checked_sub(1)) {
                (Some(room), Some(entries)) => (names_left, entries_left) = (room, entries),
                (None, _) => cut = Some("it has more names than are kept in memory"),
                (_, None) => cut = Some("directories have more names than the volume has room for"),
            }
            if cut.is_some() {
                return ControlFlow::Break(());
            }
            names.push((entry.name.to_vec(), entry.inode));
            ControlFlow::Continue(())
        });
        // Snapshots of a Btrfs have the same blocks, and with them the same entries.
        if self.files.facts().kind != Kind::Btrfs {
            self.entries_left = entries_left;
        }
        names.sort_unstable();
        // A name that is there twice is damage: the first stays. Nothing is lost if both are the same.
        let mut left_out = 0;
        names.dedup_by(|one, other| {
            let is_same = one.0 == other.0;
            left_out += u64::from(is_same && one.1 != other.1);
            is_same
        });
        let twice = || {
            let why =
                format!("names are there more than once: files left out for that: {left_out}");
            (left_out > 0).then_some(why)
        };
        let listed = listed.err().map(|error| error.to_string());
        self.lost = cut.map(str::to_owned).or(listed).or_else(twice);
        names.reverse();
        self.names_left -= names.iter().map(|(name, _)| name.len() + NAME_BYTES).sum::<usize>();
        self.frames.push(names);
    }

    fn enter(&mut self, name: Vec<u8>, inode: u64, node: Box<Node>) -> Found {
        self.seen.insert(inode);
        self.list(inode);
        Found::Enter { name, node }
    }

    fn begin(&mut self) -> Found {
        let root = self.files.root();
        match self.files.node(root) {
            Ok(node) => self.enter(Vec::new(), root, Box::new(node)),
            Err(error) => Found::Lost { name: Vec::new(), why: error.to_string() },
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if !self.begun {
            self.begun = true;
            return Some(self.begin());
        }
        if let Some(why) = self.lost.take() {
            return Some(Found::Lost { name: Vec::new(), why });
        }
        let Some((name, inode)) = self.frames.last_mut()?.pop() else {
            self.frames.pop();
            return Some(Found::Leave);
        };
        self.names_left += name.len() + NAME_BYTES;
        let node = match self.files.node(inode) {
            Ok(node) => Box::new(node),
            Err(error) => return Some(Found::Lost { name, why: error.to_string() }),
        };
        if node.kind != NodeKind::Directory {
            return Some(Found::Leaf { name, inode, node });
        }
        if self.seen.contains(&inode) || self.frames.len() >= DEPTH_MAX {
            let why = "it is a directory that was met before, or is nested too deep".to_owned();
            return Some(Found::Lost { name, why });
        }
        Some(self.enter(name, inode, node))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use strongroom_catalog::Metadata;
    use strongroom_disk::{DiskError, Entry, Facts, FreeMap, Piece, State};

    use super::*;

    /// A volume whose root has names without end, each of them several times, and a folder that has
    /// as many.
    struct Endless {
        facts: Facts,
        /// Names of a directory, each of them counted.
        names: u64,
        /// How far the inodes of one name are apart.
        apart: u64,
    }

    impl FileSystem for Endless {
        fn facts(&self) -> &Facts {
            &self.facts
        }

        fn root(&self) -> u64 {
            0
        }

        fn node(&self, inode: u64) -> Result<Node, DiskError> {
            let kind = if inode < 2 { NodeKind::Directory } else { NodeKind::Fifo };
            let metadata = Metadata::default();
            Ok(Node { kind, metadata, encrypted: false, verity: false })
        }

        fn entries(
            &self,
            directory: u64,
            take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
        ) -> Result<(), DiskError> {
            // The test ends without the bound as well.
            for number in 0..self.names {
                let inode = 1 - directory + number / 3 + number % 3 * self.apart;
                let name = format!("{directory}-{:07}", number / 3);
                if take(Entry { name: name.as_bytes(), inode }).is_break() {
                    break;
                }
            }
            Ok(())
        }

        fn pieces(
            &self,
            _: u64,
            _: Range<u64>,
            _: &mut dyn FnMut(Piece) -> ControlFlow<()>,
        ) -> Result<(), DiskError> {
            Ok(())
        }

        fn read(&self, _: u64, _: u64, _: &mut [u8]) -> Result<usize, DiskError> {
            Ok(0)
        }

        fn free(&self) -> Result<FreeMap, DiskError> {
            self.page_files().map(|_| unreachable!("nothing asks for it"))
        }
    }

    fn endless(kind: Kind) -> Endless {
        let (label, uuid, state) = (Vec::new(), [0; 16], State::Clean);
        let facts = Facts { kind, label, uuid, state, block_bytes: 4096, bytes: 1 << 40 };
        Endless { facts, names: 1_000_000, apart: 0 }
    }

    /// How many names are found, and the reasons for which others are not.
    fn found(walk: Walk<'_>) -> (usize, Vec<String>) {
        let (mut names, mut lost) = (0, Vec::new());
        for found in walk {
            match found {
                Found::Leaf { .. } => names += 1,
                Found::Lost { name, why } if name.is_empty() => lost.push(why),
                _ => {}
            }
        }
        (names, lost)
    }

    #[test]
    fn names_take_no_more_than_the_memory_for_them() {
        let files = endless(Kind::Ext4);
        let (names, lost) =
            found(Walk::within(&files, 1 << 40, &mut Entries::of_machine(u64::MAX), 3 * 73 * 1000));
        assert!((1000..3000).contains(&names), "{names}");
        assert_eq!(lost, ["it has more names than are kept in memory"; 2]);
    }

    #[test]
    fn a_volume_has_no_more_entries_than_it_has_room_for() {
        let bytes = 3 * 1000 * ENTRY_BYTES_MIN;
        let walked = |kind| {
            let (files, mut all) = (endless(kind), Entries::of_machine(u64::MAX));
            found(Walk::within(&files, bytes, &mut all, NAMES_BYTES_MAX))
        };
        let (names, lost) = walked(Kind::Ext4);
        assert_eq!((names, lost.len()), (999, 2), "{lost:?}");
        // Snapshots have the same entries again; two directories lead back.
        let (names, lost) = walked(Kind::Btrfs);
        assert_eq!((names, lost.len()), (1997, 2), "{lost:?}");
    }

    #[test]
    fn all_volumes_have_no_more_entries_than_the_disks_have_room_for() {
        // Each volume has 24 entries.
        for (is_shared, entries, expected) in [(false, 30 * 24, 30), (true, 2 * 24 * 32, 2)] {
            let mut all = Entries::of_machine(entries * ENTRY_BYTES_MIN);
            let volume = Volume {
                name: "vda".to_owned(),
                kind: strongroom_disk::VolumeKind::Whole,
                disk: Some(0),
                bytes: 1 << 40,
                runs: Vec::new(),
                is_shared,
            };
            let mut whole = 0;
            for _ in 0..1000 {
                let files = Endless { names: 12, ..endless(Kind::Btrfs) };
                whole += u32::from(found(Walk::new(&files, &volume, &mut all)).1.is_empty());
            }
            assert!(all.are_used_up());
            assert_eq!(whole, expected);
        }
    }

    #[test]
    fn a_file_whose_name_another_has_is_reported() {
        // The root and its folder have four names each, and each of these is there three times.
        for (apart, expected) in [(0, vec![]), (100, vec![8, 8])] {
            let files = Endless { names: 12, apart, ..endless(Kind::Ext4) };
            let (names, lost) = found(Walk::within(
                &files,
                1 << 40,
                &mut Entries::of_machine(u64::MAX),
                NAMES_BYTES_MAX,
            ));
            let why =
                |count| format!("names are there more than once: files left out for that: {count}");
            assert_eq!(lost, expected.into_iter().map(why).collect::<Vec<_>>());
            assert_eq!(names, 5, "of both directories, without what leads to directories");
        }
    }
}
