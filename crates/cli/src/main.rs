//! The program `strongroom`: its table of contents.
//!
//! One file per command under `commands`, each with its arguments (whose comments are the help)
//! and what it runs. This crate alone prints, exits, and reads the environment; what a command
//! does is done below, in `strongroom-engine`.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate reads the environment and the clock for all others"
)]

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
    keep_one_heap(&cli.command);
    let json = cli.global.json.then(|| cli.command.events());
    match run(cli) {
        Ok(code) => code,
        Err(error) => error.report(json),
    }
}

/// One heap for all threads, which keeps what is freed: to give pages back and have them mapped
/// anew for the next buffer takes longer than to fill it. The C library would begin a heap for
/// each thread, and what one makes and another drops then lies fallow in all of them.
///
/// A backup has its largest buffers outside of the heap, where they would leave holes, and uses
/// them again by itself. What that saves: `docs/design/0002-dependencies.md`.
fn keep_one_heap(command: &Command) {
    let (largest, kept) = match command {
        Command::Backup(_) => (2 << 20, 8 << 20),
        // Whole objects, as a verification reads them, are longer.
        _ => (8 << 20, 32 << 20),
    };
    #[cfg(not(target_env = "gnu"))]
    let _: (i32, i32) = (largest, kept);
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes two numbers, no pointer, and is called before there is a second
    // thread. What it answers is of no matter: at worst all stays as it was.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, largest);
        libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let context = context::Context::new(cli.global, cli.command.events())?;
    cli.command.run(&context)
}
