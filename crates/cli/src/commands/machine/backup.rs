//! `strongroom machine backup`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use strongroom_base::units::parse_bytes;
use strongroom_base::{Cancel, Monitor, Severity, SnapshotId};
use strongroom_engine::{
    BackupOptions, BackupOutcome, Changed, Disk, EngineError, Machine as Stored, MachineBackup,
    MachineOptions, MachineOutcome,
};
use strongroom_machine::{
    Beside, Consistency, Description, LiveDisks, Night, Parent, RunningMachine, StoreLimits,
};
use strongroom_repository::Repository;

use super::facts::Facts;
use super::memory::{self, MachineMemory};
use super::{MachineArgs, failed};
use crate::boot::DEVICE_STATE;
use crate::commands::storing::StoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::yielding::{can_be_urgent, share_of_processors, urgently, yielding};

/// The file that says what the machine is made of.
const DESCRIPTION: &str = "machine.json";
/// How long it is watched before the instant, to see what it writes to most.
const WATCHED: Duration = Duration::from_secs(3);
/// Connections to each disk at full speed: more wait for the same disk. Otherwise there is one, so
/// that QEMU answers one request at a time and serves the guest between them.
const CONNECTIONS: usize = 4;
/// How hard blocks are compressed: a night stores little, and is kept for long.
const LEVEL: &str = "7";
/// How the progress is worded.
const WORDS: Words = Words { new_and_known: Some(("new", "known")), ..Words::files("stored") };

/// The machine, and how it is stored.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_arg("compression", |arg| arg.default_value(LEVEL)))]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,
    /// Name of the machine: the folder of the snapshot that holds its disks [default: what QEMU
    /// calls it (`-name`)]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The socket of the guest agent, which freezes the guest's file systems for an instant; libvirt
    /// knows its own
    #[arg(long, value_name = "SOCKET")]
    agent: Option<PathBuf>,
    /// Whether the guest must be frozen. If it is not, its disks are as after a power failure
    #[arg(long, value_enum, default_value = "preferred")]
    consistency: ConsistencyArg,
    /// How many seconds freezing may take
    #[arg(long, value_name = "SECONDS", default_value = "10",
        value_parser = clap::value_parser!(u64).range(1..=600))]
    freeze_limit: u64,
    /// Folder for what the guest overwrites before it is read; not on a disk that the guest fills
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    store: PathBuf,
    /// It may take this much; if it needs more, the backup ends and the guest goes on
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    store_limit: Option<u64>,
    /// This much must stay free where it is
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1GiB")]
    store_reserve: u64,
    /// Leave out this disk; may be given several times
    #[arg(long, value_name = "DISK")]
    without: Vec<String>,
    /// Read all of each disk and compare it, and do not believe what QEMU has noted as written
    #[arg(long)]
    read_all: bool,
    /// Do not spare the guest: read and compress by all processors, all the time, and do not read
    /// first what it writes to most
    #[arg(long)]
    full_speed: bool,
    /// Store what file systems call free, as it is
    #[arg(long)]
    keep_free: bool,
    /// Store the content of swap areas and swap files
    #[arg(long)]
    keep_swap: bool,
    /// Store its memory and the state of its devices, too, so that `boot --resume` goes on at the
    /// instant. Its memory must be in a file (`-object memory-backend-file,share=on`); its disks are
    /// stored with what file systems call free, and with swap
    #[arg(long, conflicts_with_all = ["agent", "consistency"])]
    memory: bool,
    #[command(flatten)]
    storing: StoringArgs,
}

/// Whether the guest must be frozen.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ConsistencyArg {
    /// No backup of a guest that cannot be frozen
    Required,
    /// The guest is frozen if it can be
    Preferred,
    /// The guest is not asked
    None,
}

/// Stores it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    // Before a repository is made for it, or a passphrase asked for.
    let machine = args.machine.find()?;
    let mut description = machine.description().map_err(failed)?;
    let name = args.name.clone().or_else(|| description.name.clone()).ok_or_else(|| {
        let message = "QEMU does not say what the machine is called";
        CliError::new(Exit::Failed, message, "name it with --name, the same each time")
    })?;
    let repository = match args.storing.init {
        true => args.storing.open_or_init(context)?,
        false => context.open_for_backup(|_| ())?.0,
    };
    let options = args.storing.options(context, &repository, name.clone())?;
    // What the guest knows in memory, its disk may not say yet: a block that is free there may have data.
    let keep_free = args.keep_free || args.memory;
    let keep_swap = args.keep_swap || args.memory;
    let memory = args.memory.then(|| MachineMemory::open(&*machine, &name)).transpose()?;
    description.memory = memory.iter().flat_map(|memory| memory.parts.clone()).collect();
    let stored = MachineOptions { name: name.clone(), keep_free, keep_swap };
    let shown = context.terminal.monitor(WORDS);
    let paths = [Path::new("/").join(&name)];
    let monitor = args.storing.recorded(context, &shown, &paths)?;
    let backup = Backup {
        context,
        args,
        machine: &*machine,
        description: &description,
        memory: memory.as_ref(),
        repository: &repository,
    };
    let mut done = backup.once(&stored, &options, !args.read_all, &monitor);
    if let Err(Ended::Doubt(error)) = &done {
        context.terminal.problem(Severity::Warning, &format!("{error}: all of it is read now"));
        done = backup.once(&stored, &options, false, &monitor);
    }
    drop(monitor);
    shown.finish();
    let Done { outcome, facts, leftover } = done.map_err(Ended::into_error)?;
    let code = args.storing.report(context, &outcome, shown.elapsed(), facts.json())?;
    context.terminal.line(format!("  {}", facts.line()))?;
    if let Some(error) = leftover {
        context.terminal.problem(Severity::Warning, &error.in_full());
        return Ok(Exit::Incomplete.into());
    }
    Ok(code)
}

/// One backup.
struct Backup<'b> {
    context: &'b Context,
    args: &'b Args,
    machine: &'b dyn RunningMachine,
    description: &'b Description,
    memory: Option<&'b MachineMemory>,
    repository: &'b Repository,
}

/// What a backup did.
struct Done {
    outcome: BackupOutcome,
    facts: Facts,
    /// What could not be undone in the machine.
    leftover: Option<CliError>,
}

/// Why there is no snapshot.
enum Ended {
    /// What QEMU noted as written is wrong.
    Doubt(EngineError),
    /// Anything else.
    Failed(CliError),
}

impl Ended {
    fn into_error(self) -> CliError {
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

impl Backup<'_> {
    /// Makes a snapshot. `is_trusting` says that what QEMU noted as written is believed.
    fn once(
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
        let night = Night {
            snapshot: &name,
            parent: parent_name
                .as_ref()
                .map(|snapshot| Parent { snapshot, disk_bytes: &disk_bytes }),
            set: &set,
            without: &args.without,
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
            watched: if args.full_speed { Duration::ZERO } else { WATCHED },
            share: (!args.full_speed).then(share_of_processors),
            connections: if args.full_speed { CONNECTIONS } else { 1 },
            // A lost instant is found by who reads it.
            cancel: Cancel::new(),
        };
        let (outcome, live) = match self.memory {
            None => {
                let live = self.machine.freeze_disks(&night).map_err(failed)?;
                let machine = self.stored(&live, parent, monitor)?;
                // Not before the machine runs again, and not when it is given back: then it waits
                // for us.
                let store = || begun.store(&machine, monitor, &self.context.cancel);
                let outcome = if args.full_speed { store() } else { yielding(store) };
                let outcome = outcome.map(|backup| MachineOutcome { backup, memory: None });
                (outcome.map_err(Stopped::from), live)
            }
            Some(memory) => self.with_memory(memory, begun, &night, parent, monitor)?,
        };
        let facts = Facts::of(&live, outcome.as_ref().ok());
        let is_committed = outcome.as_ref().is_ok_and(|outcome| outcome.backup.committed);
        let leftover = live.finish(is_committed).err().map(failed);
        match outcome {
            Ok(outcome) => Ok(Done { outcome: outcome.backup, facts, leftover }),
            Err(Stopped::Engine(error @ EngineError::DiskDenied { .. })) if is_trusting => {
                Err(Ended::Doubt(error))
            }
            Err(Stopped::Engine(error)) => Err(error.into()),
            Err(Stopped::Other(error)) => Err(error.into()),
        }
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
        for drive in &live.left_out {
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

impl Backup<'_> {
    /// What is stored beside the disks: the description, and the files that it names.
    fn described(&self, beside: &[Beside]) -> Vec<(String, Vec<u8>)> {
        let missing = |what: &str| {
            let message = format!("not stored with the machine: {what}");
            self.context.terminal.problem(Severity::Note, &message);
        };
        let mut files = vec![(DESCRIPTION.to_owned(), self.description.to_json())];
        for (file, found) in self.description.files().into_iter().zip(beside) {
            match &found.content {
                Ok(bytes) => files.push((file.name.clone(), bytes.clone())),
                Err(why) => missing(&format!("{} ({why})", file.path)),
            }
        }
        if self.description.arguments.is_empty() {
            missing("the command line of QEMU");
        }
        if self.description.tpm.as_ref().is_some_and(|tpm| tpm.state.is_empty()) {
            missing("the state of its TPM");
        }
        files
    }
}

impl From<ConsistencyArg> for Consistency {
    fn from(asked: ConsistencyArg) -> Self {
        match asked {
            ConsistencyArg::Required => Self::Required,
            ConsistencyArg::Preferred => Self::Preferred,
            ConsistencyArg::None => Self::None,
        }
    }
}
