//! `strongroom status`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::json;
use strongroom_base::{Clock, Printable, SystemClock, Timestamp};

use crate::commands::run::steps_of;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::night::{
    Record, Records, STEPS, State, earlier_troubles, lines_of, metrics, state_of, verdict_text,
};
use crate::replaced::replace;
use crate::spans;

/// What is looked at, and for whom.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Warn if the last good backup is longer ago, such as 2d
    #[arg(long, value_name = "DURATION", value_parser = spans::parse)]
    max_age: Option<i64>,
    /// As a monitor reads it
    #[arg(long, value_name = "KIND", conflicts_with = "json")]
    format: Option<Format>,
    /// Write what a monitor reads into this file instead
    #[arg(long, value_name = "FILE", requires = "format")]
    output: Option<PathBuf>,
}

/// As monitors read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line and the exit codes of a plugin of Nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN
    Nagios,
    /// The text format of Prometheus
    Prometheus,
}

/// Shows how the profile's last runs ended.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let chosen = context.chosen_profile()?;
    let name = chosen.name.clone();
    // A profile that cannot be read has no step that could be missing.
    let steps = steps_of(&chosen.profiles, &name, &[]).unwrap_or_default();
    let records = Records::of(&name)?;
    let record = records.read_with_unended()?;
    let now = SystemClock.now();
    let (state, good) = state_of(&record, &steps, args.max_age, now);
    let earlier = earlier_troubles(&record, &steps, now);
    let runner = records.runner();
    context.terminal.json(&summary(&name, &record, state, good, runner.as_deref()))?;
    match args.format {
        Some(Format::Nagios) => {
            let line = nagios(&name, &record, &earlier, state, good, args.max_age, now);
            write(context, args, &line)?;
            return Ok(ExitCode::from(match state {
                State::Good => 0,
                State::Warning => 1,
                State::Bad => 2,
                State::Unknown => 3,
            }));
        }
        Some(Format::Prometheus) => write(context, args, metrics(&name, &record).trim_end())?,
        None => {
            if !context.json() {
                people(context, &name, &record, state, args.max_age, now, runner.as_deref())?;
                for line in &earlier {
                    context.terminal.result(line)?;
                }
            }
        }
    }
    Ok(match state {
        State::Good => Exit::Done,
        State::Warning => Exit::Incomplete,
        State::Bad | State::Unknown => Exit::Failed,
    }
    .into())
}

fn write(context: &Context, args: &Args, text: &str) -> Result<(), CliError> {
    let Some(path) = &args.output else {
        return Ok(text.lines().try_for_each(|line| context.terminal.result(line))?);
    };
    replace(path, format!("{text}\n").as_bytes()).map_err(|error| {
        let message = format!("cannot write {}: {error}", Printable::path(path));
        CliError::new(Exit::Failed, message, "check --output")
    })
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Warning => "warning",
        State::Bad => "failed",
        State::Unknown => "unknown",
    }
}

fn summary(
    name: &str,
    record: &Record,
    state: State,
    good: Option<Timestamp>,
    runner: Option<&str>,
) -> serde_json::Value {
    json!({
        "event": "summary",
        "profile": name,
        "state": state_name(state),
        "last_good_backup": good.map(dates::rfc3339),
        "last_good": record.last_good,
        "last_run": record.runs.last(),
        "runs": record.runs.iter().rev().map(|run| json!({
            "started": run.started, "ended": run.ended, "verdict": run.verdict, "exit": run.exit,
        })).collect::<Vec<_>>(),
        "running": runner,
    })
}

fn nagios(
    name: &str,
    record: &Record,
    earlier: &[String],
    state: State,
    good: Option<Timestamp>,
    age_max: Option<i64>,
    now: Timestamp,
) -> String {
    let word = match state {
        State::Good => "OK",
        State::Warning => "WARNING",
        State::Bad => "CRITICAL",
        State::Unknown => "UNKNOWN",
    };
    let last = record.runs.last().map_or("it never ran".to_owned(), verdict_text);
    let name = Printable::text(name).to_string().replace('|', "/");
    let age = good.map(|good| now.0.saturating_sub(good.0) / 1_000_000_000);
    let since = good.map_or("no good backup yet".to_owned(), |good| {
        format!("last good backup {}", dates::age_text(good, now))
    });
    let critical = age_max.map(|max| (max / 1_000_000_000).to_string()).unwrap_or_default();
    let data = age.map(|age| format!(" | age={age}s;;{critical}")).unwrap_or_default();
    let earlier: String = earlier.iter().map(|line| format!("; {line}")).collect();
    format!("STRONGROOM {word} - {name}: {last}{earlier}; {since}{data}")
}

fn people(
    context: &Context,
    name: &str,
    record: &Record,
    state: State,
    age_max: Option<i64>,
    now: Timestamp,
    runner: Option<&str>,
) -> Result<(), CliError> {
    let terminal = &context.terminal;
    if let Some(runner) = runner {
        terminal.result(format!("it is being run by {runner}"))?;
    }
    let Some(last) = record.runs.last() else {
        return Ok(terminal.result(format!("profile {name} was never run here"))?);
    };
    for line in lines_of(name, last) {
        terminal.result(line)?;
    }
    terminal.result(format!(
        "last run: {}, {}",
        dates::text(last.started.0),
        dates::age_text(last.started.0, now)
    ))?;
    if let Some(wrong) = record.dated_ahead(now) {
        terminal.result(wrong)?;
    }
    for run in record.runs.iter().rev().filter(|run| !run.undelivered.is_empty()) {
        let (who, when) = (run.undelivered.join(", "), dates::text(run.started.0));
        terminal.result(format!(
            "not delivered yet to {who}: the report of {when}; the next run sends it again"
        ))?;
    }
    for step in STEPS {
        let Some(good) = record.last_good.get(step) else { continue };
        let what = match step {
            "backup" => "last good backup",
            "drill" => "last proved restorable",
            "verify" => "last verified",
            _ => continue,
        };
        terminal.result(format!(
            "{what}: {}, {}",
            dates::text(good.0),
            dates::age_text(good.0, now)
        ))?;
    }
    if let (State::Bad, Some(max), "good" | "warning") = (state, age_max, last.verdict.as_str()) {
        let max = max / 86_400_000_000_000;
        terminal.result(format!("the last good backup is older than allowed ({max} days)"))?;
    }
    Ok(())
}
