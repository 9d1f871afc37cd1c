//! Writing a segment, record by record.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::error::Context;
use crate::format::{
    PAGE_BYTES, PAGE_RECORDS, PARTITION_PAGES_MAX, PARTITION_RECORDS_MAX, Trailer, head_number,
    pack_head, pack_header, pack_page, pack_prefixes, packed_checksum,
};
use crate::segment::{Segment, filter_key};
use crate::step::step;
use crate::{Record, Result, key_prefix};

/// How much is written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A segment being written.
///
/// Holds a buffer, the partition being filled, and eight bytes for each partition that is complete:
/// memory does not grow otherwise.
pub(crate) struct SegmentWriter {
    file: BufWriter<File>,
    path: PathBuf,
    number: u64,
    records: u64,
    /// The records of the page being filled: fewer than a page's.
    page: Vec<Record>,
    /// Of the partition being filled: its complete pages, the prefix of the first key of each page,
    /// and the keys for its filter.
    pages: Vec<u8>,
    prefixes: Vec<u64>,
    filter_keys: Vec<u64>,
    /// The prefix of the first key of each complete partition.
    firsts: Vec<u64>,
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
            pages: Vec::with_capacity(PARTITION_PAGES_MAX * PAGE_BYTES),
            prefixes: Vec::with_capacity(PARTITION_PAGES_MAX),
            filter_keys: Vec::with_capacity(PARTITION_RECORDS_MAX),
            firsts: Vec::new(),
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
            self.prefixes.push(key_prefix(&record.key));
        }
        self.filter_keys.push(filter_key(&record.key));
        self.page.push(record);
        self.records += 1;
        if self.page.len() == PAGE_RECORDS {
            self.end_page();
            if self.prefixes.len() == PARTITION_PAGES_MAX {
                self.end_partition()?;
            }
        }
        Ok(())
    }

    /// Writes what is left and seals the segment, which has at least one record.
    pub(crate) fn finish(mut self) -> Result<Segment> {
        assert!(self.records > 0, "an empty segment is never written");
        if !self.page.is_empty() {
            self.end_page();
        }
        if !self.prefixes.is_empty() {
            self.end_partition()?;
        }
        let directory = pack_prefixes(&self.firsts);
        let trailer = Trailer {
            number: self.number,
            records: self.records,
            directory_checksum: crc32c::crc32c(&directory),
        };
        let trailer_bytes = trailer.pack();
        self.write(&directory)?;
        step().context("write", &self.path)?;
        self.write(&trailer_bytes)?;
        let SegmentWriter { file, path, firsts, .. } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        let file = file.context("write", &path)?;
        Ok(Segment::written(file, path, trailer, packed_checksum(&trailer_bytes), firsts))
    }

    /// The number, in the file, of the head of the partition being filled.
    fn head_number(&self) -> u64 {
        head_number(self.firsts.len() as u64)
    }

    fn end_page(&mut self) {
        // The page has its prefix already: the first is the one after the head.
        let number = self.head_number() + self.prefixes.len() as u64;
        let number = u32::try_from(number).expect("pages are numbered by 32 bits");
        self.pages.extend(pack_page(&self.page, self.number, number));
        self.page.clear();
    }

    fn end_partition(&mut self) -> Result<()> {
        let number = u32::try_from(self.head_number()).expect("pages are numbered by 32 bits");
        let head = pack_head(&self.prefixes, &mut self.filter_keys, self.number, number);
        self.write(&head)?;
        self.file.write_all(&self.pages).context("write", &self.path)?;
        self.firsts.push(self.prefixes[0]);
        self.pages.clear();
        self.prefixes.clear();
        self.filter_keys.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).context("write", &self.path)
    }
}
