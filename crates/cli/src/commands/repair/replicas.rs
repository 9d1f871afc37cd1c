//! `strongroom repair --from REPLICA`: what parity cannot give back.

use std::sync::Arc;

use serde_json::{Value, json};
use strongroom_backend::Backend;
use strongroom_base::units::{bytes_text, count_text, counted};
use strongroom_repository::Repository;
use strongroom_upkeep::{
    FetchOutcome, FetchPlan, FetchStep, Known, Needed, RepairPlan, fetch, fetch_needed, plan_fetch,
    replicate,
};

use crate::context::Context;
use crate::exit::CliError;
use crate::progress::Words;

/// What a repair fetches, and from where.
pub struct Fetching<'f> {
    pub context: &'f Context,
    pub backend: &'f dyn Backend,
    pub replicas: &'f [Arc<dyn Backend>],
    /// What was done so far.
    pub outcome: FetchOutcome,
}

impl Fetching<'_> {
    /// Fetches what can be said to be needed with what is known.
    pub fn run(
        &mut self,
        known: Known<'_>,
        repository: Option<&Repository>,
        plan: &mut RepairPlan,
    ) -> Result<(), CliError> {
        if self.replicas.is_empty() {
            return Ok(());
        }
        let steps = plan_fetch(self.backend, self.replicas, known, plan)?;
        self.show(&steps)?;
        let monitor = self.context.terminal.monitor(Words::objects("fetched"));
        let cancel = &self.context.cancel;
        let (from, to) = (self.replicas, self.backend);
        let done = fetch(to, from, steps, plan, repository, &monitor, cancel);
        monitor.finish();
        self.outcome.add(done?);
        Ok(())
    }

    /// Fetches what replicas have of arenas that lack something which a snapshot needs.
    pub fn run_needed(&mut self, repository: &Repository) -> Result<(), CliError> {
        let monitor = self.context.terminal.monitor(Words::objects("fetched"));
        let cancel = &self.context.cancel;
        let done = fetch_needed(repository, self.replicas, &monitor, cancel);
        monitor.finish();
        self.outcome.add(done?);
        Ok(())
    }

    /// Says what would be fetched.
    pub fn plan(&self, known: Known<'_>, plan: &mut RepairPlan) -> Result<Vec<Value>, CliError> {
        if self.replicas.is_empty() {
            return Ok(Vec::new());
        }
        let steps = plan_fetch(self.backend, self.replicas, known, plan)?;
        self.show(&steps)?;
        let as_json =
            |step: &FetchStep| json!({ "object": step.name.as_str(), "bytes": step.bytes });
        Ok(steps.steps.iter().map(as_json).collect())
    }

    fn show(&self, plan: &FetchPlan) -> Result<(), CliError> {
        let terminal = &self.context.terminal;
        for step in &plan.steps {
            let (name, bytes) = (&step.name, bytes_text(step.bytes));
            terminal.line(match &step.needed {
                Needed::Damaged(why) => format!("{name}: fetch what is damaged ({why})"),
                Needed::Missing => format!("{name}: fetch it, because it is missing ({bytes})"),
                Needed::Before(later) => {
                    format!("{name}: fetch it, because arenas/{later} is beyond repair ({bytes})")
                }
            })?;
        }
        for name in &plan.withdrawn {
            terminal.line(format!(
                "{name}: left in the replica, because the passphrase may have been withdrawn"
            ))?;
        }
        Ok(())
    }

    /// Reports what was fetched: for programs as a part of the summary.
    pub fn report(&self) -> Result<(), CliError> {
        if self.replicas.is_empty() {
            return Ok(());
        }
        let outcome = &self.outcome;
        let terminal = &self.context.terminal;
        Ok(terminal.line(format!(
            "replicas: {} of {} damaged, {} of {} missing; fetched {}",
            counted(outcome.mended, "object", "objects"),
            bytes_text(outcome.damaged_bytes),
            count_text(outcome.returned),
            bytes_text(outcome.returned_bytes),
            bytes_text(outcome.fetched_bytes),
        ))?)
    }

    /// The same for a program.
    pub fn json(&self) -> Value {
        let outcome = &self.outcome;
        json!({
            "mended": outcome.mended,
            "bytes_damaged": outcome.damaged_bytes,
            "returned": outcome.returned,
            "bytes_returned": outcome.returned_bytes,
            "bytes_fetched": outcome.fetched_bytes,
            "failed": outcome.failed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Makes a repository that is lost again, from a replica.
pub fn return_all(
    context: &Context,
    replica: &dyn Backend,
    backend: &dyn Backend,
) -> Result<(), CliError> {
    let (from, place) = (replica.describe(), backend.describe());
    context.terminal.line(format!(
        "there is no repository at {place}: all of {from} is copied there, as by \
         `strongroom replicate --repo {from} {place}`"
    ))?;
    let monitor = context.terminal.monitor(Words::objects("copied"));
    let outcome = replicate(replica, backend, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    context.terminal.json(&json!({
        "event": "returned",
        "from": from,
        "place": place,
        "objects": outcome.sent,
        "bytes": outcome.sent_bytes,
    }))?;
    Ok(context.terminal.line(format!(
        "copied {} ({})",
        counted(outcome.sent, "object", "objects"),
        bytes_text(outcome.sent_bytes),
    ))?)
}
