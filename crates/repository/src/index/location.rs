//! A location as the index has it: where a chunk is, bound to the chunk's fingerprint.
//!
//! ```text
//! ordinal (32) | check (10) | slot (22)
//! ```
//!
//! The check finds what became of a record between its insertion and its use: a bit that flipped
//! in memory, or the location of another chunk. It does not show whether the arena still holds the
//! chunk: the list of arenas does that.

use strongroom_base::Fingerprint;
use strongroom_index::Value;

/// Enough for any slot: a summary has at most 64 MiB, and 40 bytes for each slot.
const SLOT_BITS: u32 = 22;
const CHECK_BITS: u32 = 10;
const CHECK_MASK: u64 = (1 << CHECK_BITS) - 1;

/// What the index keeps; none for a slot that no arena of ours can have.
pub fn pack_location(fingerprint: &Fingerprint, ordinal: u32, slot: u32) -> Option<Value> {
    let check = check_of(fingerprint, ordinal, slot);
    let value = u64::from(ordinal) << 32 | check << SLOT_BITS | u64::from(slot);
    (slot < 1 << SLOT_BITS).then_some(Value(value))
}

/// The arena's ordinal, and the slot.
pub fn unpack_location(location: Value) -> (u32, u32) {
    ((location.0 >> 32) as u32, location.0 as u32 & ((1 << SLOT_BITS) - 1))
}

/// Whether a location is as it was put in for this fingerprint.
pub fn is_of(location: Value, fingerprint: &Fingerprint) -> bool {
    let (ordinal, slot) = unpack_location(location);
    pack_location(fingerprint, ordinal, slot) == Some(location)
}

/// The fold of a place: each of its bits is in one bit of the check. So a flipped bit is always
/// found, and the location of another chunk 1023 times of 1024.
fn check_of(fingerprint: &Fingerprint, ordinal: u32, slot: u32) -> u64 {
    let place = u64::from(ordinal) << SLOT_BITS | u64::from(slot);
    let parts = (0..6).map(|part| place >> (part * CHECK_BITS));
    let [.., a, b] = fingerprint.0;
    parts.fold(u64::from(u16::from_le_bytes([a, b])), |fold, part| fold ^ part) & CHECK_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Fingerprint = Fingerprint([3; 32]);

    #[test]
    fn locations_come_back() {
        for (ordinal, slot) in [(0, 0), (1, 2), (u32::MAX, (1 << SLOT_BITS) - 1)] {
            let value = pack_location(&NAME, ordinal, slot).unwrap();
            assert_eq!(unpack_location(value), (ordinal, slot));
            assert!(is_of(value, &NAME));
        }
        assert_eq!(pack_location(&NAME, 0, 1 << SLOT_BITS), None);
    }

    #[test]
    fn engine_07_a_flipped_bit_is_found() {
        for (ordinal, slot) in [(0, 0), (0x1234_5678, 0x2a_aaaa)] {
            let value = pack_location(&NAME, ordinal, slot).unwrap();
            for bit in 0..64 {
                assert!(!is_of(Value(value.0 ^ 1 << bit), &NAME), "bit {bit}");
            }
        }
    }
}
