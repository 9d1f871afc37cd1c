//! `strongroom hold`

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::counted;
use strongroom_base::{SnapshotId, Timestamp};
use strongroom_repository::{Hold, SnapshotList, list_snapshots};
use strongroom_upkeep::{hold, release};

use crate::commands::forget::too_late;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, find_also_forgotten};
use crate::terminal::{printable_text, table};

/// What is held; without a snapshot, all that are held are listed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// These snapshots
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
    /// Why they are held
    #[arg(long, value_name = "TEXT", requires = "snapshots")]
    reason: Option<String>,
    /// Hold them up to the end of this day or minute, instead of until they are released
    #[arg(long, value_name = "DATE", requires = "reason")]
    until: Option<String>,
    /// Hold them no longer
    #[arg(long, requires = "snapshots", conflicts_with = "reason")]
    release: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
}

/// Holds them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let until = args.until.as_deref().map(end_of_hold).transpose()?;
    let repository = context.open()?;
    let list = list_snapshots(&repository)?;
    if args.snapshots.is_empty() {
        print(context, &list)?;
        return Ok(Exit::Done.into());
    }
    let named = find_also_forgotten(&args.snapshots, &args.narrowing, &list)?;
    let ids: Vec<SnapshotId> = named.iter().map(|snapshot| snapshot.id).collect();
    let count = |ids: &[SnapshotId]| counted(ids.len() as u64, "snapshot", "snapshots");
    if args.release {
        release(&repository, &ids)?;
        context.terminal.json(&json!({ "event": "summary", "released": texts(&ids) }))?;
        context.terminal.line(format!("{} held no longer", count(&ids)))?;
        return Ok(Exit::Done.into());
    }
    let Some(reason) = args.reason.clone().filter(|reason| !reason.is_empty()) else {
        let hint = "say it with --reason TEXT: a person who wants to release it later will need it";
        return Err(CliError::new(Exit::Failed, "a hold needs a reason", hint));
    };
    let late = hold(&repository, &ids, &Hold { reason, until })?;
    for id in &late {
        context.terminal.result(too_late(*id))?;
    }
    let held: Vec<SnapshotId> = ids.into_iter().filter(|id| !late.contains(id)).collect();
    context.terminal.json(&json!({
        "event": "summary", "held": texts(&held), "late": texts(&late),
    }))?;
    context.terminal.line(format!("{} held", count(&held)))?;
    Ok(if late.is_empty() { Exit::Done } else { Exit::Failed }.into())
}

fn texts(ids: &[SnapshotId]) -> Vec<String> {
    ids.iter().map(SnapshotId::to_string).collect()
}

fn end_of_hold(text: &str) -> Result<Timestamp, CliError> {
    let wrong = || {
        let hint = "write a day or a minute, such as 2036-12-31 or \"2036-12-31 18:00\"";
        CliError::new(Exit::Failed, format!("\"{text}\" is not a date"), hint)
    };
    let until = dates::last_moment(text).ok_or_else(wrong)?;
    if dates::last_moment("now").is_some_and(|now| until < now) {
        let hint = "give a date in the future, or leave out --until";
        return Err(CliError::new(Exit::Failed, format!("{text} is over"), hint));
    }
    Ok(until)
}

fn print(context: &Context, list: &SnapshotList) -> Result<(), CliError> {
    let mut rows = Vec::new();
    for snapshot in list.readable() {
        let Some(Hold { reason, until }) = list.wishes.hold(snapshot.id) else { continue };
        context.terminal.json(&json!({
            "event": "hold",
            "snapshot": snapshot.id.to_string(),
            "reason": reason,
            "until": until.map(dates::rfc3339),
        }))?;
        let end = until.map_or_else(String::new, |until| format!("until {}", dates::text(until)));
        let host = printable_text(&snapshot.host);
        let time = dates::text(snapshot.started);
        rows.push(vec![snapshot.id.short(), time, host, end, printable_text(&reason)]);
    }
    if context.json() {
        return Ok(());
    }
    if rows.is_empty() {
        context.terminal.note("no snapshot is held");
    }
    for line in table(&rows, &[]) {
        context.terminal.result(line)?;
    }
    Ok(())
}
