//! Bytes for tests, frozen: the golden vectors are made from them.

use crate::field::Gf;

/// The top bytes of Knuth's 64-bit linear congruential generator (multiplier 6364136223846793005,
/// increment 1442695040888963407), started at `seed`, from its second state on.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state.to_le_bytes()[7]
    };
    (0..length).map(|_| next()).collect()
}

/// The symbols of an even number of bytes.
pub(crate) fn symbols(bytes: &[u8]) -> impl Iterator<Item = Gf> {
    bytes.as_chunks().0.iter().map(|pair| Gf(u16::from_le_bytes(*pair)))
}
