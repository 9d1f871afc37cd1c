//! Every path is checked on a CPU that has it. Where none has AVX-512, Miri runs that path:
//!
//! ```text
//! RUSTFLAGS='-C target-feature=+avx2,+avx512f,+avx512bw' \
//!     cargo +nightly miri test -p strongroom-galois --lib -- intrinsics golden best
//! ```

use proptest::prelude::*;

use super::{emulated::Bytes, lanes::*, planes::Register, portable::Words, *};
use crate::{
    field::Gf,
    testdata::{bytes, symbols},
};

/// Checks each operation of a register of `R` against its definition.
fn check_register<R: Register, const LANES: usize>(proof: R::Proof, seed: u64) {
    assert_eq!(R::BYTES, Bytes::<LANES>::BYTES);
    let input = bytes(seed, 2 * R::BYTES + 1);
    let parts = [&input[..R::BYTES], &input[R::BYTES + 1..]];
    let [a, b] = parts.map(|part| R::load(proof, part));
    let [x, y] = parts.map(|part| Bytes::<LANES>::load((), part));
    let equal = |real: R, meant: Bytes<LANES>| {
        let mut stored = vec![0; R::BYTES];
        real.store(&mut stored);
        assert_eq!(stored, meant.0.as_flattened());
    };
    equal(a, x);
    equal(R::splat(proof, 0xabcd), Bytes::splat((), 0xabcd));
    equal(a.xor(b), x.xor(y));
    equal(a.and(b), x.and(y));
    equal(a.double(), x.double());
    equal(a.halve(), x.halve());
    equal(a.sign(), x.sign());
    equal(a.parity(), x.parity());
    equal(a.shift_right_4(), x.shift_right_4());
    equal(a.shift_right_8(), x.shift_right_8());
    equal(a.unpack_low(b), x.unpack_low(y));
    equal(a.unpack_high(b), x.unpack_high(y));
    equal(a.shift_right_8().pack(b.shift_right_8()), x.shift_right_8().pack(y.shift_right_8()));
    let nibbles = b.and(R::splat(proof, 0x0f0f));
    equal(a.shuffle(nibbles), x.shuffle(y.and(Bytes::splat((), 0x0f0f))));
    let lane = std::array::from_fn(|at| input[at]);
    equal(R::repeat(proof, &lane), Bytes::repeat((), &lane));
}

#[test]
fn intrinsics_do_what_the_emulation_says() {
    for seed in 0..64 {
        check_register::<Bytes<4>, 4>((), seed);
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(proof) = avx2::Proof::detect() {
                check_register::<avx2::Vector, 2>(proof, seed);
            }
            if let Some(proof) = avx512::Proof::detect() {
                check_register::<avx512::Vector, 4>(proof, seed);
            }
        }
    }
}

#[test]
fn portable_words_do_what_the_emulation_says() {
    for seed in 0..64 {
        let input = bytes(seed, 64);
        let (first, second) = input.split_at(32);
        let [a, b] = [first, second].map(|part| <Words as Lanes>::load((), part));
        let [x, y] = [first, second].map(|part| Bytes::<2>::load((), part));
        let equal = |real: Words, meant: Bytes<2>| {
            let mut stored = [0; 32];
            Lanes::store(real, &mut stored);
            assert_eq!(stored, meant.0.as_flattened());
        };
        equal(Lanes::xor(a, b), x.xor(y));
        equal(a.and(b), x.and(y));
        equal(a.double(), x.double());
        equal(a.halve(), x.halve());
        equal(a.sign(), x.sign());
        equal(a.parity(), x.parity());
        equal(<Words as Lanes>::splat((), 0xabcd), Bytes::splat((), 0xabcd));
    }
}

/// Multiplies one row by a constant, and squares up `zero` and `xor` on the way.
struct MultiplyRow<'a> {
    multiplier: &'a Multiplier,
    bytes: &'a [u8],
}

impl Kernel for MultiplyRow<'_> {
    type Output = Vec<u8>;

    #[inline(always)]
    fn run<B: Backend>(self, proof: B::Proof) -> Vec<u8> {
        let factor = B::Row::factor(proof, self.multiplier);
        let mut product = vec![0; self.bytes.len()];
        for (source, target) in
            self.bytes.chunks_exact(B::Row::BYTES).zip(product.chunks_exact_mut(B::Row::BYTES))
        {
            let row = B::Row::load(proof, source);
            B::Row::zero(proof).xor(row.mul(&factor)).store(target);
        }
        product
    }
}

proptest! {
    #[test]
    fn every_path_multiplies_rows(constant: u16, seed: u64) {
        let input = bytes(seed, 2 * ROW_BYTES_MAX + 1);
        let multiplier = Multiplier::new(Gf(constant));
        prop_assert_eq!(multiplier.constant(), Gf(constant));
        // One byte in, so that no load is aligned.
        let input = &input[1..];
        let expected: Vec<_> = symbols(input).map(|symbol| symbol * Gf(constant)).collect();
        for path in Path::supported() {
            let product = path.run(MultiplyRow { multiplier: &multiplier, bytes: input });
            prop_assert_eq!(symbols(&product).collect::<Vec<_>>(), expected.clone(), "{:?}", path);
        }
    }
}

#[test]
fn the_best_path_is_a_supported_one() {
    let best = format!("{:?}", Path::best());
    assert!(Path::supported().iter().any(|path| format!("{path:?}") == best));
    #[cfg(all(target_arch = "x86_64", target_feature = "avx512f", target_feature = "avx512bw"))]
    assert!(matches!(Path::best(), Path::Avx512(_)));
}
