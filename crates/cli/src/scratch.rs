//! A folder of this run, for files that are needed no longer when it ends.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// Names that are tried until one is free.
const TRIES: u32 = 1000;

/// A folder that only its owner may enter. Dropping it removes it with all that is in it.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes one in the cache of this program, or else in the folder for temporary files.
    pub fn make(context: &Context, purpose: &str) -> Result<Self, CliError> {
        let parent = context.cache().unwrap_or_else(std::env::temp_dir);
        Self::make_in(&parent, purpose).map_err(|error| {
            let message = format!("cannot make a folder in {}: {error}", printable(&parent));
            let hint = "name another folder with --cache FOLDER, or make room there";
            CliError::new(Exit::Failed, message, hint)
        })
    }

    /// Makes one in the folder for temporary files, whose path is short.
    pub fn make_in_temporary(purpose: &str) -> Result<Self, CliError> {
        let parent = std::env::temp_dir();
        Self::make_in(&parent, purpose).map_err(|error| {
            let message = format!("cannot make a folder in {}: {error}", printable(&parent));
            CliError::new(Exit::Failed, message, "set TMPDIR to another folder")
        })
    }

    /// Makes one in another folder.
    pub fn make_in(parent: &Path, purpose: &str) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let process = std::process::id();
        for number in 0..TRIES {
            let path = parent.join(format!("{purpose}-{process}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What cannot be removed stays in a cache, which anyone may empty.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_and_none_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let one = ScratchFolder::make_in(parent.path(), "boot").unwrap();
        let other = ScratchFolder::make_in(parent.path(), "boot").unwrap();
        assert_ne!(one.path(), other.path());
        std::fs::write(one.path().join("file"), "x").unwrap();
        drop((one, other));
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
