//! `strongroom machine`: machines that run under QEMU.

mod backup;
mod show;
mod undo;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use strongroom_machine::MachineError;

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
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Backup(args) => backup::run(context, &args),
        What::Show(args) => show::run(context, &args),
        What::Undo(args) => undo::run(context, &args),
    }
}

/// Where a machine is reached.
#[derive(Debug, Clone, clap::Args)]
struct MonitorArgs {
    /// The socket of QEMU's monitor: `-qmp unix:SOCKET,server=on,wait=off`
    #[arg(value_name = "QMP-SOCKET")]
    monitor: PathBuf,
}

/// The folder in which it is noted what is done to the machine behind a monitor, until it is undone.
/// QEMU's user goes through it to a socket, so it is not below a home.
fn state_folder(monitor: &Path) -> Result<PathBuf, CliError> {
    let monitor = std::path::absolute(monitor)?;
    let name = blake3::hash(monitor.as_os_str().as_bytes()).to_hex();
    let of_root = rustix::process::geteuid().is_root().then(|| PathBuf::from("/run"));
    let of_user = || std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = of_root.or_else(of_user).unwrap_or_else(std::env::temp_dir);
    Ok(folder.join("strongroom/machines").join(&name[..16]))
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
        MachineError::Iothread { .. } | MachineError::Device { .. } => {
            "--without NAME leaves out a disk"
        }
        MachineError::Agent(_) | MachineError::NoAgent => {
            "see that qemu-guest-agent runs in the guest, or use --consistency preferred"
        }
        MachineError::Broken(_) => "the next backup goes on from the last snapshot",
        MachineError::Room { .. } => "--store names a folder",
        MachineError::NotUndone(_)
        | MachineError::NotThawed(_)
        | MachineError::LeftBehind { .. } => "`strongroom machine undo` removes it",
        _ => "`strongroom machine show` lists the machine's disks",
    }
    .to_owned()
}
