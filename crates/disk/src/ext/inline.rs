//! Content that is in the inode itself: the block area, continued by an attribute.

use crate::error::Result;

use super::inode::{BLOCK_AREA, Inode};
use super::xattr;

/// The content of a file.
pub(super) fn content(inode: &Inode) -> Result<Vec<u8>> {
    let mut content = inode.block_area().to_vec();
    content.extend_from_slice(xattr::inline_data(inode)?.unwrap_or_default());
    let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
    if size > content.len() {
        return Err(inode.damaged("size of inline data, by inode"));
    }
    content.truncate(size);
    Ok(content)
}

/// The two areas with a directory's names: behind the number of its parent, and the attribute.
pub(super) fn directory(inode: &Inode) -> Result<[&[u8]; 2]> {
    let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
    let first = &inode.block_area()[4..size.clamp(4, BLOCK_AREA.len())];
    let second = xattr::inline_data(inode)?.unwrap_or_default();
    let second = &second[..second.len().min(size.saturating_sub(BLOCK_AREA.len()))];
    Ok([first, second])
}
