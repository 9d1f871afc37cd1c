//! A slot's bytes are exactly a slot.

use strongroom_base::{MasterSecret, NamingSecret, SeededEntropy};

use super::*;
use crate::keys::generate_passphrase;

const REPOSITORY: RepositoryId = RepositoryId([4; 16]);

fn passphrase() -> Zeroizing<String> {
    generate_passphrase(&SeededEntropy::new(9))
}

fn full() -> SlotSecret {
    SlotSecret::Full { master: MasterSecret([1; 32]), naming: NamingSecret([2; 32]) }
}

fn seal(secret: &SlotSecret) -> KeySlot {
    let new = NewSlot { label: "x".into(), created: Timestamp(7), cost: None };
    let entropy = SeededEntropy::new(1);
    KeySlot::seal(new, secret, passphrase().as_bytes(), REPOSITORY, &entropy).unwrap()
}

fn opens(slot: &KeySlot) -> bool {
    slot.open(passphrase().as_bytes(), REPOSITORY).is_some()
}

#[test]
fn both_kinds_come_back() {
    let put_only = full().put_only("laptop").unwrap();
    for secret in [full(), put_only] {
        let slot = seal(&secret);
        let opened = slot.open(passphrase().as_bytes(), REPOSITORY).unwrap();
        assert_eq!(opened.pack(), secret.pack());
        assert_eq!(opened.access(), slot.access);
    }
}

#[test]
fn a_put_only_secret_gives_its_own_domain_alone() {
    let laptop = full().put_only("laptop").unwrap();
    assert!(laptop.put_only("laptop").is_some());
    assert!(laptop.put_only("server").is_none());
    assert!(full().put_only("").is_none(), "the owner's domain has no put-only keys");
    let other = full().put_only("server").unwrap();
    assert_ne!(laptop.keys().write.domain.id, other.keys().write.domain.id);
    assert_ne!(laptop.keys().write.domain.summary_key, other.keys().write.domain.summary_key);
    assert_eq!(laptop.keys().write.naming.chunker_key, other.keys().write.naming.chunker_key);
}

/// No bit of a slot can be changed unnoticed: its label and cost neither.
#[test]
fn a_slot_opens_only_as_it_was_sealed() {
    let slot = seal(&full());
    let bytes = slot.pack();
    assert_eq!(KeySlot::unpack(slot.id, &bytes).as_ref(), Ok(&slot));
    assert!(opens(&slot));
    let mut unpacked = 0;
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        if let Ok(slot) = KeySlot::unpack(slot.id, &changed) {
            unpacked += 1;
            assert!(slot.cost.memory_kib > 1 << 10 || !opens(&slot), "{place}");
        }
    }
    assert!(unpacked > 100, "{unpacked}");
    assert!(slot.open(passphrase().as_bytes(), RepositoryId([5; 16])).is_none());
    let moved = KeySlot { id: SlotId([9; 8]), ..slot };
    assert!(!opens(&moved));
}

#[test]
fn nothing_may_be_missing_or_left_over() {
    let slot = seal(&full());
    let bytes = slot.pack();
    for length in 0..bytes.len() {
        assert!(KeySlot::unpack(slot.id, &bytes[..length]).is_err(), "{length}");
    }
    let longer = KeySlot::unpack(slot.id, &[&bytes[..], &[0]].concat()).unwrap();
    assert!(!opens(&longer));
}

/// GCM opens under several keys what was made for that; the commitment is to one.
#[test]
fn another_key_is_refused_before_the_seal_is_tried() {
    let mut slot = seal(&full());
    slot.commitment[0] ^= 1;
    assert!(!opens(&slot));
}

/// What a stranger puts beside the slots cannot make guesses of a typed passphrase cheap.
#[test]
fn a_cheap_slot_is_tried_with_a_generated_passphrase_alone() {
    let typed = b"correct horse";
    let entropy = SeededEntropy::new(1);
    let new = |cost| NewSlot { label: String::new(), created: Timestamp(7), cost: Some(cost) };
    let sealed = |cost| KeySlot::seal(new(cost), &full(), typed, REPOSITORY, &entropy);
    assert_eq!(sealed(KdfCost::CHEAPEST).err(), Some(SlotError::TooCheap { least_mib: 8 }));
    let mut slot = sealed(KdfCost::TYPED_MIN).unwrap();
    assert!(slot.open(typed, REPOSITORY).is_some());
    // Sealed as an attacker would, without the rule.
    slot.cost = KdfCost::CHEAPEST;
    let key = slot.derive_key(typed).unwrap();
    slot.commitment = slot.commitment_to(&key);
    slot.clear = slot.encode_clear();
    slot.sealed = full().pack();
    SealKey::new(&key).seal(0, &slot.aad(REPOSITORY), &mut slot.sealed);
    assert!(slot.open(typed, REPOSITORY).is_none());
}

#[test]
fn a_cost_is_an_array_of_three() {
    let slot = seal(&full());
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
    let mut slot = seal(&full());
    for cost in [
        KdfCost { memory_kib: u32::MAX, ..KdfCost::CHEAPEST },
        KdfCost { passes: 1001, ..KdfCost::CHEAPEST },
        KdfCost { passes: 0, ..KdfCost::CHEAPEST },
        KdfCost { lanes: 65, ..KdfCost::CHEAPEST },
        KdfCost { lanes: 0, ..KdfCost::CHEAPEST },
    ] {
        slot.cost = cost;
        assert!(!opens(&slot), "{cost:?}");
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
