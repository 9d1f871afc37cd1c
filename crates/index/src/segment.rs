//! One segment: looking a key up in it, reading all of it.
//!
//! A segment in use keeps its file open, so it may be removed from the directory at any time. Pages
//! are read by position, never mapped: a shortened file is then an error, not a signal that kills
//! the process. There is no cache of pages, because the keys asked are random and the system keeps
//! one. Some heads of partitions, each of which covers thirty pages, are kept in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::Context;
use crate::format::{
    KeptHead, ManifestSegment, PAGE_BYTES, Page, PageBytes, PartitionHead, TRAILER_BYTES, Trailer,
    checked_page, head_number, packed_checksum, page_at, unpack_directory, unpack_head,
    unpack_header, unpack_page,
};
use crate::{Damage, Key, Record, Result, Value, key_prefix};

/// A sealed segment, ready for look-ups.
pub(crate) struct Segment {
    file: File,
    /// Where the file is or was; for messages.
    path: PathBuf,
    trailer: Trailer,
    trailer_checksum: u32,
    /// The prefix of the first key of each partition, ascending.
    firsts: Vec<u64>,
    /// The heads of the first partitions, each from the time when it was first asked for; those of
    /// the others are not kept.
    ///
    /// They are in one piece: separate pieces, allocated one by one while other code allocates and
    /// frees megabytes, would leave holes between them.
    heads: Vec<OnceLock<KeptHead>>,
    /// Whether the manifest in the directory names it.
    pub(crate) committed: bool,
}

/// What a look-up has read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    /// Pages of records.
    pub(crate) pages: u64,
    /// Heads of partitions.
    pub(crate) heads: u64,
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

        let bytes = read_at(&file, &path, trailer.directory_at(), trailer.directory_bytes())?;
        let firsts = unpack_directory(&bytes, &trailer).map_err(|damage| damage.at(&path))?;
        let heads = Vec::new();
        Ok(Segment { file, path, trailer, trailer_checksum, firsts, heads, committed: true })
    }

    /// The segment that was written to `file`; `firsts` are the prefixes in its directory.
    pub(crate) fn written(
        file: File,
        path: PathBuf,
        trailer: Trailer,
        trailer_checksum: u32,
        firsts: Vec<u64>,
    ) -> Segment {
        let heads = Vec::new();
        Segment { file, path, trailer, trailer_checksum, firsts, heads, committed: false }
    }

    /// Keeps up to `heads_max` heads in memory from now on; returns how many at most.
    pub(crate) fn keep_heads(&mut self, heads_max: usize) -> usize {
        self.heads.resize_with(self.firsts.len().min(heads_max), OnceLock::new);
        self.heads.shrink_to_fit();
        self.heads.len()
    }

    /// Where `key` is, if it is in this segment. Counts what it reads.
    pub(crate) fn lookup(&self, key: &Key, reads: &mut Reads) -> Result<Option<Value>> {
        let prefix = key_prefix(key);
        let mut partition = self.firsts.partition_point(|first| *first <= prefix);
        // Once, unless the partition begins with the prefix of the key: then the key may be before
        // it.
        while partition > 0 {
            partition -= 1;
            let pages = match self.heads.get(partition).and_then(OnceLock::get) {
                Some(head) => self.pages_to_read(head.as_head(), partition, key),
                None => self.read_head(partition, key, reads)?,
            };
            for page in (0..pages).rev() {
                match self.find_in_page(partition, page, key, reads)? {
                    Ok(location) => return Ok(Some(location)),
                    // The key comes before the first record of this page, which has the same
                    // prefix.
                    Err(0) => {}
                    Err(_) => return Ok(None),
                }
            }
            if self.firsts[partition] < prefix {
                break;
            }
        }
        Ok(None)
    }

    /// Up to which page of a partition `key` may be, by its head: 0 if it is not there.
    fn pages_to_read(&self, head: PartitionHead<'_>, partition: usize, key: &Key) -> usize {
        if !head.may_contain(filter_key(key)) {
            return 0;
        }
        head.pages_up_to(key, self.trailer.partition_pages(partition as u64))
    }

    /// The same by a head that is not in memory, in which it may be kept from now on.
    fn read_head(&self, partition: usize, key: &Key, reads: &mut Reads) -> Result<usize> {
        let number = head_number(partition as u64);
        let mut bytes = [0; PAGE_BYTES];
        self.file.read_exact_at(&mut bytes, page_at(number)).map_err(short(&self.path))?;
        reads.heads += 1;
        let head = unpack_head(&bytes, self.trailer.number, number as u32)
            .map_err(|damage| damage.at(&self.path))?;
        if let Some(kept) = self.heads.get(partition) {
            // Another thread may have been faster, with the same bytes.
            drop(kept.set(head.keep()));
        }
        Ok(self.pages_to_read(head, partition, key))
    }

    /// Where `key` is according to a page, or between which of its records it would be.
    fn find_in_page(
        &self,
        partition: usize,
        page: usize,
        key: &Key,
        reads: &mut Reads,
    ) -> Result<Result<Value, usize>> {
        let number = head_number(partition as u64) + 1 + page as u64;
        let mut bytes = [0; PAGE_BYTES];
        self.file.read_exact_at(&mut bytes, page_at(number)).map_err(short(&self.path))?;
        reads.pages += 1;
        Ok(self.unpack(&bytes, partition as u64, page)?.find(key))
    }

    /// All records in the order of their keys, read in a stream.
    pub(crate) fn scan(&self) -> Scan<'_> {
        Scan { segment: self, buffer: Vec::new(), partitions: 0, page: 0, at: 0 }
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
        size_of_val(&self.firsts[..]) + size_of_val(&self.heads[..])
    }

    /// The records of page `page` of `partition`.
    fn unpack<'a>(&self, bytes: &'a PageBytes, partition: u64, page: usize) -> Result<Page<'a>> {
        let number = head_number(partition) + 1 + page as u64;
        let count = self.trailer.page_records(partition, page);
        unpack_page(bytes, self.trailer.number, number as u32, count)
            .map_err(|damage| damage.at(&self.path))
    }
}

/// The bytes of a key that filters take.
pub(crate) fn filter_key(key: &Key) -> u64 {
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
    /// The partition being given: its head, and its pages, each checked.
    buffer: Vec<u8>,
    /// How many partitions were read.
    partitions: u64,
    /// The page of the partition being given, and how many of its records are given.
    page: usize,
    at: usize,
}

impl Scan<'_> {
    fn advance(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(bytes) = self.buffer.as_chunks().0.get(1 + self.page) {
                // The first partition is read before the first page of it is looked at.
                let count = self.segment.trailer.page_records(self.partitions - 1, self.page);
                if let Some(record) = checked_page(bytes, count).get(self.at) {
                    self.at += 1;
                    return Ok(Some(record));
                }
                self.page += 1;
                self.at = 0;
            } else if self.partitions < self.segment.trailer.partitions() {
                self.read_partition()?;
            } else {
                return Ok(None);
            }
        }
    }

    /// Reads the next partition and checks its pages. Its head is read with them, so that the file
    /// is read without gaps.
    fn read_partition(&mut self) -> Result<()> {
        let segment = self.segment;
        let pages = segment.trailer.partition_pages(self.partitions);
        let begin = page_at(head_number(self.partitions));
        self.buffer.resize((1 + pages) * PAGE_BYTES, 0);
        let read = segment.file.read_exact_at(&mut self.buffer, begin);
        read.map_err(short(&segment.path))?;
        for (page, bytes) in self.buffer.as_chunks().0[1..].iter().enumerate() {
            segment.unpack(bytes, self.partitions, page)?;
        }
        self.partitions += 1;
        self.page = 0;
        self.at = 0;
        Ok(())
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.advance().transpose()
    }
}
