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
use strongroom_machine::boot::{Running, SharedNetwork, Sign};
use strongroom_repository::{BootDrill, DrillVerdict, Repository, change_remark};

use super::verdict_text;
use crate::boot::{MachineArgs, Prepared, Purpose, prepare};
use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete, from_line};
use crate::spans;
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
    /// Start the machine of the snapshot instead of restoring a sample: on a network that leads
    /// nowhere, and writing nothing to the repository
    #[arg(long)]
    pub boot: bool,
    /// Start the machines that this file lists, in its order, on a network of their own
    #[arg(long, value_name = "FILE", requires = "boot",
        conflicts_with_all = ["what", "expect", "expect_agent", "expect_port", "picture",
            "memory", "cpus", "no_network"])]
    pub set: Option<PathBuf>,
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
    /// Wait this long at most [default: 5min]
    #[arg(long, value_name = "SPAN", requires = "boot", value_parser = span)]
    within: Option<Duration>,
    /// Write a picture of its screen, as PNG, to this file [default: one in the cache]
    #[arg(long, value_name = "FILE", requires = "boot")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
}

fn span(text: &str) -> Result<Duration, String> {
    match u64::try_from(spans::parse(text)?) {
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

    /// How a machine is started.
    pub fn machine(&self) -> &MachineArgs {
        &self.machine
    }

    /// What a start is for.
    pub fn purpose(&self, shared: Option<SharedNetwork>) -> Purpose<'_> {
        let has_agent = self.signs().has_agent();
        let (display, ports) = ("none", &self.expect_port[..]);
        Purpose { display, keep: None, ports, resumes: false, has_agent, shared }
    }

    /// Takes from what was typed for all machines of a set what is not said of this one.
    pub fn complete(&mut self, all: &Self) {
        self.within = self.within.or(all.within);
        self.machine.complete(&all.machine);
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
pub struct Found {
    /// The machine.
    pub machine: String,
    /// Whether it lives.
    pub verdict: DrillVerdict,
    elapsed: Duration,
    /// Why it is not proved.
    why: Option<String>,
    picture: Option<PathBuf>,
    /// The last lines of the serial port.
    last_lines: Vec<String>,
}

impl Found {
    /// Nothing is known, since it was not started.
    pub fn untried(machine: String, why: String) -> Self {
        Self {
            machine,
            verdict: DrillVerdict::Incomplete,
            elapsed: Duration::ZERO,
            why: Some(why),
            picture: None,
            last_lines: Vec::new(),
        }
    }

    /// It could not be started.
    pub fn failed(machine: String, why: String) -> Self {
        Self { verdict: DrillVerdict::Failed, ..Self::untried(machine, why) }
    }

    /// It lived, and does no longer.
    pub fn fail(&mut self, why: &str) {
        self.verdict = DrillVerdict::Failed;
        self.why = Some(why.to_owned());
    }

    /// What the program ends with, if nothing else is wrong.
    pub fn exit(&self) -> Exit {
        match self.verdict {
            DrillVerdict::Proved => Exit::Done,
            DrillVerdict::Incomplete => Exit::Incomplete,
            DrillVerdict::Failed => Exit::Failed,
        }
    }
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
    let snapshot = what.find(context, &repository, narrowing)?;
    let exit = check_complete(context, &snapshot);
    let place = (&snapshot, &what.path[..]);
    let purpose = args.purpose(None);
    let mut prepared = prepare(context, repository.clone(), place, &args.machine, &purpose)?;
    let picture = picture_path(&repository, &snapshot, "");
    let started = start(context, &mut prepared, args, picture);
    let found = started.map(|(running, found)| {
        end(context, running);
        found
    });
    // What it wrote is thrown away.
    let _ = prepared.close();
    let found = found?;
    let recorded = record && keep(context, &repository, &snapshot, &found);
    context.terminal.json(&boot_event("summary", &snapshot, &found, recorded))?;
    report(context, &snapshot, &found)?;
    Ok(match found.exit() {
        Exit::Done => exit,
        other => other,
    }
    .into())
}

/// Where the picture of a machine of a snapshot is, if nothing else is said.
pub fn picture_path(repository: &Repository, snapshot: &Snapshot, suffix: &str) -> Option<PathBuf> {
    Some(repository.cache_folder()?.join(PICTURES).join(format!("{}{suffix}.png", snapshot.id)))
}

/// Starts a machine, and waits until it shows signs of life, or has had its time. It goes on.
pub fn start(
    context: &Context,
    prepared: &mut Prepared,
    args: &BootArgs,
    picture: Option<PathBuf>,
) -> Result<(Running, Found), CliError> {
    let within = args.within.unwrap_or(PATIENCE_USUAL);
    let mut signs = args.signs();
    let terminal = context.terminal;
    let on_line = move |line: &str| {
        if terminal.is_verbose() {
            let _ = terminal.line(format!("  | {line}"));
        }
    };
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
    let picture = args.picture.clone().or(picture);
    let picture = picture.filter(|path| pictured(context, &running, path));
    let said = running.console.text();
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].iter();
    let last_lines = last.map(|line| printable_text(line.trim_end())).collect();
    let verdict = if why.is_none() { DrillVerdict::Proved } else { DrillVerdict::Failed };
    let machine = prepared.machine.clone();
    Ok((running, Found { machine, verdict, elapsed, why, picture, last_lines }))
}

/// Ends a machine, and says what QEMU complained about.
pub fn end(context: &Context, running: Running) {
    let complaint = running.end();
    if !complaint.is_empty() {
        context.terminal.note(format!("QEMU said: {}", printable_text(&complaint)));
    }
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

/// Keeps the result in the repository. Returns whether it could.
pub fn keep(
    context: &Context,
    repository: &Repository,
    snapshot: &Snapshot,
    found: &Found,
) -> bool {
    let time = repository.surroundings.clock.now();
    let milliseconds = u64::try_from(found.elapsed.as_millis()).unwrap_or(u64::MAX);
    let kept = change_remark(repository, snapshot.id, |remark| {
        let before = remark.boot.as_ref();
        // Of two drills, the one that ended last counts.
        if before.is_none_or(|before| before.time <= time) {
            remark.boot = Some(BootDrill::new(time, found.verdict, milliseconds, before));
        }
    });
    if let Err(error) = &kept {
        context.terminal.note(format!(
            "the result is not kept in the repository: {error}; --no-record does not try to"
        ));
    }
    kept.is_ok()
}

/// What came of a start, for programs.
pub fn boot_event(
    event: &str,
    snapshot: &Snapshot,
    found: &Found,
    recorded: bool,
) -> serde_json::Value {
    json!({
        "event": event,
        "machine": found.machine,
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "verdict": verdict_text(found.verdict),
        "boot_seconds": found.elapsed.as_secs_f64(),
        "why": found.why,
        "picture": found.picture.as_deref().map(path_json),
        "last_lines": found.last_lines,
        "recorded": recorded,
    })
}

/// What came of a start, for people.
pub fn report(context: &Context, snapshot: &Snapshot, found: &Found) -> Result<(), CliError> {
    let elapsed = duration_text(found.elapsed);
    let machine = printable_text(&found.machine);
    let why = printable_text(found.why.as_deref().unwrap_or_default());
    let line = match found.verdict {
        DrillVerdict::Proved => {
            format!("proved: {machine} started, and showed signs of life after {elapsed}")
        }
        DrillVerdict::Incomplete => format!("not tried: {machine} was not started, since {why}"),
        DrillVerdict::Failed => format!("FAILED: {machine} was started, but {why}"),
    };
    context.terminal.line(line)?;
    context.terminal.line(from_line(snapshot))?;
    if found.verdict == DrillVerdict::Failed && !found.last_lines.is_empty() {
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
