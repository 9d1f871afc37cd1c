//! `repair`: what is damaged is computed anew; what cannot be is saved as far as it goes.
//!
//! First a plan is made, which can be printed and thrown away; carrying it out replaces objects
//! one by one, atomically, so that a repair that is cut short has repaired what it has. Parity
//! comes first and needs no key, then objects that stand under each other's names and the second
//! copies of small ones, then what single blocks are left of arenas beyond parity. What is lost even so is named, file by file; the next backup
//! takes it from the source again, and that heals every snapshot that shows it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use strongroom_arena::scan::rescue;
use strongroom_arena::{ARENAS_FOLDER, CacheLimits, StoredChunk, arena_object, envelope};
use strongroom_backend::{Backend, BackendError, ObjectName, read_all};
use strongroom_base::{ArenaId, Cancel, Monitor, Problem, Progress, Severity};
use strongroom_catalog::ChunkRef;
use strongroom_repository::objects::{copy_of, list_objects, original_of, twin};
use strongroom_repository::{ChunkIndex, ChunkReader, Repository, list_snapshots, refuse_newer};

use crate::error::EngineError;
use crate::health::audit::{Affected, audit};
use crate::health::bad::{BadPlaces, is_good};
use crate::health::fault::{Fault, look_whole};

/// One thing that a repair does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairStep {
    /// Compute lost shards anew from parity.
    FromParity {
        /// The object.
        name: ObjectName,
        /// Damaged shards.
        lost_shards: usize,
    },
    /// Copy an object that stands under another's name, so that its own place can be filled.
    PutAside {
        /// The object whose place it has.
        name: ObjectName,
        /// What it is.
        rightful: ObjectName,
    },
    /// Write an object anew from its second copy.
    FromCopy {
        /// The object.
        name: ObjectName,
        /// The copy.
        copy: ObjectName,
    },
    /// Keep the blocks of an arena that still open. Needs a key.
    Rescue {
        /// The arena.
        arena: ArenaId,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing can be done.
    Lost {
        /// The object.
        name: ObjectName,
        /// What is wrong with it.
        why: String,
    },
}

/// What a repair is going to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairPlan {
    /// In the order in which it is done.
    pub steps: Vec<RepairStep>,
    /// Objects looked at.
    pub objects: u64,
}

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairOutcome {
    /// Objects that are whole again.
    pub repaired: u64,
    /// Shards that were computed anew.
    pub shards: u64,
    /// Arenas of which a part was saved.
    pub rescued: u64,
    /// Objects that are lost.
    pub lost: Vec<ObjectName>,
    /// What interrupted writers had left behind.
    pub swept: usize,
    /// Arenas that the index was made anew from.
    pub indexed: usize,
    /// Which files of which snapshots hang on what is lost.
    pub affected: Vec<Affected>,
}

/// Looks at every byte of every object and plans. Needs no key.
pub fn plan_repair(
    backend: &dyn Backend,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepairPlan, EngineError> {
    refuse_newer(backend)?;
    let objects = list_objects(backend)?;
    let mut progress = Progress {
        files_total: Some(objects.len() as u64),
        bytes_total: Some(objects.iter().map(|info| info.bytes).sum()),
        ..Progress::default()
    };
    let mut plan = RepairPlan::default();
    let mut faults = Vec::new();
    for info in &objects {
        cancel.check()?;
        monitor.working_on(info.name.as_str().as_ref());
        match look_whole(backend, &info.name) {
            Ok((_, None | Some(Fault::Unknown))) => {}
            Ok((_, Some(fault))) => faults.push((&info.name, fault)),
            // Removed since it was listed: a session that ended.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        plan.objects += 1;
        progress.files += 1;
        progress.bytes += info.bytes;
        monitor.progress(&progress);
    }
    let stands: BTreeSet<&ObjectName> = objects.iter().map(|info| &info.name).collect();
    let faulty: BTreeSet<&ObjectName> = faults.iter().map(|(name, _)| *name).collect();
    let is_right = |name: &ObjectName| stands.contains(name) && !faulty.contains(name);
    let mut copies: BTreeMap<ObjectName, ObjectName> = BTreeMap::new();
    for (name, fault) in &faults {
        if let Fault::Swapped { rightful } = fault
            && twin(name).is_none()
            && !is_right(rightful)
            && envelope::repair(&read_all(backend, name)?).is_ok()
        {
            let (name, rightful) = ((*name).clone(), rightful.clone());
            copies.insert(rightful.clone(), copy_of(&rightful));
            plan.steps.push(RepairStep::PutAside { name, rightful });
        }
    }
    for info in &objects {
        let missing = twin(&info.name).filter(|twin| !stands.contains(twin));
        // A copy that a repair has put aside which was then cut short.
        let aside = original_of(&info.name).filter(|_| twin(&info.name).is_none());
        if let Some(name) = missing.or(aside)
            && can_be_had(backend, &info.name)?
        {
            copies.insert(name, info.name.clone());
        }
    }
    for (name, fault) in faults {
        if !copies.contains_key(name) {
            plan.steps.push(step_for(backend, name, fault)?);
        }
    }
    let from_copy = |(name, copy)| RepairStep::FromCopy { name, copy };
    plan.steps.extend(copies.into_iter().map(from_copy));
    Ok(plan)
}

fn step_for(
    backend: &dyn Backend,
    name: &ObjectName,
    fault: Fault,
) -> Result<RepairStep, BackendError> {
    if let Fault::Repairable { lost_shards } = fault {
        return Ok(RepairStep::FromParity { name: name.clone(), lost_shards });
    }
    if let Some(copy) = twin(name)
        && can_be_had(backend, &copy)?
    {
        return Ok(RepairStep::FromCopy { name: name.clone(), copy });
    }
    let why = fault.to_string();
    match name.file().parse::<ArenaId>() {
        Ok(arena) if name.folder() == ARENAS_FOLDER => Ok(RepairStep::Rescue { arena, why }),
        _ => Ok(RepairStep::Lost { name: name.clone(), why }),
    }
}

/// True for an object that is whole, or that parity can make whole.
fn can_be_had(backend: &dyn Backend, name: &ObjectName) -> Result<bool, BackendError> {
    match look_whole(backend, name) {
        Ok((_, fault)) => {
            Ok(matches!(fault, None | Some(Fault::Repairable { .. } | Fault::Unknown)))
        }
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Carries out what needs no key; arenas beyond parity are left as they are.
pub fn repair_objects(
    backend: &dyn Backend,
    plan: &RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepairOutcome, EngineError> {
    let mut outcome = RepairOutcome { swept: backend.sweep()?, ..RepairOutcome::default() };
    for step in &plan.steps {
        cancel.check()?;
        match step {
            RepairStep::FromParity { name, lost_shards } => {
                let object = read_all(backend, name)?;
                match envelope::repair(&object) {
                    Ok(repaired) => {
                        backend.replace(name, &repaired)?;
                        outcome.repaired += 1;
                        outcome.shards += *lost_shards as u64;
                    }
                    // Damaged further since the plan was made.
                    Err(error) => lose(&mut outcome, name, &error.to_string(), monitor),
                }
            }
            RepairStep::PutAside { name, rightful } => {
                match envelope::repair(&read_all(backend, name)?) {
                    Ok(whole) => backend.replace(&copy_of(rightful), &whole)?,
                    Err(error) => lose(&mut outcome, name, &error.to_string(), monitor),
                }
            }
            RepairStep::FromCopy { name, copy } => {
                // The copy may be damaged itself, within what its parity can undo.
                match envelope::repair(&read_all(backend, copy)?) {
                    Ok(whole) => {
                        backend.replace(name, &whole)?;
                        outcome.repaired += 1;
                        if twin(name).is_none() {
                            backend.remove(copy)?;
                        }
                    }
                    Err(error) => lose(&mut outcome, name, &error.to_string(), monitor),
                }
            }
            RepairStep::Rescue { arena, why } => {
                lose(&mut outcome, &arena_object(*arena), why, monitor);
            }
            RepairStep::Lost { name, why } => lose(&mut outcome, name, why, monitor),
        }
    }
    Ok(outcome)
}

fn lose(outcome: &mut RepairOutcome, name: &ObjectName, message: &str, monitor: &dyn Monitor) {
    let path = Some(name.as_str().as_ref());
    monitor.problem(Problem { severity: Severity::Damage, path, message });
    outcome.lost.push(name.clone());
}

/// Carries out a plan, makes the index anew, and names what stays lost.
pub fn repair(
    repository: &Repository,
    plan: &RepairPlan,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepairOutcome, EngineError> {
    let (mut rescues, mut keyless) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        match step {
            RepairStep::Rescue { arena, why } => rescues.push((*arena, why.as_str())),
            other => keyless.push(other.clone()),
        }
    }
    let keyless = RepairPlan { steps: keyless, objects: plan.objects };
    let mut outcome = repair_objects(repository.backend(), &keyless, monitor, cancel)?;
    let reader = ChunkReader::new(repository, CacheLimits::default())?;
    let mut bad = BadPlaces::default();
    // A delta is saved only where its base can be read, and that may have to be saved first.
    let mut postponed = Vec::new();
    for (arena, why) in rescues {
        cancel.check()?;
        let rescue = Rescue { arena, why };
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
    index.flush(monitor);
    drop(index);
    let list = list_snapshots(repository)?;
    let mut is_good = |chunk: &ChunkRef| is_good(&reader, &bad, chunk);
    outcome.affected = audit(&reader, &list.snapshots, &mut is_good, monitor, cancel)?.0;
    Ok(outcome)
}

/// An arena of which a part is to be saved.
struct Rescue<'p> {
    arena: ArenaId,
    why: &'p str,
}

/// Arenas whose deltas cannot be read in the first turn are left for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Last,
}

impl Rescue<'_> {
    /// Puts the next generation of the arena, with what could be saved, in the place of the broken
    /// one. False where it is left for the last turn.
    fn run(
        &self,
        repository: &Repository,
        reader: &ChunkReader,
        outcome: &mut RepairOutcome,
        bad: &mut BadPlaces,
        monitor: &dyn Monitor,
        turn: Turn,
    ) -> Result<bool, EngineError> {
        let (arena, why) = (self.arena, self.why);
        let name = arena_object(arena);
        let object = read_all(repository.backend(), &name)?;
        let keys = repository.write_keys();
        let redundancy = repository.redundancy();
        let mut unread = 0;
        let mut expand = |stored: StoredChunk<'_>| {
            let expanded = reader.expand(stored).ok().map(Cow::into_owned);
            unread += u32::from(expanded.is_none());
            expanded
        };
        let rescued = rescue(reader.store(), arena, &object, keys, redundancy, &mut expand);
        if turn == Turn::First && unread > 0 {
            return Ok(false);
        }
        let Ok(rescued) = rescued else {
            bad.add_broken(arena, &object, reader, keys);
            lose(outcome, &name, why, monitor);
            return Ok(true);
        };
        repository.backend().replace(&name, rescued.arena.object())?;
        reader.store().forget(arena);
        match rescued.blocks_saved {
            0 => lose(outcome, &name, why, monitor),
            blocks => {
                outcome.rescued += 1;
                monitor.detail(&format!("{name}: {blocks} blocks saved ({why})"));
            }
        }
        Ok(true)
    }
}
