//! `strongroom schedule`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::duration_text;
use strongroom_base::{Clock, Printable, Severity, SystemClock, Timestamp};
use strongroom_source::InodeId;

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::machine::user_name;
use crate::manual;
use crate::profile::{self, Chosen};
use crate::schedule::{Calendar, Plan, cron, offset, systemd, unit_name};
use crate::spans;

/// When the profile is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// When: hourly, daily, weekly, monthly, 02:30, Mon,Thu 02:30, or a calendar of systemd
    #[arg(long, value_name = "CALENDAR", value_parser = Calendar::parse, default_value = "daily")]
    at: Calendar,
    /// Up to this much later, always the same on this machine: others use the same places
    #[arg(long, value_name = "DURATION", value_parser = spans::parse, default_value = "1h")]
    jitter: i64,
    /// Wake the machine from sleep for it
    #[arg(long)]
    wake: bool,
    /// For the whole machine, also while no user is logged in [default if run by root]
    #[arg(long, conflicts_with = "user")]
    system: bool,
    /// For this user
    #[arg(long)]
    user: bool,
    /// Write a line for cron, even if there is systemd
    #[arg(long)]
    cron: bool,
    /// Change nothing; show what is scheduled
    #[arg(long, conflicts_with = "remove")]
    show: bool,
    /// Run the profile no more by itself
    #[arg(long)]
    remove: bool,
    /// Change nothing; show what would be written
    #[arg(long, short = 'n', conflicts_with_all = ["show", "remove"])]
    dry_run: bool,
}

/// Writes, shows or removes it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let chosen = context.chosen_profile()?;
    let of_machine = !args.user && (args.system || rustix::process::geteuid().is_root());
    let unit = unit_name(&chosen.name);
    check_file(chosen, &unit, of_machine)?;
    if args.remove {
        return remove(context, &unit, of_machine);
    }
    let steps = super::run::steps_of(&chosen.profiles, &chosen.name, &[]);
    if args.show {
        let steps = steps.unwrap_or_default();
        return show(context, &chosen.name, &steps, &unit, of_machine);
    }
    let steps = steps?;
    // A mistake in the profile is said now, not in the night.
    let command = profile::built(&manual::command());
    super::profile::check_one(&chosen.profiles, &chosen.name, &command)?;
    super::profile::check_night(&chosen.profiles, &chosen.name, &command)?;
    let running = std::env::current_exe().map_err(|error| {
        let message = format!("cannot find this program: {error}");
        CliError::new(Exit::Failed, message, "install it, and run it again")
    })?;
    let program = program_as_called(&running).unwrap_or(running);
    let plan = Plan {
        profile: chosen.name.clone(),
        // It is read from another folder.
        config: std::path::absolute(&chosen.file)?,
        program,
        calendar: args.at.clone(),
        jitter: args.jitter,
        wake: args.wake,
        of_machine,
        credentials: chosen.profiles.values(&chosen.name, "password-credential")?,
    };
    let by_cron = args.cron || !systemd::is_here();
    say_doubts(context, chosen, &steps)?;
    if args.dry_run {
        let text = match by_cron {
            true => cron::table(&plan)?,
            false => format!("{}\n{}", systemd::service(&plan), systemd::timer(&plan)),
        };
        text.lines().try_for_each(|line| context.terminal.text(line))?;
        return Ok(Exit::Done.into());
    }
    let written = match by_cron {
        true => vec![cron::install(&plan)?],
        false => {
            let paths = systemd::install(&plan)?;
            paths.iter().map(|path| path.display().to_string()).collect()
        }
    };
    if !by_cron && !of_machine && !systemd::lingers(&user_name()) {
        let message = format!(
            "timers of a user run only while the user is logged in: `loginctl enable-linger {}` lets \
             them run always",
            user_name()
        );
        context.terminal.problem(Severity::Warning, &message);
    }
    if by_cron && !cron::is_here() {
        let message = "nothing runs the profile yet: no program reads tables of cron on this \
                       machine; install cron and start it, or have `strongroom run` started by \
                       what you use instead";
        context.terminal.problem(Severity::Warning, message);
    }
    let next = match by_cron {
        true => next_by_cron(&plan.calendar, plan.jitter, &chosen.name, &steps)?,
        false => systemd::next(&unit, of_machine),
    };
    context.terminal.json(&json!({
        "event": "summary", "profile": chosen.name, "steps": steps, "written": written, "next": next,
    }))?;
    let name = Printable::text(&chosen.name);
    context.terminal.line(format!("profile {name} is run by itself: {}", steps.join(", ")))?;
    for path in written {
        context.terminal.line(format!("  written: {path}"))?;
    }
    let jitter = Duration::from_nanos(plan.jitter.unsigned_abs());
    context.terminal.line(match plan.jitter {
        0 => format!("  when: {}", plan.calendar),
        _ => format!(
            "  when: {}, and up to {} later, always the same on this machine",
            plan.calendar,
            duration_text(jitter)
        ),
    })?;
    if let Some(next) = next {
        context.terminal.line(format!("  next run: {next}"))?;
    }
    Ok(Exit::Done.into())
}

/// Checks that what is scheduled under the profile's name is not the profile of another file.
fn check_file(chosen: &Chosen, unit: &str, of_machine: bool) -> Result<(), CliError> {
    let line = cron::shown(unit, of_machine);
    let scheduled = [systemd::config(unit, of_machine), line.as_deref().and_then(cron::config)];
    // A file that is there no longer has moved.
    let same = chosen.file.canonicalize()?;
    let others = scheduled.into_iter().flatten().filter_map(|file| file.canonicalize().ok());
    let Some(other) = others.into_iter().find(|other| *other != same) else { return Ok(()) };
    let name = Printable::text(&chosen.name);
    let message = format!(
        "what is run by itself as {name} is the profile of that name of another file, {}",
        Printable::path(&other)
    );
    let hint = "give one of the two another name; with --config and that file, `schedule --remove` ends \
                its runs";
    Err(CliError::new(Exit::Failed, message, hint))
}

/// Says what will go wrong at night.
fn say_doubts(context: &Context, chosen: &Chosen, steps: &[&'static str]) -> Result<(), CliError> {
    let without = super::run::steps_without_passphrase(&chosen.profiles, &chosen.name, steps)?;
    if !without.is_empty() {
        let message = format!(
            "its runs will fail: at night no passphrase is typed for {}: write \
             password-file, password-command or password-credential into the profile",
            without.join(", ")
        );
        context.terminal.problem(Severity::Warning, &message);
    }
    for doubt in super::profile::doubts(&chosen.profiles, &chosen.name)? {
        context.terminal.problem(Severity::Warning, &doubt);
    }
    Ok(())
}

/// When cron runs the profile next, as systemd would say it.
fn next_by_cron(
    calendar: &Calendar,
    jitter: i64,
    profile: &str,
    steps: &[&str],
) -> Result<Option<String>, CliError> {
    let now = SystemClock.now().0;
    let later = offset(jitter, profile);
    let due = match calendar.next_due(now.saturating_sub(later)) {
        None => return Ok(None),
        Some(_) if super::run::is_due(calendar, jitter, profile, steps)? => now,
        Some(due) => due.saturating_add(later),
    };
    Ok(Some(dates::text_with_day(Timestamp(cron::tick(due)))))
}

fn remove(context: &Context, unit: &str, of_machine: bool) -> Result<ExitCode, CliError> {
    let units = systemd::remove(unit, of_machine)?;
    let mut removed: Vec<String> = units.iter().map(|path| path.display().to_string()).collect();
    removed.extend(cron::remove(unit, of_machine)?);
    context.terminal.json(&json!({ "event": "summary", "removed": removed }))?;
    match removed.is_empty() {
        true => context.terminal.line("it was not scheduled")?,
        false => {
            removed.iter().try_for_each(|path| context.terminal.line(format!("removed: {path}")))?
        }
    }
    Ok(Exit::Done.into())
}

fn show(
    context: &Context,
    profile: &str,
    steps: &[&str],
    unit: &str,
    of_machine: bool,
) -> Result<ExitCode, CliError> {
    let next = systemd::next(unit, of_machine);
    let line = cron::shown(unit, of_machine);
    let next = match line.as_deref().and_then(cron::terms) {
        Some((calendar, jitter)) if next.is_none() => {
            next_by_cron(&calendar, jitter, profile, steps)?
        }
        _ => next,
    };
    context
        .terminal
        .json(&json!({ "event": "summary", "unit": unit, "next": next, "cron": line }))?;
    match (next, line) {
        (None, None) => context.terminal.result("it is not scheduled")?,
        (Some(next), None) => {
            context.terminal.result(format!("{unit}.timer runs it next on {next}"))?
        }
        (Some(next), Some(line)) => {
            context.terminal.result(format!("cron: {line}"))?;
            context.terminal.result(format!("cron runs it next on {next}"))?;
        }
        (None, Some(line)) => context.terminal.result(format!("cron: {line}"))?,
    }
    Ok(Exit::Done.into())
}

/// The path by which this program was called, links as they are: what a link leads to is another file after
/// an update, and is often removed then. None if another program has that path.
fn program_as_called(running: &Path) -> Option<PathBuf> {
    let called = PathBuf::from(std::env::args_os().next()?);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths: Vec<PathBuf> = match called.components().count() {
        1 => std::env::split_paths(&folders).map(|folder| folder.join(&called)).collect(),
        _ => vec![called],
    };
    let running = InodeId::of_path(running).ok()?;
    paths.retain(|path| InodeId::of_path(path).is_ok_and(|found| found == running));
    std::path::absolute(paths.first()?).ok()
}
