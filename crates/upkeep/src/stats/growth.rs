//! How the repository grew with its snapshots, and what each machine and folder costs.
//!
//! Both are exact for the snapshots that exist: a chunk counts for the first snapshot, by date, that
//! names it. What forgotten snapshots alone needed is not part of the picture.

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Progress, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Narrowing, Repository, RepositoryError};

use super::marks::{Marks, SnapshotNumber};
use super::{Count, Counter, readable_snapshots, sum};
use crate::reader::reader_of_everything;

/// What the snapshots until a date hold and take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowthPoint {
    /// The last of these snapshots.
    pub id: SnapshotId,
    /// When its backup began.
    pub started: Timestamp,
    /// Bytes of content of all of them, restored.
    pub bytes: u64,
    /// Bytes of their content, each chunk once.
    pub unique_bytes: u64,
    /// Bytes that their chunks, trees included, take in blocks.
    pub stored_bytes: u64,
}

/// Snapshots of one machine and the same paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CostOwner {
    /// The machine.
    pub host: String,
    /// The paths that were to be backed up.
    pub paths: Vec<Vec<u8>>,
}

/// What the snapshots of an owner cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Whose they are.
    pub owner: CostOwner,
    /// How many they are.
    pub snapshots: u64,
    /// Bytes that their chunks take in blocks.
    pub stored_bytes: u64,
    /// Bytes of those that no snapshot of another owner needs.
    pub own_stored_bytes: u64,
}

/// How a repository grew, and what it consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growth {
    /// One for each snapshot, by date.
    pub points: Vec<GrowthPoint>,
    /// One for each owner, the largest first.
    pub costs: Vec<Cost>,
    /// Trees and recipes that cannot be read; what they name is not counted.
    pub unreadable: u64,
}

/// Walks the trees of all snapshots, each about three times. Only those that fit are counted, but
/// what is an owner's alone depends on all.
pub fn growth_stats(
    repository: &Repository,
    narrowing: &Narrowing,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Growth, RepositoryError> {
    let mut snapshots = readable_snapshots(repository, monitor)?;
    snapshots.sort_by_key(|snapshot| (snapshot.started, snapshot.order()));
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    // Each snapshot is counted with its owner, and in the growth.
    let files = sum(snapshots.iter().map(|snapshot| snapshot.stats.files));
    let progress = Progress { files_total: Some(files.saturating_mul(2)), ..Progress::default() };
    let marks = Marks::new(reader.store());
    let mut counter = Counter { reader: &reader, marks, monitor, cancel, progress };
    let mut growth = Growth::default();
    costs(&mut counter, &snapshots, narrowing, &mut growth)?;
    // Each chunk is new once more.
    counter.marks = Marks::new(reader.store());
    snapshots.retain(|snapshot| narrowing.fits(snapshot));
    points(&mut counter, &snapshots, &mut growth)?;
    Ok(growth)
}

fn costs(
    counter: &mut Counter<'_>,
    snapshots: &[Snapshot],
    narrowing: &Narrowing,
    growth: &mut Growth,
) -> Result<(), RepositoryError> {
    let mut groups: Vec<(CostOwner, Vec<&Snapshot>)> = Vec::new();
    for snapshot in snapshots {
        let owner = CostOwner { host: snapshot.host.clone(), paths: snapshot.paths.clone() };
        match groups.iter_mut().find(|(known, _)| *known == owner) {
            Some((_, members)) => members.push(snapshot),
            None => groups.push((owner, vec![snapshot])),
        }
    }
    let members = groups.iter().enumerate().flat_map(|(place, (_, members))| {
        members.iter().map(move |snapshot| (*snapshot, SnapshotNumber::at(place)))
    });
    counter.claim_all(members)?;
    for (place, (owner, mut members)) in groups.into_iter().enumerate() {
        members.retain(|snapshot| narrowing.fits(snapshot));
        if members.is_empty() {
            continue;
        }
        let mut count =
            Count::of(members[0].id, SnapshotNumber::at(place), counter.reader.limits());
        for snapshot in &members {
            counter.count(snapshot, &mut count)?;
        }
        growth.unreadable += count.stat.unreadable;
        growth.costs.push(Cost {
            owner,
            snapshots: members.len() as u64,
            stored_bytes: count.stat.stored_bytes,
            own_stored_bytes: count.stat.own_stored_bytes,
        });
    }
    growth.costs.sort_by_key(|cost| std::cmp::Reverse(cost.stored_bytes));
    Ok(())
}

fn points(
    counter: &mut Counter<'_>,
    snapshots: &[Snapshot],
    growth: &mut Growth,
) -> Result<(), RepositoryError> {
    let Some(first) = snapshots.first() else { return Ok(()) };
    let mut count = Count::of(first.id, SnapshotNumber::at(0), counter.reader.limits());
    let mut bytes = 0_u64;
    for snapshot in snapshots {
        counter.count(snapshot, &mut count)?;
        bytes = bytes.saturating_add(count.stat.bytes);
        growth.points.push(GrowthPoint {
            id: snapshot.id,
            started: snapshot.started,
            bytes,
            unique_bytes: count.stat.unique_bytes,
            stored_bytes: count.stat.stored_bytes,
        });
    }
    Ok(())
}
