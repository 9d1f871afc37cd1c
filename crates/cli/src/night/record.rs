//! What a machine remembers of the runs of a profile, for `status` and for the next run; and that
//! two runs of one profile are not at the same time.
//!
//! It is a file of JSON, replaced as a whole. Losing it loses no backup.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strongroom_base::{Printable, Timestamp};

use crate::dates;
use crate::exit::{CliError, Exit};

/// At most this many runs are remembered.
const RUNS_MAX: usize = 60;
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
    /// When a step of this name last ended without a failure.
    pub last_good: BTreeMap<String, Moment>,
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

/// While it lives, no other run of the profile begins.
pub struct RunLock {
    // The lock ends with the file, also if we die.
    _file: File,
}

impl Records {
    /// Those of a profile.
    ///
    /// # Errors
    ///
    /// If there is no folder for them.
    pub fn of(profile: &str) -> Result<Self, CliError> {
        let folder = folder().ok_or_else(|| {
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
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Replaces it.
    pub fn write(&self, record: &Record) -> Result<(), CliError> {
        let path = self.path("json");
        replace(&path, serde_json::json!(record).to_string().as_bytes()).map_err(|error| {
            let message = format!("cannot write {}: {error}", Printable::path(&path));
            CliError::new(Exit::Failed, message, "check the folder, and the room on its disk")
        })
    }

    /// Begins a run, if there is no other.
    ///
    /// # Errors
    ///
    /// If there is one, or the folder cannot be written to.
    pub fn lock(&self) -> Result<RunLock, CliError> {
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
            let mut who = String::new();
            let _ = file.take(100).read_to_string(&mut who);
            let message = format!("this profile is being run already, by {}", who.trim_end());
            return Err(CliError::new(Exit::Failed, message, "wait until that run has ended"));
        }
        let who = format!(
            "process {} since {}\n",
            std::process::id(),
            dates::text(strongroom_base::Clock::now(&strongroom_base::SystemClock))
        );
        // What is in it is for people alone.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(who.as_bytes()));
        Ok(RunLock { _file: file })
    }

    /// Who runs the profile now.
    pub fn runner(&self) -> Option<String> {
        let mut file = File::open(self.path("lock")).ok()?;
        let how = rustix::fs::FlockOperation::NonBlockingLockShared;
        if rustix::fs::flock(&file, how).is_ok() {
            return None;
        }
        let mut who = String::new();
        file.read_to_string(&mut who).ok()?;
        Some(who.trim_end().to_owned())
    }
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Writes beside it, and renames.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let written = (|| {
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn folder() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    // A service of the machine has no home.
    let of_root = || rustix::process::geteuid().is_root().then(|| PathBuf::from("/var/lib"));
    Some(state.or_else(of_root)?.join("strongroom"))
}

impl Record {
    /// Adds a run.
    pub fn push(&mut self, run: RunRecord) {
        for step in &run.steps {
            if matches!(step.outcome.as_str(), "good" | "warning") {
                self.last_good.insert(step.step.clone(), run.ended);
            }
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
mod tests {
    use super::*;

    fn run(at: i64, undelivered: &[&str]) -> RunRecord {
        let step = StepRecord {
            step: "backup".to_owned(),
            outcome: "good".to_owned(),
            exit: Some(0),
            seconds: 1.0,
            output: "ä".repeat(OUTPUT_BYTES_MAX),
        };
        RunRecord {
            started: Moment(Timestamp(at)),
            ended: Moment(Timestamp(at + 1)),
            verdict: "good".to_owned(),
            exit: 0,
            steps: vec![step],
            troubles: Vec::new(),
            undelivered: undelivered.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn what_was_not_delivered_is_kept_within_bounds() {
        let mut record = Record::default();
        for at in 0..200 {
            record.push(run(at, if at % 2 == 0 { &["anna", "bert"] } else { &[] }));
            record.replace_last(run(at, if at % 2 == 0 { &["anna", "bert"] } else { &[] }));
        }
        assert_eq!(record.runs.len(), RUNS_MAX);
        let times = |record: &Record, recipient: &str| {
            let runs = record.undelivered_before(recipient);
            runs.iter().map(|run| run.started.0.0).collect::<Vec<_>>()
        };
        assert_eq!(times(&record, "anna"), [198, 196, 194, 192, 190]);
        let kept = record.runs.iter().map(|run| run.steps[0].output.len()).sum::<usize>();
        assert_eq!(kept, 5 * OUTPUT_BYTES_MAX + 2 * OUTPUT_BYTES_MAX, "the last is whole");
        record.is_delivered("anna");
        assert!(times(&record, "anna").is_empty());
        assert_eq!(times(&record, "bert").len(), 5);
        record.is_delivered("bert");
        record.push(run(200, &[]));
        let kept = record.runs.iter().map(|run| run.steps[0].output.len()).sum::<usize>();
        assert_eq!(kept, 2 * OUTPUT_BYTES_MAX, "only of the last");
    }
}
