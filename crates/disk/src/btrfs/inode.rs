//! An inode and its extended attributes.

use std::ops::ControlFlow;

use strongroom_base::Timestamp;
use strongroom_catalog::{DeviceNumber, Xattr};

use crate::error::{DiskError, Result};
use crate::fields::{le16, le32, le64};

use super::key::Key;
use super::nodes::{Nodes, walk};
use super::roots::FileTree;

const INODE: u8 = 1;
const XATTR: u8 = 24;
const BYTES: usize = 160;
/// Bytes before the name of a name or an attribute.
pub(super) const NAME_HEAD_BYTES: usize = 30;
/// The most that is read of one inode.
const XATTR_BYTES_MAX: usize = 8 << 20;

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inode {
    pub tree: FileTree,
    /// Its number in the tree.
    pub number: u64,
    raw: Vec<u8>,
    pub xattrs: Vec<Xattr>,
}

impl Inode {
    /// Reads an inode of a tree.
    pub(super) fn read(nodes: &Nodes<'_>, tree: FileTree, number: u64) -> Result<Self> {
        let damaged = |what| DiskError::damaged(what, number);
        let (mut raw, mut xattrs) = (None, Vec::new());
        let mut problem = Ok(());
        let mut left = XATTR_BYTES_MAX;
        let first = Key { object: number, kind: INODE, offset: 0 };
        walk(nodes, tree.root, first, &mut |key, bytes| {
            if key.object != number || key.kind > XATTR {
                return ControlFlow::Break(());
            }
            if key.kind == INODE {
                raw = bytes.get(..BYTES).map(<[u8]>::to_vec);
            }
            if key.kind == XATTR {
                problem = add_xattrs(bytes, &mut left, &mut xattrs)
                    .ok_or_else(|| damaged("extended attributes, by inode"));
            }
            if problem.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        problem?;
        let raw = raw.ok_or_else(|| damaged("there is no inode with this number"))?;
        xattrs.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(Self { tree, number, raw, xattrs })
    }

    pub(super) fn damaged(&self, what: &'static str) -> DiskError {
        DiskError::damaged(what, self.number)
    }

    /// The type bits of the mode.
    pub(super) fn kind(&self) -> u16 {
        (le32(&self.raw, 52) >> 12) as u16
    }

    pub(super) fn mode(&self) -> u16 {
        le16(&self.raw, 52)
    }

    pub(super) fn size(&self) -> u64 {
        le64(&self.raw, 16)
    }

    pub(super) fn links(&self) -> u32 {
        le32(&self.raw, 40)
    }

    pub(super) fn uid(&self) -> u32 {
        le32(&self.raw, 44)
    }

    pub(super) fn gid(&self) -> u32 {
        le32(&self.raw, 48)
    }

    /// The content is covered by a hash tree.
    pub(super) fn is_verity(&self) -> bool {
        le32(&self.raw, 68) & 1 != 0
    }

    pub(super) fn ctime(&self) -> Timestamp {
        self.time(124)
    }

    pub(super) fn mtime(&self) -> Timestamp {
        self.time(136)
    }

    fn time(&self, at: usize) -> Timestamp {
        let seconds = i128::from(le64(&self.raw, at).cast_signed());
        let time = seconds * 1_000_000_000 + i128::from(le32(&self.raw, at + 8));
        Timestamp(time.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// The device of a special file, as the kernel has it in memory.
    pub(super) fn device(&self) -> DeviceNumber {
        let stored = le64(&self.raw, 56);
        DeviceNumber { major: (stored >> 20) as u32, minor: stored as u32 & 0xf_ffff }
    }
}

/// Takes the attributes of an item apart: several, if their names have the same hash.
fn add_xattrs(bytes: &[u8], left: &mut usize, xattrs: &mut Vec<Xattr>) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (value_bytes, name_bytes) = (le16(rest, 25).into(), le16(rest, 27).into());
        let after = rest.get(NAME_HEAD_BYTES..)?;
        let (name, after) = after.split_at_checked(name_bytes)?;
        let (value, after) = after.split_at_checked(value_bytes)?;
        *left = left.checked_sub(name.len() + value.len() + NAME_HEAD_BYTES)?;
        xattrs.push(Xattr { name: name.to_vec(), value: value.to_vec() });
        rest = after;
    }
    Some(())
}
