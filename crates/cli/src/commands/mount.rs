//! `strongroom mount`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::json;
use strongroom_access::{MountError, MountHandle, MountOptions, Unmounter, mount};
use strongroom_base::Severity;

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::NarrowingArgs;
use crate::terminal::{path_json, printable};

/// Where snapshots are mounted.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The folder to mount on: an empty one that you own
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Let other users read as well, as far as the modes of the files allow
    #[arg(long)]
    allow_other: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

const HELP: &str = "\
What is in the folder:

  DIR/ids/0123abcd/                       each snapshot by its id
  DIR/hosts/HOST/PATHS/2026-07-30T…/      by host and by what was backed up
  DIR/hosts/HOST/PATHS/latest             the newest complete one of them
  DIR/snapshot/2026/07/30/235901/         by day

The names of incomplete snapshots end in -incomplete. New snapshots appear while it is mounted. \
It stays mounted until Ctrl-C or `fusermount3 -u DIR`; run it with & to go on in the same shell. \
Mounting needs the program fusermount3 (package fuse3).";

/// How often the program looks if it was asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Mounts them until they are unmounted, or the user asks to stop.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    refuse_used_folder(&args.folder)?;
    let repository = Arc::new(context.open_to_read(&args.replicas)?);
    let monitor = Arc::new(context.terminal.monitor_of_problems());
    let options = MountOptions {
        allow_other: args.allow_other,
        narrowing: args.narrowing.resolve(),
        ..MountOptions::new(TimeZone::system())
    };
    let handle = mount(repository, &args.folder, &options, monitor)?;
    let place = printable(&args.folder);
    context.terminal.json(&json!({ "event": "mounted", "path": path_json(&args.folder) }))?;
    context.terminal.line(format!("the snapshots are at {place}"))?;
    context.terminal.note(format!("Ctrl-C, or `fusermount3 -u {place}`, unmounts them."));
    wait(context, handle, &args.folder)?;
    context.terminal.line("unmounted")?;
    Ok(Exit::Done.into())
}

/// A mount would hide what the folder holds.
fn refuse_used_folder(folder: &Path) -> Result<(), CliError> {
    // If it cannot be listed, mounting reports why.
    let is_used = std::fs::read_dir(folder).is_ok_and(|mut names| names.next().is_some());
    if is_used {
        let message = format!("{} is not empty", printable(folder));
        return Err(CliError::new(Exit::Failed, message, "choose an empty folder to mount on"));
    }
    Ok(())
}

fn wait(context: &Context, handle: MountHandle, folder: &Path) -> Result<(), MountError> {
    let unmounter = handle.unmounter();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if context.cancel.is_cancelled() {
                    return unmount(context, &unmounter, folder);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let waited = handle.wait();
        ended.store(true, Ordering::Relaxed);
        waited
    })
}

/// Unmounts. If the mount is in use, it is detached and ends with its last user.
fn unmount(context: &Context, unmounter: &Unmounter, folder: &Path) {
    let unmounted = match unmounter.unmount() {
        Err(MountError::Busy { .. }) => {
            let message = format!(
                "{} is in use; waiting until it is not. Ctrl-C again ends the program at once.",
                printable(folder)
            );
            context.terminal.problem(Severity::Warning, &message);
            unmounter.detach()
        }
        other => other,
    };
    if let Err(error) = unmounted {
        // It stays mounted until a user with more rights unmounts it.
        context.terminal.problem(Severity::Warning, &error.to_string());
    }
}
