//! Deltas make their chunks again, cost what changed, and hostile ones are refused.

use proptest::prelude::*;

use super::{Basis, DeltaError, apply};

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

fn delta(chunk: &[u8], basis: &[u8]) -> Vec<u8> {
    let delta = Basis::new(basis.to_vec()).encode(chunk, usize::MAX).unwrap();
    assert_eq!(apply(&delta, basis, chunk.len()).unwrap(), chunk);
    delta
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
    assert_eq!(delta(&bytes, &bytes).len(), 1 + 1 + 3 + 1);
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
    let basis = Basis::new(noise(100_000, 6));
    assert_eq!(basis.encode(&noise(60_000, 7), 30_000), None);
    let mut half = basis.bytes()[..30_000].to_vec();
    half.extend_from_slice(&noise(30_000, 8));
    let delta = basis.encode(&half, usize::MAX).unwrap();
    assert!(basis.encode(&half, delta.len()).is_some());
    assert_eq!(basis.encode(&half, delta.len() - 1), None);
}

#[test]
fn golden() {
    let basis = b"the quick brown fox jumps over the lazy dog";
    let chunk = b"the quick brown cat jumps over the lazy dog!";
    let delta = delta(chunk, basis);
    // 16 bytes copied, three literals and 24 copied in place, one literal.
    assert_eq!(delta, [&[8, 0, 16, 0, 3, 24, 0, 1, 0][..], b"cat!"].concat());
}

#[test]
fn hostile_bytes_are_refused() {
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
        assert_eq!(apply(bytes, &basis, 100), Err(DeltaError(why)), "{bytes:?}");
    }
    assert_eq!(apply(&[3, 0, 100, 0], &basis, 100).unwrap(), basis);
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

    /// Where the longest common run is long enough to hold a seed, it is not missed.
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
        if let Ok(chunk) = apply(&bytes, &[1; 64], chunk_bytes) {
            prop_assert_eq!(chunk.len(), chunk_bytes);
        }
    }
}
