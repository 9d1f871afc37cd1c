//! Golden vectors: these cut points are format law. A change that fails here needs a new algorithm
//! id, not new numbers. The numbers come from a second implementation, in Python.

use strongroom_chunk::{AlignedChunker, Chunker, Key, Limits};

use crate::{ends, lcg_bytes};

/// 512 KiB of the generator seeded with 1; the third quarter is overwritten by text of a period
/// that is no power of two, the page at 300 KiB by zeros.
fn stream() -> Vec<u8> {
    let mut stream = lcg_bytes(1, 512 << 10);
    let text = b"what was acknowledged can be restored; ";
    for (at, byte) in stream[256 << 10..384 << 10].iter_mut().enumerate() {
        *byte = text[at % text.len()];
    }
    stream[300 << 10..304 << 10].fill(0);
    stream
}

fn keyed() -> Key {
    Key::from_bytes(&[0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe])
}

#[test]
fn anywhere_public_key() {
    let cuts = ends(Chunker::new(Limits::DEFAULT, Key::PUBLIC).split(&stream()));
    assert_eq!(cuts, ANYWHERE_PUBLIC);
}

#[test]
fn anywhere_secret_key() {
    let cuts = ends(Chunker::new(Limits::DEFAULT, keyed()).split(&stream()));
    assert_eq!(cuts, ANYWHERE_SECRET);
}

#[test]
fn anywhere_small_chunks() {
    let limits = Limits::new(1000, 9001).unwrap();
    let cuts = ends(Chunker::new(limits, keyed()).split(&lcg_bytes(7, 50_000)));
    assert_eq!(cuts, ANYWHERE_SMALL);
}

#[test]
fn aligned_public_key() {
    let chunker = AlignedChunker::new(Limits::DEFAULT, Key::PUBLIC).unwrap();
    assert_eq!(ends(chunker.split(&stream())), ALIGNED_PUBLIC);
}

#[test]
fn aligned_secret_key() {
    let chunker = AlignedChunker::new(Limits::DEFAULT, keyed()).unwrap();
    assert_eq!(ends(chunker.split(&stream())), ALIGNED_SECRET);
}

const ANYWHERE_PUBLIC: &[usize] =
    &[54173, 127356, 180881, 233184, 307206, 356376, 424361, 492506, 524288];
const ANYWHERE_SECRET: &[usize] =
    &[49675, 110902, 175908, 252912, 302086, 351265, 430878, 481571, 524288];
const ANYWHERE_SMALL: &[usize] =
    &[8493, 10272, 11667, 13908, 16539, 20095, 28635, 34968, 36288, 44843, 49028, 50000];
const ALIGNED_PUBLIC: &[usize] =
    &[77824, 135168, 212992, 270336, 327680, 385024, 446464, 520192, 524288];
const ALIGNED_SECRET: &[usize] = &[65536, 135168, 212992, 294912, 376832, 438272, 491520, 524288];
