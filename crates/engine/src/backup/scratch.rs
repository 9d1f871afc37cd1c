//! A file for what a backup keeps on this machine until its end, so that memory does not grow with
//! what is stored.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};

/// A file without a name in a folder of this machine; in memory if there is none that takes it.
pub fn scratch_file(folder: Option<&Path>) -> io::Result<File> {
    let in_folder = folder.and_then(|folder| {
        std::fs::create_dir_all(folder).ok()?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok()
    });
    let file = match in_folder {
        Some(file) => file,
        None => rustix::fs::memfd_create("strongroom", MemfdFlags::CLOEXEC)?,
    };
    Ok(File::from(file))
}
