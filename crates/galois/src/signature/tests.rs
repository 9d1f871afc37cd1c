//! Signatures against their reference on every path, and their laws.

use proptest::prelude::*;

use super::*;
use crate::{reference, testdata::bytes};

/// Checks that every path gives the reference's signature.
fn check<const N: usize>(page: &[u8]) {
    let expected = reference::signature::<N>(page);
    for path in Path::supported() {
        assert_eq!(signature_on::<N>(path, page), expected, "{path:?}, {} bytes", page.len());
    }
    assert_eq!(signature::<N>(page), expected);
}

#[test]
fn golden_vectors() {
    let golden: [(usize, [u16; 4]); 7] = [
        (0, [0, 0, 0, 0]),
        (1, [0x006c, 0x006c, 0x006c, 0x006c]),
        (2, [0x826c, 0x826c, 0x826c, 0x826c]),
        (127, [0x328d, 0x8a5c, 0x9fcb, 0x0429]),
        (128, [0xc780, 0xfad8, 0x9aec, 0x09a2]),
        (1000, [0xcc40, 0x70e0, 0x3800, 0xeed3]),
        (4097, [0x1ca7, 0xaae0, 0x1c9d, 0xfbbb]),
    ];
    let length_max = if cfg!(miri) { 128 } else { usize::MAX };
    for (length, expected) in golden.into_iter().filter(|(length, _)| *length <= length_max) {
        let page = bytes(1, length);
        assert_eq!(signature::<4>(&page).0, expected, "{length} bytes");
        assert_eq!(signature::<2>(&page).0, expected[..2], "{length} bytes");
        check::<4>(&page);
    }
    assert_eq!(Signature([0x1ca7, 0xaae0]).to_le_bytes(), [0xa7, 0x1c, 0xe0, 0xaa]);
}

#[test]
fn every_path_agrees_on_all_lengths_and_alignments() {
    let data = bytes(7, 2100);
    for length in 0..=520 {
        for start in [0, 1, 2, 3, 31] {
            check::<2>(&data[start..start + length]);
        }
    }
    for length in [1023, 1024, 1025, 1536, 2047, 2048, 2049] {
        check::<1>(&data[..length]);
        check::<2>(&data[..length]);
        check::<3>(&data[..length]);
        check::<5>(&data[..length]);
    }
    check::<0>(&data);
}

/// With this, any N changed symbols among 65535 change an N-symbol signature: the equations for
/// the N differences to cancel out have a Vandermonde matrix, whose determinant is a product of
/// the positions' weights and of differences of them, none of them zero.
#[test]
fn the_weights_of_all_positions_differ() {
    let mut seen = vec![false; ORDER + 1];
    let mut weight = Gf::ONE;
    for _ in 0..=SYMBOLS_MAX {
        assert_ne!(weight, Gf::ZERO);
        assert!(!seen[usize::from(weight.0)]);
        seen[usize::from(weight.0)] = true;
        weight *= ALPHA;
    }
    assert_eq!(weight, Gf::ONE);
}

#[test]
fn any_change_of_one_symbol_changes_one() {
    let before = bytes(3, 2 * 70);
    let unchanged = signature::<1>(&before);
    let mut page = before.clone();
    for place in (0..page.len()).step_by(2) {
        let old = u16::from_le_bytes([page[place], page[place + 1]]);
        for delta in 1..=u16::MAX {
            page[place..place + 2].copy_from_slice(&(old ^ delta).to_le_bytes());
            assert_ne!(signature::<1>(&page), unchanged);
        }
        page[place..place + 2].copy_from_slice(&old.to_le_bytes());
    }
}

/// A page, and the same page with up to N changes.
fn changed<const N: usize>(symbols_max: usize) -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let change = |symbols| (0..symbols, 1..=u16::MAX);
    (1..=symbols_max, any::<u64>())
        .prop_flat_map(move |(symbols, seed)| {
            (Just((symbols, seed)), prop::collection::vec(change(symbols), 1..=N))
        })
        .prop_map(|((symbols, seed), changes)| {
            let before = bytes(seed, 2 * symbols);
            let mut after = before.clone();
            for (place, delta) in changes {
                let [low, high] = delta.to_le_bytes();
                after[2 * place] ^= low;
                after[2 * place + 1] ^= high;
            }
            (before, after)
        })
        .prop_filter("the changes must not cancel each other", |(before, after)| before != after)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_changes_change_two_symbols((before, after) in changed::<2>(SYMBOLS_MAX)) {
        prop_assert_ne!(signature::<2>(&before), signature::<2>(&after));
    }

    #[test]
    fn three_changes_change_three_symbols((before, after) in changed::<3>(SYMBOLS_MAX)) {
        prop_assert_ne!(signature::<3>(&before), signature::<3>(&after));
    }

    #[test]
    fn four_changes_change_four_symbols((before, after) in changed::<4>(SYMBOLS_MAX)) {
        prop_assert_ne!(signature::<4>(&before), signature::<4>(&after));
    }
}

proptest! {
    #[test]
    fn equals_the_reference(page in prop::collection::vec(any::<u8>(), 0..3000)) {
        check::<2>(&page);
        check::<3>(&page);
    }

    #[test]
    fn is_additive(seed: u64, length in 0..2000_usize) {
        let (p, q) = (bytes(seed, length), bytes(!seed, length));
        let sum: Vec<_> = p.iter().zip(&q).map(|(p, q)| p ^ q).collect();
        prop_assert_eq!(signature::<3>(&sum), signature(&p) + signature(&q));
    }

    #[test]
    fn ignores_zeros_at_the_end(seed: u64, length in 0..600_usize, zeros in 0..600_usize) {
        let mut page = bytes(seed, length);
        let before = signature::<2>(&page);
        page.resize(length + zeros, 0);
        prop_assert_eq!(signature::<2>(&page), before);
    }

    #[test]
    fn concatenates(seed: u64, p_symbols in 0..1000_usize, q_bytes in 0..2000_usize) {
        let page = bytes(seed, 2 * p_symbols + q_bytes);
        let (p, q) = page.split_at(2 * p_symbols);
        let joined = concat(signature::<3>(p), p_symbols, signature(q));
        prop_assert_eq!(joined, signature(&page));
    }

    #[test]
    fn shifting_wraps_at_the_order(symbols: usize, a: u16, b: u16) {
        let signature = Signature([a, b]);
        prop_assert_eq!(signature.shift(symbols % ORDER), signature.shift(symbols));
    }

    #[test]
    fn updates(seed: u64, symbols in 1..1000_usize, at in 0.0..1.0, length in 0..300_usize) {
        let before = bytes(seed, 2 * symbols);
        let offset = (symbols as f64 * at) as usize;
        let range = 2 * offset..(2 * offset + length).min(before.len());
        let new = bytes(!seed, range.len());
        let mut after = before.clone();
        after[range.clone()].copy_from_slice(&new);
        let updated = update(signature::<2>(&before), offset, &before[range], &new);
        prop_assert_eq!(updated, signature::<2>(&after));
    }

    #[test]
    fn scales(seed: u64, symbols in 0..500_usize, c: u16) {
        let page = bytes(seed, 2 * symbols);
        let scaled: Vec<_> = crate::testdata::symbols(&page)
            .flat_map(|symbol| (symbol * Gf(c)).0.to_le_bytes())
            .collect();
        prop_assert_eq!(signature::<3>(&page).scale(c), signature(&scaled));
    }

    #[test]
    fn reads_what_it_wrote(symbols: [u16; 3]) {
        let mut bytes = [0; Signature::<3>::BYTES];
        Signature(symbols).write(&mut bytes);
        prop_assert_eq!(Signature::read(&bytes), Some(Signature(symbols)));
        prop_assert_eq!(Signature::<3>::read(&bytes[1..]), None);
        let two = Signature([symbols[0], symbols[1]]);
        prop_assert_eq!(Signature::from_le_bytes(two.to_le_bytes()), two);
        prop_assert_eq!(Signature::read(&two.to_le_bytes()), Some(two));
    }
}
