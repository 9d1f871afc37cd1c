//! A profile's night: its steps one after another, hooks around them, one report, and word to those
//! who should hear of it.
//!
//! Each step is this program once more, so a step that dies takes nothing with it. Nothing but a
//! request to stop keeps a backup from being made: hooks that fail, notices that do not arrive and
//! records that cannot be kept are reported, and the run goes on. Why: `docs/design/0025-profiles.md`.

mod conditions;
mod ending;
mod own_series;
mod record;
mod report;
mod typed;
mod word;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde_json::json;
use strongroom_base::{Cancel, Clock, Severity, SnapshotId, SystemClock};
use strongroom_notice::{Recipient, Verdict};

use crate::child::{self, Ended, Ending, Patience, Stream};
use crate::context::Context;
use crate::exit::{CliError, Exit};
pub use conditions::{is_metered, is_on_battery};
pub use own_series::report_snapshot;
use record::{Locked, RunLock};
pub use record::{Moment, Record, Records, RunRecord, StepRecord};
pub use report::{
    State, earlier_troubles, lines as lines_of, metrics, state_of, test_notice, verdict_text,
};
pub use typed::Typed;
pub use word::{Told, Word};

/// The steps that a night can have, in their order.
pub const STEPS: [&str; 8] =
    ["backup", "forget", "prune", "replicate", "audit", "lock", "verify", "drill"];
/// Steps that are left out after a backup, or a hook before it, that failed, and after a backup that
/// is doubtful: what is old may be needed yet.
pub const ONLY_AFTER_A_BACKUP: [&str; 2] = ["forget", "prune"];
/// The variable that a step finds in its environment.
const STEP_VARIABLE: &str = "STRONGROOM_STEP";
/// What a backup that is a step ends with if it is doubtful. To all others that is [`Exit::Incomplete`].
const DOUBTFUL: u8 = 83;
/// How long a step that is asked to stop may take for it: a backup stores what it has.
const GRACE_OF_STEPS: Duration = Duration::from_secs(120);
/// The same for hooks.
const GRACE_OF_HOOKS: Duration = Duration::from_secs(10);
/// How long a hook may take behind a run that was asked to stop.
const PATIENCE_WHEN_STOPPED: Duration = Duration::from_secs(30);

/// Commands of the user's around a run.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Before the first step.
    pub before: Vec<String>,
    /// After the last, however it ended.
    pub after: Vec<String>,
    /// After a run with a warning.
    pub on_warning: Vec<String>,
    /// After a run that failed.
    pub on_failure: Vec<String>,
    /// How long each may take.
    pub patience: Duration,
}

/// What a backup ends with if a source is missing, or has far less than before.
pub fn exit_of_doubtful() -> ExitCode {
    match std::env::var_os(STEP_VARIABLE) {
        Some(step) if step == "backup" => DOUBTFUL.into(),
        _ => Exit::Incomplete.into(),
    }
}

/// A profile's night.
pub struct Night<'a> {
    /// Where output goes, and what asks to stop.
    pub context: &'a Context,
    /// The profile.
    pub profile: String,
    /// The file that it is in.
    pub config: PathBuf,
    /// What was typed for every command.
    pub typed: Vec<OsString>,
    /// Variables that the profile sets: each step finds them there itself. To a step that inherits them they would
    /// come before the options of the profile.
    pub variables: Vec<String>,
    /// The steps, in their order.
    pub steps: Vec<&'static str>,
    /// Whether it is begun because its time has come, and no person waits for what it says.
    pub is_due: bool,
    /// Steps for which the profile names another repository than a variable.
    pub steps_elsewhere: Vec<&'static str>,
    /// Whether the rules of its `forget` are for the snapshots alone that its backup makes.
    pub rules_are_for_own: bool,
    /// Commands around them.
    pub hooks: Hooks,
    /// Who hears of it.
    pub word: Word,
    /// What is wrong before it begins.
    pub warnings: Vec<String>,
    /// Steps for which a person types the passphrase.
    pub typed_passphrase: Typed,
    /// A file for Prometheus.
    pub metrics: Option<PathBuf>,
}

/// What happened so far.
struct Progress {
    started: Moment,
    steps: Vec<StepRecord>,
    /// The last snapshot that this run made, or one before it.
    snapshot: Option<SnapshotId>,
    /// Hooks that failed.
    failures: Vec<String>,
    /// What was not said or not kept.
    warnings: Vec<String>,
    /// What a person typed for the steps.
    passphrase: typed::Answer,
}

impl Progress {
    fn verdict(&self) -> Verdict {
        let is = |outcome: &str| self.steps.iter().any(|step| step.outcome == outcome);
        if is("failed") || is("stopped") || !self.failures.is_empty() {
            Verdict::Failed
        } else if is("warning") || is("doubtful") || !self.warnings.is_empty() {
            Verdict::Warning
        } else {
            Verdict::Good
        }
    }

    /// Whether something is missing of what was to be kept. A watcher that knows no warnings hears of a
    /// failure.
    fn is_doubtful(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == "doubtful")
    }

    /// The code of the first step that failed, or else what says the same of the whole.
    fn exit(&self) -> u8 {
        let is_bad = |step: &&StepRecord| matches!(step.outcome.as_str(), "failed" | "stopped");
        let code = |step: &StepRecord| match step.outcome.as_str() {
            "stopped" => Exit::Interrupted as u8,
            _ => step.exit.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Failed as u8),
        };
        match (self.steps.iter().find(is_bad), self.verdict()) {
            (Some(step), _) => code(step),
            (None, Verdict::Failed) => Exit::Failed as u8,
            (None, Verdict::Warning) => Exit::Incomplete as u8,
            (None, Verdict::Good) => Exit::Done as u8,
        }
    }

    fn record(&self) -> RunRecord {
        let is_stopped = self.steps.iter().any(|step| step.outcome == "stopped");
        RunRecord {
            started: self.started,
            ended: Moment(SystemClock.now()),
            verdict: if is_stopped { "stopped" } else { self.verdict().name() }.to_owned(),
            exit: self.exit(),
            steps: self.steps.clone(),
            troubles: [&self.failures[..], &self.warnings[..]].concat(),
            undelivered: Vec::new(),
        }
    }
}

impl Night<'_> {
    /// Runs it, and gives the exit code.
    ///
    /// # Errors
    ///
    /// If it is being run already, or the machine cannot say so.
    pub fn run(&self) -> Result<u8, CliError> {
        let started = Moment(SystemClock.now());
        let mut progress = Progress {
            started,
            steps: Vec::new(),
            snapshot: None,
            failures: Vec::new(),
            warnings: Vec::new(),
            passphrase: typed::Answer::None,
        };
        let records = Records::of(&self.profile);
        let lock = self.lock(&records, &mut progress)?;
        let _awake = conditions::Awake::begin(&format!("profile {} is being run", self.profile));
        let mut record = match &records {
            Ok(records) => records.read().unwrap_or_else(|error| {
                self.warn(&mut progress.warnings, error.to_string());
                Record::default()
            }),
            Err(_) => Record::default(),
        };
        if let Some(before) = lock.as_ref().and_then(RunLock::before) {
            self.tell_of_unended(before, &mut record, &mut progress);
        }
        progress.snapshot = record.snapshot();
        if let Some(wrong) = record.dated_ahead(started.0) {
            self.warn(&mut progress.warnings, wrong);
        }
        progress.passphrase = self.ask(&mut progress);
        let announced = self.word.announce(self.context);
        for trouble in self.warnings.iter().cloned().chain(announced) {
            self.warn(&mut progress.warnings, trouble);
        }
        self.run_hooks("before", &self.hooks.before, &mut progress, "", "");
        for step in &self.steps {
            self.run_step(step, &mut progress);
        }
        self.run_hooks_behind(&mut progress);
        let is_kept = self.end(records.as_ref().ok(), &mut record, &mut progress);
        if let Some(lock) = &lock {
            lock.note_ended();
            if !is_kept {
                lock.note_begun(started);
            }
        }
        self.summary(&progress);
        Ok(progress.exit())
    }

    /// Sees that no other run of the profile is on. If the machine cannot say so, the run is made
    /// all the same: two at once do no harm to a repository.
    ///
    /// # Errors
    ///
    /// If another is on.
    fn lock(
        &self,
        records: &Result<Records, CliError>,
        progress: &mut Progress,
    ) -> Result<Option<RunLock>, CliError> {
        let failed = match records.as_ref().map(Records::lock) {
            Ok(Ok(Locked::ByUs(lock))) => return Ok(Some(lock)),
            Ok(Ok(Locked::ByOther(who))) => {
                if self.is_due {
                    let said = report::still_on(&self.profile, &who);
                    let hears = |one: &Recipient| self.word.is_heard_by(one, Verdict::Failed);
                    let told = self.word.tell(self.context, |one| hears(one).then(|| said.clone()));
                    for trouble in word::troubles(&told) {
                        self.context.terminal.problem(Severity::Warning, &trouble);
                    }
                }
                let message = format!("this profile is being run already, by {who}");
                return Err(CliError::new(Exit::Failed, message, "wait until that run has ended"));
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.warn(&mut progress.warnings, failed);
        Ok(None)
    }

    /// Says what is wrong; further lines of it were shown already, and are for the report.
    fn warn(&self, to: &mut Vec<String>, text: String) {
        let first = text.lines().next().unwrap_or_default();
        self.context.terminal.problem(Severity::Warning, first);
        to.push(text);
    }

    fn run_step(&self, step: &'static str, progress: &mut Progress) {
        let outcome_of_backup =
            progress.steps.iter().find(|step| step.step == "backup").map(|step| &*step.outcome);
        let was_stopped = self.context.cancel.is_cancelled();
        let left_out = if was_stopped {
            Some("the run was stopped")
        } else if ONLY_AFTER_A_BACKUP.contains(&step) && outcome_of_backup == Some("failed") {
            Some("the backup failed")
        } else if ONLY_AFTER_A_BACKUP.contains(&step) && outcome_of_backup == Some("stopped") {
            Some("the backup was stopped")
        } else if ONLY_AFTER_A_BACKUP.contains(&step) && outcome_of_backup == Some("doubtful") {
            Some("the backup is doubtful: what is old may be needed yet")
        } else if ONLY_AFTER_A_BACKUP.contains(&step) && !progress.failures.is_empty() {
            // What it was to prepare may be missing from the backup.
            Some("a hook before it failed")
        } else {
            None
        };
        if let Some(why) = left_out {
            progress.steps.push(StepRecord {
                step: step.to_owned(),
                // A run that is stopped before its first step was stopped all the same.
                outcome: if was_stopped { "stopped" } else { "left out" }.to_owned(),
                exit: None,
                seconds: 0.0,
                ended: None,
                output: format!("left out: {why}\n"),
            });
            return;
        }
        let failed = self.is_elsewhere(step).or_else(|| self.has_no_passphrase(step, progress));
        if let Some(failed) = failed.or_else(|| self.has_no_series(step, progress)) {
            progress.steps.push(failed);
            self.step_ended(progress);
            return;
        }
        self.shown(self.context.terminal.line(format!("== {step}")), progress);
        let mut made = None;
        let ended = self.do_step(step, progress, &mut made);
        progress.snapshot = made.or(progress.snapshot);
        progress.steps.push(match ended {
            Ok(ended) => step_record(step, ended),
            Err(error) => StepRecord {
                step: step.to_owned(),
                outcome: "failed".to_owned(),
                exit: None,
                seconds: 0.0,
                ended: None,
                output: format!("cannot be started: {error}\n"),
            },
        });
        self.step_ended(progress);
    }

    /// Starts a step and waits for its end, and for the snapshot that it made.
    fn do_step(
        &self,
        step: &'static str,
        progress: &mut Progress,
        made: &mut Option<SnapshotId>,
    ) -> std::io::Result<Ended> {
        // As this program is: the file of its name may be another one meanwhile, or gone.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("strongroom");
        command.arg("--profile").arg(&self.profile).arg("--config").arg(&self.config);
        // A step finds them itself; what it needs to read the profile, such as HOME, it inherits.
        for name in self.variables.iter().filter(|name| name.starts_with("STRONGROOM_")) {
            command.env_remove(name);
        }
        command.args(&self.typed).env(STEP_VARIABLE, step);
        self.hand_over(step, progress, &mut command)?;
        let reader = self.listen(step, &mut command);
        command.arg(step);
        self.narrow(step, progress, &mut command);
        if step == "prune" {
            // What a night condemns can be brought back until the next.
            command.arg("--later");
        }
        let patience = Patience { whole: None, grace: GRACE_OF_STEPS };
        let ended = self.attend(step, command, "", patience, &self.context.cancel);
        *made = reader.and_then(own_series::reported);
        ended
    }

    /// Why a step that would be done in another repository is not even tried.
    fn is_elsewhere(&self, step: &str) -> Option<StepRecord> {
        self.steps_elsewhere.contains(&step).then(|| StepRecord {
            step: step.to_owned(),
            outcome: "failed".to_owned(),
            exit: Some(i32::from(Exit::Usage as u8)),
            seconds: 0.0,
            ended: None,
            output: "not tried: STRONGROOM_REPOSITORY names another repository than the profile\n"
                .to_owned(),
        })
    }

    fn step_ended(&self, progress: &mut Progress) {
        let record = progress.steps.last().expect("it was pushed");
        let written = self.context.terminal.json(&json!({
            "event": "step",
            "step": record.step,
            "outcome": record.outcome,
            "exit": record.exit,
            "seconds": record.seconds,
        }));
        self.shown(written, progress);
    }

    /// Notes, once, that what the run writes is lost: that keeps no step from being done.
    fn shown(&self, written: std::io::Result<()>, progress: &mut Progress) {
        const LOST: &str = "the output cannot be written";
        if let Err(error) = written
            && !progress.warnings.iter().any(|warning| warning.starts_with(LOST))
        {
            self.warn(&mut progress.warnings, format!("{LOST}: {error}"));
        }
    }

    /// Runs a program, and shows what it writes.
    fn attend(
        &self,
        name: &str,
        command: Command,
        input: &str,
        patience: Patience,
        cancel: &Cancel,
    ) -> std::io::Result<Ended> {
        let terminal = &self.context.terminal;
        let mut each = |stream: Stream, line: &str| {
            if terminal.is_json() {
                let stream = if stream == Stream::Out { "out" } else { "err" };
                // If nothing takes the output, the run goes on all the same.
                let _ = terminal.json(&json!({
                    "event": "output", "step": name, "stream": stream, "line": line,
                }));
            } else if stream == Stream::Err {
                crate::terminal::write_wrapped("", line);
            } else {
                let _ = terminal.line(line);
            }
        };
        child::run(command, input.as_bytes(), patience, cancel, &mut each)
    }

    fn run_hooks_behind(&self, progress: &mut Progress) {
        let said = report::notice(&self.profile, &progress.record(), progress.verdict());
        let (verdict, text) = (said.verdict.name(), format!("{}\n\n{}", said.subject, said.text));
        match said.verdict {
            Verdict::Good => {}
            Verdict::Warning => {
                self.run_hooks("on-warning", &self.hooks.on_warning, progress, verdict, &text);
            }
            Verdict::Failed => {
                self.run_hooks("on-failure", &self.hooks.on_failure, progress, verdict, &text);
            }
        }
        self.run_hooks("after", &self.hooks.after, progress, verdict, &text);
    }

    /// Runs hooks; the report is their standard input.
    fn run_hooks(
        &self,
        when: &str,
        hooks: &[String],
        progress: &mut Progress,
        verdict: &str,
        report: &str,
    ) {
        for hook in hooks {
            let mut command = child::shell(hook);
            command.env("STRONGROOM_PROFILE", &self.profile).env("STRONGROOM_VERDICT", verdict);
            // Those behind a run put in order what those before it began: they run also after a
            // request to stop, but not for long.
            let is_before = report.is_empty();
            let (cancel, whole) = match self.context.cancel.is_cancelled() && !is_before {
                true => (Cancel::new(), self.hooks.patience.min(PATIENCE_WHEN_STOPPED)),
                false => (self.context.cancel.clone(), self.hooks.patience),
            };
            let patience = Patience { whole: Some(whole), grace: GRACE_OF_HOOKS };
            let what = match self.attend(when, command, report, patience, &cancel) {
                Ok(Ended { ending: Ending::Code(0) | Ending::Stopped, .. }) => continue,
                Ok(ended) => report::with_output(&ended.ending.to_string(), &ended.output),
                Err(error) => error.to_string(),
            };
            let hook = strongroom_base::Printable::text(hook);
            self.warn(&mut progress.failures, format!("the hook {when} `{hook}` {what}"));
        }
    }

    fn summary(&self, progress: &Progress) {
        let record = progress.record();
        let mut event = json!(record);
        event["event"] = json!("summary");
        event["profile"] = json!(self.profile);
        // If nothing takes the output, that was said at the first step.
        let _ = self.context.terminal.json(&event);
        // That was said at the beginning.
        let mut record = record;
        if let typed::Answer::Missing(why) = &progress.passphrase {
            record.troubles.retain(|trouble| trouble != why);
        }
        for line in std::iter::once("==".to_owned()).chain(report::lines(&self.profile, &record)) {
            let _ = self.context.terminal.line(line);
        }
    }
}

fn step_record(step: &str, ended: Ended) -> StepRecord {
    let (outcome, exit) = match ended.ending {
        Ending::Code(0) => ("good", Some(0)),
        Ending::Code(3) => ("warning", Some(3)),
        Ending::Code(code) if code == i32::from(DOUBTFUL) => ("doubtful", Some(3)),
        Ending::Stopped | Ending::Code(130) => ("stopped", Some(130)),
        Ending::Code(code) => ("failed", Some(code)),
        Ending::Signal(_) | Ending::TookTooLong => ("failed", None),
    };
    let mut output = ended.output;
    if let Ending::Signal(_) = ended.ending {
        output.push_str(&format!("it {}\n", ended.ending));
    }
    let (step, outcome, seconds) = (step.to_owned(), outcome.to_owned(), ended.took.as_secs_f64());
    let ended = Some(Moment(SystemClock.now()));
    StepRecord { step, outcome, exit, seconds, ended, output }
}
