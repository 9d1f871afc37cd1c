//! The program `strongroom`: its table of contents.
//!
//! One file per command under `commands`, each with its arguments (whose comments are the help)
//! and what it runs. This crate alone prints, exits, and reads the environment; what a command
//! does is done below, in `strongroom-engine`.

mod commands;
mod context;
mod dates;
mod exit;
mod passphrase;
mod progress;
mod prompt;
mod snapshot_arg;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use context::GlobalArgs;
use exit::CliError;

/// Backs up files into a deduplicated, encrypted repository that proves and repairs itself.
#[derive(Debug, Parser)]
#[command(
    name = "strongroom",
    version,
    max_term_width = 100,
    after_help = exit::EXIT_CODES_HELP,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.global.json.then(|| cli.command.events());
    match run(cli) {
        Ok(code) => code,
        Err(error) => error.report(json),
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let context = context::Context::new(cli.global, cli.command.events())?;
    cli.command.run(&context)
}
