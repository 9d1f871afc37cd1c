//! `strongroom manpages`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::Cli;
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// Where to.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder to write them into, such as /usr/local/share/man/man1
    folder: PathBuf,
}

/// Writes them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        let message = format!("cannot write into {}: {error}", args.folder.display());
        CliError::new(Exit::Failed, message, "name a folder that exists and that you may write to")
    })?;
    context.terminal.line(format!("wrote the manual pages into {}", args.folder.display()))?;
    Ok(Exit::Done.into())
}
