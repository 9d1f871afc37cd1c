//! What the parent has of a disk where the disk says that nothing was written since: it is named
//! again, and read from the disk no more. A sample of it is read all the same, another each day, as
//! what notes the writes can be wrong.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use strongroom_catalog::{ChunkRef, Recipe, RecipeCursor, RecipeReader};
use strongroom_disk::{Image, ReadAt};
use strongroom_repository::{ChunkReader, ChunkWriter, RepositoryError};

use super::plan::{Content, Segment};

/// The sample: windows of this size.
const SAMPLE_WINDOW_BYTES: u64 = 1 << 20;
/// Each day has one of this many windows. Which one, a hash of the day says: with any interval
/// between backups, each window is looked at in one of fifty of them on average.
const SAMPLE_PART: u64 = 50;
/// The last chunks that are kept are in the sample every day, this many that follow none that is equal
/// (zeros of a file may be the last ones). A disk that was made smaller and larger again since has
/// other bytes there, and what notes the writes may not note that: QEMU forgets what was behind the
/// end, and nothing is written when the disk grows.
const LAST_SAMPLED: usize = 4;
/// Chunks of the parent that are kept decoded, while file systems are read.
const CHUNKS_KEPT: usize = 64;

/// What the parent has of a disk, and where the disk may differ from it.
pub struct Unchanged<'r> {
    content: Recipe,
    /// Sorted, without overlap.
    changed: Vec<Range<u64>>,
    reader: &'r ChunkReader,
    /// Which windows are looked at.
    day: u64,
    holes_are_zeros: bool,
    /// Where chunks begin that are in the sample in any case.
    last: VecDeque<u64>,
    /// Chunks that are kept are released.
    releases_kept: bool,
}

impl<'r> Unchanged<'r> {
    /// `content` is the disk in the parent; nothing outside of `changed` was written since. On which
    /// day it is depends what is in the sample. `holes_are_zeros` says that the parent left out
    /// nothing but zeros. Otherwise its holes prove nothing: what was free then can have the bytes
    /// of something that exists now, as these reach a disk before what refers to them.
    pub fn new(
        content: &Recipe,
        changed: &[Range<u64>],
        reader: &'r ChunkReader,
        (day, holes_are_zeros): (u64, bool),
    ) -> Self {
        let (content, changed) = (content.clone(), changed.to_vec());
        let mut unchanged = Self {
            content,
            changed,
            reader,
            day,
            holes_are_zeros,
            last: VecDeque::new(),
            releases_kept: true,
        };
        unchanged.tidy();
        unchanged
    }

    /// Sorts the ranges, and joins those that touch.
    fn tidy(&mut self) {
        self.changed.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in self.changed.drain(..).filter(|range| !range.is_empty()) {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        self.changed = joined;
    }

    /// Has the disk keep everything of chunks that are kept: the parent could not be read, and file
    /// systems read some of them again.
    pub fn keep_on_disk(&mut self) {
        self.releases_kept = false;
    }

    /// Finds which chunks of a plan exist no more: they are read like what was written. Then says
    /// what of the disk is not going to be read, and returns it, in ascending order. The rest of a
    /// chunk that was written in part is not released, although the parent should have it: that shows
    /// only when the parent is read, and a part that was released is lost.
    ///
    /// # Errors
    ///
    /// The repository cannot say which chunks exist.
    pub fn settle(
        &mut self,
        plan: impl Iterator<Item = Segment>,
        image: &dyn Image,
        writer: &ChunkWriter<'_>,
    ) -> Result<Vec<Range<u64>>, RepositoryError> {
        let (mut missing, mut unread) = (Vec::new(), Vec::<Range<u64>>::new());
        let mut release = |range: Range<u64>| match unread.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => unread.push(range),
        };
        let mut last = VecDeque::<(ChunkRef, Range<u64>)>::new();
        let mut note_last = |chunk: ChunkRef, range: Range<u64>| {
            if last.back().is_none_or(|(before, _)| before.fingerprint != chunk.fingerprint) {
                last.push_back((chunk, range));
            }
            if last.len() > LAST_SAMPLED {
                last.pop_front();
            }
        };
        for segment in self.keep(plan) {
            let range = segment.range();
            match segment.content {
                Content::Kept { chunk, .. } if !writer.is_present(&chunk)? => missing.push(range),
                Content::Kept { chunk, is_sampled } => {
                    note_last(chunk, range.clone());
                    if !is_sampled && self.releases_kept {
                        release(range);
                    }
                }
                Content::Zeros => release(range),
                Content::File(..) | Content::Other => {}
            }
        }
        last.iter().for_each(|(_, range)| take_out(&mut unread, range));
        self.last = last.into_iter().map(|(_, range)| range.start).collect();
        self.changed.append(&mut missing);
        self.tidy();
        unread.iter().for_each(|range| image.release(range.clone()));
        Ok(unread)
    }

    /// Gives the parts of a range that were not written.
    fn each_unchanged(&self, range: Range<u64>, give: &mut dyn FnMut(Range<u64>)) {
        let mut at = range.start;
        while at < range.end {
            let (end, is_unchanged) = self.part(at);
            let end = end.min(range.end);
            if is_unchanged {
                give(at..end);
            }
            at = end;
        }
    }

    fn chunks(&self) -> Chunks<'_> {
        Chunks { reader: RecipeReader::new(&self.content, self.reader), next: None }
    }

    /// The same plan, in which what the parent has is kept.
    pub fn keep<P: Iterator<Item = Segment>>(&self, plan: P) -> Kept<'_, P> {
        Kept { unchanged: self, plan, rest: None, chunks: self.chunks() }
    }

    /// Whether nothing of a range was written.
    fn has(&self, range: &Range<u64>) -> bool {
        let after = self.changed.partition_point(|changed| changed.end <= range.start);
        self.changed.get(after).is_none_or(|changed| changed.start >= range.end)
            && range.end <= self.content.stream_bytes()
    }

    /// How far from `offset` on the disk is either like the parent, or may differ from it: the end
    /// of that part, and whether it is like the parent.
    fn part(&self, offset: u64) -> (u64, bool) {
        let end = self.content.stream_bytes();
        if offset >= end {
            return (u64::MAX, false);
        }
        let after = self.changed.partition_point(|changed| changed.end <= offset);
        match self.changed.get(after) {
            Some(changed) if changed.start <= offset => (changed.end, false),
            Some(changed) => (changed.start.min(end), true),
            None => (end, true),
        }
    }

    fn is_sampled(&self, offset: u64) -> bool {
        offset / SAMPLE_WINDOW_BYTES % SAMPLE_PART == part_of(self.day)
            || self.last.contains(&offset)
    }
}

/// Which part of the windows is the sample of a day.
fn part_of(day: u64) -> u64 {
    let hash = blake3::hash(&day.to_le_bytes());
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash is longer");
    u64::from_le_bytes(*first) % SAMPLE_PART
}

/// Takes a range out of those that are sorted and contain it.
fn take_out(ranges: &mut Vec<Range<u64>>, out: &Range<u64>) {
    let at = ranges.partition_point(|range| range.end <= out.start);
    if let Some(found) = ranges.get(at).filter(|found| found.start <= out.start).cloned() {
        let parts = [found.start..out.start, out.end..found.end];
        ranges.splice(at..=at, parts.into_iter().filter(|part| !part.is_empty()));
    }
}

/// The chunks of the parent's disk, in order. What of them cannot be read is as if there was none.
struct Chunks<'r> {
    reader: RecipeReader<'r, ChunkReader>,
    next: Option<(u64, ChunkRef)>,
}

impl Chunks<'_> {
    /// The first chunk that ends behind `offset`. It begins behind it, too, if the one there cannot be read.
    fn behind(&mut self, offset: u64) -> Option<(u64, ChunkRef)> {
        if self.next.is_none_or(|(start, chunk)| start + chunk.stream_bytes <= offset) {
            self.reader.seek_forward(offset).ok()?;
            self.next = self.reader.next_chunk().ok().flatten();
        }
        self.next
    }
}

/// A plan in which what the parent has is kept.
pub struct Kept<'k, P> {
    unchanged: &'k Unchanged<'k>,
    plan: P,
    /// What is left of the segment at hand.
    rest: Option<Segment>,
    chunks: Chunks<'k>,
}

impl<P> Kept<'_, P> {
    /// The first part of a segment that is taken over from the parent, and what it is then.
    fn first_kept(&mut self, segment: &Segment) -> Option<Segment> {
        let Range { start, end } = segment.range();
        let mut at = start;
        while at < end {
            let (offset, chunk) = self.chunks.behind(at)?;
            let range = offset..offset + chunk.stream_bytes;
            if chunk.is_hole() {
                if let Some(hole) = self.hole(segment, range.start.max(at)..range.end.min(end)) {
                    let bytes = hole.end - hole.start;
                    return Some(Segment { start: hole.start, bytes, content: Content::Zeros });
                }
            } else if range.start >= start && range.end <= end && self.unchanged.has(&range) {
                let is_sampled = self.unchanged.is_sampled(offset);
                let content = Content::Kept { chunk, is_sampled };
                return Some(Segment { start: offset, bytes: chunk.stream_bytes, content });
            }
            at = range.end;
        }
        None
    }

    /// The first part of a hole of the parent that stays one. The content of a file is read in any
    /// case: its recipe needs chunks.
    fn hole(&self, segment: &Segment, range: Range<u64>) -> Option<Range<u64>> {
        if !self.unchanged.holes_are_zeros || segment.content != Content::Other {
            return None;
        }
        let mut first = None;
        self.unchanged.each_unchanged(range, &mut |part| {
            first.get_or_insert(part);
        });
        first
    }
}

impl<P: Iterator<Item = Segment>> Iterator for Kept<'_, P> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let segment = self.rest.take().or_else(|| self.plan.next())?;
        if !segment.content.is_read() {
            return Some(segment);
        }
        let Some(kept) = self.first_kept(&segment) else { return Some(segment) };
        let Range { start, end } = kept.range();
        if start > segment.start {
            // What is before it is read.
            let (before, rest) = segment.split(start);
            self.rest = Some(rest);
            return Some(before);
        }
        if end < segment.range().end {
            self.rest = Some(segment.split(end).1);
        }
        Some(kept)
    }
}

/// What the parent has at a place.
enum FromParent {
    /// This many bytes were read.
    Read(usize),
    /// This many bytes are not in it: they need not be zeros on the disk.
    Hole(usize),
    /// It cannot be read.
    Nothing,
}

/// A disk of which what was not written is read from the parent: where a chunk was written in part
/// the rest of it, and the file systems' own structures.
pub struct Patched<'p> {
    image: &'p dyn Image,
    /// Nothing, if the disk does not say what was written.
    unchanged: Option<Unchanged<'p>>,
    /// What the disk gives no more, in ascending order.
    released: OnceLock<Vec<Range<u64>>>,
    /// A part of the parent could not be read.
    has_failed: AtomicBool,
    /// Chunks that were read last, the latest at the end.
    // A plain mutex: held to copy a few kilobytes.
    chunks: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl<'p> Patched<'p> {
    /// Over a disk.
    pub fn new(image: &'p dyn Image, unchanged: Option<Unchanged<'p>>) -> Self {
        let (released, chunks) = (OnceLock::new(), Mutex::new(Vec::new()));
        Self { image, unchanged, released, has_failed: AtomicBool::new(false), chunks }
    }

    /// Whether a part of the parent could not be read so far, which the disk was read for instead.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Says what the disk gives no more: what nothing needs, and chunks of the parent that are kept.
    pub fn set_released(&self, released: Vec<Range<u64>>) {
        self.released.get_or_init(|| released);
    }

    /// Reads from the disk itself. What was released of it is zeros, as in what is stored: nothing
    /// needs its content, but a file system whose journal is replayed reads the place of a block
    /// before it takes the newer one.
    fn read_needed(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let released = self.released.get().map(Vec::as_slice).unwrap_or_default();
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let next = released.get(released.partition_point(|range| range.end <= at));
            let left = rest.len() as u64;
            let (count, is_there) = match next {
                Some(range) if range.start <= at => ((range.end - at).min(left), false),
                Some(range) => ((range.start - at).min(left), true),
                None => (left, true),
            };
            let (part, behind) = rest.split_at_mut(count as usize);
            match is_there {
                true => self.image.read_at(at, part)?,
                false => part.fill(0),
            }
            (at, rest) = (at + count, behind);
        }
        Ok(())
    }

    /// The disk itself.
    pub fn image(&self) -> &'p dyn Image {
        self.image
    }

    /// Reads from the parent, at most up to the end of a chunk.
    fn read_parent(&self, unchanged: &Unchanged<'_>, at: u64, buffer: &mut [u8]) -> FromParent {
        if let Some(count) = self.read_kept(at, buffer) {
            return FromParent::Read(count);
        }
        let mut cursor = RecipeCursor::new(&unchanged.content);
        let next = cursor.seek_forward(at, unchanged.reader);
        let next = next.and_then(|()| cursor.next_chunk(unchanged.reader));
        let Ok(Some((start, chunk))) = next else { return FromParent::Nothing };
        if chunk.is_hole() {
            let left = start + chunk.stream_bytes - at;
            return FromParent::Hole(left.min(buffer.len() as u64) as usize);
        }
        let Ok(bytes) = unchanged.reader.read_data(&chunk) else { return FromParent::Nothing };
        let mut chunks = self.chunks.lock().expect("no holder panics");
        if chunks.len() >= CHUNKS_KEPT {
            chunks.remove(0);
        }
        chunks.push((start, bytes));
        drop(chunks);
        self.read_kept(at, buffer).map_or(FromParent::Nothing, FromParent::Read)
    }

    /// Reads from the chunks that were read last.
    fn read_kept(&self, at: u64, buffer: &mut [u8]) -> Option<usize> {
        let mut chunks = self.chunks.lock().expect("no holder panics");
        let holds =
            |(start, bytes): &(u64, Vec<u8>)| *start <= at && at < start + bytes.len() as u64;
        let place = chunks.iter().rposition(holds)?;
        let found = chunks.remove(place);
        let rest = &found.1[usize::try_from(at - found.0).ok()?..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        chunks.push(found);
        Some(count)
    }
}

impl ReadAt for Patched<'_> {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(unchanged) = &self.unchanged else { return self.image.read_at(offset, buffer) };
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (end, is_unchanged) = unchanged.part(at);
            let count = (end - at).min(rest.len() as u64) as usize;
            let part = &mut rest[..count];
            let parent = is_unchanged.then(|| self.read_parent(unchanged, at, part));
            let count = match parent {
                Some(FromParent::Read(count)) => count,
                Some(FromParent::Hole(count)) => {
                    self.read_needed(at, &mut part[..count])?;
                    count
                }
                // The disk still has it: it was released only if all before could be read.
                Some(FromParent::Nothing) => {
                    self.has_failed.store(true, Ordering::Relaxed);
                    self.image.read_at(at, part)?;
                    count
                }
                None => {
                    self.read_needed(at, part)?;
                    count
                }
            };
            at += count as u64;
            rest = &mut rest[count..];
        }
        Ok(())
    }
}

impl Image for Patched<'_> {
    fn broken(&self) -> Option<String> {
        self.image.broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_is_in_the_sample_with_any_interval_between_backups() {
        for interval in [1, 2, 5, 7, 10, 25, 50, 100] {
            let mut counts = [0; SAMPLE_PART as usize];
            for night in 0..5000 {
                counts[part_of(20_000 + night * interval) as usize] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least >= 60 && *most <= 150, "{interval}: {counts:?}");
        }
    }
}
