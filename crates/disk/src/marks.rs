//! The marks of what else can own a volume: layers between a disk and a file system, and file systems
//! that are not read here.
//!
//! A file system that was made over another owner, or the other way around, often leaves the mark of
//! the one before. Which of the two counts, only the machine knows. If it is the other one, what the
//! first calls free is full of data.

use crate::error::Result;
use crate::fields::{le32, le64};
use crate::read::{ReadAt, read_vec};
use crate::tables;

const SECTOR: usize = 512;

/// The name of LVM's mark.
pub(crate) const LVM: &str = "LVM";

/// What owns a volume, by the bytes at a place.
const MARKS: [(u64, &[u8], &str); 28] = [
    (0, b"LUKS\xba\xbe", "LUKS"),
    (3, b"-FVE-FS-", "BitLocker"),
    (3, b"ReFS\0\0\0\0", "ReFS"),
    (0, b"verity\0\0", "dm-verity"),
    (0, b"integrt\0", "dm-integrity"),
    (0, b"dmvdo001", "VDO"),
    (32, b"NXSB", "APFS"),
    (0, b"\xfc\x4e\x2b\xa9", "RAID of Linux"),
    (4096, b"\xfc\x4e\x2b\xa9", "RAID of Linux"),
    (512, b"LABELONE", LVM),
    (1024, b"LABELONE", LVM),
    (1536, b"LABELONE", LVM),
    (0, b"LABELONE", LVM),
    (4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcache"),
    (4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9", "bcachefs"),
    (1024, b"\x10\x20\xf5\xf2", "F2FS"),
    (1024, b"\xe2\xe1\xf5\xe0", "EROFS"),
    (0, b"hsqs", "squashfs"),
    (32768, b"JFS1", "JFS"),
    (32769, b"CD001", "ISO 9660"),
    (65536 + 52, b"ReIsEr", "ReiserFS"),
    (8192 + 1372, b"\x54\x19\x01\x00", "UFS"),
    (65536 + 1372, b"\x19\x01\x54\x19", "UFS"),
    (0, b"SnAp", "a snapshot of LVM"),
    (64, b"\x57\x45\x56\x82", "a partition table of BSD"),
    (512, b"\x57\x45\x56\x82", "a partition table of BSD"),
    (3072, b"PRIVHEAD", "a dynamic disk of Windows"),
    // The head of the list in a label: its sizes may be any.
    (16_384 + 20, b"\0\0\0\x07version", ZFS),
];
const ZFS: &str = "ZFS";

/// What else a volume is; `None` if it has no mark.
pub(crate) fn find(volume: &dyn ReadAt) -> Result<Option<&'static str>> {
    find_beside(volume, "")
}

/// What else a volume is besides the owner of this name; `None` if it has no mark.
pub(crate) fn find_beside(volume: &dyn ReadAt, owner: &str) -> Result<Option<&'static str>> {
    for (at, mark, name) in MARKS {
        let is_there = name != owner && at + mark.len() as u64 <= volume.size();
        if is_there && read_vec(volume, at, mark.len())? == mark {
            return Ok(Some(name));
        }
    }
    if tables::has_mark(volume)? {
        return Ok(Some("a partition table"));
    }
    if has_uberblock(volume)? {
        return Ok(Some(ZFS));
    }
    if has_shadow_copies(volume)? {
        return Ok(Some("shadow copies"));
    }
    Ok(is_part_of_raid(volume)?.then_some("RAID of Linux"))
}

/// Whether the first label of a volume has an uberblock of ZFS. A pool leaves the first 8 KiB of a
/// volume as they are, with the superblock of the file system that was there.
///
/// The source is "ZFS On-Disk Specification", chapter 1: the ring of uberblocks is the second half of
/// a label of 256 KiB, in slots of 1 KiB or a multiple of it.
fn has_uberblock(volume: &dyn ReadAt) -> Result<bool> {
    const RING: u64 = 128 << 10;
    const SLOT: usize = 1 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let bytes = volume.size().saturating_sub(RING).min(RING);
    if bytes == 0 {
        return Ok(false);
    }
    let ring = read_vec(volume, RING, bytes as usize)?;
    let mut slots = ring.chunks(SLOT).map(|slot| le64(slot, 0));
    Ok(slots.any(|magic| magic == MAGIC || magic.swap_bytes() == MAGIC))
}

/// Whether a volume of Windows has shadow copies. What was freed since one was made is kept for it in
/// its place, until it is overwritten; the file system calls it free.
///
/// The source is "Volume Shadow Snapshot (VSS) format" of libvshadow.
fn has_shadow_copies(volume: &dyn ReadAt) -> Result<bool> {
    const HEADER: u64 = 0x1e00;
    const ID: [u8; 16] = *b"\x6b\x87\x08\x38\x76\xc1\x48\x4e\xb7\xae\x04\x04\x6e\x6c\xc7\x52";
    if volume.size() < HEADER + SECTOR as u64 {
        return Ok(false);
    }
    let header = read_vec(volume, HEADER, SECTOR)?;
    // Where the list of shadow copies begins; nowhere if there was never one.
    let catalog = le64(&header, 48);
    Ok(header.starts_with(&ID) && catalog != 0)
}

/// Whether the end of a volume says that it is a part of a RAID. Where the mark is at the end, a
/// volume of level 1 has the content of the whole as it is.
fn is_part_of_raid(volume: &dyn ReadAt) -> Result<bool> {
    const MAGIC: u32 = 0xa92b_4efc;
    let size = volume.size();
    // Version 1.0: eight kibibytes before the end, at a multiple of four. Version 0.90: in the last
    // whole 64 kibibytes.
    let newer = (size / SECTOR as u64).saturating_sub(16) / 8 * 8 * SECTOR as u64;
    let older = (size / (64 << 10)).saturating_sub(1) * (64 << 10);
    for (at, level_at) in [(newer, 72), (older, 28)] {
        if at == 0 || size - at < SECTOR as u64 {
            continue;
        }
        let found = read_vec(volume, at, SECTOR)?;
        let is_ours = level_at == 28 || le64(&found, 144) == at / SECTOR as u64;
        if le32(&found, 0) == MAGIC && is_ours && le32(&found, level_at) != 1 {
            return Ok(true);
        }
    }
    Ok(false)
}
