//! `strongroom cat`

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::parse_bytes;
use strongroom_base::{Cancel, Cancelled};
use strongroom_engine::{ByteRange, EngineError, cat_range};

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
    /// Begin at this byte of the file, counted from 0, such as 4096 or 64MiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0",
        hide_default_value = true)]
    offset: u64,
    /// Write at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    length: Option<u64>,
}

/// Writes it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let what = SnapshotArg::from(args.what);
    if what.path.is_empty() {
        let hint = "name the file after a colon, such as latest:/etc/fstab";
        return Err(CliError::new(Exit::Failed, "no file was named", hint));
    }
    let repository = context.open_to_read(&args.replicas)?;
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    what.report(context, &snapshot);
    let exit = check_complete(context, &snapshot);
    let mut out = Stoppable { out: std::io::stdout().lock(), cancel: &context.cancel };
    let range = ByteRange { offset: args.offset, length: args.length };
    let written = cat_range(&repository, &snapshot, &what.path, range, &mut out);
    let bytes = written.map_err(|error| match error {
        _ if context.cancel.is_cancelled() => EngineError::from(Cancelled).into(),
        EngineError::BehindEnd { bytes, .. } => {
            CliError::from(error).with_hint(format!("give an --offset of at most {bytes}"))
        }
        error => error.into(),
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
