//! `strongroom lock`

use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_base::{Clock, SystemClock, Timestamp};
use strongroom_repository::{RepositoryError, exists};
use strongroom_upkeep::lock;

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::spans;

/// What is locked.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// From now on for this long, such as 30d; a lock that is longer already stays
    #[arg(long = "for", value_name = "SPAN", value_parser = spans::parse)]
    span: i64,
}

/// Locks it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    context.check_present()?;
    let backend = context.backend()?;
    if !exists(&*backend)? {
        return Err(RepositoryError::NotARepository { place: backend.describe() }.into());
    }
    let until = Timestamp(SystemClock.now().0.saturating_add(args.span));
    let monitor = context.terminal.monitor(Words::objects("locked"));
    let outcome = lock(&*backend, until, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    context.terminal.json(&json!({
        "event": "summary",
        "until": dates::rfc3339(until),
        "locked": outcome.locked,
        "bytes": outcome.bytes,
        "gone": outcome.gone,
    }))?;
    context.terminal.line(format!(
        "{} ({}) cannot be removed before {}; took {}",
        counted(outcome.locked, "object", "objects"),
        bytes_text(outcome.bytes),
        dates::text(until),
        duration_text(monitor.elapsed()),
    ))?;
    Ok(Exit::Done.into())
}
