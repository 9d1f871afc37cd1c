//! `strongroom audit`

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::OsEntropy;
use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_repository::{RepositoryError, exists};
use strongroom_upkeep::{AuditOptions, AuditOutcome, VerifyDepth, audit_replica};

use super::verify::{report_withheld, sample_depth, withheld_json};
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;

/// What is audited.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The place of the replica
    replica: OsString,
    /// Of a place that computes no proofs, read all data
    #[arg(long, conflicts_with = "sample")]
    data: bool,
    /// Of a place that computes no proofs, read this part of the data, another one each day, and at
    /// least one arena each time
    #[arg(long, value_name = "PERCENT", value_parser = sample_depth, default_value = "1%")]
    sample: VerifyDepth,
    /// Compare only signatures: reads next to nothing of the repository
    #[arg(long)]
    signatures: bool,
}

/// Audits it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let backend = context.backend()?;
    if !exists(&*backend)? {
        return Err(RepositoryError::NotARepository { place: backend.describe() }.into());
    }
    context.refuse_own_place(&args.replica)?;
    let replica = context.other_place(&args.replica)?;
    let read = if args.data { VerifyDepth::Data } else { args.sample };
    let options = AuditOptions { read, signatures: args.signatures };
    let monitor = context.terminal.monitor(Words::objects("audited"));
    let cancel = &context.cancel;
    let outcome = audit_replica(&*backend, &*replica, options, &OsEntropy, &monitor, cancel);
    monitor.finish();
    let outcome = outcome?;
    context.terminal.json(&summary(&replica.describe(), &outcome))?;
    report(context, &replica.describe(), &outcome, replica.promises().proves)?;
    context.terminal.line(format!("took {}", duration_text(monitor.elapsed())))?;
    let mut faults = outcome.faults.iter();
    let is_damaged = faults.any(|(_, fault)| fault.is_damage()) || !outcome.damaged_here.is_empty();
    let exit = if is_damaged {
        Exit::Damaged
    } else if !outcome.withheld.is_empty() {
        Exit::Withheld
    } else if !outcome.missing.is_empty() || !outcome.faults.is_empty() {
        Exit::Incomplete
    } else {
        Exit::Done
    };
    Ok(exit.into())
}

fn summary(place: &str, outcome: &AuditOutcome) -> serde_json::Value {
    let faults = outcome
        .faults
        .iter()
        .map(|(name, fault)| json!({ "object": name.as_str(), "fault": fault.to_string() }));
    let names = |names: &[strongroom_backend::ObjectName]| -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    };
    json!({
        "event": "summary",
        "place": place,
        "objects": outcome.objects,
        "bytes": outcome.bytes,
        "proved": outcome.proved,
        "bytes_proved": outcome.proved_bytes,
        "by_algebra": outcome.by_algebra,
        "read": outcome.read,
        "bytes_read": outcome.read_bytes,
        "unread": outcome.unread,
        "bytes_unread": outcome.unread_bytes,
        "bytes_on_the_wire": outcome.wire_bytes,
        "faults": faults.collect::<Vec<_>>(),
        "withheld": withheld_json(outcome.withheld.iter().map(|(name, why)| (name, *why))),
        "missing": names(&outcome.missing),
        "damaged_here": names(&outcome.damaged_here),
        "only_there": outcome.only_there,
    })
}

fn report(
    context: &Context,
    place: &str,
    outcome: &AuditOutcome,
    proves: bool,
) -> Result<(), CliError> {
    let terminal = &context.terminal;
    terminal.line(format!(
        "{place}: {} of the right length ({})",
        counted(outcome.objects, "object", "objects"),
        bytes_text(outcome.bytes),
    ))?;
    terminal.line(match proves {
        true => format!(
            "  {} proved, byte for byte ({}); {} by their own parity",
            count_text(outcome.proved),
            bytes_text(outcome.proved_bytes),
            count_text(outcome.by_algebra),
        ),
        false => format!(
            "  {} read whole ({}); the place computes no proofs",
            count_text(outcome.read),
            bytes_text(outcome.read_bytes),
        ),
    })?;
    if outcome.unread > 0 {
        terminal.line(format!(
            "  {} not read ({}): only the length is known",
            count_text(outcome.unread),
            bytes_text(outcome.unread_bytes),
        ))?;
    }
    terminal.line(format!("  {} sent and received", bytes_text(outcome.wire_bytes)))?;
    if outcome.only_there > 0 {
        let only = counted(outcome.only_there, "object is", "objects are");
        terminal.line(format!("  {only} in the replica only"))?;
    }
    if !outcome.missing.is_empty() {
        let missing = counted(outcome.missing.len() as u64, "object", "objects");
        terminal.line(format!(
            "the replica lacks {missing}, not copied yet or lost: `strongroom replicate` sends them"
        ))?;
    }
    if !outcome.damaged_here.is_empty() {
        terminal.line(
            "objects are damaged here: `strongroom repair --from` brings them back from the replica",
        )?;
    }
    let withheld: Vec<_> = outcome.withheld.iter().map(|(_, why)| *why).collect();
    report_withheld(context, &withheld, "not read")?;
    let damaged = outcome.faults.iter().filter(|(_, fault)| fault.is_damage()).count();
    let others = outcome.faults.len() - damaged;
    if others > 0 {
        let others = counted(others as u64, "object is another", "objects are others");
        terminal.line(format!(
            "{others} in the replica, and whole: both copies were used. `strongroom verify` of each says \
             whether it is the owner's"
        ))?;
    }
    if damaged == 0 {
        let verdict = match (outcome.is_complete(), proves) {
            (true, _) => "no damage was found in the replica",
            (false, true) => "no damage was found in what the place proved",
            (false, false) => {
                "no damage was found in what was read; `audit --data` reads all of the replica"
            }
        };
        return Ok(terminal.line(verdict)?);
    }
    let damaged = counted(damaged as u64, "object is", "objects are");
    Ok(terminal.line(format!(
        "{damaged} damaged in the replica: `strongroom repair --repo REPLICA --from REPOSITORY` \
         mends it from here"
    ))?)
}
