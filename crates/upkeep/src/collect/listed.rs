//! Which of the listed snapshots a collection removes, and which stay.

use std::collections::{BTreeSet, HashSet};

use strongroom_base::SnapshotId;
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_catalog::Snapshot;
use strongroom_repository::objects::SNAPSHOTS_FOLDER;
use strongroom_repository::{
    Collections, Forgotten, Repository, RepositoryError, SnapshotList, read_snapshot,
    snapshot_object,
};

use super::inventory::Inventory;

/// Fails if there is no snapshot at all, and arenas were written by sessions that knew later ones than
/// any that a verdict removed: then the folder was emptied, or is not where it was.
pub fn refuse_emptied(
    list: &SnapshotList,
    inventory: &Inventory,
    collections: &Collections,
) -> Result<(), RepositoryError> {
    let are_some = list.all().next().is_some();
    if are_some || !list.unreadable.is_empty() || !list.newer.is_empty() {
        return Ok(());
    }
    let removed = collections.taken().map(|gone| gone.sequence).max().unwrap_or(0);
    let known = inventory.arenas().iter().filter(|holding| !holding.is_frozen);
    match known.map(|holding| holding.origin.sequence).max() {
        Some(written) if written > removed.saturating_add(1) => {
            let why = "it is empty, although there are arenas of several backups".to_owned();
            Err(RepositoryError::NotCollectable { what: format!("{SNAPSHOTS_FOLDER}/"), why })
        }
        _ => Ok(()),
    }
}

/// Fails if a snapshot exists that is not known, although its session wrote arenas: the place does not list
/// it, or `replicate` or `repair` brought it meanwhile. One may be there since: of a writer that knows the
/// plan of this collection, or the fence of another collector, before a session that had ended by itself.
pub fn refuse_unlisted(
    repository: &Repository,
    known: &HashSet<SnapshotId>,
    inventory: &Inventory,
    collections: &Collections,
    number: u64,
) -> Result<(), RepositoryError> {
    let sessions = inventory.arenas().iter().map(|holding| holding.origin.session);
    let unknown: BTreeSet<SnapshotId> =
        sessions.filter(|id| !known.contains(id) && !collections.took(*id)).collect();
    for id in unknown {
        match repository.backend().size(&snapshot_object(id)) {
            Ok(_) => {}
            Err(error) if error.is_not_found() || error.is_no_file() => continue,
            Err(error) => return Err(error.into()),
        }
        match read_snapshot(repository, id) {
            Ok(snapshot) if snapshot.seen >= number => {}
            Err(RepositoryError::Fenced { .. }) => {}
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            Err(error) if !error.is_damage() => return Err(error),
            _ => {
                let what = format!("snapshot {}", id.short());
                let why = "it came after the listing, or its place does not list it; prune again";
                return Err(RepositoryError::NotCollectable { what, why: why.to_owned() });
            }
        }
    }
    Ok(())
}

/// Those of the listed snapshots that do not go.
///
/// # Errors
///
/// [`RepositoryError::NotCollectable`] if one of them cannot be read.
pub fn staying<'l>(
    list: &'l SnapshotList,
    goes: &dyn Fn(SnapshotId) -> bool,
) -> Result<Vec<&'l Snapshot>, RepositoryError> {
    if let Some(id) = list.not_collectable().into_iter().find(|id| !goes(*id)) {
        let what = format!("snapshot {}", id.short());
        let unread = list.unreadable.iter().chain(&list.newer).find(|(of, _)| *of == id);
        if let Some((_, error)) = unread {
            return Err(RepositoryError::not_collectable(what, error));
        }
        let why = "it has a feature that only a newer program knows".to_owned();
        return Err(RepositoryError::NotCollectable { what, why });
    }
    Ok(list.all().filter(|snapshot| !goes(snapshot.id)).collect())
}

/// The listed snapshots that go, and the removed ones, as many as have room in this many bytes; and
/// whether all have.
pub fn going(
    list: &SnapshotList,
    removed: impl Iterator<Item = Forgotten>,
    goes: &dyn Fn(SnapshotId) -> bool,
    bytes_max: usize,
) -> (Vec<Forgotten>, bool) {
    let known = list.all().map(|Snapshot { id, domain, sequence, .. }| Forgotten {
        id: *id,
        domain: domain.clone(),
        sequence: *sequence,
    });
    let unread = list.unreadable.iter().chain(&list.newer);
    let unread = unread.map(|(id, _)| Forgotten { id: *id, domain: String::new(), sequence: 0 });
    let (mut bytes, mut have_room) = (0, true);
    let fits = |going: &Forgotten| {
        bytes += going.packed_bytes_max();
        have_room = bytes <= bytes_max;
        reached_if(!have_room, Regime::PlanCutOfSnapshots);
        have_room
    };
    // The others are left for the next collection.
    let going = known.chain(unread).filter(|going| goes(going.id)).chain(removed);
    (going.take_while(fits).collect(), have_room)
}
