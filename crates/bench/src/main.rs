//! The harness: measures Strongroom beside other programs, beside the papers behind it, and its
//! index beside other stores.
//!
//! A program for developers; no other crate uses it. Each command writes a document:
//!
//! ```text
//! cargo run -p strongroom-bench --release -- peers
//! cargo run -p strongroom-bench --release -- years
//! cargo run -p strongroom-bench --release -- papers
//! cargo run -p strongroom-bench --release --features stores -- index --keys 10000000
//! ```
#![expect(clippy::disallowed_methods, reason = "a program, which measures")]

mod peers;

mod papers;

#[cfg(feature = "stores")]
mod index;

mod shell;
mod table;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures Strongroom beside others, and writes a document of what it found.
#[derive(Parser)]
#[command(name = "strongroom-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Strongroom beside other backup programs: writes docs/benchmarks.md
    Peers(peers::Args),
    /// Every second of sixty snapshots forgotten and pruned, beside others: writes docs/years.md
    Years(peers::YearsArgs),
    /// The papers' tables, on releases of today, and Foundation's simulator: writes docs/papers.md
    /// and docs/foundation.md
    Papers(papers::Args),
    /// The index beside redb, fjall, linear hashing and Venti's buckets
    #[cfg(feature = "stores")]
    Index(index::Args),
    /// One store, one phase, in a process of its own
    #[cfg(feature = "stores")]
    #[command(hide = true)]
    IndexPhase(index::phase::Args),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = std::path::absolute(&root).and_then(std::fs::canonicalize).unwrap_or(root);
    let result = match Cli::parse().command {
        Command::Peers(args) => peers::run(args, &root).map_err(|failure| failure.to_string()),
        Command::Years(args) => {
            peers::run_years(args, &root).map_err(|failure| failure.to_string())
        }
        Command::Papers(args) => papers::run(args, &root).map_err(|failure| failure.to_string()),
        #[cfg(feature = "stores")]
        Command::Index(args) => print(index::run(&args)),
        #[cfg(feature = "stores")]
        Command::IndexPhase(args) => print(index::phase::run(&args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "stores")]
#[expect(clippy::print_stdout, reason = "the result of the command")]
fn print(text: index::Result<String>) -> Result<(), String> {
    print!("{}", text.map_err(|error| error.to_string())?);
    Ok(())
}

/// One line for the person who runs the harness.
#[expect(clippy::print_stderr, reason = "this program reports to a person")]
fn say(line: &str) {
    eprintln!("{line}");
}
