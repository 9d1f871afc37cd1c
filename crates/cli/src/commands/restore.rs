//! `strongroom restore`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_catalog::Snapshot;
use strongroom_engine::{RestoreOptions, RestoreOutcome, RestorePlace, restore};
use strongroom_repository::{Repository, list_snapshots};
use strongroom_source::TargetOptions;

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::filter_args::FilterArgs;
use crate::machine::{host_name, restore_threads};
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete, exit_of_missing, from_line};
use crate::terminal::{path_json, printable_text};

/// What is restored, and where to.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path in it: `latest`, `latest:/home/me`
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    what: OsString,
    /// Restore into this directory: the whole snapshot with its paths, or what is in PATH
    #[arg(long, short, value_name = "DIR", required_unless_present = "in_place")]
    target: Option<PathBuf>,
    /// Restore to where it was backed up from
    #[arg(long, conflicts_with = "target")]
    in_place: bool,
    /// Remove what the snapshot lacks, only below the paths that were backed up, and not in
    /// directories that the snapshot holds only in part
    #[arg(long, conflicts_with_all = ["include", "iinclude", "exclude", "iexclude"])]
    delete: bool,
    /// Rewrite files that differ in place, instead of replacing each by a whole one: needs no room
    /// for a second copy, but if it is interrupted, files are half old and half new
    #[arg(long)]
    patch: bool,
    /// Change nothing; show what would be done (with -v, file by file)
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Read every file again after it is written
    #[arg(long)]
    verify: bool,
    /// Do not restore owners; files belong to the user who restores them
    #[arg(long)]
    no_owner: bool,
    /// Restore owners by number, not by name
    #[arg(long)]
    numeric_owner: bool,
    /// Do not restore extended attributes, ACLs and capabilities
    #[arg(long)]
    no_xattrs: bool,
    /// Restore also what a put-only machine's snapshot names of other machines' chunks, as some do
    /// that older programs made; anybody with its key could have named them
    #[arg(long)]
    foreign_chunks: bool,
    /// How many threads read and write [default: one per core, and two]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Restores it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let filter = args.filter.resolve()?;
    let is_filtered = filter.is_some();
    let mut repository = context.open_to_read(&args.replicas)?;
    repository.trusts_references = args.foreign_chunks;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    if args.target.is_none() {
        refuse_another_host(&repository, &what, &args.narrowing, &snapshot)?;
    }
    let exit = check_complete(context, &snapshot);
    let exit = exit_of_missing(&snapshot, &what.path, exit);
    let usual = TargetOptions::default();
    let options = RestoreOptions {
        path: what.path,
        filter,
        place: args.target.map_or(RestorePlace::InPlace, RestorePlace::Into),
        target: TargetOptions {
            owner: usual.owner && !args.no_owner,
            numeric_owner: args.numeric_owner,
            xattrs: !args.no_xattrs,
            delete: args.delete,
            patch: args.patch,
        },
        // They are looked for only then: one may be on a disk that does not answer.
        kept: if args.delete { context.kept_files(&args.replicas) } else { Vec::new() },
        dry_run: args.dry_run,
        verify: args.verify,
        workers: args.threads.unwrap_or_else(restore_threads),
    };
    let new_and_known =
        Some(if args.dry_run { ("to write", "up to date") } else { ("written", "up to date") });
    let done = if args.dry_run { "compared" } else { "restored" };
    let monitor = context.terminal.monitor(Words { new_and_known, ..Words::files(done) });
    let outcome = restore(&repository, &snapshot, &options, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "dry_run": args.dry_run,
        "seconds": monitor.elapsed().as_secs_f64(),
        "files": outcome.files,
        "directories": outcome.directories,
        "bytes": outcome.bytes,
        "files_failed": outcome.files_failed,
        "files_right": outcome.files_right,
        "bytes_written": outcome.bytes_written,
        "chunks_read": outcome.chunks_read,
        "reads": outcome.reads,
        "deleted": outcome.deleted,
        "problems": outcome.problems,
        "damaged": outcome.damaged.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
        "withheld": outcome.withheld.iter().map(|(path, _)| path_json(path)).collect::<Vec<_>>(),
    }))?;
    for line in summary(&snapshot, &outcome, args.dry_run, monitor.elapsed()) {
        context.terminal.line(line)?;
    }
    let is_nothing = outcome.files == 0 && outcome.directories == 0;
    Ok(if !outcome.damaged.is_empty() {
        Exit::Damaged
    } else if !outcome.withheld.is_empty() {
        context.terminal.note(
            "no damage is known: bring back what is archived, or use credentials that may \
             read, and restore again: what is right already is not read again",
        );
        Exit::Withheld
    } else if is_filtered && is_nothing {
        FilterArgs::report_nothing(context)
    } else if outcome.problems > 0 {
        Exit::Incomplete
    } else {
        exit
    }
    .into())
}

/// Fails if a name such as `latest` means a snapshot of another machine, and this one has some of its own: in
/// place, its files would be put over those of this one.
fn refuse_another_host(
    repository: &Repository,
    what: &SnapshotArg,
    narrowing: &NarrowingArgs,
    snapshot: &Snapshot,
) -> Result<(), CliError> {
    let own = host_name();
    let is_chosen = !what.is_relative() || narrowing.resolve().host.is_some();
    if is_chosen || snapshot.host == own {
        return Ok(());
    }
    let has_own = list_snapshots(repository)?.snapshots.iter().any(|other| other.host == own);
    if !has_own {
        return Ok(());
    }
    let (own, host) = (printable_text(&own), printable_text(&snapshot.host));
    let message = format!("the newest snapshot that fits is of {host}, and this machine is {own}");
    let hint = format!(
        "give --host {own} for the snapshots of this machine; --host {host} puts those files over the \
         files of this one"
    );
    Err(CliError::new(Exit::Failed, message, hint))
}

fn summary(
    snapshot: &Snapshot,
    outcome: &RestoreOutcome,
    dry_run: bool,
    elapsed: Duration,
) -> Vec<String> {
    let did = match outcome.problems {
        _ if dry_run => "would restore",
        0 => "restored",
        _ => "restored with problems:",
    };
    let would = if dry_run { "would be " } else { "" };
    let files = counted(outcome.files, "file", "files");
    let files = match outcome.files_failed {
        0 => format!("{files}, {}", bytes_text(outcome.bytes)),
        failed => format!("{} of {files}", count_text(outcome.files.saturating_sub(failed))),
    };
    let mut lines = vec![
        format!("{did} {files} in {}", duration_text(elapsed)),
        from_line(snapshot),
        format!(
            "  {} {would}written, {} already up to date{}, {} {would}deleted",
            bytes_text(outcome.bytes_written),
            counted(outcome.files_right, "file", "files"),
            if dry_run { " by size and time" } else { "" },
            count_text(outcome.deleted),
        ),
    ];
    if outcome.problems > 0 {
        let problems = counted(outcome.problems, "problem", "problems");
        lines.push(format!("  {problems}: see the warnings above"));
    }
    if !outcome.withheld.is_empty() {
        let count = outcome.withheld.len() as u64;
        let withheld =
            counted(count, "file or directory was left out", "files or directories were left out");
        lines.push(format!("  {withheld}: the place withholds parts of them, see above"));
    }
    if !outcome.damaged.is_empty() {
        let damaged = counted(outcome.damaged.len() as u64, "file is", "files are");
        lines.push(format!("  {damaged} damaged in the repository: see above"));
    }
    lines
}
