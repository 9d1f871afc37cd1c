//! `strongroom image backup`

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;
use strongroom_base::Severity;
use strongroom_disk::{Format, Qcow2, is_in_use};
use strongroom_engine::{
    Changed, EngineError, Machine, MachineBackup, MachineOptions, backup_machine, check_machine,
};
use strongroom_machine::bitmap_name;

use super::{ImagesArgs, OpenedDisk};
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
    #[command(flatten)]
    images: ImagesArgs,
    /// Store this file with the machine, such as its domain's XML or its UEFI variables; may be
    /// given several times
    #[arg(long = "with", value_name = "FILE")]
    description: Vec<PathBuf>,
    /// Store what file systems call free, as it is
    #[arg(long)]
    keep_free: bool,
    /// Store the content of swap areas and swap files
    #[arg(long)]
    keep_swap: bool,
    #[command(flatten)]
    storing: StoringArgs,
}

/// What to do about an image that a machine writes to.
const IN_USE: &str =
    "store the machine while it runs with `strongroom machine backup`, or shut it down";

/// Stores them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let stored = MachineOptions {
        name: args.machine.clone(),
        keep_free: args.keep_free,
        keep_swap: args.keep_swap,
    };
    // Before a repository is made for it, or a passphrase asked for.
    let opened = args.images.open()?;
    check_at_rest(&opened)?;
    let mut files = Vec::new();
    let disks = opened.into_iter().map(|OpenedDisk { disk, path, format }| {
        files.push((path, format));
        disk
    });
    let mut machine = Machine {
        disks: disks.collect(),
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
    let begun = MachineBackup::begin(&repository, &stored, &options, &monitor)?;
    if let Some(parent) = begun.parent() {
        let set = repository.config.id.to_string();
        for (disk, (path, format)) in machine.disks.iter_mut().zip(&files) {
            let bitmap = bitmap_name(&set, &parent.to_string(), &disk.name);
            disk.changed =
                changed(path, *format, &bitmap).map(|ranges| Changed { since: parent, ranges });
        }
    }
    let mut outcome = begun.store(&machine, &monitor, &context.cancel);
    if let Err(error @ EngineError::DiskDenied { .. }) = &outcome {
        context.terminal.problem(Severity::Warning, &format!("{error}: all of it is read now"));
        machine.disks.iter_mut().for_each(|disk| disk.changed = None);
        outcome =
            backup_machine(&repository, &machine, &stored, &options, &monitor, &context.cancel);
    }
    drop(monitor);
    shown.finish();
    let outcome = outcome.map_err(|error| match error {
        EngineError::DiskBroken { .. } => {
            CliError::new(Exit::Failed, format!("{error}; no snapshot was made"), IN_USE)
        }
        error => error.into(),
    });
    args.storing.report(context, &outcome?, shown.elapsed(), Value::Null)
}

/// A running machine writes to its images: what is read would be a mixture.
fn check_at_rest(disks: &[OpenedDisk]) -> Result<(), CliError> {
    let Some(used) = disks.iter().find(|disk| is_in_use(&disk.path)) else { return Ok(()) };
    let message = format!("the image {} is in use: QEMU writes to it", printable(&used.path));
    Err(CliError::new(Exit::Failed, message, IN_USE))
}

/// What a bitmap in an image says of what was written; none if there is no bitmap that can be
/// trusted.
fn changed(path: &Path, format: Format, bitmap: &str) -> Option<Vec<Range<u64>>> {
    if format != Format::Qcow2 {
        return None;
    }
    let image = Qcow2::open(path, None).ok()?;
    let bitmaps = image.bitmaps().ok()?;
    let found = bitmaps.iter().find(|found| found.name == bitmap)?;
    if found.is_inconsistent || !found.is_recording {
        return None;
    }
    image.dirty(bitmap).ok()?.collect::<Result<_, _>>().ok()
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
