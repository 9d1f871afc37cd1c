//! `strongroom repair`

use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{count_text, duration_text};
use strongroom_engine::{RepairPlan, RepairStep, plan_repair, repair, repair_objects};
use strongroom_repository::RepositoryError;

use super::verify::{affected_json, tell_affected};
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;

/// How it is repaired.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Change nothing; show what would be done
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do what can be done without the passphrase: parity and second copies
    #[arg(long)]
    keyless: bool,
}

/// What progress is called.
const REPAIRED: Words = Words::plain("repaired");

/// Repairs it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let backend = context.backend()?;
    // A repository whose configuration is damaged is what repair is for; anything else is none.
    if !strongroom_repository::exists(&*backend)? {
        let place = backend.describe();
        return Err(RepositoryError::NotARepository { place }.into());
    }
    let monitor = context.terminal.monitor(Words::plain("looked at"));
    let plan = plan_repair(&*backend, &monitor, &context.cancel);
    monitor.finish();
    let plan = plan?;
    for step in &plan.steps {
        context.terminal.line(step_text(step))?;
    }
    if args.dry_run {
        context.terminal.json(&json!({
            "event": "plan",
            "objects": plan.objects,
            "steps": plan.steps.iter().map(step_text).collect::<Vec<_>>(),
        }))?;
        let objects = count_text(plan.objects);
        let steps = count_text(plan.steps.len() as u64);
        context.terminal.line(format!("looked at {objects} objects; {steps} things to do"))?;
        return Ok(Exit::Done.into());
    }
    let outcome = if args.keyless {
        let monitor = context.terminal.monitor(REPAIRED);
        repair_objects(&*backend, &plan, &monitor, &context.cancel)?
    } else {
        mend_what_opening_needs(context, &plan)?;
        let repository = context.open()?;
        let monitor = context.terminal.monitor(REPAIRED);
        repair(&repository, &plan, &monitor, &context.cancel)?
    };
    context.terminal.json(&json!({
        "event": "summary",
        "objects": plan.objects,
        "repaired": outcome.repaired,
        "shards": outcome.shards,
        "rescued": outcome.rescued,
        "swept": outcome.swept,
        "indexed": outcome.indexed,
        "lost": outcome.lost.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "affected": affected_json(&outcome.affected),
    }))?;
    tell_affected(context, &outcome.affected)?;
    context.terminal.line(format!(
        "looked at {} objects: {} repaired, {} saved in part, {} lost, in {}",
        count_text(plan.objects),
        count_text(outcome.repaired),
        count_text(outcome.rescued),
        count_text(outcome.lost.len() as u64),
        duration_text(monitor.elapsed()),
    ))?;
    if outcome.affected.is_empty() && outcome.lost.is_empty() && outcome.rescued == 0 {
        return Ok(Exit::Done.into());
    }
    if !outcome.affected.is_empty() {
        let hint = "back the same paths up again: what is still there heals what is lost";
        context.terminal.line(hint)?;
    }
    Ok(Exit::Damaged.into())
}

/// The configuration and the key slots come first: without them the rest cannot be opened.
fn mend_what_opening_needs(context: &Context, plan: &RepairPlan) -> Result<(), CliError> {
    let small = |step: &&RepairStep| match step {
        RepairStep::FromParity { name, .. } | RepairStep::FromCopy { name, .. } => {
            matches!(name.folder(), "" | "keys")
        }
        _ => false,
    };
    let steps: Vec<RepairStep> = plan.steps.iter().filter(small).cloned().collect();
    if !steps.is_empty() {
        let first = RepairPlan { steps, objects: 0 };
        let monitor = context.terminal.monitor(REPAIRED);
        repair_objects(&*context.backend()?, &first, &monitor, &context.cancel)?;
    }
    Ok(())
}

fn step_text(step: &RepairStep) -> String {
    match step {
        RepairStep::FromParity { name, lost_shards: 0 } => {
            format!("{name}: write its frame anew")
        }
        RepairStep::FromParity { name, lost_shards } => {
            format!("{name}: compute {lost_shards} shards anew from parity")
        }
        RepairStep::PutAside { name, rightful } => {
            format!("{name}: {rightful} stands in its place; put that aside")
        }
        RepairStep::FromCopy { name, copy } => format!("{name}: write it anew from {copy}"),
        RepairStep::Rescue { arena, why } => {
            format!("arenas/{arena}: save what still opens ({why})")
        }
        RepairStep::Lost { name, why } => format!("{name}: nothing can be done ({why})"),
    }
}
