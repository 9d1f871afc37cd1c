//! Files that a machine swaps to: what nothing needs of them once it is off.
//!
//! A file with the header of a swap area can be a copy that its owner wants to keep. So the volume
//! must say that it is used: its own `/etc/fstab` names it. Windows' files have names of their own
//! ([`FileSystem::page_files`]).

use std::ops::{ControlFlow, Range};

use crate::content::FileContent;
use crate::error::Result;
use crate::file_system::{FileSystem, Node, NodeKind};
use crate::swap::Swap;

/// What a machine mounts, and what it swaps to.
const TABLE: &[u8] = b"/etc/fstab";
/// A longer table is read to here.
const TABLE_BYTES_MAX: usize = 64 << 10;
/// The memory of a machine takes more.
const SUSPENDED_BYTES_MIN: u64 = 1 << 20;
/// A machine has few swap files.
const FILES_MAX: usize = 32;

/// A file that a machine swaps to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapFile {
    /// The file.
    pub inode: u64,
    /// Bytes of its content that nothing needs; none if it holds the memory of a suspended machine.
    pub free: Range<u64>,
}

/// Whether a file holds the memory of a suspended machine.
///
/// No table needs to name it: what a machine swaps to can be in another subvolume, on another volume
/// or in no table at all, and a machine that is taken for one that is off wakes up with other files.
/// Only what looks like a swap file is read: root's, and of whole pages.
pub fn is_suspended(files: &dyn FileSystem, inode: u64, node: &Node) -> bool {
    let (uid, size) = (node.metadata.uid, node.metadata.size);
    if node.kind != NodeKind::File || uid != 0 || size < SUSPENDED_BYTES_MIN || size % 4096 != 0 {
        return false;
    }
    let found = FileContent::open(files, inode).and_then(|content| Swap::find(&content));
    found.is_ok_and(|swap| swap.is_some_and(|swap| swap.hibernated))
}

/// The swap files of a volume.
///
/// # Errors
///
/// Unless the volume is clean or its journal was replayed, this is an error.
pub fn swap_files(files: &dyn FileSystem) -> Result<Vec<SwapFile>> {
    let all = |inode| SwapFile { inode, free: 0..u64::MAX };
    let mut found: Vec<SwapFile> = files.page_files()?.into_iter().map(all).collect();
    for path in in_table(files).unwrap_or_default() {
        // What cannot be read is stored as it is.
        if let Ok(Some(file)) = swap_file(files, &path) {
            found.push(file);
        }
    }
    Ok(found)
}

/// The swap file at a path, if it is one.
fn swap_file(files: &dyn FileSystem, path: &[u8]) -> Result<Option<SwapFile>> {
    let Some(inode) = find(files, path)? else { return Ok(None) };
    let found = Swap::find(&FileContent::open(files, inode)?)?;
    Ok(found.map(|Swap { free, .. }| SwapFile { inode, free }))
}

/// The paths that `/etc/fstab` names for swapping.
fn in_table(files: &dyn FileSystem) -> Result<Vec<Vec<u8>>> {
    let Some(inode) = find(files, TABLE)? else { return Ok(Vec::new()) };
    let mut table = vec![0; TABLE_BYTES_MAX];
    let bytes = files.read(inode, 0, &mut table)?;
    table.truncate(bytes);
    Ok(swapped_to(&table))
}

fn swapped_to(table: &[u8]) -> Vec<Vec<u8>> {
    let named = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let (what, _, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (what.starts_with(b"/") && kind == b"swap").then(|| unescaped(what))
    });
    named.take(FILES_MAX).collect()
}

/// The table writes blanks as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let Some((&first, others)) = rest.split_first() {
        let octal = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal.filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    bytes
}

/// The regular file at a path; links on the way are not followed.
fn find(files: &dyn FileSystem, path: &[u8]) -> Result<Option<u64>> {
    let mut inode = files.root();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if files.node(inode)?.kind != NodeKind::Directory {
            return Ok(None);
        }
        let mut next = None;
        files.entries(inode, &mut |entry| {
            if entry.name == name {
                next = Some(entry.inode);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        let Some(found) = next else { return Ok(None) };
        inode = found;
    }
    Ok((files.node(inode)?.kind == NodeKind::File).then_some(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_what_is_swapped_to() {
        let table = b"# /swap0 none swap\n/swapfile none swap sw 0 0\nUUID=1 none swap sw\n\
            /dev/sda2\tnone\tswap\tsw\n/data /mnt ext4\n  /my\\040swap\\\\x  none swap\n/short\n";
        let expected: [&[u8]; 3] = [b"/swapfile", b"/dev/sda2", b"/my swap\\\\x"];
        assert_eq!(swapped_to(table), expected);
        assert_eq!(swapped_to(b"\xff\0").len(), 0);
        assert_eq!(swapped_to(&b"/a none swap\n".repeat(1000)).len(), FILES_MAX);
    }
}
