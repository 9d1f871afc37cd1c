//! Measures what we made against what could be taken instead, on the same data and in one run.
//!
//! A tool for developers: nothing else uses it, and the libraries it compares with are no
//! dependencies of anything but it.
//!
//! `cargo run --release -p bench-compare -- index --keys 10000000`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

mod index;

mod process;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The result of anything here. Whoever reads the error is the developer who ran it.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Side-by-side measurements.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fingerprint to location: ours, redb, fjall, linear hashing, Venti's buckets.
    Index(index::Args),
    /// One store, one phase, in a process of its own.
    #[command(hide = true)]
    IndexPhase(index::phase::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Index(args) => index::run(&args).map(|report| print!("{report}")),
        Command::IndexPhase(args) => index::phase::run(&args).map(|told| print!("{told}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-compare: {error}");
            ExitCode::FAILURE
        }
    }
}
