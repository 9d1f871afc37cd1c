//! The boot sector of NTFS: geometry, checked.

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le64, part};

/// Enough of the boot sector for its fields.
pub(super) const BYTES: usize = 512;

const CLUSTER_BYTES_MAX: u64 = 2 << 20;
/// Windows has records of 1 and 4 KiB.
const RECORD_BYTES: std::ops::RangeInclusive<u64> = 1024..=65536;

/// What a boot sector says. All clusters are inside of the volume, and no size is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    /// Bytes of a cluster; a power of two.
    pub cluster_bytes: u64,
    pub clusters: u64,
    /// Bytes of a record of the MFT; a power of two.
    pub record_bytes: u64,
    /// The first cluster of the MFT.
    pub mft_cluster: u64,
    pub serial: [u8; 8],
}

impl Boot {
    /// Takes a boot sector apart; `None` if it is of another file system.
    pub(super) fn parse(sector: &[u8], volume_bytes: u64) -> Result<Option<Self>> {
        if part(sector, 3, 8) != b"NTFS    " {
            return Ok(None);
        }
        let sector_bytes = u64::from(le16(sector, 11));
        if !sector_bytes.is_power_of_two() || !(256..=4096).contains(&sector_bytes) {
            return Err(damaged("size of a sector"));
        }
        let cluster_bytes = match byte(sector, 13) {
            // Clusters of 64 KiB and more came later, and are stored as a negative power.
            power @ 0xe1..=0xff => sector_bytes.checked_shl(256 - u32::from(power)),
            sectors => Some(u64::from(sectors) * sector_bytes),
        };
        let cluster_bytes = cluster_bytes
            .filter(|bytes| bytes.is_power_of_two() && (512..=CLUSTER_BYTES_MAX).contains(bytes))
            .ok_or_else(|| damaged("size of a cluster"))?;
        let bytes = le64(sector, 40).checked_mul(sector_bytes);
        let bytes = bytes.filter(|&bytes| bytes <= volume_bytes);
        let bytes = bytes.ok_or_else(|| damaged("it is larger than its volume"))?;
        let record_bytes = match byte(sector, 64).cast_signed() {
            clusters @ 1.. => Some(u64::from(clusters.unsigned_abs()) * cluster_bytes),
            power => 1_u64.checked_shl(power.unsigned_abs().into()),
        };
        let record_bytes = record_bytes
            .filter(|bytes| bytes.is_power_of_two() && RECORD_BYTES.contains(bytes))
            .ok_or_else(|| damaged("size of a record"))?;
        let clusters = bytes / cluster_bytes;
        let mft_cluster = le64(sector, 48);
        let is_there = mft_cluster < clusters
            && mft_cluster * cluster_bytes + record_bytes <= clusters * cluster_bytes;
        if !is_there {
            return Err(damaged("place of the MFT"));
        }
        let serial = le64(sector, 72).to_le_bytes();
        Ok(Some(Self { cluster_bytes, clusters, record_bytes, mft_cluster, serial }))
    }
}

fn damaged(what: &'static str) -> DiskError {
    DiskError::damaged(what, 0)
}
