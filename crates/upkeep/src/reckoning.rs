//! The second reckoning: whether every snapshot that stays will still have all that it needs, once
//! what is about to be removed is gone.
//!
//! Nothing of a repository is removed before. The collector ([`crate::prune`]) decides by marking
//! what snapshots need; a mistake in that would destroy data. So this asks the opposite question,
//! and shares no code with it: not the walk through snapshots, not the memory of trees that it met,
//! not the inventory. It reads the snapshots again, descends to their last reference, and compares
//! each with a map of what remains ([`Remains`]).
//!
//! A difference is a fault of this program ([`RepositoryError::Miscounted`]): then nothing is
//! removed. What was lost before is no difference: `verify` reports it.

mod descent;
mod remains;
mod same;

use std::collections::{BTreeSet, HashMap, HashSet};

use strongroom_arena::{ArenaName, CacheLimits};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    ChunkReader, Repository, RepositoryError, SlotSets, Wishes, list_snapshots, read_vouchers,
};

use descent::Descent;
use remains::Remains;

use crate::reader::reader_of_everything;
pub use same::reckon_same;

/// What is about to be removed.
pub struct Condemned<'c> {
    /// Snapshots.
    pub snapshots: HashSet<SnapshotId>,
    /// Slots: an arena with some of them is rewritten, an arena with all of them goes.
    pub slots: &'c SlotSets,
    /// Other objects of arenas that go, with nothing in their place.
    pub objects: &'c dyn Fn(ArenaName) -> bool,
}

/// A chunk that a snapshot needs and that is not where the reference to it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Absent {
    /// Where it should be.
    place: Location,
    /// The first snapshot that needs it.
    snapshot: SnapshotId,
}

/// Checks that what is condemned is needed by no snapshot that stays.
///
/// # Errors
///
/// [`RepositoryError::Miscounted`] if something of it is needed: then nothing may be removed.
/// [`RepositoryError::NotCollectable`] if that cannot be said, because something cannot be read.
pub fn reckon(
    repository: &Repository,
    condemned: &Condemned<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    monitor.detail("what stays is read once more, as if the rest were gone");
    let kept = kept_snapshots(repository, condemned)?;
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    // After the snapshots: what they need was stored before them.
    let remains = Remains::read(repository, &reader, condemned, monitor, cancel)?;
    // What is to be forgotten, and is not yet, may lack something, but loses nothing that is there.
    let wishes = Wishes::read(repository)?;
    let (later, kept): (Vec<Snapshot>, Vec<Snapshot>) =
        kept.into_iter().partition(|snapshot| wishes.forget(snapshot.id));
    let mut descent = Descent::new(&reader, &remains, monitor, cancel);
    for snapshot in &kept {
        descent.snapshot(snapshot)?;
    }
    let absent = descent.into_absent();
    let left = judge(absent, repository, &reader, &remains, condemned, cancel)?;
    // They were lost before. An arena that cannot be read may have them, and needs its bases.
    if let Some((arena, why)) = remains.unreadable().min().filter(|_| left == Left::Incomplete) {
        let (what, why) = (format!("arena {arena}"), why.to_owned());
        return Err(RepositoryError::NotCollectable { what, why });
    }
    let mut descent = Descent::new(&reader, &remains, monitor, cancel).lenient();
    for snapshot in &later {
        descent.snapshot(snapshot)?;
    }
    judge(descent.into_absent(), repository, &reader, &remains, condemned, cancel).map(drop)
}

/// What snapshots have once the condemned is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// All that they need.
    Whole,
    /// As much as before, which was not all.
    Incomplete,
}

/// The arenas that lack something which a snapshot needs, as far as can be read: when they are there
/// again, there may be others.
pub fn arenas_in_need(
    repository: &Repository,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BTreeSet<ArenaId>, RepositoryError> {
    let snapshots = list_snapshots(repository)?.readable();
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    let nothing = SlotSets::default();
    let condemned = Condemned { snapshots: HashSet::new(), slots: &nothing, objects: &|_| false };
    let remains = Remains::read(repository, &reader, &condemned, monitor, cancel)?;
    let mut descent = Descent::new(&reader, &remains, monitor, cancel).lenient();
    for snapshot in &snapshots {
        descent.snapshot(snapshot)?;
    }
    let mut absent = descent.into_absent();
    if absent.is_empty() {
        return Ok(BTreeSet::new());
    }
    remains::each_slot(repository, &reader, cancel, |name, slot, entry| {
        let place = Location { arena: name.id, slot };
        let fingerprint = reader.naming().name_in(place, entry.fingerprint);
        if remains.holds(place) && absent.get(&fingerprint).is_some_and(|at| at.place != place) {
            absent.remove(&fingerprint);
        }
    })?;
    let of_chunks = absent.values().map(|absent| absent.place.arena);
    Ok(of_chunks.chain(remains.lacking().iter().copied()).collect())
}

/// The snapshots that stay, the newest first.
fn kept_snapshots(
    repository: &Repository,
    condemned: &Condemned<'_>,
) -> Result<Vec<Snapshot>, RepositoryError> {
    let list = list_snapshots(repository)?;
    let stays = |id: &SnapshotId| !condemned.snapshots.contains(id);
    let unread = list.unreadable.iter().chain(&list.newer).find(|(id, _)| stays(id));
    if let Some((id, error)) = unread {
        return Err(RepositoryError::not_collectable(format!("snapshot {}", id.short()), error));
    }
    let mut kept = list.readable();
    kept.retain(|snapshot| stays(&snapshot.id));
    if let Some(newer) = kept.iter().find(|snapshot| !snapshot.features.is_empty()) {
        let what = format!("snapshot {}", newer.id.short());
        let why = "it has a feature that only a newer program knows".to_owned();
        return Err(RepositoryError::NotCollectable { what, why });
    }
    // Most of what the others need is known after the newest.
    kept.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence));
    Ok(kept)
}

/// Chunks that are not where a reference says may have been stored again elsewhere. Those of which
/// all copies are condemned are what this is for.
fn judge(
    mut absent: HashMap<Fingerprint, Absent>,
    repository: &Repository,
    reader: &ChunkReader,
    remains: &Remains,
    condemned: &Condemned<'_>,
    cancel: &Cancel,
) -> Result<Left, RepositoryError> {
    if absent.is_empty() {
        return Ok(Left::Whole);
    }
    let mut going: HashMap<Fingerprint, Location> = HashMap::new();
    remains::each_slot(repository, reader, cancel, |name, slot, entry| {
        let place = Location { arena: name.id, slot };
        let fingerprint = reader.naming().name_in(place, entry.fingerprint);
        if !absent.contains_key(&fingerprint) {
            return;
        }
        if remains.holds(place) {
            absent.remove(&fingerprint);
            going.remove(&fingerprint);
            return;
        }
        let goes = condemned.slots.contains(place) || (condemned.objects)(name);
        if goes || remains.is_crippled(place) {
            going.insert(fingerprint, place);
        }
    })?;
    let needed = |(fingerprint, place): (&Fingerprint, &Location)| {
        absent.get(fingerprint).map(|absent| (*place, absent.snapshot))
    };
    let lost: Vec<(Location, SnapshotId)> = going.iter().filter_map(needed).collect();
    if let Some((place, snapshot)) = lost.iter().min_by_key(|(place, _)| *place) {
        let (place, snapshot, chunks) = (*place, *snapshot, lost.len() as u64);
        return Err(RepositoryError::Miscounted { snapshot, chunks, place });
    }
    Ok(if absent.is_empty() { Left::Whole } else { Left::Incomplete })
}
