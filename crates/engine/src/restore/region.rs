//! Regions of memory are put back: of each only the pages that differ are written.

use std::fs::File;

use strongroom_base::{Cancel, Monitor};
use strongroom_repository::Repository;

use super::disk::{DiskOutcome, fill_stream};
use crate::error::EngineError;
use crate::stored_regions::StoredRegion;

/// Puts a region into `target`, a file that is open for reading and writing. One that is shorter becomes
/// as long as the region. What is behind the region is left alone: it is its owner's, who would die
/// of it (SIGBUS) if it were cut off.
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
    let length = target.metadata().map_err(EngineError::Output)?.len();
    if length < bytes {
        target.set_len(bytes).map_err(EngineError::Output)?;
    }
    fill_stream(repository, &region.content, (target, length.min(bytes)), monitor, cancel)
}
