//! Both chunkers against their reference, over streams and limits of the fuzzer's making.
//!
//! The fast path of this processor cuts where the reference does. No chunk is empty or too long,
//! and only the last is too short. Together they are the stream, and feeding the stream piece by
//! piece changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_chunk::{AlignedChunker, Chunker, Key, Limits, PAGE_BYTES, reference};
use strongroom_fuzz::{Input, write_seeds_if_asked};

const STREAM_BYTES_MAX: usize = 64 << 10;

/// The fast path is given a stream of about this many candidates, but one longer than a chunk:
/// short chunks under a long limit would take it a second.
const CANDIDATES_MAX: usize = 1 << 24;

/// The reference is asked until it has weighed this many candidates.
const REFERENCE_CANDIDATES_MAX: usize = 1 << 20;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    let mode = input.u8();
    let key = Key::from_bytes(&input.array());
    let (least, span) = (usize::from(input.u16()), usize::from(input.u16()));
    let feed = 1 + usize::from(input.u16());
    let stream = stream(&mut input);
    if mode & 1 == 0 {
        // Below eight bytes no window fits; that such limits are refused is a promise too.
        match Limits::new(least, least + span) {
            Ok(limits) => check_content(limits, key, &stream, feed),
            Err(_) => assert!(least < Limits::MIN_BYTES),
        }
    } else {
        let (least, span) = (1 + least % 5, span % 5);
        let limits = Limits::new(least * PAGE_BYTES, (least + span) * PAGE_BYTES);
        check_aligned(limits.expect("pages are long enough"), key, &stream, feed);
    }
});

/// Runs, noise and bytes as they are, one after another.
fn stream(input: &mut Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() && stream.len() < STREAM_BYTES_MAX {
        let length = usize::from(input.u16() & 0x3fff);
        let is_plain = input.u8() & 1 == 0;
        let piece = if is_plain { input.bytes(length).to_vec() } else { input.expanded(length) };
        stream.extend(piece);
    }
    stream.truncate(STREAM_BYTES_MAX);
    stream
}

fn check_content(limits: Limits, key: Key, stream: &[u8], feed: usize) {
    let candidates = limits.max() - limits.min() + 1;
    let longest = (CANDIDATES_MAX / candidates * limits.min()).max(limits.max() + 1);
    let stream = &stream[..longest.min(stream.len())];
    let chunker = Chunker::new(limits, key);
    let chunks: Vec<&[u8]> = chunker.split(stream).collect();
    check_chunks(&chunks, limits, stream);
    check_feeding(&chunks, stream, feed, |window, at_end| chunker.cut(window, at_end));
    let mut rest = stream;
    for chunk in chunks.iter().take(REFERENCE_CANDIDATES_MAX / candidates) {
        assert_eq!(reference::cut(limits, key, rest), Some(chunk.len()));
        rest = &rest[chunk.len()..];
    }
    assert_eq!(reference::cut(limits, key, rest).is_none(), rest.is_empty());
}

fn check_aligned(limits: Limits, key: Key, stream: &[u8], feed: usize) {
    let chunker = AlignedChunker::new(limits, key).expect("the limits are multiples of the page");
    let chunks: Vec<&[u8]> = chunker.split(stream).collect();
    check_chunks(&chunks, limits, stream);
    check_feeding(&chunks, stream, feed, |window, at_end| chunker.cut(window, at_end));
    let mut rest = stream;
    for chunk in &chunks {
        assert_eq!(reference::cut_aligned(limits, key, rest), Some(chunk.len()));
        rest = &rest[chunk.len()..];
        assert!(rest.is_empty() || chunk.len().is_multiple_of(PAGE_BYTES));
    }
    let unaligned = Limits::new(limits.min(), limits.max() + 1).expect("a little longer");
    assert!(AlignedChunker::new(unaligned, key).is_err());
}

fn check_chunks(chunks: &[&[u8]], limits: Limits, stream: &[u8]) {
    assert_eq!(chunks.concat(), stream);
    assert!(chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= limits.max()));
    if let Some((_, all_but_last)) = chunks.split_last() {
        assert!(all_but_last.iter().all(|chunk| chunk.len() >= limits.min()));
    }
}

/// The same cuts if the stream comes in pieces and a cut is asked for after each.
fn check_feeding(
    chunks: &[&[u8]],
    stream: &[u8],
    feed: usize,
    cut: impl Fn(&[u8], bool) -> Option<usize>,
) {
    let (mut begin, mut end) = (0, 0);
    for chunk in chunks {
        let length = loop {
            if let Some(length) = cut(&stream[begin..end], end == stream.len()) {
                break length;
            }
            assert!(end < stream.len(), "at the end every byte is cut");
            end = (end + feed).min(stream.len());
        };
        assert_eq!(length, chunk.len());
        begin += length;
    }
    assert_eq!(cut(&stream[begin..], true), None);
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |mode: u8, least: u16, span: u16, pieces: &[u8]| {
        let mut seed = vec![mode, 0xf5, 0x77, 0x5f, 0x91, 0xb1, 0x79, 0x37, 0x9e];
        seed.extend(least.to_le_bytes());
        seed.extend(span.to_le_bytes());
        seed.extend(300_u16.to_le_bytes());
        seed.extend(pieces);
        seed
    };
    let noise = [0xff, 0x1f, 1, 0x80, 7];
    let runs = [0xff, 0x0f, 1, 0, 0xff, 0x3f, 1, 3, 1, 2, 3, 0, 0x30, 1, 0x80, 1];
    vec![
        with(0, 8, 0, &noise),
        with(0, 64, 64, &noise),
        with(0, 1000, 3000, &runs),
        with(0, 7, 1, &[5, 0, 0, 1, 2, 3, 4, 5]),
        with(1, 0, 0, &noise),
        with(1, 1, 3, &[noise, noise, noise, noise].concat()),
        with(1, 0, 4, &[&runs[..], &runs].concat()),
    ]
}
