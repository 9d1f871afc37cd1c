//! Streaming, resistance to shifts, and the lengths of chunks.

use std::collections::HashSet;

use proptest::prelude::*;
use strongroom_chunk::{AlignedChunker, Chunker, Key, Limits, LimitsError, PAGE_BYTES};

use crate::{ends, lcg_bytes};

fn chunker() -> Chunker {
    Chunker::new(Limits::DEFAULT, Key::PUBLIC)
}

fn aligned() -> AlignedChunker {
    AlignedChunker::new(Limits::DEFAULT, Key::PUBLIC).expect("the default limits are whole pages")
}

fn mean_kib<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> f64 {
    let lengths: Vec<usize> = chunks.map(<[u8]>::len).collect();
    lengths.iter().sum::<usize>() as f64 / lengths.len() as f64 / 1024.0
}

/// How many per cent of the chunks of `new` are also chunks of `old`.
fn shared_percent<'a>(
    old: impl Iterator<Item = &'a [u8]>,
    new: impl Iterator<Item = &'a [u8]>,
) -> f64 {
    let old: HashSet<&[u8]> = old.collect();
    let new: Vec<&[u8]> = new.collect();
    let shared = new.iter().filter(|chunk| old.contains(*chunk)).count();
    100.0 * shared as f64 / new.len() as f64
}

proptest! {
    /// Feeding a stream in pieces of any size gives the cuts of the whole stream.
    #[test]
    fn feeding_does_not_matter(
        stream in prop::collection::vec(0u8..8, 0..6000),
        pieces in prop::collection::vec(1usize..700, 1..20),
        min in 8usize..400, extra in 0usize..600,
    ) {
        let limits = Limits::new(min, min + extra).unwrap();
        let chunker = Chunker::new(limits, Key::PUBLIC);
        let whole = ends(chunker.split(&stream));
        let mut fed = Vec::new();
        let (mut begin, mut end) = (0, 0);
        for piece in pieces.iter().cycle() {
            end = stream.len().min(end + piece);
            // The end of the stream is noticed only by a further read that finds nothing.
            while let Some(length) = chunker.cut(&stream[begin..end], false) {
                begin += length;
                fed.push(begin);
            }
            if end == stream.len() {
                break;
            }
        }
        while let Some(length) = chunker.cut(&stream[begin..], true) {
            begin += length;
            fed.push(begin);
        }
        prop_assert_eq!(fed, whole);
    }

    /// Chunks are the stream, within the limits, and no longer than the target when last.
    #[test]
    fn chunks_cover_the_stream(length in 0usize..400_000, seed: u64) {
        let stream = lcg_bytes(seed, length);
        for chunks in [
            chunker().split(&stream).collect::<Vec<_>>(),
            aligned().split(&stream).collect::<Vec<_>>(),
        ] {
            prop_assert_eq!(chunks.concat(), &stream[..]);
            if let Some((last, others)) = chunks.split_last() {
                prop_assert!(!last.is_empty() && last.len() <= Limits::DEFAULT.max());
                for chunk in others {
                    prop_assert!((48 << 10..=80 << 10).contains(&chunk.len()));
                }
            }
        }
        for end in ends(aligned().split(&stream)) {
            prop_assert!(end == length || end.is_multiple_of(PAGE_BYTES));
        }
    }
}

#[test]
fn a_stream_of_the_target_is_one_chunk() {
    for length in [1, 100, 48 << 10, 64 << 10] {
        let stream = lcg_bytes(3, length);
        assert_eq!(chunker().cut(&stream, true), Some(length));
        assert_eq!(chunker().cut(&stream, false), None);
        assert_eq!(aligned().cut(&stream, true), Some(length));
    }
    assert_eq!(chunker().cut(&[], true), None);
}

/// A chunk is decided by `max` bytes: what follows them, even the end, does not matter.
#[test]
fn max_bytes_decide() {
    let stream = lcg_bytes(4, 300_000);
    let max = Limits::DEFAULT.max();
    let cut = chunker().cut(&stream, false);
    assert!(cut.is_some());
    assert_eq!(chunker().cut(&stream[..max], false), cut);
    assert_eq!(chunker().cut(&stream[..max], true), cut);
    assert_eq!(chunker().cut(&stream[..max - 1], false), None);
}

#[test]
fn equal_limits_cut_evenly() {
    let limits = Limits::new(PAGE_BYTES, PAGE_BYTES).unwrap();
    let stream = lcg_bytes(5, 3 * PAGE_BYTES + 1);
    let expected = [4096, 8192, 12288, 12289];
    assert_eq!(ends(Chunker::new(limits, Key::PUBLIC).split(&stream)), expected);
    assert_eq!(ends(AlignedChunker::new(limits, Key::PUBLIC).unwrap().split(&stream)), expected);
}

#[test]
fn impossible_limits_are_refused() {
    assert_eq!(Limits::new(7, 9), Err(LimitsError::OutOfOrder { min: 7, max: 9 }));
    assert!(Limits::new(10, 9).is_err());
    assert!(Limits::new(8, (1 << 30) + 1).is_err());
    let odd = Limits::new(PAGE_BYTES, PAGE_BYTES + 1).unwrap();
    assert!(matches!(AlignedChunker::new(odd, Key::PUBLIC), Err(LimitsError::NotAligned { .. })));
}

#[test]
fn one_byte_inserted_near_the_front() {
    for seed in 0..8 {
        let old = lcg_bytes(seed, 4 << 20);
        let mut new = old.clone();
        new.insert(1000 + 37 * seed as usize, 0x5a);
        let shared = shared_percent(chunker().split(&old), chunker().split(&new));
        assert!(shared > 90.0, "seed {seed}: {shared:.1} %");
    }
}

#[test]
fn one_page_inserted_near_the_front_of_an_image() {
    for seed in 0..8 {
        let old = lcg_bytes(seed, 4 << 20);
        let mut new = lcg_bytes(99, PAGE_BYTES);
        new.extend(&old);
        let shared = shared_percent(aligned().split(&old), aligned().split(&new));
        assert!(shared > 85.0, "seed {seed}: {shared:.1} %");
    }
}

/// Another key cuts elsewhere, so without the key the lengths of chunks reveal nothing.
#[test]
fn another_key_cuts_elsewhere() {
    let stream = lcg_bytes(6, 8 << 20);
    let other = Chunker::new(Limits::DEFAULT, Key::from_bytes(b"any key!"));
    let shared = shared_percent(chunker().split(&stream), other.split(&stream));
    assert!(shared < 2.0, "{shared:.1} %");
}

#[test]
fn mean_length_of_random_data() {
    let stream = lcg_bytes(7, 64 << 20);
    for mean in [mean_kib(chunker().split(&stream)), mean_kib(aligned().split(&stream))] {
        assert!((57.6..=70.4).contains(&mean), "{mean:.1} KiB");
    }
    for seed in 0..20 {
        let chunker = Chunker::new(Limits::DEFAULT, Key::from_bytes(&[seed * 11 + 1; 8]));
        let mean = mean_kib(chunker.split(&stream));
        assert!((57.6..=70.4).contains(&mean), "key {seed}: {mean:.1} KiB");
    }
}

/// Runs of zeros, long or short, between data: no minimum lies in them.
#[test]
fn zero_runs_do_not_force_short_chunks() {
    for run in [512, 4 << 10, 20 << 10] {
        let mut stream = lcg_bytes(8, 32 << 20);
        for piece in stream.chunks_mut(24 << 10) {
            let length = run.min(piece.len());
            piece[..length].fill(0);
        }
        for mean in [mean_kib(chunker().split(&stream)), mean_kib(aligned().split(&stream))] {
            assert!((57.6..=70.4).contains(&mean), "runs of {run}: {mean:.1} KiB");
        }
    }
}

/// A zero page is a cut only when every candidate is one.
#[test]
fn a_zero_page_is_never_the_minimum() {
    for keep in 0..9 {
        let mut image = vec![0; 160 << 10];
        let page = (11 + keep) * PAGE_BYTES;
        image[page + 17] = 1;
        assert_eq!(aligned().cut(&image, true), Some(page + PAGE_BYTES));
    }
    assert_eq!(aligned().cut(&vec![0; 160 << 10], true), Some(48 << 10));
    assert_eq!(chunker().cut(&vec![0; 160 << 10], true), Some(48 << 10));
}
