//! `strongroom replicate`

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use strongroom_backend::{Backend, ObjectName};
use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_base::{OsEntropy, Severity};
use strongroom_repository::{Repository, RepositoryError, exists, in_mode_of};
use strongroom_upkeep::{
    CopyOutcome, MirrorOutcome, MirrorPlan, mirror, plan_mirror, plan_replica, preview_mirror,
    replicate,
};

use super::verify::{report_withheld, withheld_json};
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;

/// Where it is copied to.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The places of the replicas: folders, or URLs; made if they do not exist, and never existed
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
    /// Change nothing; show what would be copied, and with --mirror what would be removed
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Also remove from the replicas what `prune` removed from the repository; asks for the
    /// passphrase
    #[arg(long)]
    mirror: bool,
    /// Make replicas again that were made and are gone; otherwise that is an error, because most often a
    /// disk is not mounted
    #[arg(long, conflicts_with = "dry_run")]
    init: bool,
}

/// What became of one target.
enum Done {
    Well,
    /// Something is damaged at the source.
    Damaged,
    /// Something waits in an archive at the source, or is not readable by this key.
    Withheld,
    /// The replica has other objects of the same names.
    Conflicts,
}

/// Copies it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    for target in &args.targets {
        context.refuse_own_place(target)?;
    }
    let source = context.backend()?;
    if !exists(&*source)? {
        return Err(RepositoryError::NotARepository { place: source.describe() }.into());
    }
    let repository = if args.mirror { Some(context.open()?) } else { None };
    let mut code = Exit::Done;
    let mut failed: Option<CliError> = None;
    for target in &args.targets {
        let done = if args.dry_run {
            context
                .other_or_none(target)
                .and_then(|target| show(context, &*source, repository.as_ref(), target))
        } else {
            context
                .replica_place(target, args.init)
                .and_then(|place| copy(context, &*source, repository.as_ref(), &place))
                .and_then(|done| context.remember_replica(target).map(|()| done))
        };
        match done {
            Ok(Done::Well) => {}
            Ok(Done::Damaged) => code = Exit::Damaged,
            Ok(Done::Withheld) if code != Exit::Damaged => code = Exit::Withheld,
            Ok(Done::Withheld) => {}
            Ok(Done::Conflicts) if code == Exit::Done => code = Exit::Incomplete,
            Ok(Done::Conflicts) => {}
            // The other targets do not depend on this one.
            Err(error) if args.targets.len() > 1 && !context.cancel.is_cancelled() => {
                let text = format!("{}: {error}", target.to_string_lossy());
                context.terminal.problem(Severity::Warning, &text);
                failed = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => {
            let targets = args.targets.len();
            let event = json!({ "event": "summary", "targets": targets, "dry_run": args.dry_run });
            context.terminal.json(&event)?;
            Ok(code.into())
        }
    }
}

fn show(
    context: &Context,
    source: &dyn Backend,
    repository: Option<&Repository>,
    target: Option<Arc<dyn Backend>>,
) -> Result<Done, CliError> {
    let none = strongroom_backend::MemoryBackend::new();
    let place = target.as_ref().map(|target| target.describe());
    let plan = plan_replica(source, target.as_deref().unwrap_or(&none))?;
    let sent = plan.missing.len() + plan.differing.len();
    let remove = match (repository, &target) {
        (Some(repository), Some(target)) => {
            let previewed = preview_mirror(repository, target);
            previewed.map_err(|error| CliError::from(error).about(&target.describe()))?.remove
        }
        _ => Vec::new(),
    };
    let remove_bytes: u64 = remove.iter().map(|info| info.bytes).sum();
    context.terminal.json(&json!({
        "event": "plan",
        "place": place,
        "objects": sent,
        "bytes": plan.bytes(),
        "present": plan.present,
        "bytes_present": plan.present_bytes,
        "remove": remove.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(),
        "bytes_to_remove": remove_bytes,
    }))?;
    let place = place.unwrap_or_else(|| "a new place".to_owned());
    let mut line = format!(
        "{place}: would send {} ({}); it has {} ({})",
        counted(sent as u64, "object", "objects"),
        bytes_text(plan.bytes()),
        count_text(plan.present),
        bytes_text(plan.present_bytes),
    );
    if repository.is_some() {
        for info in &remove {
            context.terminal.line(format!("would remove {}", info.name))?;
        }
        let objects = counted(remove.len() as u64, "object", "objects");
        line.push_str(&format!("; would remove {objects} ({})", bytes_text(remove_bytes)));
    }
    context.terminal.line(line)?;
    Ok(Done::Well)
}

fn copy(
    context: &Context,
    source: &dyn Backend,
    repository: Option<&Repository>,
    target: &Arc<dyn Backend>,
) -> Result<Done, CliError> {
    // Others may use the replica meanwhile, in its own mode.
    let target = &in_mode_of(source, target.clone(), Arc::new(OsEntropy));
    let monitor = context.terminal.monitor(Words::objects("copied"));
    let outcome = replicate(source, &**target, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    let mut mirrored = None;
    if let Some(repository) = repository {
        let mut plan = plan_mirror(repository, target)?;
        // The place has said just now that it has them.
        plan.in_favour.retain(|info| !outcome.new_generations.contains(&info.name));
        let monitor = context.terminal.monitor(Words::objects("removed"));
        let removed = mirror(repository, target, &plan, &monitor, &context.cancel);
        monitor.finish();
        let removed = removed.map_err(|error| CliError::from(error).about(&target.describe()));
        mirrored = Some((plan, removed?));
    }
    report(context, &**target, &outcome, mirrored.as_ref())?;
    if let Some((MirrorPlan { open: Some(_), .. }, _)) = &mirrored {
        context.terminal.note(
            "a prune of the repository has not ended: what it removes stays in the replica until \
             `strongroom prune` has ended it and the replica is mirrored again",
        );
    }
    context.terminal.line(format!("took {}", duration_text(monitor.elapsed())))?;
    let is_own = |name: &ObjectName| name.folder() == "keys";
    let keys = outcome.only_in_target.iter().filter(|name| is_own(name)).count();
    if keys > 0 {
        context.terminal.note(format!(
            "{} has {} that the repository does not have: if a passphrase was withdrawn, remove it \
             there too, with `strongroom key remove`",
            target.describe(),
            counted(keys as u64, "key object", "key objects"),
        ));
    }
    let withheld: Vec<_> = outcome.withheld.iter().map(|(_, why)| *why).collect();
    report_withheld(context, &withheld, "not sent")?;
    if !outcome.lost.is_empty() {
        context.terminal.line(
            "what is damaged here was not copied: `strongroom repair --from` brings it back from a \
             place that has it",
        )?;
        return Ok(Done::Damaged);
    }
    Ok(match (withheld.is_empty(), outcome.conflicts.is_empty()) {
        (false, _) => Done::Withheld,
        (true, false) => Done::Conflicts,
        (true, true) => Done::Well,
    })
}

fn report(
    context: &Context,
    target: &dyn Backend,
    outcome: &CopyOutcome,
    mirrored: Option<&(MirrorPlan, MirrorOutcome)>,
) -> Result<(), CliError> {
    let place = target.describe();
    let removed = mirrored.map(|(_, outcome)| *outcome).unwrap_or_default();
    let names = |names: &mut dyn Iterator<Item = &ObjectName>| -> Vec<String> {
        names.map(ToString::to_string).collect()
    };
    context.terminal.json(&json!({
        "event": "replica",
        "place": place,
        "sent": outcome.sent,
        "bytes_sent": outcome.sent_bytes,
        "present": outcome.present,
        "bytes_present": outcome.present_bytes,
        "replaced": outcome.replaced,
        "mended": outcome.mended,
        "removed": removed.removed,
        "bytes_removed": removed.removed_bytes,
        "lost": names(&mut outcome.lost.iter().map(|(name, _)| name)),
        "withheld": withheld_json(outcome.withheld.iter().map(|(name, why)| (name, *why))),
        "conflicts": names(&mut outcome.conflicts.iter()),
        "only_in_target": names(&mut outcome.only_in_target.iter()),
    }))?;
    let mut line = format!(
        "{place}: sent {} ({}); {} were there ({})",
        counted(outcome.sent, "object", "objects"),
        bytes_text(outcome.sent_bytes),
        count_text(outcome.present),
        bytes_text(outcome.present_bytes),
    );
    if outcome.replaced > 0 {
        line.push_str(&format!("; {} in the place of damaged ones", count_text(outcome.replaced)));
    }
    if !outcome.lost.is_empty() {
        let lost = counted(outcome.lost.len() as u64, "object", "objects");
        line.push_str(&format!("; {lost} could not be sent"));
    }
    if mirrored.is_some() {
        let objects = counted(removed.removed, "object", "objects");
        line.push_str(&format!("; removed {objects} ({})", bytes_text(removed.removed_bytes)));
    }
    Ok(context.terminal.line(line)?)
}
