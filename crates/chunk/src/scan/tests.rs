//! Every path of every chunker against the reference, bit for bit.

use proptest::prelude::*;

use super::{BLOCK_WINDOWS, Path};
use crate::{AlignedChunker, Chunker, Key, Limits, PAGE_BYTES, reference};

/// Bytes of a kind that is hard somewhere: random, few-valued (ties), runs, or zeros.
fn stream(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let length = 0..=bytes_max;
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), length.clone()),
        2 => prop::collection::vec(0u8..2, length.clone()),
        2 => prop::collection::vec((any::<u8>(), 1usize..600), 0..=bytes_max / 200).prop_map(
            |runs| runs.into_iter().flat_map(|(byte, count)| vec![byte; count]).collect()
        ),
        1 => length.prop_map(|length| vec![0; length]),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![any::<[u8; 8]>().prop_map(|bytes| Key::from_bytes(&bytes)), Just(Key::PUBLIC)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// All lengths, and all alignments by starting `skip` bytes into the buffer.
    #[test]
    fn anywhere_as_the_reference(
        stream in stream(9000), key in key(), min in 8usize..3000, extra in 0usize..5000,
        skip in 0usize..64,
    ) {
        let limits = Limits::new(min, min + extra).unwrap();
        let rest = &stream[skip.min(stream.len())..];
        let expected = reference::cut(limits, key, rest);
        for path in Path::available() {
            let chunker = Chunker::new(limits, key).on(path);
            prop_assert_eq!(chunker.cut(rest, true), expected, "{:?}", path);
        }
    }

    #[test]
    fn aligned_as_the_reference(
        pages in prop::collection::vec((0usize..12, any::<u32>()), 0..12), tail in 0usize..PAGE_BYTES,
        key in key(), min in 1usize..4, extra in 0usize..6, skip in 0usize..64,
    ) {
        let limits = Limits::new(min * PAGE_BYTES, (min + extra) * PAGE_BYTES).unwrap();
        let mut stream = vec![0xa5; skip];
        for (kind, seed) in pages {
            let mut page = vec![0; PAGE_BYTES];
            match kind {
                0 | 1 => {}
                2 => page.fill(seed as u8),
                3 => page[seed as usize % PAGE_BYTES] = 1,
                _ => fill(&mut page, seed),
            }
            stream.extend(page);
        }
        stream.extend(vec![7; tail]);
        let rest = &stream[skip..];
        let expected = reference::cut_aligned(limits, key, rest);
        for path in Path::available() {
            let chunker = AlignedChunker::new(limits, key).unwrap().on(path);
            prop_assert_eq!(chunker.cut(rest, true), expected, "{:?}", path);
        }
    }
}

/// Every length around the edges of a block, where the vector loop hands over to the plain one.
#[test]
fn every_length_around_a_block() {
    let mut stream = vec![0; 2 * BLOCK_WINDOWS + 40];
    fill(&mut stream, 5);
    let edges = (8..48).chain(BLOCK_WINDOWS - 20..BLOCK_WINDOWS + 24).chain(2 * BLOCK_WINDOWS..);
    for length in edges.take_while(|length| *length <= stream.len()) {
        let limits = Limits::new(8, length).unwrap();
        let rest = &stream[..length];
        let expected = reference::cut(limits, Key::PUBLIC, rest);
        for path in Path::available() {
            assert_eq!(Chunker::new(limits, Key::PUBLIC).on(path).cut(rest, true), expected);
        }
    }
}

/// The same smallest window twice: the earlier is the cut, in one block and across blocks.
#[test]
fn the_earliest_of_equals() {
    for distance in [9, 100, BLOCK_WINDOWS - 1, BLOCK_WINDOWS, 3 * BLOCK_WINDOWS + 5] {
        let mut stream = vec![0; 8 * BLOCK_WINDOWS];
        let first = 500;
        for at in [first, first + distance] {
            stream[at..at + 8].copy_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0]);
        }
        let limits = Limits::new(8, stream.len()).unwrap();
        let expected = reference::cut(limits, Key::PUBLIC, &stream);
        for path in Path::available() {
            let cut = Chunker::new(limits, Key::PUBLIC).on(path).cut(&stream, true);
            assert_eq!(cut, expected);
            assert!(cut < Some(first + 17));
        }
    }
}

fn fill(bytes: &mut [u8], seed: u32) {
    let mut state = u64::from(seed);
    for byte in bytes {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8;
    }
}
