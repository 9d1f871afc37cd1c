//! `strongroom ram cluster`: files whose buckets are in the memory of many nodes.

mod add;
mod evict;
mod load;
mod status;
mod store;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use strongroom_base::units::counted;
use strongroom_base::{Cancelled, SnapshotId};
use strongroom_bucket::KeyRange;
use strongroom_cluster::{
    Acknowledgement, ClusterError, Epoch, FileName, NodeId, Outcome, StoredPart, Task, Union,
};
use strongroom_ram::client::{Leniency, Run, RunCaller, RunLimits, run as run_client};
use strongroom_ram::cut::StoredCut;
use strongroom_ram::files::{ClusterNode, ControllerFile};
use strongroom_ram::keeper::{KeepError, Keeper};

use super::cluster_failed;
use crate::commands::storing::PlainStoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg};
use crate::terminal::printable;

/// What is done with a cluster.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Make the files of new nodes; the first ones make the cluster
    Add(add::Args),
    /// Store all buckets of a file at one instant
    Store(Box<store::Args>),
    /// Load the buckets of a file on the nodes that have registered them
    Load(Box<load::Args>),
    /// Free the memory of buckets that are still what a snapshot holds
    Evict(Box<evict::Args>),
    /// Show which buckets there are, on which nodes, and whether keys are missing
    Status(status::Args),
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Add(args) => add::run(context, &args),
        What::Store(args) => store::run(context, &args),
        What::Load(args) => load::run(context, &args),
        What::Evict(args) => evict::run(context, &args),
        What::Status(args) => status::run(context, &args),
    }
}

/// Which file, of which cluster.
#[derive(Debug, Clone, clap::Args)]
struct FileArgs {
    /// The name of the file
    #[arg(value_parser = file_name)]
    file: FileName,
    /// The folder of the cluster, with the file of its controller
    #[arg(long, value_name = "FOLDER", env = "STRONGROOM_CLUSTER")]
    cluster: PathBuf,
}

fn file_name(text: &str) -> Result<FileName, String> {
    FileName::new(text).map_err(|error| error.to_string())
}

/// How long nodes are waited for.
#[derive(Debug, Clone, clap::Args)]
struct LimitArgs {
    /// Programs hold still no longer than this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10",
        value_parser = clap::value_parser!(u64).range(1..=60))]
    deadline: u64,
    /// Nodes may take this many seconds to store, to load or to free
    #[arg(long, value_name = "SECONDS", default_value = "600",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    /// How many times keys that no node has are waited for
    #[arg(long, value_name = "COUNT", default_value = "3",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    tries: u32,
}

/// A snapshot of a file, and how it is used.
#[derive(Debug, Clone, clap::Args)]
struct CutArgs {
    #[command(flatten)]
    file: FileArgs,
    /// A snapshot of the file [default: the newest one]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<OsString>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    storing: PlainStoringArgs,
}

impl LimitArgs {
    fn limits(&self) -> RunLimits {
        RunLimits {
            stopped: Duration::from_secs(self.deadline),
            stored: Duration::from_secs(self.limit),
            periods: self.tries,
        }
    }
}

impl FileArgs {
    fn controller(&self) -> Result<ControllerFile, CliError> {
        let found = ControllerFile::read(&self.cluster).map_err(cluster_failed)?;
        found.ok_or_else(|| {
            let message = format!("there is no cluster in {}", printable(&self.cluster));
            let hint = "make one with `strongroom ram cluster add FOLDER NODE=ADDRESS:PORT`";
            CliError::new(Exit::Failed, message, hint)
        })
    }
}

/// Runs a task to its end.
fn run_task(
    context: &Context,
    controller: &ControllerFile,
    file: &FileName,
    task: Task,
    (limits, leniency): (RunLimits, Leniency),
    caller: &mut dyn RunCaller,
) -> Result<Outcome, CliError> {
    let if_cancelled = match task {
        Task::Status => "nothing was changed",
        Task::Store { .. } => "no snapshot was made, and programs go on; run it again to store",
        Task::Load { .. } => "what was loaded stays in memory; run it again to load the rest",
        Task::Evict { .. } => "what was freed stays free; run it again to free the rest",
    };
    let run = Run { files: controller, file, task, limits, leniency };
    let monitor = context.terminal.monitor_of_problems();
    let outcome = run_client(run, caller, &monitor, &context.cancel).map_err(|error| {
        CliError::new(Exit::Failed, error.to_string(), "nothing was stored or freed")
    })?;
    match outcome {
        Outcome::Cancelled => {
            Err(CliError::new(Exit::Interrupted, Cancelled.to_string(), if_cancelled))
        }
        Outcome::Failed(error) => Err(explained(&error, controller)),
        outcome => Ok(outcome),
    }
}

/// Nodes have names for people.
fn explained(error: &ClusterError, controller: &ControllerFile) -> CliError {
    let message = with_names(&error.to_string(), controller);
    CliError::new(Exit::Failed, message, "`strongroom ram cluster status FILE` shows who has what")
}

/// A text in which nodes are called as people call them.
fn with_names(text: &str, controller: &ControllerFile) -> String {
    let name = |text: String, node: &ClusterNode| text.replace(&node.id.to_string(), &node.name);
    controller.nodes.iter().fold(text.to_owned(), name)
}

fn name_of(controller: &ControllerFile, id: NodeId) -> String {
    let node = controller.nodes.iter().find(|node| node.id == id);
    node.map_or_else(|| id.to_string(), |node| node.name.clone())
}

fn keeper(context: &Context, storing: &PlainStoringArgs) -> Result<Keeper, CliError> {
    let (repository, ()) = context.open_for_backup(|_| ())?;
    Ok(Keeper {
        repository,
        options: storing.options(context),
        monitor: Box::new(context.terminal.monitor_of_problems()),
        cancel: context.cancel.clone(),
    })
}

fn keep_failed(error: KeepError) -> CliError {
    match error {
        KeepError::Engine(error) => error.into(),
        other => {
            let hint = "`strongroom snapshots` shows the snapshots";
            CliError::new(Exit::Failed, other.to_string(), hint)
        }
    }
}

/// The cut that is meant; without a name, the newest of the file.
fn find_cut(
    context: &Context,
    keeper: &Keeper,
    file: &FileName,
    name: Option<&OsString>,
) -> Result<StoredCut, CliError> {
    let id = match name {
        Some(name) => {
            let arg = SnapshotArg::from(name.clone());
            arg.find(context, &keeper.repository, &NarrowingArgs::default())?.id
        }
        None => newest_cut(keeper, file)?,
    };
    keeper.cut(file, id).map_err(keep_failed)
}

fn newest_cut(keeper: &Keeper, file: &FileName) -> Result<SnapshotId, CliError> {
    keeper.newest_cut(file).map_err(keep_failed)?.ok_or_else(|| {
        let message = format!("there is no snapshot of the file {file}");
        let hint = "`strongroom ram cluster store FILE` makes one";
        CliError::new(Exit::Failed, message, hint)
    })
}

/// Asks all nodes what they have.
fn ask(
    context: &Context,
    controller: &ControllerFile,
    file: &FileName,
    limits: RunLimits,
) -> Result<(Vec<Acknowledgement>, Union), CliError> {
    let limits = (limits, Leniency::default());
    match run_task(context, controller, file, Task::Status, limits, &mut NoCaller)? {
        Outcome::Status { answers, union } => Ok((answers, union)),
        _ => Ok(Default::default()),
    }
}

fn part_json(controller: &ControllerFile, stored: &StoredPart) -> Value {
    json!({
        "bucket": stored.part.bucket.0,
        "node": name_of(controller, stored.part.node),
        "snapshot": stored.part.snapshot.to_string(),
        "range": stored.description.range.as_ref().map(KeyRange::interval),
        "bytes": stored.description.bytes,
    })
}

fn eviction_json(controller: &ControllerFile, eviction: &strongroom_cluster::Eviction) -> Value {
    let left = eviction.left.iter().map(|problem| {
        json!({
            "bucket": problem.bucket.map(|bucket| bucket.0),
            "node": name_of(controller, problem.node),
            "reason": problem.reason,
        })
    });
    json!({
        "evicted": eviction.evicted.iter().map(|part| part.bucket.0).collect::<Vec<_>>(),
        "left": left.collect::<Vec<_>>(),
    })
}

/// Says what was freed; what was not makes the exit code.
fn report_eviction(
    context: &Context,
    controller: &ControllerFile,
    file: &FileName,
    eviction: &strongroom_cluster::Eviction,
) -> Result<Exit, CliError> {
    let freed = counted(eviction.evicted.len() as u64, "bucket", "buckets");
    context.terminal.line(format!("freed the memory of {freed}"))?;
    for problem in &eviction.left {
        let bucket = problem.bucket.map_or_else(String::new, |bucket| format!("bucket {bucket} "));
        let node = name_of(controller, problem.node);
        let message = format!("{bucket}on {node} keeps its memory: {}", problem.reason);
        context.terminal.problem(strongroom_base::Severity::Warning, &message);
    }
    if eviction.left.is_empty() {
        return Ok(Exit::Done);
    }
    if context.cancel.is_cancelled() {
        let note = format!("stopped: `strongroom ram cluster evict {file}` frees the rest");
        context.terminal.note(note);
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Incomplete)
}

/// A run that neither commits nor recovers.
struct NoCaller;

impl RunCaller for NoCaller {
    fn commit(&mut self, _: Epoch, _: &[StoredPart]) -> Result<SnapshotId, String> {
        Err("this run makes no cut".to_owned())
    }

    fn recover(&mut self, _: &KeyRange) -> bool {
        false
    }
}
