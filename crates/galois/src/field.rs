//! The field GF(2^16) = GF(2)\[x\] / (x^16 + x^12 + x^3 + x + 1), one symbol at a time.
//!
//! An element is a `u16`: bit i is the coefficient of x^i. The polynomial is primitive, so `x`,
//! the integer 2, generates all 65535 nonzero elements.
//! Not for regions of bytes: those are multiplied by the vector paths of this crate.

#[cfg(test)]
mod tests;

use std::{
    iter::{Product, Sum},
    ops::{Add, AddAssign, Div, Mul, MulAssign},
    sync::OnceLock,
};

/// The field's polynomial without its leading x^16: x^12 + x^3 + x + 1.
pub(crate) const REDUCTION: u16 = 0x100b;

/// What a quotient by x adds for a lowest bit that is lost: the polynomial divided by x.
pub(crate) const HALF_REDUCTION: u16 = REDUCTION >> 1 | 1 << 15;

/// The number of nonzero elements, the order of the multiplicative group.
pub(crate) const ORDER: usize = 65535;

/// An element of GF(2^16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gf(pub u16);

impl Gf {
    /// The neutral element of addition.
    pub const ZERO: Self = Self(0);
    /// The neutral element of multiplication.
    pub const ONE: Self = Self(1);
    /// The generator `x`.
    pub const X: Self = Self(2);

    /// The sum, which is also the difference: exclusive or.
    pub const fn add(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    /// The product with `x`.
    pub const fn mul_x(self) -> Self {
        Self((self.0 << 1) ^ (REDUCTION * (self.0 >> 15)))
    }

    /// The quotient by `x`.
    pub const fn div_x(self) -> Self {
        Self((self.0 >> 1) ^ (HALF_REDUCTION * (self.0 & 1)))
    }

    /// The product, by shift and add; no tables.
    pub const fn mul(self, other: Self) -> Self {
        let mut product = Self::ZERO;
        let mut bit = 16;
        while bit > 0 {
            bit -= 1;
            product = product.mul_x();
            product.0 ^= self.0 * ((other.0 >> bit) & 1);
        }
        product
    }

    /// The power; anything to the power 0 is 1, as is 0^0.
    pub const fn pow(self, exponent: u64) -> Self {
        let mut power = Self::ONE;
        let mut square = self;
        let mut rest = exponent;
        while rest > 0 {
            if rest & 1 == 1 {
                power = power.mul(square);
            }
            square = square.mul(square);
            rest >>= 1;
        }
        power
    }

    /// The power of an exponent of either sign.
    ///
    /// # Panics
    ///
    /// Panics if zero is raised to a negative power.
    pub const fn powi(self, exponent: i32) -> Self {
        let power = self.pow(exponent.unsigned_abs() as u64);
        if exponent < 0 { power.inv() } else { power }
    }

    /// The inverse.
    ///
    /// # Panics
    ///
    /// Panics if the element is zero.
    pub const fn inv(self) -> Self {
        assert!(self.0 != 0, "zero has no inverse");
        self.pow(65534)
    }

    /// The quotient.
    ///
    /// # Panics
    ///
    /// Panics if the divisor is zero.
    pub const fn div(self, divisor: Self) -> Self {
        self.mul(divisor.inv())
    }
}

impl Add for Gf {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::add(self, other)
    }
}

impl AddAssign for Gf {
    fn add_assign(&mut self, other: Self) {
        *self = Self::add(*self, other);
    }
}

impl Mul for Gf {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self::mul(self, other)
    }
}

impl MulAssign for Gf {
    fn mul_assign(&mut self, other: Self) {
        *self = Self::mul(*self, other);
    }
}

impl Div for Gf {
    type Output = Self;

    fn div(self, divisor: Self) -> Self {
        Self::div(self, divisor)
    }
}

impl Sum for Gf {
    fn sum<I: Iterator<Item = Self>>(elements: I) -> Self {
        elements.fold(Self::ZERO, |sum, element| sum + element)
    }
}

impl Product for Gf {
    fn product<I: Iterator<Item = Self>>(elements: I) -> Self {
        elements.fold(Self::ONE, |product, element| product * element)
    }
}

/// Logarithms to the base `x` and their inverse, built once per process: 256 KiB.
///
/// Only for making coefficients. In a loop over data the tables would miss the cache.
pub(crate) struct Logarithms {
    /// `log[a]` for a != 0, below `ORDER`; `log[0]` is never read.
    log: Vec<u16>,
    /// `exp[e]` = x^e for e < `ORDER`.
    exp: Vec<u16>,
}

impl Logarithms {
    pub(crate) fn get() -> &'static Self {
        static TABLES: OnceLock<Logarithms> = OnceLock::new();
        TABLES.get_or_init(|| {
            let mut log = vec![0; ORDER + 1];
            let mut exp = Vec::with_capacity(ORDER);
            let mut power = Gf::ONE;
            for exponent in 0..=65534_u16 {
                exp.push(power.0);
                log[usize::from(power.0)] = exponent;
                power = power.mul_x();
            }
            Self { log, exp }
        })
    }

    /// The e below `ORDER` with x^e = `element`, which must not be zero.
    pub(crate) fn log(&self, element: u16) -> usize {
        debug_assert_ne!(element, 0, "zero has no logarithm");
        usize::from(self.log[usize::from(element)])
    }

    /// x^`exponent`.
    pub(crate) fn exp(&self, exponent: usize) -> Gf {
        Gf(self.exp[exponent % ORDER])
    }
}
