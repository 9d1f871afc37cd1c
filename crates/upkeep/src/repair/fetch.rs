//! What parity cannot give is fetched from replicas: of a damaged object the lost parts, a missing
//! one as a whole. Needs no key, but does better with one.
//!
//! Every byte is compared with the object's own signatures and hash before anything is written, so
//! a replica is not trusted. What is missing here may be lost, or a collection may have removed it;
//! only a key reads which. Without one it all comes back, which does no harm: the next collection
//! removes it again. A key slot that is missing may have been withdrawn: none comes back, unless
//! there is no other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use strongroom_arena::envelope::fetch_from;
use strongroom_arena::{ARENAS_FOLDER, ArenaName};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName};
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity, SizeLimits, SnapshotId};
use strongroom_repository::objects::{
    ARRIVALS_FOLDER, COLLECTIONS_FOLDER, COPY, ENDED_FOLDER, FORGOTTEN_FOLDER, KEYS_FOLDER,
    REMARKS_FOLDER, SNAPSHOTS_FOLDER, VOUCHERS_FOLDER, bytes_max_of, is_as_named, read_whole, twin,
};
use strongroom_repository::{Collections, Repository, RepositoryError, Wishes, arena_bytes_of};

use super::mend::{Mended, replace};
use super::plan::{RepairPlan, RepairStep};
use crate::flight::{Flight, each_in_flight};
use crate::reckoning::arenas_in_need;
use crate::replicate::{create, forks, list, refuse_another};

/// The folders that are searched for what is missing, in the order in which it is fetched: a
/// snapshot after all that it needs.
const FOLDERS: [&str; 10] = [
    "",
    KEYS_FOLDER,
    COLLECTIONS_FOLDER,
    ARENAS_FOLDER,
    VOUCHERS_FOLDER,
    ARRIVALS_FOLDER,
    ENDED_FOLDER,
    REMARKS_FOLDER,
    FORGOTTEN_FOLDER,
    SNAPSHOTS_FOLDER,
];

/// Why an object is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// It is damaged beyond its parity, and how.
    Damaged(String),
    /// It does not exist.
    Missing,
    /// A later generation of the arena is damaged beyond its parity; it has nothing that this one
    /// does not have, and is removed afterwards.
    Before(ArenaName),
}

/// One object that is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchStep {
    /// The object.
    pub name: ObjectName,
    /// Why.
    pub needed: Needed,
    /// Its bytes in the replica that has it.
    pub bytes: u64,
    /// What a repair does if no replica helps.
    otherwise: Option<RepairStep>,
}

/// What is going to be fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// In the order in which it is done.
    pub steps: Vec<FetchStep>,
    /// Key slots that only replicas have: they may have been withdrawn.
    pub withdrawn: Vec<ObjectName>,
}

/// What was fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchOutcome {
    /// Damaged objects that are whole again.
    pub mended: u64,
    /// Bytes of them that were damaged.
    pub damaged_bytes: u64,
    /// Missing objects that are back.
    pub returned: u64,
    /// Their bytes.
    pub returned_bytes: u64,
    /// Bytes that were read from replicas for all of it.
    pub fetched_bytes: u64,
    /// Objects that no replica could help with.
    pub failed: Vec<ObjectName>,
}

impl FetchOutcome {
    /// Adds what was done before.
    pub fn add(&mut self, other: Self) {
        self.mended += other.mended;
        self.damaged_bytes += other.damaged_bytes;
        self.returned += other.returned;
        self.returned_bytes += other.returned_bytes;
        self.fetched_bytes += other.fetched_bytes;
        self.failed.extend(other.failed);
    }
}

/// Moves out of a plan what replicas may help with, and adds what is missing.
pub fn plan_fetch(
    backend: &dyn Backend,
    replicas: &[Arc<dyn Backend>],
    known: Known<'_>,
    plan: &mut RepairPlan,
) -> Result<FetchPlan, RepositoryError> {
    let mut there: BTreeMap<ObjectName, u64> = BTreeMap::new();
    let last = last_collection(backend)?;
    for replica in replicas {
        refuse_another(&**replica, backend)?;
        // What was decided in a place that was used apart from this one is not decided here, nor what was
        // decided since this one was copied.
        let was_apart = !forks(&**replica, backend)?.is_empty();
        let is_ours = |name: &ObjectName| match collection_of(name) {
            Some(number) => !was_apart && number <= last,
            None => true,
        };
        for folder in FOLDERS {
            for info in list(&**replica, folder)?.into_iter().filter(|info| is_ours(&info.name)) {
                let bytes = there.entry(info.name).or_default();
                *bytes = info.bytes.max(*bytes);
            }
        }
    }
    let mut found = FetchPlan::default();
    take_damaged(plan, &there, &mut found);
    let mut here: HashSet<ObjectName> = HashSet::new();
    for folder in FOLDERS {
        here.extend(list(backend, folder)?.into_iter().map(|info| info.name));
    }
    let damaged: HashSet<ObjectName> = found.steps.iter().map(|step| step.name.clone()).collect();
    let has_keys = here.iter().any(|name| {
        let is_whole =
            !damaged.contains(name) && !plan.steps.iter().any(|step| step.object() == *name);
        name.folder() == KEYS_FOLDER && is_whole
    });
    // A slot whose copy is only damaged was not withdrawn.
    let has_damaged_twin =
        |name: &ObjectName| twin(name).is_some_and(|twin| damaged.contains(&twin));
    let arenas = missing_arenas(plan, &here, &there, &found);
    for folder in FOLDERS {
        let is_vital = matches!(folder, "" | KEYS_FOLDER | COLLECTIONS_FOLDER);
        if !is_vital && matches!(known, Known::NotYet) {
            break;
        }
        if folder == ARENAS_FOLDER {
            let arenas = arenas.iter().filter(|step| !known.removed(&step.name));
            found.steps.extend(arenas.cloned());
            continue;
        }
        for (name, bytes) in there.iter().filter(|(name, _)| name.folder() == folder) {
            if here.contains(name)
                || name.file().trim_end_matches(COPY).ends_with(".plan")
                || known.removed(name)
            {
                continue;
            }
            if folder == KEYS_FOLDER && has_keys && !has_damaged_twin(name) {
                // The copy of a slot that exists is no other key.
                if !has_twin(&here, name) {
                    found.withdrawn.push(name.clone());
                }
                continue;
            }
            // A step of the plan makes it from its copy.
            if !plan.steps.iter().any(|step| step.object() == *name) {
                let name = name.clone();
                let needed = Needed::Missing;
                found.steps.push(FetchStep { name, needed, bytes: *bytes, otherwise: None });
            }
        }
    }
    Ok(found)
}

/// The collection that an object is a step of.
fn collection_of(name: &ObjectName) -> Option<u64> {
    let is_step = name.folder() == COLLECTIONS_FOLDER;
    name.file().split('.').next().filter(|_| is_step)?.parse().ok()
}

/// The last collection of which a place has anything.
fn last_collection(backend: &dyn Backend) -> Result<u64, BackendError> {
    let steps = list(backend, COLLECTIONS_FOLDER)?;
    Ok(steps.iter().filter_map(|info| collection_of(&info.name)).max().unwrap_or(0))
}

/// What is known of what collections removed.
#[derive(Clone, Copy)]
pub enum Known<'k> {
    /// Nothing yet: first, what the repository is opened with is made whole.
    NotYet,
    /// Nothing, and there is no key: everything that is missing may be lost.
    Nothing,
    /// What the verdicts say, and what the owner has said since.
    Collections(&'k Collections, &'k Wishes),
}

impl Known<'_> {
    /// Whether a collection removed an object.
    fn removed(self, name: &ObjectName) -> bool {
        let Known::Collections(collections, wishes) = self else { return false };
        match name.folder() {
            // What a snapshot needs of them that is kept after all is fetched once it is known.
            ARENAS_FOLDER => ArenaName::of(name).is_some_and(|arena| collections.is_dead(arena.id)),
            SNAPSHOTS_FOLDER | FORGOTTEN_FOLDER | REMARKS_FOLDER => {
                let id = name.file().split('.').next().unwrap_or_default();
                id.parse::<SnapshotId>().is_ok_and(|id| wishes.let_go(collections, id))
            }
            _ => false,
        }
    }
}

fn has_twin(here: &HashSet<ObjectName>, name: &ObjectName) -> bool {
    twin(name).is_some_and(|twin| here.contains(&twin))
}

/// Moves the steps for damaged objects that a replica has too.
fn take_damaged(plan: &mut RepairPlan, there: &BTreeMap<ObjectName, u64>, found: &mut FetchPlan) {
    // What is put back is read before another object is written over it.
    let kept: HashSet<ObjectName> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            RepairStep::PutBack { name, from } if !there.contains_key(name) => Some(from.clone()),
            _ => None,
        })
        .collect();
    plan.steps.retain(|step| {
        let why = match step {
            RepairStep::Rescue { why, .. } | RepairStep::Lost { why, .. } => why.clone(),
            RepairStep::PutBack { .. } => "another object is in its place".to_owned(),
            RepairStep::FromParity { .. }
            | RepairStep::FromCopy { .. }
            | RepairStep::TakeAway { .. }
            | RepairStep::TakePlanted { .. } => return true,
        };
        let name = step.object();
        let Some(bytes) = there.get(&name).filter(|_| !kept.contains(&name)) else { return true };
        let (bytes, otherwise) = (*bytes, Some(step.clone()));
        found.steps.push(FetchStep { name, needed: Needed::Damaged(why), bytes, otherwise });
        false
    });
}

/// Arenas that exist in no generation which is whole or will be: the greatest generation that a
/// replica has of each.
fn missing_arenas(
    plan: &RepairPlan,
    here: &HashSet<ObjectName>,
    there: &BTreeMap<ObjectName, u64>,
    found: &FetchPlan,
) -> Vec<FetchStep> {
    let broken: HashMap<ObjectName, &RepairStep> = plan
        .steps
        .iter()
        .filter(|step| matches!(step, RepairStep::Rescue { .. } | RepairStep::Lost { .. }))
        .map(|step| (step.object(), step))
        .collect();
    let whole = here.iter().filter(|name| !broken.contains_key(name));
    let whole = whole.chain(found.steps.iter().map(|step| &step.name));
    let whole: HashSet<_> = whole.filter_map(ArenaName::of).map(|arena| arena.id).collect();
    let mut greatest = BTreeMap::new();
    for (name, bytes) in there {
        if let Some(arena) = ArenaName::of(name).filter(|arena| !whole.contains(&arena.id)) {
            let entry = greatest.entry(arena.id).or_insert((arena, *bytes));
            *entry = (*entry).max((arena, *bytes));
        }
    }
    let steps = greatest.into_values().map(|(arena, bytes)| {
        let name = arena.object();
        let later = broken.iter().find_map(|(name, step)| {
            let other = ArenaName::of(name).filter(|other| other.id == arena.id)?;
            Some((other, (*step).clone()))
        });
        match later {
            Some((later, step)) if later.generation > arena.generation => {
                FetchStep { name, needed: Needed::Before(later), bytes, otherwise: Some(step) }
            }
            _ => FetchStep { name, needed: Needed::Missing, bytes, otherwise: None },
        }
    });
    steps.collect()
}

/// Fetches, and gives back to the repair's plan what no replica could help with.
pub fn fetch(
    backend: &dyn Backend,
    replicas: &[Arc<dyn Backend>],
    steps: FetchPlan,
    plan: &mut RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<FetchOutcome, RepositoryError> {
    let mut outcome = FetchOutcome::default();
    let lengths = replicas.iter().map(|replica| arena_bytes_of(&**replica));
    let arena_bytes = lengths.max().unwrap_or(0);
    let limits = &SizeLimits::DEFAULT;
    let flights = replicas.iter().map(|replica| Flight::between(backend, &**replica, limits));
    let flight = flights.max_by_key(|flight| flight.requests);
    let flight = flight.unwrap_or_else(|| Flight::between(backend, backend, limits));
    let mut progress = Progress {
        files_total: Some(steps.steps.len() as u64),
        bytes_total: Some(steps.steps.iter().map(|step| step.bytes).sum()),
        ..Progress::default()
    };
    let info = |step: &FetchStep| ObjectInfo { name: step.name.clone(), bytes: step.bytes };
    // Snapshots wait until all that they need is there.
    let is_snapshot = |step: &FetchStep| step.name.folder() == SNAPSHOTS_FOLDER;
    let (snapshots, others): (Vec<_>, Vec<_>) = steps.steps.into_iter().partition(is_snapshot);
    for steps in [others, snapshots] {
        let objects: Vec<ObjectInfo> = steps.iter().map(info).collect();
        let steps: HashMap<ObjectName, FetchStep> =
            steps.into_iter().map(|step| (step.name.clone(), step)).collect();
        let work =
            |info: &ObjectInfo| fetch_one(backend, replicas, &steps[&info.name], arena_bytes);
        each_in_flight(&objects, flight, cancel, &work, &mut |info, got| {
            monitor.working_on(info.name.as_str().as_ref());
            let step = &steps[&info.name];
            outcome.fetched_bytes += got.fetched_bytes;
            match got.done {
                Ok(bytes) => {
                    match step.needed {
                        Needed::Damaged(_) => {
                            outcome.mended += 1;
                            outcome.damaged_bytes += bytes;
                        }
                        Needed::Missing | Needed::Before(_) => {
                            outcome.returned += 1;
                            outcome.returned_bytes += bytes;
                        }
                    }
                    // It has all that the damaged one had; that of an earlier generation may have more, and
                    // less.
                    if !matches!(step.needed, Needed::Before(_)) {
                        plan.steps.retain(|other| step.otherwise.as_ref() != Some(other));
                    }
                }
                Err(why) => {
                    let path = Some(info.name.as_str().as_ref());
                    let severity = Severity::Warning;
                    monitor.problem(Problem { severity, path, message: &why });
                    outcome.failed.push(info.name.clone());
                    if let Some(otherwise) = &step.otherwise
                        && !plan.steps.contains(otherwise)
                    {
                        plan.steps.push(otherwise.clone());
                    }
                }
            }
            progress.files += 1;
            progress.bytes += info.bytes;
            progress.bytes_stored += info.bytes;
            monitor.progress(&progress);
        })?;
    }
    Ok(outcome)
}

/// Fetches what replicas have of arenas that lack something which a snapshot needs: those that a
/// collection removed before the snapshot came from another copy, and generations that a repair has
/// saved a part of. An arena is the union of its generations, so each one that comes back adds to it.
pub fn fetch_needed(
    repository: &Repository,
    replicas: &[Arc<dyn Backend>],
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<FetchOutcome, RepositoryError> {
    let mut outcome = FetchOutcome::default();
    let backend = repository.backend();
    let mut tried = HashSet::new();
    let mut there = BTreeMap::new();
    for replica in replicas {
        there.extend(
            list(&**replica, ARENAS_FOLDER)?.into_iter().map(|info| (info.name, info.bytes)),
        );
    }
    loop {
        let in_need = arenas_in_need(repository, monitor, cancel)?;
        let here = list(backend, ARENAS_FOLDER)?.into_iter().map(|info| info.name);
        let here: HashSet<ObjectName> = here.collect();
        let is_wanted = |name: &ObjectName| {
            ArenaName::of(name).is_some_and(|arena| in_need.contains(&arena.id))
                && !here.contains(name)
        };
        let wanted = there.iter().filter(|(name, _)| is_wanted(name));
        let mut steps = FetchPlan::default();
        for (name, bytes) in wanted.filter(|(name, _)| tried.insert((*name).clone())) {
            let (name, needed) = (name.clone(), Needed::Missing);
            steps.steps.push(FetchStep { name, needed, bytes: *bytes, otherwise: None });
        }
        if steps.steps.is_empty() {
            return Ok(outcome);
        }
        outcome.add(fetch(backend, replicas, steps, &mut RepairPlan::default(), monitor, cancel)?);
    }
}

/// What became of one object.
struct Got {
    fetched_bytes: u64,
    /// The bytes that were damaged or missing; or why no replica helped.
    done: Result<u64, String>,
}

fn fetch_one(
    backend: &dyn Backend,
    replicas: &[Arc<dyn Backend>],
    step: &FetchStep,
    arena_bytes: u32,
) -> Result<Got, RepositoryError> {
    let name = &step.name;
    let (damaged, is_gone) = match read_whole(backend, name, arena_bytes) {
        Ok(object) => (object.bytes, false),
        Err(error) if error.is_not_found() => (Vec::new(), true),
        Err(error) if error.is_damage() => (Vec::new(), false),
        Err(error) => return Err(error.into()),
    };
    let bytes_max = bytes_max_of(name, arena_bytes);
    let is_wanted = |header: &_| is_as_named(name, header);
    let mut fetched_bytes = 0;
    for replica in replicas {
        let got = fetch_from(&**replica, name, &damaged, &is_wanted, bytes_max)?;
        let Some(got) = got else { continue };
        fetched_bytes += got.fetched_bytes;
        let is_missing = !matches!(step.needed, Needed::Damaged(_));
        let done = if is_gone {
            match create(backend, name, &got.object) {
                Err(BackendError::AlreadyExists { .. }) => {
                    Mended::No("it has come back meanwhile".to_owned())
                }
                other => {
                    other?;
                    Mended::Yes
                }
            }
        } else {
            replace(backend, name, &got.object)?
        };
        if let Mended::No(why) = done {
            return Ok(Got { fetched_bytes, done: Err(why) });
        }
        let length = got.object.len() as u64;
        let bytes = if is_missing { length } else { got.damaged_bytes.min(length) };
        return Ok(Got { fetched_bytes, done: Ok(bytes) });
    }
    let why = "no replica has it whole".to_owned();
    Ok(Got { fetched_bytes, done: Err(why) })
}
