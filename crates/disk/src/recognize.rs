//! Which file system is on a volume.

use crate::btrfs::Btrfs;
use crate::error::Result;
use crate::exfat::ExFat;
use crate::ext::Ext;
use crate::fat::Fat;
use crate::file_system::FileSystem;
use crate::ntfs::Ntfs;
use crate::read::ReadAt;
use crate::xfs::Xfs;

/// The file system of a volume; `None` if it has none that we know.
///
/// # Errors
///
/// If the superblock says which file system it is and cannot be right, or needs what we lack.
pub fn open<'a>(volume: &'a dyn ReadAt) -> Result<Option<Box<dyn FileSystem + 'a>>> {
    if let Some(ext) = Ext::open(volume)? {
        return Ok(Some(Box::new(ext)));
    }
    if let Some(xfs) = Xfs::open(volume)? {
        return Ok(Some(Box::new(xfs)));
    }
    if let Some(btrfs) = Btrfs::open(volume)? {
        return Ok(Some(Box::new(btrfs)));
    }
    if let Some(ntfs) = Ntfs::open(volume)? {
        return Ok(Some(Box::new(ntfs)));
    }
    if let Some(exfat) = ExFat::open(volume)? {
        return Ok(Some(Box::new(exfat)));
    }
    // Its boot sector has no mark of its own: others are asked first.
    if let Some(fat) = Fat::open(volume)? {
        return Ok(Some(Box::new(fat)));
    }
    Ok(None)
}
