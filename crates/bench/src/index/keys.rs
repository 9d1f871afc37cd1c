//! The keys that all stores are given, in the same order: fingerprints as a keyed hash makes them,
//! uniformly spread and without order.

use strongroom_testkit::Random;

/// A fingerprint.
pub type Key = [u8; 32];

/// A fingerprint and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Key,
    pub location: u64,
}

impl Record {
    /// The `n`-th record of a seed. No two of one seed have the same key.
    pub fn nth(seed: u64, n: u64) -> Record {
        Record { key: key(seed, n), location: n }
    }

    /// Its bytes: key (32), location (8).
    pub fn pack(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..32].copy_from_slice(&self.key);
        bytes[32..].copy_from_slice(&self.location.to_le_bytes());
        bytes
    }

    /// The record in packed bytes.
    pub fn unpack(bytes: &[u8; 40]) -> Record {
        let mut record = Record { key: [0; 32], location: 0 };
        record.key.copy_from_slice(&bytes[..32]);
        if let Some(location) = bytes.last_chunk() {
            record.location = u64::from_le_bytes(*location);
        }
        record
    }
}

/// The `n`-th key of a seed: numbers from a state of its own for each key.
pub fn key(seed: u64, n: u64) -> Key {
    let state = n ^ Random::new(seed).number();
    let mut random = Random::new(state.wrapping_mul(0xd134_2543_de82_ef95));
    let mut key = [0; 32];
    random.fill(&mut key);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_seed_are_always_the_same_and_differ() {
        assert_eq!(key(7, 1), key(7, 1));
        assert_ne!(key(7, 1), key(7, 2));
        assert_ne!(key(7, 1), key(8, 1));
        let ones: u32 = (0..1000).flat_map(|n| key(3, n)).map(u8::count_ones).sum();
        assert!((127_000..129_000).contains(&ones), "{ones}");
    }

    #[test]
    fn a_record_is_packed_and_unpacked() {
        let record = Record::nth(5, 1 << 40 | 9);
        assert_eq!(Record::unpack(&record.pack()), record);
    }
}
