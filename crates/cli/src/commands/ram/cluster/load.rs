//! `strongroom ram cluster load`

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_base::{Severity, Stopwatch};
use strongroom_bucket::KeyRange;
use strongroom_cluster::{
    Acknowledgement, Content, Cut, Description, FileName, Outcome, Part, State, Task,
};
use strongroom_ram::client::Leniency;
use strongroom_ram::files::ControllerFile;

use super::{CutArgs, NoCaller, ask, find_cut, keeper, name_of, run_task};
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// Which file is loaded, and from what.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cut: CutArgs,
}

/// Loads it. A bucket that is in memory stays as it is.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let CutArgs { file: of, snapshot, limits, storing } = &args.cut;
    let (controller, file, limits) = (of.controller()?, &of.file, limits.limits());
    let keeper = keeper(context, storing)?;
    let cut = find_cut(context, &keeper, file, snapshot.as_ref())?;
    let watch = Stopwatch::start();
    let (answers, _) = ask(context, &controller, file, limits)?;
    let to_load = |answer: &Acknowledgement| {
        // What was not looked at yet, its agent looks at first, and leaves it as it is if it is filled.
        let Description { range, content, .. } = &answer.description;
        let is_filled = range.is_some() && *content == Content::Filled;
        (!is_filled || answer.state == State::Evicted).then_some(cut.snapshot)
    };
    let (parts, missing) = cut.parts(&answers, to_load);
    check(&controller, file, &answers, &parts, &missing)?;
    let wanted = Cut { epoch: cut.epoch, snapshot: cut.snapshot };
    let task = Task::Load { cut: wanted, parts: parts.clone() };
    let limits = (limits, Leniency::default());
    let outcome = run_task(context, &controller, file, task, limits, &mut NoCaller)?;
    let Outcome::Loaded { answers: loaded, .. } = outcome else { return Ok(Exit::Failed.into()) };
    if loaded.is_empty() {
        return Err(nothing_to_load(&controller, file, &answers));
    }
    let is_loaded = |part: &&Part| loaded.iter().any(|answer| answer.bucket == Some(part.bucket));
    let left = parts.iter().filter(|part| !is_loaded(part)).map(|part| part.bucket.0);
    let left: BTreeSet<u32> = left.chain(missing).collect();
    if !left.is_empty() {
        let numbers: Vec<String> = left.iter().map(ToString::to_string).collect();
        let message = format!(
            "in memory already, and left as they are, maybe newer than the snapshot: {} {}",
            if left.len() == 1 { "bucket" } else { "buckets" },
            numbers.join(", ")
        );
        context.terminal.problem(Severity::Note, &message);
    }
    let answers = loaded;
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
            "range": answer.description.range.as_ref().map(KeyRange::interval),
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

/// Fails if there is nothing to load, or a bucket is neither in memory nor registered to be loaded.
fn check(
    controller: &ControllerFile,
    file: &FileName,
    answers: &[Acknowledgement],
    parts: &[Part],
    missing: &[u32],
) -> Result<(), CliError> {
    let is_unknown = |bucket: &&u32| {
        !answers.iter().any(|answer| answer.bucket.is_some_and(|other| other.0 == **bucket))
    };
    if let Some(bucket) = missing.iter().find(is_unknown) {
        let message = format!("no node has registered bucket {bucket} of {file}");
        let hint = "start its program, without data, on the node that is to have it";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    if parts.is_empty() {
        return Err(nothing_to_load(controller, file, answers));
    }
    Ok(())
}

fn nothing_to_load(
    controller: &ControllerFile,
    file: &FileName,
    answers: &[Acknowledgement],
) -> CliError {
    let holder = answers.iter().find(|answer| answer.bucket.is_some());
    let holder = holder.map_or_else(String::new, |answer| name_of(controller, answer.node));
    let message = format!("all buckets of {file} are in memory already, such as on {holder}");
    let hint = "evict them first, or end their programs, to have them as they were";
    CliError::new(Exit::Failed, message, hint)
}
