//! Extended attributes: in the inode, or in the blocks of a hash tree, with large values in blocks
//! of their own; and ACLs, which the disk has in another form than the kernel gives out.

use strongroom_catalog::Xattr;

use crate::error::{DiskError, Result};
use crate::fields::{be16, be32, byte, part};

use super::blocks::Blocks;
use super::file::read_fork;
use super::inode::{Fork, Format, Inode};
use super::mapping;

/// The kernel's limit for a value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The most that is read of one inode.
const BYTES_MAX: usize = 8 << 20;
/// What a leaf counts as, so that a chain of them ends.
const LEAF_COST: usize = 512;
const LEVELS_MAX: usize = 12;

const LEAF_V4: u16 = 0xfbee;
const LEAF_V5: u16 = 0x3bee;
const NODE_V4: u16 = 0xfebe;
const NODE_V5: u16 = 0x3ebe;
const REMOTE: u32 = 0x5841_524d;
/// Bytes before the part of a value that is in a block, from version 5 on.
const REMOTE_HEADER_BYTES: usize = 56;

mod flag {
    pub const LOCAL: u8 = 1;
    pub const ROOT: u8 = 2;
    pub const SECURE: u8 = 4;
    pub const PARENT: u8 = 8;
    pub const INCOMPLETE: u8 = 0x80;
}

const ACCESS: &[u8] = b"SGI_ACL_FILE";
const DEFAULT: &[u8] = b"SGI_ACL_DEFAULT";

/// The attributes of an inode as the kernel would list them for root, sorted by name.
pub(super) fn read(blocks: &Blocks<'_>, inode: &Inode) -> Result<Vec<Xattr>> {
    if !inode.has_xattrs() {
        return Ok(Vec::new());
    }
    let mut list = List { blocks, inode, left: BYTES_MAX, found: Vec::new() };
    match inode.format(Fork::Xattrs)? {
        Format::Device => {}
        Format::Local => list.short(inode.area(Fork::Xattrs))?,
        Format::Extents | Format::Tree if inode.extents(Fork::Xattrs) == 0 => {}
        Format::Extents | Format::Tree => list.leaves()?,
    }
    list.found.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    Ok(list.found)
}

struct List<'l, 'a> {
    blocks: &'l Blocks<'a>,
    inode: &'l Inode,
    /// Bytes that may still be read.
    left: usize,
    found: Vec<Xattr>,
}

impl List<'_, '_> {
    fn damaged(&self) -> DiskError {
        self.inode.damaged("extended attributes, by inode")
    }

    fn add(&mut self, flags: u8, name: &[u8], value: &[u8]) -> Result<()> {
        let left = self.left.checked_sub(name.len() + value.len());
        self.left = left.ok_or(DiskError::unsupported("extended attributes above 8 MiB"))?;
        let prefix: &[u8] = match flags & (flag::ROOT | flag::SECURE) {
            0 => b"user.",
            flag::ROOT => b"trusted.",
            flag::SECURE => b"security.",
            _ => return Err(self.damaged()),
        };
        let acl_name = match name {
            _ if flags & flag::ROOT == 0 => None,
            ACCESS => Some(&b"system.posix_acl_access"[..]),
            DEFAULT => Some(&b"system.posix_acl_default"[..]),
            _ => None,
        };
        if let Some(acl_name) = acl_name {
            let value =
                acl(value).ok_or_else(|| self.inode.damaged("access control list, by inode"))?;
            self.found.push(Xattr { name: acl_name.to_vec(), value });
        }
        self.found.push(Xattr { name: [prefix, name].concat(), value: value.to_vec() });
        Ok(())
    }

    fn short(&mut self, area: &[u8]) -> Result<()> {
        let area = area.get(..be16(area, 0).into()).ok_or_else(|| self.damaged())?;
        let mut rest = part(area, 4, area.len());
        for _ in 0..byte(area, 2) {
            let (name_bytes, value_bytes) = (byte(rest, 0).into(), usize::from(byte(rest, 1)));
            let flags = byte(rest, 2);
            let whole = part(rest, 3, rest.len());
            let (name, after) = whole.split_at_checked(name_bytes).ok_or_else(|| self.damaged())?;
            let (value, after) =
                after.split_at_checked(value_bytes).ok_or_else(|| self.damaged())?;
            rest = after;
            if flags & (flag::INCOMPLETE | flag::PARENT) == 0 {
                self.add(flags, name, value)?;
            }
        }
        Ok(())
    }

    /// A block of the tree, by its number in the fork.
    fn block(&self, number: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.blocks.superblock.block_bytes];
        let start = u64::from(number) * self.blocks.block_bytes();
        read_fork(self.blocks, self.inode, Fork::Xattrs, start, &mut bytes)?;
        let is_leaf = matches!(be16(&bytes, 8), LEAF_V4 | LEAF_V5 | NODE_V4 | NODE_V5);
        if !is_leaf || !self.is_intact(number, &bytes, 12)? {
            return Err(self.damaged());
        }
        Ok(bytes)
    }

    fn is_intact(&self, number: u32, bytes: &[u8], crc_at: usize) -> Result<bool> {
        let wanted = u64::from(number)..u64::from(number) + 1;
        let mut is_right = false;
        mapping::data(self.blocks, self.inode, Fork::Xattrs, wanted, &mut |mapped| {
            let place = self.blocks.place(mapped.physical, mapped.count);
            let inside = (u64::from(number) - mapped.logical) * self.blocks.block_bytes();
            is_right = place
                .is_ok_and(|place| self.blocks.is_intact(place + inside, bytes, crc_at))
                && !mapped.unwritten;
            std::ops::ControlFlow::Break(())
        })?;
        Ok(is_right)
    }

    /// Descends to the first leaf, then follows the chain of leaves.
    fn leaves(&mut self) -> Result<()> {
        let is_v5 = self.blocks.superblock.is_v5;
        let (leaf, node) = if is_v5 { (LEAF_V5, NODE_V5) } else { (LEAF_V4, NODE_V4) };
        let mut bytes = self.block(0)?;
        let mut levels_left = LEVELS_MAX;
        while be16(&bytes, 8) == node && levels_left > 0 {
            levels_left -= 1;
            let (count_at, entries_at) = if is_v5 { (56, 64) } else { (12, 16) };
            if be16(&bytes, count_at) == 0 {
                return Err(self.damaged());
            }
            bytes = self.block(be32(&bytes, entries_at + 4))?;
        }
        loop {
            if be16(&bytes, 8) != leaf {
                return Err(self.damaged());
            }
            self.leaf(&bytes)?;
            let next = be32(&bytes, 0);
            if next == 0 {
                return Ok(());
            }
            self.left = self.left.checked_sub(LEAF_COST).ok_or_else(|| self.damaged())?;
            bytes = self.block(next)?;
        }
    }

    fn leaf(&mut self, bytes: &[u8]) -> Result<()> {
        let (count_at, entries_at) = if self.blocks.superblock.is_v5 { (56, 80) } else { (12, 32) };
        let count = usize::from(be16(bytes, count_at));
        let entries = bytes.get(entries_at..entries_at + count * 8);
        let entries = entries.ok_or_else(|| self.damaged())?;
        for entry in entries.chunks_exact(8) {
            let flags = byte(entry, 6);
            if flags & (flag::INCOMPLETE | flag::PARENT) != 0 {
                continue;
            }
            let found = part(bytes, be16(entry, 4).into(), bytes.len());
            if flags & flag::LOCAL != 0 {
                let (value_bytes, name_bytes) = (be16(found, 0).into(), byte(found, 2).into());
                let rest = part(found, 3, found.len());
                let split = rest.split_at_checked(name_bytes);
                let (name, rest) = split.ok_or_else(|| self.damaged())?;
                let value = rest.get(..value_bytes).ok_or_else(|| self.damaged())?;
                self.add(flags, name, value)?;
            } else {
                let (first, value_bytes) = (be32(found, 0), be32(found, 4) as usize);
                let name = found.get(9..9 + usize::from(byte(found, 8)));
                let name = name.ok_or_else(|| self.damaged())?;
                let value = self.remote(first, value_bytes)?;
                self.add(flags, name, &value)?;
            }
        }
        Ok(())
    }

    /// A value in blocks of its own.
    fn remote(&self, first: u32, bytes: usize) -> Result<Vec<u8>> {
        if bytes > VALUE_BYTES_MAX {
            return Err(self.damaged());
        }
        let block_bytes = self.blocks.superblock.block_bytes;
        let start = u64::from(first) * self.blocks.block_bytes();
        if !self.blocks.superblock.is_v5 {
            let mut value = vec![0; bytes];
            read_fork(self.blocks, self.inode, Fork::Xattrs, start, &mut value)?;
            return Ok(value);
        }
        let mut value = Vec::with_capacity(bytes);
        let mut block = vec![0; block_bytes];
        let mut number = first;
        while value.len() < bytes {
            let at = u64::from(number) * self.blocks.block_bytes();
            read_fork(self.blocks, self.inode, Fork::Xattrs, at, &mut block)?;
            let here = (bytes - value.len()).min(block_bytes - REMOTE_HEADER_BYTES);
            let is_right = be32(&block, 0) == REMOTE
                && be32(&block, 4) as usize == value.len()
                && be32(&block, 8) as usize == here
                && self.is_intact(number, &block, 12)?;
            if !is_right {
                return Err(self.inode.damaged("value of an extended attribute, by inode"));
            }
            value.extend_from_slice(part(&block, REMOTE_HEADER_BYTES, here));
            number = number.checked_add(1).ok_or_else(|| self.damaged())?;
        }
        Ok(value)
    }
}

/// The kernel's form of an ACL.
fn acl(stored: &[u8]) -> Option<Vec<u8>> {
    const VERSION: u32 = 2;
    const ENTRY_BYTES: usize = 12;
    const NAMED_USER: u32 = 2;
    const NAMED_GROUP: u32 = 8;
    let count = be32(stored, 0) as usize;
    let entries = part(stored, 4, stored.len());
    if count.checked_mul(ENTRY_BYTES)? > entries.len() {
        return None;
    }
    let mut given = VERSION.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(ENTRY_BYTES).take(count) {
        let (tag, id, rights) = (be32(entry, 0), be32(entry, 4), be16(entry, 8));
        let has_id = matches!(tag, NAMED_USER | NAMED_GROUP);
        given.extend_from_slice(&u16::try_from(tag).ok()?.to_le_bytes());
        given.extend_from_slice(&rights.to_le_bytes());
        given.extend_from_slice(&if has_id { id } else { u32::MAX }.to_le_bytes());
    }
    Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_gets_the_form_of_the_kernel() {
        let stored = [
            [0, 0, 0, 2].as_slice(),
            &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 6, 0, 0],
            &[0, 0, 0, 2, 0, 0, 3, 0xe8, 0, 4, 0, 0],
        ];
        let given = [
            [2, 0, 0, 0].as_slice(),
            &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
        ];
        let stored = stored.concat();
        assert_eq!(acl(&stored), Some(given.concat()));
        assert_eq!(acl(&stored[..20]), None, "an entry is cut off");
    }
}
