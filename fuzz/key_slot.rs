//! Key slots: any bytes, and any cost that a hostile slot may name.
//!
//! What unpacks packs and unpacks to the same, and has used every byte. A cost beyond the bounds is
//! refused before it is paid; Argon2 itself runs only if it is cheap.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_base::{MasterSecret, NamingSecret, RepositoryId, SeededEntropy, SlotId, Timestamp};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};
use strongroom_repository::keys::{Access, KdfCost, KeySlot, NewSlot, SlotSecret};

const ID: SlotId = SlotId([3; 8]);
const REPOSITORY: RepositoryId = RepositoryId([4; 16]);
/// As `key generate` makes them, so that slots cost next to nothing.
const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
const OTHER: &[u8] =
    b"strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 { check_bytes(input.rest()) } else { round(&mut input) }
});

fn check_bytes(bytes: &[u8]) {
    let unpacked = measure(|| KeySlot::unpack(ID, bytes));
    // Skipped fields may be nested, and take memory for each level.
    assert!(unpacked.peak_bytes <= 64 * bytes.len() + 4096);
    let Ok(slot) = unpacked.value else { return };
    assert_eq!(slot.id, ID);
    assert_eq!(KeySlot::unpack(ID, &slot.pack()).as_ref(), Ok(&slot));
    assert_eq!(slot.pack(), bytes, "what is authenticated is what was stored");
    let cost = slot.cost;
    let is_bounded = cost.memory_kib <= KdfCost::MEMORY_KIB_MAX
        && cost.passes <= 1000
        && (1..=64).contains(&cost.lanes);
    let is_cheap = cost.memory_kib <= 512 && cost.passes <= 2;
    if !is_bounded || is_cheap {
        let opened = measure(|| slot.open(PASSPHRASE, REPOSITORY).is_some());
        assert!(!opened.value, "a tag is never guessed");
        let bound = if is_bounded { 1 << 20 } else { 1 << 12 };
        assert!(opened.peak_bytes <= bound, "it took {}", opened.peak_bytes);
    }
}

/// A slot that was sealed opens with its passphrase alone.
fn round(input: &mut Input<'_>) {
    let (master, naming) = (MasterSecret(input.array()), NamingSecret(input.array()));
    let full = SlotSecret::Full { master, naming };
    let secret = match input.u8() & 1 {
        0 => full,
        _ => full.put_only("laptop").expect("it is a name"),
    };
    let created = Timestamp(input.u64().cast_signed());
    let entropy = SeededEntropy::new(input.u64());
    let label = String::from_utf8_lossy(input.rest()).into_owned();
    let new = NewSlot { label, created, cost: None };
    let slot = KeySlot::seal(new, &secret, PASSPHRASE, REPOSITORY, &entropy)
        .expect("the cheapest cost is within bounds");
    assert_eq!(KeySlot::unpack(slot.id, &slot.pack()).as_ref(), Ok(&slot));
    let opened = slot.open(PASSPHRASE, REPOSITORY).expect("it is the slot's passphrase");
    assert_eq!(opened.access(), secret.access());
    assert_eq!(opened.access() == Access::Full, opened.keys().can_read());
    let summary_key = |secret: &SlotSecret| secret.keys().write.domain.summary_key;
    assert_eq!(summary_key(&opened), summary_key(&secret));
    assert!(slot.open(OTHER, REPOSITORY).is_none());
    assert!(slot.open(PASSPHRASE, RepositoryId([5; 16])).is_none());
}

fn seeds() -> Vec<Vec<u8>> {
    let secret = SlotSecret::Full { master: MasterSecret([1; 32]), naming: NamingSecret([2; 32]) };
    let new = NewSlot { label: "x".into(), created: Timestamp(7), cost: None };
    let slot = KeySlot::seal(new, &secret, PASSPHRASE, REPOSITORY, &SeededEntropy::new(1))
        .expect("the cost is within bounds")
        .pack();
    let mut costly = slot.clone();
    // An array of three: 32 KiB, 1 pass, 4 lanes.
    let cost = slot.iter().position(|byte| *byte == 0x83).expect("the cost is an array");
    costly.splice(cost + 1..cost + 3, [0x1a, 0xff, 0xff, 0xff, 0xff]);
    let after = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    vec![after(0, &slot), after(0, &costly), after(1, &[9; 110])]
}
