//! The secret multipliers of the hash that decides the cuts.

use std::fmt;

/// Two odd multipliers, secret in an encrypted repository.
/// They prevent the lengths of chunks from being compared with those of known files at a glance.
/// This is hardening, not a cryptographic promise: 62 bits, and the hash is linear.
///
/// Odd, because a product by an odd number loses no bit of its other factor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Multiplies the earlier four bytes of the window, or the running hash of a page; odd.
    pub(crate) mul_a: u32,
    /// Multiplies the later four bytes of the window, or the lanes of a page; odd.
    pub(crate) mul_b: u32,
}

impl Key {
    /// The key of a repository that keeps no secrets: constants that spread well.
    pub const PUBLIC: Key = Key { mul_a: 0x915f_77f5, mul_b: 0x9e37_79b1 };

    /// The key made of eight bytes: two little-endian numbers, each with its lowest bit set.
    ///
    /// The bytes should be uniformly random, or derived from a secret.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 8]) -> Key {
        let [a0, a1, a2, a3, b0, b1, b2, b3] = *bytes;
        Key {
            mul_a: u32::from_le_bytes([a0, a1, a2, a3]) | 1,
            mul_b: u32::from_le_bytes([b0, b1, b2, b3]) | 1,
        }
    }

    /// The hash of a window: `earlier · a + later · b − 1` modulo 2^32.
    ///
    /// The `− 1` gives eight zero bytes the greatest hash instead of the smallest. Without it,
    /// every run of zeros holds the minimum, and padding lowers the mean length of chunks
    /// (measured: 35 KiB of 64).
    #[inline(always)]
    pub(crate) fn hash(self, earlier: u32, later: u32) -> u32 {
        earlier
            .wrapping_mul(self.mul_a)
            .wrapping_add(later.wrapping_mul(self.mul_b))
            .wrapping_sub(1)
    }
}

impl fmt::Debug for Key {
    /// Shows nothing of the multipliers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
