//! Carrying out a verdict (C8). Any process may, any number of times: nothing in a verdict is ever
//! looked at again.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use strongroom_arena::{
    Arena, ArenaName, ArenaStore, Generations, ListedArenas, Rewriting, Source, envelope, rewrite,
};
use strongroom_backend::{Backend, BackendError, ObjectName};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Monitor, SnapshotId};
use strongroom_repository::objects::{SNAPSHOTS_FOLDER, read_whole};
use strongroom_repository::{
    ArenaSlots, Collections, Repository, RepositoryError, Selection, SlotSets, finish_collection,
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
    let mut blocked = None;
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
            slots => loop {
                match rewrite_arena(repository, store, *arena, slots, &listed, &mut carried) {
                    Ok(true) => break,
                    Ok(false) if tries + 1 < TRIES => {
                        tries += 1;
                        listed = ListedArenas::list(repository.backend())?;
                    }
                    Ok(false) => {
                        return Err(not_now(*arena, "other programs rewrite it"));
                    }
                    // The others do not wait for it.
                    Err(error @ RepositoryError::NotCollectable { .. }) => {
                        blocked.get_or_insert(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            },
        }
        store.forget(*arena);
        monitor.working_on(arena.to_string().as_ref());
    }
    match blocked {
        Some(error) => Err(error),
        None => {
            finish_collection(repository, number, verdict)?;
            Ok(carried)
        }
    }
}

/// Why a part of a verdict cannot be carried out now. The collection stays open until it can, so what
/// the verdict names is held: writers use no slot of it, which a later try would take from them.
fn not_now(arena: ArenaId, why: &str) -> RepositoryError {
    let (what, why) = (format!("arena {arena}"), why.to_owned());
    RepositoryError::NotCollectable { what, why }
}

/// Removes what earlier verdicts had removed and a late operation has brought back; not arenas that a
/// snapshot needs, which came with it from another copy of the repository.
pub fn sweep(
    repository: &Repository,
    collections: &Collections,
    is_swept: &dyn Fn(ArenaId) -> bool,
    carried: &mut Carried,
) -> Result<(), RepositoryError> {
    let listed = ListedArenas::list(repository.backend())?;
    for arena in collections.dead().filter(|arena| is_swept(*arena)) {
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

/// Creates the next generation of an arena without these slots, from all that exist, and removes those
/// below it of which it has all that stays. Returns false if the arena changed meanwhile, and must be
/// looked at again.
///
/// Only what a greater generation covers is removed, so two processes never remove for each other's
/// sake what both rely on.
fn rewrite_arena(
    repository: &Repository,
    store: &ArenaStore,
    arena: ArenaId,
    slots: &ArenaSlots,
    listed: &ListedArenas,
    carried: &mut Carried,
) -> Result<bool, RepositoryError> {
    let generations = listed.generations(arena);
    let Some(greatest) = generations.last() else {
        // Gone: a later verdict removed it, and this is a late repetition.
        return Ok(true);
    };
    if let [only] = generations
        && is_without(store, only.name, slots)
    {
        return Ok(true);
    }
    let sorted = store.sort_generations(generations)?;
    if sorted.is_contested {
        // Nothing is rewritten, and nothing removed, for which a planted generation may be taken.
        return Err(not_now(arena, "another domain has claimed it since it was condemned"));
    }
    let Some(sources) = read_sources(repository, store, arena, &sorted)? else { return Ok(false) };
    let goes = |slot| slots.contains(slot);
    let newest = &sources[0].arena;
    let is_done = !holds_any(newest, slots)
        && sources.iter().all(|source| newest.covers(&source.arena, goes));
    let top = if is_done {
        newest.clone()
    } else {
        // Above all others, so that none is left that could be taken for it.
        let made_of = SlotSets(BTreeMap::from([(arena, slots.clone())])).pack();
        let Some(name) = greatest.name.rewritten(&made_of) else {
            return Err(not_now(arena, "a generation with the last number is in its way"));
        };
        let rewriting = Rewriting {
            generation: name.generation,
            keys: repository.write_keys(),
            redundancy: repository.redundancy(),
            padding: repository.config.padding,
            entropy: &*repository.surroundings.entropy,
        };
        let given: Vec<_> = sources.iter().map(ReadSource::given).collect();
        let next = rewrite(store, &given, &goes, &rewriting)?;
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
        Arc::new(store.open_arena_in(next.name, next.object())?)
    };
    store.forget(arena);
    store.learn(top.name());
    for generation in sorted.genuine.iter().filter(|it| it.name.generation < top.generation) {
        let is_covered = match store.arena_in(generation.name) {
            Ok(below) => top.covers(&below, goes),
            Err(error) if error.is_unreadable() => false,
            Err(error) => return Err(error.into()),
        };
        if is_covered && remove(repository.backend(), &generation.name.object())? {
            carried.removed_bytes += generation.object_bytes;
        }
    }
    store.forget(arena);
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

/// A generation that was read whole.
struct ReadSource {
    arena: Arc<Arena>,
    object: Vec<u8>,
}

impl ReadSource {
    fn given(&self) -> Source<'_> {
        Source { name: self.arena.name(), object: &self.object }
    }
}

/// The generations of an arena that can be read whole, newest first; none if one is gone since they
/// were listed.
///
/// # Errors
///
/// [`RepositoryError::NotCollectable`] if none can be read whole.
fn read_sources(
    repository: &Repository,
    store: &ArenaStore,
    arena: ArenaId,
    sorted: &Generations,
) -> Result<Option<Vec<ReadSource>>, RepositoryError> {
    let mut sources = Vec::new();
    let mut why = sorted.unread.first().map(|(_, why)| why.clone());
    for generation in sorted.genuine.iter().rev() {
        let name = generation.name;
        let read = read_whole(repository.backend(), &name.object(), repository.config.arena_bytes);
        let object = match read {
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if error.is_damage() => {
                why = Some(error.to_string());
                continue;
            }
            other => other?.bytes,
        };
        let repaired = envelope::repair(&object).map_err(|error| error.to_string());
        let opened = repaired.and_then(|object| match store.open_arena_in(name, &object) {
            Ok(arena) => Ok(ReadSource { arena: Arc::new(arena), object }),
            Err(error) => Err(error.to_string()),
        });
        match opened {
            Ok(source) => sources.push(source),
            Err(error) => why = Some(error),
        }
    }
    if !sources.is_empty() {
        return Ok(Some(sources));
    }
    let why = why.unwrap_or_else(|| "no generation of it can be read".to_owned());
    Err(RepositoryError::NotCollectable { what: format!("arena {arena}"), why })
}
