//! `repair`: damaged objects are computed again; if that is impossible, what can be recovered of
//! them is saved.
//!
//! First a plan is made, which can be printed and discarded. Carrying it out replaces objects one
//! by one, atomically, so what an interrupted repair has done stays done. The order is:
//!
//! 0. With replicas, what the object itself cannot give is fetched from them, and what is missing;
//!    see `repair/fetch.rs`. Needs no key.
//! 1. An object's own parity; for the configuration and key slots also the second copy. Needs no
//!    key.
//! 2. What is of no use under the names of what only the owner makes is removed: planted, or damaged
//!    so that no copy of it is left. Snapshots that do not count, because their domain has ended, are
//!    forgotten. Needs the owner's key.
//! 3. Objects under another's name are put back. Any program can write an envelope that claims to
//!    be an object, so this needs a key and a proof, and never replaces what is whole or what
//!    parity makes whole.
//! 4. Generations of arenas that their makers had no right to make are taken away.
//! 5. Of arenas beyond parity, and of those with chunks that are not what their fingerprints say,
//!    the remaining blocks, under newly computed fingerprints.
//! 6. Snapshots that were removed, or are damaged beyond parity, are committed again, if their trees
//!    exist. What is left of a damaged one is replaced. While a collection is open, which may remove
//!    what they need, they wait.
//! 7. Rubbish that nothing needs is taken away. Needs the owner's key.
//!
//! What is lost nevertheless is named, file by file; the next backup takes it from the source
//! again, and that heals every snapshot that shows it.

mod aside;
mod fetch;
mod generations;
mod judge;
mod mend;
mod named;
mod plan;
mod recover;
mod rescue;
mod rubbish;

pub use fetch::{
    FetchOutcome, FetchPlan, FetchStep, Known, Needed, fetch, fetch_needed, plan_fetch,
};
pub use mend::RepairOutcome;
pub use plan::{RepairPlan, RepairStep, plan_repair};
pub use recover::{find_removed, may_recover, plan_recovery};
pub use rubbish::plan_removals;

use std::collections::BTreeSet;

use strongroom_arena::{ARENAS_FOLDER, ArenaError, ArenaName, CacheLimits};
use strongroom_backend::{Backend, ObjectName};
use strongroom_base::{Cancel, Monitor, Problem, Severity, SnapshotId};
use strongroom_repository::objects::{SESSIONS_FOLDER, is_missed, twin};
use strongroom_repository::{
    ChunkIndex, ChunkReader, Repository, RepositoryError, arena_bytes_of, forged_configs,
    list_snapshots, read_vouchers, remove_useless, snapshot_object,
};

use crate::health::audit::{Affected, audit_beside_others};
use crate::health::bad::{BadPlaces, say_not_withdrawn};
use crate::health::census::find_spoilt;
use crate::health::fault::{Fault, look_whole};
use crate::health::look::{Looked, look_into};
use crate::reader::reader_of_everything;
use aside::put_back;
use generations::{find_planted, take_planted_away};
use mend::{Mended, lose, mend};
use recover::{Recovered, recover};
use rescue::{Rescue, Turn};
use rubbish::{is_named_by_none, open_sessions, remove_rubbish, take_arenas_away};

/// Carries out what needs no key; the rest is left unchanged, and counted as lost.
pub fn repair_objects(
    backend: &dyn Backend,
    plan: &RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepairOutcome, RepositoryError> {
    let mut outcome = RepairOutcome { swept: backend.sweep()?, ..RepairOutcome::default() };
    let arena_bytes = arena_bytes_of(backend);
    for step in &plan.steps {
        cancel.check()?;
        let mended = match step {
            RepairStep::FromParity { name, .. } => mend(backend, name, name, arena_bytes)?,
            RepairStep::FromCopy { name, copy } => mend(backend, name, copy, arena_bytes)?,
            RepairStep::PutBack { from, .. } => Mended::No(format!("{from} may be it")),
            RepairStep::TakePlanted { .. } => Mended::Gone,
            RepairStep::Rescue { why, .. }
            | RepairStep::TakeAway { why, .. }
            | RepairStep::Lost { why, .. } => Mended::No(why.clone()),
        };
        match mended {
            Mended::Yes => {
                outcome.repaired += 1;
                if let RepairStep::FromParity { lost_shards, .. } = step {
                    outcome.shards += *lost_shards as u64;
                }
            }
            Mended::Gone => {}
            Mended::No(why) => lose(&mut outcome, &step.object(), &why, monitor),
        }
    }
    Ok(outcome)
}

/// Carries out a plan, builds the index again, and names what stays lost.
pub fn repair(
    repository: &Repository,
    plan: &RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepairOutcome, RepositoryError> {
    repository.check_mode()?;
    let needs_key = |step: &&RepairStep| {
        matches!(
            step,
            RepairStep::Rescue { .. }
                | RepairStep::PutBack { .. }
                | RepairStep::TakeAway { .. }
                | RepairStep::TakePlanted { .. }
        )
    };
    let keyless = plan.steps.iter().filter(|step| !needs_key(step)).cloned().collect();
    let keyless = RepairPlan { steps: keyless, ..RepairPlan::default() };
    let mut outcome = repair_objects(repository.backend(), &keyless, monitor, cancel)?;
    mend_configs(repository, &mut outcome, monitor)?;
    take_away(repository, plan, &mut outcome, monitor)?;
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    put_back(repository, &reader, plan, &mut outcome, monitor, cancel)?;
    let disputed = take_planted_away(repository, &reader, &mut outcome, monitor)?;
    let mut rescues: Vec<Rescue> = plan.steps.iter().filter_map(Rescue::of).collect();
    rescues.extend(find_wrong_chunks(repository, &reader, monitor, cancel)?);
    let mut bad = BadPlaces::default();
    rescues.retain(|rescue| {
        let is_disputed = disputed.contains(&rescue.arena.id);
        if is_disputed {
            bad.add_broken(rescue.arena.id, &reader);
            let why = format!("{}; domains claim the arena: left as it is", rescue.why);
            lose(&mut outcome, &rescue.arena.object(), &why, monitor);
        }
        !is_disputed
    });
    // A delta is saved only if its base can be read, and the base may have to be saved first.
    let mut postponed = Vec::new();
    for rescue in rescues {
        cancel.check()?;
        if !rescue.run(repository, &reader, &mut outcome, &mut bad, monitor, Turn::First)? {
            postponed.push(rescue);
        }
    }
    for rescue in postponed {
        cancel.check()?;
        rescue.run(repository, &reader, &mut outcome, &mut bad, monitor, Turn::Last)?;
    }
    let mut index = ChunkIndex::open(repository.cache_folder().as_deref())?;
    index.clear()?;
    outcome.indexed = index.refresh(repository.backend(), reader.store(), monitor, cancel)?.read;
    if !index.withdraw_for_good(&bad.lost_places(&reader), monitor)
        && let Some(cache) = repository.cache_folder()
    {
        say_not_withdrawn(&cache, monitor);
    }
    drop(index);
    if let Some(near) = repository.near() {
        // It is no better known than the index was.
        near.forget(|_| true);
    }
    let spoilt = match plan.lost_snapshots.iter().any(|lost| lost.is_spoilt) {
        true => find_spoilt(repository, &list_snapshots(repository)?)?,
        false => BTreeSet::new(),
    };
    for lost in &plan.lost_snapshots {
        cancel.check()?;
        // It was put back, or one read of it was wrong: what can be read is not replaced.
        if lost.is_spoilt && !spoilt.contains(&lost.id) {
            continue;
        }
        match recover(repository, &reader, lost, cancel)? {
            Recovered::Yes => outcome.recovered += 1,
            Recovered::Waits => outcome.recover_later.push(lost.id),
            Recovered::Withheld(why) => {
                let name = snapshot_object(lost.id);
                let message = format!("not committed again yet: what it needs is {why}");
                let path = Some(name.as_str().as_ref());
                monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
                outcome.postponed.push(name.clone());
            }
        }
        outcome.lost.retain(|name| *name != snapshot_object(lost.id));
    }
    // Before the snapshots: a session that ends meanwhile has committed, or commits nothing.
    let open = open_sessions(repository)?;
    let list = list_snapshots(repository)?;
    let snapshots = list.readable();
    let (affected, audited) =
        audit_beside_others(repository, &reader, &snapshots, &bad, None, monitor, cancel)?;
    outcome.affected = affected;
    // What a snapshot needs that cannot be read is not known.
    let is_known = list.not_collectable().is_empty() && audited.withheld == 0;
    if outcome.affected.is_empty() && is_known && repository.keys.owner.is_some() {
        take_arenas_away(repository, &reader, &list, &open, &mut outcome, monitor)?;
    }
    Ok(outcome)
}

/// Adds to a plan what takes a key to find, and names the files that cannot be read whole as things
/// are, for lack of an object or in spite of parity. What the plan rescues or puts back may bring
/// some of them back. It reads every arena once more.
pub fn plan_losses(
    repository: &Repository,
    plan: &mut RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Vec<Affected>, RepositoryError> {
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    let planted = find_planted(repository, &reader)?;
    let steps = planted.iter().map(|arena| RepairStep::TakePlanted { arena: *arena });
    plan.steps.extend(steps);
    let wrong = find_wrong_chunks(repository, &reader, monitor, cancel)?;
    for Rescue { arena, why } in wrong.into_iter().filter(|it| !planted.contains(&it.arena)) {
        plan.steps.push(RepairStep::Rescue { arena, why });
    }
    let mut bad = BadPlaces::default();
    for rescue in plan.steps.iter().filter_map(Rescue::of) {
        bad.add_broken(rescue.arena.id, &reader);
    }
    let list = list_snapshots(repository)?;
    let snapshots = list.readable();
    let audited =
        audit_beside_others(repository, &reader, &snapshots, &bad, None, monitor, cancel)?;
    Ok(audited.0)
}

/// Removes what is of no use under the owner's names.
fn take_away(
    repository: &Repository,
    plan: &RepairPlan,
    outcome: &mut RepairOutcome,
    monitor: &dyn Monitor,
) -> Result<(), RepositoryError> {
    let names = plan.steps.iter().filter_map(|step| match step {
        RepairStep::TakeAway { name, .. } => Some(name.clone()),
        _ => None,
    });
    // Its session would be ended for good with what is there in its place.
    let is_lost = |id| plan.lost_snapshots.iter().any(|lost| lost.id == id);
    let is_unrecognised =
        |id| plan.unrecognised.iter().any(|left| left.id == id && left.domain.is_none());
    let is_of_a_lost = |name: &ObjectName| {
        let id = name.file().parse().ok().filter(|_| name.folder() == SESSIONS_FOLDER);
        id.is_some_and(|id: SnapshotId| is_lost(id) || is_unrecognised(id))
    };
    let (rubbish, names): (Vec<ObjectName>, Vec<ObjectName>) = names.partition(is_named_by_none);
    for name in rubbish.into_iter().filter(|name| !is_of_a_lost(name)) {
        match remove_rubbish(repository, &name)? {
            true => outcome.taken_away += 1,
            false => lose(outcome, &name, "it changes from read to read: left as it is", monitor),
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    let left = remove_useless(repository, &names)?;
    outcome.repaired += (names.len() - left.len()) as u64;
    let (backend, arena_bytes) = (repository.backend(), repository.config.arena_bytes);
    // What was planted in the place of the owner's comes back from the other copy.
    let taken =
        names.iter().filter(|name| is_missed(name) && left.iter().all(|(of, _)| of != *name));
    for name in taken {
        let Some(copy) = twin(name) else { continue };
        match backend.size(&copy) {
            Ok(_) => {
                mend(backend, name, &copy, arena_bytes)?;
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    for (name, why) in left {
        lose(outcome, &name, &why, monitor);
    }
    Ok(())
}

/// Writes a configuration that someone changed without a key again, from the copy that the owner
/// signed: the repository was opened by it.
fn mend_configs(
    repository: &Repository,
    outcome: &mut RepairOutcome,
    monitor: &dyn Monitor,
) -> Result<(), RepositoryError> {
    let forged = forged_configs(repository)?;
    for name in &forged {
        let copy = twin(name).filter(|copy| !forged.contains(copy));
        let mended = match copy {
            Some(copy) => mend(repository.backend(), name, &copy, repository.config.arena_bytes)?,
            None => Mended::No("both configurations are forged".to_owned()),
        };
        match mended {
            Mended::Yes => {
                outcome.repaired += 1;
                monitor.detail(&format!("{name}: written again, as the owner signed it"));
            }
            Mended::Gone => {}
            Mended::No(why) => lose(outcome, name, &why, monitor),
        }
    }
    Ok(())
}

/// Arenas that are whole, and hold chunks that are not what the summary says: damaged before they
/// were sealed, or forged.
fn find_wrong_chunks(
    repository: &Repository,
    reader: &ChunkReader,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Vec<Rescue>, RepositoryError> {
    let mut found = Vec::new();
    for info in repository.backend().list(ARENAS_FOLDER)? {
        cancel.check()?;
        let Some(arena) = ArenaName::of(&info.name) else { continue };
        monitor.working_on(info.name.as_str().as_ref());
        let arena_bytes = repository.config.arena_bytes;
        let object = match look_whole(repository.backend(), &info.name, arena_bytes) {
            Ok((object, None)) => object,
            // Handled by the plan, or removed.
            Ok(_) => continue,
            Err(error) if error.is_not_found() || error.is_withheld() => continue,
            Err(error) => return Err(error.into()),
        };
        let fault = match reader.store().open_arena_in(arena, &object) {
            Ok(opened) => {
                let fault = look_into(&opened, &object, reader, Looked::default()).fault;
                fault.filter(|fault| *fault != Fault::Unknown)
            }
            Err(ArenaError::Unknown { .. }) => None,
            Err(error) => Some(Fault::Beyond { why: error.to_string() }),
        };
        found.extend(fault.map(|fault| Rescue { arena, why: fault.to_string() }));
    }
    Ok(found)
}
