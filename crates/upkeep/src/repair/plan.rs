//! What a repair is going to do: a value that can be printed, tested and thrown away.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_arena::envelope::format::HEADER_BYTES;
use strongroom_arena::envelope::newness;
use strongroom_arena::{ArenaName, envelope};
use strongroom_backend::{Backend, BackendError, ObjectName, Withheld};
use strongroom_base::{Cancel, Monitor, Progress};
use strongroom_repository::objects::{ASIDE_FOLDER, is_missed, list_objects, read_whole, twin};
use strongroom_repository::{RepositoryError, arena_bytes_of, refuse_newer};

use crate::health::fault::{Fault, look_whole};
use crate::health::lost::{LostSnapshot, Unrecognised};

/// One thing that a repair does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairStep {
    /// Compute lost shards again from parity.
    FromParity {
        /// The object.
        name: ObjectName,
        /// Damaged shards.
        lost_shards: usize,
    },
    /// Write the configuration or a key slot again from its second copy.
    FromCopy {
        /// The object.
        name: ObjectName,
        /// The copy.
        copy: ObjectName,
    },
    /// Put an object that is under another's name in its own place, if it proves to be what it
    /// says. Needs a key.
    PutBack {
        /// Where it belongs.
        name: ObjectName,
        /// Where it is.
        from: ObjectName,
    },
    /// Take a generation away that others planted over an arena. Needs a key.
    TakePlanted {
        /// The arena and the generation.
        arena: ArenaName,
    },
    /// Keep the blocks of an arena that still open. Needs a key.
    Rescue {
        /// The arena.
        arena: ArenaName,
        /// What is wrong with it.
        why: String,
    },
    /// Remove an object that is of no use: planted, or lost, and no snapshot names it. Needs the
    /// owner's key.
    TakeAway {
        /// The object.
        name: ObjectName,
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
    /// Objects that wait in an archive: nothing is known of them, and nothing is done to them.
    pub waiting: Vec<ObjectName>,
    /// Objects that say that a newer program made them. A plan that is made over the place of an open
    /// repository has only those that prove it; the others are damaged there.
    pub newer: Vec<ObjectName>,
    /// Snapshots that were removed and are to be committed again: added by
    /// [`plan_recovery`](super::plan_recovery), which needs a key.
    pub lost_snapshots: Vec<LostSnapshot>,
    /// Snapshots that were removed and cannot be made again yet.
    pub unrecognised: Vec<Unrecognised>,
}

impl RepairStep {
    /// Whether the object is whole afterwards, unless it is damaged further.
    pub fn is_sure(&self) -> bool {
        matches!(
            self,
            Self::FromParity { .. }
                | Self::FromCopy { .. }
                | Self::TakeAway { .. }
                | Self::TakePlanted { .. }
        )
    }

    /// The object that is to be whole afterwards.
    pub fn object(&self) -> ObjectName {
        match self {
            Self::FromParity { name, .. }
            | Self::FromCopy { name, .. }
            | Self::PutBack { name, .. }
            | Self::TakeAway { name, .. }
            | Self::Lost { name, .. } => name.clone(),
            Self::TakePlanted { arena } | Self::Rescue { arena, .. } => arena.object(),
        }
    }
}

/// Looks at every byte of every object and plans. Needs no key.
///
/// # Errors
///
/// Fails at the first object that this user, key or token may not read ([`Withheld::Forbidden`]): who
/// may not read cannot know what is damaged.
pub fn plan_repair(
    backend: &dyn Backend,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RepairPlan, RepositoryError> {
    refuse_newer(backend)?;
    let arena_bytes = arena_bytes_of(backend);
    let mut objects = list_objects(backend)?;
    objects.extend(backend.list(ASIDE_FOLDER)?);
    let mut progress = Progress {
        files_total: Some(objects.len() as u64),
        bytes_total: Some(objects.iter().map(|info| info.bytes).sum()),
        ..Progress::default()
    };
    let mut found = Found { arena_bytes, ..Found::default() };
    for info in objects {
        cancel.check()?;
        monitor.working_on(info.name.as_str().as_ref());
        match look_whole(backend, &info.name, arena_bytes) {
            Ok((object, fault)) => {
                if claims_newness(&object) {
                    found.newer.push(info.name.clone());
                }
                found.note(info.name, fault);
            }
            // Removed since it was listed: a session that ended.
            Err(error) if error.is_not_found() => {}
            Err(error) if error.withheld() == Some(Withheld::Archived) => {
                found.waiting.insert(info.name);
            }
            Err(error) => return Err(error.into()),
        }
        progress.files += 1;
        progress.bytes += info.bytes;
        monitor.progress(&progress);
    }
    let steps = found.steps(backend)?;
    let (objects, waiting) = (progress.files, found.waiting.into_iter().collect());
    Ok(RepairPlan {
        steps,
        objects,
        waiting,
        newer: found.newer,
        lost_snapshots: Vec::new(),
        unrecognised: Vec::new(),
    })
}

/// Whether an object says, at either end, that a newer program made it.
fn claims_newness(object: &[u8]) -> bool {
    let ends = [object.first_chunk::<HEADER_BYTES>(), object.last_chunk::<HEADER_BYTES>()];
    ends.into_iter().flatten().any(newness::claims_newness)
}

/// What was found in every object.
#[derive(Default)]
struct Found {
    arena_bytes: u32,
    /// Names of what is there: whole, and damaged in some way.
    faults: BTreeMap<ObjectName, Option<Fault>>,
    /// The same names in the order in which they were looked at.
    order: Vec<ObjectName>,
    /// Those that wait in an archive: they may be anything, and nothing takes their places.
    waiting: BTreeSet<ObjectName>,
    /// Those that say that a newer program made them.
    newer: Vec<ObjectName>,
}

impl Found {
    fn note(&mut self, name: ObjectName, fault: Option<Fault>) {
        // What a newer program made is not ours to judge, and so never in need of repair.
        let fault = fault.filter(|fault| *fault != Fault::Unknown);
        self.faults.insert(name.clone(), fault);
        self.order.push(name);
    }

    /// Whether an object is whole, or its parity makes it so.
    fn can_be_had(&self, name: &ObjectName) -> bool {
        self.faults.get(name).is_some_and(|fault| fault.as_ref().is_none_or(Fault::is_repairable))
    }

    fn steps(&self, backend: &dyn Backend) -> Result<Vec<RepairStep>, BackendError> {
        let mut steps = Vec::new();
        let (mut from_copies, mut put_backs) = (Vec::new(), Vec::new());
        for name in &self.order {
            if let Some(twin) = twin(name)
                && is_missed(&twin)
                && !self.faults.contains_key(&twin)
                && !self.waiting.contains(&twin)
                && self.can_be_had(name)
            {
                from_copies.push(RepairStep::FromCopy { name: twin, copy: name.clone() });
            }
            if let Some(Fault::Swapped { rightful }) = &self.faults[name]
                && twin(name).is_none()
                && twin(rightful).is_none()
                && !self.can_be_had(rightful)
                && !self.waiting.contains(rightful)
                && self.is_whole_elsewhere(backend, name)?
            {
                let (name, from) = (rightful.clone(), name.clone());
                put_backs.push(RepairStep::PutBack { name, from });
            }
        }
        let filled: BTreeSet<&ObjectName> = put_backs
            .iter()
            .filter_map(|step| match step {
                RepairStep::PutBack { name, .. } => Some(name),
                _ => None,
            })
            .collect();
        for name in &self.order {
            // A second try at what a repair had put aside is no loss.
            if name.folder() == ASIDE_FOLDER || filled.contains(name) {
                continue;
            }
            if let Some(fault) = &self.faults[name] {
                steps.push(self.step_for(name, fault));
            }
        }
        steps.extend(from_copies);
        steps.extend(put_backs);
        Ok(steps)
    }

    /// Whether an object under another's name is whole, or its parity makes it so.
    fn is_whole_elsewhere(
        &self,
        backend: &dyn Backend,
        name: &ObjectName,
    ) -> Result<bool, BackendError> {
        match read_whole(backend, name, self.arena_bytes) {
            Ok(object) => Ok(envelope::repair(&object.bytes).is_ok()),
            Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn step_for(&self, name: &ObjectName, fault: &Fault) -> RepairStep {
        if let Fault::Repairable { lost_shards } = fault {
            return RepairStep::FromParity { name: name.clone(), lost_shards: *lost_shards };
        }
        if let Some(copy) = twin(name)
            && self.can_be_had(&copy)
        {
            return RepairStep::FromCopy { name: name.clone(), copy };
        }
        let mut why = fault.to_string();
        if let Some(copy) = twin(name).filter(|copy| self.waiting.contains(copy)) {
            why.push_str(&format!("; its copy {copy} is {}", Withheld::Archived));
        }
        match ArenaName::of(name) {
            Some(arena) => RepairStep::Rescue { arena, why },
            None => RepairStep::Lost { name: name.clone(), why },
        }
    }
}
