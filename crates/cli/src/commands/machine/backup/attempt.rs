//! One attempt at storing a machine: from its disks at an instant to the snapshot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use strongroom_base::{Cancel, Monitor, Severity, SnapshotId};
use strongroom_engine::{
    BackupOptions, BackupOutcome, Changed, Disk, EngineError, Machine as Stored, MachineBackup,
    MachineOptions, MachineOutcome,
};
use strongroom_machine::{
    Beside, Consistency, Description, LeftOut, LiveDisks, Night, Parent, RunningMachine,
    StoreLimits,
};
use strongroom_repository::Repository;

use super::super::facts::Facts;
use super::super::failed;
use super::super::memory::{self, MachineMemory};
use super::Args;
use crate::boot::DEVICE_STATE;
use crate::context::Context;
use crate::exit::CliError;
use crate::yielding::{can_be_urgent, share_of_processors, urgently, yielding};

/// What the state of a TPM is called that cannot be stored.
const TPM: &str = "tpm";
/// The file that says what the machine is made of.
const DESCRIPTION: &str = "machine.json";
/// How long it is watched before the instant, to see what it writes to most.
const WATCHED: Duration = Duration::from_secs(3);
/// How long a guest's driver is waited for that has not started yet: a boot takes less.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Connections to each disk at full speed: more wait for the same disk. Otherwise there is one, so
/// that QEMU answers one request at a time and serves the guest between them.
const CONNECTIONS: usize = 4;

/// One attempt at a backup.
pub(super) struct Attempt<'b> {
    pub(super) context: &'b Context,
    pub(super) args: &'b Args,
    pub(super) machine: &'b dyn RunningMachine,
    pub(super) description: &'b Description,
    pub(super) memory: Option<&'b MachineMemory>,
    pub(super) repository: &'b Repository,
}

/// What a backup did.
pub(super) struct Done {
    pub(super) outcome: BackupOutcome,
    pub(super) facts: Facts,
    /// A disk that the guest writes to, or a file of its firmware, is not in the snapshot.
    pub(super) is_incomplete: bool,
    /// What could not be undone in the machine.
    pub(super) leftover: Option<CliError>,
}

/// Why there is no snapshot.
pub(super) enum Ended {
    /// What QEMU noted as written is wrong.
    Doubt(EngineError),
    /// Anything else.
    Failed(CliError),
}

impl Ended {
    pub(super) fn into_error(self) -> CliError {
        match self {
            Self::Doubt(error) => error.into(),
            Self::Failed(error) => error,
        }
    }
}

impl<E: Into<CliError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Attempt<'_> {
    /// Makes a snapshot. `is_trusting` says that what QEMU noted as written is believed.
    pub(super) fn make(
        &self,
        stored: &MachineOptions,
        options: &BackupOptions,
        is_trusting: bool,
        monitor: &dyn Monitor,
    ) -> Result<Done, Ended> {
        let args = self.args;
        let begun = MachineBackup::begin(self.repository, stored, options, monitor)?;
        let (snapshot, parent) = (begun.snapshot(), begun.parent());
        let parent = parent.filter(|_| is_trusting);
        let (name, parent_name) = (snapshot.to_string(), parent.map(|parent| parent.to_string()));
        let disk_bytes: BTreeMap<String, u64> = begun.parent_disks().into_iter().collect();
        let set = self.repository.config.id.to_string();
        let state = args.machine.state_folder()?;
        let files = self.description.files().into_iter().map(|file| PathBuf::from(&file.path));
        let files: Vec<PathBuf> = files.collect();
        // The files beside the disks are left out by their names as well.
        let is_disk = |name: &&String| {
            **name != TPM && !self.description.files().iter().any(|file| file.name == **name)
        };
        let without: Vec<String> = args.without.iter().filter(is_disk).cloned().collect();
        let night = Night {
            snapshot: &name,
            parent: parent_name
                .as_ref()
                .map(|snapshot| Parent { snapshot, disk_bytes: &disk_bytes }),
            set: &set,
            without: &without,
            beside: &files,
            store_folder: &args.store,
            store_limits: StoreLimits { bytes_max: args.store_limit, reserve: args.store_reserve },
            state_folder: &state,
            agent: args.agent.as_deref(),
            // A guest that is frozen would be resumed frozen.
            consistency: match self.memory {
                Some(_) => Consistency::None,
                None => args.consistency.into(),
            },
            freeze_limit: Duration::from_secs(args.freeze_limit),
            start_limit: START_LIMIT,
            watched: if args.full_speed { Duration::ZERO } else { WATCHED },
            share: (!args.full_speed).then(share_of_processors),
            connections: if args.full_speed { CONNECTIONS } else { 1 },
            // A lost instant is found by who reads it.
            cancel: Cancel::new(),
        };
        let (outcome, live) = match self.memory {
            None => {
                let live = self.machine.freeze_disks(&night).map_err(failed)?;
                let store = |machine: Stored| {
                    // Not before the machine runs again, and not when it is given back: then it
                    // waits for us.
                    let store = || begun.store(&machine, monitor, &self.context.cancel);
                    let backup = if args.full_speed { store() } else { yielding(store) };
                    Ok(MachineOutcome { backup: backup?, memory: None })
                };
                let machine = self.stored(&live, parent, monitor).map_err(Stopped::from);
                (machine.and_then(store), live)
            }
            Some(memory) => self.with_memory(memory, begun, &night, parent, monitor)?,
        };
        let facts = Facts::of(&live, outcome.as_ref().ok());
        let is_incomplete = self.warn_of_missing(&live);
        let is_committed = outcome.as_ref().is_ok_and(|outcome| outcome.backup.committed);
        let leftover = match live.finish(is_committed) {
            Ok(exchanged) => {
                for exchanged in exchanged {
                    self.context.terminal.problem(Severity::Warning, &exchanged.to_string());
                }
                None
            }
            Err(error) => Some(failed(error)),
        };
        let done = outcome.map(|outcome| {
            let outcome = outcome.backup;
            Done { outcome, facts, is_incomplete, leftover: None }
        });
        end(done, leftover, is_trusting, &|leftover| {
            self.context.terminal.problem(Severity::Warning, &leftover.in_full());
        })
    }

    /// Stores the machine with its memory; without the disks, if the machine was not stopped.
    fn with_memory(
        &self,
        memory: &MachineMemory,
        begun: MachineBackup<'_>,
        night: &Night<'_>,
        parent: Option<SnapshotId>,
        monitor: &dyn Monitor,
    ) -> Result<(Result<MachineOutcome, Stopped>, LiveDisks), Ended> {
        let mut live = None;
        let store = || {
            let mut take = |settle: &mut dyn FnMut() -> Result<(), EngineError>| {
                // The machine waits for it.
                let freeze = || memory::freeze(self.machine, &self.args.machine, night, settle);
                let frozen = urgently(freeze)?;
                let machine = self.stored(&frozen, parent, monitor);
                live = Some(frozen);
                Ok::<_, Stopped>(machine?)
            };
            begun.store_with_memory(&memory.regions, &mut take, monitor, &self.context.cancel)
        };
        let is_yielding = !self.args.full_speed && can_be_urgent();
        let outcome = if is_yielding { yielding(store) } else { store() };
        match (outcome, live) {
            (outcome, Some(live)) => Ok((outcome, live)),
            (Err(Stopped::Engine(error)), None) => Err(error.into()),
            (Err(Stopped::Other(error)), None) => Err(error.into()),
            (Ok(_), None) => unreachable!("the disks are taken before they are stored"),
        }
    }

    /// What is stored of a machine at the instant.
    fn stored(
        &self,
        live: &LiveDisks,
        parent: Option<SnapshotId>,
        monitor: &dyn Monitor,
    ) -> Result<Stored, CliError> {
        for drive in live.left_out.iter().filter(|drive| !self.is_missed(drive)) {
            monitor.detail(&format!("{}: left out, {}", drive.name, drive.why));
        }
        let disk = |disk: &strongroom_machine::LiveDisk| Disk {
            changed: disk
                .changed
                .clone()
                .zip(parent)
                .map(|(ranges, since)| Changed { since, ranges }),
            ..Disk::new(disk.name.clone(), Box::new(disk.image.clone()))
        };
        let disks = live.disks.iter().map(disk).collect();
        let mut described = self.described(&live.beside);
        described.extend(self.machine.documents().map_err(failed)?);
        described.extend(live.device_state.clone().map(|state| (DEVICE_STATE.to_owned(), state)));
        described.sort();
        Ok(Stored { disks, description: described })
    }

    /// Whether a drive belongs into the snapshot and is not in it.
    fn is_missed(&self, drive: &LeftOut) -> bool {
        drive.why.is_loss() && !self.args.without.contains(&drive.name)
    }

    /// Names what the machine needs and the snapshot lacks. Returns whether there is anything.
    fn warn_of_missing(&self, live: &LiveDisks) -> bool {
        let drives = live.left_out.iter().filter(|drive| self.is_missed(drive));
        let drives = drives.map(|drive| (drive.name.clone(), drive.why.to_string()));
        let files = self.description.files().into_iter().zip(&live.beside);
        let files = files.filter_map(|(file, found)| {
            let why = found.content.as_ref().err()?;
            Some((file.name.clone(), format!("{} ({why})", file.path)))
        });
        let has_no_state = self.description.tpm.as_ref().is_some_and(|tpm| tpm.state.is_empty());
        let tpm = has_no_state.then(|| (TPM.to_owned(), "the state of its TPM".to_owned()));
        let missing = drives.chain(files).chain(tpm);
        let missing = missing.filter(|(name, _)| !self.args.without.contains(name));
        let message = |(name, what)| {
            format!(
                "{name} is not stored with the machine: {what}; `--without {name}` expects that"
            )
        };
        let messages: Vec<String> = missing.map(message).collect();
        for message in &messages {
            self.context.terminal.problem(Severity::Warning, message);
        }
        !messages.is_empty()
    }

    /// What is stored beside the disks: the description, and the files that it names.
    fn described(&self, beside: &[Beside]) -> Vec<(String, Vec<u8>)> {
        let mut files = vec![(DESCRIPTION.to_owned(), self.description.to_json())];
        for (file, found) in self.description.files().into_iter().zip(beside) {
            if let Ok(bytes) = &found.content {
                files.push((file.name.clone(), bytes.clone()));
            }
        }
        if self.description.arguments.is_empty() {
            let message = "not stored with the machine: the command line of QEMU";
            self.context.terminal.problem(Severity::Note, message);
        }
        files
    }
}

/// How an attempt ended. Without a snapshot, what could not be undone in the machine is no part of the
/// reason, so `warn` says it.
fn end(
    done: Result<Done, Stopped>,
    leftover: Option<CliError>,
    is_trusting: bool,
    warn: &dyn Fn(&CliError),
) -> Result<Done, Ended> {
    let stopped = match done {
        Ok(done) => return Ok(Done { leftover, ..done }),
        Err(stopped) => stopped,
    };
    leftover.iter().for_each(warn);
    Err(match stopped {
        Stopped::Engine(error @ EngineError::DiskDenied { .. }) if is_trusting => {
            Ended::Doubt(error)
        }
        Stopped::Engine(error) => error.into(),
        Stopped::Other(error) => error.into(),
    })
}

/// Why nothing was stored.
enum Stopped {
    Engine(EngineError),
    Other(CliError),
}

impl From<EngineError> for Stopped {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<CliError> for Stopped {
    fn from(error: CliError) -> Self {
        Self::Other(error)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_machine_that_could_not_be_given_back_is_named_without_a_snapshot_too() {
        let leftover = || Some(CliError::new(Exit::Failed, "it is paused".to_owned(), "undo"));
        let denied = || EngineError::DiskDenied { disk: "vda".to_owned(), offset: 0 };
        for (stopped, is_trusting) in
            [(Stopped::Engine(denied()), true), (Stopped::Engine(denied()), false)]
        {
            let warned = Cell::new(0);
            let warn = |_: &CliError| warned.set(warned.get() + 1);
            assert!(end(Err(stopped), leftover(), is_trusting, &warn).is_err());
            assert_eq!(warned.get(), 1);
        }
    }
}
