//! The tree of roots: which other trees there are, and which of them have files.
//!
//! An inode number is unique in its tree only. What this crate gives out has the tree's position in
//! the list of trees in its high bits; the tree that is mounted without options has position zero.

use std::ops::ControlFlow;

use crate::error::{DiskError, Result};
use crate::fields::{byte, le16, le32, le64, part};

use super::key::Key;
use super::nodes::{Nodes, find, walk};
use super::superblock::Root;

pub(super) const ROOT_ITEM: u8 = 132;
const ROOT_REF: u8 = 156;
/// The tree of files that is there from the beginning, and the first one that a person makes.
const FILES: u64 = 5;
const FIRST_MADE: u64 = 256;
/// The last one: above are trees of relocations and the like.
const LAST_MADE: u64 = u64::MAX - 256;
/// Bits of an inode's number in its tree.
const INODE_BITS: u32 = 44;
const TREES_MAX: usize = 1 << 20;

/// The extents and who has them; block groups, if they have a tree of their own.
pub(super) const EXTENTS: u64 = 2;
pub(super) const GROUPS: u64 = 11;

/// A tree with files: a subvolume or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileTree {
    pub id: u64,
    pub root: Root,
    /// Its uppermost folder.
    pub folder: u64,
}

/// The trees with files, in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct FileTrees {
    list: Vec<FileTree>,
}

/// A root that the tree of roots has.
pub(super) struct Found {
    pub id: u64,
    pub root: Root,
    pub folder: u64,
    /// It was deleted, and its nodes are being freed.
    pub is_deleted: bool,
}

/// Gives all roots to `take`.
pub(super) fn roots(nodes: &Nodes<'_>, take: &mut dyn FnMut(Found)) -> Result<()> {
    let first = Key { object: 0, kind: 0, offset: 0 };
    let mut count = 0;
    walk(nodes, nodes.superblock.roots, first, &mut |key, bytes| {
        if key.kind == ROOT_ITEM && byte(bytes, 238) < 8 {
            count += 1;
            if count > TREES_MAX {
                return ControlFlow::Break(());
            }
            take(Found {
                id: key.object,
                root: Root {
                    logical: le64(bytes, 176),
                    level: byte(bytes, 238),
                    generation: le64(bytes, 160),
                },
                folder: le64(bytes, 168),
                is_deleted: le32(bytes, 216) == 0,
            });
        }
        ControlFlow::Continue(())
    })?;
    if count > TREES_MAX {
        return Err(DiskError::unsupported("more than a million subvolumes of Btrfs"));
    }
    Ok(())
}

impl FileTrees {
    pub(super) fn read(nodes: &Nodes<'_>) -> Result<Self> {
        let mut list: Vec<FileTree> = Vec::new();
        roots(nodes, &mut |found| {
            let Found { id, root, folder, is_deleted } = found;
            let has_files = id == FILES || (FIRST_MADE..=LAST_MADE).contains(&id);
            if !has_files || is_deleted {
                return;
            }
            // Of several roots of one tree the last one counts.
            if list.last().is_some_and(|last| last.id == id) {
                list.pop();
            }
            list.push(FileTree { id, root, folder });
        })?;
        if list.first().is_none_or(|first| first.id != FILES) {
            return Err(DiskError::damaged("Btrfs without files, by tree", FILES));
        }
        Ok(Self { list })
    }

    /// The number that this crate gives out for an inode of a tree.
    pub(super) fn number(&self, tree: u64, inode: u64) -> Result<u64> {
        let position = self.list.binary_search_by_key(&tree, |known| known.id);
        let position = position.map_err(|_| DiskError::damaged("number of a tree", tree))?;
        if inode >> INODE_BITS != 0 {
            return Err(DiskError::damaged("number of an inode", inode));
        }
        Ok((position as u64) << INODE_BITS | inode)
    }

    /// The tree and the inode of a number that this crate gave out.
    pub(super) fn split(&self, number: u64) -> Result<(FileTree, u64)> {
        let tree = self.list.get((number >> INODE_BITS) as usize);
        let tree = tree.ok_or(DiskError::damaged("number of an inode", number))?;
        Ok((*tree, number & ((1 << INODE_BITS) - 1)))
    }

    /// The uppermost folder of all.
    pub(super) fn top(&self) -> u64 {
        self.list.first().map_or(0, |tree| tree.folder)
    }

    /// The uppermost folder of a subvolume that has a name in another tree; `None` if that name is
    /// only a copy, as the subvolumes inside of a subvolume are not part of its snapshots.
    pub(super) fn inside(
        &self,
        nodes: &Nodes<'_>,
        (tree, folder, name): (u64, u64, &[u8]),
        subvolume: u64,
    ) -> Result<Option<u64>> {
        let key = Key { object: tree, kind: ROOT_REF, offset: subvolume };
        let Some(found) = find(nodes, nodes.superblock.roots, key)? else { return Ok(None) };
        let is_same =
            le64(&found, 0) == folder && part(&found, 18, le16(&found, 16).into()) == name;
        if !is_same {
            return Ok(None);
        }
        let position = self.list.binary_search_by_key(&subvolume, |known| known.id);
        let position = position.map_err(|_| DiskError::damaged("number of a tree", subvolume))?;
        self.number(subvolume, self.list[position].folder).map(Some)
    }
}
