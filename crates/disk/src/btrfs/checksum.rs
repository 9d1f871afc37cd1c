//! The checksums of superblocks and nodes: four kinds, of which each file system has one.

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{le32, part};

/// Bytes at the start of what is covered that have the checksum itself.
const BYTES: usize = 32;

/// A kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Crc32c,
}

impl Checksum {
    pub(super) fn of_kind(kind: u16) -> Result<Self> {
        match kind {
            0 => Ok(Self::Crc32c),
            1 => Err(DiskError::unsupported("Btrfs with checksums of xxHash")),
            2 => Err(DiskError::unsupported("Btrfs with checksums of SHA-256")),
            3 => Err(DiskError::unsupported("Btrfs with checksums of BLAKE2")),
            _ => Err(DiskError::unsupported("Btrfs with checksums of an unknown kind")),
        }
    }

    /// Whether a structure has the checksum with which it begins.
    pub(super) fn is_right(self, bytes: &[u8]) -> bool {
        let covered = part(bytes, BYTES, bytes.len());
        match self {
            Self::Crc32c => !crc32c(!0, covered) == le32(bytes, 0),
        }
    }
}
