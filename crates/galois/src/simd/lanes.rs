//! The operations that a vector of symbols must have, and what is built from them for signatures.
//!
//! The executable definition of each operation is `emulated`, in the tests.

use crate::field::{HALF_REDUCTION, REDUCTION};

/// Bytes in one stride of a signature: 64 symbols, since alpha^64 = x.
pub(crate) const STRIDE_BYTES: usize = 128;

/// A vector of symbols in memory order.
///
/// A value exists only where its `Proof` does, so the methods on values are safe.
pub(crate) trait Lanes: Copy {
    type Proof: Copy;

    /// Bytes in one vector, a power of two from 16 to `STRIDE_BYTES`.
    const BYTES: usize;

    /// The vector in which every symbol is `symbol`.
    fn splat(proof: Self::Proof, symbol: u16) -> Self;

    /// The vector of exactly `BYTES` bytes.
    fn load(proof: Self::Proof, bytes: &[u8]) -> Self;

    /// The inverse of `load`.
    fn store(self, bytes: &mut [u8]);

    fn xor(self, other: Self) -> Self;

    fn and(self, other: Self) -> Self;

    /// Each symbol shifted left by one bit; the highest bit is lost.
    fn double(self) -> Self;

    /// Each symbol shifted right by one bit; the lowest bit is lost.
    fn halve(self) -> Self;

    /// Each symbol with its highest bit in all sixteen places.
    fn sign(self) -> Self;

    /// Each symbol with its lowest bit in all sixteen places.
    fn parity(self) -> Self;
}

/// The 64 symbols of one stride: vectors side by side.
pub(crate) trait Stride: Copy {
    type Proof: Copy;

    fn load(proof: Self::Proof, bytes: &[u8; STRIDE_BYTES]) -> Self;

    fn store(self, bytes: &mut [u8; STRIDE_BYTES]);

    /// One step of Horner's rule for each sum: it becomes itself * x^e + the stride of `bytes`,
    /// symbol by symbol, with e the exponent of its place.
    fn step_all<const N: usize>(
        sums: &mut [Self; N],
        proof: Self::Proof,
        bytes: &[u8; STRIDE_BYTES],
        exponent: impl Fn(usize) -> i32,
    );

    /// `self` * `other`, symbol by symbol; slow.
    fn mul(self, proof: Self::Proof, other: Self) -> Self;
}

impl<L: Lanes, const WIDTH: usize> Stride for [L; WIDTH] {
    type Proof = L::Proof;

    #[inline(always)]
    fn load(proof: L::Proof, bytes: &[u8; STRIDE_BYTES]) -> Self {
        const { assert!(L::BYTES * WIDTH == STRIDE_BYTES) }
        std::array::from_fn(|at| L::load(proof, &bytes[at * L::BYTES..][..L::BYTES]))
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8; STRIDE_BYTES]) {
        for (lanes, bytes) in self.into_iter().zip(bytes.chunks_exact_mut(L::BYTES)) {
            lanes.store(bytes);
        }
    }

    /// Vector by vector, so that what is loaded serves all sums while it is in a register.
    #[inline(always)]
    fn step_all<const N: usize>(
        sums: &mut [Self; N],
        proof: L::Proof,
        bytes: &[u8; STRIDE_BYTES],
        exponent: impl Fn(usize) -> i32,
    ) {
        for (at, bytes) in bytes.chunks_exact(L::BYTES).enumerate() {
            let next = L::load(proof, bytes);
            for (place, sum) in sums.iter_mut().enumerate() {
                sum[at] = mul_power(sum[at], proof, exponent(place)).xor(next);
            }
        }
    }

    /// Horner's rule over the bits of `self`, highest first.
    #[inline(always)]
    fn mul(self, proof: L::Proof, other: Self) -> Self {
        let mut rest = self;
        let mut product = [L::splat(proof, 0); WIDTH];
        for _ in 0..16 {
            for ((product, rest), other) in product.iter_mut().zip(&mut rest).zip(other) {
                *product = mul_power(*product, proof, 1).xor(other.and(rest.sign()));
                *rest = rest.double();
            }
        }
        product
    }
}

/// Each symbol times x^`exponent`: a shift for each x, and a reduction if a bit left.
#[inline(always)]
fn mul_power<L: Lanes>(mut lanes: L, proof: L::Proof, exponent: i32) -> L {
    for _ in 0..exponent {
        lanes = lanes.double().xor(lanes.sign().and(L::splat(proof, REDUCTION)));
    }
    for _ in exponent..0 {
        lanes = lanes.halve().xor(lanes.parity().and(L::splat(proof, HALF_REDUCTION)));
    }
    lanes
}
