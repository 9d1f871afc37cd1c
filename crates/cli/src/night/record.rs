//! What a machine remembers of the runs of a profile, for `status` and for the next run; and that
//! two runs of one profile are not at the same time.
//!
//! It is a file of JSON, replaced as a whole. Losing it loses no backup.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use strongroom_base::{Printable, SnapshotId, Timestamp};

use crate::dates;
use crate::exit::{CliError, Exit};
use crate::machine::state_folder;
use crate::replaced::replace_private;

/// At most this many runs are remembered.
const RUNS_MAX: usize = 60;
/// A longer file is no record.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// At most this many of them wait for a recipient.
const UNDELIVERED_MAX: usize = 5;
/// The most that is kept of what a step of these wrote.
const OUTPUT_BYTES_MAX: usize = 4 << 10;

/// What is remembered of a profile.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The newest last.
    pub runs: Vec<RunRecord>,
    /// When a step of this name last ended without a failure; a drill, when it proved what it tried.
    pub last_good: BTreeMap<String, Moment>,
    /// How a step of this name went last: a run may have some of the steps alone.
    pub last: BTreeMap<String, LastTime>,
    /// The last snapshot that a run made: rules of a run without a backup are for the same host and
    /// paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
}

/// How a step went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTime {
    /// When its run began.
    pub begun: Moment,
    /// As [`StepRecord::outcome`]; of a step that was left out, what it was before.
    pub outcome: String,
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// When it began.
    pub started: Moment,
    /// When it ended.
    pub ended: Moment,
    /// How it ended: `good`, `warning`, `failed` or `stopped`.
    pub verdict: String,
    /// With which exit code.
    pub exit: u8,
    /// Its steps, in their order; of the last run alone with what they wrote.
    pub steps: Vec<StepRecord>,
    /// What else went wrong: hooks and notices.
    pub troubles: Vec<String>,
    /// Recipients that should have heard of it and did not yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undelivered: Vec<String>,
}

/// A step of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepRecord {
    /// The command.
    pub step: String,
    /// `good`, `warning`, `failed`, `stopped` or `left out`.
    pub outcome: String,
    /// Its exit code, if it has one.
    pub exit: Option<i32>,
    /// How long it took.
    pub seconds: f64,
    /// When it ended: hooks, other steps and notices come later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// The end of what it wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// A time, written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&dates::rfc3339(self.0))
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = dates::parse_rfc3339(&text);
        time.map(Self).ok_or_else(|| serde::de::Error::custom("this is no time"))
    }
}

/// Where the record of a profile is.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
    /// The profile's name as that of a file.
    name: String,
}

impl RunRecord {
    /// A run that began and did not end: as its end it has the time of its begin.
    fn unended(started: Moment) -> Self {
        Self {
            started,
            ended: started,
            verdict: "stopped".to_owned(),
            exit: Exit::Failed as u8,
            steps: Vec::new(),
            troubles: vec![UNENDED.to_owned()],
            undelivered: Vec::new(),
        }
    }

    fn is_unended(&self) -> bool {
        self.ended == self.started && self.steps.is_empty()
    }
}

/// Why a run has no end.
const UNENDED: &str = "it did not end: it was killed, or the machine stopped";
/// The word in its lock that says it has not ended, before the time of its begin.
const UNENDED_WORD: &str = "unended";

/// While it lives, no other run of the profile begins.
pub struct RunLock {
    // The lock ends with the file, also if we die.
    file: File,
    /// The run before, if it did not end.
    before: Option<RunRecord>,
}

/// Whether a run may begin.
pub enum Locked {
    /// It is ours.
    ByUs(RunLock),
    /// Another run is on, by this process.
    ByOther(String),
}

impl RunLock {
    /// The run before, if it did not end.
    pub fn before(&self) -> Option<RunRecord> {
        self.before.clone()
    }

    /// Notes that the run has ended.
    pub fn note_ended(&self) {
        // Otherwise it counts as one that did not.
        let _ = self.file.set_len(0);
        self.note_begun(Moment(Timestamp(0)));
    }

    /// Notes when the run began in case that the record of it cannot be kept: the time of a file
    /// takes no room on a disk.
    pub fn note_begun(&self, started: Moment) {
        let since = Duration::from_nanos(u64::try_from(started.0.0).unwrap_or(0));
        // If not even that is possible, a run that is due is begun again.
        let _ = self.file.set_modified(SystemTime::UNIX_EPOCH + since);
    }
}

impl Records {
    /// Those of a profile.
    ///
    /// # Errors
    ///
    /// If there is no folder for them.
    pub fn of(profile: &str) -> Result<Self, CliError> {
        let folder = state_folder().ok_or_else(|| {
            let message = "there is no folder in which to remember runs";
            CliError::new(Exit::Failed, message, "set HOME or XDG_STATE_HOME")
        })?;
        let mut name = String::new();
        for byte in profile.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {
                    name.push(char::from(byte))
                }
                byte => name.push_str(&format!("%{byte:02x}")),
            }
        }
        Ok(Self { folder, name })
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }

    /// What is remembered; nothing if no run was recorded.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is damaged.
    pub fn read(&self) -> Result<Record, CliError> {
        let path = self.path("json");
        let failed = |reason: String| {
            let message = format!("cannot read {}: {reason}", Printable::path(&path));
            CliError::new(Exit::Failed, message, "it can be removed; the next run makes a new one")
        };
        match read_at_most(&path) {
            Ok(bytes) => Record::parse(&bytes).map_err(|error| failed(error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// The same, with the last run if that did not end and is not on.
    ///
    /// # Errors
    ///
    /// As [`Records::read`].
    pub fn read_with_unended(&self) -> Result<Record, CliError> {
        let mut record = self.read()?;
        if self.runner().is_none()
            && let Some(run) = File::open(self.path("lock")).ok().and_then(unended)
        {
            record.push(run);
        }
        Ok(record)
    }

    /// Replaces it.
    pub fn write(&self, record: &Record) -> Result<(), CliError> {
        let path = self.path("json");
        let text = serde_json::json!(record).to_string();
        replace_private(&path, text.as_bytes()).map_err(|error| {
            let message = format!("cannot write {}: {error}", Printable::path(&path));
            CliError::new(Exit::Failed, message, "check the folder, and the room on its disk")
        })
    }

    /// Begins a run, if there is no other.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written to.
    pub fn lock(&self) -> Result<Locked, CliError> {
        let path = self.path("lock");
        let failed = |error: std::io::Error| {
            let message = format!("cannot lock {}: {error}", Printable::path(&path));
            CliError::new(Exit::Failed, message, "check the folder, and the room on its disk")
        };
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        let mut file = open_lock(&path).map_err(failed)?;
        let how = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        if let Err(error) = rustix::fs::flock(&file, how) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            return Ok(Locked::ByOther(holder(file)));
        }
        let before = file.try_clone().ok().and_then(unended);
        let now = strongroom_base::Clock::now(&strongroom_base::SystemClock);
        let who = format!(
            "process {} since {}\n{UNENDED_WORD} {}\n",
            std::process::id(),
            dates::text(now),
            dates::rfc3339(now)
        );
        // What is in it is for people alone.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(who.as_bytes()));
        let lock = RunLock { file, before };
        lock.note_begun(Moment(Timestamp(0)));
        Ok(Locked::ByUs(lock))
    }

    /// When a run began whose record could not be kept.
    pub fn noted(&self) -> Option<Moment> {
        let modified = std::fs::metadata(self.path("lock")).ok()?.modified().ok()?;
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let nanos = i64::try_from(since.as_nanos()).ok()?;
        (nanos > 0).then_some(Moment(Timestamp(nanos)))
    }

    /// Who runs the profile now.
    pub fn runner(&self) -> Option<String> {
        self.held_lock().map(holder)
    }

    /// When the run that is on began.
    pub fn runs_since(&self) -> Option<Moment> {
        self.held_lock().and_then(unended).map(|run| run.started)
    }

    /// The lock's file, if a run is on.
    fn held_lock(&self) -> Option<File> {
        let file = File::open(self.path("lock")).ok()?;
        let how = rustix::fs::FlockOperation::NonBlockingLockShared;
        rustix::fs::flock(&file, how).is_err().then_some(file)
    }
}

/// The run that a lock's file says has not ended.
fn unended(mut file: File) -> Option<RunRecord> {
    file.rewind().ok()?;
    let mut bytes = Vec::new();
    file.take(200).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let time = text.lines().find_map(|line| line.strip_prefix(UNENDED_WORD))?.trim();
    dates::parse_rfc3339(time).map(|time| RunRecord::unended(Moment(time)))
}

/// Who holds a lock, as its file says.
fn holder(file: File) -> String {
    let mut bytes = Vec::new();
    let _ = file.take(100).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let first = text.lines().next().unwrap_or_default().trim();
    let who = if first.is_empty() { "another process" } else { first };
    Printable::text(who).to_string()
}

fn read_at_most(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Record {
    fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether all of these steps were begun since a run was due, now or before. What began in the
    /// future did so by a clock that was wrong, and keeps no run from being made.
    pub fn has_begun(
        &self,
        steps: &[&str],
        due: Timestamp,
        noted: Option<Moment>,
        now: Timestamp,
    ) -> bool {
        let is_since = |begun: Moment| begun.0 >= due && !dates::is_in_future(begun.0, now);
        // What was killed is begun again.
        let ended: Vec<&RunRecord> = self.runs.iter().filter(|run| !run.is_unended()).collect();
        let has_begun = |step: &&str| {
            let runs = ended.iter().filter(|run| run.steps.iter().any(|one| one.step == *step));
            let last = self.last.get(*step).map(|last| last.begun);
            runs.map(|run| run.started).chain(last).any(is_since)
        };
        noted.is_some_and(is_since) || steps.iter().all(has_begun)
    }

    /// The steps of these that did not go well when they were last tried, and how that was.
    pub fn bad_steps<'s>(&self, steps: &[&'s str]) -> Vec<(&'s str, &LastTime)> {
        let bad = |step: &&'s str| {
            let last = self.last.get(*step)?;
            (!matches!(last.outcome.as_str(), "good" | "left out")).then_some((*step, last))
        };
        steps.iter().filter_map(bad).collect()
    }

    /// When the last run was begun that did not end, if no backup was begun after it.
    pub fn unended_backup(&self) -> Option<Moment> {
        let unended = self.runs.iter().rev().find(|run| run.is_unended())?.started;
        let backup = self.last.get("backup").map(|last| last.begun);
        (backup.is_some_and(|begun| begun < unended)).then_some(unended)
    }

    /// What is wrong if the last run is dated in the future.
    pub fn dated_ahead(&self, now: Timestamp) -> Option<String> {
        let last = self.runs.last().filter(|run| dates::is_in_future(run.started.0, now))?;
        Some(format!(
            "the last run is dated {}, in the future: the clock of this machine was wrong then, or \
             is wrong now",
            dates::text(last.started.0)
        ))
    }

    /// The last snapshot that a run made.
    pub fn snapshot(&self) -> Option<SnapshotId> {
        self.snapshot.as_ref()?.parse().ok()
    }

    /// Notes which snapshot that is.
    pub fn note_snapshot(&mut self, id: Option<SnapshotId>) {
        self.snapshot = id.map(|id| id.to_string());
    }

    /// Adds a run.
    pub fn push(&mut self, run: RunRecord) {
        for step in &run.steps {
            let is_good = match step.outcome.as_str() {
                "good" => true,
                // It proved nothing.
                "warning" => step.step != "drill",
                _ => false,
            };
            if is_good {
                self.last_good.insert(step.step.clone(), step.ended.unwrap_or(run.ended));
            }
            let before = self.last.get(&step.step).filter(|_| step.outcome == "left out");
            let outcome = before.map_or(&step.outcome, |before| &before.outcome).clone();
            self.last.insert(step.step.clone(), LastTime { begun: run.started, outcome });
        }
        let mut waiting = usize::from(!run.undelivered.is_empty());
        for old in self.runs.iter_mut().rev() {
            waiting += usize::from(!old.undelivered.is_empty());
            if waiting > UNDELIVERED_MAX {
                old.undelivered.clear();
            }
            old.forget_output();
        }
        self.runs.push(run);
        let surplus = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..surplus);
    }

    /// Puts this in place of the last run.
    pub fn replace_last(&mut self, run: RunRecord) {
        self.runs.pop();
        self.push(run);
    }

    /// The runs before the last one that a recipient should have heard of, the newest first.
    pub fn undelivered_before(&self, recipient: &str) -> Vec<&RunRecord> {
        let before = self.runs.iter().rev().skip(1);
        before.filter(|run| run.undelivered.iter().any(|one| one == recipient)).collect()
    }

    /// A recipient has heard of all runs.
    pub fn is_delivered(&mut self, recipient: &str) {
        for run in &mut self.runs {
            run.undelivered.retain(|one| one != recipient);
        }
    }
}

impl RunRecord {
    /// What steps wrote is kept only as long as a recipient waits for it.
    fn forget_output(&mut self) {
        let bytes_max = if self.undelivered.is_empty() { 0 } else { OUTPUT_BYTES_MAX };
        for step in &mut self.steps {
            let surplus = step.output.len().saturating_sub(bytes_max);
            step.output.drain(..step.output.ceil_char_boundary(surplus));
        }
    }
}

#[cfg(test)]
mod tests;
