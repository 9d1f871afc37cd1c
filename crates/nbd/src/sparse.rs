//! A file that holds the bytes of a disk: what is in a range, and what of it are holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::export::Extent;

/// The most extents that are looked for at once.
const EXTENTS_MAX: usize = 4096;

/// Appends the bytes of a range of a file. It fails if the file ends within it.
pub fn append_of(file: &File, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
    let begin = bytes.len();
    bytes.resize(begin + (range.end - range.start) as usize, 0);
    file.read_exact_at(&mut bytes[begin..], range.start)
}

/// The data and holes of a range of a file, from its start on: at least one extent, and perhaps not
/// the whole range. A file system that knows no holes says that all is data. The file's position is
/// moved.
pub fn extents_of(file: &File, range: Range<u64>) -> io::Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut position = range.start;
    while position < range.end && extents.len() < EXTENTS_MAX {
        let data = match seek(file, SeekFrom::Data(position)) {
            Ok(data) => data.clamp(position, range.end),
            // No data up to the end of the file.
            Err(Errno::NXIO) => range.end,
            Err(Errno::INVAL) => position,
            Err(error) => return Err(error.into()),
        };
        if data > position {
            extents.push(Extent { bytes: data - position, is_hole: true });
        }
        if data == range.end {
            break;
        }
        let hole = match seek(file, SeekFrom::Hole(data)) {
            // A hole made in this moment.
            Ok(hole) if hole <= data => data + 1,
            Ok(hole) => hole.min(range.end),
            Err(Errno::NXIO | Errno::INVAL) => range.end,
            Err(error) => return Err(error.into()),
        };
        extents.push(Extent { bytes: hole - data, is_hole: false });
        position = hole;
    }
    Ok(extents)
}
