//! The GUID partition table: two copies, at both ends of the disk, each with checksums.

use crate::checksum::crc32;
use crate::fields::{le32, le64, part, uuid};
use crate::finding::Finding;
use crate::read::{ReadAt, read_vec};
use crate::volume::{Volume, VolumeKind};

use super::{DYNAMIC_DISK, on_disk};

/// The sizes of a sector. Which one a disk has, an image does not say.
const SECTOR_BYTES: [u64; 2] = [512, 4096];
const SIGNATURE: &[u8; 8] = b"EFI PART";
/// 1.0, the only one.
const REVISION: u32 = 1 << 16;
const HEADER_BYTES_MIN: u32 = 92;
/// Bytes of all entries: 16 KiB is usual, this is room for 8192 partitions.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

/// Types of partitions that belong to a volume manager of Windows, as they are stored: metadata and
/// data of dynamic disks, and Storage Spaces.
const MANAGERS: [([u8; 16], &str); 3] = [
    (*b"\xaa\xc8\x08\x58\x8f\x7e\xe0\x42\x85\xd2\xe1\xe9\x04\x34\xcf\xb3", DYNAMIC_DISK),
    (*b"\xa0\x60\x9b\xaf\x31\x14\x62\x4f\xbc\x68\x33\x11\x71\x4a\x69\xad", DYNAMIC_DISK),
    (*b"\x8f\xaf\x5c\xe7\x80\xf6\xee\x4c\xaf\xa3\xb0\x01\xe5\x6e\xfc\x2d", "Storage Spaces"),
];

/// One copy whose checksums are right.
struct Copy {
    sector_bytes: u64,
    other_sector: u64,
    /// What both copies must have in common: GUID of the disk, number and size of entries.
    identity: Vec<u8>,
    entries: Vec<u8>,
    entry_bytes: usize,
}

/// The partitions of a GPT; `None` if there is none.
pub(super) fn partitions(
    disk: usize,
    reader: &dyn ReadAt,
    is_expected: bool,
    findings: &mut Vec<Finding>,
) -> Option<Vec<Volume>> {
    let copies = SECTOR_BYTES.map(|sector_bytes| {
        let first = copy(reader, sector_bytes, 1);
        let last = (reader.size() / sector_bytes).saturating_sub(1);
        // On a disk that has grown, only the first copy knows where the second is.
        let second = copy(reader, sector_bytes, last)
            .or_else(|| copy(reader, sector_bytes, first.as_ref()?.other_sector));
        (first, second)
    });
    let found = copies
        .into_iter()
        .max_by_key(|(first, second)| 2 * u8::from(first.is_some()) + u8::from(second.is_some()));
    let used = match found.unwrap_or_default() {
        (Some(first), Some(second)) => {
            if first.identity != second.identity || first.entries != second.entries {
                findings.push(Finding::GptCopiesDisagree { disk });
            }
            first
        }
        (Some(first), None) => {
            findings.push(Finding::GptSecondCopyDamaged { disk });
            first
        }
        (None, Some(second)) => {
            findings.push(Finding::GptFirstCopyDamaged { disk });
            second
        }
        (None, None) => {
            if is_expected {
                findings.push(Finding::GptDamaged { disk });
            }
            return None;
        }
    };
    if !is_expected {
        findings.push(Finding::GptUnprotected { disk });
    }
    let mut volumes = volumes(disk, reader, &used, findings);
    // It can be left over from before the disk had another use.
    volumes.iter_mut().for_each(|volume| volume.is_shared |= !is_expected);
    Some(volumes)
}

/// Whether there is something of a GPT, damaged or not.
pub(super) fn has_mark(reader: &dyn ReadAt) -> bool {
    SECTOR_BYTES.into_iter().any(|at| {
        let mut found = [0; SIGNATURE.len()];
        reader.read_at(at, &mut found).is_ok() && found == *SIGNATURE
    })
}

/// Reads the copy whose header is in this sector.
fn copy(reader: &dyn ReadAt, sector_bytes: u64, sector: u64) -> Option<Copy> {
    let offset = sector.checked_mul(sector_bytes)?;
    let header = read_vec(reader, offset, sector_bytes as usize).ok()?;
    let header_bytes = le32(&header, 12);
    let is_sized = (HEADER_BYTES_MIN..=sector_bytes as u32).contains(&header_bytes);
    if sector == 0 || !header.starts_with(SIGNATURE) || !is_sized || le64(&header, 24) != sector {
        return None;
    }
    let mut covered = header[..header_bytes as usize].to_vec();
    covered[16..20].fill(0);
    if !crc32(!0, &covered) != le32(&header, 16) {
        return None;
    }
    let (count, entry_bytes) = (le32(&header, 80), le32(&header, 84));
    let bytes = u64::from(count) * u64::from(entry_bytes);
    if le32(&header, 8) != REVISION || entry_bytes < 128 || bytes > ENTRIES_BYTES_MAX {
        return None;
    }
    let entries = read_vec(reader, le64(&header, 72).checked_mul(sector_bytes)?, bytes as usize);
    let entries = entries.ok().filter(|bytes| !crc32(!0, bytes) == le32(&header, 88))?;
    Some(Copy {
        sector_bytes,
        other_sector: le64(&header, 32),
        identity: [part(&header, 40, 32), part(&header, 80, 8)].concat(),
        entries,
        entry_bytes: entry_bytes as usize,
    })
}

fn volumes(
    disk: usize,
    reader: &dyn ReadAt,
    copy: &Copy,
    findings: &mut Vec<Finding>,
) -> Vec<Volume> {
    let mut volumes = Vec::new();
    for (index, entry) in copy.entries.chunks_exact(copy.entry_bytes).enumerate() {
        let type_id = uuid(entry, 0);
        if type_id == [0; 16] {
            continue;
        }
        let units = part(entry, 56, 72).as_chunks::<2>().0.iter().map(|c| u16::from_le_bytes(*c));
        let name: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
        let kind =
            VolumeKind::Gpt { type_id, id: uuid(entry, 16), name: String::from_utf16_lossy(&name) };
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        let offset = first.saturating_mul(copy.sector_bytes);
        let sectors = last.checked_sub(first).map_or(0, |more| more.saturating_add(1));
        let bytes = sectors.saturating_mul(copy.sector_bytes);
        let what = (format!("p{}", index + 1), kind);
        let manager = MANAGERS.iter().find(|(id, _)| *id == type_id).map(|(_, name)| *name);
        volumes.extend(on_disk(disk, reader, what, (offset, bytes), manager, findings));
    }
    volumes
}
