//! `strongroom cat`

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::{Cancel, Cancelled};
use strongroom_engine::cat;

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::name_json;

/// Which file is printed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path of a file in it: `latest:/etc/fstab`
    #[arg(value_name = "SNAPSHOT:PATH")]
    what: OsString,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Writes it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let what = SnapshotArg::from(args.what);
    if what.path.is_empty() {
        let hint = "name the file after a colon, such as latest:/etc/fstab";
        return Err(CliError::new(Exit::Failed, "no file was named", hint));
    }
    let repository = context.open_to_read(&args.replicas)?;
    let snapshot = what.find(&repository, &args.narrowing)?;
    what.report(context, &snapshot);
    let exit = check_complete(context, &snapshot);
    let mut out = Stoppable { out: std::io::stdout().lock(), cancel: &context.cancel };
    let written = cat(&repository, &snapshot, &what.path, &mut out);
    let bytes = written.map_err(|error| match context.cancel.is_cancelled() {
        true => Cancelled.into(),
        false => error,
    })?;
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "path": name_json(&what.path),
        "bytes": bytes,
    }))?;
    Ok(exit.into())
}

/// An output that fails once the user asked to stop.
struct Stoppable<'c, W> {
    out: W,
    cancel: &'c Cancel,
}

impl<W: Write> Write for Stoppable<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.cancel.check().map_err(std::io::Error::other)?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
