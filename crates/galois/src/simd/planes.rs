//! Rows of symbols and their product with a constant, for the code.
//!
//! The constant's products with the sixteen values of each of the four nibbles of a symbol are
//! four tables of 16 symbols. A byte shuffle looks 16 bytes up at once, so symbols are first
//! split into planes, low bytes apart from high bytes (Plank, Greenan and Miller, "Screaming Fast
//! Galois Field Arithmetic Using Intel SIMD Instructions", FAST 2013, "alternate mapping").

use super::lanes::Register;
use crate::field::Gf;

/// A constant, ready to multiply rows by: four nibble tables, each as low and high bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Multiplier {
    /// `low[n][v]` is the low byte of constant * (v << 4n).
    low: [[u8; 16]; 4],
    /// `high[n][v]` is the high byte of the same.
    high: [[u8; 16]; 4],
}

impl Multiplier {
    /// Eight bytes of a table at a time: bit b of a nibble adds constant * x^(4n + b) to the bytes
    /// whose places have that bit.
    pub(crate) fn new(constant: Gf) -> Self {
        const EACH: u64 = 0x0101_0101_0101_0101;
        const WITH_BIT_0: u64 = 0xff00_ff00_ff00_ff00;
        const WITH_BIT_1: u64 = 0xffff_0000_ffff_0000;
        const WITH_BIT_2: u64 = 0xffff_ffff_0000_0000;
        let table = |[b0, b1, b2, b3]: [u8; 4]| {
            let [b0, b1, b2, b3] = [b0, b1, b2, b3].map(|byte| u64::from(byte) * EACH);
            let first = (b0 & WITH_BIT_0) ^ (b1 & WITH_BIT_1) ^ (b2 & WITH_BIT_2);
            (u128::from(first) | u128::from(first ^ b3) << 64).to_le_bytes()
        };
        let mut tables = Self { low: [[0; 16]; 4], high: [[0; 16]; 4] };
        let mut multiple = constant;
        for (low, high) in tables.low.iter_mut().zip(&mut tables.high) {
            let multiples = [(); 4].map(|()| {
                let [low, high] = multiple.0.to_le_bytes();
                multiple = multiple.mul_x();
                (low, high)
            });
            *low = table(multiples.map(|(low, _)| low));
            *high = table(multiples.map(|(_, high)| high));
        }
        tables
    }

    /// The constant itself.
    pub(crate) fn constant(&self) -> Gf {
        Gf(u16::from_le_bytes([self.low[0][1], self.high[0][1]]))
    }
}

/// Some symbols, in an order of the implementation's choice.
///
/// A value exists only where its `Proof` does, so the methods on values are safe.
pub(crate) trait Row: Copy {
    type Proof: Copy;
    /// A constant in registers.
    type Factor: Copy;

    /// Bytes in one row, at most `ROW_BYTES_MAX`.
    const BYTES: usize;

    fn zero(proof: Self::Proof) -> Self;

    /// The row of exactly `BYTES` bytes.
    fn load(proof: Self::Proof, bytes: &[u8]) -> Self;

    /// The inverse of `load`.
    fn store(self, bytes: &mut [u8]);

    fn xor(self, other: Self) -> Self;

    fn factor(proof: Self::Proof, multiplier: &Multiplier) -> Self::Factor;

    /// Each symbol times the constant.
    fn mul(self, factor: &Self::Factor) -> Self;
}

/// The largest `Row::BYTES` of all paths.
pub(crate) const ROW_BYTES_MAX: usize = 128;

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
