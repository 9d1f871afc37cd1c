//! Regions of memory are put back: of each only the pages that differ are written.

use std::fs::File;

use strongroom_base::{Cancel, Monitor};
use strongroom_repository::Repository;

use super::disk::{DiskOutcome, restore_stream};
use crate::error::EngineError;
use crate::stored_regions::StoredRegion;

/// Puts a region into `target`, a file that is open for reading and writing. What a longer one has
/// behind the region stays as it is.
///
/// # Errors
///
/// The target cannot be written; the repository cannot be read. What is damaged there is a problem,
/// and named.
pub fn load_region(
    repository: &Repository,
    region: &StoredRegion,
    target: &File,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DiskOutcome, EngineError> {
    let bytes = region.content.stream_bytes();
    let found = target.metadata().map_err(EngineError::Output)?.len();
    if found < bytes {
        target.set_len(bytes).map_err(EngineError::Output)?;
    }
    restore_stream(
        repository,
        (&region.domain, &region.content),
        target,
        found.min(bytes),
        monitor,
        cancel,
    )
}
