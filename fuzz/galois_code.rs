//! The Reed–Solomon code of any shape: every loss within parity is restored; wrong arguments are
//! refused and write nothing; signatures of parity are the parity of signatures.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_fuzz::{Input, write_seeds_if_asked};
use strongroom_galois::{Code, CodeError, Signature, concat, reference, signature, update};

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    match input.u8() & 3 {
        0 => check_shape(&mut input),
        1 => check_arguments(&mut input),
        2 => check_signatures(&mut input),
        _ => check_repair(&mut input),
    }
});

/// Data shards, parity shards and bytes of a shard: all small, or one of them larger.
fn shape(input: &mut Input<'_>) -> (usize, usize, usize) {
    let large = input.u8();
    let data_shards = 1 + input.below(if large & 1 == 0 { 40 } else { 700 });
    let parity_shards = input.below(if large & 2 == 0 { 20 } else { 150 });
    let shard_bytes = 2 * input.below(if large & 7 == 4 { 2500 } else { 70 });
    (data_shards, parity_shards, shard_bytes)
}

fn check_repair(input: &mut Input<'_>) {
    let (data_shards, parity_shards, shard_bytes) = shape(input);
    let code = Code::new(data_shards, parity_shards).expect("the shape is small");
    assert_eq!((code.data_shards(), code.parity_shards()), (data_shards, parity_shards));
    let data = input.expanded(data_shards * shard_bytes);
    let mut parity = vec![0x55; parity_shards * shard_bytes];
    code.encode(&data, shard_bytes, &mut parity).expect("the lengths are right");
    check_parity(&code, &data, &parity, shard_bytes);

    let mut lost = Vec::new();
    while lost.len() < parity_shards && !input.is_empty() {
        lost.push(input.below(data_shards + parity_shards));
    }
    lost.sort_unstable();
    lost.dedup();
    let (mut damaged_data, mut damaged_parity) = (data.clone(), parity.clone());
    for shard in &lost {
        let (shards, shard) = match shard.checked_sub(data_shards) {
            None => (&mut damaged_data, *shard),
            Some(shard) => (&mut damaged_parity, shard),
        };
        shards[shard * shard_bytes..][..shard_bytes].fill(0xee);
    }
    code.repair(&mut damaged_data, &mut damaged_parity, shard_bytes, &lost)
        .expect("no more is lost than there is parity");
    assert_eq!(damaged_data, data);
    assert_eq!(damaged_parity, parity);
}

/// Parity is what the reference says, and its signatures the parity of the data's.
fn check_parity(code: &Code, data: &[u8], parity: &[u8], shard_bytes: usize) {
    if shard_bytes == 0 {
        return;
    }
    if code.data_shards() <= 12 && code.parity_shards() <= 6 && shard_bytes <= 32 {
        let shards: Vec<&[u8]> = data.chunks(shard_bytes).collect();
        assert_eq!(reference::encode(&shards, code.parity_shards()).concat(), parity);
    }
    let sign = |shards: &[u8]| -> Vec<Signature<2>> {
        shards.chunks(shard_bytes).map(signature::<2>).collect()
    };
    assert_eq!(code.parity_of_signatures(&sign(data)), sign(parity));
}

/// Any shape is a code or is refused, and takes at most memory for the elements of the field.
fn check_shape(input: &mut Input<'_>) {
    let wide = input.u8();
    let mut count = || match wide & 1 {
        0 => input.u32() as usize % 0x1_4000,
        _ => usize::try_from(input.u64()).expect("targets have 64 bits"),
    };
    let (data_shards, parity_shards) = (count(), count());
    let points = parity_shards.checked_next_power_of_two();
    let is_allowed = data_shards > 0
        && points.and_then(|points| points.checked_add(data_shards)).is_some_and(|n| n <= 65536);
    match Code::new(data_shards, parity_shards) {
        Ok(code) => {
            assert!(is_allowed);
            assert_eq!((code.data_shards(), code.parity_shards()), (data_shards, parity_shards));
        }
        Err(error) => {
            assert!(!is_allowed);
            assert_eq!(error, CodeError::Shape { data_shards, parity_shards });
        }
    }
}

/// Lengths and lists of the fuzzer's making: refused and nothing written, or right.
fn check_arguments(input: &mut Input<'_>) {
    let (data_shards, parity_shards) = (1 + input.below(20), input.below(10));
    let code = Code::new(data_shards, parity_shards).expect("the shape is small");
    let shard_bytes = input.below(20);
    let near = |input: &mut Input<'_>, right: usize| match input.u8() {
        0..=7 => right.saturating_sub(1),
        8..=15 => right + 1,
        _ => right,
    };
    let data_bytes = near(input, data_shards * shard_bytes);
    let parity_bytes = near(input, parity_shards * shard_bytes);
    let mut data = input.expanded(data_bytes);
    let mut parity = input.expanded(parity_bytes);
    let mut lost = Vec::new();
    while !input.is_empty() && lost.len() < 12 {
        lost.push(usize::from(input.u8()) % (data_shards + parity_shards + 1));
    }
    let before = (data.clone(), parity.clone());
    let is_right = shard_bytes.is_multiple_of(2)
        && data.len() == data_shards * shard_bytes
        && parity.len() == parity_shards * shard_bytes
        && lost.is_sorted_by(|a, b| a < b)
        && lost.iter().all(|shard| *shard < data_shards + parity_shards)
        && lost.len() <= parity_shards;
    let repaired = code.repair(&mut data, &mut parity, shard_bytes, &lost);
    assert_eq!(repaired.is_ok(), is_right, "{repaired:?}");
    if repaired.is_err() || lost.is_empty() {
        assert_eq!((&data, &parity), (&before.0, &before.1));
    }
    let before = parity.clone();
    let encoded = code.encode(&data, shard_bytes, &mut parity);
    let is_right = shard_bytes.is_multiple_of(2)
        && data.len() <= data_shards * shard_bytes
        && parity.len() == parity_shards * shard_bytes;
    assert_eq!(encoded.is_ok(), is_right, "{encoded:?}");
    assert!(encoded.is_ok() || parity == before);
}

/// Signatures: as the reference says, and as their algebra says.
fn check_signatures(input: &mut Input<'_>) {
    let length = input.below(3000);
    let mut page = input.expanded(length);
    let cut = 2 * input.below(page.len() / 2 + 1);
    let changed = input.rest();
    page.splice(cut..(cut + changed.len()).min(page.len()), changed.iter().copied());
    let whole = signature::<2>(&page);
    assert_eq!(whole, reference::signature::<2>(&page));
    assert_eq!(signature::<3>(&page), reference::signature::<3>(&page));
    assert_eq!(Signature::from_le_bytes(whole.to_le_bytes()), whole);
    let (front, back) = page.split_at(cut.min(page.len()));
    assert_eq!(concat(signature::<2>(front), front.len().div_ceil(2), signature(back)), whole);
    let mut other = page.clone();
    other[cut.min(page.len())..].fill(0x3c);
    let new = &other[cut.min(page.len())..];
    assert_eq!(update(whole, cut / 2, back, new), signature::<2>(&other));
}

fn seeds() -> Vec<Vec<u8>> {
    let ramp: Vec<u8> = (0..60).collect();
    let repair = |shape: &[u8], lost: &[u8]| [&[3], shape, lost].concat();
    vec![
        repair(&[0, 9, 0, 4, 0, 8, 0, 0x80, 1], &[1, 0, 3, 0, 10, 0]),
        repair(&[0, 30, 0, 16, 0, 33, 0, 0x80, 1], &ramp),
        repair(&[3, 200, 1, 100, 0, 9, 0, 0x80, 1], &ramp),
        repair(&[4, 5, 0, 3, 0, 0, 9, 0x80, 1], &[0, 0, 1, 0]),
        vec![0, 0, 0, 255, 0, 0, 0, 1, 0, 0],
        vec![0, 1, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        [&[1, 9, 0, 4, 0, 8, 0, 99, 99, 5, 1, 2, 3, 4, 5, 1, 7][..], &[1, 3]].concat(),
        [&[2, 100, 1, 0x80, 3, 20, 0], &ramp[..]].concat(),
    ]
}
