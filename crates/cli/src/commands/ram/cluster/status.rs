//! `strongroom ram cluster status`

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::{bytes_text, counted};
use strongroom_bucket::KeyRange;
use strongroom_cluster::{Acknowledgement, Content, Overlap, State};
use strongroom_ram::client::RunLimits;

use super::{FileArgs, ask, name_of, with_names};
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::table;

/// Which file is asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let (controller, file) = (args.file.controller()?, &args.file.file);
    let limits = RunLimits { stopped: Duration::ZERO, stored: Duration::ZERO, periods: 1 };
    let (mut answers, union) = ask(context, &controller, file, limits)?;
    answers.sort_by_key(|answer| (answer.bucket, answer.node));
    let silent: Vec<&str> = controller
        .nodes
        .iter()
        .filter(|node| !answers.iter().any(|answer| answer.node == node.id))
        .map(|node| node.name.as_str())
        .collect();
    let mut rows = vec![["bucket", "node", "state", "size", "keys"].map(str::to_owned).to_vec()];
    for answer in &answers {
        rows.push(vec![
            answer.bucket.map_or_else(|| "-".to_owned(), |bucket| bucket.to_string()),
            name_of(&controller, answer.node),
            word(answer).to_owned(),
            bytes_text(answer.description.bytes),
            answer.description.range.as_ref().map_or_else(String::new, ToString::to_string),
        ]);
    }
    for line in table(&rows, &[0, 3]) {
        context.terminal.line(line)?;
    }
    for node in &silent {
        context.terminal.note(format!("node {node} does not answer"));
    }
    for gap in &union.unclaimed {
        context.terminal.note(format!("no node has these keys: {gap}"));
    }
    let twice = Overlap::once(&union.overlaps);
    for overlap in &twice {
        let overlap = with_names(&overlap.to_string(), &controller);
        context.terminal.note(format!("claimed twice: {overlap}"));
    }
    let is_whole = silent.is_empty() && union.is_whole();
    if is_whole {
        let nodes = counted(controller.nodes.len() as u64, "node", "nodes");
        context.terminal.line(format!("{nodes}, all keys"))?;
    }
    let buckets = answers.iter().map(|answer: &Acknowledgement| {
        json!({
            "bucket": answer.bucket.map(|bucket| bucket.0),
            "node": name_of(&controller, answer.node),
            "state": word(answer),
            "epoch": answer.epoch.0,
            "range": answer.description.range.as_ref().map(KeyRange::interval),
            "bytes": answer.description.bytes,
            "reason": answer.reason,
        })
    });
    context.terminal.json(&json!({
        "event": "summary",
        "file": file.as_str(),
        "buckets": buckets.collect::<Vec<_>>(),
        "silent": silent,
        "missing": union.unclaimed.iter().map(KeyRange::interval).collect::<Vec<_>>(),
        "claimed_twice": twice.iter().map(|it| it.range.interval()).collect::<Vec<_>>(),
    }))?;
    Ok(if is_whole { Exit::Done } else { Exit::Incomplete }.into())
}

fn word(answer: &Acknowledgement) -> &'static str {
    match answer.state {
        State::Idle if answer.description.content == Content::Empty => "empty",
        State::Idle => "idle",
        State::Preparing => "preparing",
        State::Ready => "ready",
        State::Captured => "captured",
        State::Stored => "stored",
        State::Evicting => "evicting",
        State::Evicted => "evicted",
        State::Changed => "changed",
        State::Loading => "loading",
        State::Loaded => "loaded",
        State::Failed => "failed",
        State::Refused => "refused",
        State::Empty => "empty",
    }
}
