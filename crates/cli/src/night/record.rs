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
        for old in &mut self.runs {
            old.steps.iter_mut().for_each(|step| step.output.clear());
        }
        self.runs.push(run);
        let surplus = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..surplus);
    }
}
