//! The bytes of an overlay's map: a head of 4096 bytes, then a bit for each cluster, the lowest bit
//! of a byte first, in whole pages of 4096 bytes.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `SRoverl1` |
//! | 8 | 8 | the size of a cluster, little-endian |
//! | 16 | 8 | the size of the disk |
//! | 24 | 32 | what names the base |
//! | 56 | | zeros |

use strongroom_base::le::{LeReader, LeWrite, LengthError};

use super::CLUSTER_BYTES;

/// The size of a page of the map, and of its head.
pub const PAGE_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"SRoverl1";
const USED_BYTES: usize = 56;

/// What a map belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The size of the disk in bytes.
    pub size: u64,
    /// What names the base.
    pub base_id: [u8; 32],
}

impl Head {
    pub fn pack(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(PAGE_BYTES);
        head.put(MAGIC);
        head.put_u64(CLUSTER_BYTES);
        head.put_u64(self.size);
        head.put(&self.base_id);
        assert_eq!(head.len(), USED_BYTES, "the fields of a head have their sizes");
        head.resize(PAGE_BYTES, 0);
        head
    }

    /// Returns nothing if this is no map of this version.
    pub fn unpack(head: &[u8; PAGE_BYTES]) -> Result<Option<Self>, LengthError> {
        let mut fields = LeReader::new(head);
        let is_map = fields.take(MAGIC.len())? == MAGIC && fields.u64()? == CLUSTER_BYTES;
        if !is_map {
            return Ok(None);
        }
        let head = Self { size: fields.u64()?, base_id: fields.array()? };
        let zeros = fields.take(PAGE_BYTES - USED_BYTES)?;
        fields.finish()?;
        Ok(zeros.iter().all(|&byte| byte == 0).then_some(head))
    }
}
