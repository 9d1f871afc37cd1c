//! `strongroom restore`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{bytes_text, count_text, duration_text};
use strongroom_engine::{RestoreOptions, RestorePlace, restore};
use strongroom_source::TargetOptions;

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::SnapshotArg;

/// What is put back, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path in it: `latest`, `latest:/home/me`
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    what: OsString,
    /// Put it below this directory: the whole snapshot with its paths, or what is in PATH
    #[arg(long, short, value_name = "DIR", required_unless_present = "in_place")]
    target: Option<PathBuf>,
    /// Put it back where it came from
    #[arg(long, conflicts_with = "target")]
    in_place: bool,
    /// Remove what the snapshot lacks, below the paths that were backed up alone; nothing from
    /// directories of which the backup left something out
    #[arg(long)]
    delete: bool,
    /// Write nothing; show what would be done (with -v, file by file)
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Read every file again once it is written
    #[arg(long)]
    verify: bool,
    /// Leave files to whoever restores them
    #[arg(long)]
    no_owner: bool,
    /// Give files to owners by number, not by name
    #[arg(long)]
    numeric_owner: bool,
    /// Leave out extended attributes, ACLs and capabilities
    #[arg(long)]
    no_xattrs: bool,
    /// Threads that read and write, two more than there are cores unless told otherwise
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
}

/// So many threads wait for a disk, by and large, while the others keep the cores busy.
const WAITING_THREADS: usize = 2;

/// Puts it back.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let repository = context.open()?;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(&repository)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let usual = TargetOptions::default();
    let options = RestoreOptions {
        path: what.path,
        place: args.target.map_or(RestorePlace::InPlace, RestorePlace::Into),
        target: TargetOptions {
            owner: usual.owner && !args.no_owner,
            numeric_owner: args.numeric_owner,
            xattrs: !args.no_xattrs,
            delete: args.delete,
        },
        dry_run: args.dry_run,
        verify: args.verify,
        workers: args.threads.unwrap_or(cores + WAITING_THREADS),
    };
    let new_and_known =
        Some(if args.dry_run { ("to write", "right") } else { ("written", "right") });
    let done = if args.dry_run { "compared" } else { "restored" };
    let monitor = context.terminal.monitor(Words { done, new_and_known });
    let outcome = restore(&repository, &snapshot, &options, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "dry_run": args.dry_run,
        "seconds": monitor.elapsed().as_secs_f64(),
        "files": outcome.files,
        "directories": outcome.directories,
        "bytes": outcome.bytes,
        "files_right": outcome.files_right,
        "bytes_written": outcome.bytes_written,
        "chunks_read": outcome.chunks_read,
        "reads": outcome.reads,
        "deleted": outcome.deleted,
        "problems": outcome.problems,
        "damaged": outcome.damaged.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>(),
    }))?;
    let (did, deleted) = match args.dry_run {
        true => ("would restore", "would be deleted"),
        false if outcome.problems > 0 => ("restored with problems:", "deleted"),
        false => ("restored", "deleted"),
    };
    context.terminal.line(format!(
        "{did} {} files, {} from snapshot {} in {}",
        count_text(outcome.files),
        bytes_text(outcome.bytes),
        snapshot.id.short(),
        duration_text(monitor.elapsed()),
    ))?;
    context.terminal.line(format!(
        "  {} written, {} files were right already, {} {deleted}",
        bytes_text(outcome.bytes_written),
        count_text(outcome.files_right),
        count_text(outcome.deleted),
    ))?;
    if outcome.problems > 0 {
        let problems = count_text(outcome.problems);
        context.terminal.line(format!("  problems: {problems}; see the warnings above"))?;
    }
    if !outcome.damaged.is_empty() {
        let damaged = count_text(outcome.damaged.len() as u64);
        context.terminal.line(format!("  {damaged} could not be had whole: see above"))?;
        return Ok(Exit::Damaged.into());
    }
    Ok(if outcome.problems > 0 { Exit::Incomplete } else { Exit::Done }.into())
}
