//! `strongroom dump`

use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::json;
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_engine::{DumpFormat, DumpPart, dump};

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::filter_args::FilterArgs;
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete, exit_of_missing};
use crate::terminal::{name_json, path_json};

/// What is written, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path in it: `latest`, `latest:/home/me`
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    what: OsString,
    /// tar, or zip, which has no owners, ACLs, xattrs, devices and sockets
    #[arg(long, short, value_name = "FORMAT", default_value = "tar", hide_possible_values = true)]
    format: Format,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Tar,
    Zip,
}

impl From<Format> for DumpFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Tar => Self::Tar,
            Format::Zip => Self::Zip,
        }
    }
}

/// How many bytes are gathered before they are written.
const BUFFER_BYTES: usize = 256 * 1024;

/// Writes it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() {
        let message = "an archive is not written to a terminal";
        let hint = "write it to a file or a pipe, such as `strongroom dump latest > latest.tar`";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let filter = args.filter.resolve()?;
    let repository = context.open_to_read(&args.replicas)?;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    let exit = check_complete(context, &snapshot);
    let exit = exit_of_missing(&snapshot, &what.path, exit);
    let monitor = context.terminal.monitor(Words::files("written"));
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, stdout.lock());
    let format = args.format.into();
    let part = DumpPart { path: &what.path, filter: filter.as_ref() };
    let outcome = dump(&repository, &snapshot, part, format, &mut out, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    out.flush()?;
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "path": name_json(&what.path),
        "seconds": monitor.elapsed().as_secs_f64(),
        "files": outcome.files,
        "directories": outcome.directories,
        "bytes": outcome.bytes,
        "left_out": outcome.left_out,
        "damaged": outcome.damaged.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
    }))?;
    context.terminal.note(format!(
        "wrote {}, {} from {}snapshot {} in {}",
        counted(outcome.files, "file", "files"),
        bytes_text(outcome.bytes),
        if snapshot.partial { "incomplete " } else { "" },
        snapshot.id.short(),
        duration_text(monitor.elapsed()),
    ));
    if outcome.left_out > 0 {
        let left_out = counted(outcome.left_out, "entry", "entries");
        let what = "the format cannot hold all of it: see above";
        context.terminal.note(format!("  {left_out} left out, in whole or in part; {what}"));
    }
    if !outcome.damaged.is_empty() {
        let damaged = counted(outcome.damaged.len() as u64, "file is", "files are");
        context.terminal.note(format!("  {damaged} damaged in the repository: see above"));
        return Ok(Exit::Damaged.into());
    }
    // The directory that was named is in the archive in any case.
    let top = u64::from(what.path.iter().any(|byte| *byte != b'/'));
    if filter.is_some() && outcome.files == 0 && outcome.directories <= top {
        return Ok(FilterArgs::report_nothing(context).into());
    }
    // It is not a failure that a format cannot hold a socket.
    Ok(exit.into())
}
