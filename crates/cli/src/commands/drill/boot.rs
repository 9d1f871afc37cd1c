//! `strongroom drill --boot`: a machine of the snapshot is started, and has to show that it lives.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::duration_text;
use strongroom_base::{Severity, Stopwatch};
use strongroom_catalog::Snapshot;
use strongroom_engine::EngineError;
use strongroom_machine::boot::{Running, Sign};
use strongroom_repository::{BootDrill, DrillVerdict, Repository, RepositoryError, change_remark};

use super::verdict_text;
use crate::boot::{MachineArgs, Prepared, Purpose, prepare};
use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete, from_line};
use crate::terminal::{path_json, printable, printable_text};

/// How long a machine may take to show that it lives.
const PATIENCE_USUAL: Duration = Duration::from_secs(300);
/// What shows that a machine lives if nothing else is said: the prompt of a Unix.
const PROMPT: &str = "login:";
/// How often signs are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The last lines of a machine's serial port that are shown if it does not live.
const LINES_SHOWN: usize = 12;
/// Where pictures are, in the cache of a repository.
const PICTURES: &str = "boots";

/// How a machine is started, and what shows that it lives.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Starting a machine")]
pub struct BootArgs {
    /// Start the machine of the snapshot instead of restoring a sample: without a network, and
    /// writing nothing to the repository
    #[arg(long)]
    pub boot: bool,
    /// Wait until it says this on its serial port; may be repeated [default: `login:`, or an answer
    /// of the guest agent]
    #[arg(long, value_name = "TEXT", requires = "boot")]
    expect: Vec<String>,
    /// Wait until its guest agent answers
    #[arg(long, requires = "boot")]
    expect_agent: bool,
    /// Wait until it accepts connections to this port; may be repeated
    #[arg(long, value_name = "PORT", requires = "boot", conflicts_with = "no_network",
        value_parser = clap::value_parser!(u16).range(1..))]
    expect_port: Vec<u16>,
    /// Wait this long at most [default: 5m]
    #[arg(long, value_name = "SPAN", requires = "boot", value_parser = span)]
    within: Option<Duration>,
    /// Write a picture of its screen, as PNG, to this file [default: one in the cache]
    #[arg(long, value_name = "FILE", requires = "boot")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
}

fn span(text: &str) -> Result<Duration, String> {
    match u64::try_from(dates::span(text)?) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err("it must be longer than nothing".to_owned()),
    }
}

/// What is waited for.
struct Signs {
    /// All of these.
    all: Vec<Sign>,
    /// Or any of these, if nothing is said.
    any: Vec<Sign>,
}

impl BootArgs {
    /// Whether an option for starting was given.
    pub fn is_given(&self) -> bool {
        self.machine.is_given()
    }

    fn signs(&self) -> Signs {
        let words = self.expect.iter().cloned().map(Sign::Words);
        let agent = self.expect_agent.then_some(Sign::Agent);
        let ports = self.expect_port.iter().copied().map(Sign::Port);
        let all: Vec<Sign> = words.chain(agent).chain(ports).collect();
        let any = match all.is_empty() {
            true => vec![Sign::Words(PROMPT.to_owned()), Sign::Agent],
            false => Vec::new(),
        };
        Signs { all, any }
    }
}

impl Signs {
    fn words(&self) -> Vec<String> {
        let words = self.all.iter().chain(&self.any).filter_map(|sign| match sign {
            Sign::Words(words) => Some(words.clone()),
            _ => None,
        });
        words.collect()
    }

    fn has_agent(&self) -> bool {
        self.all.contains(&Sign::Agent) || self.any.contains(&Sign::Agent)
    }

    /// What is missing, in words; nothing if the machine lives. Those that were seen are not looked
    /// for again.
    fn look(&mut self, running: &mut Running) -> Result<Option<String>, CliError> {
        let mut missing = Vec::new();
        for sign in std::mem::take(&mut self.all) {
            if !running.shows(&sign).map_err(lost)? {
                missing.push(sign);
            }
        }
        self.all = missing;
        let mut is_any_seen = self.any.is_empty();
        for sign in &self.any {
            is_any_seen = is_any_seen || running.shows(sign).map_err(lost)?;
        }
        let wanted = self.all.iter().chain(if is_any_seen { &[] } else { &self.any[..] });
        let wanted: Vec<String> = wanted.map(ToString::to_string).collect();
        let between = if self.all.is_empty() { ", or " } else { ", " };
        Ok((!wanted.is_empty()).then(|| wanted.join(between)))
    }
}

fn lost(error: impl ToString) -> CliError {
    CliError::new(Exit::Failed, error.to_string(), "start it again; -v shows QEMU's arguments")
}

/// What came of it.
struct Found {
    verdict: DrillVerdict,
    elapsed: Duration,
    /// Why it is not proved.
    why: Option<String>,
    picture: Option<PathBuf>,
    /// The last lines of the serial port.
    last_lines: Vec<String>,
}

/// Starts the machine and waits for signs of life.
pub fn run(
    context: &Context,
    what: &SnapshotArg,
    args: &BootArgs,
    (narrowing, replicas, record): (&NarrowingArgs, &ReplicaArgs, bool),
) -> Result<ExitCode, CliError> {
    if record {
        context.check_present()?;
    }
    let repository = Arc::new(context.open_to_read(replicas)?);
    let snapshot = what.find(&repository, narrowing)?;
    let exit = check_complete(context, &snapshot);
    let signs = args.signs();
    let purpose = Purpose {
        display: "none",
        keep: None,
        ports: &args.expect_port,
        has_agent: signs.has_agent(),
    };
    let place = (&snapshot, &what.path[..]);
    let mut prepared = prepare(context, repository.clone(), place, &args.machine, &purpose)?;
    let picture = args.picture.clone().or_else(|| {
        let folder = repository.cache_folder()?.join(PICTURES);
        Some(folder.join(format!("{}.png", snapshot.id)))
    });
    let machine = prepared.machine.clone();
    let found = watch(context, &mut prepared, signs, args.within, picture);
    prepared.close();
    let found = found?;
    let not_recorded = match record {
        true => keep(&repository, &snapshot, &found).err(),
        false => None,
    };
    let recorded = record && not_recorded.is_none();
    report(context, &snapshot, &machine, &found, recorded)?;
    if let Some(error) = not_recorded {
        context.terminal.note(format!(
            "the result is not kept in the repository: {error}; --no-record does not try to"
        ));
    }
    Ok(match found.verdict {
        DrillVerdict::Proved => exit,
        DrillVerdict::Incomplete => Exit::Incomplete,
        DrillVerdict::Failed => Exit::Failed,
    }
    .into())
}

fn watch(
    context: &Context,
    prepared: &mut Prepared,
    mut signs: Signs,
    within: Option<Duration>,
    picture: Option<PathBuf>,
) -> Result<Found, CliError> {
    let terminal = context.terminal;
    let on_line = move |line: &str| {
        if terminal.is_verbose() {
            let _ = terminal.line(format!("  | {line}"));
        }
    };
    let within = within.unwrap_or(PATIENCE_USUAL);
    let words = signs.words();
    let mut begun = Stopwatch::start();
    let mut running = prepared.start(context, &words, on_line)?;
    let why = loop {
        context.cancel.check().map_err(EngineError::from)?;
        if prepared.emulate_if_kvm_failed(context, &mut running, &words, on_line)? {
            begun = Stopwatch::start();
        }
        let missing = match signs.look(&mut running) {
            // It may have said all that it had to say before it ended.
            Err(_) if running.ended()?.is_some() => break Some("it ended".to_owned()),
            other => other?,
        };
        let Some(missing) = missing else { break None };
        if running.ended()?.is_some() {
            break Some(format!("it ended without {missing}"));
        }
        if begun.elapsed() >= within {
            let waited = duration_text(within);
            break Some(format!("within {waited} there was no sign of life: {missing}"));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let elapsed = begun.elapsed();
    let picture = picture.filter(|path| pictured(context, &running, path));
    let said = running.console.text();
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].iter();
    let last_lines = last.map(|line| printable_text(line.trim_end())).collect();
    let verdict = if why.is_none() { DrillVerdict::Proved } else { DrillVerdict::Failed };
    let complaint = running.end();
    if !complaint.is_empty() {
        terminal.note(format!("QEMU said: {}", printable_text(&complaint)));
    }
    Ok(Found { verdict, elapsed, why, picture, last_lines })
}

/// Whether there is a picture now. That there is none says nothing about the machine.
fn pictured(context: &Context, running: &Running, path: &Path) -> bool {
    // QEMU has a working directory of its own.
    let taken = std::path::absolute(path).map_err(|error| error.to_string());
    let taken = taken.and_then(|path| running.picture(&path).map_err(|error| error.to_string()));
    if let Err(error) = &taken {
        let message = format!("there is no picture of the screen: {}", printable_text(error));
        context.terminal.problem(Severity::Note, &message);
    }
    taken.is_ok()
}

/// Keeps the result in the repository.
fn keep(
    repository: &Repository,
    snapshot: &Snapshot,
    found: &Found,
) -> Result<(), RepositoryError> {
    let time = repository.surroundings.clock.now();
    let milliseconds = u64::try_from(found.elapsed.as_millis()).unwrap_or(u64::MAX);
    change_remark(repository, snapshot.id, |remark| {
        let before = remark.boot.as_ref();
        // Of two drills, the one that ended last counts.
        if before.is_none_or(|before| before.time <= time) {
            remark.boot = Some(BootDrill::new(time, found.verdict, milliseconds, before));
        }
    })?;
    Ok(())
}

fn report(
    context: &Context,
    snapshot: &Snapshot,
    machine: &str,
    found: &Found,
    recorded: bool,
) -> Result<(), CliError> {
    context.terminal.json(&json!({
        "event": "summary",
        "machine": machine,
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "verdict": verdict_text(found.verdict),
        "boot_seconds": found.elapsed.as_secs_f64(),
        "why": found.why,
        "picture": found.picture.as_deref().map(path_json),
        "last_lines": found.last_lines,
        "recorded": recorded,
    }))?;
    let elapsed = duration_text(found.elapsed);
    let machine = printable_text(machine);
    let line = match &found.why {
        None => format!("proved: {machine} started, and showed signs of life after {elapsed}"),
        Some(why) => format!("FAILED: {machine} was started, but {}", printable_text(why)),
    };
    context.terminal.line(line)?;
    context.terminal.line(from_line(snapshot))?;
    if found.why.is_some() && !found.last_lines.is_empty() {
        context.terminal.line("  the last that it said on its serial port:")?;
        for line in &found.last_lines {
            context.terminal.line(format!("    {line}"))?;
        }
    }
    if let Some(picture) = &found.picture {
        context.terminal.line(format!("  its screen: {}", printable(picture)))?;
    }
    Ok(())
}

/// The last start of a machine of a snapshot, for programs.
pub fn boot_json(boot: &BootDrill) -> serde_json::Value {
    json!({
        "time": dates::rfc3339(boot.time),
        "verdict": verdict_text(boot.verdict),
        "boot_seconds": Duration::from_millis(boot.milliseconds).as_secs_f64(),
        "last_proved": boot.proved.map(dates::rfc3339),
    })
}

/// The last start of a machine of a snapshot in a few words.
pub fn boot_text(boot: &BootDrill) -> String {
    let day = dates::day(boot.time);
    match boot.verdict {
        DrillVerdict::Proved => {
            let elapsed = duration_text(Duration::from_millis(boot.milliseconds));
            format!("started {day} in {elapsed}")
        }
        DrillVerdict::Incomplete => format!("start incomplete {day}"),
        DrillVerdict::Failed => format!("start failed {day}"),
    }
}
