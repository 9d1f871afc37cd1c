//! Which of the paths that were asked for can be backed up.

use std::path::{Path, PathBuf};

use strongroom_repository::RepositoryError;
use strongroom_source::{InodeId, TreeSource};

use crate::error::EngineError;

/// The paths that were asked for.
#[derive(Debug, Default)]
pub struct Paths {
    /// Those that are backed up.
    pub found: Vec<PathBuf>,
    /// Those that are left out, and why.
    pub left_out: Vec<LeftOut>,
}

/// A path that is left out.
#[derive(Debug)]
pub struct LeftOut {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub why: String,
    /// It cannot be found: its disk may be unplugged.
    pub is_missing: bool,
}

impl Paths {
    /// Finds the paths. It is an error if there is none that can be backed up.
    pub fn find(wanted: &[PathBuf], own: &[InodeId]) -> Result<Self, EngineError> {
        let mut paths = Self::default();
        for path in wanted {
            if is_within(path, own) {
                let why = "it is the repository or its cache, which are never stored in themselves";
                let (path, why) = (path.clone(), why.to_owned());
                paths.left_out.push(LeftOut { path, why, is_missing: false });
            } else if let Err(error) = TreeSource::find(std::slice::from_ref(path)) {
                let (path, why) = (path.clone(), error.to_string());
                paths.left_out.push(LeftOut { path, why, is_missing: true });
            } else {
                paths.found.push(path.clone());
            }
        }
        match paths.left_out.first() {
            Some(LeftOut { path, why, .. }) if paths.found.is_empty() => Err(nothing_of(path, why)),
            _ => Ok(paths),
        }
    }
}

/// None of the paths can be backed up; of this one, that is why.
pub fn nothing_of(path: &Path, why: &str) -> EngineError {
    let message = format!("nothing is backed up of {}: {why}", path.display());
    RepositoryError::Argument(message).into()
}

/// True for a directory of these, or what is in one.
fn is_within(path: &Path, directories: &[InodeId]) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    path.ancestors().any(|above| InodeId::of_path(above).is_ok_and(|id| directories.contains(&id)))
}
