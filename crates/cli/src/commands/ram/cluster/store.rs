//! `strongroom ram cluster store`

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use serde_json::json;
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_base::{Severity, SnapshotId, Stopwatch};
use strongroom_bucket::KeyRange;
use strongroom_cluster::{Epoch, FileName, NodeId, Outcome, StoredPart, Task};
use strongroom_ram::client::{Leniency, RunCaller};
use strongroom_ram::files::ControllerFile;
use strongroom_ram::keeper::Keeper;

use super::{
    FileArgs, LimitArgs, eviction_json, keep_failed, keeper, part_json, report_eviction, run_task,
};
use crate::commands::storing::PlainStoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::{Terminal, printable};

/// Which file is stored, and what then.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Free the memory of buckets that are still what was stored
    #[arg(long)]
    evict: bool,
    /// Run this if no node has some keys, before they are waited for again: it may start their
    /// bucket on another node. STRONGROOM_FILE and STRONGROOM_RANGE say which
    #[arg(long, value_name = "COMMAND")]
    on_missing: Option<OsString>,
    /// Do not wait for this node, which is lost: what it has is in no snapshot. It may be given more
    /// than once
    #[arg(long, value_name = "NODE")]
    without: Vec<String>,
    /// Store buckets of zeros, too. Otherwise they are waited for once the file has a snapshot: their
    /// programs may have begun and loaded nothing
    #[arg(long)]
    accept_empty: bool,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    storing: PlainStoringArgs,
}

/// Stores it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let (controller, file) = (args.file.controller()?, &args.file.file);
    let keeper = keeper(context, &args.storing)?;
    let mut caller = Caller {
        keeper: &keeper,
        file,
        terminal: &context.terminal,
        on_missing: args.on_missing.as_ref(),
    };
    let watch = Stopwatch::start();
    let task = Task::Store { evicts: args.evict };
    // The first snapshot of a file replaces nothing.
    let takes_empty = args.accept_empty || !keeper.may_have_cut(file).map_err(keep_failed)?;
    let leniency = Leniency { without: args.without(&controller)?, takes_empty };
    let limits = (args.limits.limits(), leniency);
    let outcome = run_task(context, &controller, file, task, limits, &mut caller)?;
    let Outcome::Stored { cut, parts, eviction } = outcome else {
        return Ok(Exit::Failed.into());
    };
    let bytes = parts.iter().map(|part| part.description.bytes).sum::<u64>();
    context.terminal.line(format!(
        "stored {} of {file} as snapshot {}: {} at one instant (epoch {}), in {}",
        counted(parts.len() as u64, "bucket", "buckets"),
        cut.snapshot.short(),
        bytes_text(bytes),
        cut.epoch,
        duration_text(watch.elapsed()),
    ))?;
    let exit = match &eviction {
        Some(eviction) => report_eviction(context, &controller, file, eviction)?,
        None => Exit::Done,
    };
    context.terminal.json(&json!({
        "event": "summary",
        "file": file.as_str(),
        "snapshot": cut.snapshot.to_string(),
        "epoch": cut.epoch.0,
        "buckets": parts.iter().map(|part| part_json(&controller, part)).collect::<Vec<_>>(),
        "eviction": eviction.as_ref().map(|eviction| eviction_json(&controller, eviction)),
        "seconds": watch.elapsed().as_secs_f64(),
    }))?;
    Ok(exit.into())
}

impl Args {
    /// Nodes that need not answer.
    fn without(&self, controller: &ControllerFile) -> Result<Vec<NodeId>, CliError> {
        let id = |name: &String| {
            let node = controller.nodes.iter().find(|node| node.name == *name);
            node.map(|node| node.id).ok_or_else(|| {
                let message =
                    format!("there is no node {} in the cluster", printable(Path::new(name)));
                let hint = "`strongroom ram cluster status FILE` shows the nodes";
                CliError::new(Exit::Failed, message, hint)
            })
        };
        self.without.iter().map(id).collect()
    }
}

struct Caller<'c> {
    keeper: &'c Keeper,
    file: &'c FileName,
    terminal: &'c Terminal,
    on_missing: Option<&'c OsString>,
}

impl RunCaller for Caller<'_> {
    fn commit(&mut self, epoch: Epoch, parts: &[StoredPart]) -> Result<SnapshotId, String> {
        self.keeper.commit_cut(self.file, epoch, parts).map_err(|error| error.to_string())
    }

    fn recover(&mut self, range: &KeyRange) -> bool {
        let missing = format!("no node has these keys of {}: {range}", self.file);
        let Some(command) = self.on_missing else {
            self.terminal.problem(Severity::Warning, &missing);
            return false;
        };
        self.terminal.problem(Severity::Warning, &format!("{missing}; running --on-missing"));
        let status = Command::new("/bin/sh")
            .arg("-c")
            .arg(command)
            .env("STRONGROOM_FILE", self.file.as_str())
            .env("STRONGROOM_RANGE", range.interval())
            .status();
        let failed = match status {
            Ok(status) if status.success() => return true,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.terminal.problem(Severity::Warning, &format!("--on-missing failed: {failed}"));
        false
    }
}
