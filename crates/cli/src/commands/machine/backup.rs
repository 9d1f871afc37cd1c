//! `strongroom machine backup`

mod attempt;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use strongroom_base::Severity;
use strongroom_base::units::parse_bytes;
use strongroom_engine::MachineOptions;
use strongroom_machine::Consistency;

use super::memory::MachineMemory;
use super::{MachineArgs, failed};
use crate::commands::storing::StoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use attempt::{Attempt, Done, Ended};

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
    let attempt = Attempt {
        context,
        args,
        machine: &*machine,
        description: &description,
        memory: memory.as_ref(),
        repository: &repository,
    };
    let mut done = attempt.make(&stored, &options, !args.read_all, &monitor);
    if let Err(Ended::Doubt(error)) = &done {
        context.terminal.problem(Severity::Warning, &format!("{error}: all of it is read now"));
        done = attempt.make(&stored, &options, false, &monitor);
    }
    drop(monitor);
    shown.finish();
    let Done { outcome, facts, is_incomplete, leftover } = done.map_err(Ended::into_error)?;
    let code = args.storing.report(context, &outcome, shown.elapsed(), facts.json())?;
    context.terminal.line(format!("  {}", facts.line()))?;
    if let Some(error) = leftover {
        context.terminal.problem(Severity::Warning, &error.in_full());
        return Ok(Exit::Incomplete.into());
    }
    if is_incomplete && code == Exit::Done.into() {
        return Ok(Exit::Incomplete.into());
    }
    Ok(code)
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
