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

use strongroom_arena::envelope::{self, fetch_from};
use strongroom_arena::{ARENAS_FOLDER, ArenaName, CacheLimits};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName};
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity, SizeLimits, SnapshotId};
use strongroom_repository::objects::{
    ARRIVALS_FOLDER, COLLECTIONS_FOLDER, COPY, ENDED_FOLDER, FORGOTTEN_FOLDER, KEYS_FOLDER,
    REMARKS_FOLDER, SNAPSHOTS_FOLDER, VOUCHERS_FOLDER, bytes_max_of, is_as_named, read_whole, twin,
};
use strongroom_repository::{
    Collections, Repository, RepositoryError, Wishes, arena_bytes_of, read_vouchers,
};

use super::judge::{Judge, is_no_arena};
use super::mend::{Mended, replace};
use super::plan::{RepairPlan, RepairStep};
use crate::flight::{Flight, each_in_flight};
use crate::reader::reader_of_everything;
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

/// More bytes than a key slot has.
const SLOT_BYTES_MAX: usize = 1 << 20;

/// Why an object is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// It is damaged beyond its parity, and how.
    Damaged(String),
    /// It does not exist.
    Missing,
    /// A later generation of the arena is damaged beyond its parity.
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
    /// The object whose bytes are in its place: it comes first, because they may be the only ones.
    after: Option<ObjectName>,
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
    // The rest waits for the key, which says whether it is right.
    let is_vital = |folder: &str| matches!(folder, "" | KEYS_FOLDER | COLLECTIONS_FOLDER);
    let is_due = |name: &ObjectName| is_vital(name.folder()) || !matches!(known, Known::NotYet);
    let has_key = !matches!(known, Known::Nothing);
    take_damaged(plan, &there, &is_due, has_key, &mut found);
    leave_withdrawn(backend, plan, &mut found)?;
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
        if !is_vital(folder) && matches!(known, Known::NotYet) {
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
                found.steps.push(FetchStep::of_missing(name, *bytes));
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

/// Moves the steps for damaged objects that are due and that a replica has too.
fn take_damaged(
    plan: &mut RepairPlan,
    there: &BTreeMap<ObjectName, u64>,
    is_due: &dyn Fn(&ObjectName) -> bool,
    has_key: bool,
    found: &mut FetchPlan,
) {
    // What is in the place of another is read before anything is written over it.
    let put_back = plan.steps.iter().filter_map(|step| match step {
        RepairStep::PutBack { name, from } => Some((from.clone(), name.clone())),
        _ => None,
    });
    let put_back: HashMap<ObjectName, ObjectName> = put_back.collect();
    plan.steps.retain(|step| {
        let why = match step {
            RepairStep::Rescue { why, .. } | RepairStep::Lost { why, .. } => why.clone(),
            // Of objects in each other's places a repair puts both back, if there is a key.
            RepairStep::PutBack { name, .. } if has_key && put_back.contains_key(name) => {
                return true;
            }
            RepairStep::PutBack { .. } => "another object is in its place".to_owned(),
            RepairStep::FromParity { .. }
            | RepairStep::FromCopy { .. }
            | RepairStep::TakeAway { .. }
            | RepairStep::TakePlanted { .. } => return true,
        };
        let name = step.object();
        let is_put_back = matches!(step, RepairStep::PutBack { .. });
        let after = put_back.get(&name).filter(|_| !is_put_back).cloned();
        let is_kept =
            !is_due(&name) || after.as_ref().is_some_and(|after| !there.contains_key(after));
        let Some(bytes) = there.get(&name).filter(|_| !is_kept) else { return true };
        let (bytes, otherwise) = (*bytes, Some(step.clone()));
        found.steps.push(FetchStep { name, needed: Needed::Damaged(why), bytes, otherwise, after });
        false
    });
}

/// Leaves key slots in the replicas that may have been withdrawn: nothing says that the rubbish which is
/// here under the name of one was that slot.
fn leave_withdrawn(
    backend: &dyn Backend,
    plan: &mut RepairPlan,
    found: &mut FetchPlan,
) -> Result<(), RepositoryError> {
    let is_slot = |step: &FetchStep| step.name.folder() == KEYS_FOLDER;
    let slots = list(backend, KEYS_FOLDER)?.into_iter().map(|info| info.name);
    let is_damaged = |name: &ObjectName| {
        found.steps.iter().any(|step| step.name == *name)
            || plan.steps.iter().any(|step| step.object() == *name)
    };
    if !slots.into_iter().any(|name| !is_damaged(&name)) {
        return Ok(());
    }
    let mut left = Vec::new();
    for step in std::mem::take(&mut found.steps) {
        let has_header = || match backend.read(&step.name, 0, SLOT_BYTES_MAX) {
            Ok(object) => Ok(envelope::salvage(&object).is_ok()),
            Err(error) if error.is_not_found() => Ok(false),
            // What the medium refuses was not written over.
            Err(error) if error.is_damage() => Ok(true),
            Err(error) => Err(error),
        };
        if !is_slot(&step) || has_header()? {
            left.push(step);
            continue;
        }
        plan.steps.extend(step.otherwise);
        found.withdrawn.push(step.name);
    }
    found.steps = left;
    Ok(())
}

impl FetchStep {
    fn of_missing(name: ObjectName, bytes: u64) -> Self {
        Self { name, needed: Needed::Missing, bytes, otherwise: None, after: None }
    }
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
                let (needed, otherwise) = (Needed::Before(later), Some(step));
                FetchStep { name, needed, bytes, otherwise, after: None }
            }
            _ => FetchStep::of_missing(name, bytes),
        }
    });
    steps.collect()
}

/// Fetches, and gives back to the repair's plan what no replica could help with. With a key, an object whose
/// header cannot be read because the medium refuses it is replaced by a copy that proves to be it, and by no
/// other; so is one with the header of another object, of which nothing opens that the copy has not.
pub fn fetch(
    backend: &dyn Backend,
    replicas: &[Arc<dyn Backend>],
    steps: FetchPlan,
    plan: &mut RepairPlan,
    repository: Option<&Repository>,
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
    let stage = |step: &FetchStep| (step.name.folder() == SNAPSHOTS_FOLDER, step.after.is_some());
    let mut stages: BTreeMap<_, Vec<FetchStep>> = BTreeMap::new();
    steps.steps.into_iter().for_each(|step| stages.entry(stage(&step)).or_default().push(step));
    let reader = repository.map(|repository| -> Result<_, RepositoryError> {
        let reader = reader_of_everything(repository, CacheLimits::default())?;
        reader.store().trust(read_vouchers(repository)?);
        Ok((repository, reader))
    });
    let key = reader.transpose()?;
    let judge = key.as_ref().map(|(repository, reader)| Judge { repository, reader });
    for steps in stages.into_values() {
        let (steps, left): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| {
            step.after.as_ref().is_none_or(|after| !outcome.failed.contains(after))
        });
        for step in left {
            plan.steps.extend(step.otherwise);
            outcome.failed.push(step.name);
        }
        let objects: Vec<ObjectInfo> = steps.iter().map(info).collect();
        let steps: HashMap<ObjectName, FetchStep> =
            steps.into_iter().map(|step| (step.name.clone(), step)).collect();
        let work = |info: &ObjectInfo| {
            fetch_one(backend, replicas, &steps[&info.name], arena_bytes, judge.as_ref())
        };
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
        let mut steps = FetchPlan::default();
        for (name, bytes) in &there {
            let arena = ArenaName::of(name).filter(|arena| in_need.contains(&arena.id));
            let Some(arena) = arena.filter(|_| tried.insert(name.clone())) else { continue };
            let step = FetchStep::of_missing(name.clone(), *bytes);
            // A place may list what it does not have.
            let is_listed = here.contains(name);
            if !is_listed || backend.size(name).is_err_and(|error| error.is_not_found()) {
                steps.steps.push(step);
            } else if is_no_arena(repository, arena)? {
                // Its envelope may be whole, so nothing is wrong with it without a key.
                let needed = Needed::Damaged("it does not open".to_owned());
                steps.steps.push(FetchStep { needed, ..step });
            }
        }
        if steps.steps.is_empty() {
            return Ok(outcome);
        }
        let plan = &mut RepairPlan::default();
        outcome.add(fetch(backend, replicas, steps, plan, Some(repository), monitor, cancel)?);
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
    judge: Option<&Judge<'_>>,
) -> Result<Got, RepositoryError> {
    let name = &step.name;
    let (damaged, is_gone, is_refused) = match read_whole(backend, name, arena_bytes) {
        Ok(object) => (object.bytes, false, object.refused_bytes > 0),
        Err(error) if error.is_not_found() => (Vec::new(), true, false),
        Err(error) if error.is_damage() => (Vec::new(), false, true),
        Err(error) => return Err(error.into()),
    };
    // What the medium refuses today may be another object, and may be read tomorrow.
    let is_unknown = is_refused && envelope::salvage(&damaged).is_err();
    let bytes_max = bytes_max_of(name, arena_bytes);
    let is_wanted = |header: &_| is_as_named(name, header);
    let mut fetched_bytes = 0;
    // First the lost parts of what is here; then, if that is another object, all of the right one.
    let ways = replicas.iter().map(|replica| (replica, false));
    let left = envelope::salvage(&damaged);
    let is_there = judge.is_some() && !is_refused && left.is_ok_and(|left| is_wanted(&left.header));
    let ways = ways.chain(replicas.iter().map(|replica| (replica, true)).filter(|_| is_there));
    for (replica, is_another) in ways {
        let left = if is_another { &[] } else { &damaged[..] };
        let got = fetch_from(&**replica, name, left, &is_wanted, bytes_max)?;
        let Some(got) = got else { continue };
        fetched_bytes += got.fetched_bytes;
        if is_unknown && judge.is_some_and(|judge| !judge.admits(name, &got.object)) {
            continue;
        }
        if is_another {
            let is_right = judge.is_some_and(|key| key.supersedes(name, &damaged, &got.object));
            // One reading may be wrong.
            let again = read_whole(backend, name, arena_bytes);
            if !is_right || !again.is_ok_and(|again| again.bytes == damaged) {
                continue;
            }
        }
        let is_missing = !matches!(step.needed, Needed::Damaged(_));
        if let Mended::No(why) = put(backend, name, &got.object, is_gone)? {
            return Ok(Got { fetched_bytes, done: Err(why) });
        }
        let length = got.object.len() as u64;
        let bytes = if is_missing { length } else { got.damaged_bytes.min(length) };
        return Ok(Got { fetched_bytes, done: Ok(bytes) });
    }
    let why = "no replica has it whole".to_owned();
    Ok(Got { fetched_bytes, done: Err(why) })
}

/// Stores what was fetched; over what is there only if something was.
fn put(
    backend: &dyn Backend,
    name: &ObjectName,
    object: &[u8],
    is_gone: bool,
) -> Result<Mended, BackendError> {
    if !is_gone {
        return replace(backend, name, object);
    }
    match create(backend, name, object) {
        Err(BackendError::AlreadyExists { .. }) => {
            Ok(Mended::No("it has come back meanwhile".to_owned()))
        }
        other => other.map(|()| Mended::Yes),
    }
}
