//! The scratch folder of a drill: a new folder for its owner alone, which is removed at the end with
//! all that is in it. Nothing else is ever removed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use strongroom_base::Entropy;
use strongroom_source::{DirectoryId, Target, TargetError, TargetOptions};

use crate::error::EngineError;

/// What its name begins with.
const NAME: &str = "strongroom-drill-";

/// How many names are tried: one that is taken is left alone.
const ATTEMPTS_MAX: u32 = 16;

/// One part in this many of the free room is left to others.
const LEFT_TO_OTHERS: u64 = 20;

/// A scratch folder; removed when it is dropped.
pub struct Scratch {
    above: PathBuf,
    name: String,
    is_kept: bool,
}

impl Scratch {
    /// Makes one in this folder.
    pub fn create(above: &Path, entropy: &dyn Entropy) -> Result<Self, EngineError> {
        let failed = |error| EngineError::Scratch { folder: above.to_owned(), error };
        // What is restored is found below it from any working directory.
        let above = above.canonicalize().map_err(failed)?;
        let mut last = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        for _ in 0..ATTEMPTS_MAX {
            let mut random = [0; 8];
            entropy.fill(&mut random);
            let name = format!("{NAME}{:016x}", u64::from_le_bytes(random));
            match std::fs::DirBuilder::new().mode(0o700).create(above.join(&name)) {
                Ok(()) => return Ok(Self { above, name, is_kept: false }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(last))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.above.join(&self.name)
    }

    /// Leaves it, and what is in it.
    pub fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path()
    }

    /// Removes it with all that is in it.
    pub fn remove(mut self) -> Result<(), TargetError> {
        self.is_kept = true;
        self.remove_all()
    }

    fn remove_all(&self) -> Result<(), TargetError> {
        let options = TargetOptions { owner: false, xattrs: false, ..TargetOptions::default() };
        let above = Target::open(&self.above, options)?;
        above.remove(DirectoryId::ROOT, self.name.as_bytes()).map(drop)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            // What ended the drill is the failure to report.
            let _ = self.remove_all();
        }
    }
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
