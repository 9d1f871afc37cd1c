//! Rows for CPUs that shuffle bytes.
//!
//! A constant's products with the sixteen values of each of the four nibbles of a symbol are four
//! tables of 16 symbols. A byte shuffle looks 16 bytes up at once, so symbols are first split into
//! planes, low bytes apart from high bytes (Plank, Greenan and Miller, "Screaming Fast Galois
//! Field Arithmetic Using Intel SIMD Instructions", FAST 2013, "alternate mapping").

use super::{
    lanes::Lanes,
    row::{Multiplier, Row},
};

/// Vectors that can also shuffle bytes.
pub(crate) trait Register: Lanes {
    /// The vector in which every 128-bit lane is `lane`.
    fn repeat(proof: Self::Proof, lane: &[u8; 16]) -> Self;

    /// Each symbol shifted right by four bits.
    fn shift_right_4(self) -> Self;

    /// Each symbol shifted right by eight bits.
    fn shift_right_8(self) -> Self;

    /// In each lane, the low bytes of `self`'s symbols and then of `other`'s.
    /// Every symbol must be below 256.
    fn pack(self, other: Self) -> Self;

    /// In each lane, the first eight bytes of `self` and `other`, taken in turns.
    fn unpack_low(self, other: Self) -> Self;

    /// In each lane, the last eight bytes of `self` and `other`, taken in turns.
    fn unpack_high(self, other: Self) -> Self;

    /// In each lane, for each byte of `indices` (each below 16) the byte of `self` it points to.
    fn shuffle(self, indices: Self) -> Self;
}

/// A row of two registers' symbols, the low bytes in one and the high bytes in the other.
#[derive(Clone, Copy)]
pub(crate) struct Planes<R> {
    low: R,
    high: R,
}

/// The tables of a [`Multiplier`], each in every lane of a register.
#[derive(Clone, Copy)]
pub(crate) struct Tables<R> {
    low: [R; 4],
    high: [R; 4],
    /// 15 in every byte.
    nibble: R,
}

impl<R: Register> Row for Planes<R> {
    type Proof = R::Proof;
    type Factor = Tables<R>;

    const BYTES: usize = 2 * R::BYTES;

    #[inline(always)]
    fn zero(proof: R::Proof) -> Self {
        let zero = R::splat(proof, 0);
        Self { low: zero, high: zero }
    }

    #[inline(always)]
    fn load(proof: R::Proof, bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(R::BYTES);
        let (first, second) = (R::load(proof, first), R::load(proof, second));
        let byte = R::splat(proof, 0x00ff);
        Self {
            low: first.and(byte).pack(second.and(byte)),
            high: first.shift_right_8().pack(second.shift_right_8()),
        }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        let (first, second) = bytes.split_at_mut(R::BYTES);
        self.low.unpack_low(self.high).store(first);
        self.low.unpack_high(self.high).store(second);
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self { low: self.low.xor(other.low), high: self.high.xor(other.high) }
    }

    #[inline(always)]
    fn factor(proof: R::Proof, multiplier: &Multiplier) -> Tables<R> {
        let [l0, l1, l2, l3] = &multiplier.low;
        let [h0, h1, h2, h3] = &multiplier.high;
        let repeat = |lane| R::repeat(proof, lane);
        Tables {
            low: [repeat(l0), repeat(l1), repeat(l2), repeat(l3)],
            high: [repeat(h0), repeat(h1), repeat(h2), repeat(h3)],
            nibble: R::splat(proof, 0x0f0f),
        }
    }

    #[inline(always)]
    fn mul(self, tables: &Tables<R>) -> Self {
        // Shifting sixteen bits at a time lets bits cross bytes; the mask drops them.
        let n0 = self.low.and(tables.nibble);
        let n1 = self.low.shift_right_4().and(tables.nibble);
        let n2 = self.high.and(tables.nibble);
        let n3 = self.high.shift_right_4().and(tables.nibble);
        let look_up = |[t0, t1, t2, t3]: [R; 4]| {
            let low_half = t0.shuffle(n0).xor(t1.shuffle(n1));
            let high_half = t2.shuffle(n2).xor(t3.shuffle(n3));
            low_half.xor(high_half)
        };
        Self { low: look_up(tables.low), high: look_up(tables.high) }
    }
}
