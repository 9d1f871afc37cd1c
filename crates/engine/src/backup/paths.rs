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
    pub left_out: Vec<(PathBuf, String)>,
}

impl Paths {
    /// Finds the paths. It is an error if there is none that can be backed up.
    pub fn find(wanted: &[PathBuf], own: &[InodeId]) -> Result<Self, EngineError> {
        let mut paths = Self::default();
        for path in wanted {
            if is_within(path, own) {
                let why = "it is the repository or its cache, which are never stored in themselves";
                paths.left_out.push((path.clone(), why.to_owned()));
            } else if let Err(error) = TreeSource::find(std::slice::from_ref(path)) {
                paths.left_out.push((path.clone(), error.to_string()));
            } else {
                paths.found.push(path.clone());
            }
        }
        match paths.left_out.first() {
            Some((path, why)) if paths.found.is_empty() => {
                let message = format!("nothing is backed up of {}: {why}", path.display());
                Err(RepositoryError::Argument(message).into())
            }
            _ => Ok(paths),
        }
    }
}

/// True for a directory of these, or what is in one.
fn is_within(path: &Path, directories: &[InodeId]) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    path.ancestors().any(|above| InodeId::of_path(above).is_ok_and(|id| directories.contains(&id)))
}
