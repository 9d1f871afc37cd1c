//! Removing an object, if there is one under its name.

use crate::{Backend, BackendError, ObjectName};

/// The outcome of removing an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The object was there, and is gone.
    Removed,
    /// No object was there.
    Absent,
    /// A directory is in its place. It is no object and may hold anything, so it stays.
    Directory,
}

/// The way out for a person of a directory in the place of an object.
pub const DIRECTORY_IN_PLACE: &str = "a directory is in its place: move it away";

/// Removes an object. One that is not there any more, or has a directory in its place, is no error: another
/// process may be at the same work, and nothing that a person leaves in a folder may stop it.
pub fn remove_object(backend: &dyn Backend, name: &ObjectName) -> Result<Removal, BackendError> {
    match backend.remove(name) {
        Ok(()) => Ok(Removal::Removed),
        Err(error) if error.is_not_found() => Ok(Removal::Absent),
        Err(error) if error.is_directory() => Ok(Removal::Directory),
        Err(error) => Err(error),
    }
}
