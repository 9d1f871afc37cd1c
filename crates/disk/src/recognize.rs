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

type Opened<'a> = Result<Option<Box<dyn FileSystem + 'a>>>;

/// The file system of a volume; `None` if it has none that we know.
///
/// # Errors
///
/// If the superblock says which file system it is and cannot be right, or needs what we lack.
pub fn open<'a>(volume: &'a dyn ReadAt) -> Opened<'a> {
    // The boot sector of FAT has no mark of its own: the others are asked first.
    let all: [fn(&'a dyn ReadAt) -> Opened<'a>; 6] = [
        |volume| boxed(Ext::open(volume)),
        |volume| boxed(Xfs::open(volume)),
        |volume| boxed(Btrfs::open(volume)),
        |volume| boxed(Ntfs::open(volume)),
        |volume| boxed(ExFat::open(volume)),
        |volume| boxed(Fat::open(volume)),
    ];
    let mut refused = None;
    for open in all {
        match open(volume) {
            Ok(Some(files)) => return Ok(Some(files)),
            Ok(None) => {}
            // The mark of one file system can be anything in another.
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(None), Err)
}

fn boxed<'a, F: FileSystem + 'a>(opened: Result<Option<F>>) -> Opened<'a> {
    Ok(opened?.map(|files| Box::new(files) as Box<dyn FileSystem>))
}
