//! Where the files of volumes are on the disks.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_disk::Volume;

/// A file on a volume: the volume's number, and the inode.
pub type FileOnVolume = (u32, u64);

/// Consecutive bytes of a disk that are those of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Where they begin on the disk.
    pub start: u64,
    /// How many there are.
    pub bytes: u64,
    /// Which file.
    pub file: FileOnVolume,
    /// Where they begin in the file.
    pub file_offset: u64,
}

/// Extents that are remembered of all disks, 40 bytes each. The bytes of others are read as those that
/// no file has, and their files are stored by themselves.
pub const EXTENTS_MAX: usize = 16 << 20;
/// Extents are looked through for those that others have at this many, or more.
const TIDY_MIN: usize = 1 << 20;

/// What is known of a disk.
#[derive(Debug, Default)]
pub struct DiskMap {
    /// The extents of files, by their places.
    pub extents: Vec<Extent>,
    /// What counts as zeros unless it is in an extent, by place; ranges may overlap.
    pub zeros: Vec<Range<u64>>,
}

impl DiskMap {
    /// Sorts the extents, and leaves out those that get no byte in a plan: the snapshots of a Btrfs
    /// have the same extents as what they are of.
    pub fn tidy(&mut self) {
        self.extents.sort_unstable();
        let mut until = 0;
        self.extents.retain(|extent| {
            let end = extent.start.saturating_add(extent.bytes);
            let has_more = end > until;
            until = until.max(end);
            has_more
        });
    }
}

/// How many extents can still be remembered.
#[derive(Debug)]
pub struct Room {
    count: usize,
    tidy_at: usize,
    max: usize,
    /// Some were not remembered.
    pub is_full: bool,
}

impl Room {
    /// Room for this many.
    pub fn new(max: usize) -> Self {
        Self { count: 0, tidy_at: TIDY_MIN.min(max), max, is_full: false }
    }

    /// Remembers an extent of a disk if there is room.
    pub fn put(&mut self, maps: &mut [DiskMap], disk: usize, extent: Extent) {
        if self.is_full {
            return;
        }
        maps[disk].extents.push(extent);
        self.count += 1;
        if self.count >= self.tidy_at {
            maps.iter_mut().for_each(DiskMap::tidy);
            self.count = maps.iter().map(|map| map.extents.len()).sum();
            // Where few can be left out, that would be tried again and again.
            self.is_full = self.count > self.max / 8 * 7;
            self.tidy_at = (2 * self.count).max(TIDY_MIN).min(self.max);
        }
    }
}

/// Where a range of a volume is on the disks, part by part.
pub fn place(volume: &Volume, range: Range<u64>, take: &mut dyn FnMut(usize, Range<u64>)) {
    let mut at = range.start;
    while at < range.end {
        let Some((place, bytes)) = volume.place(at) else { return };
        let bytes = bytes.min(range.end - at);
        take(place.disk, place.offset..place.offset.saturating_add(bytes));
        at += bytes;
    }
}

/// A name of a volume's file for messages.
pub fn shown(names: &[Vec<u8>], name: &[u8]) -> PathBuf {
    let names = names.iter().map(Vec::as_slice).filter(|name| !name.is_empty());
    names.chain([name]).map(OsStr::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, inode: u64) -> Extent {
        Extent { start, bytes: 4096, file: (0, inode), file_offset: 0 }
    }

    #[test]
    fn what_snapshots_have_again_takes_no_room() {
        let (mut maps, mut room) = ([DiskMap::default(), DiskMap::default()], Room::new(1000));
        for snapshot in 0..50 {
            for number in 0..200 {
                let disk = (number % 2) as usize;
                room.put(&mut maps, disk, extent(number * 4096, snapshot));
                assert!(maps.iter().map(|map| map.extents.len()).sum::<usize>() <= 1000);
            }
        }
        maps.iter_mut().for_each(DiskMap::tidy);
        assert!(!room.is_full && maps.iter().all(|map| map.extents.len() == 100));
    }

    #[test]
    fn what_has_no_room_is_not_remembered() {
        let (mut maps, mut room) = ([DiskMap::default()], Room::new(1000));
        (0..5000).for_each(|number| room.put(&mut maps, 0, extent(number * 4096, number)));
        assert!(room.is_full && maps[0].extents.len() == 1000);
    }
}
