//! Removing from a replica what collections removed from the repository.
//!
//! An object that the repository lacks may be lost, so its absence is no reason to remove anything.
//! What is: a verdict of the owner, which takes a key to read, and whose collection has ended. The
//! replica has that verdict, or gets it first, so everything that it lacks is accounted for there too.
//! What a collection removes that has not ended stays, arenas and their generations included, until the
//! next mirror after its end.
//! A replica that has something of its own is left alone, because no collection has asked what that
//! needs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use strongroom_arena::{
    ARENAS_FOLDER, ArenaName, ArenaStore, CacheLimits, ListedArena, ListedArenas,
};
use strongroom_backend::{Backend, ObjectInfo, ObjectName, Removal, remove_object};
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity, SnapshotId};
use strongroom_repository::objects::{
    COLLECTIONS_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER,
};
use strongroom_repository::{
    Collections, OpenCollection, Repository, RepositoryError, SlotSets, Wishes, snapshot_object,
};

use super::plan::{ended, forks, list, refuse_another};
use super::send::{Sent, Way};
use crate::flight::{Flight, each_in_flight};
use crate::reckoning::{Condemned, if_all_was_read, reckon};

/// What is going to be removed from a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirrorPlan {
    /// Verdicts and ends of collections that are copied first.
    pub collections: Vec<ObjectInfo>,
    /// What goes: snapshots, then what is said of them, then arenas.
    pub remove: Vec<ObjectInfo>,
    /// The generations in favour of which others go, if they are the repository's to the last byte.
    pub in_favour: Vec<ObjectInfo>,
    /// The collection of the repository that is being carried out, if there is one: what it removes stays.
    pub open: Option<u64>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorOutcome {
    /// Objects that were removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
}

/// Looks what a replica still has that collections removed. The replica must be up to date.
pub fn plan_mirror(
    repository: &Repository,
    target: &Arc<dyn Backend>,
) -> Result<MirrorPlan, RepositoryError> {
    plan(repository, target, Copied::Already)
}

/// The same before the replica is brought up to date: what would be removed once it is.
pub fn preview_mirror(
    repository: &Repository,
    target: &Arc<dyn Backend>,
) -> Result<MirrorPlan, RepositoryError> {
    plan(repository, target, Copied::NotYet)
}

/// Whether the replica has all that the repository has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    Already,
    NotYet,
}

fn plan(
    repository: &Repository,
    target: &Arc<dyn Backend>,
    copied: Copied,
) -> Result<MirrorPlan, RepositoryError> {
    let source = repository.backend();
    refuse_another(source, &**target)?;
    let collections = Collections::read(repository)?;
    refuse_own(source, &**target, &collections)?;
    let open = collections.open.as_ref().filter(|open| open.decided).map(|open| open.number);
    let collections_ended = ended(source)?;
    let mut plan = MirrorPlan { collections: collections_ended, open, ..MirrorPlan::default() };
    let there: HashMap<ObjectName, u64> = names(&**target, COLLECTIONS_FOLDER)?;
    plan.collections
        .retain(|info| !there.contains_key(&info.name) && collections.has_ended(&info.name));
    // What the owner keeps after all stays: it came back from another copy.
    let wishes = Wishes::read(repository)?;
    let goes = |id| collections.has_taken(id) && wishes.let_go(&collections, id);
    for folder in [SNAPSHOTS_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER] {
        let objects = list(&**target, folder)?.into_iter();
        plan.remove.extend(objects.filter(|info| {
            let id = info.name.file().split('.').next().unwrap_or_default();
            id.parse::<SnapshotId>().is_ok_and(goes)
        }));
    }
    refuse_held(repository, target, &plan)?;
    old_arenas(repository, target, &collections, copied, &mut plan)?;
    Ok(plan)
}

/// Carries it out, once it was reckoned that what stays in the replica needs nothing that goes.
pub fn mirror(
    repository: &Repository,
    place: &Arc<dyn Backend>,
    plan: &MirrorPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<MirrorOutcome, RepositoryError> {
    let (source, target) = (repository.backend(), &**place);
    let flight = Flight::between(source, target, &repository.limits);
    let way = Way { source, target, arena_bytes: repository.config.arena_bytes };
    let mut failed = None;
    let send = |info: &ObjectInfo| way.send(info);
    each_in_flight(&plan.collections, flight, cancel, &send, &mut |info, sent| {
        failed = failed.take().or(match sent {
            Sent::Yes { .. } | Sent::Present | Sent::Vanished => None,
            Sent::Conflict => Some(format!("it has another {}", info.name)),
            Sent::Lost(why) | Sent::Withheld(_, why) => Some(format!("{}: {why}", info.name)),
        });
    })?;
    if let Some(what) = failed.take() {
        return Err(RepositoryError::NotMirrored { place: target.describe(), what });
    }
    // Everyone who may read the front of a generation, and create objects in the replica, can plant one there
    // that begins in the same way.
    let compare = |info: &ObjectInfo| way.compare(info);
    each_in_flight(&plan.in_favour, flight, cancel, &compare, &mut |info, sent| {
        monitor.working_on(info.name.as_str().as_ref());
        failed = failed.take().or(match sent {
            Sent::Present | Sent::Yes { .. } => None,
            Sent::Conflict => Some(format!("it has another {}", info.name)),
            Sent::Vanished => Some(format!("{} was removed meanwhile", info.name)),
            Sent::Lost(why) | Sent::Withheld(_, why) => Some(format!("{}: {why}", info.name)),
        });
    })?;
    if let Some(what) = failed {
        return Err(RepositoryError::NotMirrored { place: target.describe(), what });
    }
    let remove = reckoned(repository, place, plan.remove.clone(), monitor, cancel)?;
    let mut outcome = MirrorOutcome::default();
    let mut progress = Progress { files_total: Some(remove.len() as u64), ..Progress::default() };
    // Snapshots go before what they need.
    let is_arena = |info: &ObjectInfo| info.name.folder() == ARENAS_FOLDER;
    let (arenas, others): (Vec<_>, Vec<_>) = remove.into_iter().partition(is_arena);
    let remove = |info: &ObjectInfo| -> Result<bool, RepositoryError> {
        Ok(remove_object(target, &info.name)? == Removal::Removed)
    };
    for objects in [others, arenas] {
        each_in_flight(&objects, flight, cancel, &remove, &mut |info, was_there| {
            outcome.removed += u64::from(was_there);
            outcome.removed_bytes += if was_there { info.bytes } else { 0 };
            progress.files += 1;
            monitor.progress(&progress);
        })?;
    }
    Ok(outcome)
}

/// What of this may go, because the snapshots that stay in a replica need nothing of it. An arena stays if
/// of what a snapshot needs of it all else is in generations that others of their arenas lack: which of two
/// histories counts is not for a mirror to say.
fn reckoned(
    repository: &Repository,
    place: &Arc<dyn Backend>,
    mut remove: Vec<ObjectInfo>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Vec<ObjectInfo>, RepositoryError> {
    let replica = repository.copy_in(place.clone());
    while !remove.is_empty() {
        let error = match reckon_in(&replica, &remove, monitor, cancel) {
            Ok(()) => break,
            Err(error) => error,
        };
        let RepositoryError::Miscounted { snapshot, place: at, doubtful, unread, .. } = error
        else {
            return Err(error);
        };
        let (needed_by, arena) = (snapshot.short(), at.arena);
        let goes =
            |info: &ObjectInfo| ArenaName::of(&info.name).is_some_and(|name| name.id == arena);
        let collections = Collections::read(repository)?;
        if remove.iter().any(goes) && is_going(repository, &collections, snapshot)? {
            remove.retain(|info| !goes(info));
            let message = format!(
                "arena {arena} stays there until the open collection has ended, as snapshot {needed_by} does, \
                 which needs it: the next prune ends it"
            );
            monitor.problem(Problem { severity: Severity::Note, path: None, message: &message });
            continue;
        }
        let Some(other) = doubtful.filter(|_| remove.iter().any(goes)) else {
            if unread.is_some() {
                return Err(if_all_was_read(error));
            }
            // No verdict took what goes, or one took the snapshot too, and the owner keeps it after all, or a
            // backup into the replica needed it since, and brought it back.
            let what = format!(
                "the repository lacks what snapshot {needed_by} needs of arena {arena}; \
                 `strongroom repair --from` this replica brings it back",
            );
            return Err(RepositoryError::NotMirrored { place: place.describe(), what });
        };
        remove.retain(|info| !goes(info));
        let message = format!(
            "arena {arena} stays there, because what snapshot {needed_by} needs of it is else only in \
             one generation of arena {other}, and another lacks it"
        );
        monitor.problem(Problem { severity: Severity::Note, path: None, message: &message });
    }
    Ok(remove)
}

/// Whether a snapshot is gone from the repository by a verdict that is still being carried out: it stays in a
/// replica until that has ended.
fn is_going(
    repository: &Repository,
    collections: &Collections,
    snapshot: SnapshotId,
) -> Result<bool, RepositoryError> {
    let open = collections.open.as_ref().filter(|open| open.decided);
    let is_taken = |open: &OpenCollection| {
        open.selection.snapshots.iter().any(|forgotten| forgotten.id == snapshot)
    };
    if !open.is_some_and(is_taken) {
        return Ok(false);
    }
    match repository.backend().size(&snapshot_object(snapshot)) {
        Err(error) if error.is_not_found() => Ok(true),
        other => Ok(other.map(|_| false)?),
    }
}

/// Reckons that the snapshots that stay in a replica need nothing of what goes.
fn reckon_in(
    replica: &Repository,
    remove: &[ObjectInfo],
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    let arenas: HashSet<ArenaName> =
        remove.iter().filter_map(|info| ArenaName::of(&info.name)).collect();
    let snapshots = remove.iter().filter(|info| info.name.folder() == SNAPSHOTS_FOLDER);
    let condemned = Condemned {
        snapshots: snapshots.filter_map(|info| info.name.file().parse().ok()).collect(),
        slots: &SlotSets::default(),
        objects: &|name| arenas.contains(&name),
    };
    reckon(replica, &condemned, monitor, cancel)?.map_or(Ok(()), |unread| Err(unread.into()))
}

fn names(backend: &dyn Backend, folder: &str) -> Result<HashMap<ObjectName, u64>, RepositoryError> {
    Ok(list(backend, folder)?.into_iter().map(|info| (info.name, info.bytes)).collect())
}

/// Fails if the replica has what no copy can have brought there.
fn refuse_own(
    source: &dyn Backend,
    target: &dyn Backend,
    collections: &Collections,
) -> Result<(), RepositoryError> {
    let not_mirrored =
        |what: String| Err(RepositoryError::NotMirrored { place: target.describe(), what });
    if let Some(session) = list(target, SESSIONS_FOLDER)?.first() {
        return not_mirrored(format!("a backup stores into it ({})", session.name));
    }
    let known = names(source, COLLECTIONS_FOLDER)?;
    let own = list(target, COLLECTIONS_FOLDER)?;
    if let Some(own) = own.iter().find(|info| !known.contains_key(&info.name)) {
        return not_mirrored(format!("the repository does not have its {}", own.name));
    }
    if let Some(fork) = forks(source, target)?.first() {
        return not_mirrored(format!(
            "its {fork} is another: both were used apart. Once all that is in it was brought here by \
             `strongroom replicate`, a new replica, in an empty place, can take its place"
        ));
    }
    let known = names(source, SNAPSHOTS_FOLDER)?;
    let own = list(target, SNAPSHOTS_FOLDER)?.into_iter().filter(|info| {
        let is_gone = |id: SnapshotId| collections.took(id);
        !known.contains_key(&info.name) && !info.name.file().parse().is_ok_and(is_gone)
    });
    match own.count() {
        0 => Ok(()),
        1 => not_mirrored("1 snapshot in it is lost in the repository, or its own".to_owned()),
        count => {
            not_mirrored(format!("{count} snapshots in it are lost in the repository, or its own"))
        }
    }
}

/// Fails if the replica holds a snapshot that would go: no collection has asked for that hold.
fn refuse_held(
    repository: &Repository,
    target: &Arc<dyn Backend>,
    plan: &MirrorPlan,
) -> Result<(), RepositoryError> {
    let ids = plan.remove.iter().filter(|info| info.name.folder() == SNAPSHOTS_FOLDER);
    let ids: Vec<SnapshotId> = ids.filter_map(|info| info.name.file().parse().ok()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let wishes = Wishes::read(&repository.copy_in(target.clone()))?;
    match ids.into_iter().find(|id| wishes.hold(*id).is_some()) {
        None => Ok(()),
        Some(id) => Err(RepositoryError::NotMirrored {
            place: target.describe(),
            what: format!(
                "snapshot {} is held in it, and removed in the repository: if it may go, release it \
                 there with `strongroom hold --release`",
                id.short()
            ),
        }),
    }
}

/// Arenas that a verdict removed, and generations of others of which the replica has a later one: all of
/// collections that have ended.
fn old_arenas(
    repository: &Repository,
    target: &Arc<dyn Backend>,
    collections: &Collections,
    copied: Copied,
    plan: &mut MirrorPlan,
) -> Result<(), RepositoryError> {
    let here = ListedArenas::list(repository.backend())?;
    let there = ListedArenas::list(&**target)?;
    let limits = CacheLimits::default();
    let arena_bytes = repository.config.arena_bytes;
    let store = ArenaStore::new(target.clone(), &repository.keys, arena_bytes, limits);
    let go = |listed: &ListedArena| ObjectInfo {
        name: listed.name.object(),
        bytes: listed.object_bytes,
    };
    for newest in there.newest() {
        let id = newest.name.id;
        let generations = there.generations(id);
        let known = here.generations(id);
        if collections.is_at_work_on(id) {
            continue;
        }
        if collections.is_dead(id) {
            // What a verdict put off, or a snapshot of another copy needs, is still here.
            let is_gone = known.is_empty();
            plan.remove.extend(generations.iter().filter(|_| is_gone).map(go));
            continue;
        }
        let Some(current) = known.last() else { continue };
        let is_there = generations.iter().any(|listed| listed.name == current.name);
        if generations.len() < 2 && (is_there || copied == Copied::Already) {
            continue;
        }
        // Only the owner or the writer can have made the one that stays.
        let sorted = store.sort_generations(generations)?;
        let is_to_come = copied == Copied::NotYet && !is_there;
        if sorted.is_contested || (!is_to_come && sorted.genuine.last() != Some(current)) {
            continue;
        }
        let is_old = |listed: &&ListedArena| {
            listed.name < current.name && !known.iter().any(|kept| kept.name == listed.name)
        };
        let before = plan.remove.len();
        plan.remove.extend(generations.iter().filter(is_old).map(go));
        if plan.remove.len() > before {
            plan.in_favour.push(go(current));
        }
    }
    Ok(())
}
