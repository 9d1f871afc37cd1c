//! The bytes of the files, as `docs/format/index.md` describes them. The only module that gives
//! bytes a meaning, and only after it has checked their checksum.
//!
//! A segment is `header | partition … | directory | trailer`, a partition `head | page …`, of up to
//! 30 pages. Header, heads and pages are all as long as a page, and are numbered by their place in
//! the file: the header is 0. An index of another version counts as damaged for this program, and
//! is made again.

mod manifest;

pub(crate) use manifest::{Manifest, ManifestSegment, NUMBERS_END, pack_manifest_around};

use crate::filter::{self, FILTER_BYTES, FilterBytes};
use crate::{Damage, Key, Record, Value};

/// The version of all files.
pub(crate) const VERSION: u32 = 2;

/// A page, the head of a partition, and the header, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// A record, in bytes.
pub(crate) const RECORD_BYTES: usize = 40;
/// The records of a full page.
pub(crate) const PAGE_RECORDS: usize = 102;
/// The most pages in a partition.
pub(crate) const PARTITION_PAGES_MAX: usize = 30;
/// The most records in a partition.
pub(crate) const PARTITION_RECORDS_MAX: usize = PARTITION_PAGES_MAX * PAGE_RECORDS;
/// The trailer of a segment, in bytes.
pub(crate) const TRAILER_BYTES: usize = 64;

const PAGE_NUMBERS_AT: usize = PAGE_RECORDS * RECORD_BYTES;
const CHECKSUM_BYTES: usize = 4;
const PREFIX_BYTES: usize = 8;
const HEAD_PREFIXES_BYTES: usize = PARTITION_PAGES_MAX * PREFIX_BYTES;

const _: () = assert!(PAGE_NUMBERS_AT + 8 + 4 + CHECKSUM_BYTES == PAGE_BYTES);
const _: () = assert!(HEAD_PREFIXES_BYTES + FILTER_BYTES + 4 + 8 == PAGE_NUMBERS_AT);
const _: () = assert!(RECORD_BYTES == size_of::<Key>() + size_of::<u64>());

const HEADER_MAGIC: [u8; 8] = *b"SRINDEXS";
const TRAILER_MAGIC: [u8; 8] = *b"SRINDEXT";

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

/// Packs up to a page of records as page `page` of segment `number`.
pub(crate) fn pack_page(records: &[Record], number: u64, page: u32) -> Vec<u8> {
    assert!(records.len() <= PAGE_RECORDS, "a page holds no more");
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    for record in records {
        bytes.extend(record.key);
        bytes.extend(record.location.0.to_le_bytes());
    }
    bytes.resize(PAGE_NUMBERS_AT, 0);
    append_numbers(bytes, number, page)
}

/// The records of a page whose checksum was right.
pub(crate) struct Page<'a> {
    /// The bytes of each, at most 102.
    records: &'a [[u8; RECORD_BYTES]],
}

/// Unpacks page `page` of segment `number`, which holds `count` records.
pub(crate) fn unpack_page(
    bytes: &PageBytes,
    number: u64,
    page: u32,
    count: usize,
) -> Result<Page<'_>, Damage> {
    let section = "page";
    check_numbers(bytes, section, number, page)?;
    if count > PAGE_RECORDS {
        return Err(Damage::Misplaced { section });
    }
    Ok(checked_page(bytes, count))
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
    pub(crate) fn find(&self, key: &Key) -> Result<Value, usize> {
        self.records
            .binary_search_by(|record| record[..key.len()].cmp(key))
            .map(|at| unpack_record(&self.records[at]).location)
    }
}

fn unpack_record(bytes: &[u8; RECORD_BYTES]) -> Record {
    let mut record = Record { key: [0; 32], location: Value(0) };
    let (key, location) = bytes.split_at(record.key.len());
    record.key.copy_from_slice(key);
    if let Some(location) = location.first_chunk() {
        record.location = Value(u64::from_le_bytes(*location));
    }
    record
}

/// Packs the head of a partition as page `page` of segment `number`. `prefixes` are those of the
/// first key of each page. The filter is made of `filter_keys`, which are used up.
pub(crate) fn pack_head(
    prefixes: &[u64],
    filter_keys: &mut Vec<u64>,
    number: u64,
    page: u32,
) -> Vec<u8> {
    assert!(prefixes.len() <= PARTITION_PAGES_MAX, "a partition has no more pages");
    let (seed, filter) = filter::build(filter_keys);
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    bytes.extend(pack_prefixes(prefixes));
    bytes.resize(HEAD_PREFIXES_BYTES, 0);
    bytes.extend(filter);
    bytes.extend([0; 4]);
    bytes.extend(seed.to_le_bytes());
    append_numbers(bytes, number, page)
}

/// The head of a partition whose checksum was right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionHead<'a> {
    seed: u64,
    bytes: &'a PageBytes,
}

/// Unpacks the head at page `page` of segment `number`.
pub(crate) fn unpack_head(
    bytes: &PageBytes,
    number: u64,
    page: u32,
) -> Result<PartitionHead<'_>, Damage> {
    let section = "partition head";
    check_numbers(bytes, section, number, page)?;
    let mut rest = Rest { bytes: &bytes[HEAD_PREFIXES_BYTES + FILTER_BYTES..], section };
    rest.zeros(4)?;
    Ok(PartitionHead { seed: rest.u64()?, bytes })
}

impl PartitionHead<'_> {
    /// Whether a key may be in the partition, by the bytes of it that filters take.
    pub(crate) fn may_contain(self, filter_key: u64) -> bool {
        let filter: &FilterBytes = self.bytes[HEAD_PREFIXES_BYTES..]
            .first_chunk()
            .expect("a head is longer than its prefixes and its filter");
        filter::may_contain(self.seed, filter, filter_key)
    }

    /// How many of the partition's `pages` begin with the prefix of `key` or before: it is in none
    /// of the others.
    pub(crate) fn pages_up_to(self, key: &Key, pages: usize) -> usize {
        // As bytes: they compare as the keys do.
        let prefixes = self.bytes[..HEAD_PREFIXES_BYTES].as_chunks::<PREFIX_BYTES>().0;
        let prefixes = &prefixes[..pages.min(PARTITION_PAGES_MAX)];
        prefixes.partition_point(|prefix| prefix[..] <= key[..PREFIX_BYTES])
    }

    /// A copy for the memory.
    pub(crate) fn keep(self) -> KeptHead {
        KeptHead { seed: self.seed, bytes: *self.bytes }
    }
}

/// The head of a partition in memory.
#[derive(Debug)]
pub(crate) struct KeptHead {
    /// Of the filter; outside the bytes, so that asking the filter waits for nothing but its bytes.
    seed: u64,
    bytes: PageBytes,
}

impl KeptHead {
    pub(crate) fn as_head(&self) -> PartitionHead<'_> {
        PartitionHead { seed: self.seed, bytes: &self.bytes }
    }
}

/// The directory of a segment: the prefix of the first key of each partition.
pub(crate) fn pack_prefixes(prefixes: &[u64]) -> Vec<u8> {
    prefixes.iter().flat_map(|prefix| prefix.swap_bytes().to_le_bytes()).collect()
}

/// Unpacks the directory that `trailer` describes.
pub(crate) fn unpack_directory(bytes: &[u8], trailer: &Trailer) -> Result<Vec<u64>, Damage> {
    let section = "directory";
    if crc32c::crc32c(bytes) != trailer.directory_checksum {
        return Err(Damage::Checksum { section });
    }
    let (prefixes, []) = bytes.as_chunks() else { return Err(Damage::Length) };
    let prefixes: Vec<u64> =
        prefixes.iter().map(|prefix| u64::from_le_bytes(*prefix).swap_bytes()).collect();
    let fits = prefixes.len() as u64 == trailer.partitions() && prefixes.is_sorted();
    if fits { Ok(prefixes) } else { Err(Damage::Misplaced { section }) }
}

/// What is written last in a segment, and read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// The number of the segment.
    pub(crate) number: u64,
    /// How many records there are.
    pub(crate) records: u64,
    /// CRC-32C of the directory.
    pub(crate) directory_checksum: u32,
}

impl Trailer {
    /// Its bytes.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let partitions = u32::try_from(self.partitions()).expect("pages are numbered by 32 bits");
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        bytes.extend(TRAILER_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(partitions.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.records.to_le_bytes());
        bytes.extend((self.pages() + self.partitions()).to_le_bytes());
        bytes.extend(self.directory_bytes().to_le_bytes());
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
        let partitions = u64::from(rest.u32()?);
        let (found, records) = (rest.u64()?, rest.u64()?);
        let (pages, directory_bytes) = (rest.u64()?, rest.u64()?);
        let trailer = Trailer { number, records, directory_checksum: rest.u32()? };
        rest.zeros(8)?;
        rest.end()?;
        let described = (found, partitions, pages, directory_bytes);
        let (heads, all) = (trailer.partitions(), trailer.pages() + trailer.partitions());
        if described != (number, heads, all, trailer.directory_bytes()) || all > u64::from(u32::MAX)
        {
            return Err(Damage::Misplaced { section });
        }
        if trailer.file_bytes() == file_bytes { Ok(trailer) } else { Err(Damage::Length) }
    }

    /// How many pages the records fill; the last one perhaps not wholly.
    pub(crate) fn pages(&self) -> u64 {
        self.records.div_ceil(PAGE_RECORDS as u64)
    }

    /// How many partitions the pages are in.
    pub(crate) fn partitions(&self) -> u64 {
        self.pages().div_ceil(PARTITION_PAGES_MAX as u64)
    }

    /// The length of the directory.
    pub(crate) fn directory_bytes(&self) -> u64 {
        self.partitions() * PREFIX_BYTES as u64
    }

    /// Where the directory begins.
    pub(crate) fn directory_at(&self) -> u64 {
        page_at(1 + self.pages() + self.partitions())
    }

    /// The length of the whole file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.directory_at() + self.directory_bytes() + TRAILER_BYTES as u64
    }

    /// How many pages a partition has.
    pub(crate) fn partition_pages(&self, partition: u64) -> usize {
        let max = PARTITION_PAGES_MAX as u64;
        self.pages().saturating_sub(partition * max).min(max) as usize
    }

    /// How many records page `page` of `partition` holds.
    pub(crate) fn page_records(&self, partition: u64, page: usize) -> usize {
        let before = partition * PARTITION_RECORDS_MAX as u64 + (page * PAGE_RECORDS) as u64;
        self.records.saturating_sub(before).min(PAGE_RECORDS as u64) as usize
    }
}

/// The number of the head of a partition; its pages follow.
pub(crate) fn head_number(partition: u64) -> u64 {
    1 + partition * (1 + PARTITION_PAGES_MAX as u64)
}

/// Where the page of this number begins in its file.
pub(crate) fn page_at(number: u64) -> u64 {
    number * PAGE_BYTES as u64
}

/// `bytes`, of a page or a head, with its numbers and their checksum after them.
fn append_numbers(mut bytes: Vec<u8>, number: u64, page: u32) -> Vec<u8> {
    bytes.extend(number.to_le_bytes());
    bytes.extend(page.to_le_bytes());
    append_checksum(bytes)
}

/// Checks that `bytes` were written as page `page` of segment `number`.
fn check_numbers(
    bytes: &PageBytes,
    section: &'static str,
    number: u64,
    page: u32,
) -> Result<(), Damage> {
    let mut rest = Rest::checked(bytes, section)?;
    rest.slice(PAGE_NUMBERS_AT)?;
    let numbers = (rest.u64()?, rest.u32()?);
    rest.end()?;
    if numbers == (number, page) { Ok(()) } else { Err(Damage::Misplaced { section }) }
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

/// The bytes of a part that are not unpacked yet. The caller ends with `end`.
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

    /// A number of bytes that fits into memory.
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
