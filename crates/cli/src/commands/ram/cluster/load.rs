//! `strongroom ram cluster load`

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::Stopwatch;
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_cluster::{Cut, Outcome, Task};

use super::{FileArgs, LimitArgs, NoCaller, ask, find_cut, keeper, name_of, parts, run_task};
use crate::commands::storing::PlainStoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// Which file is loaded, and from what.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// The snapshot to load from [default: the newest one of the file]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<OsString>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    storing: PlainStoringArgs,
}

/// Loads it. A bucket that is in memory stays as it is.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let (controller, file) = (args.file.controller()?, &args.file.file);
    let keeper = keeper(context, &args.storing)?;
    let cut = find_cut(&keeper, file, args.snapshot.as_ref())?;
    let limits = args.limits.limits();
    let watch = Stopwatch::start();
    let (answers, _) = ask(context, &controller, file, limits)?;
    let is_empty = |answer: &strongroom_cluster::Acknowledgement| {
        answer.description.range.is_none().then_some(cut.snapshot)
    };
    let (parts, missing) = parts(&cut, &answers, is_empty);
    if let Some(bucket) = missing.first() {
        let present =
            answers.iter().find(|answer| answer.bucket.is_some_and(|other| other.0 == *bucket));
        let (message, hint) = match present {
            Some(answer) => (
                format!(
                    "bucket {bucket} of {file} is in the memory of {} already",
                    name_of(&controller, answer.node)
                ),
                "evict it first, or end its program",
            ),
            None => (
                format!("no node has registered bucket {bucket} of {file}"),
                "start its program, without data, on the node that is to have it",
            ),
        };
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let wanted = Cut { epoch: cut.epoch, snapshot: cut.snapshot };
    let task = Task::Load { cut: wanted, parts };
    let outcome = run_task(context, &controller, file, task, limits, &mut NoCaller)?;
    let Outcome::Loaded { answers, .. } = outcome else { return Ok(Exit::Failed.into()) };
    let bytes = answers.iter().map(|answer| answer.description.bytes).sum::<u64>();
    context.terminal.line(format!(
        "loaded {} of {file} from snapshot {}: {}, in {}",
        counted(answers.len() as u64, "bucket", "buckets"),
        cut.snapshot.short(),
        bytes_text(bytes),
        duration_text(watch.elapsed()),
    ))?;
    let buckets = answers.iter().filter_map(|answer| {
        Some(json!({
            "bucket": answer.bucket?.0,
            "node": name_of(&controller, answer.node),
            "range": answer.description.range.as_ref().map(ToString::to_string),
            "bytes": answer.description.bytes,
        }))
    });
    context.terminal.json(&json!({
        "event": "summary",
        "file": file.as_str(),
        "snapshot": cut.snapshot.to_string(),
        "epoch": cut.epoch.0,
        "buckets": buckets.collect::<Vec<_>>(),
        "seconds": watch.elapsed().as_secs_f64(),
    }))?;
    Ok(Exit::Done.into())
}
