//! `strongroom machine`: machines that run under QEMU, with or without libvirt.

mod backup;
mod emulator;
mod facts;
mod memory;
mod show;
mod undo;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use strongroom_machine::{LibvirtMachine, Machine, MachineError, RunningMachine, VirshError};

use crate::context::Context;
use crate::exit::{CliError, Exit};

/// What is done with machines.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Store the disks of a machine while it runs, as they are at one instant
    Backup(Box<backup::Args>),
    /// Show which disks a machine has, and what a backup can do with each
    Show(show::Args),
    /// Remove what a backup that was killed has left in a machine
    Undo(undo::Args),
    /// List the files of an emulator, to store them with the machines that need it
    Emulator(emulator::Args),
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Backup(args) => backup::run(context, &args),
        What::Show(args) => show::run(context, &args),
        What::Undo(args) => undo::run(context, &args),
        What::Emulator(args) => emulator::run(context, &args),
    }
}

/// Where a machine is reached.
#[derive(Debug, Clone, clap::Args)]
struct MachineArgs {
    /// The name of a machine of libvirt, which is reached by `virsh`; or the socket of QEMU's
    /// monitor, if libvirt does not have the machine: `-qmp unix:SOCKET,server=on,wait=off`
    #[arg(value_name = "NAME|QMP-SOCKET")]
    machine: PathBuf,
    /// Which libvirt, such as qemu:///system [default: as `virsh` has it]
    #[arg(long, value_name = "URI")]
    connect: Option<String>,
}

/// How a machine is reached.
enum Way<'w> {
    Monitor(&'w Path),
    Libvirt { uri: Option<&'w str>, name: &'w str },
}

impl MachineArgs {
    /// A name has no slash, and no file has it.
    fn way(&self) -> Way<'_> {
        let uri = self.connect.as_deref();
        match self.machine.to_str().filter(|name| !name.contains('/')) {
            Some(name) if uri.is_some() || !self.machine.exists() => Way::Libvirt { uri, name },
            _ => Way::Monitor(&self.machine),
        }
    }

    fn find(&self) -> Result<Box<dyn RunningMachine>, CliError> {
        Ok(match self.way() {
            Way::Monitor(monitor) => Box::new(Machine::connect(monitor).map_err(failed)?),
            Way::Libvirt { uri, name } => {
                Box::new(LibvirtMachine::find(uri, name).map_err(failed)?)
            }
        })
    }

    /// The folder in which it is noted what is done to the machine until it is undone.
    fn state_folder(&self) -> Result<PathBuf, CliError> {
        match self.way() {
            Way::Monitor(monitor) => {
                state_folder(std::path::absolute(monitor)?.as_os_str().as_bytes())
            }
            Way::Libvirt { uri, name } => {
                let found = LibvirtMachine::find(uri, name).map_err(failed)?;
                state_folder(found.key().as_bytes())
            }
        }
    }
}

/// QEMU's user goes through it to a socket, so it is not below a home.
fn state_folder(of: &[u8]) -> Result<PathBuf, CliError> {
    let name = blake3::hash(of).to_hex();
    let of_root = rustix::process::geteuid().is_root().then(|| PathBuf::from("/run"));
    let of_user = || std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = match of_root.or_else(of_user) {
        Some(folder) => folder.join("strongroom"),
        // A name of its own for each user: another one could not use what the first has made.
        None => {
            let user = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("strongroom-{user}"))
        }
    };
    Ok(folder.join("machines").join(&name[..16]))
}

fn failed(error: MachineError) -> CliError {
    let exit = match error {
        MachineError::Broken(_) => Exit::MachineLost,
        _ => Exit::Failed,
    };
    CliError::new(exit, error.to_string(), hint_of(&error))
}

fn hint_of(error: &MachineError) -> String {
    match error {
        MachineError::Qmp(_) => {
            "QEMU is started with -qmp unix:SOCKET,server=on,wait=off; a monitor serves one client \
             at a time"
        }
        MachineError::Virsh(error) if error.says(&["failed to get domain"]) => {
            "`virsh list --all` shows the machines; --connect says of which libvirt"
        }
        MachineError::Virsh(VirshError::Refused { .. } | VirshError::Slow { .. }) => {
            "the log of libvirt says more; `strongroom machine undo` removes what was begun"
        }
        MachineError::Virsh(_) => {
            "libvirt's clients bring virsh; a machine without libvirt is named by its QMP socket"
        }
        MachineError::ShutOff { .. } => "or start it",
        MachineError::Iothread { .. }
        | MachineError::Device { .. }
        | MachineError::Busy { .. } => {
            "--without NAME leaves out a disk"
        }
        MachineError::Agent(_) | MachineError::NoAgent => {
            "see that qemu-guest-agent runs in the guest, or use --consistency preferred"
        }
        MachineError::DeviceState { .. } => {
            "a QEMU that was started with -daemonize needs the absolute paths of its images; without \
             --memory only its disks are stored"
        }
        MachineError::MemoryNotShared { .. }
        | MachineError::MemoryNotFound { .. }
        | MachineError::MemoryNotAlone { .. }
        | MachineError::NoMemory
        | MachineError::StateBlocked { .. } => "without --memory only its disks are stored",
        MachineError::Broken(_) => "the next backup goes on from the last snapshot",
        MachineError::Room { .. } => "--store names a folder",
        MachineError::NotUndone(_)
        | MachineError::NotThawed(_)
        | MachineError::LeftBehind { .. } => "`strongroom machine undo` removes it",
        _ => "`strongroom machine show` lists the machine's disks",
    }
    .to_owned()
}
