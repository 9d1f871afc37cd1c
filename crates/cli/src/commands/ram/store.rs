//! `strongroom ram store`

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::units::{count_text, counted};
use strongroom_engine::RegionOutcome;

use super::regions::RegionArgs;
use crate::context::Context;
use crate::exit::CliError;

/// The regions, and how they are stored.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    regions: RegionArgs,
}

/// Stores them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let Args { regions } = args;
    regions.check()?;
    let (repository, options) = regions.open_repository(context)?;
    let (outcome, elapsed) = regions.store(context, &repository, &options)?;
    report(context, regions, &outcome, elapsed)
}

/// Says what was stored.
pub fn report(
    context: &Context,
    regions: &RegionArgs,
    outcome: &RegionOutcome,
    elapsed: Duration,
) -> Result<ExitCode, CliError> {
    let exit = regions.storing.report(context, &outcome.backup, elapsed, more(outcome))?;
    if let Some(guarantee) = outcome.backup.snapshot.guarantee {
        context.terminal.line(format!(
            "  {} of {} changed; guarantee: {} ({}, {})",
            count_text(outcome.pages_changed),
            counted(outcome.pages, "page", "pages"),
            guarantee.word(),
            guarantee.how(),
            counted(outcome.passes.into(), "reading", "readings"),
        ))?;
    }
    Ok(exit)
}

fn more(outcome: &RegionOutcome) -> Value {
    let guarantee = outcome.backup.snapshot.guarantee;
    json!({
        "guarantee": guarantee.map(|guarantee| guarantee.word()),
        "guaranteed_by": guarantee.map(|guarantee| guarantee.how()),
        "passes": outcome.passes,
        "pages": outcome.pages,
        "pages_changed": outcome.pages_changed,
        "chunks_healed": outcome.healed,
    })
}
