//! `forget`: wishes that snapshots are removed. The next `prune` removes them; until then the wish
//! can be taken back.

mod policy;

use strongroom_base::SnapshotId;
use strongroom_repository::{Repository, RepositoryError, Wishes};

pub use policy::{Judged, Periods, Policy};

/// Wishes that snapshots are forgotten. Returns how many were not forgotten already.
pub fn forget(repository: &Repository, snapshots: &[SnapshotId]) -> Result<usize, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    let mut added = 0;
    for snapshot in snapshots {
        added += usize::from(wishes.add(repository, *snapshot)?);
    }
    Ok(added)
}

/// Takes wishes back. Returns those that come too late: a collection has taken them.
pub fn remember(
    repository: &Repository,
    snapshots: &[SnapshotId],
) -> Result<Vec<SnapshotId>, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    let mut late = Vec::new();
    for snapshot in snapshots {
        if !wishes.undo(repository, *snapshot)? {
            late.push(*snapshot);
        }
    }
    Ok(late)
}
