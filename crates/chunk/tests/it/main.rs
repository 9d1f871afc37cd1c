//! What the chunkers promise, seen from outside: frozen cut points, streaming, and statistics.

mod golden;
mod properties;

/// The bytes of a documented generator: the top byte of a 64-bit linear congruential generator
/// (Knuth's MMIX constants), advanced once before each byte.
fn lcg_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

/// The cut positions of a stream: where each chunk ends.
fn ends<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<usize> {
    chunks
        .scan(0, |end, chunk| {
            *end += chunk.len();
            Some(*end)
        })
        .collect()
}
