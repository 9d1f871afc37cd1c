//! Rows of symbols and their product with a constant, for the code.

use crate::field::Gf;

/// A constant, ready to multiply rows by: four nibble tables, each as low and high bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Multiplier {
    /// `low[n][v]` is the low byte of constant * (v << 4n).
    pub(super) low: [[u8; 16]; 4],
    /// `high[n][v]` is the high byte of the same.
    pub(super) high: [[u8; 16]; 4],
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
