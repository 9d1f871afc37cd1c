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
    keep_one_heap();
    let cli = Cli::parse();
    let json = cli.global.json.then(|| cli.command.events());
    match run(cli) {
        Ok(code) => code,
        Err(error) => error.report(json),
    }
}

/// One heap for all threads, and none of the largest buffers in it. The C library would begin one
/// for each thread, and what one makes and another drops then lies fallow in all of them; whole
/// arenas would leave holes between blocks. What that saves: `docs/design/0002-dependencies.md`.
fn keep_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes two numbers, no pointer, and is called before there is a second
    // thread. What it answers is of no matter: at worst all stays as it was.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 2 << 20);
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let context = context::Context::new(cli.global, cli.command.events())?;
    cli.command.run(&context)
}
