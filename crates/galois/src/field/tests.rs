//! The laws of the field, and its fast forms against plain ones.

use proptest::prelude::*;

use super::*;

#[test]
fn x_generates_every_nonzero_element() {
    let mut seen = vec![false; ORDER + 1];
    let mut power = Gf::ONE;
    for _ in 0..ORDER {
        assert!(!seen[usize::from(power.0)]);
        seen[usize::from(power.0)] = true;
        power = power.mul_x();
    }
    assert_eq!(power, Gf::ONE);
    assert!(!seen[0]);
}

#[test]
fn the_polynomial_is_the_fixed_one() {
    assert_eq!(Gf(0x8000).mul_x(), Gf(0x100b));
    assert_eq!(Gf::X.pow(16), Gf(0x100b));
    assert_eq!(Gf::ONE.div_x(), Gf(0x8805));
    assert_eq!(Gf(0x1234) * Gf(0xabcd), Gf(GOLDEN_PRODUCT));
    assert_eq!(Gf(3).inv(), Gf(GOLDEN_INVERSE));
}

/// 0x1234 * 0xabcd and 1 / 3, as `golden.py` computes them.
const GOLDEN_PRODUCT: u16 = 0x4792;
const GOLDEN_INVERSE: u16 = 0xf006;

#[test]
fn logarithms_agree_with_products() {
    let logarithms = Logarithms::get();
    for element in 1..=u16::MAX {
        assert_eq!(logarithms.exp(logarithms.log(element)), Gf(element));
        assert_eq!(Gf(element) * Gf(element).inv(), Gf::ONE);
    }
    assert_eq!(logarithms.exp(ORDER + 1), Gf::X);
}

#[test]
fn division_by_x_undoes_the_product() {
    for element in (0..=u16::MAX).map(Gf) {
        assert_eq!(element.mul_x().div_x(), element);
        assert_eq!(element.div_x(), element / Gf::X);
    }
}

#[test]
#[should_panic(expected = "zero has no inverse")]
fn zero_has_no_inverse() {
    _ = Gf::ZERO.inv();
}

proptest! {
    #[test]
    fn field_axioms(a: u16, b: u16, c: u16) {
        let [a, b, c] = [a, b, c].map(Gf);
        prop_assert_eq!(a * b, b * a);
        prop_assert_eq!((a * b) * c, a * (b * c));
        prop_assert_eq!(a * (b + c), a * b + a * c);
        prop_assert_eq!(a * Gf::ONE, a);
        prop_assert_eq!(a + a, Gf::ZERO);
        prop_assert_eq!(a * Gf::X, a.mul_x());
        if b != Gf::ZERO {
            prop_assert_eq!(a / b * b, a);
        }
    }

    #[test]
    fn powers_multiply(a: u16, e in 0..70_000_u64, f in 0..70_000_u64) {
        prop_assert_eq!(Gf(a).pow(e) * Gf(a).pow(f), Gf(a).pow(e + f));
    }

    #[test]
    fn logarithms_make_products_sums(a in 1..=u16::MAX, b in 1..=u16::MAX) {
        let logarithms = Logarithms::get();
        prop_assert_eq!(logarithms.exp(logarithms.log(a) + logarithms.log(b)), Gf(a) * Gf(b));
    }
}
