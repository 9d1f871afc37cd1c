//! The bytes of the files. The only module that gives bytes a meaning; each checksum is checked
//! before that.
//!
//! All numbers are little-endian; a checksum is CRC-32C of all bytes before it in its part; bytes
//! not named are zero. Version 1 throughout. An index of another version is damaged as far as this
//! program is concerned, and is made again.
//!
//! # Segment: `NNNNNNNNNNNNNNNN.segment` (its number in hexadecimal)
//!
//! `header | page … | directory | trailer`: the records, in pages, in the order of their keys.
//!
//! Header, 4096 bytes, so that pages are aligned:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | `SRINDEXS` |
//! | 8 | 4 | version |
//! | 16 | 8 | number of the segment |
//! | 4092 | 4 | checksum |
//!
//! Page, 4096 bytes, all full but the last:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 40 · i | 32 | key of record i, i < 102 |
//! | 40 · i + 32 | 8 | location of record i |
//! | 4080 | 8 | number of the segment |
//! | 4088 | 4 | number of the page, from 1: the header, which stands where page 0 would, is no page |
//! | 4092 | 4 | checksum |
//!
//! Directory: for each partition (up to 4096 pages in a row), in order:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 32 | first key |
//! | 32 | 4 | pages P |
//! | 36 | 4 | length of a range of the filter |
//! | 40 | 8 | seed of the filter |
//! | 48 | 8 | bytes of the filter F |
//! | 56 | 8 · P | first eight bytes of the first key of each page |
//! | 56 + 8 · P | F | fingerprints of the filter |
//!
//! Trailer, 64 bytes:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | `SRINDEXT` |
//! | 8 | 4 | version |
//! | 12 | 4 | partitions |
//! | 16 | 8 | number of the segment |
//! | 24 | 8 | records |
//! | 32 | 8 | pages |
//! | 40 | 8 | bytes of the directory |
//! | 48 | 4 | CRC-32C of the directory |
//! | 60 | 4 | checksum |
//!
//! # Manifest: `MANIFEST`
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | `SRINDEXM` |
//! | 8 | 4 | version |
//! | 12 | 4 | segments S |
//! | 16 | 8 | number that the next segment will have |
//! | 24 | 8 | bytes of the note N |
//! | 32 | 32 · S | the segments, oldest first |
//! | 32 + 32 · S | N | the note |
//! | 32 + 32 · S + N | 4 | checksum |
//!
//! A segment in the manifest: number (8), records (8), bytes of the file (8), checksum of its
//! trailer (4), zero (4).
//!
//! # What a crash can leave
//!
//! | crash | left behind | at the next opening |
//! |---|---|---|
//! | while a segment is written | a file that no manifest names | the old contents; the writer removes the file |
//! | while the manifest is written | `MANIFEST.new` | the same |
//! | after the rename | replaced segments | the new contents; the writer removes the files |
//! | of the machine, nothing being flushed | any of these files short, old, or zeros in part | `Damaged`, at opening or at the first look-up of a bad page |

use crate::filter::Filter;
use crate::{Damage, Key, Location, Record, key_prefix};

/// The version of all files.
pub(crate) const VERSION: u32 = 1;

/// A page, and the header, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// A record, in bytes.
pub(crate) const RECORD_BYTES: usize = 40;
/// The records of a full page.
pub(crate) const PAGE_RECORDS: usize = 102;
/// The most pages in a partition.
pub(crate) const PARTITION_PAGES_MAX: usize = 4096;
/// The trailer of a segment, in bytes.
pub(crate) const TRAILER_BYTES: usize = 64;

const PAGE_NUMBERS_AT: usize = PAGE_RECORDS * RECORD_BYTES;
const CHECKSUM_BYTES: usize = 4;
const MANIFEST_SEGMENT_BYTES: usize = 32;

const _: () = assert!(PAGE_NUMBERS_AT + 8 + 4 + CHECKSUM_BYTES == PAGE_BYTES);
const _: () = assert!(RECORD_BYTES == size_of::<Key>() + size_of::<u64>());

const HEADER_MAGIC: [u8; 8] = *b"SRINDEXS";
const TRAILER_MAGIC: [u8; 8] = *b"SRINDEXT";
const MANIFEST_MAGIC: [u8; 8] = *b"SRINDEXM";

/// The bytes of a page.
pub(crate) type PageBytes = [u8; PAGE_BYTES];

/// Packs the header of segment `number`.
pub(crate) fn pack_header(number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    bytes.extend(HEADER_MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(number.to_le_bytes());
    bytes.resize(PAGE_BYTES - CHECKSUM_BYTES, 0);
    append_checksum(bytes)
}

/// Checks that `bytes` are the header of segment `number`.
pub(crate) fn unpack_header(bytes: &[u8], number: u64) -> Result<(), Damage> {
    let section = "header";
    let mut rest = Rest::checked(bytes, section)?;
    rest.magic(HEADER_MAGIC)?;
    rest.version()?;
    rest.zeros(4)?;
    let found = rest.u64()?;
    rest.zeros(PAGE_BYTES - 24 - CHECKSUM_BYTES)?;
    rest.end()?;
    if found == number { Ok(()) } else { Err(Damage::Misplaced { section }) }
}

/// Packs up to a page of records as page `page`, counted from 0, of segment `number`.
pub(crate) fn pack_page(records: &[Record], number: u64, page: u32) -> Vec<u8> {
    assert!(records.len() <= PAGE_RECORDS, "a page holds no more");
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    for record in records {
        bytes.extend(record.key);
        bytes.extend(record.location.0.to_le_bytes());
    }
    bytes.resize(PAGE_NUMBERS_AT, 0);
    bytes.extend(number.to_le_bytes());
    bytes.extend((page + 1).to_le_bytes());
    append_checksum(bytes)
}

/// The records of a page whose checksum was right.
pub(crate) struct Page<'a> {
    /// The bytes of each, at most 102.
    records: &'a [[u8; RECORD_BYTES]],
}

/// Unpacks page `page`, counted from 0, of segment `number`, which holds `count` records.
pub(crate) fn unpack_page(
    bytes: &PageBytes,
    number: u64,
    page: u32,
    count: usize,
) -> Result<Page<'_>, Damage> {
    let section = "page";
    let mut rest = Rest::checked(bytes, section)?;
    let records = rest.slice(PAGE_NUMBERS_AT)?.as_chunks().0;
    let numbers = (rest.u64()?, rest.u32()?);
    rest.end()?;
    match records.get(..count) {
        Some(records) if numbers == (number, page + 1) => Ok(Page { records }),
        _ => Err(Damage::Misplaced { section }),
    }
}

/// The records of a page that `unpack_page` has accepted before.
pub(crate) fn checked_page(bytes: &PageBytes, count: usize) -> Page<'_> {
    let records = bytes[..PAGE_NUMBERS_AT].as_chunks().0;
    Page { records: &records[..count.min(PAGE_RECORDS)] }
}

impl Page<'_> {
    /// The record at `at`, if the page has that many.
    pub(crate) fn get(&self, at: usize) -> Option<Record> {
        self.records.get(at).map(unpack_record)
    }

    /// Where `key` is among the records, or where it would be.
    pub(crate) fn find(&self, key: &Key) -> Result<Location, usize> {
        self.records
            .binary_search_by(|record| record[..key.len()].cmp(key))
            .map(|at| unpack_record(&self.records[at]).location)
    }
}

fn unpack_record(bytes: &[u8; RECORD_BYTES]) -> Record {
    let mut record = Record { key: [0; 32], location: Location(0) };
    let (key, location) = bytes.split_at(record.key.len());
    record.key.copy_from_slice(key);
    if let Some(location) = location.first_chunk() {
        record.location = Location(u64::from_le_bytes(*location));
    }
    record
}

/// What is held in memory of up to 4096 pages in a row.
///
/// Invariant: `prefixes` is ascending, not empty, and begins with the prefix of `first`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The first key.
    pub(crate) first: Key,
    /// The prefix of the first key of each page.
    pub(crate) prefixes: Vec<u64>,
    /// Which keys may be in these pages.
    pub(crate) filter: Filter,
}

impl Partition {
    /// Appends its bytes to those of a directory.
    pub(crate) fn pack(&self, directory: &mut Vec<u8>) {
        let (seed, range_length, fingerprints) = self.filter.parts();
        directory.extend(self.first);
        directory.extend((self.prefixes.len() as u32).to_le_bytes());
        directory.extend(range_length.to_le_bytes());
        directory.extend(seed.to_le_bytes());
        directory.extend((fingerprints.len() as u64).to_le_bytes());
        for prefix in &self.prefixes {
            directory.extend(prefix.swap_bytes().to_le_bytes());
        }
        directory.extend(fingerprints);
    }

    fn unpack(rest: &mut Rest<'_>) -> Result<Partition, Damage> {
        let misplaced = Damage::Misplaced { section: rest.section };
        let first = rest.array()?;
        let pages = rest.u32()? as usize;
        let range_length = rest.u32()?;
        let seed = rest.u64()?;
        let filter_bytes = rest.length()?;
        if !(1..=PARTITION_PAGES_MAX).contains(&pages) {
            return Err(misplaced);
        }
        let prefixes: Vec<u64> = rest
            .slice(pages * 8)?
            .as_chunks()
            .0
            .iter()
            .map(|prefix| u64::from_le_bytes(*prefix).swap_bytes())
            .collect();
        let filter = Filter::from_parts(seed, range_length, rest.slice(filter_bytes)?);
        if prefixes[0] != key_prefix(&first) || !prefixes.is_sorted() {
            return Err(misplaced);
        }
        Ok(Partition { first, prefixes, filter: filter.ok_or(misplaced)? })
    }
}

/// Unpacks the directory that `trailer` describes.
pub(crate) fn unpack_directory(bytes: &[u8], trailer: &Trailer) -> Result<Vec<Partition>, Damage> {
    let section = "directory";
    if crc32c::crc32c(bytes) != trailer.directory_checksum {
        return Err(Damage::Checksum { section });
    }
    let mut rest = Rest { bytes, section };
    let mut partitions: Vec<Partition> = Vec::new();
    let mut pages = 0;
    for _ in 0..trailer.partitions {
        let partition = Partition::unpack(&mut rest)?;
        pages += partition.prefixes.len() as u64;
        if partitions.last().is_some_and(|before| before.first >= partition.first) {
            return Err(Damage::Misplaced { section });
        }
        partitions.push(partition);
    }
    rest.end()?;
    if pages == trailer.pages { Ok(partitions) } else { Err(Damage::Misplaced { section }) }
}

/// What is written last in a segment, and read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// How many partitions the directory has.
    pub(crate) partitions: u32,
    /// The number of the segment.
    pub(crate) number: u64,
    /// How many records there are.
    pub(crate) records: u64,
    /// How many pages they fill; the last one perhaps not wholly.
    pub(crate) pages: u64,
    /// The length of the directory.
    pub(crate) directory_bytes: u64,
    /// CRC-32C of the directory.
    pub(crate) directory_checksum: u32,
}

impl Trailer {
    /// Its bytes.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        bytes.extend(TRAILER_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.partitions.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.records.to_le_bytes());
        bytes.extend(self.pages.to_le_bytes());
        bytes.extend(self.directory_bytes.to_le_bytes());
        bytes.extend(self.directory_checksum.to_le_bytes());
        bytes.resize(TRAILER_BYTES - CHECKSUM_BYTES, 0);
        append_checksum(bytes)
    }

    /// The trailer in `bytes`, of segment `number`, of a file of `file_bytes`.
    pub(crate) fn unpack(bytes: &[u8], number: u64, file_bytes: u64) -> Result<Trailer, Damage> {
        let section = "trailer";
        let mut rest = Rest::checked(bytes, section)?;
        rest.magic(TRAILER_MAGIC)?;
        rest.version()?;
        let trailer = Trailer {
            partitions: rest.u32()?,
            number: rest.u64()?,
            records: rest.u64()?,
            pages: rest.u64()?,
            directory_bytes: rest.u64()?,
            directory_checksum: rest.u32()?,
        };
        rest.zeros(8)?;
        rest.end()?;
        if trailer.number != number
            || trailer.records.div_ceil(PAGE_RECORDS as u64) != trailer.pages
            || trailer.pages > u64::from(u32::MAX)
        {
            return Err(Damage::Misplaced { section });
        }
        if trailer.directory_bytes > file_bytes || trailer.file_bytes() != file_bytes {
            return Err(Damage::Length);
        }
        Ok(trailer)
    }

    /// Where the directory begins.
    pub(crate) fn directory_at(&self) -> u64 {
        page_at(self.pages)
    }

    /// The length of the whole file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.directory_at() + self.directory_bytes + TRAILER_BYTES as u64
    }

    /// How many records page `page` holds.
    pub(crate) fn page_records(&self, page: u64) -> usize {
        self.records.saturating_sub(page * PAGE_RECORDS as u64).min(PAGE_RECORDS as u64) as usize
    }
}

/// Where page `page` begins in its file.
pub(crate) fn page_at(page: u64) -> u64 {
    (1 + page) * PAGE_BYTES as u64
}

/// Which segments count, and the caller's note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The number that the next segment will have.
    pub(crate) next: u64,
    /// The segments, oldest first.
    pub(crate) segments: Vec<ManifestSegment>,
    /// The caller's note.
    pub(crate) note: Vec<u8>,
}

/// A segment as the manifest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManifestSegment {
    /// The number of the segment.
    pub(crate) number: u64,
    /// How many records it has.
    pub(crate) records: u64,
    /// The length of its file.
    pub(crate) file_bytes: u64,
    /// The checksum of its trailer, which covers all of it but the pages.
    pub(crate) trailer_checksum: u32,
}

impl Manifest {
    /// Its bytes.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MANIFEST_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.segments.len() as u32).to_le_bytes());
        bytes.extend(self.next.to_le_bytes());
        bytes.extend((self.note.len() as u64).to_le_bytes());
        for segment in &self.segments {
            bytes.extend(segment.number.to_le_bytes());
            bytes.extend(segment.records.to_le_bytes());
            bytes.extend(segment.file_bytes.to_le_bytes());
            bytes.extend(segment.trailer_checksum.to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes.extend(&self.note);
        append_checksum(bytes)
    }

    /// The manifest in `bytes`.
    pub(crate) fn unpack(bytes: &[u8]) -> Result<Manifest, Damage> {
        let section = "manifest";
        let mut rest = Rest::checked(bytes, section)?;
        rest.magic(MANIFEST_MAGIC)?;
        rest.version()?;
        let segments = rest.u32()?;
        let next = rest.u64()?;
        let note_bytes = rest.length()?;
        if segments as usize > rest.bytes.len() / MANIFEST_SEGMENT_BYTES {
            return Err(Damage::Length);
        }
        let segments = (0..segments)
            .map(|_| {
                let segment = ManifestSegment {
                    number: rest.u64()?,
                    records: rest.u64()?,
                    file_bytes: rest.u64()?,
                    trailer_checksum: rest.u32()?,
                };
                rest.zeros(4)?;
                Ok(segment)
            })
            .collect::<Result<Vec<_>, Damage>>()?;
        let note = rest.slice(note_bytes)?.to_vec();
        rest.end()?;
        if segments.iter().any(|segment| segment.number >= next) {
            return Err(Damage::Misplaced { section });
        }
        Ok(Manifest { next, segments, note })
    }
}

/// `bytes` with their checksum after them.
fn append_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// The checksum at the end of packed `bytes`.
pub(crate) fn packed_checksum(bytes: &[u8]) -> u32 {
    bytes.last_chunk().map_or(0, |checksum| u32::from_le_bytes(*checksum))
}

/// The bytes of a part that are not unpacked yet. Whoever unpacks ends with `end`.
struct Rest<'a> {
    bytes: &'a [u8],
    section: &'static str,
}

impl<'a> Rest<'a> {
    /// The bytes before the checksum, if it is theirs.
    fn checked(bytes: &'a [u8], section: &'static str) -> Result<Rest<'a>, Damage> {
        let (bytes, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(Damage::Length)?;
        if crc32c::crc32c(bytes) == u32::from_le_bytes(*checksum) {
            Ok(Rest { bytes, section })
        } else {
            Err(Damage::Checksum { section })
        }
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Damage::Length)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Damage> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Damage::Length)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of bytes that can be at all.
    fn length(&mut self) -> Result<usize, Damage> {
        usize::try_from(self.u64()?).map_err(|_| Damage::Length)
    }

    fn zeros(&mut self, length: usize) -> Result<(), Damage> {
        let zeros = self.slice(length)?.iter().all(|byte| *byte == 0);
        if zeros { Ok(()) } else { Err(Damage::Misplaced { section: self.section }) }
    }

    fn magic(&mut self, magic: [u8; 8]) -> Result<(), Damage> {
        let found = self.array()? == magic;
        if found { Ok(()) } else { Err(Damage::Magic { section: self.section }) }
    }

    fn version(&mut self) -> Result<(), Damage> {
        match self.u32()? {
            VERSION => Ok(()),
            version => Err(Damage::Version { version }),
        }
    }

    fn end(&self) -> Result<(), Damage> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Damage::Length) }
    }
}

#[cfg(test)]
mod tests;
