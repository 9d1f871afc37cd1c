//! Key slots: any bytes, and any cost that a hostile slot may name.
//!
//! What unpacks packs and unpacks to the same, and has used every byte. A cost beyond the bounds is
//! refused before it is paid; Argon2 itself is run only where it is cheap.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_base::{MasterSecret, RepositoryId, SeededEntropy, SlotId, Timestamp};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};
use strongroom_repository::keys::{Access, KdfCost, KeySlot, NewSlot, SlotSecret};

const ID: SlotId = SlotId([3; 8]);
const REPOSITORY: RepositoryId = RepositoryId([4; 16]);

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 { check_bytes(input.rest()) } else { round(&mut input) }
});

fn check_bytes(bytes: &[u8]) {
    let unpacked = measure(|| KeySlot::unpack(ID, bytes));
    // What is skipped may be nested, and takes memory for each level.
    assert!(unpacked.peak_bytes <= 64 * bytes.len() + 4096);
    let Ok(slot) = unpacked.value else { return };
    assert_eq!(slot.id, ID);
    assert_eq!(KeySlot::unpack(ID, &slot.pack()).as_ref(), Ok(&slot));
    assert!(KeySlot::unpack(ID, &[bytes, &[0]].concat()).is_err(), "a byte is left over");
    assert!(KeySlot::unpack(ID, &bytes[..bytes.len() - 1]).is_err(), "a byte is missing");
    let cost = slot.cost;
    let is_bounded = cost.memory_kib <= KdfCost::MEMORY_KIB_MAX
        && cost.passes <= 1000
        && (1..=64).contains(&cost.lanes);
    let is_cheap = cost.memory_kib <= 512 && cost.passes <= 2;
    if !is_bounded || is_cheap {
        let opened = measure(|| slot.open(b"a guess", REPOSITORY).is_some());
        assert!(!opened.value, "nobody guesses a tag");
        let bound = if is_bounded { 1 << 20 } else { 1 << 12 };
        assert!(opened.peak_bytes <= bound, "it took {}", opened.peak_bytes);
    }
}

/// A slot that was sealed opens with its passphrase alone.
fn round(input: &mut Input<'_>) {
    let master = SlotSecret::Master(MasterSecret(input.array()));
    let secret = if input.u8() & 1 == 0 { master } else { master.put_only() };
    let passphrase = input.array::<8>();
    let created = Timestamp(input.u64().cast_signed());
    let entropy = SeededEntropy::new(input.u64());
    let label = String::from_utf8_lossy(input.rest()).into_owned();
    let new = NewSlot { label, created, cost: Some(KdfCost::CHEAPEST) };
    let slot = KeySlot::seal(new, &secret, &passphrase, REPOSITORY, &entropy)
        .expect("the cheapest cost is within bounds");
    assert_eq!(KeySlot::unpack(slot.id, &slot.pack()).as_ref(), Ok(&slot));
    let opened = slot.open(&passphrase, REPOSITORY).expect("it is the slot's passphrase");
    assert_eq!(opened.access(), secret.access());
    assert_eq!(opened.access() == Access::Full, opened.keys().private_key.is_some());
    assert_eq!(opened.keys().write.summary_key, secret.keys().write.summary_key);
    assert!(slot.open(b"another", REPOSITORY).is_none());
    assert!(slot.open(&passphrase, RepositoryId([5; 16])).is_none());
}

fn seeds() -> Vec<Vec<u8>> {
    let slot = |cost| {
        let secret = SlotSecret::Master(MasterSecret([1; 32]));
        let new = NewSlot { label: "x".into(), created: Timestamp(7), cost: Some(cost) };
        KeySlot::seal(new, &secret, b"y", REPOSITORY, &SeededEntropy::new(1))
            .expect("the cost is within bounds")
    };
    let mut costly = slot(KdfCost::CHEAPEST);
    costly.cost = KdfCost { memory_kib: u32::MAX, passes: 2000, lanes: 300 };
    let after = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    vec![after(0, &slot(KdfCost::CHEAPEST).pack()), after(0, &costly.pack()), after(1, &[9; 70])]
}
