//! `strongroom ram`: memory that is in use.

mod agent;
mod cluster;
mod load;
mod regions;
mod store;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use strongroom_ram::files::FilesError;

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// What is done with memory.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Store regions of memory as a new snapshot, while they are in use
    Store(Box<store::Args>),
    /// Put regions back, writing only what differs
    Load(load::Args),
    /// Store regions again and again
    Watch(Box<watch::Args>),
    /// Store and load buckets for the programs of this node, and for a cluster
    Agent(Box<agent::Args>),
    /// Store and load files whose buckets are in the memory of many nodes
    Cluster(cluster::Args),
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Store(args) => store::run(context, &args),
        What::Load(args) => load::run(context, args),
        What::Watch(args) => watch::run(context, &args),
        What::Agent(args) => agent::run(context, &args),
        What::Cluster(args) => cluster::run(context, args),
    }
}

/// Why the files of a cluster are of no use.
fn cluster_failed(error: FilesError) -> CliError {
    let hint = match &error {
        FilesError::Open(path) => format!(
            "run `chmod 600 {}`; if another user may have read it, make a new cluster in another \
             folder with `strongroom ram cluster add`",
            printable(path)
        ),
        FilesError::Families { .. } => {
            "choose a group of their family; without --multicast, nodes may have both".to_owned()
        }
        _ => "`strongroom ram cluster add FOLDER NODE=ADDRESS:PORT` makes these files".to_owned(),
    };
    CliError::new(Exit::Failed, error.to_string(), hint)
}
