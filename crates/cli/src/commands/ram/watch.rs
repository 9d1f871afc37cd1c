//! `strongroom ram watch`

use std::process::ExitCode;
use std::time::Duration;

use strongroom_base::{Severity, Stopwatch};

use super::regions::RegionArgs;
use super::store::report;
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// How long it waits at a time, so that it ends soon when it is asked to.
const TICK: Duration = Duration::from_millis(100);

/// The regions, and how often they are stored.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    regions: RegionArgs,
    /// Begin a snapshot this many seconds after the one before began
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    every: u64,
    /// End after this many snapshots
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Stores them until it is stopped. A store that fails is reported, and the next may go well; the exit
/// code is that of the last one that did not.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let Args { regions, every, count } = args;
    let every = Duration::from_secs(*every);
    regions.check()?;
    let (repository, options) = regions.open_repository(context)?;
    let (mut stored, mut exit) = (0, ExitCode::from(Exit::Done));
    while count.is_none_or(|count| stored < count) {
        let begun = Stopwatch::start();
        match regions.store(context, &repository, &options) {
            Ok((outcome, elapsed)) => {
                let code = report(context, regions, &outcome, elapsed)?;
                exit = if code == ExitCode::SUCCESS { exit } else { code };
                stored += 1;
            }
            Err(_) if context.cancel.is_cancelled() => break,
            Err(error) => {
                context.terminal.problem(Severity::Warning, &error.in_full());
                exit = Exit::Incomplete.into();
            }
        }
        if count.is_some_and(|count| stored == count) {
            break;
        }
        while begun.elapsed() < every && !context.cancel.is_cancelled() {
            std::thread::sleep(TICK.min(every.saturating_sub(begun.elapsed())));
        }
        if context.cancel.is_cancelled() {
            break;
        }
    }
    Ok(if stored == 0 { Exit::Interrupted.into() } else { exit })
}
