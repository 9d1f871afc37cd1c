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

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// Where snapshots are shown.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The folder to show them in: an empty one, which is yours
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Let other users look as well, each at what the modes of the files allow
    #[arg(long)]
    allow_other: bool,
}

const HELP: &str = "\
What is to be seen:

  DIR/ids/0123abcd/                       every snapshot by its id
  DIR/hosts/HOST/PATHS/2026-07-30T…/      by host and by what was backed up
  DIR/hosts/HOST/PATHS/latest             the newest of them
  DIR/snapshot/2026/07/30/235901/         by day

It stays mounted until Ctrl-C, or `fusermount3 -u DIR`. Snapshots that are made meanwhile appear.";

/// How often a wish to stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Shows them until somebody unmounts them, or asks to stop.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = Arc::new(context.open()?);
    let monitor = Arc::new(context.terminal.monitor_of_problems());
    let options =
        MountOptions { allow_other: args.allow_other, ..MountOptions::new(TimeZone::system()) };
    let handle = mount(repository, &args.folder, &options, monitor)?;
    let place = printable(&args.folder);
    context.terminal.json(&json!({ "event": "mounted", "place": place }))?;
    context.terminal.line(format!("the snapshots are at {place}"))?;
    context.terminal.note(format!("Ctrl-C, or `fusermount3 -u {place}`, unmounts them."));
    wait(context, handle, &args.folder)?;
    context.terminal.json(&json!({ "event": "summary", "unmounted": true }))?;
    context.terminal.line("unmounted")?;
    Ok(Exit::Done.into())
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

/// Where it is in use, nobody gets in any more, and it ends with the last who is in.
fn unmount(context: &Context, unmounter: &Unmounter, folder: &Path) {
    let unmounted = match unmounter.unmount() {
        Err(MountError::Busy { .. }) => {
            let message = format!(
                "{} is in use; waiting for who is in there. Ctrl-C again ends it at once.",
                folder.display()
            );
            context.terminal.problem(Severity::Warning, &message);
            unmounter.detach()
        }
        other => other,
    };
    if let Err(error) = unmounted {
        // It goes on until somebody with more rights unmounts it.
        context.terminal.problem(Severity::Warning, &error.to_string());
    }
}
