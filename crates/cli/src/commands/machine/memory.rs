//! The memory of a machine, for a snapshot from which it is resumed; and what lets the machine go on
//! if this process is killed while it is paused.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use strongroom_engine::{EngineError, Region, memory_path};
use strongroom_machine::{LiveDisks, MachineError, MemoryPart, Night, RunningMachine};
use strongroom_source::memory::MemoryFile;

use super::{MachineArgs, failed};
use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// The memory of a machine.
pub struct MachineMemory {
    /// What is described of it.
    pub parts: Vec<MemoryPart>,
    /// What is stored of it.
    pub regions: Vec<Region>,
}

impl MachineMemory {
    /// Opens the memory of a machine, which is stored under this name.
    pub fn open(machine: &dyn RunningMachine, name: &str) -> Result<Self, CliError> {
        let (mut parts, mut regions) = (Vec::new(), Vec::new());
        for shared in machine.memory().map_err(failed)? {
            let memory = MemoryFile::open(&shared.path).map_err(|error| {
                let path = printable(&shared.path);
                let message = format!("cannot read the machine's memory {path}: {error}");
                CliError::new(Exit::Failed, message, "run it as the user of QEMU, or as root")
            })?;
            regions.push(Region {
                path: memory_path(name, &shared.id),
                memory: Box::new(memory),
                is_held: false,
            });
            parts.push(MemoryPart { id: shared.id, bytes: shared.bytes });
        }
        Ok(Self { parts, regions })
    }
}

/// Stops a machine, reads the rest of its memory, and has it run again. If this process is killed
/// meanwhile, another one has it run.
pub fn freeze(
    machine: &dyn RunningMachine,
    args: &MachineArgs,
    night: &Night<'_>,
    settle: &mut dyn FnMut() -> Result<(), EngineError>,
) -> Result<LiveDisks, CliError> {
    let watchman = Watchman::start(args)?;
    let mut why = None;
    let frozen = machine.freeze_with_memory(night, &mut || {
        settle().map_err(|error| {
            let words = error.to_string();
            why = Some(error);
            words
        })
    });
    drop(watchman);
    match (frozen, why) {
        (Err(MachineError::Memory(_)), Some(why)) => Err(why.into()),
        (frozen, _) => frozen.map_err(failed),
    }
}

/// A process that undoes what is done to a machine if this one is killed.
struct Watchman(Child);

impl Watchman {
    fn start(args: &MachineArgs) -> Result<Self, CliError> {
        let start = || {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["machine", "undo", "--when-input-ends"])
                .arg(std::path::absolute(&args.machine)?);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // What a terminal sends to this process does not reach it.
            command.process_group(0).spawn()
        };
        start().map(Self).map_err(|error: io::Error| {
            let message = format!("cannot start the process that watches over the pause: {error}");
            CliError::new(Exit::Failed, message, "store the machine without --memory")
        })
    }
}

impl Drop for Watchman {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // It ends in any case when its input does; then it finds nothing to undo.
            let _ = input.write_all(b".");
        }
        let _ = self.0.wait();
    }
}

/// Waits until the process that writes to standard input has ended. Returns whether it was killed.
pub fn was_killed() -> bool {
    let mut word = [0];
    !matches!(io::stdin().lock().read(&mut word), Ok(1))
}
