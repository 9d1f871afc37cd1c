//! `strongroom prune`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::{bytes_text, counted, duration_text, parse_bytes};
use strongroom_base::{Severity, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Repository, Wishes, list_snapshots};
use strongroom_upkeep::{
    Carried, Fault, Later, PruneOptions, PruneOutcome, VerifyOutcome, defragment, prune,
    prune_later, undo_prune,
};

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::spans;
use crate::terminal::printable_text;

/// It runs when nothing else wants to.
const NICE: i32 = 19;

/// How it is pruned.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Change nothing; show what would be won
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Leave up to this share of the repository unused, because winning it means to rewrite more
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    max_unused: u8,
    /// Rewrite at most this much, such as 10GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_rewrite: Option<u64>,
    /// Begin no rewriting after this time, such as 1h; the next prune goes on
    #[arg(long, value_name = "DURATION", value_parser = spans::parse)]
    max_time: Option<i64>,
    /// First bring together what the newest snapshots need, by storing at most this much again
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1GiB",
        value_parser = parse_bytes,
        conflicts_with = "dry_run",
    )]
    defragment: Option<u64>,
    /// End backups that began longer ago than this and have not ended, such as 36h or 7d
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = spans::parse)]
    patience: i64,
    /// Remove what the last prune condemned, if the repository is sound, and only condemn what is
    /// not needed now; `strongroom run` prunes this way
    #[arg(long)]
    later: bool,
    /// Remove at once, also where a profile's run would remove later
    #[arg(long)]
    now: bool,
    /// Bring back what the last prune condemned
    #[arg(long, conflicts_with_all = ["dry_run", "defragment", "later", "now"])]
    undo: bool,
}

/// Prunes it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    // It can wait, and a backup at the same time should not.
    let _ = rustix::process::nice(NICE);
    let repository = context.open()?;
    if args.undo {
        return undo(context, &repository);
    }
    let are_gathered = match args.defragment {
        Some(budget) => defragment_newest(context, &repository, budget)?,
        None => true,
    };
    let monitor = context.terminal.monitor(Words::objects("checked"));
    let options = PruneOptions {
        unused_percent_max: args.max_unused,
        rewritten_max: args.max_rewrite,
        time_max: args.max_time.map(|time| Duration::from_nanos(time.unsigned_abs())),
        patience: Duration::from_nanos(args.patience.unsigned_abs()),
        dry_run: args.dry_run,
    };
    let is_later = args.later && !args.now;
    let outcome = match is_later {
        true => prune_later(&repository, &options, &monitor, &context.cancel),
        false => prune(&repository, &options, &monitor, &context.cancel)
            .map(|outcome| Later::Pruned(Box::new(outcome))),
    };
    monitor.finish();
    let outcome = match outcome? {
        Later::Pruned(outcome) => *outcome,
        Later::Doubted(found) => return Err(doubted(&found)),
    };
    report(context, args, &outcome)?;
    context.terminal.line(format!("took {}", duration_text(monitor.elapsed())))?;
    let stays = outcome.carried.arenas_left + outcome.carried.arenas_put_off;
    let is_done =
        outcome.waiting.is_empty() && stays == 0 && outcome.lost.is_empty() && are_gathered;
    Ok(if is_done { Exit::Done } else { Exit::Incomplete }.into())
}

/// Why nothing is removed of what was condemned before.
fn doubted(found: &VerifyOutcome) -> CliError {
    let faults = found.faults.iter().filter(|(_, fault)| *fault != Fault::Unknown).count();
    let missing = found.lost_snapshots.iter().filter(|lost| lost.was_committed).count();
    let missing = missing + usize::from(found.rolled_back.is_some() && missing == 0);
    let wrong: Vec<String> = [
        (faults, "object is damaged", "objects are damaged"),
        (found.affected.len(), "file is not whole", "files are not whole"),
        (missing, "snapshot is missing", "snapshots are missing"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| counted(count as u64, one, many))
    .collect();
    CliError::new(
        Exit::Damaged,
        format!("nothing was removed, because the repository is not sound: {}", wrong.join(", ")),
        "run `strongroom repair`. What was condemned may be needed to mend it: if something stays lost, `strongroom prune --undo` brings it back, and the next `strongroom repair` uses it",
    )
}

/// Brings back what is condemned.
fn undo(context: &Context, repository: &Repository) -> Result<ExitCode, CliError> {
    let monitor = context.terminal.monitor(Words::objects("brought back"));
    let undone = undo_prune(repository, &monitor, &context.cancel);
    monitor.finish();
    let undone = undone?;
    let ids = |ids: &[SnapshotId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (snapshots, late) =
        undone.as_ref().map_or((&[][..], &[][..]), |undone| (&undone.snapshots, &undone.late));
    context.terminal.json(&json!({
        "event": "summary",
        "collection": undone.as_ref().map(|undone| undone.collection),
        "undone": ids(snapshots),
        "late": ids(late),
    }))?;
    for id in late {
        context.terminal.result(format!("{}: another prune has taken it", id.short()))?;
    }
    let line = match &undone {
        None => "nothing is condemned".to_owned(),
        Some(undone) => format!(
            "nothing is condemned any more; {} no longer forgotten",
            counted(undone.snapshots.len() as u64, "snapshot is", "snapshots are"),
        ),
    };
    context.terminal.line(line)?;
    Ok(if late.is_empty() { Exit::Done } else { Exit::Failed }.into())
}

/// Brings together what the newest snapshot of each series needs, within a budget for all of them.
/// Returns whether all could be read that this takes.
fn defragment_newest(
    context: &Context,
    repository: &Repository,
    mut budget: u64,
) -> Result<bool, CliError> {
    let mut is_whole = true;
    let list = list_snapshots(repository)?;
    let wishes = Wishes::read(repository)?;
    let own = list.snapshots.iter().filter(|s| s.domain == repository.secret.domain_name());
    // The last of each series stays.
    let newest: BTreeMap<_, &Snapshot> =
        own.filter(|s| !s.partial).map(|s| ((&s.host, &s.paths), s)).collect();
    for snapshot in newest.into_values().filter(|s| wishes.hold(s.id).is_none()) {
        let monitor = context.terminal.monitor(Words::objects("checked"));
        let gathered = defragment(repository, snapshot.id, budget, &monitor, &context.cancel);
        monitor.finish();
        // One that lacks something keeps no room from being made.
        let gathered = match gathered {
            Err(error) if error.is_damage() || error.is_withheld() => {
                let id = snapshot.id.short();
                let message = format!("snapshot {id} is not brought together: {error}");
                context.terminal.problem(Severity::Warning, &message);
                is_whole = false;
                continue;
            }
            gathered => gathered?,
        };
        // It was forgotten meanwhile, the collection that is open may take it, or its machine is at work.
        let Some(gathered) = gathered else { continue };
        budget = budget.saturating_sub(gathered.copied_bytes);
        let (before, after) = (gathered.before, gathered.after);
        context.terminal.json(&json!({
            "event": "defragmented",
            "snapshot": gathered.from.to_string(),
            "replaced_by": gathered.to.map(|id| id.to_string()),
            "requests_before": before.requests,
            "requests_after": after.requests,
            "requests_least": after.requests_least,
            "bytes_copied": gathered.copied_bytes,
        }))?;
        context.terminal.line(match gathered.to {
            None => format!(
                "{}: {}, and little to gain",
                gathered.from.short(),
                counted(before.requests, "request", "requests"),
            ),
            Some(to) => format!(
                "{} is {} now: {} instead of {} read it; chunks of {} were stored again",
                gathered.from.short(),
                to.short(),
                counted(after.requests, "request", "requests"),
                before.requests,
                bytes_text(gathered.copied_bytes),
            ),
        })?;
    }
    Ok(is_whole)
}

fn report(context: &Context, args: &Args, outcome: &PruneOutcome) -> Result<(), CliError> {
    let (worth, carried) = (outcome.worth.unwrap_or_default(), outcome.carried);
    // A rehearsal says what would be.
    let done = if args.dry_run {
        Carried {
            arenas_removed: worth.arenas_removed,
            arenas_rewritten: worth.arenas_rewritten,
            rewritten_bytes: worth.rewritten_bytes,
            removed_bytes: worth.freed_bytes + worth.rewritten_bytes,
            ..carried
        }
    } else {
        carried
    };
    context.terminal.json(&json!({
        "event": "summary",
        "dry_run": args.dry_run,
        "collection": outcome.collection,
        "snapshots": outcome.snapshots.iter().map(|gone| gone.id.to_string()).collect::<Vec<_>>(),
        "arenas_removed": done.arenas_removed,
        "arenas_rewritten": done.arenas_rewritten,
        "bytes_removed": done.removed_bytes,
        "bytes_rewritten": done.rewritten_bytes,
        "bytes_unused": worth.unused_bytes,
        "arenas_left": carried.arenas_left,
        "arenas_put_off": carried.arenas_put_off,
        "condemned": outcome.condemned,
        "own_bytes": outcome.own_bytes.iter().map(|(id, bytes)| json!({ "snapshot": id.to_string(), "bytes": bytes })).collect::<Vec<_>>(),
        "lost_snapshots": outcome.lost.iter().map(|id| id.to_string()).collect::<Vec<_>>(),
        "waiting": outcome.waiting.iter().map(|s| s.id.to_string()).collect::<Vec<_>>(),
        "ended": outcome.ended.iter().map(|id| id.to_string()).collect::<Vec<_>>(),
    }))?;
    let snapshots = counted(outcome.snapshots.len() as u64, "snapshot", "snapshots");
    if let (true, Some(number)) = (args.dry_run, outcome.collection) {
        return Ok(context.terminal.line(format!(
            "collection {number} is not done, and removes {snapshots}: `strongroom prune` goes on with it"
        ))?);
    }
    if args.dry_run {
        for (id, bytes) in &outcome.own_bytes {
            context.terminal.result(format!("{}  {:>10}", id.short(), bytes_text(*bytes)))?;
        }
        let removed = counted(worth.arenas_removed, "arena", "arenas");
        return Ok(context.terminal.line(format!(
            "would remove {snapshots} and {removed}, rewrite {} ({}), and win {}; {} would stay unused",
            counted(worth.arenas_rewritten, "other", "others"),
            bytes_text(worth.rewritten_bytes),
            bytes_text(worth.freed_bytes),
            bytes_text(worth.unused_bytes),
        ))?);
    }
    if outcome.collection.is_none() {
        let unused = bytes_text(worth.unused_bytes);
        return Ok(context.terminal.line(format!("nothing to remove; {unused} are unused"))?);
    }
    for session in &outcome.ended {
        context
            .terminal
            .line(format!("ended backup {}, which began too long ago", session.short()))?;
    }
    for session in &outcome.waiting {
        let whose = session.head.as_ref().map(|head| {
            format!("of {} since {}", printable_text(&head.host), dates::text(head.started))
        });
        let whose = whose.unwrap_or_else(|_| "of an unknown machine".to_owned());
        context.terminal.result(format!("waiting for backup {} {whose}", session.id.short()))?;
    }
    if !outcome.waiting.is_empty() {
        return Ok(context.terminal.line(
            "nothing was removed yet: run `strongroom prune` again when they have ended, \
             or end those that began over an hour ago with --patience 1h",
        )?);
    }
    let mut removed = snapshots;
    if outcome.condemned {
        // Before that, what the last one had condemned was removed.
        let condemned = (outcome.snapshots.len() as u64).saturating_sub(carried.snapshots);
        let condemned = counted(condemned, "snapshot", "snapshots");
        removed = counted(carried.snapshots, "snapshot", "snapshots");
        let line = format!(
            "condemned {condemned} and {}, {}: the next prune removes them; \
             `strongroom prune --undo` brings them back",
            counted(worth.arenas_removed + worth.arenas_rewritten, "arena", "arenas"),
            bytes_text(worth.freed_bytes),
        );
        context.terminal.line(line)?;
        if carried == Carried::default() {
            return Ok(());
        }
    }
    if carried.arenas_left > 0 {
        let left = counted(carried.arenas_left, "arena is", "arenas are");
        let line = format!("{left} left: the next `strongroom prune` goes on");
        context.terminal.result(line)?;
    }
    if carried.arenas_put_off > 0 {
        let stay =
            counted(carried.arenas_put_off, "arena stays as it is", "arenas stay as they are");
        let line = format!("{stay}: the reasons are above, and they go once nothing needs them");
        context.terminal.result(line)?;
    }
    let unused = match worth.unused_bytes {
        0 => String::new(),
        bytes => format!(", {} left unused", bytes_text(bytes)),
    };
    Ok(context.terminal.line(format!(
        "removed {removed} and {}, rewrote {}; {} removed, {} written{unused}",
        counted(carried.arenas_removed, "arena", "arenas"),
        counted(carried.arenas_rewritten, "other", "others"),
        bytes_text(carried.removed_bytes),
        bytes_text(carried.rewritten_bytes),
    ))?)
}
