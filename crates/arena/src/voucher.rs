//! Vouchers: the owner's confirmation that an arena of another domain holds what its summary says.
//! The document: `docs/format/voucher.md`.
//!
//! Only the domain that wrote an arena trusts it: any program with one of its keys can make a false
//! summary. The owner compares every chunk with its fingerprint and then vouches; from then on all
//! domains may build upon the arena. A voucher contains the key of that one summary, so that a
//! put-only client of another domain can open it.

use strongroom_base::ArenaId;
use strongroom_base::le::{LeReader, LeWrite};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::format::FormatError;

/// What is vouched for: one generation of one arena.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Voucher {
    /// The arena.
    #[zeroize(skip)]
    pub arena: ArenaId,
    /// Its generation.
    pub generation: u32,
    /// The hash of the arena's body, as its header says.
    pub body_hash: [u8; 32],
    /// BLAKE3 of the sealed summary. The domain that wrote the arena has the summary's key, and
    /// could put another summary under a header that says the same.
    pub summary_hash: [u8; 32],
    /// Opens the summary.
    pub summary_key: [u8; 32],
}

impl std::fmt::Debug for Voucher {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Voucher({}.{})", self.arena, self.generation)
    }
}

impl Voucher {
    /// Bytes of a voucher.
    pub const BYTES: usize = ArenaId::BYTES + 4 + 3 * 32;

    /// The voucher's bytes, appended.
    pub fn pack_to(&self, bytes: &mut Vec<u8>) {
        bytes.put(&self.arena.0);
        bytes.put_u32(self.generation);
        bytes.put(&self.body_hash);
        bytes.put(&self.summary_hash);
        bytes.put(&self.summary_key);
    }

    /// The vouchers in `bytes`, one after another.
    pub fn unpack_all(bytes: &[u8]) -> Result<Vec<Self>, FormatError> {
        let damaged = |_| FormatError::Damaged("vouchers");
        if !bytes.len().is_multiple_of(Self::BYTES) {
            return Err(FormatError::Damaged("vouchers"));
        }
        let mut fields = LeReader::new(bytes);
        let mut vouchers = Vec::with_capacity(bytes.len() / Self::BYTES);
        while fields.remaining() > 0 {
            vouchers.push(Self {
                arena: ArenaId(fields.array().map_err(damaged)?),
                generation: fields.u32().map_err(damaged)?,
                body_hash: fields.array().map_err(damaged)?,
                summary_hash: fields.array().map_err(damaged)?,
                summary_key: fields.array().map_err(damaged)?,
            });
        }
        Ok(vouchers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vouchers_come_back_whole_or_not_at_all() {
        let voucher = |n: u8| Voucher {
            arena: ArenaId([n; 16]),
            generation: 7,
            body_hash: [n + 1; 32],
            summary_hash: [n + 2; 32],
            summary_key: [n + 3; 32],
        };
        let mut bytes = Vec::new();
        voucher(1).pack_to(&mut bytes);
        assert_eq!(bytes.len(), Voucher::BYTES);
        voucher(9).pack_to(&mut bytes);
        assert_eq!(Voucher::unpack_all(&bytes), Ok(vec![voucher(1), voucher(9)]));
        bytes.pop();
        assert!(Voucher::unpack_all(&bytes).is_err());
    }
}
