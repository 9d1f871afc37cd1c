//! From a byte of the disk to the cluster that holds it: the tables of both levels.

use crate::fields::be64;
use crate::image::caches::{PIECE_BYTES, Piece};
use crate::image::error::{ImageError, ImageResult};

use super::Qcow2;

/// Bits of an entry that are the place of a cluster or a table.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// The place is used by nothing else. With a data file, also: there is a cluster at place 0.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros.
const ZERO: u64 = 1 << 0;
const SUBCLUSTERS: u32 = 32;

/// Where the bytes of a part of the disk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// From this byte of the file, or of the data file, on.
    Stored(u64),
    /// A whole cluster, compressed. At most this many bytes, as only whole sectors are counted.
    Compressed {
        offset: u64,
        bytes: u32,
    },
    Zeros,
    /// What the backing file has, or zeros.
    Backing,
}

/// Consecutive bytes of the disk with one kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u64,
    pub end: u64,
    pub content: Content,
}

impl Extent {
    /// The place of a byte of it in the file.
    pub(super) fn stored_at(&self, at: u64) -> Option<u64> {
        match self.content {
            Content::Stored(place) => Some(place + (at - self.start)),
            _ => None,
        }
    }

    /// Both can be read at once.
    fn continues_with(&self, next: &Self) -> bool {
        match (self.content, next.content) {
            (Content::Stored(_), Content::Stored(place)) => {
                self.stored_at(next.start) == Some(place)
            }
            (Content::Zeros, Content::Zeros) | (Content::Backing, Content::Backing) => true,
            _ => false,
        }
    }
}

/// Walks through the tables. It keeps what it looked at last.
pub(super) struct Cursor<'q> {
    image: &'q Qcow2,
    piece: Option<Piece>,
    /// The index and place of a table of the second level.
    table: Option<(u64, Option<u64>)>,
    /// Entries that were looked at.
    pub steps: u64,
}

impl<'q> Cursor<'q> {
    pub(super) fn new(image: &'q Qcow2) -> Self {
        Self { image, piece: None, table: None, steps: 0 }
    }

    /// What begins at `start`, up to `end` at most, or until `steps_max` entries were looked at.
    /// `start` is before `end`, and `end` not behind the end of the disk.
    pub(super) fn extent(&mut self, start: u64, end: u64, steps_max: u64) -> ImageResult<Extent> {
        let mut extent = self.step(start, end)?;
        while extent.end < end && self.steps < steps_max {
            let next = self.step(extent.end, end)?;
            if !extent.continues_with(&next) {
                break;
            }
            extent.end = next.end;
        }
        Ok(extent)
    }

    /// What one entry says of the bytes from `start` on.
    fn step(&mut self, start: u64, end: u64) -> ImageResult<Extent> {
        self.steps += 1;
        let header = &self.image.header;
        let reach_bits = header.table_reach_bits();
        let reach = start >> reach_bits;
        let Some(table) = self.table(reach)? else {
            let end = ((reach + 1) << reach_bits).min(end);
            return Ok(Extent { start, end, content: Content::Backing });
        };
        let cluster_bytes = header.cluster_bytes();
        let index = (start & ((1 << reach_bits) - 1)) >> header.cluster_bits;
        let at = table + index * header.entry_bytes();
        let (entry, bitmap) = self.entry(table, at)?;
        let cluster = start & !(cluster_bytes - 1);
        let inside = start - cluster;
        let (content, until) = if entry & COMPRESSED != 0 {
            (self.compressed(entry, at)?, cluster_bytes)
        } else if header.has_subclusters {
            self.subcluster(entry, bitmap, inside, at)?
        } else {
            (self.whole(entry, inside, at)?, cluster_bytes)
        };
        Ok(Extent { start, end: (cluster + until).min(end), content })
    }

    /// The table of the second level; `None` if nothing in its reach is in this image.
    fn table(&mut self, index: u64) -> ImageResult<Option<u64>> {
        if let Some((known, table)) = self.table
            && known == index
        {
            return Ok(table);
        }
        let header = &self.image.header;
        let at = header.l1_offset + index * 8;
        let table = self.image.table_entry((header.l1_offset, header.l1_end()), at)? & PLACE;
        if !table.is_multiple_of(header.cluster_bytes()) {
            return Err(self.damaged("a table of the second level is at an invalid place", at));
        }
        let table = (table != 0).then_some(table);
        self.table = Some((index, table));
        Ok(table)
    }

    /// An entry of a table of the second level, and what follows it: its second half, if it is
    /// extended.
    fn entry(&mut self, table: u64, at: u64) -> ImageResult<(u64, u64)> {
        if self.piece.as_ref().is_none_or(|piece| piece.from(at).is_empty()) {
            let end = table + self.image.header.cluster_bytes();
            self.piece = Some(self.image.table_piece((table, end), at)?);
        }
        let bytes = self.piece.as_ref().map_or(&[][..], |piece| piece.from(at));
        Ok((be64(bytes, 0), be64(bytes, 8)))
    }

    /// A compressed cluster: the high bits are sectors behind the first, the low bits the place.
    fn compressed(&self, entry: u64, at: u64) -> ImageResult<Content> {
        if self.image.header.data_file.is_some() {
            return Err(self.damaged("a compressed cluster in an image with a data file", at));
        }
        let place_bits = 62 - (self.image.header.cluster_bits - 8);
        let offset = entry & ((1 << place_bits) - 1);
        let sectors = 1 + ((entry & (COMPRESSED - 1)) >> place_bits);
        let bytes = sectors * 512 - offset % 512;
        Ok(Content::Compressed { offset, bytes: bytes as u32 })
    }

    fn whole(&self, entry: u64, inside: u64, at: u64) -> ImageResult<Content> {
        if entry & ZERO != 0 {
            if self.image.header.version < 3 {
                return Err(self.damaged("a cluster of zeros in an image of version 2", at));
            }
            return Ok(Content::Zeros);
        }
        let place = self.place(entry, at)?;
        Ok(place.map_or(Content::Backing, |place| Content::Stored(place + inside)))
    }

    /// The subcluster at a byte of the cluster, and with it all that follow and are alike. Returns
    /// the byte of the cluster behind them, too.
    fn subcluster(
        &self,
        entry: u64,
        bitmap: u64,
        inside: u64,
        at: u64,
    ) -> ImageResult<(Content, u64)> {
        let (stored, zeros) = (bitmap as u32, (bitmap >> 32) as u32);
        let place = self.place(entry, at)?;
        if stored & zeros != 0 || (place.is_none() && stored != 0) {
            return Err(self.damaged("an extended entry contradicts itself", at));
        }
        let subcluster_bytes = self.image.header.cluster_bytes() / u64::from(SUBCLUSTERS);
        let first = (inside / subcluster_bytes) as u32;
        let alike = |bits: u32| (bits >> first).trailing_ones();
        let (content, count) = match place {
            Some(place) if alike(stored) > 0 => (Content::Stored(place + inside), alike(stored)),
            _ if alike(zeros) > 0 => (Content::Zeros, alike(zeros)),
            _ => (Content::Backing, alike(!(stored | zeros)).min(SUBCLUSTERS - first)),
        };
        Ok((content, u64::from(first + count) * subcluster_bytes))
    }

    /// The place of a cluster, if it has one.
    fn place(&self, entry: u64, at: u64) -> ImageResult<Option<u64>> {
        let place = entry & PLACE;
        if !place.is_multiple_of(self.image.header.cluster_bytes()) {
            return Err(self.damaged("a cluster is at an invalid place", at));
        }
        let is_first = self.image.header.data_file.is_some() && entry & COPIED != 0;
        Ok((place != 0 || is_first).then_some(place))
    }

    fn damaged(&self, what: &'static str, at: u64) -> ImageError {
        ImageError::damaged(&self.image.path, what, at)
    }
}

impl Qcow2 {
    /// The eight bytes at `at` of a table that begins and ends at these bytes of the file.
    pub(super) fn table_entry(&self, table: (u64, u64), at: u64) -> ImageResult<u64> {
        Ok(be64(self.table_piece(table, at)?.from(at), 0))
    }

    fn table_piece(&self, table: (u64, u64), at: u64) -> ImageResult<Piece> {
        self.caches.piece(self.layer, &*self.file, &self.path, table, at)
    }

    /// Checks that the file has room for the tables of the second level that the first names, so
    /// that a few bytes cannot describe a disk that takes for ever to walk.
    pub(super) fn check_tables(&self) -> ImageResult<()> {
        let room = self.file.size() / self.header.cluster_bytes();
        let (mut at, end) = (self.header.l1_offset, self.header.l1_end());
        let (mut tables, mut buffer) = (0, vec![0; PIECE_BYTES as usize]);
        while at < end {
            let part = &mut buffer[..(end - at).min(PIECE_BYTES) as usize];
            self.read_file(at, part)?;
            let named = part.chunks_exact(8).filter(|entry| be64(entry, 0) & PLACE != 0);
            tables += named.count() as u64;
            at += part.len() as u64;
        }
        if tables > room {
            let what = "there are more tables of the second level than the file has room for";
            return Err(ImageError::damaged(&self.path, what, self.header.l1_offset));
        }
        Ok(())
    }
}
