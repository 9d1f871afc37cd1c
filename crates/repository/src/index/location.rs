//! What the index has of a chunk: a key, which is its fingerprint or made of its tag, and where it
//! is, bound to the key.
//!
//! ```text
//! ordinal (32) | check (10) | slot (22)
//! ```
//!
//! The check finds what became of a record between its insertion and its use: a bit that flipped
//! in memory, or the location of another chunk. It does not show whether the arena still holds the
//! chunk: the list of arenas does that.

use strongroom_base::Fingerprint;
use strongroom_base::keys::TAG_BYTES;
use strongroom_index::{Key, Value};

/// Enough for any slot: a summary has at most 64 MiB, and 40 bytes for each slot.
const SLOT_BITS: u32 = 22;
const CHECK_BITS: u32 = 10;
const CHECK_MASK: u64 = (1 << CHECK_BITS) - 1;

/// What a chunk is looked up by. The index wants keys of which every part is random: a tag, of which
/// the rest is zeros, is spread over all of it.
pub fn key_of(fingerprint: &Fingerprint) -> Key {
    let (tag, rest) = fingerprint.0.split_first_chunk::<TAG_BYTES>().expect("it is longer");
    if rest.iter().any(|byte| *byte != 0) {
        return fingerprint.0;
    }
    let mut key = fingerprint.0;
    for (number, word) in key.as_chunks_mut::<TAG_BYTES>().0.iter_mut().enumerate().skip(1) {
        // Different odd numbers: each word is a permutation of the tags.
        let spread =
            u64::from_le_bytes(*tag).wrapping_mul(SPREAD.wrapping_mul(2 * number as u64 + 1));
        *word = (spread ^ spread >> 32).to_le_bytes();
    }
    key
}

/// 2^64 over the golden ratio, which is odd: its multiples are spread over all numbers (Knuth, The
/// Art of Computer Programming 3, §6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the index keeps; none for a slot that no arena of ours can have.
pub fn pack_location(key: &Key, ordinal: u32, slot: u32) -> Option<Value> {
    let check = check_of(key, ordinal, slot);
    let value = u64::from(ordinal) << 32 | check << SLOT_BITS | u64::from(slot);
    (slot < 1 << SLOT_BITS).then_some(Value(value))
}

/// The arena's ordinal, and the slot.
pub fn unpack_location(location: Value) -> (u32, u32) {
    ((location.0 >> 32) as u32, location.0 as u32 & ((1 << SLOT_BITS) - 1))
}

/// Whether a location is as it was put in for this key.
pub fn is_of(location: Value, key: &Key) -> bool {
    let (ordinal, slot) = unpack_location(location);
    pack_location(key, ordinal, slot) == Some(location)
}

/// The fold of a place: each of its bits is in one bit of the check. So a flipped bit is always
/// found, and the location of another chunk 1023 times of 1024.
fn check_of(key: &Key, ordinal: u32, slot: u32) -> u64 {
    let place = u64::from(ordinal) << SLOT_BITS | u64::from(slot);
    let parts = (0..6).map(|part| place >> (part * CHECK_BITS));
    let [.., a, b] = *key;
    parts.fold(u64::from(u16::from_le_bytes([a, b])), |fold, part| fold ^ part) & CHECK_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Key = [3; 32];

    #[test]
    fn every_part_of_a_key_depends_on_the_tag() {
        let tag = |number: u64| {
            let mut tag = Fingerprint::ZERO;
            tag.0[..TAG_BYTES].copy_from_slice(&number.to_le_bytes());
            tag
        };
        assert_eq!(key_of(&Fingerprint(NAME)), NAME);
        for part in 0..4 {
            let word = |number| key_of(&tag(number)).as_chunks::<TAG_BYTES>().0[part];
            let words: std::collections::HashSet<_> = (1..=10_000).map(word).collect();
            assert_eq!(words.len(), 10_000, "part {part}");
        }
    }

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
