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

/// What is known of a disk.
#[derive(Debug, Default)]
pub struct DiskMap {
    /// The extents of files, by their places.
    pub extents: Vec<Extent>,
    /// What counts as zeros unless it is in an extent, by place; ranges may overlap.
    pub zeros: Vec<Range<u64>>,
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
