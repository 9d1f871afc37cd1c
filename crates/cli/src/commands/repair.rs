//! `strongroom repair`

mod replicas;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use strongroom_backend::{Backend, ObjectName, Withheld};
use strongroom_base::units::{count_text, counted, duration_text};
use strongroom_base::{OsEntropy, SnapshotId, Timestamp};
use strongroom_remote::Past;
use strongroom_repository::{
    Collections, ErrorKind, Repository, RepositoryError, Wishes, in_mode_of,
};
use strongroom_upkeep::{
    Known, RepairPlan, RepairStep, may_recover, plan_losses, plan_recovery, plan_removals,
    plan_repair, repair, repair_objects,
};

use super::verify::{
    UNREAD, affected_json, lost_snapshot_text, report_affected, report_loss, report_withheld,
    unrecognised_text,
};
use crate::context::{Context, moment};
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use replicas::{Fetching, return_all};

/// How it is repaired.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Change nothing; show what would be done, and what would stay lost
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do only what needs no passphrase: repair from parity, from second copies and from replicas
    #[arg(long)]
    keyless: bool,
    /// Fetch from this replica what parity cannot give back, and what is missing; may be repeated
    #[arg(long, value_name = "REPLICA")]
    from: Vec<OsString>,
    /// Fetch it from the versions that the place itself keeps of its objects: of each name the
    /// oldest that is whole
    #[arg(long, conflicts_with = "from_past")]
    from_versions: bool,
    /// Fetch it from the place itself as it was at this time, if it keeps versions
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from_past: Option<Timestamp>,
}

impl Args {
    /// Where to fetch from, in the order in which it is tried.
    fn replicas(&self, context: &Context) -> Result<Vec<Arc<dyn Backend>>, CliError> {
        let mut found = Vec::new();
        if self.from_versions {
            for number in 0..VERSIONS_TRIED {
                found.push(context.backend_past(Past::Version(number))?);
            }
        }
        if let Some(time) = self.from_past {
            found.push(context.backend_past(Past::AsOf(time))?);
        }
        for place in &self.from {
            context.refuse_own_place(place)?;
            found.push(context.other_place(place)?);
        }
        Ok(found)
    }
}

/// Versions of a name that are tried, from the oldest on. Objects do not change, so the first is
/// the true one, unless it was spoilt on its way.
const VERSIONS_TRIED: usize = 3;

/// How the progress is worded.
const REPAIRED: Words = Words::objects("repaired");

/// Repairs it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    context.check_present()?;
    let replicas = args.replicas(context)?;
    let backend = match replicas.first() {
        None => context.backend()?,
        Some(_) if args.dry_run => context.backend()?,
        // The whole place may be lost.
        Some(_) => context.backend_made()?,
    };
    // Before anything is written to the place.
    let (backend, made) = match args.dry_run {
        true => (backend, 0),
        false => mend_stores(context, backend)?,
    };
    // Others may use it meanwhile: what is fetched takes names as they do.
    let backend = match replicas.first() {
        Some(replica) => in_mode_of(&**replica, backend, Arc::new(OsEntropy)),
        None => backend,
    };
    // A damaged configuration can be repaired; without one, this is not a repository.
    if !strongroom_repository::exists(&*backend)? {
        match replicas.first() {
            Some(replica) if !args.dry_run => return_all(context, &**replica, &*backend)?,
            _ => {
                let place = backend.describe();
                return Err(RepositoryError::NotARepository { place }.into());
            }
        }
    }
    let monitor = context.terminal.monitor(Words::objects("checked"));
    let plan = plan_repair(&*backend, &monitor, &context.cancel);
    let says_newer = match &plan {
        Ok(plan) => !plan.newer.is_empty(),
        Err(error) => error.kind() == ErrorKind::Newer,
    };
    let plan = if says_newer && !args.keyless {
        // Only a key says what is of a newer program and what only says so, which is mended.
        context.open().and_then(|repository| {
            Ok(plan_repair(repository.backend(), &monitor, &context.cancel)?)
        })
    } else {
        plan.map_err(CliError::from)
    };
    monitor.finish();
    let mut plan = plan?;
    let mut fetching =
        Fetching { context, backend: &*backend, replicas: &replicas, outcome: Default::default() };
    if args.dry_run {
        return show_plan(args, &backend, &fetching, plan);
    }
    fetching.run(Known::NotYet, None, &mut plan)?;
    let repository = (!args.keyless).then(|| context.open()).transpose()?;
    if let Some(repository) = &repository {
        plan_removals(repository, &mut plan)?;
    }
    let outcome = if let Some(repository) = &repository {
        if !replicas.is_empty() {
            let (collections, wishes) = read_removed(repository)?;
            let known = Known::Collections(&collections, &wishes);
            fetching.run(known, Some(repository), &mut plan)?;
            fetching.run_needed(repository)?;
        }
        if may_recover(repository)? {
            plan_recovery(repository, &mut plan, &monitor, &context.cancel)?;
        }
        report_steps(context, &plan)?;
        report_lost_snapshots(context, &plan)?;
        let monitor = context.terminal.monitor(REPAIRED);
        repair(repository, &plan, &monitor, &context.cancel)?
    } else {
        fetching.run(Known::Nothing, None, &mut plan)?;
        report_steps(context, &plan)?;
        let monitor = context.terminal.monitor(REPAIRED);
        repair_objects(&*backend, &plan, &monitor, &context.cancel)?
    };
    context.terminal.json(&json!({
        "event": "summary",
        "objects": plan.objects,
        "repaired": outcome.repaired,
        "shards": outcome.shards,
        "rescued": outcome.rescued,
        "taken_away": outcome.taken_away,
        "recovered": outcome.recovered,
        "recover_later": outcome.recover_later.iter().map(|id| id.to_string()).collect::<Vec<_>>(),
        "swept": outcome.swept,
        "made_in_stores": made,
        "indexed": outcome.indexed,
        "waiting": names_json(&plan.waiting),
        "postponed": names_json(&outcome.postponed),
        "lost": outcome.lost.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "replicas": fetching.json(),
        "affected": affected_json(&outcome.affected),
    }))?;
    report_affected(context, &outcome.affected)?;
    fetching.report()?;
    let objects = counted(plan.objects, "object", "objects");
    let took = duration_text(monitor.elapsed());
    if outcome.taken_away > 0 {
        let objects = counted(outcome.taken_away, "object", "objects");
        context
            .terminal
            .line(format!("{objects} taken away that others had planted, or that nothing needs"))?;
    }
    if outcome.recovered > 0 {
        let snapshots = counted(outcome.recovered, "snapshot", "snapshots");
        context.terminal.line(format!(
            "{snapshots} committed again, with the label \"recovered\"; whether complete is not known"
        ))?;
    } else if !outcome.recover_later.is_empty() && outcome.is_nothing() {
        context.terminal.line(format!("checked {objects}: nothing else to repair; took {took}"))?;
    } else if outcome.is_nothing() {
        let fetched = fetching.outcome.mended + fetching.outcome.returned;
        let nothing = if fetched == 0 { "nothing" } else { "nothing else" };
        let verb = if outcome.affected.is_empty() { "to repair" } else { "can be repaired" };
        let unread = if args.keyless { UNREAD } else { "" };
        context
            .terminal
            .line(format!("checked {objects}: {nothing} {verb}{unread}; took {took}"))?;
    } else {
        context.terminal.line(format!(
            "checked {objects}: {} repaired, {} saved in part, {} lost; took {took}",
            count_text(outcome.repaired),
            count_text(outcome.rescued),
            count_text(outcome.lost.len() as u64),
        ))?;
    }
    report_recover_later(context, &outcome.recover_later)?;
    let exit = report_waiting(context, &plan, outcome.postponed.len())?;
    let is_fetched = fetching.outcome.failed.is_empty();
    let is_whole = outcome.affected.is_empty() && outcome.recover_later.is_empty();
    if is_fetched && is_whole && outcome.lost.is_empty() && outcome.rescued == 0 {
        return Ok(exit.into());
    }
    if !outcome.affected.is_empty() {
        report_loss(context, outcome.affected.len(), !replicas.is_empty())?;
    }
    Ok(Exit::Damaged.into())
}

/// Names the snapshots that wait for a collection, and says what to do.
fn report_recover_later(context: &Context, waiting: &[SnapshotId]) -> Result<(), CliError> {
    for id in waiting {
        context.terminal.line(format!(
            "snapshot {} is not committed again yet: a prune has begun, which may remove what it needs. \
             `strongroom prune --undo` takes that back, if it is not too late, otherwise \
             `strongroom prune` ends it; then run `strongroom repair` again",
            id.short()
        ))?;
    }
    Ok(())
}

/// Says of how many objects nothing is known, and gives the exit code of a repair that has nothing
/// else to say.
fn report_waiting(
    context: &Context,
    plan: &RepairPlan,
    postponed: usize,
) -> Result<Exit, CliError> {
    let waiting = vec![Withheld::Archived; plan.waiting.len()];
    report_withheld(context, &waiting, "not checked, and left as they are")?;
    if postponed > 0 {
        let arenas = counted(postponed as u64, "damaged arena was", "damaged arenas were");
        context.terminal.line(format!(
            "{arenas} left as they are, because what their chunks need cannot be read at present: \
             run `strongroom repair` again when it can"
        ))?;
    }
    Ok(if waiting.is_empty() && postponed == 0 { Exit::Done } else { Exit::Withheld })
}

fn names_json(names: &[ObjectName]) -> serde_json::Value {
    names.iter().map(|name| name.as_str()).collect()
}

/// The collections, which say what was removed, and the wishes that the owner has said since.
fn read_removed(repository: &Repository) -> Result<(Collections, Wishes), RepositoryError> {
    Ok((Collections::read(repository)?, Wishes::read(repository)?))
}

/// Says what would be done, and what would stay lost. Ends as the repair would.
fn show_plan(
    args: &Args,
    backend: &Arc<dyn Backend>,
    fetching: &Fetching<'_>,
    mut plan: RepairPlan,
) -> Result<ExitCode, CliError> {
    let context = fetching.context;
    let repository = match (args.keyless, fetching.replicas) {
        (true, _) => None,
        (false, []) => Some(context.open()?),
        (false, replicas) => Some(context.open_completed(backend.clone(), replicas)?),
    };
    let removed = repository.as_ref().map(read_removed).transpose()?;
    let known = match &removed {
        Some((collections, wishes)) => Known::Collections(collections, wishes),
        None => Known::Nothing,
    };
    let fetches = fetching.plan(known, &mut plan)?;
    let mut affected = None;
    if let Some(repository) = &repository {
        let monitor = context.terminal.monitor(Words::objects("checked"));
        plan_removals(repository, &mut plan)?;
        affected = Some(plan_losses(repository, &mut plan, &monitor, &context.cancel)?);
        if may_recover(repository)? {
            plan_recovery(repository, &mut plan, &monitor, &context.cancel)?;
        }
    }
    report_steps(context, &plan)?;
    report_lost_snapshots(context, &plan)?;
    context.terminal.json(&json!({
        "event": "plan",
        "objects": plan.objects,
        "waiting": names_json(&plan.waiting),
        "steps": plan.steps.iter().map(step_text).collect::<Vec<_>>(),
        "fetch": fetches,
        "recover": plan.lost_snapshots.iter().map(|lost| lost.id.to_string())
            .collect::<Vec<_>>(),
        "affected": affected.as_deref().map(affected_json),
    }))?;
    let affected = affected.unwrap_or_default();
    report_affected(context, &affected)?;
    let is_lost = |step: &&RepairStep| matches!(step, RepairStep::Lost { .. });
    let lost = plan.steps.iter().filter(is_lost).count();
    let steps = plan.steps.len() - lost + plan.lost_snapshots.len() + fetches.len();
    let mut to_do = match (steps, lost, affected.as_slice()) {
        (0, 0, []) => "nothing to repair".to_owned(),
        (0, ..) => "nothing can be repaired".to_owned(),
        _ => format!("{} to do", counted(steps as u64, "step", "steps")),
    };
    if lost > 0 {
        to_do += &format!(", {} lost", counted(lost as u64, "object is", "objects are"));
    }
    if repository.is_none() {
        to_do += UNREAD;
    }
    let objects = counted(plan.objects, "object", "objects");
    context.terminal.line(format!("checked {objects}: {to_do}"))?;
    if !affected.is_empty() {
        if plan.steps.iter().any(|step| !step.is_sure()) {
            context.terminal.line("the steps above may bring back some of what is lost")?;
        }
        report_loss(context, affected.len(), !fetching.replicas.is_empty())?;
    }
    let exit = report_waiting(context, &plan, 0)?;
    let is_sure = plan.steps.iter().all(RepairStep::is_sure);
    Ok(if affected.is_empty() && lost == 0 && is_sure { exit } else { Exit::Damaged }.into())
}

/// Makes stores again that were erased, of a repository over several. Returns how many objects.
fn mend_stores(
    context: &Context,
    backend: Arc<dyn Backend>,
) -> Result<(Arc<dyn Backend>, u64), CliError> {
    let made = backend.mend()?;
    if made == 0 {
        return Ok((backend, 0));
    }
    let objects = counted(made, "object", "objects");
    context.terminal.line(format!("made {objects} again in stores that did not have them"))?;
    // The stores are members now.
    Ok((context.backend()?, made))
}

fn report_steps(context: &Context, plan: &RepairPlan) -> Result<(), CliError> {
    for step in &plan.steps {
        context.terminal.line(step_text(step))?;
    }
    Ok(())
}

fn report_lost_snapshots(context: &Context, plan: &RepairPlan) -> Result<(), CliError> {
    for lost in &plan.lost_snapshots {
        context.terminal.line(format!("{} commit it again", lost_snapshot_text(lost)))?;
    }
    for left in &plan.unrecognised {
        context.terminal.line(unrecognised_text(left))?;
    }
    Ok(())
}

fn step_text(step: &RepairStep) -> String {
    match step {
        RepairStep::FromParity { name, lost_shards: 0 } => {
            format!("{name}: write its header and trailer again")
        }
        RepairStep::FromParity { name, lost_shards } => {
            let shards = counted(*lost_shards as u64, "shard", "shards");
            format!("{name}: repair {shards} from parity")
        }
        RepairStep::FromCopy { name, copy } => format!("{name}: write it again from {copy}"),
        RepairStep::PutBack { name, from } => {
            format!("{name}: put it back from {from}, if that proves to be it")
        }
        RepairStep::TakePlanted { arena } => {
            format!("arenas/{arena}: take it away: its maker had no right to make it")
        }
        RepairStep::Rescue { arena, why } => {
            format!("arenas/{arena}: save what can still be read ({why})")
        }
        RepairStep::TakeAway { name, why } => format!("{name}: take it away ({why})"),
        RepairStep::Lost { name, why } => format!("{name}: cannot be repaired ({why})"),
    }
}
