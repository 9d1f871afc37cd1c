//! The operations that a vector of symbols must have, and what is built from them for signatures.
//!
//! The executable definition of each operation is `emulated`, in the tests.

use crate::field::REDUCTION;

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

    /// Each symbol with its highest bit in all sixteen places.
    fn sign(self) -> Self;
}

/// The 64 symbols of one stride: vectors side by side.
pub(crate) trait Stride: Copy {
    type Proof: Copy;

    fn load(proof: Self::Proof, bytes: &[u8; STRIDE_BYTES]) -> Self;

    fn store(self, bytes: &mut [u8; STRIDE_BYTES]);

    /// `self` * x^`times` + `other`, symbol by symbol.
    fn mul_x_add(self, proof: Self::Proof, times: usize, other: Self) -> Self;

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

    #[inline(always)]
    fn mul_x_add(mut self, proof: L::Proof, times: usize, other: Self) -> Self {
        let reduction = L::splat(proof, REDUCTION);
        for (lanes, other) in self.iter_mut().zip(other) {
            for _ in 0..times {
                *lanes = lanes.double().xor(lanes.sign().and(reduction));
            }
            *lanes = lanes.xor(other);
        }
        self
    }

    /// Horner's rule over the bits of `self`, highest first.
    #[inline(always)]
    fn mul(self, proof: L::Proof, other: Self) -> Self {
        let mut rest = self;
        let mut product = [L::splat(proof, 0); WIDTH];
        for _ in 0..16 {
            let mut addend = other;
            for (addend, rest) in addend.iter_mut().zip(&mut rest) {
                *addend = addend.and(rest.sign());
                *rest = rest.double();
            }
            product = product.mul_x_add(proof, 1, addend);
        }
        product
    }
}
