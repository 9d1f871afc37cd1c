//! `lock`: every object of a repository is locked until a time, if its place can do that.
//!
//! Needs no key. A machine that backs up needs neither the right to lock nor that to remove versions;
//! a thief who takes it over can shorten no lock.

use strongroom_backend::{Backend, BackendError, ObjectInfo};
use strongroom_base::{Cancel, Monitor, Progress, SizeLimits, Timestamp};
use strongroom_repository::RepositoryError;
use strongroom_repository::objects::{SESSIONS_FOLDER, list_objects};

use crate::flight::{Flight, each_in_flight};

/// What was locked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockOutcome {
    /// Objects that are locked until the time now, or longer.
    pub locked: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that a collection removed meanwhile.
    pub gone: u64,
}

/// Locks every object until a time. A lock that is longer stays as it is. Sessions are not locked:
/// their writers remove them.
///
/// # Errors
///
/// [`BackendError::Unsupported`] if the place has no locks; [`BackendError::Refused`] if the
/// credentials do not allow it.
pub fn lock(
    backend: &dyn Backend,
    until: Timestamp,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<LockOutcome, RepositoryError> {
    let mut objects = list_objects(backend)?;
    objects.retain(|info| info.name.folder() != SESSIONS_FOLDER);
    let mut outcome = LockOutcome::default();
    let mut progress = Progress {
        files_total: Some(objects.len() as u64),
        bytes_total: Some(objects.iter().map(|info| info.bytes).sum()),
        ..Progress::default()
    };
    let work = |info: &ObjectInfo| match backend.retain(&info.name, until) {
        Ok(()) => Ok(true),
        Err(BackendError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    };
    let flight = Flight::between(backend, backend, &SizeLimits::DEFAULT);
    each_in_flight(&objects, flight, cancel, &work, &mut |info, is_there| {
        match is_there {
            true => {
                outcome.locked += 1;
                outcome.bytes += info.bytes;
            }
            false => outcome.gone += 1,
        }
        progress.files += 1;
        progress.bytes += info.bytes;
        monitor.progress(&progress);
    })?;
    Ok(outcome)
}
