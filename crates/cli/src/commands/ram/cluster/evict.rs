//! `strongroom ram cluster evict`

use std::process::ExitCode;

use serde_json::json;
use strongroom_cluster::{Acknowledgement, Cut, Outcome, State, Task};
use strongroom_ram::client::Leniency;

use super::{CutArgs, NoCaller, ask, eviction_json, find_cut, keeper, report_eviction, run_task};
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// Which file is evicted, and what holds it.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cut: CutArgs,
}

/// Frees what is still as it was stored.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let CutArgs { file: of, snapshot, limits, storing } = &args.cut;
    let (controller, file, limits) = (of.controller()?, &of.file, limits.limits());
    let keeper = keeper(context, storing)?;
    let cut = find_cut(context, &keeper, file, snapshot.as_ref())?;
    let (answers, _) = ask(context, &controller, file, limits)?;
    let is_stored = |answer: &Acknowledgement| {
        let is_stored = answer.state == State::Stored && answer.epoch == cut.epoch;
        answer.snapshot.filter(|_| is_stored)
    };
    let (parts, _) = cut.parts(&answers, is_stored);
    if parts.is_empty() {
        let message = format!(
            "no node has a bucket of {file} that it stored for snapshot {}",
            cut.snapshot.short()
        );
        let hint = "store it again: `strongroom ram cluster store FILE --evict`";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let wanted = Cut { epoch: cut.epoch, snapshot: cut.snapshot };
    let task = Task::Evict { cut: wanted, parts };
    let limits = (limits, Leniency::default());
    let outcome = run_task(context, &controller, file, task, limits, &mut NoCaller)?;
    let Outcome::Evicted(eviction) = outcome else { return Ok(Exit::Failed.into()) };
    let exit = report_eviction(context, &controller, file, &eviction)?;
    context.terminal.json(&json!({
        "event": "summary",
        "file": file.as_str(),
        "snapshot": cut.snapshot.to_string(),
        "epoch": cut.epoch.0,
        "eviction": eviction_json(&controller, &eviction),
    }))?;
    Ok(exit.into())
}
