//! The program `strongroom`: its table of contents.
//!
//! Each command has a file under `commands`, with its arguments (whose comments are the help) and
//! the function that runs it. Only this crate prints, exits, and reads the environment; the work
//! itself is done in `strongroom-engine`.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate reads the environment and the clock for all others"
)]

mod allocator;
mod archived_emulator;
mod boot;
mod calendar;
mod child;
mod columns;
mod command_output;
mod commands;
mod connection;
mod context;
mod dates;
mod exit;
mod filter_args;
mod full_screen;
mod import;
mod machine;
mod manual;
mod mistyped;
mod night;
mod pager;
mod paint;
mod passphrase;
mod path_lists;
mod plot;
mod profile;
mod progress;
mod prompt;
mod replaced;
mod running;
mod schedule;
mod scratch;
mod snapshot_arg;
mod spans;
mod terminal;
mod used_places;
mod yielding;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches, Parser};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

use commands::Command;
use context::GlobalArgs;
use exit::CliError;
use terminal::Events;

/// Backs up files into a deduplicated, encrypted repository that proves and repairs itself.
#[derive(Debug, Parser)]
#[command(
    name = "strongroom",
    version,
    max_term_width = 100,
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
    hide_memory();
    ignore_empty_variables();
    let typed: Vec<OsString> = std::env::args_os().collect();
    let for_programs = events_typed(&typed);
    let extended = match profile::extend(&manual::command(), typed) {
        Ok(extended) => extended,
        Err(error) => return error.report(for_programs),
    };
    for (name, value) in extended.chosen.iter().flat_map(|chosen| &chosen.variables) {
        // SAFETY: no other thread has been started that could read or change the environment.
        unsafe { std::env::set_var(name, value) };
    }
    let matches = match manual::command().try_get_matches_from(&extended.arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let position = extended.position_of(&error);
            return mistyped::explain(&error, &extended.arguments, position, for_programs);
        }
    };
    let command = name_of(&matches);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    paint::choose(cli.global.color);
    allow_open_files();
    allocator::keep_one_heap(cli.command.may_store());
    let json = cli.global.json.then(|| cli.command.events());
    if cli.command.is_list() && !cli.global.no_pager && json.is_none() {
        pager::allow();
    }
    let code = match run(cli, extended.chosen, command) {
        // Leaving the pager before the end is no failure.
        Err(error) if error.is_of_closed_output() && pager::is_on() => ExitCode::SUCCESS,
        Err(error) => error.report(json),
        Ok(code) => code,
    };
    pager::end();
    code
}

/// A variable that is empty says nothing, as with other programs; an empty pager is none.
fn ignore_empty_variables() {
    let is_ours = |name: &str| name.starts_with("STRONGROOM_") && name != "STRONGROOM_PAGER";
    let empty = std::env::vars_os().filter(|(_, value)| value.is_empty());
    for (name, _) in empty.filter(|(name, _)| name.to_str().is_some_and(is_ours)) {
        // SAFETY: no other thread has been started that could read or change the environment.
        unsafe { std::env::remove_var(name) };
    }
}

/// Where events go as long as the command line is not understood.
fn events_typed(typed: &[OsString]) -> Option<Events> {
    let has = |wanted: &str| typed.iter().any(|word| word == wanted);
    let content = has("cat") || has("dump") || has("--stdio");
    has("--json").then_some(if content { Events::StandardError } else { Events::StandardOutput })
}

/// The command that was asked for, such as `key add`.
fn name_of(mut matches: &ArgMatches) -> &'static str {
    let mut words = Vec::new();
    while let Some((word, below)) = matches.subcommand() {
        words.push(word);
        matches = below;
    }
    // Once in a process.
    words.join(" ").leak()
}

/// Keeps the keys in memory from core files, and from other processes of the same user. Only the
/// soft limit is lowered: a command that the program starts may raise it again.
fn hide_memory() {
    // If the system does not let it, the program works all the same.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let limit = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum });
}

/// Allows as many open files as the system does: a walk that is ahead holds directories open.
fn allow_open_files() {
    const FILES_MAX: u64 = 16 << 10;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        // Fewer will do.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

fn run(
    cli: Cli,
    chosen: Option<profile::Chosen>,
    command: &'static str,
) -> Result<ExitCode, CliError> {
    let context = context::Context::new(cli.global, chosen, cli.command.events(), command)?;
    let done = cli.command.run(&context);
    context.report_replicas();
    let code = done?;
    context.terminal.end()?;
    Ok(code)
}
