//! Applying a delta gives its chunk, a delta costs what changed, and hostile ones are refused.

use proptest::prelude::*;

use super::bytes::{Kind, take_number, take_ops};
use super::{Basis, DeltaError, Encoded, apply, start_in_basis};

/// A delta by the definition alone: for small chunks, with every match tried.
fn common_bytes(chunk: &[u8], basis: &[u8]) -> usize {
    let mut dp = vec![0_usize; basis.len() + 1];
    let mut best = 0;
    for new in chunk {
        for at in (0..basis.len()).rev() {
            dp[at + 1] = if basis[at] == *new { dp[at] + 1 } else { 0 };
            best = best.max(dp[at + 1]);
        }
    }
    best
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn index(basis: &[u8]) -> Basis {
    Basis::new(basis.to_vec(), vec![basis.len()])
}

/// The better delta, of any length, and that of copies alone; both must make the chunk.
fn deltas(chunk: &[u8], basis: &[u8]) -> [Vec<u8>; 2] {
    let index = index(basis);
    let best = index.encode(chunk, 0, usize::MAX).unwrap().bytes;
    let copies = index.copies(chunk, usize::MAX).bytes.unwrap();
    assert!(best.len() <= copies.len());
    for delta in [&best, &copies] {
        assert_eq!(apply(delta, basis, chunk.len()).unwrap(), chunk);
        if delta[0] == Kind::SameOffset as u8 {
            assert_eq!(plain_differences(&delta[1..], basis, chunk.len()), chunk);
        }
    }
    [best, copies]
}

fn delta(chunk: &[u8], basis: &[u8]) -> Vec<u8> {
    let [best, _] = deltas(chunk, basis);
    best
}

/// What differences mean, byte by byte, as the document defines it.
fn plain_differences(mut delta: &[u8], basis: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let start = take_number(&mut delta).unwrap() as usize;
    let (mut ops, differences) = take_ops(delta).unwrap();
    let mut is_different = Vec::new();
    while !ops.is_empty() {
        for different in [false, true] {
            let bytes = take_number(&mut ops).unwrap() as usize;
            is_different.resize(is_different.len() + bytes, different);
        }
    }
    is_different.resize(chunk_bytes, false);
    let mut differences = differences.iter();
    let byte = |(at, different): (usize, &bool)| {
        let old = basis.get(start + at).copied().unwrap_or(0);
        if *different { old ^ differences.next().unwrap() } else { old }
    };
    is_different.iter().enumerate().map(byte).collect()
}

#[test]
fn edges() {
    for basis in [0, 1, 15, 16, 17, 100] {
        for chunk in [0, 1, 15, 16, 17, 100] {
            delta(&noise(chunk, 1), &noise(basis, 2));
            delta(&noise(chunk, 1), &noise(basis, 1));
            delta(&vec![0; chunk], &vec![0; basis]);
        }
    }
}

#[test]
fn the_same_again_is_a_few_bytes() {
    let bytes = noise(70_000, 3);
    let [best, copies] = deltas(&bytes, &bytes);
    assert_eq!(best, [1, 0, 0]);
    assert_eq!(copies.len(), 1 + 1 + 1 + 3 + 1);
}

#[test]
fn what_changed_is_what_it_costs() {
    let basis = noise(150_000, 4);
    let mut chunk = basis[40_000..105_000].to_vec();
    chunk[1000] ^= 1;
    chunk[30_000..30_010].copy_from_slice(b"0123456789");
    chunk.splice(50_000..50_000, *b"some new text");
    chunk.drain(60_000..60_500);
    let delta = delta(&chunk, &basis);
    assert!(delta.len() < 60, "{} bytes", delta.len());
}

#[test]
fn blocks_in_another_order_are_found() {
    let basis = noise(1 << 20, 5);
    let mut chunk = Vec::new();
    for block in [900, 3, 512, 77, 640] {
        chunk.extend_from_slice(&basis[block * 1000..block * 1000 + 700]);
    }
    assert!(delta(&chunk, &basis).len() < 250);
}

#[test]
fn what_saves_too_little_is_given_up() {
    let basis = index(&noise(100_000, 6));
    assert_eq!(basis.encode(&noise(60_000, 7), 0, 30_000), None);
    let mut half = basis.bytes()[..30_000].to_vec();
    half.extend_from_slice(&noise(30_000, 8));
    let delta = basis.encode(&half, 0, usize::MAX).unwrap().bytes;
    assert!(basis.encode(&half, 0, delta.len()).is_some());
    assert_eq!(basis.encode(&half, 0, delta.len() - 1), None);
}

#[test]
fn golden() {
    let basis = b"the quick brown fox jumps over the lazy dog";
    let chunk = b"the quick brown cat jumps over the lazy dog!";
    let [best, copies] = deltas(chunk, basis);
    // 16 bytes copied, three literals and 24 copied in place, one literal.
    assert_eq!(copies, [&[0, 8, 0, 16, 0, 3, 24, 0, 1, 0][..], b"cat!"].concat());
    // 16 bytes equal, three different, 24 equal, one after the end of the basis.
    let differences = [b'f' ^ b'c', b'o' ^ b'a', b'x' ^ b't', b'!'];
    assert_eq!(best, [&[1, 0, 4, 16, 3, 24, 1][..], &differences].concat());
}

/// A table of pointers that all moved by one distance, as in a cache that was started again.
#[test]
fn values_that_change_in_place_cost_their_changed_bytes() {
    let table = |base: u64| -> Vec<u8> {
        (0..4096_u64)
            .flat_map(|row| [base + row * 96, row].map(u64::to_le_bytes))
            .flatten()
            .collect()
    };
    let [best, copies] = deltas(&table(0x7f12_3400_0000), &table(0x7f45_1200_0000));
    assert_eq!(best[0], Kind::SameOffset as u8);
    assert!(best.len() * 10 < copies.len() * 9, "{} of {} bytes", best.len(), copies.len());
}

#[test]
fn only_chunks_in_its_place_are_the_basis_of_differences() {
    let basis = noise(30_000, 9);
    let index = Basis::new(basis.clone(), vec![10_000, 20_000, 30_000]);
    for (start, bytes, chunks) in [
        (10_000, 10_000, 1..2),
        (10_000, 10_001, 1..3),
        (9_999, 10_001, 0..2),
        (0, 30_000, 0..3),
        (25_000, 5_000, 2..3),
    ] {
        let mut chunk = basis[start..start + bytes].to_vec();
        chunk.iter_mut().step_by(97).for_each(|byte| *byte ^= 3);
        // The place is also found if it is not where the caller looked for it.
        for in_place in [start, 7] {
            let encoded = index.encode(&chunk, in_place, usize::MAX).unwrap();
            assert_eq!((encoded.bytes[0], &encoded.chunks), (1, &chunks), "{start} {in_place}");
            let parts = basis.chunks(10_000).skip(chunks.start).take(chunks.len());
            let applied = apply(&encoded.bytes, &parts.collect::<Vec<_>>().concat(), bytes);
            assert_eq!(applied.unwrap(), chunk);
        }
    }
}

#[test]
fn where_a_chunk_begins_in_its_basis_is_in_its_delta() {
    let basis = noise(30_000, 11);
    let index = index(&basis);
    for start in [0, 1, 5_000, 29_000] {
        let mut chunk = basis[start..].to_vec();
        chunk.iter_mut().step_by(701).for_each(|byte| *byte ^= 3);
        let copies = index.copies(&chunk, usize::MAX).bytes.unwrap();
        let differences = index.encode(&chunk, start, usize::MAX).unwrap().bytes;
        assert_eq!((copies[0], differences[0]), (0, 1));
        for delta in [copies, differences] {
            assert_eq!(start_in_basis(&delta), Some(start));
        }
    }
    assert_eq!(start_in_basis(&[]), None);
    assert_eq!(start_in_basis(&[2, 0]), None);
    // Literals alone are in no place.
    assert_eq!(start_in_basis(&[0, 2, 1, 0, 7]), None);
}

#[test]
fn a_chunk_may_begin_or_end_behind_the_basis() {
    let basis = noise(5_000, 10);
    let index = index(&basis);
    let mut chunk = basis[2_000..].to_vec();
    chunk.extend_from_slice(&[0; 3_000]);
    let encoded = index.encode(&chunk, 2_000, usize::MAX).unwrap();
    assert_eq!(encoded, Encoded { bytes: vec![1, 208, 15, 0], chunks: 0..1 });
    assert_eq!(apply(&encoded.bytes, &basis, chunk.len()).unwrap(), chunk);
    for in_place in [4_999, 5_000, 5_001, usize::MAX / 2] {
        let encoded = index.encode(&chunk, in_place, usize::MAX).unwrap();
        assert_eq!(apply(&encoded.bytes, &basis, chunk.len()).unwrap(), chunk);
    }
}

#[test]
fn hostile_copies_are_refused() {
    let basis = [7; 100];
    for (bytes, why) in [
        (&[][..], "a number is cut short"),
        (&[0x80; 12], "a number is cut short"),
        (&[5, 0], "its ops are cut short"),
        (&[2, 9, 0], "its literals are cut short"),
        (&[3, 0, 100, 2], "it copies from outside its basis"),
        (&[3, 0, 1, 1], "it copies from outside its basis"),
        (&[2, 120, 90], "it makes too long a chunk"),
        (&[3, 0, 99, 0], "it makes a chunk of another length"),
        (&[3, 0, 100, 0, 1], "it makes a chunk of another length"),
    ] {
        let delta = [&[0], bytes].concat();
        assert_eq!(apply(&delta, &basis, 100), Err(DeltaError::Damaged(why)), "{bytes:?}");
    }
    assert_eq!(apply(&[0, 3, 0, 100, 0], &basis, 100).unwrap(), basis);
}

#[test]
fn hostile_differences_are_refused() {
    let basis = [7; 100];
    for (bytes, why) in [
        (&[][..], "a number is cut short"),
        (&[0], "a number is cut short"),
        (&[101, 0], "it begins behind its basis"),
        (&[0, 5, 0], "its ops are cut short"),
        (&[0, 1, 9], "a number is cut short"),
        (&[0, 2, 101, 0], "it makes too long a chunk"),
        (&[0, 2, 90, 11], "it makes too long a chunk"),
        (&[0, 4, 90, 1, 10, 0, 1], "it makes too long a chunk"),
        (&[0, 2, 90, 2, 1], "its differences are cut short"),
        (&[0, 2, 90, 2, 1, 1, 1], "it has more differences than places for them"),
    ] {
        let delta = [&[1], bytes].concat();
        assert_eq!(apply(&delta, &basis, 100), Err(DeltaError::Damaged(why)), "{bytes:?}");
    }
    assert_eq!(apply(&[1, 0, 0], &basis, 100).unwrap(), basis);
    assert_eq!(apply(&[1, 100, 0], &basis, 3).unwrap(), [0; 3]);
}

#[test]
fn an_unknown_kind_is_not_damage() {
    assert_eq!(apply(&[2, 0], &[7; 100], 100), Err(DeltaError::UnknownKind(2)));
    assert_eq!(apply(&[], &[7; 100], 100), Err(DeltaError::Damaged("it is empty")));
}

proptest! {
    #[test]
    fn a_delta_makes_its_chunk(
        basis in prop::collection::vec(0..3_u8, 0..400),
        chunk in prop::collection::vec(0..3_u8, 0..400),
    ) {
        delta(&chunk, &basis);
    }

    /// An edit costs its own bytes and a little more, wherever it is.
    #[test]
    fn an_edit_costs_its_own_bytes(
        at in 0..60_000_usize,
        cut in 0..2000_usize,
        put in 0..2000_usize,
        seed: u64,
    ) {
        let basis = noise(64_000, seed);
        let mut chunk = basis.clone();
        chunk.splice(at..at + cut, noise(put, seed ^ 1));
        let bytes = delta(&chunk, &basis).len();
        prop_assert!(bytes <= put + 24, "{bytes} bytes for {put}");
    }

    /// A longest common run that is long enough to hold a seed is not missed.
    #[test]
    fn long_runs_are_found(
        before in 0..200_usize,
        run in 24..200_usize,
        shift in 0..50_usize,
        seed: u64,
    ) {
        let basis = noise(500, seed);
        let mut chunk = noise(before, seed ^ 2);
        chunk.extend_from_slice(&basis[shift..shift + run]);
        prop_assert!(common_bytes(&chunk, &basis) >= run);
        prop_assert!(delta(&chunk, &basis).len() <= before + 16);
    }

    #[test]
    fn any_bytes_are_a_delta_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        chunk_bytes in 0..200_usize,
    ) {
        let _ = start_in_basis(&bytes);
        if let Ok(chunk) = apply(&bytes, &[1; 64], chunk_bytes) {
            prop_assert_eq!(chunk.len(), chunk_bytes);
        }
    }

    /// Values change in place: the differences are a delta, and no longer than copies are.
    #[test]
    fn changes_in_place_make_their_chunk(
        basis in prop::collection::vec(any::<u8>(), 1..3000),
        start in 0..3000_usize,
        chunk_bytes in 0..3000_usize,
        changes in prop::collection::vec((0..3000_usize, any::<u8>()), 0..60),
    ) {
        let mut chunk: Vec<u8> = basis.iter().copied().skip(start).take(chunk_bytes).collect();
        chunk.resize(chunk_bytes, 0);
        for (at, byte) in changes.into_iter().filter(|(at, _)| *at < chunk_bytes) {
            chunk[at] = byte;
        }
        deltas(&chunk, &basis);
        let encoded = index(&basis).encode(&chunk, start, usize::MAX).unwrap();
        prop_assert_eq!(apply(&encoded.bytes, &basis, chunk_bytes).unwrap(), chunk);
    }
}
