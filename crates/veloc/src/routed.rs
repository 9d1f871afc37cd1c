//! Checkpoints that a program writes into a file itself: a file in the scratch folder, which is the
//! area `file` while it is stored or loaded.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use strongroom_bucket::Bucket;

use crate::error::VelocError;

/// The area of a routed file.
pub const AREA: &str = "file";
/// Bytes of a path at most, with the zero at its end: `VELOC_MAX_NAME`.
pub const PATH_BYTES_MAX: usize = 1024;

/// The file of a checkpoint, named as VELOC does.
pub fn path_of(scratch: &Path, name: &str, rank: u32, version: i32) -> Result<PathBuf, VelocError> {
    let path = scratch.join(format!("{name}-{rank}-{version}.dat"));
    if path.as_os_str().len() < PATH_BYTES_MAX { Ok(path) } else { Err(VelocError::LongPath(path)) }
}

/// Makes the scratch folder.
pub fn prepare(scratch: &Path) -> Result<(), VelocError> {
    fs::create_dir_all(scratch)
        .map_err(|source| VelocError::File { path: scratch.to_owned(), source })
}

/// Stores what the program wrote. When it returns, the agent has read the file.
pub fn store(bucket: &Bucket, path: &Path, name: &str, version: u64) -> Result<(), VelocError> {
    let failed = |source| VelocError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes == 0 {
        return Err(VelocError::EmptyFile(path.to_owned()));
    }
    bucket.region(AREA, file.as_fd(), None, bytes)?;
    let stored = bucket.store_areas(name, version, &[AREA.to_owned()]);
    bucket.forget(AREA)?;
    Ok(stored?)
}

/// Puts a stored file back.
pub fn load(
    bucket: &Bucket,
    path: &Path,
    name: &str,
    version: u64,
    bytes: u64,
) -> Result<(), VelocError> {
    let failed = |source| VelocError::File { path: path.to_owned(), source };
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    let file = options.map_err(failed)?;
    file.set_len(bytes).map_err(failed)?;
    bucket.region(AREA, file.as_fd(), None, bytes)?;
    let loaded = bucket.load_areas(name, version, &[AREA.to_owned()]);
    bucket.forget(AREA)?;
    Ok(loaded?)
}

/// Removes the files of a checkpoint's name that this rank has.
pub fn clean(scratch: &Path, name: &str, rank: u32) -> Result<(), VelocError> {
    let failed = |source| VelocError::File { path: scratch.to_owned(), source };
    let begin = format!("{name}-{rank}-");
    let entries = match fs::read_dir(scratch) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let file_name = entry.file_name();
        let rest = file_name.to_str().and_then(|file_name| file_name.strip_prefix(&begin));
        let version = rest.and_then(|rest| rest.strip_suffix(".dat"));
        if version.is_some_and(|version| version.parse::<i32>().is_ok()) {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}
