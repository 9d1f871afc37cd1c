//! The index itself: the table, the segments, and when the one becomes the other.
//!
//! Invariants:
//!
//! * `segments` are in the order of age, oldest first, and the table is newer than all: the first
//!   place where a key is found, from the newest on, is right.
//! * Other handles see a change only after `flush` (by the manifest), `clear` and `reset`.
//! * A file that a committed manifest names is removed only after the next commit.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::directory::Directory;
use crate::merge::{Merge, Source, due};
use crate::segment::{Reads, Segment};
use crate::segment_writer::SegmentWriter;
use crate::table::Table;
use crate::{Key, Record, Result, Value};

/// How many records the table holds before it is spilled to a segment: seven eighths of 2^18, which
/// fills a hash set of 2^18 slots (10 MiB).
pub const TABLE_RECORDS_MAX: usize = (1 << 18) / 8 * 7;

/// How many heads of partitions are kept in memory (16 MiB): all those of twelve million records.
pub const HEADS_MAX: usize = 1 << 12;

/// Fingerprint to location; see the [crate's documentation](crate).
///
/// Look-ups take `&self` and may run on many threads; changes take `&mut self`.
pub struct Index {
    table: Table,
    table_records_max: usize,
    heads_max: usize,
    /// Oldest first. A reader's begin with those of the manifest, which it leaves alone.
    segments: Vec<Segment>,
    /// `None` when all is in memory.
    directory: Option<Directory>,
    /// Segments that the manifest in the directory names but the next one will not.
    replaced: Vec<u64>,
    /// What was committed with the contents when they were opened, until it is taken.
    note: Vec<u8>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    lookups: AtomicU64,
    filter_negatives: AtomicU64,
    page_reads: AtomicU64,
    head_reads: AtomicU64,
}

/// What an index holds and has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Records, those replaced by newer ones but not merged away yet included.
    pub records: u64,
    /// Segments, those not committed included.
    pub segments: usize,
    /// Bytes of the segments' files.
    pub disk_bytes: u64,
    /// Bytes of memory: the table, first keys, and room for the heads of partitions that are kept.
    pub memory_bytes: usize,
    /// Look-ups.
    pub lookups: u64,
    /// Look-ups answered "certainly new" without reading a page of records.
    pub filter_negatives: u64,
    /// Pages of records read by look-ups.
    pub page_reads: u64,
    /// Heads of partitions read by look-ups; one serves thirty pages.
    pub head_reads: u64,
}

impl Index {
    /// Opens the index in the directory at `path`, which is made if need be.
    ///
    /// # Errors
    ///
    /// [`IndexError::Damaged`](crate::IndexError::Damaged) when a file is not what was written;
    /// then [`Index::reset`] begins again with an empty index.
    pub fn open(path: &Path) -> Result<Index> {
        let mut directory = Directory::open(path)?;
        let (note, segments) = directory.load()?;
        if directory.is_writer() {
            let keep: Vec<u64> =
                segments.iter().map(|segment| segment.manifest_segment().number).collect();
            directory.sweep(&keep)?;
        }
        let mut index = Index { segments, note, ..Index::with_directory(Some(directory)) };
        index.share_memory();
        Ok(index)
    }

    /// Opens an empty index in the directory at `path`, even if that is damaged.
    ///
    /// If another handle is the writer, what is there stays, and this handle begins empty anyway.
    ///
    /// # Errors
    ///
    /// Only those of the operating system.
    pub fn reset(path: &Path) -> Result<Index> {
        let mut index = Index::with_directory(Some(Directory::open(path)?));
        index.clear()?;
        Ok(index)
    }

    /// An empty index without a directory. Its memory grows with what is inserted.
    #[must_use]
    pub fn in_memory() -> Index {
        Index::with_directory(None)
    }

    fn with_directory(directory: Option<Directory>) -> Index {
        Index {
            table: Table::default(),
            table_records_max: TABLE_RECORDS_MAX,
            heads_max: HEADS_MAX,
            segments: Vec::new(),
            directory,
            replaced: Vec::new(),
            note: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The same index, spilling its table at `records` (at least one) instead of
    /// [`TABLE_RECORDS_MAX`].
    #[must_use]
    pub fn with_table_records_max(self, records: usize) -> Index {
        Index { table_records_max: records.max(1), ..self }
    }

    /// The same index, keeping `heads` heads of partitions in memory instead of [`HEADS_MAX`].
    #[must_use]
    pub fn with_heads_max(self, heads: usize) -> Index {
        let mut index = Index { heads_max: heads, ..self };
        index.share_memory();
        index
    }

    /// Whether this handle changes the directory: it was the first to open it.
    #[must_use]
    pub fn is_writer(&self) -> bool {
        self.directory.as_ref().is_some_and(Directory::is_writer)
    }

    /// Where `key` is, as inserted last; `None` if it is not known.
    ///
    /// Reads no page of records for a key that is not known but for false positives (one in 256
    /// for each segment), and one for a key that is. Before that it reads a head of a partition in
    /// each segment, unless the head is in memory; heads are a thirtieth of the whole and asked
    /// again and again, so the system keeps them.
    ///
    /// # Errors
    ///
    /// When a page cannot be read, or is damaged; whether the key is known is open then.
    pub fn lookup(&self, key: &Key) -> Result<Option<Value>> {
        self.counters.lookups.fetch_add(1, Ordering::Relaxed);
        if let Some(location) = self.table.get(key) {
            return Ok(Some(location));
        }
        let mut reads = Reads::default();
        let mut found = None;
        for segment in self.segments.iter().rev() {
            found = segment.lookup(key, &mut reads)?;
            if found.is_some() {
                break;
            }
        }
        if reads.heads > 0 {
            self.counters.head_reads.fetch_add(reads.heads, Ordering::Relaxed);
        }
        match reads.pages {
            0 => self.counters.filter_negatives.fetch_add(1, Ordering::Relaxed),
            pages => self.counters.page_reads.fetch_add(pages, Ordering::Relaxed),
        };
        Ok(found)
    }

    /// Puts `key` at `location`, wherever it was before. Others see it after [`Index::flush`].
    ///
    /// # Errors
    ///
    /// When the table was full and could not be spilled. The record is in, nevertheless.
    pub fn insert(&mut self, key: &Key, location: Value) -> Result<()> {
        self.table.insert(*key, location);
        if self.table.len() >= self.table_records_max {
            self.seal()?;
            self.merge_when_due()?;
        }
        Ok(())
    }

    /// Commits all that was inserted, together with the caller's `note`.
    ///
    /// The note of a handle that is not the writer is lost.
    ///
    /// # Errors
    ///
    /// When a file cannot be written or, in a merge, read. What was committed before still is, and
    /// this handle still holds everything.
    pub fn flush(&mut self, note: &[u8]) -> Result<()> {
        if self.is_writer() {
            self.seal()?;
            self.merge_when_due()?;
            self.commit(note)?;
        }
        Ok(())
    }

    /// The note that `flush` was given with the contents that this handle opened; empty if there
    /// was none.
    ///
    /// It is returned once: a note may be long, and it need not be in memory twice.
    #[must_use]
    pub fn take_note(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.note)
    }

    /// Forgets everything, the note too; in the directory at once.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed.
    pub fn clear(&mut self) -> Result<()> {
        self.table.clear();
        self.segments.clear();
        self.replaced.clear();
        self.note = Vec::new();
        match &self.directory {
            Some(directory) if directory.is_writer() => {
                directory.remove_manifest()?;
                directory.sweep(&[])
            }
            _ => Ok(()),
        }
    }

    /// Drops each key whose location (the newest one) is not kept. Others see it after
    /// [`Index::flush`].
    ///
    /// # Errors
    ///
    /// When a segment cannot be read or the new one written; then nothing has changed.
    pub fn retain(&mut self, keep: impl Fn(Value) -> bool) -> Result<()> {
        if self.segments.is_empty() {
            self.table.retain(keep);
            return Ok(());
        }
        let mut sources: Vec<Source<'_>> = Vec::new();
        for segment in &self.segments {
            sources.push(Box::new(segment.scan()));
        }
        sources.push(Box::new(self.table.sorted().map(Ok)));
        let mut kept = Merge::new(sources)?
            .filter(|record| record.as_ref().map_or(true, |record| keep(record.location)))
            .peekable();
        let segment = match kept.peek() {
            None => None,
            Some(_) => write_segment(&mut kept, self.directory.as_mut())?,
        };
        // Nothing is left, unless nothing can be written here: then it stays in memory.
        let mut table = Table::default();
        for record in kept {
            let Record { key, location } = record?;
            table.insert(key, location);
        }
        self.table = table;
        self.replace_segments(0, segment);
        Ok(())
    }

    /// What it holds and has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            records: self.table.len() as u64,
            segments: self.segments.len(),
            disk_bytes: 0,
            memory_bytes: self.table.memory_bytes(),
            lookups: self.counters.lookups.load(Ordering::Relaxed),
            filter_negatives: self.counters.filter_negatives.load(Ordering::Relaxed),
            page_reads: self.counters.page_reads.load(Ordering::Relaxed),
            head_reads: self.counters.head_reads.load(Ordering::Relaxed),
        };
        for segment in &self.segments {
            stats.records += segment.records();
            stats.disk_bytes += segment.manifest_segment().file_bytes;
            stats.memory_bytes += segment.memory_bytes();
        }
        stats
    }

    /// Makes the table a segment, not committed. If nothing can be written here, the table stays
    /// and is no longer bounded.
    fn seal(&mut self) -> Result<()> {
        if self.table.len() == 0 {
            return Ok(());
        }
        let written = write_segment(self.table.sorted().map(Ok), self.directory.as_mut())?;
        match written {
            Some(segment) => {
                self.segments.push(segment);
                self.table.clear();
                self.share_memory();
            }
            None => self.table_records_max = usize::MAX,
        }
        Ok(())
    }

    fn merge_when_due(&mut self) -> Result<()> {
        // A reader's first segments are the writer's to merge.
        let first = match self.is_writer() {
            true => 0,
            false => self.segments.iter().take_while(|segment| segment.committed).count(),
        };
        let records: Vec<u64> = self.segments[first..].iter().map(Segment::records).collect();
        let Some(begin) = due(&records) else {
            return Ok(());
        };
        let begin = first + begin;
        let mut sources: Vec<Source<'_>> = Vec::new();
        for segment in &self.segments[begin..] {
            sources.push(Box::new(segment.scan()));
        }
        let merged = Merge::new(sources)?;
        if let Some(segment) = write_segment(merged, self.directory.as_mut())? {
            self.replace_segments(begin, Some(segment));
        }
        Ok(())
    }

    /// Puts `segment`, or nothing, in the place of the segments from `begin` on.
    fn replace_segments(&mut self, begin: usize, segment: Option<Segment>) {
        let replaced = self.segments.split_off(begin);
        self.segments.extend(segment);
        self.share_memory();
        let Some(directory) = self.directory.as_ref() else {
            return;
        };
        for segment in replaced {
            let number = segment.manifest_segment().number;
            if segment.committed {
                self.replaced.push(number);
            } else {
                directory.discard_segment(number);
            }
        }
    }

    /// Lets the newest segments keep the heads of their partitions in memory, at most as many as
    /// allowed. These segments are the smallest, so heads are read for one or two old segments
    /// only.
    fn share_memory(&mut self) {
        let mut left = self.heads_max;
        for segment in self.segments.iter_mut().rev() {
            left -= segment.keep_heads(left);
        }
    }

    fn commit(&mut self, note: &[u8]) -> Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let segments: Vec<_> = self.segments.iter().map(Segment::manifest_segment).collect();
        directory.commit(&segments, note)?;
        for segment in &mut self.segments {
            segment.committed = true;
        }
        for number in self.replaced.drain(..) {
            directory.discard_segment(number);
        }
        Ok(())
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("is_writer", &self.is_writer())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Writes `records`, of which there is at least one, in the order of their keys, to a new segment
/// in `directory`; `None` if nothing can be written there.
fn write_segment(
    records: impl Iterator<Item = Result<Record>>,
    directory: Option<&mut Directory>,
) -> Result<Option<Segment>> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    let Some(writer) = directory.create_segment()? else {
        return Ok(None);
    };
    let number = writer.number();
    let written = fill(writer, records);
    if written.is_err() {
        directory.discard_segment(number);
    }
    written.map(Some)
}

fn fill(
    mut writer: SegmentWriter,
    records: impl Iterator<Item = Result<Record>>,
) -> Result<Segment> {
    for record in records {
        writer.add(record?)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests;
