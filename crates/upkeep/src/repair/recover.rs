//! Committing again snapshots that were removed, or are damaged beyond repair.
//!
//! The trees still exist; what only the snapshot had said is lost: when it was made, whether it was
//! complete, how many files it had. A recovered snapshot has its old name and sequence, the label
//! `recovered`, and counts as incomplete: so it is never `latest`, and nothing is deleted for it. It is
//! held, because rules would drop it as incomplete although nothing later may have what it has.

use std::collections::BTreeSet;
use std::time::Duration;

use strongroom_arena::CacheLimits;
use strongroom_backend::Withheld;
use strongroom_base::{Cancel, Monitor, Silent, Timestamp};
use strongroom_catalog::{Recipe, Snapshot, SnapshotStats};
use strongroom_repository::{
    Arrivals, ChunkReader, Collections, Found, Hold, OwnRecord, Repository, RepositoryError,
    Session, SnapshotEvent, SnapshotWalk, list_snapshots, read_snapshot, read_vouchers,
    snapshot_object,
};

use super::plan::{RepairPlan, RepairStep};
use crate::forget::hold;
use crate::health::census::{Census, find_spoilt, missing_sequences};
use crate::health::ended::{Ended, PATIENCE};
use crate::health::lost::{Known, Lost, LostSnapshot, find_lost, proven_sequence};
use crate::reader::reader_of_everything;

/// The label of a recovered snapshot.
const LABEL: &str = "recovered";

/// Whether a snapshot may have been removed, or is damaged beyond repair: then it is worth asking
/// [`plan_recovery`].
pub fn may_recover(repository: &Repository) -> Result<bool, RepositoryError> {
    let (backend, census) = (repository.backend(), Census::take(repository.backend())?);
    if !repository.keys.can_read() {
        return Ok(!census.unclaimed(backend, &BTreeSet::new(), &|_| false).is_empty());
    }
    let list = list_snapshots(repository)?;
    let spoilt = find_spoilt(repository, &list)?;
    let own = OwnRecord::read(repository, &Silent);
    let ended = Ended::find(repository, &census, &list, &own, PATIENCE)?;
    Ok(!census.unclaimed(backend, &spoilt, &|id| ended.contains(id)).is_empty())
}

/// Adds to a plan the snapshots that were removed or are damaged, and can be made again. Needs a key
/// that reads.
pub fn plan_recovery(
    repository: &Repository,
    plan: &mut RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    let census = Census::take(repository.backend())?;
    let lost = find_removed(repository, &reader, &census, PATIENCE, monitor, cancel)?;
    (plan.lost_snapshots, plan.unrecognised) = (lost.snapshots, lost.unrecognised);
    let spoilt = plan.lost_snapshots.iter().filter(|lost| lost.is_spoilt);
    let spoilt: Vec<_> = spoilt.map(|lost| snapshot_object(lost.id)).collect();
    plan.steps.retain(|step| match step {
        RepairStep::Lost { name, .. } => !spoilt.contains(name),
        _ => true,
    });
    Ok(())
}

/// Snapshots that were removed or are damaged beyond repair, and that no verdict had forgotten. `patience` is
/// that with sessions whose writers may be at work.
pub fn find_removed(
    repository: &Repository,
    reader: &ChunkReader,
    census: &Census,
    patience: Duration,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Lost, RepositoryError> {
    let list = list_snapshots(repository)?;
    let spoilt = find_spoilt(repository, &list)?;
    let own = OwnRecord::read(repository, monitor);
    let ended = Ended::find(repository, census, &list, &own, patience)?;
    let mut unclaimed = census.unclaimed(repository.backend(), &spoilt, &|id| ended.contains(id));
    let collections = Collections::read(repository)?;
    unclaimed.retain(|session| !list.wishes.is_no_loss(&collections, session.id));
    let proven = proven_sequence(repository, reader, &unclaimed)?;
    let missing = &missing_sequences(repository, &list, &own, &collections, proven)?;
    let (snapshots, arrivals) = (&list.readable(), &Arrivals::read(repository)?);
    let wishes = &list.wishes;
    let known = Known { snapshots, own_newest: own.newest, missing, wishes, arrivals };
    find_lost(repository, reader, &unclaimed, &known, cancel)
}

/// What became of a lost snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// It is committed again.
    Yes,
    /// It has to wait: a collection is open, which may remove what it needs.
    Waits,
    /// It has to wait: the place withholds a part of its trees.
    Withheld(Withheld),
}

/// Commits a lost snapshot again, under its name.
pub fn recover(
    repository: &Repository,
    reader: &ChunkReader,
    lost: &LostSnapshot,
    cancel: &Cancel,
) -> Result<Recovered, RepositoryError> {
    let mut snapshot = Snapshot {
        sequence: lost.sequence,
        host: lost.host.clone(),
        paths: lost.paths.clone(),
        labels: vec![LABEL.to_owned()],
        root: lost.root.clone(),
        partial: true,
        root_partial: true,
        program: concat!("strongroom ", env!("CARGO_PKG_VERSION"), " repair").to_owned(),
        ..Snapshot::empty(lost.id)
    };
    match count(reader, &mut snapshot, cancel) {
        Err(error) if error.is_withheld() => {
            return Ok(error.withheld().map_or(Recovered::Waits, Recovered::Withheld));
        }
        other => other?,
    }
    snapshot.ended = repository.surroundings.clock.now();
    // It counts as incomplete, and the rules would drop it for the next one that is whole. Before its session:
    // if this ends in between, the hold says that the session is of a repair, which the next one goes on with.
    let is_held = lost.was_committed && repository.keys.owner.is_some();
    if is_held && !is_at_work(repository)? {
        let reason = "it was lost, and a repair has committed it again".to_owned();
        hold(repository, &[lost.id], &Hold { reason, until: None })?;
    }
    let session = Session::resume(repository, lost.id, lost.sequence, &lost.host)?;
    // Nothing has named its chunks, so the plan may condemn them.
    if session.collections.doubtful().is_some() || session.collections.open.is_some() {
        return Ok(Recovered::Waits);
    }
    let committed = match lost.is_spoilt {
        true => session.commit_again(&snapshot),
        false => session.commit(&snapshot),
    };
    match committed {
        // Another repair was faster. Its object has other bytes, and the same trees.
        Err(RepositoryError::Fenced { .. }) if read_snapshot(repository, lost.id).is_ok() => {}
        other => drop(other?),
    }
    Ok(Recovered::Yes)
}

/// Whether a collection is open, so that nothing can be committed again.
fn is_at_work(repository: &Repository) -> Result<bool, RepositoryError> {
    let collections = Collections::read(repository)?;
    Ok(collections.doubtful().is_some() || collections.open.is_some())
}

/// Counts what a snapshot holds. It was made no earlier than the latest change in it.
fn count(
    reader: &ChunkReader,
    snapshot: &mut Snapshot,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    let mut walk = SnapshotWalk::new(&Found::root(snapshot), reader, cancel);
    let mut stats = SnapshotStats::default();
    let mut latest = Timestamp::default();
    while let Some(event) = walk.next()? {
        let entry = match event {
            SnapshotEvent::Enter(directory) => {
                stats.directories += 1;
                directory.entry
            }
            SnapshotEvent::Leaf { entry, .. } => {
                stats.files += 1;
                stats.bytes += entry.content().map_or(0, Recipe::stream_bytes);
                Some(entry)
            }
            // It is named with what other snapshots have lost.
            SnapshotEvent::Lost { .. } | SnapshotEvent::Leave { .. } => None,
        };
        latest = latest.max(entry.map_or(latest, |entry| entry.metadata.ctime));
    }
    snapshot.stats = stats;
    snapshot.started = latest;
    Ok(())
}
