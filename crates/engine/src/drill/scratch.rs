//! The scratch folder of a drill: whose it is, and how much may be written into it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_base::RepositoryId;
use strongroom_source::ScratchOwner;

use crate::error::EngineError;

/// What its name begins with.
const NAME: &str = "strongroom-drill-";

/// One part in this many of the free room is left to others.
const LEFT_TO_OTHERS: u64 = 20;

/// The drills of this repository on this machine.
pub fn owner(repository: &RepositoryId, host: &str) -> ScratchOwner {
    let text =
        format!("scratch folder of a strongroom drill\nrepository {repository}\nhost {host:?}\n");
    ScratchOwner::new(NAME, "drill", text)
}

/// Bytes that a drill may write below this folder.
pub fn free_bytes(folder: &Path) -> Result<u64, EngineError> {
    let failed = |error: rustix::io::Errno| EngineError::Scratch {
        folder: folder.to_owned(),
        error: error.into(),
    };
    let found = rustix::fs::statvfs(folder).map_err(failed)?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    Ok(free - free / LEFT_TO_OTHERS)
}

/// A path of the snapshot, as it was before it was restored below this folder.
pub fn path_in_snapshot(scratch: &Path, path: &Path) -> Vec<u8> {
    let below = path.strip_prefix(scratch).unwrap_or(path);
    Path::new(OsStr::new("/")).join(below).as_os_str().as_bytes().to_vec()
}
