//! `strongroom completions`

use std::process::ExitCode;

use clap_complete::Shell;

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::manual::command;

/// The shell to complete for.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "strongroom", &mut script);
    context.terminal.raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done.into())
}
