//! Carrying out a verdict (C8). Any process may, any number of times: nothing in a verdict is ever
//! looked at again.

use std::collections::HashSet;

use strongroom_arena::{
    Arena, ArenaName, ArenaStore, ListedArena, ListedArenas, Rewriting, envelope, rewrite,
};
use strongroom_backend::{Backend, BackendError, ObjectName};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Monitor, SnapshotId};
use strongroom_repository::objects::{SNAPSHOTS_FOLDER, read_whole};
use strongroom_repository::{
    ArenaSlots, Collections, Repository, RepositoryError, Selection, finish_collection,
    list_wishes_and_remarks, snapshot_object,
};

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Snapshots that were removed.
    pub snapshots: u64,
    /// Arenas that were removed.
    pub arenas_removed: u64,
    /// Arenas that were rewritten.
    pub arenas_rewritten: u64,
    /// Bytes of their new objects.
    pub rewritten_bytes: u64,
    /// Bytes of objects that were removed.
    pub removed_bytes: u64,
    /// Arenas of the verdict that were not begun, because time was over.
    pub arenas_left: u64,
}

impl Carried {
    /// Adds what was done before.
    pub fn add(&mut self, other: Self) {
        self.snapshots += other.snapshots;
        self.arenas_removed += other.arenas_removed;
        self.arenas_rewritten += other.arenas_rewritten;
        self.rewritten_bytes += other.rewritten_bytes;
        self.removed_bytes += other.removed_bytes;
        self.arenas_left += other.arenas_left;
    }
}

/// How often a rewriting is tried again because another process was faster.
const TRIES: u32 = 5;

/// Carries out a verdict, and ends its collection, unless it becomes too late.
pub fn carry_out(
    repository: &Repository,
    store: &ArenaStore,
    number: u64,
    verdict: &Selection,
    is_late: &dyn Fn() -> bool,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Carried, RepositoryError> {
    let mut carried = Carried::default();
    // A reader that knows no verdict finds no snapshot then, instead of a broken one.
    for snapshot in &verdict.snapshots {
        cancel.check()?;
        carried.snapshots +=
            u64::from(remove(repository.backend(), &snapshot_object(snapshot.id))?);
    }
    let going: HashSet<SnapshotId> = verdict.snapshots.iter().map(|going| going.id).collect();
    for (snapshot, name) in list_wishes_and_remarks(repository)? {
        if going.contains(&snapshot) {
            remove(repository.backend(), &name)?;
        }
    }
    let mut listed = ListedArenas::list(repository.backend())?;
    // What is only removed comes first: on a full disk it makes the room for what is rewritten.
    let is_whole = |(_, slots): &(&ArenaId, &ArenaSlots)| **slots == ArenaSlots::All;
    let parts = verdict.slots.0.iter().filter(|of| !is_whole(of));
    let in_order = verdict.slots.0.iter().filter(is_whole).chain(parts);
    for (place, (arena, slots)) in in_order.enumerate() {
        cancel.check()?;
        // One at least: a limit that is shorter than the marking would never let anything go.
        let is_begun = carried.arenas_removed + carried.arenas_rewritten > 0;
        if is_begun && is_late() {
            carried.arenas_left = (verdict.slots.0.len() - place) as u64;
            return Ok(carried);
        }
        let mut tries = 0;
        match slots {
            ArenaSlots::All => remove_arena(repository, *arena, &listed, &mut carried)?,
            slots => {
                while !rewrite_arena(repository, store, *arena, slots, &listed, &mut carried)? {
                    tries += 1;
                    if tries == TRIES {
                        let what = format!("arena {arena}");
                        let why = "other programs rewrite it".to_owned();
                        return Err(RepositoryError::NotCollectable { what, why });
                    }
                    listed = ListedArenas::list(repository.backend())?;
                }
            }
        }
        store.forget(*arena);
        monitor.working_on(arena.to_string().as_ref());
    }
    finish_collection(repository, number, verdict)?;
    Ok(carried)
}

/// Removes what earlier verdicts had removed and a late operation has brought back.
pub fn sweep(
    repository: &Repository,
    collections: &Collections,
    carried: &mut Carried,
) -> Result<(), RepositoryError> {
    let listed = ListedArenas::list(repository.backend())?;
    for arena in collections.dead() {
        remove_arena(repository, arena, &listed, carried)?;
    }
    for info in repository.backend().list(SNAPSHOTS_FOLDER)? {
        let id = info.name.file().parse::<SnapshotId>();
        if id.is_ok_and(|id| collections.is_gone(id)) {
            carried.snapshots += u64::from(remove(repository.backend(), &info.name)?);
        }
    }
    Ok(())
}

/// Removes an object; returns whether it was there.
fn remove(backend: &dyn Backend, name: &ObjectName) -> Result<bool, RepositoryError> {
    match backend.remove(name) {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove_arena(
    repository: &Repository,
    arena: ArenaId,
    listed: &ListedArenas,
    carried: &mut Carried,
) -> Result<(), RepositoryError> {
    let mut was_there = false;
    for generation in listed.generations(arena) {
        if remove(repository.backend(), &generation.name.object())? {
            carried.removed_bytes += generation.object_bytes;
            was_there = true;
        }
    }
    carried.arenas_removed += u64::from(was_there);
    Ok(())
}

/// Creates the next generation of an arena without these slots, and removes the others below it.
/// Returns false if the arena changed meanwhile, and must be looked at again.
fn rewrite_arena(
    repository: &Repository,
    store: &ArenaStore,
    arena: ArenaId,
    slots: &ArenaSlots,
    listed: &ListedArenas,
    carried: &mut Carried,
) -> Result<bool, RepositoryError> {
    let generations = listed.generations(arena);
    if let [only] = generations
        && is_without(store, only.name, slots)
    {
        return Ok(true);
    }
    // Nothing is rewritten, and nothing removed, for which a planted generation may be taken.
    let Some(genuine) = store.genuine(generations)? else { return Ok(true) };
    let Some((newest, object)) = newest_readable(repository, store, arena, &genuine)? else {
        // Gone: a later verdict removed it, and this is a late repetition.
        return Ok(generations.is_empty());
    };
    let opened = store.open_arena_in(newest, &object)?;
    let mut below = newest;
    if holds_any(&opened, slots) {
        // Above all others, so that none is left that could be taken for it.
        let taken = generations.iter().map(|listed| listed.name.generation).max();
        let Some(generation) = taken.unwrap_or(newest.generation).checked_add(1) else {
            // The last number is taken: it stays as it is.
            return Ok(true);
        };
        let rewriting = Rewriting {
            generation,
            keys: repository.write_keys(),
            redundancy: repository.redundancy(),
            padding: repository.config.padding,
            entropy: &*repository.surroundings.entropy,
        };
        let next = rewrite(store, newest, &object, &|slot| slots.contains(slot), &rewriting)?;
        let name = next.name.object();
        match repository.backend().create(&name, next.object()) {
            Err(BackendError::AlreadyExists { .. }) => return Ok(false),
            other => other?,
        }
        // Nothing is removed before the next generation was read.
        if repository.backend().read(&name, 0, next.object().len() + 1)? != next.object() {
            return Ok(false);
        }
        carried.arenas_rewritten += 1;
        carried.rewritten_bytes += next.object().len() as u64;
        below = next.name;
    }
    store.forget(arena);
    store.learn(below);
    for generation in generations.iter().filter(|listed| listed.name.generation < below.generation)
    {
        if remove(repository.backend(), &generation.name.object())? {
            carried.removed_bytes += generation.object_bytes;
        }
    }
    Ok(true)
}

/// Whether an arena's summary can be read, and has none of these slots.
fn is_without(store: &ArenaStore, name: ArenaName, slots: &ArenaSlots) -> bool {
    store.learn(name);
    let arena = store.arena(name.id);
    arena.is_ok_and(|arena| arena.name() == name && !holds_any(&arena, slots))
}

fn holds_any(arena: &Arena, slots: &ArenaSlots) -> bool {
    arena
        .slots()
        .any(|(slot, entry)| slots.contains(slot) && entry.fingerprint != Fingerprint::ZERO)
}

/// The greatest of these generations of an arena that can be read whole, and its object.
fn newest_readable(
    repository: &Repository,
    store: &ArenaStore,
    arena: ArenaId,
    genuine: &[ListedArena],
) -> Result<Option<(ArenaName, Vec<u8>)>, RepositoryError> {
    let mut why = None;
    for generation in genuine.iter().rev() {
        let name = generation.name;
        let read = read_whole(repository.backend(), &name.object(), repository.config.arena_bytes);
        let object = match read {
            Err(error) if error.is_not_found() => continue,
            Err(error) if error.is_damage() => {
                why = Some(error.to_string());
                continue;
            }
            other => other?.bytes,
        };
        let repaired = envelope::repair(&object).map_err(|error| error.to_string());
        let opened = repaired.and_then(|object| match store.open_arena_in(name, &object) {
            Ok(_) => Ok(object),
            Err(error) => Err(error.to_string()),
        });
        match opened {
            Ok(object) => return Ok(Some((name, object))),
            Err(error) => why = Some(error),
        }
    }
    match why {
        Some(why) => Err(RepositoryError::NotCollectable { what: format!("arena {arena}"), why }),
        None => Ok(None),
    }
}
