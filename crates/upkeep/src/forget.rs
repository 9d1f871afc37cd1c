//! `forget`: wishes that snapshots are removed. The next `prune` removes them; until then the wish
//! can be taken back.

mod policy;

use strongroom_base::SnapshotId;
use strongroom_repository::{Hold, Repository, RepositoryError, Wishes, change_remark};

pub use policy::{Judged, Periods, Policy};

/// Wishes that snapshots are forgotten. Returns how many were not forgotten already.
///
/// # Errors
///
/// [`RepositoryError::Held`] if one of them is held: then none is forgotten.
pub fn forget(repository: &Repository, snapshots: &[SnapshotId]) -> Result<usize, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    refuse_held(&wishes, snapshots)?;
    let mut added = Vec::new();
    for snapshot in snapshots {
        if wishes.add(repository, *snapshot)? {
            added.push(*snapshot);
        }
    }
    // Only now: a hold that was made in between either finds these wishes, or is found here.
    let wishes = Wishes::read(repository)?;
    let held = refuse_held(&wishes, &added);
    if held.is_err() {
        for snapshot in &added {
            wishes.undo(repository, *snapshot)?;
        }
    }
    held.map(|()| added.len())
}

fn refuse_held(wishes: &Wishes, snapshots: &[SnapshotId]) -> Result<(), RepositoryError> {
    for snapshot in snapshots {
        if let Some(Hold { reason, .. }) = wishes.hold(*snapshot) {
            return Err(RepositoryError::Held { snapshot: *snapshot, reason });
        }
    }
    Ok(())
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

/// Holds snapshots, and takes back that they are to be forgotten. Returns those for which it comes
/// too late: a collection has taken them.
pub fn hold(
    repository: &Repository,
    snapshots: &[SnapshotId],
    hold: &Hold,
) -> Result<Vec<SnapshotId>, RepositoryError> {
    for snapshot in snapshots {
        change_remark(repository, *snapshot, |remark| remark.hold = Some(hold.clone()))?;
    }
    // Only now: see `forget`.
    remember(repository, snapshots)
}

/// Holds snapshots no longer.
pub fn release(repository: &Repository, snapshots: &[SnapshotId]) -> Result<(), RepositoryError> {
    for snapshot in snapshots {
        change_remark(repository, *snapshot, |remark| remark.hold = None)?;
    }
    Ok(())
}
