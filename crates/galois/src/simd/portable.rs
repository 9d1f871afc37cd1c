//! The path for every CPU: arrays that the compiler vectorises as it can.
//!
//! Multiplication by a constant goes bit by bit, with masks instead of tables: that vectorises
//! everywhere, while a table looked up symbol by symbol does not.

use super::{
    Backend,
    lanes::{Lanes, STRIDE_BYTES},
    row::{Multiplier, ROW_BYTES_MAX, Row},
};

/// The instruction set that every CPU has.
pub(crate) struct Portable;

impl Backend for Portable {
    type Proof = ();
    type Stride = [Words; STRIDE_BYTES / (2 * SYMBOLS)];
    type Row = Words;
}

/// Symbols in one vector.
const SYMBOLS: usize = 16;

const _: () = assert!(2 * SYMBOLS <= ROW_BYTES_MAX);

/// Sixteen symbols.
#[derive(Clone, Copy)]
pub(crate) struct Words([u16; SYMBOLS]);

impl Words {
    #[inline(always)]
    fn map(self, change: impl Fn(u16) -> u16) -> Self {
        Self(self.0.map(change))
    }

    #[inline(always)]
    fn zip(mut self, other: Self, join: impl Fn(u16, u16) -> u16) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word = join(*word, other);
        }
        self
    }
}

impl Lanes for Words {
    type Proof = ();

    const BYTES: usize = 2 * SYMBOLS;

    #[inline(always)]
    fn splat((): (), symbol: u16) -> Self {
        Self([symbol; SYMBOLS])
    }

    #[inline(always)]
    fn load((): (), bytes: &[u8]) -> Self {
        let mut words = Self([0; SYMBOLS]);
        for (word, pair) in words.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u16::from_le_bytes(*pair);
        }
        words
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        for (pair, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.0) {
            *pair = word.to_le_bytes();
        }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(always)]
    fn double(self) -> Self {
        self.map(|word| word << 1)
    }

    #[inline(always)]
    fn halve(self) -> Self {
        self.map(|word| word >> 1)
    }

    #[inline(always)]
    fn sign(self) -> Self {
        self.map(|word| 0_u16.wrapping_sub(word >> 15))
    }

    #[inline(always)]
    fn parity(self) -> Self {
        self.map(|word| ((word << 15).cast_signed() >> 15).cast_unsigned())
    }
}

impl Row for Words {
    type Proof = ();
    /// The constant times x^i.
    type Factor = [u16; 16];

    const BYTES: usize = 2 * SYMBOLS;

    #[inline(always)]
    fn zero((): ()) -> Self {
        Self([0; SYMBOLS])
    }

    #[inline(always)]
    fn load((): (), bytes: &[u8]) -> Self {
        <Self as Lanes>::load((), bytes)
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        Lanes::store(self, bytes);
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Lanes::xor(self, other)
    }

    #[inline(always)]
    fn factor((): (), multiplier: &Multiplier) -> [u16; 16] {
        let mut multiple = multiplier.constant();
        [(); 16].map(|()| {
            let product = multiple.0;
            multiple = multiple.mul_x();
            product
        })
    }

    #[inline(always)]
    fn mul(self, multiples: &[u16; 16]) -> Self {
        let mut rest = self;
        let mut product = Self([0; SYMBOLS]);
        for multiple in multiples.iter().rev() {
            product = Lanes::xor(product, rest.sign().and(Self([*multiple; SYMBOLS])));
            rest = rest.double();
        }
        product
    }
}
