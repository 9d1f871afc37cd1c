//! Extended attributes: behind the fields of the inode, in a block, or as inodes of their own; and
//! ACLs, which the disk has in a shorter form than the kernel gives out.

use strongroom_catalog::Xattr;

use crate::checksum::crc32c;
use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, part};

use super::blocks::Blocks;
use super::file;
use super::inode::{Inode, OLD_BYTES, flag};

const MAGIC: u32 = 0xea02_0000;
const BLOCK_HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
/// The kernel's limit for a value.
const VALUE_BYTES_MAX: u32 = 64 << 10;
/// The most that is read of one inode.
const BYTES_MAX: usize = 8 << 20;

const ACL_ACCESS: u8 = 2;
const ACL_DEFAULT: u8 = 3;
const SYSTEM: u8 = 7;

/// An attribute as it is stored.
struct Raw<'b> {
    index: u8,
    name: &'b [u8],
    value: Value<'b>,
}

enum Value<'b> {
    Here(&'b [u8]),
    Inode { number: u32, bytes: u32 },
}

/// The attributes of an inode as the kernel would list them for root, sorted by name.
pub(super) fn read(blocks: &Blocks<'_>, inode: &Inode) -> Result<Vec<Xattr>> {
    let mut bytes_left = BYTES_MAX;
    let mut xattrs = Vec::new();
    add(blocks, inode, in_inode(inode)?, &mut bytes_left, &mut xattrs)?;
    if inode.xattr_block() != 0 {
        let block = block(blocks, inode)?;
        let raw = parse(inode, part(&block, BLOCK_HEADER_BYTES, block.len()), &block)?;
        add(blocks, inode, raw, &mut bytes_left, &mut xattrs)?;
    }
    xattrs.sort_unstable_by(|left: &Xattr, right| left.name.cmp(&right.name));
    Ok(xattrs)
}

/// The value in the inode that continues inline data.
pub(super) fn inline_data(inode: &Inode) -> Result<Option<&[u8]>> {
    let data = in_inode(inode)?.into_iter().find(|raw| raw.index == SYSTEM && raw.name == b"data");
    match data.map(|raw| raw.value) {
        None => Ok(None),
        Some(Value::Here(bytes)) => Ok(Some(bytes)),
        Some(Value::Inode { .. }) => Err(inode.damaged("inline data elsewhere, by inode")),
    }
}

fn in_inode(inode: &Inode) -> Result<Vec<Raw<'_>>> {
    let behind = OLD_BYTES + inode.extra_bytes();
    let area = part(&inode.raw, behind, inode.raw.len());
    if inode.raw.len() == OLD_BYTES || le32(area, 0) != MAGIC {
        return Ok(Vec::new());
    }
    let entries = part(area, 4, area.len());
    parse(inode, entries, entries)
}

fn block(blocks: &Blocks<'_>, inode: &Inode) -> Result<Vec<u8>> {
    let number = inode.xattr_block();
    let block = blocks.get(number)?.to_vec();
    if le32(&block, 0) != MAGIC || le32(&block, 8) != 1 {
        return Err(inode.damaged("block of extended attributes, by inode"));
    }
    if blocks.superblock.has_checksums() {
        let mut covered = block.clone();
        covered[16..20].fill(0);
        let state = crc32c(blocks.superblock.seed, &number.to_le_bytes());
        if crc32c(state, &covered) != le32(&block, 16) {
            return Err(inode.damaged("checksum of extended attributes, by inode"));
        }
    }
    Ok(block)
}

/// Takes entries apart; values are at offsets from the start of `base`.
fn parse<'b>(inode: &Inode, entries: &'b [u8], base: &'b [u8]) -> Result<Vec<Raw<'b>>> {
    let damaged = || inode.damaged("extended attributes, by inode");
    let mut found = Vec::new();
    let mut rest = entries;
    while le32(rest, 0) != 0 {
        let name_bytes = usize::from(byte(rest, 0));
        let name = rest.get(ENTRY_BYTES..ENTRY_BYTES + name_bytes).ok_or_else(damaged)?;
        let (place, number, bytes) = (le16(rest, 2), le32(rest, 4), le32(rest, 8));
        if bytes > VALUE_BYTES_MAX {
            return Err(damaged());
        }
        let value = if number != 0 {
            Value::Inode { number, bytes }
        } else if bytes == 0 {
            Value::Here(&[])
        } else {
            let from = usize::from(place);
            Value::Here(base.get(from..from + bytes as usize).ok_or_else(damaged)?)
        };
        found.push(Raw { index: byte(rest, 1), name, value });
        rest = part(rest, (ENTRY_BYTES + name_bytes).next_multiple_of(4), rest.len());
    }
    Ok(found)
}

fn add(
    blocks: &Blocks<'_>,
    inode: &Inode,
    raw: Vec<Raw<'_>>,
    bytes_left: &mut usize,
    xattrs: &mut Vec<Xattr>,
) -> Result<()> {
    for attribute in raw {
        let Some(name) = name(&attribute) else { continue };
        let value = match attribute.value {
            Value::Here(bytes) => bytes.to_vec(),
            Value::Inode { number, bytes } => value_of(blocks, number, bytes)?,
        };
        let value = match attribute.index {
            ACL_ACCESS | ACL_DEFAULT => {
                acl(&value).ok_or_else(|| inode.damaged("access control list, by inode"))?
            }
            _ => value,
        };
        let left = bytes_left.checked_sub(name.len() + value.len());
        *bytes_left = left.ok_or(DiskError::unsupported("extended attributes above 8 MiB"))?;
        xattrs.push(Xattr { name, value });
    }
    Ok(())
}

/// The full name; `None` for what the kernel does not list.
fn name(attribute: &Raw<'_>) -> Option<Vec<u8>> {
    let prefix: &[u8] = match attribute.index {
        1 => b"user.",
        ACL_ACCESS => return Some(b"system.posix_acl_access".to_vec()),
        ACL_DEFAULT => return Some(b"system.posix_acl_default".to_vec()),
        4 => b"trusted.",
        6 => b"security.",
        // Inline data, the context of encryption, and what no kernel knows.
        _ => return None,
    };
    Some([prefix, attribute.name].concat())
}

fn value_of(blocks: &Blocks<'_>, number: u32, bytes: u32) -> Result<Vec<u8>> {
    let inode = Inode::read(blocks, number.into())?;
    if !inode.has(flag::EA_INODE) || inode.size() != bytes.into() {
        return Err(inode.damaged("inode of an extended attribute"));
    }
    let mut value = vec![0; bytes as usize];
    file::read(blocks, &inode, 0, &mut value)?;
    Ok(value)
}

/// The kernel's form of an ACL. The disk's form has a version of its own, and ids only in entries
/// that need one.
fn acl(stored: &[u8]) -> Option<Vec<u8>> {
    const STORED_VERSION: u32 = 1;
    const VERSION: u32 = 2;
    const NAMED_USER: u16 = 2;
    const NAMED_GROUP: u16 = 8;
    if le32(stored, 0) != STORED_VERSION {
        return None;
    }
    let mut given = VERSION.to_le_bytes().to_vec();
    let mut rest = part(stored, 4, stored.len());
    while !rest.is_empty() {
        let has_id = matches!(le16(rest, 0), NAMED_USER | NAMED_GROUP);
        let (entry, after) = rest.split_at_checked(if has_id { 8 } else { 4 })?;
        given.extend_from_slice(&entry[..4]);
        given.extend_from_slice(if has_id { &entry[4..] } else { &[0xff; 4] });
        rest = after;
    }
    Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_gets_the_form_of_the_kernel() {
        let stored = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0];
        let given = [
            [2, 0, 0, 0].as_slice(),
            &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
        ];
        assert_eq!(acl(&stored), Some(given.concat()));
        assert_eq!(acl(&stored[..14]), None, "an entry is cut off");
        assert_eq!(acl(&given.concat()), None, "another version");
    }
}
