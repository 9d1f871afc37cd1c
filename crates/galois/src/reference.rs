//! The definitions, plain and slow: what the fast paths must equal, and what another
//! implementation can be written from.
//!
//! Not for use on real amounts of data.

use crate::{
    field::Gf,
    signature::{ALPHA, Signature, exponent},
};

/// The symbols of a page: little-endian pairs of bytes, a lone last byte padded with zero.
fn symbols(page: &[u8]) -> impl Iterator<Item = Gf> {
    page.chunks(2).map(|pair| Gf(u16::from_le_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
}

/// The signature of a page: the symbols of the exponents 1, −1, 3, −3, … ([`exponent`]).
pub fn signature<const N: usize>(page: &[u8]) -> Signature<N> {
    Signature(std::array::from_fn(|place| signature_symbol(page, exponent(place))))
}

/// Symbol sig_e of the signature of a page: Σ p_i · alpha^(e·i).
pub fn signature_symbol(page: &[u8], e: i32) -> u16 {
    let step = ALPHA.powi(e);
    let weights = std::iter::successors(Some(Gf::ONE), |weight| Some(*weight * step));
    symbols(page).zip(weights).map(|(symbol, weight)| symbol * weight).sum::<Gf>().0
}

/// The shards at the points `unknown` of the codeword that has `known` shards at its other points.
///
/// A codeword is a symbol c_i for every element i of the field with Σ c_i · i^t = 0 for every t
/// below m (0^0 = 1). For any set U of at most m points, each c_u with u in U follows from the
/// symbols outside of U:
///
/// > c_u = Σ_(i not in U) c_i · Π_(l in U, l ≠ u) (i − l) / (u − l)
///
/// because the polynomial that is that product at i has a degree below m. A point that is in
/// neither list has a shard of zeros; `known` and `unknown` must not meet. A missing last byte of
/// a shard is zero; the longest known shard gives the length.
pub fn solve(known: &[(u16, &[u8])], unknown: &[u16]) -> Vec<Vec<u8>> {
    let shard_bytes = known.iter().map(|(_, shard)| shard.len()).max().unwrap_or(0);
    let solve_one = |&u: &u16| {
        let mut shard = vec![0; shard_bytes.next_multiple_of(2)];
        for &(i, source) in known {
            let others = || unknown.iter().copied().filter(|&l| l != u);
            let coefficient: Gf = others().map(|l| Gf(i ^ l) / Gf(u ^ l)).product();
            for (target, symbol) in shard.as_chunks_mut().0.iter_mut().zip(symbols(source)) {
                let sum = Gf(u16::from_le_bytes(*target)) + coefficient * symbol;
                *target = sum.0.to_le_bytes();
            }
        }
        shard
    };
    unknown.iter().map(solve_one).collect()
}

/// The number m of points set aside for parity: those of the parity shards, which are 0, 1, …, and
/// up to the next power of two those of *virtual* parity, which is never stored.
pub fn parity_points(parity_shards: usize) -> usize {
    parity_shards.next_power_of_two()
}

/// The parity shards of the data shards, of which shard i has the point m + i.
///
/// # Panics
///
/// Panics if the points needed are more than the field's 65536 elements.
pub fn encode(data: &[&[u8]], parity_shards: usize) -> Vec<Vec<u8>> {
    let point = |point| u16::try_from(point).expect("a codeword has at most 65536 points");
    let points = parity_points(parity_shards);
    let known: Vec<_> = data.iter().enumerate().map(|(i, &s)| (point(points + i), s)).collect();
    let unknown: Vec<_> = (0..points).map(point).collect();
    let mut parity = solve(&known, &unknown);
    parity.truncate(parity_shards);
    parity
}
