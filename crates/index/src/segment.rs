//! One segment: writing it record by record, looking a key up in it, reading all of it.
//!
//! A segment in use keeps its file open, so it may be removed from the directory at any time. Pages
//! are read by position, never mapped: a shortened file is an error then, not a signal that kills
//! the process. There is no cache of pages, for the keys asked are random and the system keeps one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Context;
use crate::filter::Filter;
use crate::format::{
    ManifestSegment, PAGE_BYTES, PAGE_RECORDS, PARTITION_PAGES_MAX, PageBytes, Partition,
    TRAILER_BYTES, Trailer, pack_header, pack_page, packed_checksum, page_at, unpack_directory,
    unpack_header, unpack_page,
};
use crate::{Damage, Key, Location, Record, Result, key_prefix};

/// How much is written, or read ahead, at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A sealed segment, ready for look-ups.
pub(crate) struct Segment {
    file: File,
    /// Where the file is or was; for messages.
    path: PathBuf,
    trailer: Trailer,
    trailer_checksum: u32,
    /// In the order of their keys.
    partitions: Vec<Partition>,
    /// The prefix of the first key of each partition.
    firsts: Vec<u64>,
    /// Whether the manifest in the directory names it.
    pub(crate) committed: bool,
}

impl Segment {
    /// Opens the segment that the manifest describes as `expected`, from its file.
    pub(crate) fn open(file: File, path: PathBuf, expected: &ManifestSegment) -> Result<Segment> {
        let file_bytes = file.metadata().context("examine", &path)?.len();
        if file_bytes != expected.file_bytes {
            return Err(Damage::Length.at(&path));
        }
        let number = expected.number;
        let header = read_at(&file, &path, 0, PAGE_BYTES as u64)?;
        unpack_header(&header, number).map_err(|damage| damage.at(&path))?;

        let trailer_at = file_bytes.saturating_sub(TRAILER_BYTES as u64);
        let bytes = read_at(&file, &path, trailer_at, TRAILER_BYTES as u64)?;
        let trailer =
            Trailer::unpack(&bytes, number, file_bytes).map_err(|damage| damage.at(&path))?;
        let trailer_checksum = packed_checksum(&bytes);
        if trailer_checksum != expected.trailer_checksum || trailer.records != expected.records {
            return Err(Damage::Misplaced { section: "trailer" }.at(&path));
        }

        let bytes = read_at(&file, &path, trailer.directory_at(), trailer.directory_bytes)?;
        let partitions = unpack_directory(&bytes, &trailer).map_err(|damage| damage.at(&path))?;
        let firsts = firsts(&partitions);
        Ok(Segment { file, path, trailer, trailer_checksum, partitions, firsts, committed: true })
    }

    /// Where `key` is, if it is in this segment. Counts the pages it reads.
    pub(crate) fn lookup(&self, key: &Key, page_reads: &AtomicU64) -> Result<Option<Location>> {
        let prefix = key_prefix(key);
        let mut after = self.firsts.partition_point(|first| *first <= prefix);
        while after > 0
            && self.firsts[after - 1] == prefix
            && self.partitions[after - 1].first > *key
        {
            after -= 1;
        }
        let Some(partition) = self.partitions[..after].last() else {
            return Ok(None);
        };
        if !partition.filter.may_contain(filter_key(key)) {
            return Ok(None);
        }
        let begin = (after - 1) * PARTITION_PAGES_MAX;
        let mut page = partition.prefixes.partition_point(|first| *first <= prefix);
        // Once, but when the key comes before the first one of a page that has the same prefix.
        while page > 0 {
            page -= 1;
            let number = (begin + page) as u64;
            let mut bytes = [0; PAGE_BYTES];
            self.file.read_exact_at(&mut bytes, page_at(number)).map_err(short(&self.path))?;
            page_reads.fetch_add(1, Ordering::Relaxed);
            match self.unpack(&bytes, number)?.find(key) {
                Ok(location) => return Ok(Some(location)),
                Err(0) => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// All records in the order of their keys, read in a stream.
    pub(crate) fn scan(&self) -> Scan<'_> {
        Scan { segment: self, buffer: Vec::new(), buffer_page: 0, page: 0, at: 0 }
    }

    /// How many records it has.
    pub(crate) fn records(&self) -> u64 {
        self.trailer.records
    }

    /// Its line in the manifest.
    pub(crate) fn manifest_segment(&self) -> ManifestSegment {
        ManifestSegment {
            number: self.trailer.number,
            records: self.trailer.records,
            file_bytes: self.trailer.file_bytes(),
            trailer_checksum: self.trailer_checksum,
        }
    }

    /// The memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.partitions
            .iter()
            .map(|partition| {
                let (_, _, fingerprints) = partition.filter.parts();
                size_of::<Partition>() + partition.prefixes.len() * 8 + fingerprints.len()
            })
            .sum()
    }

    fn unpack<'a>(&self, bytes: &'a PageBytes, number: u64) -> Result<crate::format::Page<'a>> {
        let count = self.trailer.page_records(number);
        unpack_page(bytes, self.trailer.number, number as u32, count)
            .map_err(|damage| damage.at(&self.path))
    }
}

fn firsts(partitions: &[Partition]) -> Vec<u64> {
    partitions.iter().map(|partition| key_prefix(&partition.first)).collect()
}

/// The bytes of a key that filters take.
fn filter_key(key: &Key) -> u64 {
    let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// `length` bytes of a file from `at` on.
fn read_at(file: &File, path: &Path, at: u64, length: u64) -> Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| Damage::Length.at(path))?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).map_err(short(path))?;
    Ok(bytes)
}

/// A file that ends too early is damaged; anything else is the system's error.
fn short(path: &Path) -> impl Fn(io::Error) -> crate::IndexError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Damage::Length.at(path),
        _ => crate::IndexError::Io { operation: "read", path: path.to_owned(), source: error },
    }
}

/// The records of a segment, in order; see [`Segment::scan`].
pub(crate) struct Scan<'a> {
    segment: &'a Segment,
    /// Whole pages, the first of them being page `buffer_page`.
    buffer: Vec<u8>,
    buffer_page: u64,
    /// The records of the page being given, and how many of them are given.
    page: u64,
    at: usize,
}

impl Scan<'_> {
    fn advance(&mut self) -> Result<Option<Record>> {
        if self.at == self.segment.trailer.page_records(self.page) {
            self.page += 1;
            self.at = 0;
        }
        if self.page >= self.segment.trailer.pages {
            return Ok(None);
        }
        let buffered = (self.buffer.len() / PAGE_BYTES) as u64;
        if self.page >= self.buffer_page + buffered {
            self.fill()?;
        }
        let begin = (self.page - self.buffer_page) as usize * PAGE_BYTES;
        let bytes = self.buffer[begin..]
            .first_chunk()
            .ok_or_else(|| Damage::Length.at(&self.segment.path))?;
        let count = self.segment.trailer.page_records(self.page);
        let record = crate::format::checked_page(bytes, count).get(self.at);
        self.at += 1;
        Ok(record)
    }

    /// Reads the next pages and checks each.
    fn fill(&mut self) -> Result<()> {
        let segment = self.segment;
        let pages = (segment.trailer.pages - self.page).min((BUFFER_BYTES / PAGE_BYTES) as u64);
        let length = pages * PAGE_BYTES as u64;
        self.buffer = read_at(&segment.file, &segment.path, page_at(self.page), length)?;
        self.buffer_page = self.page;
        for (page, bytes) in (self.page..).zip(self.buffer.as_chunks().0) {
            segment.unpack(bytes, page)?;
        }
        Ok(())
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.advance().transpose()
    }
}

/// A segment being written.
///
/// Holds one buffer, the first keys and filters of the partitions that are complete (they stay in
/// memory anyway), and 8 bytes for each key of the current one: memory does not grow otherwise.
pub(crate) struct SegmentWriter {
    file: BufWriter<File>,
    path: PathBuf,
    number: u64,
    records: u64,
    /// The records of the page being filled: fewer than a page's.
    page: Vec<Record>,
    pages: u64,
    /// The first key, the pages' prefixes and all filter keys of the current partition.
    first: Key,
    prefixes: Vec<u64>,
    filter_keys: Vec<u64>,
    partitions: Vec<Partition>,
}

impl SegmentWriter {
    /// Begins segment `number` in `file`, which is empty and open for reading too.
    pub(crate) fn new(file: File, path: PathBuf, number: u64) -> Result<SegmentWriter> {
        let mut writer = SegmentWriter {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            path,
            number,
            records: 0,
            page: Vec::with_capacity(PAGE_RECORDS),
            pages: 0,
            first: [0; 32],
            prefixes: Vec::new(),
            filter_keys: Vec::new(),
            partitions: Vec::new(),
        };
        writer.write(&pack_header(number))?;
        Ok(writer)
    }

    /// The number of the segment.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a record, whose key is greater than that of the one before.
    pub(crate) fn add(&mut self, record: Record) -> Result<()> {
        if self.page.is_empty() {
            if self.prefixes.is_empty() {
                self.first = record.key;
            }
            self.prefixes.push(key_prefix(&record.key));
        }
        self.filter_keys.push(filter_key(&record.key));
        self.page.push(record);
        self.records += 1;
        if self.page.len() == PAGE_RECORDS {
            self.end_page()?;
        }
        Ok(())
    }

    /// Writes what is left and seals the segment, which has a record at least.
    pub(crate) fn finish(mut self) -> Result<Segment> {
        assert!(self.records > 0, "an empty segment is never written");
        if !self.page.is_empty() {
            self.end_page()?;
        }
        self.end_partition();
        let mut directory = Vec::new();
        for partition in &self.partitions {
            partition.pack(&mut directory);
        }
        let trailer = Trailer {
            partitions: self.partitions.len() as u32,
            number: self.number,
            records: self.records,
            pages: self.pages,
            directory_bytes: directory.len() as u64,
            directory_checksum: crc32c::crc32c(&directory),
        };
        let trailer_bytes = trailer.pack();
        self.write(&directory)?;
        crate::directory::step().context("write", &self.path)?;
        self.write(&trailer_bytes)?;
        let SegmentWriter { file, path, partitions, .. } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        Ok(Segment {
            file: file.context("write", &path)?,
            path,
            trailer,
            trailer_checksum: packed_checksum(&trailer_bytes),
            firsts: firsts(&partitions),
            partitions,
            committed: false,
        })
    }

    fn end_page(&mut self) -> Result<()> {
        assert!(self.pages < u64::from(u32::MAX), "pages are numbered by 32 bits");
        let bytes = pack_page(&self.page, self.number, self.pages as u32);
        self.write(&bytes)?;
        self.page.clear();
        self.pages += 1;
        if self.prefixes.len() == PARTITION_PAGES_MAX {
            self.end_partition();
        }
        Ok(())
    }

    fn end_partition(&mut self) {
        if self.prefixes.is_empty() {
            return;
        }
        self.partitions.push(Partition {
            first: self.first,
            prefixes: std::mem::take(&mut self.prefixes),
            filter: Filter::build(&mut self.filter_keys),
        });
        self.filter_keys.clear();
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).context("write", &self.path)
    }
}
