//! Writes from aligned memory to aligned offsets, as a kernel requires of writes that go past its
//! cache (`O_DIRECT`).

use std::cell::RefCell;
use std::io::{ErrorKind, IoSlice, Result};
use std::ops::Range;

/// Such writes begin and end at multiples of this, in the file and in memory. No disk requires
/// more.
const ALIGNMENT: usize = 4096;

/// They are made in pieces of this many bytes: a disk is no faster with larger ones.
const PIECE_BYTES: usize = 1 << 20;

thread_local! {
    /// The memory in which pieces are aligned. It is kept because new memory costs more than the
    /// copying.
    static MEMORY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes `parts`, which follow each other from `offset` on, between multiples of 4096 bytes, as
/// long as `write` accepts them. Returns which bytes were written, counted from the beginning of
/// the first part. The caller writes the bytes before and after them through the cache.
///
/// `write` is given a piece and its offset in the file, and returns how much of it was written.
///
/// # Errors
/// The error of `write`. Two kinds of errors are not returned: an interrupted write is repeated,
/// and an error that says that such writes are impossible ends them.
pub fn write_aligned(
    offset: u64,
    parts: &[IoSlice<'_>],
    mut write: impl FnMut(&[u8], u64) -> Result<usize>,
) -> Result<Range<usize>> {
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    let place = (offset % ALIGNMENT as u64) as usize;
    let begin = place.next_multiple_of(ALIGNMENT) - place;
    let end = ((place + bytes) / ALIGNMENT * ALIGNMENT).saturating_sub(place);
    if begin >= end {
        return Ok(0..0);
    }
    let mut done = begin;
    MEMORY.with_borrow_mut(|memory| {
        memory.resize(PIECE_BYTES + ALIGNMENT, 0);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        while done < end && (done - begin).is_multiple_of(ALIGNMENT) {
            let piece = &mut memory[start..][..PIECE_BYTES.min(end - done)];
            let mut filled = 0;
            for part in cut(parts, done..done + piece.len()) {
                piece[filled..filled + part.len()].copy_from_slice(part);
                filled += part.len();
            }
            match write(piece, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        Ok(begin..done)
    })
}

/// The bytes of a range of parts that follow each other.
pub fn cut<'p>(
    parts: &'p [IoSlice<'_>],
    range: Range<usize>,
) -> impl Iterator<Item = &'p [u8]> + use<'p> {
    let mut begin = 0;
    parts.iter().filter_map(move |part| {
        let from = range.start.saturating_sub(begin).min(part.len());
        let to = range.end.saturating_sub(begin).min(part.len());
        begin += part.len();
        (from < to).then(|| &part[from..to])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 2 * PIECE_BYTES + 3 * ALIGNMENT + 7;

    fn content() -> Vec<u8> {
        (0..BYTES).map(|place| (place % 251) as u8).collect()
    }

    /// Writes `content()` to a place, cut into some parts, on a disk that answers as `answer` says.
    /// Returns which of it was written.
    fn write_to(
        offset: u64,
        part_bytes: usize,
        mut answer: impl FnMut(usize) -> Result<usize>,
    ) -> Result<Range<usize>> {
        let content = content();
        let parts: Vec<_> = content.chunks(part_bytes).map(IoSlice::new).collect();
        let mut there = Vec::new();
        let mut first = None;
        let written = write_aligned(offset, &parts, |piece, place| {
            assert_eq!(piece.as_ptr().align_offset(ALIGNMENT), 0);
            assert!(place.is_multiple_of(ALIGNMENT as u64));
            assert!(piece.len().is_multiple_of(ALIGNMENT));
            assert_eq!(place, *first.get_or_insert(place) + there.len() as u64);
            let count = answer(piece.len())?;
            there.extend_from_slice(&piece[..count]);
            Ok(count)
        })?;
        if let Some(first) = first {
            assert_eq!(first, offset + written.start as u64);
        }
        assert!(there == content[written.clone()]);
        Ok(written)
    }

    fn write(answer: impl FnMut(usize) -> Result<usize>) -> Result<Range<usize>> {
        write_to(0, BYTES, answer)
    }

    #[test]
    fn all_but_unaligned_ends_is_written() {
        let aligned_end = 2 * PIECE_BYTES + 3 * ALIGNMENT;
        assert_eq!(write(Ok).unwrap(), 0..aligned_end);
        for part_bytes in [1, 100, ALIGNMENT, ALIGNMENT + 1, PIECE_BYTES + 5] {
            assert_eq!(write_to(3 << 40, part_bytes, Ok).unwrap(), 0..aligned_end);
            assert_eq!(write_to(4095, part_bytes, Ok).unwrap(), 1..aligned_end + 1);
            assert_eq!(write_to(4089, part_bytes, Ok).unwrap(), 7..aligned_end + 7);
            let (begin, end) = (ALIGNMENT - 1, aligned_end - 1);
            assert_eq!(write_to(4097, part_bytes, Ok).unwrap(), begin..end);
        }
    }

    #[test]
    fn parts_without_an_aligned_block_are_left_alone() {
        let content = content();
        for (offset, bytes) in [(0, 0), (0, 4095), (1, 4095), (1, 8190), (4095, 4096), (77, 4096)] {
            let parts = [IoSlice::new(&content[..bytes])];
            let written = write_aligned(offset, &parts, |_, _| unreachable!());
            assert!(written.unwrap().is_empty(), "{bytes} bytes at {offset}");
        }
    }

    #[test]
    fn after_a_short_write_the_rest_follows_if_it_is_aligned() {
        let some = |bytes: usize| Ok(bytes.min(5 * ALIGNMENT));
        assert_eq!(write(some).unwrap(), 0..2 * PIECE_BYTES + 3 * ALIGNMENT);
        // After a part of a sector only writes through the cache can continue.
        assert_eq!(write(|bytes| Ok(bytes - 100)).unwrap(), 0..PIECE_BYTES - 100);
        assert!(write(|_| Ok(0)).unwrap().is_empty());
    }

    #[test]
    fn a_file_system_that_refuses_leaves_the_rest_to_the_cache() {
        let mut calls = 0;
        let mut nth = |n: usize, kind: ErrorKind| {
            calls = 0;
            write(|bytes| {
                calls += 1;
                if calls == n { Err(kind.into()) } else { Ok(bytes) }
            })
        };
        assert_eq!(nth(2, ErrorKind::InvalidInput).unwrap(), 0..PIECE_BYTES);
        let all = 0..2 * PIECE_BYTES + 3 * ALIGNMENT;
        assert_eq!(nth(1, ErrorKind::Interrupted).unwrap(), all);
        let full = nth(2, ErrorKind::StorageFull).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn parts_are_cut_anywhere() {
        let text = b"the quick brown fox";
        let parts = [&text[..4], &text[4..4], &text[4..5], &text[5..]].map(IoSlice::new);
        for begin in 0..=text.len() {
            for end in begin..=text.len() {
                let got: Vec<u8> = cut(&parts, begin..end).flatten().copied().collect();
                assert_eq!(got, text[begin..end]);
            }
        }
    }
}
