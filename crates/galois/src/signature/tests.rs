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
        (127, [0x328d, 0x4bc5, 0x9fcb, 0xf474]),
        (128, [0xc780, 0xc911, 0x9aec, 0xb423]),
        (1000, [0xcc40, 0x7312, 0x3800, 0x2e3e]),
        (4097, [0x1ca7, 0x1419, 0x1c9d, 0x0a93]),
    ];
    let length_max = if cfg!(miri) { 128 } else { usize::MAX };
    for (length, expected) in golden.into_iter().filter(|(length, _)| *length <= length_max) {
        let page = bytes(1, length);
        assert_eq!(signature::<4>(&page).0, expected, "{length} bytes");
        assert_eq!(signature::<2>(&page).0, expected[..2], "{length} bytes");
        check::<4>(&page);
    }
    assert_eq!(Signature([0x1ca7, 0x1419]).to_le_bytes(), [0xa7, 0x1c, 0x19, 0x14]);
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

#[test]
fn exponents_are_neighbouring_odd_numbers() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(exponent), [1, -1, 3, -3, 5, -5]);
    for symbols in 1..9 {
        let mut exponents: Vec<_> = (0..symbols).map(exponent).collect();
        exponents.sort_unstable();
        assert!(exponents.windows(2).all(|pair| pair[1] == pair[0] + 2), "{exponents:?}");
    }
}

/// With this, any N changed symbols among 65535 change an N-symbol signature. The exponents of
/// such a signature are e, e + 2, …, e + 2(N − 1), so the equations for the N differences to
/// cancel out have a Vandermonde matrix in the squared weights of the positions, with each column
/// multiplied by the position's weight to the power e. Its determinant is a product of such
/// powers and of differences of squared weights, none of them zero.
#[test]
fn the_squared_weights_of_all_positions_differ() {
    let mut seen = vec![false; ORDER + 1];
    let mut square = Gf::ONE;
    for _ in 0..=SYMBOLS_MAX {
        assert_ne!(square, Gf::ZERO);
        assert!(!seen[usize::from(square.0)]);
        seen[usize::from(square.0)] = true;
        square *= ALPHA * ALPHA;
    }
    assert_eq!(square, Gf::ONE);
}

/// How many bits of the signature of these exponents a change by one equal difference reaches.
///
/// Such a change is a set of positions, so the change of the signature is a linear map from sets
/// to bits. Its rank r says that one set in 2^r leaves the signature as it was.
fn rank_of_equal_differences(exponents: &[i32], difference: u16) -> usize {
    let change_at = |position: usize| {
        let mut page = vec![0; 2 * position];
        page.extend_from_slice(&difference.to_le_bytes());
        exponents
            .iter()
            .fold(0_u64, |bits, e| bits << 16 | u64::from(reference::signature_symbol(&page, *e)))
    };
    let mut basis: Vec<u64> = Vec::new();
    for position in 0..256 {
        let rest = basis.iter().fold(change_at(position), |rest, row| rest.min(rest ^ row));
        if rest != 0 {
            basis.push(rest);
        }
    }
    basis.len()
}

/// Why the exponents are not 1, 2, …, N as in the paper: sig_2k follows from sig_k where all
/// changed symbols changed by the same difference, as flags, counters and stuck bits do.
#[test]
fn equal_differences_collapse_under_the_papers_exponents_and_not_under_ours() {
    for difference in [0x0001, 0x0100, 0x8000, 0xffff, 0x1234] {
        let rank = |exponents: &[i32]| rank_of_equal_differences(exponents, difference);
        assert_eq!(rank(&[1]), 16);
        assert_eq!(rank(&[1, 2]), 16, "no better than one symbol");
        assert_eq!(rank(&[1, 2, 3, 4]), 32, "no better than two symbols");
        assert_eq!(rank(&[0, 1].map(exponent)), 32);
        assert_eq!(rank(&[0, 1, 2, 3].map(exponent)), 64);
    }
}

/// One change that the paper's signature misses: the same flag set in a few of 64 symbols.
#[test]
fn a_flag_set_in_many_symbols_is_noticed() {
    let page = |positions: &[usize]| {
        let mut page = vec![0; 128];
        positions.iter().for_each(|position| page[2 * position] = 1);
        page
    };
    let unchanged = |e, page: &[u8]| reference::signature_symbol(page, e) == 0;
    let positions = flags_that_sum_to_zero();
    let flags = page(&positions);
    assert!(unchanged(1, &flags) && unchanged(2, &flags), "{positions:?}");
    assert_ne!(signature::<2>(&flags), Signature::ZERO);
}

/// Positions below 64 whose weights sum to zero: at most 17, since a weight has 16 bits.
fn flags_that_sum_to_zero() -> Vec<usize> {
    let mut basis: Vec<(u16, u64)> = Vec::new();
    for position in 0..64 {
        let unit = (ALPHA.pow(position).0, 1 << position);
        let (rest, members) = basis.iter().fold(unit, |(rest, members), (row, of)| {
            if rest ^ row < rest { (rest ^ row, members ^ of) } else { (rest, members) }
        });
        if rest == 0 {
            return (0..64).filter(|place| members >> place & 1 == 1).collect();
        }
        basis.push((rest, members));
    }
    unreachable!("17 weights of 16 bits are dependent")
}

/// Three equal differences cancel only at positions a third of the group apart, which no shard is
/// long enough for. Four never do: with a + b = c + d and 1/a + 1/b = 1/c + 1/d the two pairs have
/// one sum and one product, so they are one pair.
#[test]
fn up_to_four_equal_differences_in_a_shard_are_noticed_for_certain() {
    for distance in 1..ORDER as u64 {
        let second = ALPHA.pow(distance);
        let third = Gf::ONE + second;
        let cancels = third != Gf::ZERO && Gf::ONE + second.inv() + third.inv() == Gf::ZERO;
        assert_eq!(cancels, distance.is_multiple_of(ORDER as u64 / 3), "{distance}");
    }
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

/// A page of a shard's length at most, and the same page with up to `changes_max` symbols changed
/// by one difference.
fn changed_equally(changes_max: usize) -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    const SYMBOLS: usize = 1 << 15;
    let places = prop::collection::btree_set(0..SYMBOLS, 1..=changes_max);
    (any::<u64>(), 1..=u16::MAX, places).prop_map(|(seed, difference, places)| {
        let before = bytes(seed, 2 * SYMBOLS);
        let mut after = before.clone();
        let [low, high] = difference.to_le_bytes();
        for place in places {
            after[2 * place] ^= low;
            after[2 * place + 1] ^= high;
        }
        (before, after)
    })
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
    fn four_equal_changes_change_two_symbols((before, after) in changed_equally(4)) {
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
