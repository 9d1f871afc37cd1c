//! `strongroom repair`

use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{count_text, counted, duration_text};
use strongroom_repository::RepositoryError;
use strongroom_upkeep::{
    RepairPlan, RepairStep, may_recover, plan_recovery, plan_repair, repair, repair_objects,
};

use super::verify::{BACK_UP_AGAIN, affected_json, lost_snapshot_text, report_affected};
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;

/// How it is repaired.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Change nothing; show what would be done
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do only what needs no passphrase: repair from parity and from second copies
    #[arg(long)]
    keyless: bool,
}

/// How the progress is worded.
const REPAIRED: Words = Words::objects("repaired");

/// Repairs it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let backend = context.backend()?;
    // A damaged configuration can be repaired; without one, this is not a repository.
    if !strongroom_repository::exists(&*backend)? {
        let place = backend.describe();
        return Err(RepositoryError::NotARepository { place }.into());
    }
    let monitor = context.terminal.monitor(Words::objects("checked"));
    let plan = plan_repair(&*backend, &monitor, &context.cancel);
    monitor.finish();
    let mut plan = plan?;
    for step in &plan.steps {
        context.terminal.line(step_text(step))?;
    }
    if args.dry_run {
        if !args.keyless && may_recover(&*backend)? {
            plan_recovery(&context.open()?, &mut plan, &monitor, &context.cancel)?;
            report_lost_snapshots(context, &plan)?;
        }
        context.terminal.json(&json!({
            "event": "plan",
            "objects": plan.objects,
            "steps": plan.steps.iter().map(step_text).collect::<Vec<_>>(),
            "recover": plan.lost_snapshots.iter().map(|lost| lost.id.to_string())
                .collect::<Vec<_>>(),
        }))?;
        let objects = counted(plan.objects, "object", "objects");
        let steps = plan.steps.len() + plan.lost_snapshots.len();
        let (has_none, steps) = (steps == 0, counted(steps as u64, "step", "steps"));
        context.terminal.line(match has_none {
            true => format!("checked {objects}: nothing to repair"),
            false => format!("checked {objects}: {steps} to do"),
        })?;
        return Ok(Exit::Done.into());
    }
    let outcome = if args.keyless {
        let monitor = context.terminal.monitor(REPAIRED);
        repair_objects(&*backend, &plan, &monitor, &context.cancel)?
    } else {
        let repository = context.open()?;
        if may_recover(&*backend)? {
            plan_recovery(&repository, &mut plan, &monitor, &context.cancel)?;
            report_lost_snapshots(context, &plan)?;
        }
        let monitor = context.terminal.monitor(REPAIRED);
        repair(&repository, &plan, &monitor, &context.cancel)?
    };
    context.terminal.json(&json!({
        "event": "summary",
        "objects": plan.objects,
        "repaired": outcome.repaired,
        "shards": outcome.shards,
        "rescued": outcome.rescued,
        "recovered": outcome.recovered,
        "swept": outcome.swept,
        "indexed": outcome.indexed,
        "lost": outcome.lost.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "affected": affected_json(&outcome.affected),
    }))?;
    report_affected(context, &outcome.affected)?;
    let objects = counted(plan.objects, "object", "objects");
    let took = duration_text(monitor.elapsed());
    if outcome.recovered > 0 {
        let snapshots = counted(outcome.recovered, "snapshot", "snapshots");
        context.terminal.line(format!(
            "{snapshots} committed again, with the label \"recovered\"; whether complete is not known"
        ))?;
    } else if outcome.repaired == 0 && outcome.rescued == 0 && outcome.lost.is_empty() {
        context.terminal.line(format!("checked {objects}: nothing to repair; took {took}"))?;
    } else {
        context.terminal.line(format!(
            "checked {objects}: {} repaired, {} saved in part, {} lost; took {took}",
            count_text(outcome.repaired),
            count_text(outcome.rescued),
            count_text(outcome.lost.len() as u64),
        ))?;
    }
    if outcome.affected.is_empty() && outcome.lost.is_empty() && outcome.rescued == 0 {
        return Ok(Exit::Done.into());
    }
    if !outcome.affected.is_empty() {
        context.terminal.line(BACK_UP_AGAIN)?;
    }
    Ok(Exit::Damaged.into())
}

fn report_lost_snapshots(context: &Context, plan: &RepairPlan) -> Result<(), CliError> {
    for lost in &plan.lost_snapshots {
        context.terminal.line(format!("{} commit it again", lost_snapshot_text(lost)))?;
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
        RepairStep::Rescue { arena, why } => {
            format!("arenas/{arena}: save what can still be read ({why})")
        }
        RepairStep::Lost { name, why } => format!("{name}: cannot be repaired ({why})"),
    }
}
