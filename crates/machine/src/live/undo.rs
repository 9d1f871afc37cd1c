//! Undoing: by the run itself, and by a later process after the run has died.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::{GREETING_LIMIT, Machine, Undoing, store};
use crate::agent::{AgentError, PATIENCE, Thaw, thaw_if_frozen};
use crate::error::MachineError;
use crate::intent::{Intent, StateFolder};
use crate::qmp::{Qmp, QmpError};
use crate::remains::{self, Exchanged};

/// How long the agent may take for an answer.
const AGENT_LIMIT: Duration = Duration::from_secs(10);
/// How often it is asked whether QEMU is still there, while a guest does not thaw.
const THAW_TICK: Duration = Duration::from_secs(5);
/// How long it is between two attempts.
const AGAIN: Duration = Duration::from_secs(1);

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
    /// Disks that another program had given another image; they keep it.
    pub exchanged: Vec<Exchanged>,
    /// The machine is paused. Something of ours was in it, but nothing is written down of the run that
    /// has put it there, so it is not known who paused the machine.
    pub is_paused: bool,
    /// QEMU had ended, and everything in it with it.
    pub is_gone: bool,
}

impl Undone {
    /// True if something was undone of which nothing is written down here. Whether the guest was frozen is
    /// known only if its agent was named.
    pub fn is_of_unknown_run(&self) -> bool {
        self.snapshot.is_none() && !self.removed.is_empty()
    }

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
    let (undone, unthawed) = undo_by(qmp.as_ref(), &state, intent.as_ref(), agent)?;
    match unthawed.into_iter().next() {
        Some(Unthawed { error, .. }) => Err(MachineError::NotThawed(error)),
        None => Ok(undone),
    }
}

/// An agent that does not say that its guest is thawed.
struct Unthawed {
    socket: PathBuf,
    error: AgentError,
}

/// Undoes all that can be undone, and returns the agents whose guest may be frozen still; then the intent
/// stays. `qmp` is absent if QEMU has ended.
fn undo_by(
    qmp: Option<&Qmp>,
    state: &StateFolder,
    intent: Option<&Intent>,
    agent: Option<&Path>,
) -> Result<(Undone, Vec<Unthawed>), MachineError> {
    let snapshot = intent.map(|intent| intent.snapshot.clone());
    let mut undone = Undone { snapshot, ..Undone::default() };
    let mut unthawed = Vec::new();
    match qmp {
        Some(qmp) => {
            // What keeps the guest from working goes first, both even if one of them fails.
            let ended = intent.map_or(Ok(false), |intent| end_pause(qmp, intent));
            let known = intent.into_iter().flat_map(Intent::agents);
            // Earlier versions wrote down what is a path in the folder of the run alone.
            let known = known.filter(|known| known.is_absolute() || agent.is_none());
            (undone.is_thawed, unthawed) = thaw_all(qmp, known.chain(agent));
            undone.is_resumed = ended?;
            if let Some(intent) = intent {
                check_store(intent)?;
            }
            let removed = remains::remove(qmp, intent)?;
            (undone.removed, undone.exchanged) = (removed.names, removed.exchanged);
            undone.is_paused = undone.is_of_unknown_run() && remains::is_paused(qmp)?;
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
    if unthawed.is_empty() {
        state.remove()?;
    }
    Ok((undone, unthawed))
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

/// Has these agents thaw. Returns whether one did, and those that do not say it.
fn thaw_all<'s>(qmp: &Qmp, sockets: impl Iterator<Item = &'s Path>) -> (bool, Vec<Unthawed>) {
    let (mut is_thawed, mut unthawed) = (false, Vec::new());
    for socket in sockets {
        match thaw_if_frozen(socket, AGENT_LIMIT) {
            Ok(was_frozen) => is_thawed |= was_frozen,
            Err(AgentError::Connect { .. }) if has_no_such_agent(qmp, socket) => {}
            Err(error) => unthawed.push(Unthawed { socket: socket.to_owned(), error }),
        }
    }
    (is_thawed, unthawed)
}

/// Whether QEMU has no device with this socket: it was started again, with other ones, since it was
/// written down. That no connection comes about shows nothing.
fn has_no_such_agent(qmp: &Qmp, socket: &Path) -> bool {
    if socket.is_relative() {
        return false;
    }
    let Some(name) = socket.file_name().and_then(|name| name.to_str()) else { return false };
    let Ok(devices) = qmp.execute("query-chardev", serde_json::Value::Null) else { return false };
    let mut devices = devices.as_array().into_iter().flatten();
    // Such as `disconnected:unix:/run/vm1/qga.sock,server=on`.
    devices.all(|device| {
        device["filename"].as_str().is_some_and(|shown| {
            let mut words = shown.split([':', ',', '/']);
            words.all(|word| word != name)
        })
    })
}

/// Tries again for [`PATIENCE`] as long as there was no answer: what was asked for before may be
/// carried out yet, and then no process is there any more to undo it.
pub fn patiently<T>(
    attempt: &mut dyn FnMut() -> Result<T, MachineError>,
    is_late: &dyn Fn(&MachineError) -> bool,
) -> Result<T, MachineError> {
    let waited = Stopwatch::start();
    loop {
        match attempt() {
            Err(error) if is_late(&error) && waited.elapsed() < PATIENCE => {
                std::thread::sleep(AGAIN);
            }
            ended => return ended,
        }
    }
}

impl Machine {
    /// Undoes what a dead run left that this state folder knows of. Refuses if there is something that
    /// it does not know of. Returns the agents whose guest may be frozen still: one that answers no more
    /// does not stop all backups, and is asked again by each.
    pub(super) fn undo_remains(&self, state: &StateFolder) -> Result<Vec<PathBuf>, MachineError> {
        if let Some(intent) = state.intent::<Intent>()? {
            let (_, unthawed) = undo_by(Some(&self.qmp), state, Some(&intent), None)?;
            return Ok(unthawed.into_iter().map(|agent| agent.socket).collect());
        }
        match remains::find(&self.qmp)? {
            Some(found) => Err(MachineError::LeftBehind { found }),
            None => Ok(Vec::new()),
        }
    }
}

impl Undoing {
    /// Undoes a run that is alive. If the machine or the agent does not answer, this waits until they
    /// do: they may pause the machine, or freeze the guest, after all. Returns the disks that another
    /// program has given another image.
    pub fn undo(&self) -> Result<Vec<Exchanged>, MachineError> {
        if let Some(freezer) = &self.freezer {
            // Its thread begins. A guest that is paused cannot answer it yet.
            freezer.thaw(Duration::ZERO);
        }
        let is_late =
            |error: &MachineError| matches!(error, MachineError::Qmp(error) if error.is_late());
        let ended = patiently(&mut || end_pause(&self.qmp, &self.intent), &is_late);
        let removed = ended.and_then(|_| self.remove());
        let thawed = self.thaw();
        let sockets = self.intent.unthawed.iter().map(PathBuf::as_path);
        let (_, unthawed) = thaw_all(&self.qmp, sockets);
        let exchanged = match removed {
            Ok(exchanged) => exchanged,
            // Everything has ended with it.
            Err(MachineError::Qmp(error)) if self.is_gone(&error) => Vec::new(),
            Err(error @ (MachineError::StoreHangs { .. } | MachineError::NotUndone(_))) => {
                return Err(error);
            }
            Err(error) => return Err(MachineError::NotUndone(error.to_string())),
        };
        for disk in &self.intent.disks {
            store::remove(&disk.store)?;
        }
        self.state.remove_mounts()?;
        thawed.map_err(MachineError::NotThawed)?;
        let Some(Unthawed { error, .. }) = unthawed.first() else {
            self.state.remove()?;
            return Ok(exchanged);
        };
        let error = MachineError::NotThawed(error.clone());
        self.state.write(&Intent {
            agent: None,
            unthawed: unthawed.into_iter().map(|agent| agent.socket).collect(),
            is_pausing: false,
            migration: None,
            disks: Vec::new(),
            ..self.intent.clone()
        })?;
        Err(error)
    }

    /// Waits until the guest is thawed, for as long as the thread that thaws it goes on.
    fn thaw(&self) -> Result<(), AgentError> {
        let Some(freezer) = &self.freezer else { return Ok(()) };
        loop {
            match freezer.thaw(THAW_TICK) {
                Thaw::Thawed => return Ok(()),
                Thaw::GivenUp(error) => {
                    let agent = self.intent.agent.as_deref();
                    let last = agent.map(|agent| thaw_if_frozen(agent, AGENT_LIMIT));
                    return if matches!(last, Some(Ok(_))) { Ok(()) } else { Err(error) };
                }
                Thaw::Unknown => {}
            }
            let status = self.qmp.execute("query-status", serde_json::Value::Null);
            if status.is_err_and(|error| self.is_gone(&error)) {
                return Ok(());
            }
        }
    }

    /// Takes what is in QEMU out of it.
    fn remove(&self) -> Result<Vec<Exchanged>, MachineError> {
        check_store(&self.intent)?;
        let removed = remains::remove(&self.qmp, Some(&self.intent))?;
        let socket = self.state.socket()?;
        if socket.exists() {
            remains::stop_server(&self.qmp)?;
            store::remove(&socket)?;
        }
        Ok(removed.exchanged)
    }

    /// True if QEMU has ended, and not only the connection to it.
    fn is_gone(&self, error: &QmpError) -> bool {
        let again = || Qmp::connect(&self.intent.monitor, GREETING_LIMIT);
        error.is_gone() && again().is_err_and(|error| error.is_gone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_tried_again_and_nothing_else() {
        let is_late = |error: &MachineError| matches!(error, MachineError::NotThawed(_));
        let late = || Err(MachineError::NotThawed(AgentError::TimedOut(AGAIN)));
        let mut answers = vec![Ok(3), late(), late()];
        assert_eq!(patiently(&mut || answers.pop().unwrap(), &is_late).unwrap(), 3);
        let mut answers = vec![Ok(3), Err(MachineError::NoDisks), late()];
        let error = patiently(&mut || answers.pop().unwrap(), &is_late).unwrap_err();
        assert!(matches!(error, MachineError::NoDisks) && answers.len() == 1, "{error}");
    }
}
