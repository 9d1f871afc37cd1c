//! The checksums of superblocks and nodes: four kinds, of which each file system has one.

use blake2::Blake2b;
use sha2::{Digest, Sha256};

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{le32, le64, part};

/// Bytes at the start of a structure for the checksum itself.
const BYTES: usize = 32;

/// A kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Crc32c,
    XxHash,
    Sha256,
    Blake2,
}

impl Checksum {
    pub(super) fn of_kind(kind: u16) -> Result<Self> {
        match kind {
            0 => Ok(Self::Crc32c),
            1 => Ok(Self::XxHash),
            2 => Ok(Self::Sha256),
            3 => Ok(Self::Blake2),
            _ => Err(DiskError::unsupported("Btrfs with checksums of an unknown kind")),
        }
    }

    /// Whether a structure has the checksum with which it begins.
    pub(super) fn is_right(self, bytes: &[u8]) -> bool {
        let (stored, covered) = (part(bytes, 0, BYTES), part(bytes, BYTES, bytes.len()));
        match self {
            Self::Crc32c => !crc32c(!0, covered) == le32(stored, 0),
            Self::XxHash => xxhash(covered) == le64(stored, 0),
            Self::Sha256 => Sha256::digest(covered)[..] == *stored,
            Self::Blake2 => Blake2b::<blake2::digest::consts::U32>::digest(covered)[..] == *stored,
        }
    }
}

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

/// XXH64 without a seed.
fn xxhash(bytes: &[u8]) -> u64 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let round = |state: u64, word: u64| {
        state.wrapping_add(word.wrapping_mul(p2)).rotate_left(31).wrapping_mul(p1)
    };
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = p5;
    if !stripes.is_empty() {
        let mut states = [p1.wrapping_add(p2), p2, 0, 0_u64.wrapping_sub(p1)];
        for stripe in stripes {
            for (index, state) in states.iter_mut().enumerate() {
                *state = round(*state, le64(stripe, index * 8));
            }
        }
        let turns = [1, 7, 12, 18];
        let turned = states.iter().zip(turns).map(|(state, turn)| state.rotate_left(turn));
        hash = turned.fold(0, u64::wrapping_add);
        for state in states {
            hash = (hash ^ round(0, state)).wrapping_mul(p1).wrapping_add(p4);
        }
    }
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(p1);
        hash = hash.rotate_left(23).wrapping_mul(p2).wrapping_add(p3);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(p2);
    hash = (hash ^ hash >> 29).wrapping_mul(p3);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxhash_has_the_values_of_its_specification() {
        assert_eq!(xxhash(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxhash(b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}
