//! The table of a PC's boot sector, and the chain of sectors with logical partitions.
//!
//! Sectors are taken to have 512 bytes, as Linux does for images.

use std::collections::BTreeSet;

use crate::fields::{byte, le16, le32, part};
use crate::finding::Finding;
use crate::read::ReadAt;
use crate::volume::{Volume, VolumeKind};

use super::{DYNAMIC_DISK, on_disk};

/// The type of the entry that keeps old programs from a GPT.
pub(super) const PROTECTIVE: u8 = 0xee;

const SECTOR_BYTES: u64 = 512;
/// The type of a partition of a dynamic disk of Windows.
const DYNAMIC: u8 = 0x42;
/// Types of a partition that contains a chain.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Linux stops at 256 partitions of a disk too.
const LOGICAL_MAX: usize = 256;

/// An entry that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) type_id: u8,
    start_sector: u32,
    sectors: u32,
}

/// The four entries of a boot sector; `None` if it has no table.
pub(super) fn primary(sector: &[u8]) -> Option<[Option<Entry>; 4]> {
    let entries = entries(sector)?;
    let used = entries.iter().flatten().count();
    (used > 0 && !is_file_system(sector)).then_some(entries)
}

/// Whether there is something where a table is that is neither one nor a known boot loader; or both,
/// as a table was written into the boot sector of a file system.
pub(super) fn is_odd(sector: &[u8]) -> bool {
    match is_file_system(sector) {
        true => may_be_table(sector),
        false => le16(sector, 510) == 0xaa55 && entries(sector).is_none(),
    }
}

/// Whether a sector has a table with partitions in it; it can be something else as well.
pub(super) fn may_be_table(sector: &[u8]) -> bool {
    entries(sector).is_some_and(|entries| entries.iter().any(Option::is_some))
}

/// Where a table would be, FAT and NTFS have code of their boot loader.
fn is_file_system(sector: &[u8]) -> bool {
    let is_fat = |at| part(sector, at, 3) == b"FAT" && matches!(byte(sector, 0), 0xeb | 0xe9);
    is_fat(54)
        || is_fat(82)
        || matches!(part(sector, 3, 8), b"NTFS    " | b"EXFAT   " | b"-FVE-FS-")
}

fn entries(sector: &[u8]) -> Option<[Option<Entry>; 4]> {
    if le16(sector, 510) != 0xaa55 {
        return None;
    }
    let mut entries = [None; 4];
    for (slot, entry) in entries.iter_mut().enumerate() {
        let bytes = part(sector, 446 + 16 * slot, 16);
        if byte(bytes, 0) & 0x7f != 0 {
            return None;
        }
        let (type_id, sectors) = (byte(bytes, 4), le32(bytes, 12));
        let start_sector = le32(bytes, 8);
        *entry = (type_id != 0 && sectors != 0).then_some(Entry { type_id, start_sector, sectors });
    }
    Some(entries)
}

/// The partitions of a table: the primary ones, then the logical ones.
pub(super) fn partitions(
    disk: usize,
    reader: &dyn ReadAt,
    primary: &[Option<Entry>; 4],
    findings: &mut Vec<Finding>,
) -> Vec<Volume> {
    let mut volumes = Vec::new();
    let mut chains = Vec::new();
    for (slot, entry) in primary.iter().enumerate() {
        let Some(entry) = entry else { continue };
        if EXTENDED.contains(&entry.type_id) {
            chains.push(*entry);
        } else if entry.type_id != PROTECTIVE {
            volumes.extend(volume(disk, reader, slot + 1, *entry, 0, findings));
        }
    }
    let mut number = 5;
    for chain in chains {
        logical(disk, reader, chain, &mut number, findings, &mut volumes);
    }
    volumes
}

fn volume(
    disk: usize,
    reader: &dyn ReadAt,
    number: usize,
    entry: Entry,
    base_sector: u64,
    findings: &mut Vec<Finding>,
) -> Option<Volume> {
    let what = (format!("p{number}"), VolumeKind::Mbr { type_id: entry.type_id });
    let offset = (base_sector + u64::from(entry.start_sector)) * SECTOR_BYTES;
    let bytes = u64::from(entry.sectors) * SECTOR_BYTES;
    let manager = (entry.type_id == DYNAMIC).then_some(DYNAMIC_DISK);
    on_disk(disk, reader, what, (offset, bytes), manager, findings)
}

/// Follows a chain: the first entry of each sector is a partition, the second leads to the next.
fn logical(
    disk: usize,
    reader: &dyn ReadAt,
    chain: Entry,
    number: &mut usize,
    findings: &mut Vec<Finding>,
    volumes: &mut Vec<Volume>,
) {
    let base = u64::from(chain.start_sector);
    let mut at = base;
    let mut seen = BTreeSet::new();
    loop {
        let offset = at * SECTOR_BYTES;
        let mut sector = [0; SECTOR_BYTES as usize];
        let is_new = seen.insert(at) && seen.len() <= LOGICAL_MAX;
        let is_read = is_new && reader.read_at(offset, &mut sector).is_ok();
        let Some(entries) = entries(&sector).filter(|_| is_read) else {
            findings.push(Finding::ChainDamaged { disk, offset });
            return;
        };
        let (links, parts): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().flatten().partition(|entry| EXTENDED.contains(&entry.type_id));
        for entry in parts {
            volumes.extend(volume(disk, reader, *number, entry, at, findings));
            *number += 1;
        }
        match links.first() {
            Some(link) => at = base + u64::from(link.start_sector),
            None => return,
        }
    }
}
