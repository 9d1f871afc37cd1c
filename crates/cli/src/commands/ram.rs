//! `strongroom ram`: memory that is in use.

mod load;
mod regions;
mod store;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::CliError;

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
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Store(args) => store::run(context, &args),
        What::Load(args) => load::run(context, args),
        What::Watch(args) => watch::run(context, &args),
    }
}
