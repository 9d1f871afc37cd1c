//! The code against its reference, on every path and for many shapes; its laws; its errors.

use proptest::{prelude::*, sample::subsequence};

use super::*;
use crate::{field::Gf, reference, signature, testdata};

/// The parity that every path computes for `data`, checked to be the reference's.
fn check_encode(code: &Code, data: &[u8], shard_bytes: usize) -> Vec<u8> {
    let shards: Vec<_> = data.chunks(shard_bytes).collect();
    let mut padded = vec![vec![0; shard_bytes]];
    padded.extend(shards.iter().map(|shard| shard.to_vec()));
    let mut expected = reference::encode(&shards, code.parity_shards).concat();
    expected.resize(code.parity_shards * shard_bytes, 0);
    for path in Path::supported() {
        let mut parity = vec![0xee; code.parity_shards * shard_bytes];
        code.encode_on(path, data, shard_bytes, &mut parity).unwrap();
        assert!(parity == expected, "{path:?}, {code:?}, {shard_bytes}");
    }
    expected
}

/// Checks that every path repairs the `lost` shards and leaves the others alone.
fn check_repair(code: &Code, data: &[u8], parity: &[u8], shard_bytes: usize, lost: &[usize]) {
    for path in Path::supported() {
        let (mut data_left, mut parity_left) = (data.to_vec(), parity.to_vec());
        for &shard in lost {
            let shard = match shard.checked_sub(code.data_shards) {
                None => &mut data_left[shard * shard_bytes..][..shard_bytes],
                Some(shard) => &mut parity_left[shard * shard_bytes..][..shard_bytes],
            };
            shard.fill(0xee);
        }
        code.repair_on(path, &mut data_left, &mut parity_left, shard_bytes, lost).unwrap();
        assert!(data_left == data && parity_left == parity, "{path:?}, {lost:?}");
    }
}

#[test]
fn golden_vectors() {
    let golden = [
        (1, 1, 2, "c4ea"),
        (3, 2, 4, "cac0743d09a91812"),
        (5, 3, 6, "f0f603ff78ac036da0e95903624d29332a99"),
        (17, 5, 4, "76d0b23aae59c2e43b4c089f1310f8eb8be94d1b"),
    ];
    for (data_shards, parity_shards, shard_bytes, expected) in golden {
        let code = Code::new(data_shards, parity_shards).unwrap();
        let data = testdata::bytes(2, data_shards * shard_bytes);
        let parity = check_encode(&code, &data, shard_bytes);
        let hex: String = parity.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
        // Few lost shards and many take different ways.
        check_repair(&code, &data, &parity, shard_bytes, &[data_shards - 1]);
        let last: Vec<_> = (data_shards - 1..data_shards - 1 + parity_shards).collect();
        check_repair(&code, &data, &parity, shard_bytes, &last);
    }
}

/// Checks the definition itself, sums and all, for stored and virtual parity.
#[test]
fn a_codeword_has_no_power_sums() {
    for (data_shards, parity_shards) in [(1, 1), (4, 2), (5, 3), (9, 4), (30, 7), (20, 13)] {
        let data = testdata::bytes(5, 2 * data_shards);
        let m = reference::parity_points(parity_shards);
        let shards: Vec<_> = data.chunks(2).collect();
        let mut codeword = reference::encode(&shards, m).concat();
        let code = Code::new(data_shards, parity_shards).unwrap();
        let parity = check_encode(&code, &data, 2);
        assert_eq!(parity, codeword[..2 * parity_shards]);
        codeword.extend(data);
        for t in 0..m as u64 {
            let weighed = (0..).zip(testdata::symbols(&codeword)).map(|(i, c)| c * Gf(i).pow(t));
            assert_eq!(weighed.sum::<Gf>(), Gf::ZERO, "{data_shards} + {parity_shards}, t = {t}");
        }
    }
}

#[test]
fn encode_equals_the_reference_for_many_shapes() {
    for data_shards in [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 40, 100, 257] {
        for parity_shards in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 33] {
            let code = Code::new(data_shards, parity_shards).unwrap();
            check_encode(&code, &testdata::bytes(11, data_shards * 2), 2);
        }
    }
}

#[test]
fn encode_takes_any_shard_length_and_a_short_end() {
    let code = Code::new(5, 3).unwrap();
    for shard_bytes in (2..300).step_by(2).chain([1022, 1024, 1026, 4094, 10_000]) {
        let data = testdata::bytes(13, 5 * shard_bytes);
        check_encode(&code, &data, shard_bytes);
        for missing in [1, 2, shard_bytes / 2, shard_bytes, shard_bytes + 1, 4 * shard_bytes] {
            check_encode(&code, &data[..data.len() - missing], shard_bytes);
        }
    }
}

#[test]
fn no_data_have_zero_parity() {
    let code = Code::new(5, 3).unwrap();
    let mut parity = [0xee; 24];
    code.encode(&[], 8, &mut parity).unwrap();
    assert_eq!(parity, [0; 24]);
    code.encode(&[], 0, &mut []).unwrap();
    code.repair(&mut [], &mut [], 0, &[1, 6]).unwrap();
}

#[test]
fn one_parity_shard_is_the_exclusive_or() {
    let code = Code::new(3, 1).unwrap();
    let mut parity = [0; 2];
    code.encode(&[1, 2, 4, 8, 16, 32], 2, &mut parity).unwrap();
    assert_eq!(parity, [1 ^ 4 ^ 16, 2 ^ 8 ^ 32]);
}

#[test]
fn every_set_of_lost_shards_is_repaired() {
    for (data_shards, parity_shards) in [(1, 1), (1, 3), (3, 2), (5, 3), (6, 4)] {
        let code = Code::new(data_shards, parity_shards).unwrap();
        let data = testdata::bytes(17, data_shards * 6);
        let parity = check_encode(&code, &data, 6);
        let shards = data_shards + parity_shards;
        for set in 0..1_usize << shards {
            let lost: Vec<_> = (0..shards).filter(|shard| set >> shard & 1 == 1).collect();
            if lost.len() <= parity_shards {
                check_repair(&code, &data, &parity, 6, &lost);
            } else {
                let error = CodeError::TooManyLost { lost: lost.len(), parity: parity_shards };
                let (mut data_left, mut parity_left) = (data.clone(), parity.clone());
                let refused = code.repair(&mut data_left, &mut parity_left, 6, &lost);
                assert_eq!(refused, Err(error));
                assert!(data_left == data && parity_left == parity);
            }
        }
    }
}

#[test]
fn the_largest_code_works() {
    for (data_shards, parity_shards) in [(65535, 1), (65534, 2), (65536 - 8, 5), (32768, 32768)] {
        let code = Code::new(data_shards, parity_shards).unwrap();
        let data = testdata::bytes(19, data_shards * 2);
        let mut parity = vec![0; parity_shards * 2];
        code.encode(&data, 2, &mut parity).unwrap();
        let last = [data_shards - 1, data_shards];
        let lost = &last[..parity_shards.min(2)];
        let mut data_left = data.clone();
        data_left[2 * (data_shards - 1)..].fill(0);
        let mut parity_left = parity.clone();
        if lost.len() == 2 {
            parity_left[..2].fill(0);
        }
        code.repair(&mut data_left, &mut parity_left, 2, lost).unwrap();
        assert!(data_left == data && parity_left == parity);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let shape = |data_shards, parity_shards| {
        assert_eq!(
            Code::new(data_shards, parity_shards).err(),
            Some(CodeError::Shape { data_shards, parity_shards })
        );
    };
    shape(0, 1);
    shape(65536, 1);
    shape(65536 - 7, 5);
    shape(1, 32769);
    shape(1, usize::MAX);
    shape(usize::MAX, 1);

    let code = Code::new(3, 2).unwrap();
    let encode = |data: usize, shard_bytes, parity: usize| {
        code.encode(&vec![0; data], shard_bytes, &mut vec![0; parity])
    };
    assert_eq!(encode(9, 3, 6), Err(CodeError::OddShard { shard_bytes: 3 }));
    assert_eq!(encode(13, 4, 8), Err(CodeError::DataLength { bytes: 13, expected: 12 }));
    assert_eq!(encode(12, 4, 9), Err(CodeError::ParityLength { bytes: 9, expected: 8 }));

    let repair = |data: usize, parity: usize, lost: &[usize]| {
        code.repair(&mut vec![0; data], &mut vec![0; parity], 4, lost)
    };
    assert_eq!(repair(11, 8, &[0]), Err(CodeError::DataLength { bytes: 11, expected: 12 }));
    assert_eq!(repair(12, 8, &[1, 0]), Err(CodeError::LostList { shard: 0 }));
    assert_eq!(repair(12, 8, &[1, 1]), Err(CodeError::LostList { shard: 1 }));
    assert_eq!(repair(12, 8, &[0, 5]), Err(CodeError::LostList { shard: 5 }));
    assert_eq!(repair(12, 8, &[0, 1, 4]), Err(CodeError::TooManyLost { lost: 3, parity: 2 }));

    let none = Code::new(3, 0).unwrap();
    let lost = none.repair(&mut [0; 6], &mut [], 2, &[0]);
    assert_eq!(lost, Err(CodeError::TooManyLost { lost: 1, parity: 0 }));
    assert_eq!(none.encode(&[1; 6], 2, &mut []), Ok(()));
}

/// A code, its shard length, and shards of it to lose.
fn losses() -> impl Strategy<Value = (Code, usize, Vec<usize>)> {
    (1..80_usize, 1..20_usize, 1..700_usize).prop_flat_map(|(data, parity, symbols)| {
        let shards: Vec<_> = (0..data + parity).collect();
        let lost = subsequence(shards, 0..=parity);
        (Just(Code::new(data, parity).unwrap()), Just(2 * symbols), lost)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn repairs_any_losses((code, shard_bytes, lost) in losses(), seed: u64) {
        let data = testdata::bytes(seed, code.data_shards * shard_bytes);
        let parity = check_encode(&code, &data, shard_bytes);
        check_repair(&code, &data, &parity, shard_bytes, &lost);
    }

    #[test]
    fn parity_of_signatures_is_signatures_of_parity(
        (code, shard_bytes, _) in losses(),
        seed: u64,
        missing in 0..2000_usize,
    ) {
        let mut data = testdata::bytes(seed, code.data_shards * shard_bytes);
        data.truncate(data.len() - missing.min(data.len()));
        let mut parity = vec![0; code.parity_shards * shard_bytes];
        code.encode(&data, shard_bytes, &mut parity).unwrap();
        let of = |shards: &[u8]| -> Vec<Signature<3>> {
            shards.chunks(shard_bytes).map(signature).collect()
        };
        prop_assert_eq!(code.parity_of_signatures(&of(&data)), of(&parity));
    }
}
