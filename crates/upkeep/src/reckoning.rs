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
    ChunkReader, Repository, RepositoryError, SlotSets, list_snapshots, read_vouchers,
};

use descent::Descent;
use remains::Remains;

use crate::health::census::{Census, find_spoilt};
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

impl Condemned<'_> {
    /// Whether this place goes, of this object of its arena.
    fn takes(&self, object: ArenaName, place: Location) -> bool {
        self.slots.contains(place) || (self.objects)(object)
    }
}

/// A chunk that a snapshot needs and that is not where the reference to it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Absent {
    /// Where it should be.
    place: Location,
    /// The first snapshot that needs it.
    snapshot: SnapshotId,
    /// One generation of the arena says that it is there, and another does not.
    is_doubtful: bool,
}

/// A snapshot of which it cannot be said whether it needs what is condemned, because something of it cannot
/// be read. It is to be forgotten, though not yet; or its object is rubbish, and a repair may commit it
/// again.
#[derive(Debug)]
pub struct Unread {
    /// Its name.
    pub snapshot: SnapshotId,
    /// Why.
    pub why: String,
}

impl From<Unread> for RepositoryError {
    fn from(Unread { snapshot, why }: Unread) -> Self {
        Self::NotCollectable { what: format!("snapshot {}", snapshot.short()), why }
    }
}

/// Checks that what is condemned is needed by no snapshot that stays, also of those that are to be
/// forgotten later. Returns one of these if it cannot be said of it: then nothing may be removed either.
///
/// # Errors
///
/// [`RepositoryError::Miscounted`] if something of it is needed: then nothing may be removed.
/// [`RepositoryError::NotCollectable`] if that cannot be said of another snapshot, because something
/// cannot be read.
pub fn reckon(
    repository: &Repository,
    condemned: &Condemned<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Option<Unread>, RepositoryError> {
    monitor.detail("what stays is read once more, as if the rest were gone");
    let Staying { kept, later, unread } = staying(repository, condemned)?;
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    // After the snapshots: what they need was stored before them.
    let remains = Remains::read(repository, &reader, condemned, monitor, cancel)?;
    let mut descent = Descent::new(&reader, &remains, monitor, cancel);
    let judge = |absent| judge(absent, repository, &reader, &remains, condemned, cancel);
    kept.iter().try_for_each(|snapshot| descent.snapshot(snapshot))?;
    judge(descent.take_absent())?;
    if unread.is_some() {
        return Ok(unread);
    }
    for snapshot in &later {
        match descent.snapshot(snapshot) {
            Err(RepositoryError::NotCollectable { why, .. }) => {
                return Ok(Some(Unread { snapshot: snapshot.id, why }));
            }
            other => other?,
        }
    }
    let absent = descent.take_absent();
    let first = absent.values().map(|absent| absent.snapshot).min();
    match (judge(absent), first) {
        (Err(RepositoryError::NotCollectable { why, .. }), Some(snapshot)) => {
            Ok(Some(Unread { snapshot, why }))
        }
        (judged, _) => judged.map(|()| None),
    }
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
    let mut absent = descent.take_absent();
    absent.retain(|_, absent| !absent.is_doubtful);
    if absent.is_empty() {
        return Ok(BTreeSet::new());
    }
    remains::each_slot(repository, &reader, cancel, |part, slot, entry| {
        let place = Location { arena: part.name.id, slot };
        let fingerprint = reader.naming().name_in(place, entry.fingerprint);
        if remains.holds(place) {
            absent.remove(&fingerprint);
        }
    })?;
    let of_chunks = absent.values().map(|absent| absent.place.arena);
    Ok(of_chunks.chain(remains.lacking().iter().copied()).collect())
}

/// The snapshots that stay, the newest first.
struct Staying {
    kept: Vec<Snapshot>,
    /// Those that are to be forgotten.
    later: Vec<Snapshot>,
    /// One of those, if one is not read.
    unread: Option<Unread>,
}

fn staying(repository: &Repository, condemned: &Condemned<'_>) -> Result<Staying, RepositoryError> {
    let list = list_snapshots(repository)?;
    let stays = |id: SnapshotId| !condemned.snapshots.contains(&id);
    let mut spoilt = find_spoilt(repository, &list)?;
    spoilt.retain(|id| stays(*id));
    let rubbish = find_rubbish(repository, &mut spoilt)?;
    let mut unread = None;
    let mut pass = |snapshot: SnapshotId, why: String| {
        let passed = Unread { snapshot, why };
        match list.wishes.forget(snapshot) || spoilt.contains(&snapshot) {
            true => unread = unread.take().or(Some(passed)),
            false => return Err(RepositoryError::from(passed)),
        }
        Ok(())
    };
    let counts = |id| stays(id) && !rubbish.contains(&id);
    for (id, error) in list.unreadable.iter().chain(&list.newer).filter(|(id, _)| counts(*id)) {
        if error.is_withheld() {
            return Err(RepositoryError::not_collectable(
                format!("snapshot {}", id.short()),
                error,
            ));
        }
        pass(*id, error.to_string())?;
    }
    let mut snapshots = list.readable();
    snapshots.retain(|snapshot| stays(snapshot.id));
    for newer in snapshots.iter().filter(|snapshot| !snapshot.features.is_empty()) {
        pass(newer.id, "it has a feature that only a newer program knows".to_owned())?;
    }
    // Most of what the others need is known after the newest.
    snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence));
    let (later, kept) = snapshots.into_iter().partition(|snapshot| list.wishes.forget(snapshot.id));
    Ok(Staying { kept, later, unread })
}

/// Takes away those of which no session has stored a tree, and returns them: anyone who may store can put rubbish
/// under any name, and no repair could commit such a snapshot again.
fn find_rubbish(
    repository: &Repository,
    spoilt: &mut BTreeSet<SnapshotId>,
) -> Result<BTreeSet<SnapshotId>, RepositoryError> {
    if spoilt.is_empty() {
        return Ok(BTreeSet::new());
    }
    let census = Census::take(repository.backend())?;
    Ok(spoilt.extract_if(.., |id| !census.may_have_trees(*id)).collect())
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
) -> Result<(), RepositoryError> {
    if absent.is_empty() {
        return Ok(());
    }
    let mut going: HashMap<Fingerprint, Location> = HashMap::new();
    let mut doubtful: HashMap<Fingerprint, ArenaId> = HashMap::new();
    let unread = remains::each_slot(repository, reader, cancel, |part, slot, entry| {
        let place = Location { arena: part.name.id, slot };
        let fingerprint = reader.naming().name_in(place, entry.fingerprint);
        if !absent.contains_key(&fingerprint) {
            return;
        }
        if remains.holds(place) {
            if remains.is_in_all(place) {
                absent.remove(&fingerprint);
                going.remove(&fingerprint);
            } else {
                doubtful.insert(fingerprint, part.name.id);
            }
            return;
        }
        if condemned.takes(part.name, place) || remains.is_crippled(place) {
            going.insert(fingerprint, place);
        }
    })?;
    going.retain(|fingerprint, _| absent.contains_key(fingerprint));
    let is_lost = absent.values().any(|absent| !absent.is_doubtful);
    // An arena that cannot be read may have them, or further copies, and needs its bases.
    let unreadable = remains.unreadable().min();
    let is_new = |arena: &ArenaId| !remains.unreadable().any(|(known, _)| known == *arena);
    let lately = unread.iter().find(|(arena, _)| is_new(arena));
    let lately = lately.map(|(arena, why)| (*arena, why.as_str()));
    let in_the_way =
        if going.is_empty() { lately.or(unreadable).filter(|_| is_lost) } else { lately };
    if let Some((arena, why)) = in_the_way {
        let (what, why) = (format!("arena {arena}"), why.to_owned());
        return Err(RepositoryError::NotCollectable { what, why });
    }
    // All others were lost before.
    match going.iter().min_by_key(|(_, place)| **place) {
        None => Ok(()),
        Some((fingerprint, place)) => Err(RepositoryError::Miscounted {
            snapshot: absent[fingerprint].snapshot,
            chunks: going.len() as u64,
            place: *place,
            doubtful: doubtful.get(fingerprint).copied(),
            unread: unreadable.map(|(arena, _)| arena),
        }),
    }
}

/// The error of a reckoning, unless something cannot be read: what is needed may be there, too, and then
/// nothing was miscounted.
pub fn if_all_was_read(error: RepositoryError) -> RepositoryError {
    match error {
        RepositoryError::Miscounted { snapshot, unread: Some(arena), .. } => {
            let what = format!("arena {arena}");
            let why = format!("it may hold what snapshot {} needs", snapshot.short());
            RepositoryError::NotCollectable { what, why }
        }
        other => other,
    }
}
