//! Which file system is on a volume.

use crate::error::Result;
use crate::ext::Ext;
use crate::file_system::FileSystem;
use crate::read::ReadAt;
use crate::xfs::Xfs;

/// The file system of a volume; `None` if it has none that we know.
///
/// # Errors
///
/// If the superblock says which file system it is and cannot be right, or needs what we lack.
pub fn open<'a>(volume: &'a dyn ReadAt) -> Result<Option<Box<dyn FileSystem + 'a>>> {
    if let Some(xfs) = Xfs::open(volume)? {
        return Ok(Some(Box::new(xfs)));
    }
    Ok(match Ext::open(volume)? {
        Some(ext) => Some(Box::new(ext)),
        None => None,
    })
}
