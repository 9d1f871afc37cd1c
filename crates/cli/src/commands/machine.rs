//! `strongroom machine`: machines that run under QEMU, with or without libvirt.

mod backup;
mod emulator;
mod facts;
mod memory;
mod show;
mod undo;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use strongroom_machine::{LibvirtMachine, Machine, MachineError, RunningMachine, VirshError};

use crate::context::Context;
use crate::exit::{CliError, Exit};

/// A path that leads through more links leads nowhere, as Linux counts.
const LINKS_MAX: usize = 40;

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
            Way::Monitor(monitor) => state_folder(real(monitor)?.as_os_str().as_bytes()),
            Way::Libvirt { uri, name } => {
                let found = LibvirtMachine::find(uri, name).map_err(failed)?;
                state_folder(found.key().as_bytes())
            }
        }
    }
}

/// The path of a socket without links, so that it is the same however it is spelt, as by `/var/run` and
/// `/run`. The socket itself need not exist: it may be gone with its QEMU.
fn real(socket: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(socket)?;
    for _ in 0..LINKS_MAX {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { break };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let real = folder.join(name);
        match std::fs::read_link(&real) {
            Ok(target) => path = folder.join(target),
            Err(_) => return Ok(real),
        }
    }
    Ok(path)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_socket_has_one_path_however_it_is_spelt() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("run")).unwrap();
        symlink("run", folder.join("link")).unwrap();
        symlink("link/vm1", folder.join("vm")).unwrap();
        let (socket, at) = (folder.join("run/vm1"), |path: &str| real(&folder.join(path)).unwrap());
        for is_there in [false, true] {
            if is_there {
                std::fs::write(&socket, "").unwrap();
            }
            for spelt in ["run/vm1", "link/vm1", "run/../link/./vm1", "vm"] {
                assert_eq!(at(spelt), socket, "{spelt}");
            }
        }
        assert_ne!(at("run/vm2"), socket);
        // A folder that is gone is called as it is spelt.
        assert_eq!(at("none/vm1"), folder.join("none/vm1"));
        symlink("circle", folder.join("circle")).unwrap();
        assert_eq!(at("circle"), folder.join("circle"));
    }
}
