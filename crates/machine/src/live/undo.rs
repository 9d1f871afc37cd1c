//! Undoing: by the run itself, and by a later process after the run has died.

use std::path::Path;

use super::{GREETING_LIMIT, Machine, THAW_LIMIT, Undoing, store};
use crate::agent::{AgentError, Thaw, thaw_if_frozen};
use crate::error::MachineError;
use crate::intent::{Intent, StateFolder};
use crate::qmp::{Qmp, QmpError};
use crate::remains;

/// How long the agent may take for an answer.
const AGENT_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// What was undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    /// The snapshot that the dead run was to make.
    pub snapshot: Option<String>,
    /// The machine was paused by us, and runs again.
    pub is_resumed: bool,
    /// The guest was frozen, and is thawed.
    pub is_thawed: bool,
    /// Exports, nodes and devices of the machine.
    pub removed: Vec<String>,
    /// QEMU had ended, and everything in it with it.
    pub is_gone: bool,
}

impl Undone {
    /// True if there was nothing to undo.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Undoes everything that a dead run has left in a machine. May be repeated.
///
/// `monitor` may be absent if the state folder knows of a run. `agent` is asked in addition to the one
/// that the run used.
///
/// # Errors
///
/// A run is alive, or something cannot be undone.
pub fn undo(
    monitor: Option<&Path>,
    agent: Option<&Path>,
    state_folder: &Path,
) -> Result<Undone, MachineError> {
    let state = StateFolder::lock(state_folder)?;
    let intent: Option<Intent> = state.intent()?;
    let known = intent.as_ref().map(|intent| intent.monitor.as_path());
    let qmp = match monitor.or(known) {
        None => None,
        Some(socket) => match Qmp::connect(socket, GREETING_LIMIT) {
            Ok(qmp) => Some(qmp),
            Err(error) if error.is_gone() => None,
            Err(error) => return Err(error.into()),
        },
    };
    undo_by(qmp.as_ref(), &state, intent.as_ref(), agent)
}

/// `qmp` is absent if QEMU has ended.
fn undo_by(
    qmp: Option<&Qmp>,
    state: &StateFolder,
    intent: Option<&Intent>,
    agent: Option<&Path>,
) -> Result<Undone, MachineError> {
    let snapshot = intent.map(|intent| intent.snapshot.clone());
    let mut undone = Undone { snapshot, ..Undone::default() };
    let mut thaw = Ok(false);
    match qmp {
        Some(qmp) => {
            // What keeps the guest from working goes first.
            if let Some(intent) = intent {
                undone.is_resumed = end_pause(qmp, intent)?;
            }
            let agents = [intent.and_then(|intent| intent.agent.as_deref()), agent];
            thaw = thaw_all(&agents);
            if let Some(intent) = intent {
                check_store(intent)?;
            }
            undone.removed = remains::remove(qmp, intent)?;
            // QEMU has one server, so one with an export of ours was ours.
            let had_export = undone.removed.iter().any(|name| remains::is_export(name));
            let socket = state.socket()?;
            if socket.exists() || had_export {
                remains::stop_server(qmp)?;
                store::remove(&socket)?;
            }
        }
        None => undone.is_gone = intent.is_some(),
    }
    for disk in intent.iter().flat_map(|intent| &intent.disks) {
        store::remove(&disk.store)?;
    }
    state.remove_mounts()?;
    undone.is_thawed = thaw.map_err(MachineError::NotThawed)?;
    state.remove()?;
    Ok(undone)
}

/// Ends a migration of ours and has the machine run, if a run has stopped it: also if the settings of
/// the migration cannot be set back. Returns whether it was stopped.
fn end_pause(qmp: &Qmp, intent: &Intent) -> Result<bool, MachineError> {
    let restored = intent.migration.as_ref().map_or(Ok(()), |migration| migration.restore(qmp));
    let is_resumed = intent.is_pausing && remains::resume(qmp)?;
    restored?;
    Ok(is_resumed)
}

/// Fails if a store of a run hangs. A folder that is gone does not.
fn check_store(intent: &Intent) -> Result<(), MachineError> {
    let folder = intent.disks.first().and_then(|disk| disk.store.parent());
    folder.map_or(Ok(()), store::check_answers)
}

fn thaw_all(agents: &[Option<&Path>]) -> Result<bool, AgentError> {
    let mut is_thawed = false;
    for socket in agents.iter().flatten() {
        match thaw_if_frozen(socket, AGENT_LIMIT) {
            Ok(was_frozen) => is_thawed |= was_frozen,
            // Without its socket, the machine has no agent any more.
            Err(AgentError::Connect { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(is_thawed)
}

impl Machine {
    /// Undoes what a dead run left that this state folder knows of. Refuses if there is something that
    /// it does not know of.
    pub(super) fn undo_remains(&self, state: &StateFolder) -> Result<Undone, MachineError> {
        if let Some(intent) = state.intent::<Intent>()? {
            let undone = undo_by(Some(&self.qmp), state, Some(&intent), None);
            return match undone {
                // All else is undone. An agent that answers no more does not stop all backups.
                Err(MachineError::NotThawed(_)) => Ok(Undone::default()),
                other => other,
            };
        }
        match remains::find(&self.qmp)? {
            Some(found) => Err(MachineError::LeftBehind { found }),
            None => Ok(Undone::default()),
        }
    }
}

impl Undoing {
    /// Undoes a run that is alive.
    pub fn undo(&self) -> Result<(), MachineError> {
        let removed = || -> Result<(), MachineError> {
            end_pause(&self.qmp, &self.intent)?;
            check_store(&self.intent)?;
            remains::remove(&self.qmp, Some(&self.intent))?;
            let socket = self.state.socket()?;
            if socket.exists() {
                remains::stop_server(&self.qmp)?;
                store::remove(&socket)?;
            }
            Ok(())
        };
        match removed() {
            Ok(()) => {}
            // Everything has ended with it.
            Err(MachineError::Qmp(error)) if self.is_gone(&error) => {}
            Err(error @ MachineError::StoreHangs { .. }) => return Err(error),
            Err(error) => return Err(MachineError::NotUndone(error.to_string())),
        }
        for disk in &self.intent.disks {
            store::remove(&disk.store)?;
        }
        self.state.remove_mounts()?;
        if let Some(freezer) = &self.freezer
            && let Thaw::Unknown(error) = freezer.thaw(THAW_LIMIT)
        {
            return Err(MachineError::NotThawed(error));
        }
        self.state.remove()
    }

    /// True if QEMU has ended, and not only the connection to it.
    fn is_gone(&self, error: &QmpError) -> bool {
        let again = || Qmp::connect(&self.intent.monitor, GREETING_LIMIT);
        error.is_gone() && again().is_err_and(|error| error.is_gone())
    }
}
