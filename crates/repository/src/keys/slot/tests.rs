//! A slot's bytes are exactly a slot.

use strongroom_base::SeededEntropy;

use super::*;

const REPOSITORY: RepositoryId = RepositoryId([4; 16]);

fn slot() -> KeySlot {
    let secret = SlotSecret::Master(MasterSecret([1; 32]));
    let new = NewSlot { label: "x".into(), created: Timestamp(7), cost: Some(KdfCost::CHEAPEST) };
    KeySlot::seal(new, &secret, b"y", REPOSITORY, &SeededEntropy::new(1)).unwrap()
}

#[test]
fn nothing_may_be_missing_or_left_over() {
    let slot = slot();
    let bytes = slot.pack();
    assert_eq!(KeySlot::unpack(slot.id, &bytes).as_ref(), Ok(&slot));
    for length in 0..bytes.len() {
        assert!(KeySlot::unpack(slot.id, &bytes[..length]).is_err(), "{length}");
    }
    // Found by fuzzing.
    let error = KeySlot::unpack(slot.id, &[&bytes[..], &[0]].concat()).unwrap_err();
    assert_eq!(error, damaged("bytes are left over"));
}

#[test]
fn a_cost_is_an_array_of_three() {
    let slot = slot();
    let bytes = slot.pack();
    let cost = bytes.iter().position(|byte| *byte == 0x83).unwrap();
    for head in [0x82, 0x84, 0x9f] {
        let mut bytes = bytes.clone();
        bytes[cost] = head;
        assert!(KeySlot::unpack(slot.id, &bytes).is_err(), "{head:x}");
    }
}

/// Refused before it is paid.
#[test]
fn a_cost_beyond_the_bounds_is_refused() {
    let mut slot = slot();
    for cost in [
        KdfCost { memory_kib: u32::MAX, ..KdfCost::CHEAPEST },
        KdfCost { passes: 1001, ..KdfCost::CHEAPEST },
        KdfCost { passes: 0, ..KdfCost::CHEAPEST },
        KdfCost { lanes: 65, ..KdfCost::CHEAPEST },
        KdfCost { lanes: 0, ..KdfCost::CHEAPEST },
    ] {
        slot.cost = cost;
        assert!(slot.open(b"y", REPOSITORY).is_none(), "{cost:?}");
    }
}

#[test]
fn huge_pages_make_the_same_key() {
    // Memory of less than a page, of some, and of a whole huge page and more.
    for memory_kib in [32, 40, 6000] {
        let cost = KdfCost { memory_kib, ..KdfCost::CHEAPEST };
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost.params().unwrap());
        let (mut ours, mut its_own) = ([0; 32], [0; 32]);
        let memory = &mut argon2_memory(argon2.params().block_count())[..];
        argon2.hash_password_into_with_memory(b"pass", b"saltsalt", &mut ours, memory).unwrap();
        argon2.hash_password_into(b"pass", b"saltsalt", &mut its_own).unwrap();
        assert_eq!(ours, its_own);
    }
}
