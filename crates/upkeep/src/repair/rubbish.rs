//! Rubbish that nothing needs: what is under the name of an arena, a key slot, a session or a list of
//! vouchers, and of which nothing can be read, or which is a copy of an object of another name. Anybody
//! who may store can leave it there, and so can a disk that was full.
//!
//! Rubbish is taken away only if it is no file, or if the medium gives every byte of it, twice the same;
//! parity and the second copy were tried before. What is withheld, and what a newer program made, is
//! left. An arena is rubbish only if nothing that a snapshot needs is lost, no collection names it, and
//! no session is open that may have stored it.

use std::collections::BTreeSet;

use strongroom_arena::envelope::format::HeaderError;
use strongroom_arena::scan::holds_something;
use strongroom_arena::{ArenaError, ArenaName, ListedArenas, envelope};
use strongroom_backend::{BackendError, ObjectName, Removal, remove_object};
use strongroom_base::{Monitor, SnapshotId};
use strongroom_repository::objects::{
    ASIDE_FOLDER, KEYS_FOLDER, REMARKS_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER, VOUCHERS_FOLDER,
    expected, read_whole, twin,
};
use strongroom_repository::{
    ChunkReader, Collections, ErrorKind, Repository, RepositoryError, SnapshotList, Useless,
    end_session, find_useless, list_sessions, list_snapshots, snapshot_object,
};

use super::mend::RepairOutcome;
use super::plan::{RepairPlan, RepairStep};
use crate::health::fault::{Fault, look_whole};

/// Adds to a plan what is of no use under the names of what only the owner makes, and what is rubbish
/// under a name that no snapshot has, instead of what the plan would do with it; and the snapshots that
/// do not count. Any other key changes nothing.
pub fn plan_removals(
    repository: &Repository,
    plan: &mut RepairPlan,
) -> Result<(), RepositoryError> {
    if repository.keys.owner.is_none() {
        return Ok(());
    }
    let useless = find_useless(repository)?;
    let names: BTreeSet<&ObjectName> = useless.iter().map(|useless| &useless.name).collect();
    plan.steps.retain(|step| match step {
        RepairStep::PutBack { from, .. } => !names.contains(from),
        // Nothing that is of no use is written a second time.
        RepairStep::FromCopy { name, copy } => !names.contains(name) && !names.contains(copy),
        step => !names.contains(&step.object()),
    });
    let steps = useless.iter();
    let steps = steps.map(|Useless { name, why, .. }| RepairStep::TakeAway {
        name: name.clone(),
        why: why.clone(),
    });
    plan.steps.extend(steps);
    let list = list_snapshots(repository)?;
    // Nothing is lost with what the owner wants to go: the next prune removes it.
    plan.steps.retain(|step| {
        let name = step.object();
        let id = name.file().parse().ok().filter(|_| name.folder() == SNAPSHOTS_FOLDER);
        !matches!(step, RepairStep::Lost { .. }) || !id.is_some_and(|id| list.wishes.forget(id))
    });
    // What is whole, and what only a key shows not to be the snapshot that it claims to be.
    for (id, error) in &list.unreadable {
        let name = snapshot_object(*id);
        let is_lost = error.kind() == ErrorKind::Damaged && !list.wishes.forget(*id);
        if is_lost && !plan.steps.iter().any(|step| step.object() == name) {
            let why = format!(
                "{error}; if it is none of yours, `strongroom forget {id}` lets it go, and removes nothing \
                 else"
            );
            plan.steps.push(RepairStep::Lost { name, why });
        }
    }
    for step in &mut plan.steps {
        if let RepairStep::Lost { name, why } = step
            && name.folder() == REMARKS_FOLDER
            && let Some(id) = name.file().split('.').next()
        {
            why.push_str(&format!(
                "; it may be a hold, and counts as one: once `strongroom hold --release {id}` has been \
                 said, and the snapshot held again if it was, the next repair takes it away"
            ));
        }
    }
    plan_to_take_away(repository, plan)
}

/// Plans to take away what no snapshot names, instead of calling it lost.
fn plan_to_take_away(
    repository: &Repository,
    plan: &mut RepairPlan,
) -> Result<(), RepositoryError> {
    let names = plan.steps.iter().filter_map(|step| match step {
        RepairStep::Lost { name, .. } => Some(name),
        _ => None,
    });
    let mut rubbish = BTreeSet::new();
    for name in names.filter(|name| is_named_by_none(name)) {
        if is_rubbish(repository, name)? {
            rubbish.insert(name.clone());
        }
    }
    // The second copy may be read one day: then this one is made of it.
    let has_copy = |name: &ObjectName| {
        let copy = twin(name).filter(|copy| !rubbish.contains(copy));
        copy.is_some_and(|copy| !is_gone(repository, &copy))
    };
    let left: Vec<_> = rubbish.iter().filter(|name| has_copy(name)).cloned().collect();
    rubbish.retain(|name| !left.contains(name));
    for step in &mut plan.steps {
        if let RepairStep::Lost { name, why } = step
            && rubbish.contains(name)
        {
            *step = RepairStep::TakeAway { name: name.clone(), why: std::mem::take(why) };
        }
    }
    Ok(())
}

/// Whether the owner of a repository can do without such an object if nothing of it can be read: key
/// slots, vouchers, sessions, which can be ended, and what is in folders of newer programs.
pub(super) fn is_named_by_none(name: &ObjectName) -> bool {
    match name.folder() {
        KEYS_FOLDER | SESSIONS_FOLDER | VOUCHERS_FOLDER => true,
        "" | ASIDE_FOLDER => false,
        _ => expected(name).is_none(),
    }
}

/// Removes it, if it still is rubbish. Returns whether it is gone.
pub(super) fn remove_rubbish(
    repository: &Repository,
    name: &ObjectName,
) -> Result<bool, RepositoryError> {
    if !is_rubbish(repository, name)? {
        return Ok(is_gone(repository, name));
    }
    if name.folder() == SESSIONS_FOLDER
        && let Ok(id) = name.file().parse()
    {
        // As a prune does: what its backup has stored counts for nothing until it begins again.
        end_session(repository, id)?;
    }
    Ok(remove_object(repository.backend(), name)? != Removal::Directory)
}

/// Sessions that are open before the snapshots are listed.
pub(super) fn open_sessions(
    repository: &Repository,
) -> Result<BTreeSet<SnapshotId>, RepositoryError> {
    Ok(list_sessions(repository)?.into_iter().map(|session| session.id).collect())
}

/// Takes away arenas of which nothing can be read, if nothing that a snapshot needs is lost.
/// `open` are the sessions that were open before these snapshots were listed.
pub(super) fn take_arenas_away(
    repository: &Repository,
    reader: &ChunkReader,
    list: &SnapshotList,
    open: &BTreeSet<SnapshotId>,
    outcome: &mut RepairOutcome,
    monitor: &dyn Monitor,
) -> Result<(), RepositoryError> {
    let collections = Collections::read(repository)?;
    let is_committed = |id: &SnapshotId| {
        list.snapshots.iter().chain(&list.forgotten).any(|snapshot| snapshot.id == *id)
    };
    let at_work: Vec<_> = open.iter().filter(|id| !is_committed(id)).collect();
    let is_condemned = |arena: ArenaName| {
        let open = collections.open.as_ref();
        open.is_some_and(|open| open.selection.slots.0.contains_key(&arena.id))
    };
    if collections.blocked().is_some() {
        return Ok(());
    }
    let listed = ListedArenas::list(repository.backend())?;
    let lost: Vec<_> = outcome.lost.iter().filter_map(ArenaName::of).collect();
    for arena in lost {
        let is_alone = !has_another(reader, &listed, arena)?;
        // Otherwise the collection finds the arena in another generation.
        if is_condemned(arena) && is_alone {
            continue;
        }
        let name = arena.object();
        let is_of_none = match origin_of(repository, &name)? {
            Some(session) => !at_work.contains(&&session),
            None => at_work.is_empty(),
        };
        if !is_of_none {
            monitor.detail(&format!("{name}: left until every backup that has begun has ended"));
            continue;
        }
        if !is_rubbish(repository, &name)? && !is_no_arena(repository, reader, arena)? {
            continue;
        }
        // Snapshots that lack nothing may read what is left of it: it was not rescued, for some reason.
        let Some(object) = bytes_given(repository, &name)? else { continue };
        let is_read = reader.store().open_arena_in(arena, &object).is_ok();
        let is_copy = is_copy_of_another(repository, &name, &object)?;
        if is_read || (is_alone && !is_copy && holds_something(reader.store(), arena, &object)) {
            continue;
        }
        if remove_object(repository.backend(), &name)? == Removal::Directory {
            continue;
        }
        reader.store().forget(arena.id);
        outcome.lost.retain(|lost| *lost != name);
        outcome.taken_away += 1;
        monitor.detail(&format!(
            "{name}: taken away: nothing of it can be read, and nothing needs it"
        ));
    }
    Ok(())
}

/// Whether another generation of an arena counts, and can be read.
fn has_another(
    reader: &ChunkReader,
    listed: &ListedArenas,
    arena: ArenaName,
) -> Result<bool, RepositoryError> {
    let sorted = match reader.store().sort_generations(listed.generations(arena.id)) {
        Err(error) if error.withheld().is_some() => return Ok(false),
        other => other?,
    };
    let mut others = sorted.genuine.iter().map(|listed| listed.name).filter(|it| *it != arena);
    Ok(others.any(|other| reader.store().arena_in(other).is_ok()))
}

/// Whether an object is beyond parity, although the medium gives every byte, twice the same; or it
/// is nothing but a copy of an object of another name.
fn is_rubbish(repository: &Repository, name: &ObjectName) -> Result<bool, BackendError> {
    let Some(object) = bytes_given(repository, name)? else { return Ok(false) };
    if let Err(HeaderError::NewerVersion { .. }) = envelope::peek(&object) {
        return Ok(false);
    }
    // In a folder of newer programs, what has a header may be of use to one.
    if name.folder() != KEYS_FOLDER && expected(name).is_none() && envelope::peek(&object).is_ok() {
        return Ok(false);
    }
    let (again, fault) = match look_whole(repository.backend(), name, repository.config.arena_bytes)
    {
        Err(error) if error.is_not_found() || error.is_withheld() => return Ok(false),
        other => other?,
    };
    Ok(again == object
        && match fault {
            Some(Fault::Beyond { .. }) => true,
            Some(Fault::Swapped { rightful }) => is_copy_of(repository, &object, &rightful),
            _ => false,
        })
}

/// Whether an object is that of another name, which is whole there.
fn is_copy_of_another(
    repository: &Repository,
    name: &ObjectName,
    object: &[u8],
) -> Result<bool, BackendError> {
    match look_whole(repository.backend(), name, repository.config.arena_bytes) {
        Ok((_, Some(Fault::Swapped { rightful }))) => Ok(is_copy_of(repository, object, &rightful)),
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() || error.is_withheld() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether these bytes are those of another object that is whole, so that nothing is lost with them.
fn is_copy_of(repository: &Repository, object: &[u8], other: &ObjectName) -> bool {
    let there = look_whole(repository.backend(), other, repository.config.arena_bytes);
    there.is_ok_and(|(bytes, fault)| fault.is_none() && bytes == object)
}

/// Whether an object is whole and is not the arena that its name says, nor that of another name: no
/// program that may store that arena made it.
fn is_no_arena(
    repository: &Repository,
    reader: &ChunkReader,
    arena: ArenaName,
) -> Result<bool, BackendError> {
    let Some(object) = bytes_given(repository, &arena.object())? else { return Ok(false) };
    let arena_bytes = repository.config.arena_bytes;
    let (again, fault) = match look_whole(repository.backend(), &arena.object(), arena_bytes) {
        Err(error) if error.is_not_found() || error.is_withheld() => return Ok(false),
        other => other?,
    };
    let is_damaged = || {
        let opened = reader.store().open_arena_in(arena, &object);
        matches!(opened, Err(ArenaError::Damaged { .. }))
    };
    Ok(match fault {
        None => again == object && is_damaged(),
        // The other is whole, so this is nothing but a copy of it.
        Some(Fault::Swapped { rightful }) => {
            again == object && is_copy_of(repository, &object, &rightful)
        }
        _ => false,
    })
}

/// An object's bytes, if the medium gives all of them. Of what is vast, or no file, none.
fn bytes_given(
    repository: &Repository,
    name: &ObjectName,
) -> Result<Option<Vec<u8>>, BackendError> {
    match read_whole(repository.backend(), name, repository.config.arena_bytes) {
        Ok(object) => Ok((object.refused_bytes == 0).then_some(object.bytes)),
        Err(BackendError::TooLarge { .. }) => Ok(Some(Vec::new())),
        Err(error) if error.is_no_file() && !error.is_directory() => Ok(Some(Vec::new())),
        Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The session that stored an object, as its header says; none if that cannot be read.
fn origin_of(
    repository: &Repository,
    name: &ObjectName,
) -> Result<Option<SnapshotId>, BackendError> {
    let object = bytes_given(repository, name)?.unwrap_or_default();
    Ok(envelope::peek(&object).ok().map(|header| header.origin.session))
}

fn is_gone(repository: &Repository, name: &ObjectName) -> bool {
    repository.backend().size(name).is_err_and(|error| error.is_not_found())
}
