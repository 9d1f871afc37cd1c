//! A folder of this run, for files that are needed no longer when it ends. One that a killed run has
//! left is removed by the next that makes its own beside it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use strongroom_base::{Monitor, OsEntropy};
use strongroom_source::{Scratch, ScratchOwner, sweep_scratch};

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::machine::host_name;
use crate::terminal::printable;

/// The beginning of their names. Paths of sockets in such a folder must be short.
const PREFIX: &str = "strongroom-run-";

/// A folder that only its owner may enter. Dropping it removes it with all that is in it.
#[derive(Debug)]
pub struct ScratchFolder(Scratch);

impl ScratchFolder {
    /// Makes one in the cache of this program, or else in the folder for temporary files.
    pub fn make(context: &Context) -> Result<Self, CliError> {
        let parent = context.cache().unwrap_or_else(std::env::temp_dir);
        Self::make_in(context, &parent).map_err(|error| {
            let message = format!("cannot make a folder in {}: {error}", printable(&parent));
            let hint = "name another folder with --cache FOLDER, or make room there";
            CliError::new(Exit::Failed, message, hint)
        })
    }

    /// Makes one in the folder for temporary files, whose path is short.
    pub fn make_in_temporary(context: &Context) -> Result<Self, CliError> {
        let parent = std::env::temp_dir();
        Self::make_in(context, &parent).map_err(|error| {
            let message = format!("cannot make a folder in {}: {error}", printable(&parent));
            CliError::new(Exit::Failed, message, "set TMPDIR to another folder")
        })
    }

    /// Makes one in another folder.
    pub fn make_in(context: &Context, parent: &Path) -> io::Result<Self> {
        Self::make_and_say(parent, &context.terminal.monitor_of_problems())
    }

    fn make_and_say(parent: &Path, monitor: &dyn Monitor) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let owner = owner();
        sweep_scratch(parent, &owner, monitor);
        Ok(Self(Scratch::create(parent, &owner, &OsEntropy)?))
    }

    /// Removes what killed runs have left in a folder.
    pub fn sweep(context: &Context, parent: &Path) {
        sweep_scratch(parent, &owner(), &context.terminal.monitor_of_problems());
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn owner() -> ScratchOwner {
    let host = host_name();
    let text = format!("scratch folder of a strongroom run\nhost {host:?}\n");
    ScratchOwner::new(PREFIX, "run", text)
}

#[cfg(test)]
mod tests {
    use strongroom_base::Silent;

    use super::*;

    #[test]
    fn each_is_another_and_none_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let one = ScratchFolder::make_and_say(parent.path(), &Silent).unwrap();
        let other = ScratchFolder::make_and_say(parent.path(), &Silent).unwrap();
        assert_ne!(one.path(), other.path());
        std::fs::write(one.path().join("file"), "x").unwrap();
        drop((one, other));
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
