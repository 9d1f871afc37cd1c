//! Repairs one object, and reports the result.

use strongroom_arena::envelope;
use strongroom_backend::{Backend, BackendError, DIRECTORY_IN_PLACE, ObjectName, remove_object};
use strongroom_base::{Monitor, Problem, Severity, SnapshotId};
use strongroom_repository::objects::{KEYS_FOLDER, read_whole, twin};

use crate::health::audit::Affected;
use crate::health::census::exists;

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairOutcome {
    /// Objects that are whole again, and those of no use that are gone.
    pub repaired: u64,
    /// Shards that were computed again.
    pub shards: u64,
    /// Objects that others had planted, or that nothing needs, and that are no more.
    pub taken_away: u64,
    /// Arenas of which a part was saved.
    pub rescued: u64,
    /// Snapshots that had been removed and were committed again.
    pub recovered: u64,
    /// Snapshots that could be committed again once no collection is open.
    pub recover_later: Vec<SnapshotId>,
    /// Arenas that were left as they are, because what they are mended with waits in an archive or
    /// is not readable by this key.
    pub postponed: Vec<ObjectName>,
    /// Objects that are lost.
    pub lost: Vec<ObjectName>,
    /// What interrupted writers had left behind.
    pub swept: usize,
    /// Arenas that the index was made again from.
    pub indexed: usize,
    /// Which files of which snapshots depend on what is lost.
    pub affected: Vec<Affected>,
}

impl RepairOutcome {
    /// Whether nothing was mended, and no object is lost.
    pub fn is_nothing(&self) -> bool {
        self.repaired == 0 && self.rescued == 0 && self.lost.is_empty()
    }
}

/// What became of an attempt.
pub enum Mended {
    /// It is whole.
    Yes,
    /// It was removed since it was looked at.
    Gone,
    /// It is as it was, and why.
    No(String),
}

/// Writes an object again as its own parity, or that of its copy, gives it. What was removed together with
/// its copy meanwhile stays away: a key that is withdrawn opens nothing again.
pub fn mend(
    backend: &dyn Backend,
    name: &ObjectName,
    source: &ObjectName,
    arena_bytes: u32,
) -> Result<Mended, BackendError> {
    // Of all that has a copy, only keys are ever taken back.
    let of_key = twin(name).filter(|_| name.folder() == KEYS_FOLDER);
    let twin = of_key.filter(|twin| exists(backend, twin));
    let object = match read_whole(backend, source, arena_bytes) {
        Err(error) if error.is_not_found() => return Ok(Mended::Gone),
        Err(error) if error.is_damage() => return Ok(Mended::No(error.to_string())),
        other => other?,
    };
    let mended = match envelope::repair(&object.bytes) {
        Ok(whole) => replace(backend, name, &whole)?,
        // Damaged further since the plan was made.
        Err(error) => return Ok(Mended::No(error.to_string())),
    };
    match twin {
        Some(twin) if is_withdrawn(backend, &twin)? => {
            remove_object(backend, name)?;
            Ok(Mended::Gone)
        }
        _ => Ok(mended),
    }
}

/// Whether an object that was there is gone for certain: one answer may be wrong, and what is removed for it is
/// perhaps the last copy of a key.
fn is_withdrawn(backend: &dyn Backend, name: &ObjectName) -> Result<bool, BackendError> {
    if exists(backend, name) {
        return Ok(false);
    }
    let listed = backend.list(name.folder())?;
    Ok(listed.iter().all(|info| info.name != *name) && !exists(backend, name))
}

/// Puts an object in its place, unless something is there that only a person can move away.
pub fn replace(
    backend: &dyn Backend,
    name: &ObjectName,
    bytes: &[u8],
) -> Result<Mended, BackendError> {
    match backend.replace(name, bytes) {
        Ok(()) => Ok(Mended::Yes),
        Err(error) if error.is_directory() => Ok(Mended::No(DIRECTORY_IN_PLACE.to_owned())),
        Err(error) => Err(error),
    }
}

/// Records what cannot be repaired.
pub fn lose(outcome: &mut RepairOutcome, name: &ObjectName, message: &str, monitor: &dyn Monitor) {
    let path = Some(name.as_str().as_ref());
    monitor.problem(Problem { severity: Severity::Damage, path, message });
    outcome.lost.push(name.clone());
}
