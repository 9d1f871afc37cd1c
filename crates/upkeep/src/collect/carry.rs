//! Carrying out a verdict (C8). Any process may, any number of times: nothing in a verdict is ever
//! looked at again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use strongroom_arena::{
    ARENAS_FOLDER, Arena, ArenaError, ArenaName, ArenaStore, Generations, ListedArenas, Rewriting,
    Source, envelope, rewrite,
};
use strongroom_backend::{Backend, BackendError, ObjectName, Removal, remove_object};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Monitor, Problem, Severity, SnapshotId};
use strongroom_repository::objects::{SNAPSHOTS_FOLDER, read_whole};
use strongroom_repository::{
    ArenaSlots, Collections, Repository, RepositoryError, Selection, SlotSets, Wishes,
    confirm_verdict, finish_collection, list_wishes_and_remarks, snapshot_object,
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
    /// Arenas of the verdict that stay as they are: there is no room to rewrite them, they cannot be
    /// read, or a snapshot needs something of them. They go once nothing needs them.
    pub arenas_put_off: u64,
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
        self.arenas_put_off += other.arenas_put_off;
    }
}

/// How a verdict is carried out.
pub struct Way<'w> {
    /// Snapshots of it that the owner keeps after all.
    pub kept: &'w HashSet<SnapshotId>,
    /// Whether no further arena is begun.
    pub is_late: &'w dyn Fn() -> bool,
    /// Hears of each arena.
    pub monitor: &'w dyn Monitor,
    /// Stops it.
    pub cancel: &'w Cancel,
}

impl<'w> Way<'w> {
    /// To the end.
    pub fn whole(monitor: &'w dyn Monitor, cancel: &'w Cancel) -> Self {
        static NONE: LazyLock<HashSet<SnapshotId>> = LazyLock::new(HashSet::new);
        Self { kept: &NONE, is_late: &|| false, monitor, cancel }
    }
}

/// How often a rewriting is tried again because another process was faster.
const TRIES: u32 = 5;

/// Carries out a verdict, and ends its collection, unless it becomes too late.
///
/// An arena that cannot be rewritten does not keep the collection open, because no other one could
/// begin then, and on a full disk nothing could be removed any more. It is put off.
pub fn carry_out(
    repository: &Repository,
    store: &ArenaStore,
    number: u64,
    verdict: &Selection,
    way: &Way<'_>,
) -> Result<Carried, RepositoryError> {
    let Way { kept, is_late, monitor, cancel } = way;
    confirm_verdict(repository, number)?;
    let mut carried = Carried::default();
    remove_snapshots(repository, verdict, kept, &mut carried, cancel)?;
    let mut put_off = BTreeSet::new();
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
                match rewrite_arena(repository, store, *arena, slots, &listed, &mut carried)? {
                    Rewritten::Done => break,
                    Rewritten::Changed if tries + 1 < TRIES => {
                        tries += 1;
                        listed = ListedArenas::list(repository.backend())?;
                    }
                    Rewritten::Changed => {
                        return Err(not_now(*arena, "other programs rewrite it"));
                    }
                    // The others do not wait for it.
                    Rewritten::NotNow(why) => {
                        blocked.get_or_insert(not_now(*arena, why));
                        break;
                    }
                    Rewritten::PutOff(why) => {
                        let path = Path::new(ARENAS_FOLDER).join(arena.to_string());
                        let message = &format!("it stays as it is: {why}");
                        let path = Some(path.as_path());
                        monitor.problem(Problem { severity: Severity::Warning, path, message });
                        put_off.insert(*arena);
                        break;
                    }
                }
            },
        }
        store.forget(*arena);
        monitor.working_on(arena.to_string().as_ref());
    }
    if let Some(error) = blocked {
        return Err(error);
    }
    carried.arenas_put_off = put_off.len() as u64;
    finish_collection(repository, number, verdict, &put_off)?;
    Ok(carried)
}

/// Why a part of a verdict cannot be carried out now. The collection stays open until it can, so what
/// the verdict names is held: writers use no slot of it, which a later try would take from them.
fn not_now(arena: ArenaId, why: &str) -> RepositoryError {
    let (what, why) = (format!("arena {arena}"), why.to_owned());
    RepositoryError::NotCollectable { what, why }
}

/// Ends a collection that another program has decided, in this copy of the repository or in another,
/// and that would remove what a snapshot needs: nothing is removed of its arenas that is still there.
pub fn put_off(
    repository: &Repository,
    store: &ArenaStore,
    number: u64,
    verdict: &Selection,
    kept: &HashSet<SnapshotId>,
    cancel: &Cancel,
) -> Result<Carried, RepositoryError> {
    confirm_verdict(repository, number)?;
    let mut carried = Carried::default();
    remove_snapshots(repository, verdict, kept, &mut carried, cancel)?;
    let listed = ListedArenas::list(repository.backend())?;
    let is_left =
        |(arena, slots): &(&ArenaId, &ArenaSlots)| match (listed.generations(**arena), slots) {
            ([], _) => false,
            ([only], slots) => **slots == ArenaSlots::All || !is_without(store, only.name, slots),
            _ => true,
        };
    let left = verdict.slots.0.iter().filter(is_left);
    let arenas: BTreeSet<ArenaId> = left.map(|(arena, _)| *arena).collect();
    carried.arenas_put_off = arenas.len() as u64;
    finish_collection(repository, number, verdict, &arenas)?;
    Ok(carried)
}

/// What came of rewriting an arena.
enum Rewritten {
    /// It is without the slots that go.
    Done,
    /// It changed meanwhile, and must be looked at again.
    Changed,
    /// Not before a person has done something about this.
    NotNow(&'static str),
    /// It stays as it is, for this reason, until nothing needs it.
    PutOff(String),
}

/// Removes the snapshots of a verdict, and what is said of them; but not those that are kept.
fn remove_snapshots(
    repository: &Repository,
    verdict: &Selection,
    kept: &HashSet<SnapshotId>,
    carried: &mut Carried,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    // A reader that knows no verdict finds no snapshot then, instead of a broken one.
    let going = verdict.snapshots.iter().map(|going| going.id);
    let going: BTreeSet<SnapshotId> = going.filter(|id| !kept.contains(id)).collect();
    for snapshot in &going {
        cancel.check()?;
        carried.snapshots += u64::from(remove(repository.backend(), &snapshot_object(*snapshot))?);
    }
    for (snapshot, name) in list_wishes_and_remarks(repository)? {
        if going.contains(&snapshot) {
            remove(repository.backend(), &name)?;
        }
    }
    Ok(())
}

/// Removes what earlier verdicts had removed and a late operation has brought back; not arenas that a
/// snapshot needs, which came with it from another copy of the repository.
pub fn sweep(
    repository: &Repository,
    collections: &Collections,
    is_swept: &dyn Fn(ArenaId) -> bool,
    carried: &mut Carried,
) -> Result<(), RepositoryError> {
    let wishes = Wishes::read(repository)?;
    let listed = ListedArenas::list(repository.backend())?;
    for arena in collections.dead().filter(|arena| is_swept(*arena)) {
        remove_arena(repository, arena, &listed, carried)?;
    }
    for info in repository.backend().list(SNAPSHOTS_FOLDER)? {
        let id = info.name.file().parse::<SnapshotId>();
        if id.is_ok_and(|id| wishes.let_go(collections, id)) {
            carried.snapshots += u64::from(remove(repository.backend(), &info.name)?);
        }
    }
    Ok(())
}

/// Removes an object; returns whether it was there.
fn remove(backend: &dyn Backend, name: &ObjectName) -> Result<bool, RepositoryError> {
    Ok(remove_object(backend, name)? == Removal::Removed)
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
/// below it of which it has all that stays.
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
) -> Result<Rewritten, RepositoryError> {
    let generations = listed.generations(arena);
    let Some(greatest) = generations.last() else {
        // Gone: a later verdict removed it, and this is a late repetition.
        return Ok(Rewritten::Done);
    };
    if let [only] = generations
        && is_without(store, only.name, slots)
    {
        return Ok(Rewritten::Done);
    }
    let sorted = store.sort_generations(generations)?;
    if sorted.is_contested {
        // Nothing is rewritten, and nothing removed, for which a planted generation may be taken.
        return Ok(Rewritten::NotNow("another domain has claimed it since it was condemned"));
    }
    let sources = match read_sources(repository, store, &sorted)? {
        Sources::Read(sources) => sources,
        Sources::Changed => return Ok(Rewritten::Changed),
        Sources::Unreadable(why) => return Ok(Rewritten::PutOff(why)),
    };
    let goes = |slot| slots.contains(slot);
    let newest = sources.iter().map(|source| &source.arena).max_by_key(|arena| arena.generation);
    let newest = newest.expect("one is read at least");
    // In favour of what the owner has not made nothing is removed.
    let is_done = (newest.is_marked || sources.len() == 1)
        && !holds_any(newest, slots)
        && sources.iter().all(|source| newest.covers(&source.arena, goes));
    let top = if is_done {
        newest.clone()
    } else {
        // Above all others, so that none is left that could be taken for it.
        let made_of = SlotSets(BTreeMap::from([(arena, slots.clone())])).pack();
        let Some(name) = greatest.name.rewritten(&made_of) else {
            return Ok(Rewritten::NotNow("a generation with the last number is in its way"));
        };
        let rewriting = Rewriting {
            generation: name.generation,
            keys: repository.write_keys(),
            redundancy: repository.redundancy(),
            padding: repository.config.padding,
        };
        let given: Vec<_> = sources.iter().map(ReadSource::given).collect();
        let next = match rewrite(store, &given, &goes, &rewriting) {
            // Its machine can seal it so that a block, or its key, does not open.
            Err(error) if error.is_unreadable() => {
                return Ok(Rewritten::PutOff(error.to_string()));
            }
            other => other?,
        };
        let opened = match store.open_arena_in(next.name, next.object()) {
            // What its machine has made can be so odd that nothing is made of it.
            Err(error) if error.is_unreadable() => {
                return Ok(Rewritten::PutOff(error.to_string()));
            }
            other => Arc::new(other?),
        };
        let name = next.name.object();
        match repository.backend().create(&name, next.object()) {
            Err(BackendError::AlreadyExists { .. }) => return Ok(Rewritten::Changed),
            Err(error @ BackendError::NoSpace { .. }) => {
                return Ok(Rewritten::PutOff(error.to_string()));
            }
            other => other?,
        }
        // Nothing is removed before the next generation was read.
        if repository.backend().read(&name, 0, next.object().len() + 1)? != next.object() {
            return Ok(Rewritten::Changed);
        }
        carried.arenas_rewritten += 1;
        carried.rewritten_bytes += next.object().len() as u64;
        opened
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
    Ok(Rewritten::Done)
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

/// The generations of an arena that can be read whole.
enum Sources {
    /// In the order in which they are believed.
    Read(Vec<ReadSource>),
    /// One is gone since they were listed.
    Changed,
    /// There is none, and why.
    Unreadable(String),
}

fn read_sources(
    repository: &Repository,
    store: &ArenaStore,
    sorted: &Generations,
) -> Result<Sources, RepositoryError> {
    let mut sources = Vec::new();
    let mut why = sorted.unread.first().map(|(_, why)| why.clone());
    for generation in sorted.genuine.iter().rev() {
        let name = generation.name;
        let read = read_whole(repository.backend(), &name.object(), repository.config.arena_bytes);
        let object = match read {
            Err(error) if error.is_not_found() => return Ok(Sources::Changed),
            Err(error) if error.is_damage() => {
                why = Some(error.to_string());
                continue;
            }
            other => other?.bytes,
        };
        let repaired = envelope::repair(&object).map_err(|error| error.to_string());
        let opened = repaired.and_then(|object| {
            let open = || -> Result<Arena, ArenaError> {
                let arena = store.open_arena_in(name, &object)?;
                // Everyone who may read the front of a generation can put another object in its place that
                // begins in the same way. In favour of such a one nothing is removed.
                if sorted.genuine.len() > 1 {
                    arena.open_all(&object)?;
                }
                Ok(arena)
            };
            let arena = open().map_err(|error| error.to_string())?;
            Ok(ReadSource { arena: Arc::new(arena), object })
        });
        match opened {
            Ok(source) => sources.push(source),
            Err(error) => why = Some(error),
        }
    }
    // A first generation can be made again once it was rewritten, and say that it holds what it does not:
    // so a chunk is taken from what the owner has made, if that holds it.
    sources.sort_by_key(|source| !source.arena.is_marked);
    if !sources.is_empty() {
        return Ok(Sources::Read(sources));
    }
    let none = || "no generation of it can be read".to_owned();
    Ok(Sources::Unreadable(why.unwrap_or_else(none)))
}
