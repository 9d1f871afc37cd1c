//! The names of a directory, in the order in which they were made.

use std::ops::ControlFlow;

use strongroom_catalog::entry::is_valid_name;

use crate::error::Result;
use crate::fields::{le16, part};
use crate::file_system::Entry;

use super::inode::{Inode, NAME_HEAD_BYTES};
use super::key::{Key, key};
use super::nodes::{Nodes, walk};
use super::roots::{FileTrees, ROOT_ITEM};

const INDEX: u8 = 96;
const INODE: u8 = 1;
/// What the kernel shows of a subvolume that is elsewhere: an empty folder with this number.
pub(super) const EMPTY_FOLDER: u64 = 2;

/// Gives all names to `take`.
pub(super) fn entries(
    nodes: &Nodes<'_>,
    trees: &FileTrees,
    inode: &Inode,
    take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut damage = None;
    let first = Key { object: inode.number, kind: INDEX, offset: 0 };
    walk(nodes, inode.tree.root, first, &mut |found, bytes| {
        if (found.object, found.kind) != (inode.number, INDEX) {
            return ControlFlow::Break(());
        }
        let name = part(bytes, NAME_HEAD_BYTES, le16(bytes, 27).into());
        if !is_valid_name(name) {
            damage = Some(inode.damaged("entries of a directory, by inode"));
            return ControlFlow::Continue(());
        }
        match target(nodes, trees, inode, key(bytes), name) {
            Ok(inode) => take(Entry { name, inode }),
            Err(error) => {
                damage = damage.take().or(Some(error));
                ControlFlow::Continue(())
            }
        }
    })?;
    damage.map_or(Ok(()), Err)
}

/// The number of the inode that a name leads to.
fn target(
    nodes: &Nodes<'_>,
    trees: &FileTrees,
    directory: &Inode,
    to: Key,
    name: &[u8],
) -> Result<u64> {
    let tree = directory.tree.id;
    match to.kind {
        INODE => trees.number(tree, to.object),
        ROOT_ITEM => {
            let inside = trees.inside(nodes, (tree, directory.number, name), to.object)?;
            inside.map_or_else(|| trees.number(tree, EMPTY_FOLDER), Ok)
        }
        _ => Err(directory.damaged("entries of a directory, by inode")),
    }
}
