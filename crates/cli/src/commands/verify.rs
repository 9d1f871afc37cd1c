//! `strongroom verify`

use std::process::ExitCode;

use serde_json::json;
use strongroom_backend::{BackendError, ObjectName, Refusal, Withheld};
use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_base::{Severity, SnapshotId};
use strongroom_repository::RepositoryError;
use strongroom_upkeep::{
    Affected, LostSnapshot, Unrecognised, VerifyDepth, VerifyOutcome, verify, verify_objects, vouch,
};

use crate::context::Context;
use crate::exit::{ARCHIVED, CliError, Exit, FORBIDDEN};
use crate::paint::Style;
use crate::progress::Words;
use crate::terminal::{name_json, path_json, printable, printable_bytes};

/// How much is checked.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Read everything and compare every fingerprint
    #[arg(long, visible_alias = "read-data", conflicts_with = "sample")]
    data: bool,
    /// Read a part of the data: with 5%, another part each day, and all of it in 20 days; with 3/20,
    /// the third of 20 parts
    #[arg(long, visible_alias = "read-data-subset", value_name = "PART", value_parser = sample_depth)]
    sample: Option<VerifyDepth>,
    /// Check what can be checked without the passphrase
    #[arg(long)]
    keyless: bool,
    /// Do not vouch for arenas of put-only keys in which every chunk is right; without a voucher
    /// backups with a full key do not build upon them
    #[arg(long)]
    no_vouch: bool,
}

impl Args {
    fn depth(&self) -> VerifyDepth {
        let usual = if self.data { VerifyDepth::Data } else { VerifyDepth::Structure };
        self.sample.unwrap_or(usual)
    }
}

/// A part of the data: a percentage, another part each day; or a part with a number, such as 3/20.
pub fn sample_depth(sample: &str) -> Result<VerifyDepth, String> {
    if let Some((part, parts)) = sample.split_once('/') {
        return numbered_part(part, parts).ok_or_else(|| {
            "this is not a part: give its number and how many there are, up to 100, such as 3/20"
                .to_owned()
        });
    }
    let percent = percent(sample)?;
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Ok(VerifyDepth::Sample { percent, turn: since.as_secs() / 86_400 })
}

/// A share as it was typed, from 1 to 100.
pub fn percent(sample: &str) -> Result<u8, String> {
    let percent = sample.trim_end_matches('%').trim().parse::<u8>().ok();
    percent.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| {
        "this is not a percentage: give a number from 1 to 100, such as 5%".to_owned()
    })
}

/// The parts overlap if their number does not divide 100; together they are everything.
fn numbered_part(part: &str, parts: &str) -> Option<VerifyDepth> {
    let parts = parts.parse::<u8>().ok().filter(|parts| (1..=100).contains(parts))?;
    let part = part.parse::<u8>().ok().filter(|part| (1..=parts).contains(part))?;
    Some(VerifyDepth::Sample { percent: 100_u8.div_ceil(parts), turn: u64::from(part - 1) })
}

/// What is said of a check without a key.
pub const UNREAD: &str = "; without a key, the snapshots were not read";

/// Checks it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let depth = args.depth();
    let (mut vouched, mut not_vouched) = (0, None);
    let (monitor, outcome) = if args.keyless {
        let backend = context.backend()?;
        strongroom_repository::read_config(&*backend)?;
        let monitor = context.terminal.monitor(Words::objects("checked"));
        let outcome = verify_objects(&*backend, depth, &monitor, &context.cancel);
        (monitor, outcome)
    } else {
        let repository = context.open()?;
        let monitor = context.terminal.monitor(Words::objects("checked"));
        let outcome = verify(&repository, depth, &monitor, &context.cancel);
        if let (Ok(outcome), false) = (&outcome, args.no_vouch) {
            // What was found is said in any case.
            match vouch(&repository, outcome) {
                Ok(count) => vouched = count,
                Err(error) => not_vouched = Some(error),
            }
        }
        (monitor, outcome)
    };
    monitor.finish();
    let outcome = outcome?;
    let mut exit = Exit::Done;
    if let Some(error) = not_vouched {
        let text = format!(
            "arenas of put-only keys are right, and no voucher says so: {error}; --no-vouch tries none"
        );
        if may_not_store(&error) {
            context.terminal.note(text);
        } else {
            context.terminal.problem(Severity::Warning, &text);
            exit = Exit::Incomplete;
        }
    }
    let summary = summary_json(&outcome, vouched, monitor.elapsed().as_secs_f64());
    context.terminal.json(&summary)?;
    let snapshots = match args.keyless {
        true => UNREAD.to_owned(),
        false => format!(", and {}", counted(outcome.snapshots, "snapshot", "snapshots")),
    };
    context.terminal.line(format!(
        "checked {}, {} of them completely ({}){snapshots}; took {}",
        counted(outcome.objects, "object", "objects"),
        count_text(outcome.objects_read),
        bytes_text(outcome.bytes_read),
        duration_text(monitor.elapsed()),
    ))?;
    if vouched > 0 {
        let arenas = counted(vouched as u64, "arena", "arenas");
        context.terminal.line(format!("vouched for {arenas} stored with put-only keys"))?;
    }
    report_affected(context, &outcome.affected)?;
    report_sessions(context, &outcome)?;
    report_missing(context, &outcome)?;
    if outcome.lacking > 0 {
        context.terminal.line(format!(
            "{} or damaged in single stores: `strongroom repair` makes again those that are whole in another",
            counted(outcome.lacking, "object is missing", "objects are missing")
        ))?;
    }
    let withheld: Vec<_> = outcome.withheld.iter().map(|(_, why, _)| *why).collect();
    report_withheld(context, &withheld, "not checked")?;
    if outcome.withheld_entries > 0 {
        let entries = counted(outcome.withheld_entries, "entry needs", "entries need");
        context
            .terminal
            .line(format!("{entries} what could not be read; nothing of it is known to be lost"))?;
    }
    if outcome.is_sound() && !outcome.is_complete() {
        context.terminal.line("no damage was found in what could be read")?;
        return Ok(Exit::Withheld.into());
    }
    if outcome.is_sound() && outcome.misses_snapshots() {
        context.terminal.line("no damage was found in the snapshots that are there")?;
        return Ok(Exit::Incomplete.into());
    }
    if outcome.is_sound() && outcome.lacking > 0 {
        context.terminal.line("nothing is lost as long as no other store is")?;
        return Ok(Exit::Incomplete.into());
    }
    if outcome.is_sound() {
        context.terminal.styled_line(Style::Good, "no damage was found")?;
        return Ok(exit.into());
    }
    if outcome.faults.is_empty() && outcome.affected.is_empty() {
        return Ok(Exit::Damaged.into());
    }
    match outcome.faults.len() as u64 {
        0 => report_loss(context, outcome.affected.len(), false)?,
        faults => context.terminal.line(format!(
            "{} damaged: run `strongroom repair`",
            counted(faults, "object is", "objects are")
        ))?,
    }
    Ok(Exit::Damaged.into())
}

/// How many objects the place withholds, and what to do about it. `what` says what was not done.
pub fn report_withheld(
    context: &Context,
    withheld: &[Withheld],
    what: &str,
) -> Result<(), CliError> {
    for (why, hint) in [(Withheld::Archived, ARCHIVED), (Withheld::Forbidden, FORBIDDEN)] {
        let count = withheld.iter().filter(|found| **found == why).count() as u64;
        if count > 0 {
            let objects = counted(count, "object is", "objects are");
            context.terminal.line(format!("{objects} {why}: {what}; {hint}"))?;
        }
    }
    Ok(())
}

/// Objects that the place withholds, for programs.
pub fn withheld_json<'w>(
    withheld: impl Iterator<Item = (&'w ObjectName, Withheld)>,
) -> serde_json::Value {
    let item = |(name, why): (&ObjectName, Withheld)| {
        let why = match why {
            Withheld::Archived => "archived",
            Withheld::Forbidden => "forbidden",
        };
        json!({ "object": name.as_str(), "why": why })
    };
    withheld.map(item).collect()
}

/// Whether the credentials allow to look and not to store, or the place shows what it was.
fn may_not_store(error: &RepositoryError) -> bool {
    matches!(
        error,
        RepositoryError::Backend(
            BackendError::Refused { refusal: Refusal::Right, .. }
                | BackendError::Unsupported { .. }
        )
    )
}

/// All of the outcome, for `--json`.
fn summary_json(outcome: &VerifyOutcome, vouched: usize, seconds: f64) -> serde_json::Value {
    json!({
        "event": "summary",
        "sound": outcome.is_sound() && !outcome.misses_snapshots() && outcome.lacking == 0,
        "seconds": seconds,
        "objects": outcome.objects,
        "objects_read": outcome.objects_read,
        "bytes_read": outcome.bytes_read,
        "chunks_read": outcome.chunks_read,
        "snapshots": outcome.snapshots,
        "chunks_named": outcome.chunks_named,
        "vouched": vouched,
        "faults": outcome.faults.iter().map(|(name, fault)| json!({
            "object": name.as_str(), "fault": fault.to_string(),
        })).collect::<Vec<_>>(),
        "lacking": outcome.lacking,
        "withheld": withheld_json(outcome.withheld.iter().map(|(name, why, _)| (name, *why))),
        "entries_withheld": outcome.withheld_entries,
        "affected": affected_json(&outcome.affected),
        "strangers": outcome.strangers.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "open_sessions": outcome.open_sessions.iter().map(|open| json!({
            "id": open.id.to_string(), "started": open.begun.map(crate::dates::rfc3339),
            "sequence": open.sequence, "arenas": open.arenas,
        })).collect::<Vec<_>>(),
        "unclaimed": outcome.unclaimed.iter().map(|unclaimed| json!({
            "id": unclaimed.id.to_string(), "sequence": unclaimed.sequence,
            "arenas": unclaimed.arenas,
        })).collect::<Vec<_>>(),
        "lost_snapshots": outcome.lost_snapshots.iter().map(|lost| json!({
            "id": lost.id.to_string(), "sequence": lost.sequence,
            "was_committed": lost.was_committed,
            "paths": lost.paths.iter().map(|path| name_json(path))
                .collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "missing_sequences": outcome.missing_sequences.iter()
            .map(|gap| [*gap.start(), *gap.end()]).collect::<Vec<_>>(),
        "late": outcome.late.iter().map(SnapshotId::to_string).collect::<Vec<_>>(),
        "rolled_back": outcome.rolled_back.map(|id| id.to_string()),
    })
}

/// What interrupted writers left.
fn report_sessions(context: &Context, outcome: &VerifyOutcome) -> Result<(), CliError> {
    if let Some(first) = outcome.open_sessions.iter().min_by_key(|open| open.begun) {
        let count = outcome.open_sessions.len() as u64;
        let sequence = first.sequence.map(|sequence| format!(", sequence {sequence}"));
        let sequence = sequence.unwrap_or_default();
        let begun = first.begun.map_or("at an unknown time".to_owned(), crate::dates::text);
        let backups = counted(count, "backup has not ended", "backups have not ended");
        let oldest = if count == 1 { "it" } else { "the oldest" };
        context.terminal.line(format!(
            "{backups}, running or interrupted; {oldest} began {begun} (sessions/{}{sequence})",
            first.id
        ))?;
    }
    if !outcome.unclaimed.is_empty() {
        let arenas = outcome.unclaimed.iter().map(|unclaimed| unclaimed.arenas).sum();
        context.terminal.line(format!(
            "{} to no snapshot: a backup failed, or its snapshot was removed or is damaged",
            counted(arenas, "arena belongs", "arenas belong")
        ))?;
    }
    Ok(())
}

/// Snapshots that were removed. That this machine's last one is gone was said when the repository
/// was opened.
fn report_missing(context: &Context, outcome: &VerifyOutcome) -> Result<(), CliError> {
    for lost in &outcome.lost_snapshots {
        let why = match (lost.is_spoilt, lost.was_committed) {
            (true, _) => "is damaged beyond repair",
            (false, true) => "was removed",
            (false, false) => "was removed, or its backup failed when everything was stored",
        };
        context.terminal.line(format!(
            "{} {why}; its files are still there: `strongroom repair` commits it",
            lost_snapshot_text(lost)
        ))?;
    }
    for left in &outcome.unrecognised {
        context.terminal.line(unrecognised_text(left))?;
    }
    if !outcome.late.is_empty() {
        context.terminal.line(format!(
            "{} not count, because their domain has ended without them: `strongroom snapshots --late` \
             lists them, `strongroom forget --late` forgets them",
            counted(outcome.late.len() as u64, "snapshot does", "snapshots do")
        ))?;
    }
    let gaps = &outcome.missing_sequences;
    if gaps.is_empty() {
        return Ok(());
    }
    let missing = gaps.iter().map(|gap| gap.end() - gap.start() + 1).sum();
    let shown = gaps.iter().take(8).map(|gap| match gap.start() == gap.end() {
        true => gap.start().to_string(),
        false => format!("{} to {}", gap.start(), gap.end()),
    });
    let more = if gaps.len() > 8 { ", …" } else { "" };
    Ok(context.terminal.line(format!(
        "{} missing, sequence {}{more}: removed, or an older copy of the repository is in its place, or \
         forgotten in another copy of it",
        counted(missing, "snapshot is", "snapshots are"),
        shown.collect::<Vec<_>>().join(", ")
    ))?)
}

/// What is left of a snapshot that was removed and cannot be made again yet.
pub fn unrecognised_text(left: &Unrecognised) -> String {
    let (id, why, way_out) = (left.id.short(), left.why_gone(), left.way_out());
    format!(
        "snapshot {id}, sequence {}: {why}; its files are still there: {way_out}",
        left.sequence
    )
}

/// Which snapshot was removed.
pub fn lost_snapshot_text(lost: &LostSnapshot) -> String {
    let paths = lost.paths.iter().map(|path| printable_bytes(path)).collect::<Vec<_>>().join(" ");
    format!("snapshot {} of {paths}, sequence {},", lost.id.short(), lost.sequence)
}

/// How much of the list of what is affected is lost, and what to do about it.
pub fn report_loss(
    context: &Context,
    affected: usize,
    from_replicas: bool,
) -> Result<(), CliError> {
    let terminal = &context.terminal;
    let entries = counted(affected as u64, "entry", "entries");
    terminal.line(format!("{entries} in the list above cannot be restored whole"))?;
    if !from_replicas {
        terminal.line("if there is a replica, get it back: `strongroom repair --from REPLICA`")?;
    }
    terminal.line("back up the same paths again: what is still there replaces what is lost")?;
    Ok(terminal.line("the rest of each snapshot is restored as always")?)
}

/// The files that need what is lost, for programs.
pub fn affected_json(affected: &[Affected]) -> serde_json::Value {
    let item = |affected: &Affected| {
        json!({
            "snapshot": affected.snapshot.to_string(),
            "path": path_json(&affected.path),
            "bytes_lost": affected.lost_bytes,
            "directory": affected.is_directory,
        })
    };
    affected.iter().map(item).collect()
}

/// The files that need what is lost, for people.
pub fn report_affected(context: &Context, affected: &[Affected]) -> Result<(), CliError> {
    for affected in affected {
        let what = if affected.is_directory {
            "a part of its list of names".to_owned()
        } else {
            bytes_text(affected.lost_bytes)
        };
        let (id, path) = (affected.snapshot.short(), printable(&affected.path));
        context.terminal.line(format!("lost in snapshot {id}: {path} ({what})"))?;
    }
    Ok(())
}
