//! The names of a directory: its index is a tree, of which all blocks that are in use are read one
//! after the other, so that none is read twice and a link that is wrong misleads no reader.

use std::ops::ControlFlow;

use strongroom_catalog::entry::is_valid_name;

use crate::error::Result;
use crate::fields::{byte, le16, le32, le64, part};
use crate::file_system::Entry;
use crate::wide;

use super::FIRST_FILE;
use super::inode::Inode;
use super::mft::Mft;
use super::record::{DOS_NAME, fix_up, kind, number_of};

/// `$I30`, the index of names.
const INDEX: &[u8] = b"$\0I\x003\x000\0";
/// The end of the directory's entries.
const IS_LAST: u16 = 2;
/// Where the name of a file is in its attribute.
const NAME: usize = 0x42;
const BLOCK_HEADER: usize = 24;
const ROOT_HEADER: usize = 16;
/// Bytes of blocks that are read at once: at least 16 blocks, whose bits are whole bytes.
const READ_BYTES: u64 = 1 << 20;

type Take<'t> = &'t mut dyn FnMut(Entry<'_>) -> ControlFlow<()>;

/// Gives all names to `take`, without those for DOS, and without the parts of the file system. After
/// damage it goes on with the next block.
pub(super) fn entries(mft: &Mft<'_>, inode: &Inode, take: Take<'_>) -> Result<()> {
    let damaged = || inode.damaged("index of a directory, by record");
    let root = inode.value(mft, kind::INDEX_ROOT, INDEX)?;
    let block_bytes = u64::from(le32(&root, 8));
    if root.len() < ROOT_HEADER + 16 || le32(&root, 0) != kind::FILE_NAME {
        return Err(damaged());
    }
    let mut damage = None;
    match names(&root[ROOT_HEADER..], take) {
        Ok(ControlFlow::Continue(())) => {}
        Ok(ControlFlow::Break(())) => return Ok(()),
        Err(()) => damage = Some(damaged()),
    }
    let Some(blocks) = inode.stream(mft, kind::INDEX_ALLOCATION, INDEX)? else {
        return damage.map_or(Ok(()), Err);
    };
    let is_size = block_bytes.is_power_of_two() && (512..=65536).contains(&block_bytes);
    if !is_size || blocks.bytes / block_bytes > mft.boot.clusters * mft.boot.cluster_bytes / 512 {
        return Err(damaged());
    }
    let map = inode.stream(mft, kind::BITMAP, INDEX)?.ok_or_else(damaged)?;
    let (count, per_read) = (blocks.bytes / block_bytes, READ_BYTES / block_bytes);
    let mut bytes = vec![0; READ_BYTES as usize];
    for first in (0..count).step_by(per_read as usize) {
        let mut bits = vec![0; (per_read / 8) as usize];
        map.read(mft, first / 8, &mut bits)?;
        let is_used = |index: usize| bits[index / 8] >> (index % 8) & 1 != 0;
        let here = per_read.min(count - first) as usize;
        if !(0..here).any(is_used) {
            continue;
        }
        bytes.fill(0);
        if let Err(error) = blocks.read(mft, first * block_bytes, &mut bytes) {
            damage.get_or_insert(error);
        }
        for (index, block) in bytes.chunks_mut(block_bytes as usize).take(here).enumerate() {
            if !is_used(index) {
                continue;
            }
            let fixed = fix_up(block, b"INDX", inode.base.number);
            let named =
                fixed.and_then(|()| names(&block[BLOCK_HEADER..], take).map_err(|()| damaged()));
            match named {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) => {
                    damage.get_or_insert(error);
                }
            }
        }
    }
    damage.map_or(Ok(()), Err)
}

/// Gives the names of a node, which begins with a header of its own. The error is that it is
/// damaged.
fn names(node: &[u8], take: Take<'_>) -> Result<ControlFlow<()>, ()> {
    let (start, end) = (le32(node, 0) as usize, le32(node, 4) as usize);
    let mut rest = node.get(start..end).ok_or(())?;
    let mut has_bad_name = false;
    loop {
        let (bytes, flags) = (usize::from(le16(rest, 8)), le16(rest, 12));
        if bytes < 16 || bytes > rest.len() {
            return Err(());
        }
        if flags & IS_LAST != 0 {
            break;
        }
        let (entry, behind) = rest.split_at(bytes);
        rest = behind;
        let key = part(entry, 16, le16(entry, 10).into());
        let units = part(key, NAME, usize::from(byte(key, 0x40)) * 2);
        let reference = le64(entry, 0);
        if number_of(reference) < FIRST_FILE || byte(key, 0x41) == DOS_NAME {
            continue;
        }
        let name = wide::utf8(wide::units(units));
        if !is_valid_name(&name) || units.len() != usize::from(byte(key, 0x40)) * 2 {
            has_bad_name = true;
        } else if take(Entry { name: &name, inode: reference }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    if has_bad_name { Err(()) } else { Ok(ControlFlow::Continue(())) }
}
