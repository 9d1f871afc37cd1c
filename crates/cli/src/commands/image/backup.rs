//! `strongroom image backup`

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;
use strongroom_engine::{Machine, MachineOptions, backup_machine, check_machine};

use super::open_disks;
use crate::commands::storing::StoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::terminal::printable;

/// A longer file describes no machine.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;
/// How the progress is worded.
const WORDS: Words = Words { new_and_known: Some(("new", "known")), ..Words::files("stored") };

/// The disks, and how they are stored.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Name of the machine: the folder of the snapshot that holds its disks
    #[arg(value_name = "MACHINE")]
    machine: String,
    /// The disks: files or block devices that do not change meanwhile; `vda=disk.raw` names one
    /// [names otherwise: disk0, disk1, …]
    #[arg(value_name = "[NAME=]IMAGE", required = true)]
    images: Vec<OsString>,
    /// Store this file with the machine, such as its domain's XML or its UEFI variables; may be
    /// given several times
    #[arg(long = "with", value_name = "FILE")]
    description: Vec<PathBuf>,
    /// Store what file systems call free, as it is
    #[arg(long)]
    keep_free: bool,
    /// Store the content of swap areas
    #[arg(long)]
    keep_swap: bool,
    #[command(flatten)]
    storing: StoringArgs,
}

/// Stores them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let stored = MachineOptions {
        name: args.machine.clone(),
        keep_free: args.keep_free,
        keep_swap: args.keep_swap,
    };
    // Before a repository is made for it, or a passphrase asked for.
    let machine = Machine {
        disks: open_disks(&args.images)?,
        description: args.description.iter().map(|path| read(path)).collect::<Result<_, _>>()?,
    };
    check_machine(&machine.disks, &stored)?;
    let repository = match args.storing.init {
        true => args.storing.open_or_init(context)?,
        false => context.open_for_backup(|_| ())?.0,
    };
    let options = args.storing.options(context, &repository, args.machine.clone())?;
    let shown = context.terminal.monitor(WORDS);
    let paths = [Path::new("/").join(&args.machine)];
    let monitor = args.storing.recorded(context, &shown, &paths)?;
    let outcome =
        backup_machine(&repository, &machine, &stored, &options, &monitor, &context.cancel);
    drop(monitor);
    shown.finish();
    args.storing.report(context, &outcome?, shown.elapsed(), Value::Null)
}

/// A file that describes the machine: its name and its content.
fn read(path: &Path) -> Result<(String, Vec<u8>), CliError> {
    let failed = |why: String| {
        let message = format!("cannot store {} with the machine: {why}", printable(path));
        CliError::new(Exit::Failed, message, "--with takes files that describe the machine")
    };
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed("its name is not UTF-8".to_owned()))?;
    let bytes = fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if bytes > DESCRIPTION_BYTES_MAX {
        return Err(failed("it is longer than 64 MiB".to_owned()));
    }
    Ok((name.to_owned(), fs::read(path).map_err(|error| failed(error.to_string()))?))
}
