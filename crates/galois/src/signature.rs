//! Algebraic signatures of pages (Litwin and Schwarz; Litwin, Mokadem and Schwarz, "Disk Backup
//! Through Algebraic Signatures in Scalable Distributed Data Structures", §2.2).
//!
//! A page is a run of symbols p_0, p_1, …; the last byte of an odd page is the low byte of a last
//! symbol whose high byte is zero. Its signature has the symbols sig_1, sig_−1, sig_3, sig_−3, …,
//! of which N are computed:
//!
//! > sig_e = Σ p_i · alpha^(e·i),  alpha = x^1024.
//!
//! Invariants:
//!
//! - alpha generates the field's nonzero elements, and any N of these exponents are neighbouring
//!   odd numbers. So in a page of at most [`SYMBOLS_MAX`] symbols a change of up to N symbols
//!   always changes the signature.
//! - A change of all symbols by the same difference is noticed as well as any other. The paper's
//!   exponents 1, 2 fail here: squaring is linear, so sig_2 follows from sig_1
//!   (`docs/design/0009-galois.md`).
//! - Zeros at a page's end do not change its signature: store the length beside it.
//! - alpha^64 = x, so 64 symbols side by side step through a page with a product by `x` each,
//!   which is a shift; that is why alpha is what it is.
//!
//! Not for identity: signatures are linear and 16·N bits long.

#[cfg(test)]
mod tests;

use std::ops::{Add, AddAssign};

use crate::{
    field::{Gf, ORDER},
    simd::{Backend, Kernel, Path, STRIDE_BYTES, Stride, prefetch},
};

/// The element alpha that signatures are sums of powers of: x^1024.
pub const ALPHA: Gf = Gf::X.pow(1024);

/// The length of a page, in symbols, up to which N changed symbols are certain to be noticed.
pub const SYMBOLS_MAX: usize = 65534;

/// A signature of N symbols: sig_1, sig_−1, sig_3, …. The default, zero, is the signature of the
/// empty page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature<const N: usize = 2>(pub [u16; N]);

impl<const N: usize> Signature<N> {
    /// The length of a signature's bytes.
    pub const BYTES: usize = 2 * N;

    /// The signature of a page of zeros, of any length.
    pub const ZERO: Self = Self([0; N]);

    /// Writes the symbols in order, each little-endian.
    ///
    /// # Panics
    ///
    /// Panics unless `bytes` are exactly [`Signature::BYTES`].
    pub fn write(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), Self::BYTES, "a signature is written whole");
        for (pair, symbol) in bytes.as_chunks_mut().0.iter_mut().zip(self.0) {
            *pair = symbol.to_le_bytes();
        }
    }

    /// Reads what [`Signature::write`] wrote; `None` unless `bytes` are exactly
    /// [`Signature::BYTES`].
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let mut signature = Self::ZERO;
        for (symbol, pair) in signature.0.iter_mut().zip(bytes.as_chunks().0) {
            *symbol = u16::from_le_bytes(*pair);
        }
        Some(signature)
    }

    /// The signature of the page whose symbols are all multiplied by `c`.
    #[must_use]
    pub fn scale(self, c: u16) -> Self {
        Self(self.0.map(|symbol| Gf(symbol).mul(Gf(c)).0))
    }

    /// The signature of the page with `symbols` zero symbols put before it.
    #[must_use]
    pub fn shift(self, symbols: usize) -> Self {
        let step = ALPHA.pow((symbols % ORDER) as u64);
        Self(std::array::from_fn(|place| Gf(self.0[place]).mul(step.powi(exponent(place))).0))
    }
}

impl Signature<2> {
    /// The four bytes of a two-symbol signature, as [`Signature::write`] writes them.
    pub const fn to_le_bytes(self) -> [u8; 4] {
        let [[a, b], [c, d]] = [self.0[0].to_le_bytes(), self.0[1].to_le_bytes()];
        [a, b, c, d]
    }

    /// The inverse of [`Signature::to_le_bytes`].
    pub const fn from_le_bytes([a, b, c, d]: [u8; 4]) -> Self {
        Self([u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])])
    }
}

impl<const N: usize> Default for Signature<N> {
    fn default() -> Self {
        Self::ZERO
    }
}

/// The signature of the symbol-wise sum (exclusive or) of two pages.
impl<const N: usize> Add for Signature<N> {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl<const N: usize> AddAssign for Signature<N> {
    fn add_assign(&mut self, other: Self) {
        for (symbol, other) in self.0.iter_mut().zip(other.0) {
            *symbol = Gf(*symbol).add(Gf(other)).0;
        }
    }
}

/// The N-symbol signature of a page. N = 2 is the fast path.
pub fn signature<const N: usize>(page: &[u8]) -> Signature<N> {
    signature_on(Path::best(), page)
}

/// The signature of page P followed by page Q, from the signature `a` of P, P's length in symbols
/// and the signature `b` of Q.
#[must_use]
pub fn concat<const N: usize>(a: Signature<N>, a_symbols: usize, b: Signature<N>) -> Signature<N> {
    a + b.shift(a_symbols)
}

/// The signature of a page after `old` became `new` at `offset_symbols`, from the signature
/// before. The shorter of the two counts as zero padded.
#[must_use]
pub fn update<const N: usize>(
    before: Signature<N>,
    offset_symbols: usize,
    old: &[u8],
    new: &[u8],
) -> Signature<N> {
    before + (signature(old) + signature(new)).shift(offset_symbols)
}

/// The exponent of the symbol at this place of a signature: 1, −1, 3, −3, 5, ….
pub const fn exponent(place: usize) -> i32 {
    let odd = place as i32 | 1;
    if place.is_multiple_of(2) { odd } else { -odd }
}

/// The signature, with the instructions of `path`.
fn signature_on<const N: usize>(path: Path, page: &[u8]) -> Signature<N> {
    path.run(Sign { page })
}

/// Computes the signature of a page.
struct Sign<'a, const N: usize> {
    page: &'a [u8],
}

impl<const N: usize> Sign<'_, N> {
    /// How many bytes ahead of its use memory is requested: the best of 1 to 8 KiB.
    const AHEAD_BYTES: usize = 2 << 10;

    /// The place that will be read soon after `here`, both in bytes from the beginning of the page.
    ///
    /// The CPU cannot guess it: pages mostly come one after another, but each is read backwards. So
    /// after the beginning of this page comes the end of the next, which is as long as this one. If
    /// there is no next page, only a little time is lost.
    #[inline(always)]
    fn soon(&self, here: usize) -> usize {
        let next_page = if here < Self::AHEAD_BYTES { 2 * self.page.len() } else { 0 };
        (here + next_page).wrapping_sub(Self::AHEAD_BYTES)
    }
}

impl<const N: usize> Kernel for Sign<'_, N> {
    type Output = Signature<N>;

    /// Horner's rule, from the last stride to the first, for each of the 64 places in a stride:
    /// Σ_s p_(64s+r) · x^(e·s). The places are then weighed with alpha^(e·r) and added up.
    #[inline(always)]
    fn run<B: Backend>(self, proof: B::Proof) -> Signature<N> {
        let (strides, tail) = self.page.as_chunks();
        let mut last = [0; STRIDE_BYTES];
        last[..tail.len()].copy_from_slice(tail);
        let mut sums = [B::Stride::load(proof, &last); N];
        for (at, stride) in strides.iter().enumerate().rev() {
            prefetch(self.page.as_ptr().wrapping_add(self.soon(at * STRIDE_BYTES)));
            B::Stride::step_all(&mut sums, proof, stride, exponent);
        }
        let mut signature = Signature::ZERO;
        for ((symbol, sum), weights) in signature.0.iter_mut().zip(sums).zip(&Weights::<N>::OF) {
            let mut bytes = [0; STRIDE_BYTES];
            sum.mul(proof, B::Stride::load(proof, weights)).store(&mut bytes);
            *symbol =
                bytes.as_chunks().0.iter().fold(0, |sum, pair| sum ^ u16::from_le_bytes(*pair));
        }
        signature
    }
}

/// What the places of a stride weigh.
struct Weights<const N: usize>;

impl<const N: usize> Weights<N> {
    /// `OF[place]` are the symbols alpha^(e·r) for r from 0, with e the exponent of the place.
    const OF: [[u8; STRIDE_BYTES]; N] = {
        let mut weights = [[0; STRIDE_BYTES]; N];
        let mut place = 0;
        while place < N {
            let step = ALPHA.powi(exponent(place));
            let mut weight = Gf::ONE;
            let mut at = 0;
            while at < STRIDE_BYTES {
                [weights[place][at], weights[place][at + 1]] = weight.0.to_le_bytes();
                weight = weight.mul(step);
                at += 2;
            }
            place += 1;
        }
        weights
    };
}
