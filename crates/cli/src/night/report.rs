//! A run in words: for a terminal, for a mail, for monitors.

use std::time::Duration;

use serde_json::json;
use strongroom_base::units::duration_text;
use strongroom_base::{Printable, Timestamp};
use strongroom_notice::{Notice, Verdict};

use super::STEPS;
use super::record::{LastTime, Moment, Record, RunRecord, StepRecord};
use crate::dates;
use crate::machine::host_name;

/// What a step that ended well wrote is of less interest.
const GOOD_OUTPUT_BYTES_MAX: usize = 2 << 10;

/// The lines that end a run.
pub fn lines(profile: &str, run: &RunRecord) -> Vec<String> {
    let mut lines = vec![format!("profile {}: {}", Printable::text(profile), verdict_text(run))];
    lines.extend(run.steps.iter().map(step_line));
    lines.extend(run.troubles.iter().map(|trouble| format!("  {}", first_line(trouble))));
    lines
}

fn step_line(step: &StepRecord) -> String {
    let took = Duration::try_from_secs_f64(step.seconds.max(0.0)).unwrap_or_default();
    let took = duration_text(took);
    let what = match (step.outcome.as_str(), step.exit) {
        ("good", _) => format!("done in {took}"),
        ("left out" | "stopped", None) => first_line(&step.output).to_owned(),
        ("stopped", _) => format!("stopped after {took}"),
        ("warning", _) => format!("done in {took}, with warnings"),
        ("doubtful", _) => format!("done in {took}, and something is missing"),
        _ if step.seconds == 0.0 => format!("failed: {}", first_line(&step.output)),
        (_, Some(code)) => format!("failed after {took}, exit code {code}"),
        (_, None) => format!("failed after {took}"),
    };
    format!("  {:<10} {what}", step.step)
}

/// How a run ended, in a few words.
pub fn verdict_text(run: &RunRecord) -> String {
    let failed: Vec<&str> =
        run.steps.iter().filter(|step| step.outcome == "failed").map(|step| &*step.step).collect();
    match run.verdict.as_str() {
        "good" => "all done".to_owned(),
        "warning" => "done, with warnings".to_owned(),
        "stopped" => "stopped before its end".to_owned(),
        _ if failed.is_empty() => "done, but a hook failed".to_owned(),
        _ => format!("failed: {}", failed.join(", ")),
    }
}

/// What is said of a run.
pub fn notice(profile: &str, run: &RunRecord, verdict: Verdict) -> Notice {
    let host = host_name();
    let shown = Printable::text(profile).to_string();
    let subject = format!("strongroom: {shown} on {host}: {}", verdict_text(run));
    let text = format!("Profile {shown} on {host}, {}", body(profile, run));
    let mut details = json!(run);
    details["profile"] = json!(profile);
    details["host"] = json!(host);
    Notice { verdict, subject, text, details }
}

/// A notice that a run is due, and one of before is still on.
pub fn still_on(profile: &str, who: &str) -> Notice {
    let (host, shown) = (host_name(), Printable::text(profile).to_string());
    let details = json!({ "profile": profile, "host": host, "running": who });
    Notice {
        verdict: Verdict::Failed,
        subject: format!("strongroom: {shown} on {host}: a run has not ended"),
        text: format!(
            "Profile {shown} on {host} is due, and is still being run by {who}. If that hangs, end it: the \
             next run begins again."
        ),
        details,
    }
}

/// A notice of no run, to see whether notices arrive.
pub fn test_notice(profile: &str, now: Timestamp) -> Notice {
    let nothing = RunRecord {
        started: Moment(now),
        ended: Moment(now),
        verdict: Verdict::Good.name().to_owned(),
        exit: 0,
        steps: Vec::new(),
        troubles: Vec::new(),
        undelivered: Vec::new(),
    };
    let (host, shown) = (host_name(), Printable::text(profile).to_string());
    Notice {
        subject: format!("strongroom: {shown} on {host}: a test"),
        text: format!("This is a test: notices of profile {shown} on {host} arrive here."),
        ..notice(profile, &nothing, Verdict::Good)
    }
}

/// A notice with the runs that its recipient did not hear of, the newest first. It is as bad as the
/// worst of them, so that none is overlooked.
pub fn with_earlier(
    mut notice: Notice,
    profile: &str,
    earlier: &[&RunRecord],
    now: Timestamp,
) -> Notice {
    let what = match earlier {
        [] => return notice,
        [one] => format!("{} ({})", verdict_text(one), dates::age_text(one.started.0, now)),
        many => format!("{} runs", many.len()),
    };
    notice.subject.push_str(&format!("; not delivered before: {what}"));
    notice.text.push_str("\n\nNot delivered before:\n");
    for run in earlier {
        let age = dates::age_text(run.started.0, now);
        let what = verdict_text(run);
        notice.text.push_str(&format!("\n{age}: {what}, {}", body(profile, run)));
        notice.verdict = notice.verdict.max(match run.verdict.as_str() {
            "good" => Verdict::Good,
            "warning" => Verdict::Warning,
            _ => Verdict::Failed,
        });
    }
    let brief = |run: &&RunRecord| {
        json!({
            "started": run.started, "ended": run.ended, "verdict": run.verdict, "exit": run.exit,
        })
    };
    notice.details["earlier"] = earlier.iter().map(brief).collect();
    notice
}

/// When a run was, its steps, and what these wrote.
fn body(profile: &str, run: &RunRecord) -> String {
    let (from, to) = (dates::text(run.started.0), dates::text(run.ended.0));
    let mut text = format!("from {from} to {to}.\n\n");
    for line in &lines(profile, run)[1..] {
        text.push_str(line);
        text.push('\n');
    }
    for step in &run.steps {
        let output = match step.outcome.as_str() {
            "good" => end_of(&step.output, GOOD_OUTPUT_BYTES_MAX),
            _ => &step.output,
        };
        if !output.trim().is_empty() && step.seconds > 0.0 {
            text.push_str(&format!("\n== {}\n{output}", step.step));
        }
    }
    for trouble in run.troubles.iter().filter(|trouble| trouble.contains('\n')) {
        text.push_str(&format!("\n== {trouble}\n"));
    }
    text
}

/// How a program ended, with what it wrote below.
pub fn with_output(what: &str, output: &str) -> String {
    match output.trim_end() {
        "" => what.to_owned(),
        output => format!("{what}\n{output}"),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn end_of(text: &str, bytes_max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..]
}

/// How a profile is: as its last run ended, unless a good backup is too long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The last run did all, lately enough.
    Good,
    /// It deserves a look.
    Warning,
    /// The last run failed, or the last good backup is too old.
    Bad,
    /// It never ran.
    Unknown,
}

/// How a profile of these steps is, and when it last made a good backup; that may be at most so long
/// ago, in nanoseconds.
pub fn state_of(
    record: &Record,
    steps: &[&str],
    age_max: Option<i64>,
    now: Timestamp,
) -> (State, Option<Timestamp>) {
    let good = record.last_good.get("backup").map(|moment| moment.0);
    let Some(last) = record.runs.last() else { return (State::Unknown, good) };
    // Runs that are long ago are not recorded any more, but the last good one is.
    let has_backups = good.is_some()
        || record.runs.iter().any(|run| run.steps.iter().any(|step| step.step == "backup"));
    let is_too_old = age_max.is_some_and(|max| {
        has_backups && good.is_none_or(|good| now.0.saturating_sub(good.0) > max)
    });
    let is_of_wrong_clock = record.dated_ahead(now).is_some()
        || good.is_some_and(|good| dates::is_in_future(good, now));
    // A run of other steps does not make good what these did not do.
    let bad = record.bad_steps(steps);
    let is_failed = |last: &LastTime| matches!(last.outcome.as_str(), "failed" | "stopped");
    let has_failed = bad.iter().any(|(_, last)| is_failed(last));
    let is_unended = steps.contains(&"backup") && record.unended_backup().is_some();
    let state = match last.verdict.as_str() {
        _ if is_too_old || has_failed || is_unended => State::Bad,
        // By such a clock nothing is ever too old.
        "good" if is_of_wrong_clock || !bad.is_empty() => State::Warning,
        "good" => State::Good,
        "warning" => State::Warning,
        _ => State::Bad,
    };
    (state, good)
}

/// Lines about the steps that did not go well before the last run, and were not tried again since.
pub fn earlier_troubles(record: &Record, steps: &[&str], now: Timestamp) -> Vec<String> {
    let Some(last_run) = record.runs.last() else { return Vec::new() };
    let line = |step: &str, what: &str, begun: Moment| {
        format!("{step}: {what} {}, and was not tried since", dates::age_text(begun.0, now))
    };
    let bad = record.bad_steps(steps);
    let earlier = bad.iter().filter(|(_, last)| last.begun != last_run.started);
    let mut lines: Vec<String> = earlier
        .map(|(step, last)| match last.outcome.as_str() {
            "warning" => line(step, "had warnings", last.begun),
            "doubtful" => line(step, "was doubtful", last.begun),
            "stopped" => line(step, "was stopped", last.begun),
            _ => line(step, "failed", last.begun),
        })
        .collect();
    let unended = record.unended_backup().filter(|begun| *begun != last_run.started);
    lines.extend(unended.map(|begun| line("backup", "did not end", begun)));
    lines
}

/// The record as Prometheus reads it from a file.
pub fn metrics(profile: &str, record: &Record) -> String {
    let mut text = String::new();
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let escaped = escape(profile);
    let mut gauge = |name: &str, help: &str, values: Vec<(Option<&str>, f64)>| {
        text.push_str(&format!(
            "# HELP strongroom_{name} {help}\n# TYPE strongroom_{name} gauge\n"
        ));
        for (step, value) in values {
            let step = step.map(|step| format!(",step=\"{}\"", escape(step))).unwrap_or_default();
            text.push_str(&format!("strongroom_{name}{{profile=\"{escaped}\"{step}}} {value}\n"));
        }
    };
    let seconds = |time: Timestamp| (time.0 / 1_000_000_000) as f64;
    if let Some(last) = record.runs.last() {
        let verdict = match last.verdict.as_str() {
            "good" => 0.0,
            "warning" => 1.0,
            _ => 2.0,
        };
        gauge(
            "last_run_verdict",
            "0 good, 1 with warnings, 2 failed or stopped.",
            vec![(None, verdict)],
        );
        gauge(
            "last_run_exit_code",
            "Exit code of the last run.",
            vec![(None, f64::from(last.exit))],
        );
        gauge(
            "last_run_started_seconds",
            "When the last run began.",
            vec![(None, seconds(last.started.0))],
        );
        gauge(
            "last_run_ended_seconds",
            "When the last run ended.",
            vec![(None, seconds(last.ended.0))],
        );
        let of_steps = |value: fn(&StepRecord) -> Option<f64>| {
            last.steps.iter().filter_map(|step| Some((Some(&*step.step), value(step)?))).collect()
        };
        gauge(
            "step_seconds",
            "How long a step of the last run took.",
            of_steps(|step| Some(step.seconds)),
        );
        gauge(
            "step_exit_code",
            "Exit code of a step of the last run.",
            of_steps(|step| step.exit.map(f64::from)),
        );
    }
    let good = STEPS
        .iter()
        .filter_map(|step| Some((Some(*step), seconds(record.last_good.get(*step)?.0))));
    gauge("last_good_seconds", "When a step last ended without a failure.", good.collect());
    text
}
