//! The bitmaps that a qcow2 image keeps: what QEMU has noted of changes to the disk.
//!
//! They are right only while no machine uses the image: QEMU loads them, marks them as in use, and
//! writes them back when it closes the image.

use std::ops::Range;

use crate::image::error::{ImageError, ImageResult};

use super::Qcow2;
use super::header::BitmapEntry;

/// QEMU's limit on the number, with names of a usual length.
const DIRECTORY_BYTES_MAX: u64 = 4 << 20;
/// Flags of an entry.
const IN_USE: u32 = 1 << 0;
const AUTO: u32 = 1 << 1;
const EXTRA_DATA_COMPATIBLE: u32 = 1 << 2;
/// A bitmap of changes: the only type that exists.
const DIRTY_TRACKING: u8 = 1;
/// In a table of a bitmap: this part has no cluster, and all its bits are one.
const ALL_ONES: u64 = 1;
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// What is read of a bitmap at a time.
const PART_BYTES: u64 = 64 << 10;

/// A bitmap of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Its name, which is unique in the image.
    pub name: String,
    /// Bytes of the disk that one bit is for.
    pub granularity_bytes: u64,
    /// It lacks changes: the program that used it last did not write it back, or another one
    /// changed the image without knowing of bitmaps. Or it has something that we do not know.
    pub is_inconsistent: bool,
    /// QEMU notes changes in it as soon as it opens the image.
    pub is_recording: bool,
    table_offset: u64,
    table_entries: u64,
}

impl Qcow2 {
    /// The bitmaps of this image, in the order of its directory. Those of backing files are not
    /// among them.
    ///
    /// # Errors
    ///
    /// The directory is damaged or cannot be read.
    pub fn bitmaps(&self) -> Result<Vec<Bitmap>, ImageError> {
        let Some(directory) = self.header.bitmaps else { return Ok(Vec::new()) };
        let damaged = |what| ImageError::damaged(&self.path, what, directory.offset);
        if directory.bytes > DIRECTORY_BYTES_MAX {
            return Err(damaged("the directory of bitmaps is too large"));
        }
        let end = directory.offset.checked_add(directory.bytes);
        if end.is_none_or(|end| end > self.file.size()) {
            return Err(damaged("the directory of bitmaps is outside of the file"));
        }
        let mut bytes = vec![0; directory.bytes as usize];
        self.read_file(directory.offset, &mut bytes)?;
        let (mut rest, mut bitmaps) = (&bytes[..], Vec::new());
        for _ in 0..directory.count {
            let short = || damaged("an entry of the directory of bitmaps is too long");
            let (fixed, behind) = rest.split_at_checked(BitmapEntry::BYTES).ok_or_else(short)?;
            let entry = BitmapEntry::of(fixed);
            let (extra, name) = (entry.extra_bytes as usize, usize::from(entry.name_bytes));
            let name = behind.get(extra..).and_then(|rest| rest.get(..name)).ok_or_else(short)?;
            let name = String::from_utf8_lossy(name).into_owned();
            bitmaps.push(self.bitmap(&entry, name, directory.is_current)?);
            let used =
                (BitmapEntry::BYTES + extra + usize::from(entry.name_bytes)).next_multiple_of(8);
            rest = rest.get(used..).unwrap_or_default();
        }
        Ok(bitmaps)
    }

    fn bitmap(&self, entry: &BitmapEntry, name: String, is_current: bool) -> ImageResult<Bitmap> {
        let damaged = |what| Err(ImageError::damaged(&self.path, what, entry.table_offset));
        if !(9..=31).contains(&entry.granularity_bits) {
            return damaged("the granularity of a bitmap is invalid");
        }
        let is_unknown = entry.kind != DIRTY_TRACKING
            || entry.flags & !(IN_USE | AUTO | EXTRA_DATA_COMPATIBLE) != 0
            || (entry.extra_bytes > 0 && entry.flags & EXTRA_DATA_COMPATIBLE == 0);
        let is_inconsistent = !is_current || is_unknown || entry.flags & IN_USE != 0;
        let granularity_bytes = 1 << entry.granularity_bits;
        let bitmap = Bitmap {
            name,
            granularity_bytes,
            is_inconsistent,
            is_recording: entry.flags & AUTO != 0,
            table_offset: entry.table_offset,
            table_entries: u64::from(entry.table_entries),
        };
        let reach = self.cluster_reach(granularity_bytes);
        let end = entry.table_offset.checked_add(bitmap.table_entries * 8);
        let is_sound = entry.table_offset.is_multiple_of(self.header.cluster_bytes())
            && end.is_some_and(|end| end <= self.file.size())
            && bitmap.table_entries == self.header.disk_bytes.div_ceil(reach);
        // The table of a bitmap that is not usable can be anything.
        if !is_inconsistent && !is_sound {
            return damaged("the table of a bitmap does not fit the disk or the file");
        }
        Ok(bitmap)
    }

    /// The ranges of the disk that a bitmap calls changed: ascending, not touching, multiples of
    /// the granularity except for the end of the disk. They are read while they are asked for.
    ///
    /// # Errors
    ///
    /// There is no such bitmap, or it is inconsistent.
    pub fn dirty(&self, name: &str) -> Result<DirtyRanges<'_>, ImageError> {
        let found = self.bitmaps()?.into_iter().find(|bitmap| bitmap.name == name);
        let (path, name) = (self.path.clone(), name.to_owned());
        match found {
            None => Err(ImageError::NoBitmap { path, name }),
            Some(bitmap) if bitmap.is_inconsistent => {
                Err(ImageError::InconsistentBitmap { path, name })
            }
            Some(bitmap) => Ok(DirtyRanges { image: self, bitmap, at: 0, part: Part::default() }),
        }
    }

    /// Bytes of the disk that one cluster of a bitmap is for.
    fn cluster_reach(&self, granularity_bytes: u64) -> u64 {
        // At most 2^(21 + 3 + 31).
        self.header.cluster_bytes() * 8 * granularity_bytes
    }
}

/// The ranges of a disk that a bitmap calls changed.
pub struct DirtyRanges<'q> {
    image: &'q Qcow2,
    bitmap: Bitmap,
    /// The next byte of the disk that was not looked at.
    at: u64,
    part: Part,
}

/// A part of the bitmap.
#[derive(Default)]
struct Part {
    /// The bytes of the disk that it is for.
    disk: Range<u64>,
    bits: Bits,
}

#[derive(Default)]
enum Bits {
    #[default]
    Zeros,
    Ones,
    Stored(Vec<u8>),
}

impl DirtyRanges<'_> {
    /// Bytes of the disk that one bit is for.
    pub fn granularity_bytes(&self) -> u64 {
        self.bitmap.granularity_bytes
    }

    fn find(&mut self) -> ImageResult<Option<Range<u64>>> {
        let start = self.skip(false)?;
        let end = self.skip(true)?;
        Ok((start < end).then_some(start..end))
    }

    /// Goes on to the next byte of the disk whose bit is not `value`.
    fn skip(&mut self, value: bool) -> ImageResult<u64> {
        let disk_bytes = self.image.header.disk_bytes;
        while self.at < disk_bytes {
            if !self.part.disk.contains(&self.at) {
                self.part = self.read()?;
            }
            let end = self.part.disk.end;
            match &self.part.bits {
                Bits::Ones if !value => break,
                Bits::Zeros if value => break,
                Bits::Ones | Bits::Zeros => self.at = end,
                Bits::Stored(bytes) => {
                    let granularity = self.bitmap.granularity_bytes;
                    let first = ((self.at - self.part.disk.start) / granularity) as usize;
                    let found = find_bit(bytes, first, !value);
                    let found = self.part.disk.start + found as u64 * granularity;
                    self.at = found.min(end);
                    if self.at < end {
                        break;
                    }
                }
            }
        }
        Ok(self.at)
    }

    /// The part of the bitmap that has the bit of `at`, from there on.
    fn read(&self) -> ImageResult<Part> {
        let (image, bitmap) = (self.image, &self.bitmap);
        let reach = image.cluster_reach(bitmap.granularity_bytes);
        let (index, inside) = (self.at / reach, self.at % reach);
        let table_end = bitmap.table_offset + bitmap.table_entries * 8;
        let entry =
            image.table_entry((bitmap.table_offset, table_end), bitmap.table_offset + index * 8)?;
        // The disk ends before 2^63, and what one cluster is for ends before 2^56 behind it.
        let part_of = |end: u64, bits| {
            let disk = self.at..end.min(image.header.disk_bytes);
            Ok(Part { disk, bits })
        };
        let place = entry & PLACE;
        if place == 0 {
            let bits = if entry & ALL_ONES != 0 { Bits::Ones } else { Bits::Zeros };
            return part_of((index + 1) * reach, bits);
        }
        // `at` is a multiple of the granularity, and of eight bits in a new part.
        let skipped = inside / bitmap.granularity_bytes / 8;
        let bytes = PART_BYTES.min(image.header.cluster_bytes() - skipped);
        let from = place + skipped;
        if !place.is_multiple_of(image.header.cluster_bytes()) || from + bytes > image.file.size() {
            return Err(ImageError::damaged(&image.path, "a bitmap is at an invalid place", place));
        }
        let mut bits = vec![0; bytes as usize];
        image.read_file(from, &mut bits)?;
        part_of(self.at + bytes * 8 * bitmap.granularity_bytes, Bits::Stored(bits))
    }
}

impl Iterator for DirtyRanges<'_> {
    type Item = Result<Range<u64>, ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find();
        if found.is_err() {
            // What is behind a part that cannot be read is not known either.
            self.at = self.image.header.disk_bytes;
        }
        found.transpose()
    }
}

/// The first bit from `first` on that has this value, or the number of all bits.
fn find_bit(bytes: &[u8], first: usize, value: bool) -> usize {
    let flip = if value { 0 } else { 0xff };
    let mut at = first / 8;
    let mut masked = bytes.get(at).map_or(0, |byte| (byte ^ flip) & (0xff << (first % 8)));
    while masked == 0 {
        at += 1;
        let Some(byte) = bytes.get(at) else { return bytes.len() * 8 };
        masked = byte ^ flip;
    }
    at * 8 + masked.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_as_one_by_one() {
        let bytes = [0b1000_0001, 0, 0xff, 0b0111_1110, 0, 0];
        let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1 == 1;
        for value in [false, true] {
            for first in 0..48 {
                let expected = (first..48).find(|&at| bit(at) == value).unwrap_or(48);
                assert_eq!(find_bit(&bytes, first, value), expected, "{first}");
            }
        }
    }
}
