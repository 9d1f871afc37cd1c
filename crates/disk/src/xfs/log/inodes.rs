//! What the log says of inodes. It has them in the byte order of the machine; on the disk they are
//! big-endian.

use crate::fields::{be16, be32, be64, byte, le16, le32, le64, part};

use super::super::blocks::SECTOR_BYTES;
use super::super::inode::{MAGIC, flag2};
use super::super::mapping;
use super::newer::Newer;
use super::transactions::Item;
use super::{DAMAGED, Stop};

/// Bits that say what an item has of an inode.
mod field {
    pub const DATA_LOCAL: u32 = 2;
    pub const DATA_EXTENTS: u32 = 4;
    pub const DATA_ROOT: u32 = 8;
    pub const DEVICE: u32 = 0x10;
    pub const XATTRS_LOCAL: u32 = 0x40;
    pub const XATTRS_EXTENTS: u32 = 0x80;
    pub const XATTRS_ROOT: u32 = 0x100;
    pub const DATA: u32 = DATA_LOCAL | DATA_EXTENTS | DATA_ROOT;
    pub const XATTRS: u32 = XATTRS_LOCAL | XATTRS_EXTENTS | XATTRS_ROOT;
}

/// The head of an item that a 32-bit machine wrote.
const NARROW_BYTES: usize = 52;
const CORE_BYTES: usize = 176;
/// Fields of an inode that are not copied: the list of deleted ones and the checksum.
const NOT_COPIED: std::ops::Range<usize> = 96..104;
const NEW_INODES_MAX: u32 = 1 << 12;

/// Changes one inode.
#[expect(clippy::big_endian_bytes, reason = "the byte order of XFS")]
pub(super) fn change(newer: &mut Newer<'_, '_>, item: &Item, lsn: u64) -> Result<(), Stop> {
    let head = item.part(0);
    let narrow = if head.len() == NARROW_BYTES { 4 } else { 0 };
    let fields = le32(head, 4);
    let first = le64(head, 40 - narrow);
    let sectors = u64::from(le32(head, 48 - narrow));
    if newer.cancelled.contains((first, sectors)) {
        return Ok(());
    }
    let inside = u64::from(le32(head, 52 - narrow));
    let start = first.checked_mul(SECTOR_BYTES).and_then(|start| start.checked_add(inside));
    let start = start.ok_or(DAMAGED)?;
    let mut inode = newer.read(start, newer.blocks.superblock.inode_bytes)?;
    let core = item.part(1);
    if be16(&inode, 0) != MAGIC || le16(core, 0) != MAGIC || core.len() < CORE_BYTES {
        return Err(DAMAGED);
    }
    let known = be64(&inode, 112);
    if byte(&inode, 4) >= 3 && known != 0 && known != u64::MAX && known > lsn {
        return Ok(());
    }
    copy_core(core, &mut inode, lsn);
    let fork_start = usize::from(byte(&inode, 82)) * 8 + CORE_BYTES;
    let has_xattrs = fork_start > CORE_BYTES;
    if fork_start > inode.len() {
        return Err(DAMAGED);
    }
    let data_end = if has_xattrs { fork_start } else { inode.len() };
    if fields & field::DEVICE != 0 {
        put(&mut inode, CORE_BYTES, &le32(head, 24 - narrow).to_be_bytes());
    }
    let mut index = 2;
    if fields & field::DATA != 0 {
        let area = inode.get_mut(CORE_BYTES..data_end).ok_or(DAMAGED)?;
        copy_fork(item.part(index), area, fields & field::DATA_ROOT != 0)?;
        index += 1;
    }
    if fields & field::XATTRS != 0 {
        let area = inode.get_mut(fork_start..).filter(|_| has_xattrs).ok_or(DAMAGED)?;
        copy_fork(item.part(index), area, fields & field::XATTRS_ROOT != 0)?;
    }
    newer.write(start, &inode)
}

#[expect(clippy::big_endian_bytes, reason = "the byte order of XFS")]
fn copy_core(core: &[u8], inode: &mut [u8], lsn: u64) {
    let next = part(inode, NOT_COPIED.start, NOT_COPIED.len()).to_vec();
    let is_large = le64(core, 120) & flag2::LARGE_COUNTS != 0;
    let is_big_time = le64(core, 120) & flag2::BIG_TIME != 0;
    put(inode, 0, part(core, 0, CORE_BYTES));
    for at in [0, 2, 6, 20, 22, 88, 90] {
        put(inode, at, &le16(core, at).to_be_bytes());
    }
    for at in [8, 12, 16, 72, 76, 84, 92, 128] {
        put(inode, at, &le32(core, at).to_be_bytes());
    }
    for at in [56, 64, 104, 120, 152] {
        put(inode, at, &le64(core, at).to_be_bytes());
    }
    for at in [32, 40, 48, 144] {
        if is_big_time {
            put(inode, at, &le64(core, at).to_be_bytes());
        } else {
            put(inode, at, &le32(core, at).to_be_bytes());
            put(inode, at + 4, &le32(core, at + 4).to_be_bytes());
        }
    }
    if is_large {
        put(inode, 24, &le64(core, 24).to_be_bytes());
    } else {
        put(inode, 24, &[0; 8]);
    }
    put(inode, 80, &le16(core, 80).to_be_bytes());
    put(inode, NOT_COPIED.start, &next);
    put(inode, 112, &lsn.to_be_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Copies a fork. The root of a tree is in the log as a block in memory is: with a longer head, and
/// with its pointers where the room for keys ends there.
fn copy_fork(logged: &[u8], area: &mut [u8], is_root: bool) -> Result<(), Stop> {
    if !is_root {
        area.get_mut(..logged.len()).ok_or(DAMAGED)?.copy_from_slice(logged);
        return Ok(());
    }
    let records = usize::from(be16(logged, 6));
    let rest = logged.get(mapping::HEADER_BYTES_V5..).ok_or(DAMAGED)?;
    let (logged_room, room) = (rest.len() / 16, (area.len().saturating_sub(4)) / 16);
    if records > logged_room || records > room {
        return Err(DAMAGED);
    }
    put(area, 0, part(logged, 4, 4));
    put(area, mapping::ROOT_BYTES, part(rest, 0, records * 8));
    put(area, mapping::ROOT_BYTES + room * 8, part(rest, logged_room * 8, records * 8));
    Ok(())
}

/// Makes inodes that were allocated and are still empty.
#[expect(clippy::big_endian_bytes, reason = "the byte order of XFS")]
pub(super) fn create(newer: &mut Newer<'_, '_>, item: &Item) -> Result<(), Stop> {
    let head = item.part(0);
    let (group, first) = (u64::from(be32(head, 4)), u64::from(be32(head, 8)));
    let (count, length) = (be32(head, 12), u64::from(be32(head, 20)));
    let superblock = &newer.blocks.superblock;
    let (inode_bytes, meta_uuid) = (superblock.inode_bytes, superblock.meta_uuid);
    let (inode_shift, group_shift) = (superblock.inode_shift, superblock.group_shift);
    let is_right = be32(head, 16) as usize == inode_bytes
        && (1..=NEW_INODES_MAX).contains(&count)
        && u64::from(count) == length << inode_shift
        && group < u64::from(superblock.groups)
        && first < 1 << group_shift;
    if !is_right {
        return Err(DAMAGED);
    }
    let block = newer.blocks.join(group, first);
    let start = newer.blocks.place(block, length)?;
    let per_cluster = cluster_blocks(newer);
    let sectors = per_cluster * newer.blocks.block_bytes() / SECTOR_BYTES;
    for index in 0..length / per_cluster {
        let at = start / SECTOR_BYTES + index * sectors;
        if newer.cancelled.contains((at, sectors)) {
            return Ok(());
        }
    }
    for index in 0..u64::from(count) {
        let mut inode = vec![0; inode_bytes];
        put(&mut inode, 0, &MAGIC.to_be_bytes());
        put(&mut inode, 4, &[3]);
        put(&mut inode, 92, part(head, 24, 4));
        put(&mut inode, 96, &[0xff; 4]);
        put(&mut inode, 152, &((block << inode_shift) + index).to_be_bytes());
        put(&mut inode, 160, &meta_uuid);
        newer.write(start + index * inode_bytes as u64, &inode)?;
    }
    Ok(())
}

/// Blocks of the buffers in which the kernel reads and writes inodes.
fn cluster_blocks(newer: &Newer<'_, '_>) -> u64 {
    const BYTES: u64 = 8192;
    const INODE_BYTES_MIN: u64 = 256;
    let superblock = &newer.blocks.superblock;
    let larger = BYTES * (superblock.inode_bytes as u64 / INODE_BYTES_MIN);
    let is_aligned = superblock.inode_alignment >= larger / newer.blocks.block_bytes();
    let bytes = if is_aligned { larger } else { BYTES };
    (bytes / newer.blocks.block_bytes()).max(1)
}
