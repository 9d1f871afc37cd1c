//! Clusters that are chained by a table: what FAT and exFAT have in common.
//!
//! Every walk along a chain is bounded: a chain has at most all clusters, and one that leads back
//! into itself is found after a few rounds (Brent's algorithm), without a list of what was seen.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use strongroom_base::ByteCache;

use crate::error::{DiskError, Result};
use crate::file_system::{Piece, Source};
use crate::read::{ReadAt, read_vec};

/// Bytes of the table that are read at once: a multiple of 3, so that no entry of 12 bits is in two.
pub(crate) const PAGE_BYTES: u64 = 12 << 10;
const CACHE_BYTES: usize = 2 << 20;
/// Places in chains that are remembered, so that a file that is read in parts is not followed from
/// its start each time.
const BOOKMARKS_BYTES: usize = 64 << 10;
/// Bytes of a directory that are read at once.
const READ_BYTES: u64 = 64 << 10;

/// The number of the first cluster.
pub(crate) const FIRST: u32 = 2;

/// The width of an entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// FAT12.
    Bits12,
    /// FAT16.
    Bits16,
    /// FAT32, which leaves four bits unused.
    Bits28,
    /// exFAT.
    Bits32,
}

/// What an entry of the table says of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// No file has it.
    Free,
    /// The chain goes on with this cluster.
    Next(u32),
    /// It is the last of its chain.
    End,
    /// It is defect, or the entry is invalid.
    Bad,
}

/// Where clusters are, and the table that chains them. The table and the clusters are on the volume.
pub(crate) struct Clusters<'a> {
    pub reader: &'a dyn ReadAt,
    pub width: Width,
    /// Where the table is.
    pub table: Range<u64>,
    /// How many clusters there are.
    pub count: u32,
    pub cluster_bytes: u64,
    /// Where the first of them is.
    pub start: u64,
    pages: ByteCache<u64, Arc<[u8]>>,
    bookmarks: ByteCache<u32, Bookmark>,
}

/// A cluster of a chain, and which of the chain it is.
#[derive(Debug, Clone, Copy)]
struct Bookmark {
    index: u64,
    cluster: u32,
}

/// The clusters of a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The first cluster.
    pub first: u32,
    /// How many clusters follow each other, and the table is not asked; `None` if it is.
    pub consecutive: Option<u64>,
}

/// Consecutive clusters of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first of them, counted in the chain.
    pub index: u64,
    pub cluster: u32,
    pub count: u64,
}

/// The size of a file, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub chain: Chain,
    pub bytes: u64,
    /// What is behind these was allocated and never written.
    pub written: u64,
}

impl Width {
    fn bits(self) -> u64 {
        match self {
            Self::Bits12 => 12,
            Self::Bits16 => 16,
            Self::Bits28 | Self::Bits32 => 32,
        }
    }

    /// Entries of a page.
    pub(crate) fn per_page(self) -> u64 {
        PAGE_BYTES * 8 / self.bits()
    }

    /// The entry of a page.
    pub(crate) fn entry(self, page: &[u8], index: u64) -> u32 {
        let at = (index * self.bits() / 8) as usize;
        let bytes = page.get(at..).unwrap_or_default();
        let byte = |n: usize| u32::from(bytes.get(n).copied().unwrap_or(0));
        let pair = byte(0) | byte(1) << 8;
        match self {
            Self::Bits12 if index.is_multiple_of(2) => pair & 0xfff,
            Self::Bits12 => pair >> 4,
            Self::Bits16 => pair,
            Self::Bits28 => (pair | byte(2) << 16 | byte(3) << 24) & 0x0fff_ffff,
            Self::Bits32 => pair | byte(2) << 16 | byte(3) << 24,
        }
    }

    /// What an entry means if there are `count` clusters.
    pub(crate) fn link(self, entry: u32, count: u32) -> Link {
        let last = match self {
            Self::Bits12 => 0xfff,
            Self::Bits16 => 0xffff,
            Self::Bits28 => 0x0fff_ffff,
            Self::Bits32 => u32::MAX,
        };
        match entry {
            0 => Link::Free,
            next if next >= FIRST && next - FIRST < count => Link::Next(next),
            // The seven values above a defect cluster's all end a chain.
            end if end >= last - 7 => Link::End,
            _ => Link::Bad,
        }
    }
}

impl<'a> Clusters<'a> {
    pub(crate) fn new(
        reader: &'a dyn ReadAt,
        (width, table): (Width, Range<u64>),
        (start, count, cluster_bytes): (u64, u32, u64),
    ) -> Self {
        let (pages, bookmarks) = (ByteCache::new(CACHE_BYTES), ByteCache::new(BOOKMARKS_BYTES));
        Self { reader, width, table, count, cluster_bytes, start, pages, bookmarks }
    }

    /// Where a cluster begins in the volume.
    pub(crate) fn place(&self, cluster: u32) -> u64 {
        self.start + u64::from(cluster.saturating_sub(FIRST)) * self.cluster_bytes
    }

    /// A page of the table, from another copy of it if `table` says so.
    pub(crate) fn page(&self, table: &Range<u64>, page: u64) -> Result<Vec<u8>> {
        let start = table.start + page * PAGE_BYTES;
        read_vec(self.reader, start, table.end.saturating_sub(start).min(PAGE_BYTES) as usize)
    }

    /// What the table says of a cluster.
    pub(crate) fn link(&self, cluster: u32) -> Result<Link> {
        let per_page = self.width.per_page();
        let (page, index) = (u64::from(cluster) / per_page, u64::from(cluster) % per_page);
        let bytes = match self.pages.get(&page) {
            Some(known) => known,
            None => {
                let bytes: Arc<[u8]> = self.page(&self.table, page)?.into();
                self.pages.put(page, bytes.clone(), bytes.len());
                bytes
            }
        };
        Ok(self.width.link(self.width.entry(&bytes, index), self.count))
    }

    pub(crate) fn check(&self, cluster: u32, count: u64) -> Result<()> {
        let index = u64::from(cluster).checked_sub(FIRST.into());
        let end = index.and_then(|index| index.checked_add(count));
        match end {
            Some(end) if end <= self.count.into() => Ok(()),
            _ => Err(DiskError::damaged("a cluster outside of the volume", cluster.into())),
        }
    }

    /// Gives the clusters of a chain in a range of its clusters, in order. With a range without an
    /// end, the chain ends where the table says so; otherwise it must not end before the range.
    pub(crate) fn runs(
        &self,
        chain: Chain,
        range: Range<u64>,
        take: &mut dyn FnMut(Run) -> ControlFlow<()>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.check(chain.first, 1)?;
        if let Some(count) = chain.consecutive {
            let end = range.end.min(count);
            self.check(chain.first, count)?;
            if range.end != u64::MAX && range.end > count {
                return Err(DiskError::damaged(
                    "a chain ends early, by cluster",
                    chain.first.into(),
                ));
            }
            if range.start < end {
                let cluster = chain.first + range.start as u32;
                let _ = take(Run { index: range.start, cluster, count: end - range.start });
            }
            return Ok(());
        }
        self.linked(chain.first, range, take)
    }

    fn linked(
        &self,
        first: u32,
        range: Range<u64>,
        take: &mut dyn FnMut(Run) -> ControlFlow<()>,
    ) -> Result<()> {
        let known = self.bookmarks.get(&first).filter(|mark| mark.index <= range.start);
        let mut at = known.unwrap_or(Bookmark { index: 0, cluster: first });
        // A cluster that is met again; replaced after twice as many steps each time.
        let (mut mark, mut mark_until) = (at.cluster, at.index + 1);
        let mut run: Option<Run> = None;
        loop {
            if at.index == range.start {
                self.bookmarks.put(first, at, 0);
            }
            if at.index >= range.start {
                match &mut run {
                    Some(run) if u64::from(run.cluster) + run.count == u64::from(at.cluster) => {
                        run.count += 1;
                    }
                    _ => {
                        let begun = Run { index: at.index, cluster: at.cluster, count: 1 };
                        if let Some(done) = run.replace(begun)
                            && take(done).is_break()
                        {
                            return Ok(());
                        }
                    }
                }
            }
            if at.index + 1 >= range.end {
                break;
            }
            match self.link(at.cluster)? {
                Link::Next(next) => at = Bookmark { index: at.index + 1, cluster: next },
                Link::End if range.end == u64::MAX => break,
                Link::End => {
                    return Err(DiskError::damaged("a chain ends early, by cluster", first.into()));
                }
                Link::Free | Link::Bad => {
                    return Err(DiskError::damaged("a chain is broken, by cluster", first.into()));
                }
            }
            if at.cluster == mark || at.index >= self.count.into() {
                return Err(DiskError::damaged("a chain leads back, by cluster", first.into()));
            }
            if at.index == mark_until {
                (mark, mark_until) = (at.cluster, at.index * 2 + 1);
            }
        }
        self.bookmarks.put(first, at, 0);
        if let Some(run) = run {
            let _ = take(run);
        }
        Ok(())
    }

    /// Gives the 32 bytes of each entry of a directory that is a chain, with its place in the volume.
    pub(crate) fn slots(&self, chain: Chain, bytes_max: u64, take: &mut Slots<'_>) -> Result<()> {
        let mut result = Ok(());
        self.runs(chain, 0..u64::MAX, &mut |run| {
            let (before, bytes) = (run.index * self.cluster_bytes, run.count * self.cluster_bytes);
            let start = self.place(run.cluster);
            let wanted = bytes.min(bytes_max.saturating_sub(before));
            match slots(self.reader, start..start + wanted, take) {
                Ok(ControlFlow::Continue(())) if wanted == bytes => ControlFlow::Continue(()),
                Ok(_) => ControlFlow::Break(()),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }

    /// Gives the parts of a file that have bytes in a range.
    pub(crate) fn pieces(
        &self,
        content: &Content,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = range.end.min(content.bytes);
        if range.start >= end {
            return Ok(());
        }
        let clusters = range.start / self.cluster_bytes..end.div_ceil(self.cluster_bytes);
        self.runs(content.chain, clusters, &mut |run| {
            let offset = run.index * self.cluster_bytes;
            let bytes = (run.count * self.cluster_bytes).min(content.bytes - offset);
            let place = self.place(run.cluster);
            let pieces = Piece::of_volume(offset, bytes, place, content.written);
            let in_range =
                |piece: &Piece| piece.offset < end && range.start < piece.offset + piece.bytes;
            pieces.into_iter().flatten().filter(in_range).try_for_each(&mut *take)
        })
    }

    /// Reads a file from `offset` on. Returns how many bytes there were.
    pub(crate) fn read(&self, content: &Content, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = content.bytes.saturating_sub(offset).min(buffer.len() as u64);
        let buffer = &mut buffer[..bytes as usize];
        buffer.fill(0);
        let end = offset + bytes;
        let mut result = Ok(bytes as usize);
        self.pieces(content, offset..end, &mut |piece| {
            let Source::Volume(place) = piece.source else { return ControlFlow::Continue(()) };
            let (from, to) = (piece.offset.max(offset), (piece.offset + piece.bytes).min(end));
            let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            match self.reader.read_at(place + (from - piece.offset), part) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    result = Err(error.into());
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }
}

/// Takes the place of an entry of a directory in the volume, and its 32 bytes.
pub(crate) type Slots<'t> = dyn FnMut(u64, &[u8]) -> ControlFlow<()> + 't;

/// Gives the entries in consecutive bytes of a directory.
pub(crate) fn slots(
    reader: &dyn ReadAt,
    place: Range<u64>,
    take: &mut Slots<'_>,
) -> Result<ControlFlow<()>> {
    let mut at = place.start;
    while at < place.end {
        let bytes = read_vec(reader, at, (place.end - at).min(READ_BYTES) as usize)?;
        for slot in bytes.as_chunks::<32>().0 {
            if take(at, slot).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            at += 32;
        }
        // Directories are whole sectors; anything else ends here.
        if bytes.len() % 32 != 0 {
            break;
        }
    }
    Ok(ControlFlow::Continue(()))
}
