//! `forget`: wishes that snapshots are removed. The next `prune` removes them; until then the wish
//! can be taken back.

mod foreign;
mod look;
mod own;
mod policy;
mod series;

use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    Hold, Repository, RepositoryError, SnapshotList, Wishes, change_remark, list_snapshots,
    release_hold,
};

use crate::room::{while_room_lasts, with_kept_room};

pub use look::{accept, find_lost_endings, look, record_endings};
pub use policy::{Alarm, Circumstances, Judged, Periods, Policy};
pub use series::Series;

/// How rules are applied.
pub struct ForgetOptions<'o> {
    /// The rules.
    pub policy: &'o Policy,
    /// Snapshots of other domains that were first seen less than these nanoseconds ago stay.
    pub quarantine: i64,
    /// The time zone.
    pub periods: &'o dyn Fn(Timestamp) -> Periods,
    /// Whether what was seen of other domains is not recorded.
    pub is_rehearsal: bool,
}

/// What becomes of these snapshots, some series of those in the list.
pub fn judge<'s>(
    repository: &Repository,
    list: &SnapshotList,
    snapshots: &[&'s Snapshot],
    options: &ForgetOptions<'_>,
) -> Result<Vec<Judged<'s>>, RepositoryError> {
    let ForgetOptions { policy, quarantine, periods, is_rehearsal } = *options;
    // What is held, and what does not count, has to be known.
    list.wishes.refuse_withheld().map_err(|folder| folder.error())?;
    if let Some(folder) = list.endings.withheld() {
        return Err(folder.error());
    }
    let arrivals = with_kept_room(repository, || look(repository, list, is_rehearsal))?;
    let now = repository.surroundings.clock.now();
    let circumstances = Circumstances { arrivals: &arrivals, now, quarantine, periods };
    let mut judged = policy.judge(snapshots, &circumstances);
    for Judged { snapshot, kept_by, .. } in &mut judged {
        if list.wishes.hold(snapshot.id).is_some() {
            kept_by.push("held");
        }
    }
    Ok(judged)
}

/// Wishes that snapshots are forgotten. Returns how many were not forgotten already.
///
/// # Errors
///
/// [`RepositoryError::Held`] if one of them is held: then none is forgotten.
/// [`RepositoryError::RoomOfPrune`] if the disk is full, and what is kept of it is left for a prune: then
/// the first of them are forgotten.
pub fn forget(repository: &Repository, snapshots: &[SnapshotId]) -> Result<usize, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    wishes.refuse_withheld().map_err(|folder| folder.error())?;
    refuse_held(&wishes, snapshots)?;
    let mut added = Vec::new();
    let are_forgotten = || Ok(!list_snapshots(repository)?.forgotten.is_empty());
    let (done, no_space) = while_room_lasts(repository, snapshots, are_forgotten, |snapshot| {
        if wishes.add(repository, *snapshot)? {
            added.push(*snapshot);
        }
        Ok(())
    })?;
    settle_wishes(repository, &snapshots[..done], &added)?;
    match no_space {
        Some(error) if done == 0 && !are_forgotten()? => Err(error),
        Some(_) => Err(RepositoryError::RoomOfPrune { forgotten: done, of: snapshots.len() }),
        None => Ok(added.len()),
    }
}

/// How often a wish is overruled by a later one.
const TRIES: u32 = 5;

/// Finds out whether these snapshots, of which some wishes were added just now, are forgotten.
fn settle_wishes(
    repository: &Repository,
    snapshots: &[SnapshotId],
    added: &[SnapshotId],
) -> Result<(), RepositoryError> {
    // Only now: a hold that was made in between either finds these wishes, or is found here.
    let mut wishes = Wishes::read(repository)?;
    let held = refuse_held(&wishes, added);
    if held.is_err() {
        for snapshot in added {
            wishes.undo(repository, *snapshot)?;
        }
    }
    held?;
    // What is planted behind them may take them back: a later wish overrules it.
    for _ in 0..TRIES {
        if snapshots.iter().all(|snapshot| wishes.unreadable(*snapshot).is_none()) {
            break;
        }
        for snapshot in snapshots {
            wishes.add(repository, *snapshot)?;
        }
        wishes = Wishes::read(repository)?;
    }
    for snapshot in snapshots {
        if let Some(name) = wishes.unreadable(*snapshot) {
            return Err(RepositoryError::NotForgotten { snapshot: *snapshot, name });
        }
    }
    Ok(())
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
        // What is to stay has the room that is kept for what is to go.
        if !with_kept_room(repository, || wishes.undo(repository, *snapshot))? {
            late.push(*snapshot);
        }
    }
    Ok(late)
}

/// Holds snapshots, and takes back that they are to be forgotten. Returns those for which it comes
/// too late: a collection has taken them. The reason of a hold that ends before is kept beside this one.
///
/// # Errors
///
/// [`RepositoryError::HeldLonger`] if one of them is held for longer than this.
pub fn hold(
    repository: &Repository,
    snapshots: &[SnapshotId],
    hold: &Hold,
) -> Result<Vec<SnapshotId>, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    let end = |hold: &Hold| hold.until.unwrap_or(Timestamp(i64::MAX));
    let is_longer = |there: &Hold| there.reason != hold.reason && end(there) > end(hold);
    for snapshot in snapshots {
        if let Some(Hold { reason, .. }) = wishes.hold(*snapshot).filter(is_longer) {
            return Err(RepositoryError::HeldLonger { snapshot: *snapshot, reason });
        }
    }
    for snapshot in snapshots {
        with_kept_room(repository, || {
            change_remark(repository, *snapshot, |remark| {
                let reason = reasons(remark.hold.as_ref(), &hold.reason);
                remark.hold = Some(Hold { reason, until: hold.until });
            })
        })?;
    }
    // Only now: see `forget`.
    remember(repository, snapshots)
}

/// The reason of a hold beside that of one before it.
fn reasons(before: Option<&Hold>, reason: &str) -> String {
    match before.map(|before| before.reason.as_str()) {
        Some(before) if before.contains(reason) => before.to_owned(),
        Some(before) if !reason.contains(before) => format!("{before}; {reason}"),
        _ => reason.to_owned(),
    }
}

/// Holds snapshots no longer.
pub fn release(repository: &Repository, snapshots: &[SnapshotId]) -> Result<(), RepositoryError> {
    for snapshot in snapshots {
        with_kept_room(repository, || release_hold(repository, *snapshot))?;
    }
    Ok(())
}
