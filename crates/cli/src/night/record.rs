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
use strongroom_base::{Printable, Timestamp};

use crate::dates;
use crate::exit::{CliError, Exit};
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
    file: File,
}

/// Whether a run may begin.
pub enum Locked {
    /// It is ours.
    ByUs(RunLock),
    /// Another run is on, by this process.
    ByOther(String),
}

impl RunLock {
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
        match read_at_most(&path) {
            Ok(bytes) => Record::parse(&bytes).map_err(|error| failed(error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(failed(error.to_string())),
        }
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
        let lock = RunLock { file };
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
        let file = File::open(self.path("lock")).ok()?;
        let how = rustix::fs::FlockOperation::NonBlockingLockShared;
        if rustix::fs::flock(&file, how).is_ok() {
            return None;
        }
        Some(holder(file))
    }
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
    fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether a run that was due at a time was begun, now or before. What began in the future
    /// did so by a clock that was wrong, and keeps no run from being made.
    pub fn has_begun(&self, due: Timestamp, noted: Option<Moment>, now: Timestamp) -> bool {
        let begun = self.runs.iter().map(|run| run.started).chain(noted);
        begun.map(|moment| moment.0).any(|begun| begun >= due && !dates::is_in_future(begun, now))
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
            ended: Moment(Timestamp(at.saturating_add(1))),
            verdict: "good".to_owned(),
            exit: 0,
            steps: vec![step],
            troubles: Vec::new(),
            undelivered: undelivered.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_run_of_a_wrong_clock_keeps_none_from_being_made() {
        let year = 366 * 86_400_000_000_000;
        let now = Timestamp(57 * year);
        let has_begun = |runs: &[i64], noted: Option<i64>| {
            let runs = runs.iter().map(|at| run(now.0 + at, &[])).collect();
            let record = Record { runs, ..Record::default() };
            record.has_begun(
                Timestamp(now.0 - 10),
                noted.map(|at| Moment(Timestamp(now.0 + at))),
                now,
            )
        };
        for (runs, noted, begun) in [
            (&[][..], None, false),
            (&[-11], None, false),
            (&[-9], None, true),
            // Within an hour, clocks are put right.
            (&[60_000_000_000], None, true),
            (&[10 * year], None, false),
            (&[10 * year, -9], None, true),
            (&[-9, -10 * year], None, true),
            (&[i64::MAX - now.0, i64::MIN + now.0], None, false),
            (&[-11], Some(-9), true),
            (&[-11], Some(10 * year), false),
        ] {
            assert_eq!(has_begun(runs, noted), begun, "{runs:?} {noted:?}");
        }
    }

    /// Any file is read as a record or refused, and a record can be shown.
    #[test]
    fn rubbish_is_refused_or_shown() {
        let mut record = Record::default();
        (0..4).for_each(|at| record.push(run(at, &["anna"])));
        record.runs[3].steps[0].output = "all of it".to_owned();
        let whole = serde_json::json!(record).to_string().into_bytes();
        let mut random = strongroom_testkit::Random::new(25);
        let parts: [&[u8]; 12] = [
            b"1e308",
            b"-1",
            b"null",
            b"\"\"",
            b"[]",
            b"{}",
            b"300",
            b"\"9999-12-31T23:59:59Z\"",
            b"\"-009999-01-01T00:00:00Z\"",
            b"\xff",
            b"\\u0000\\u202e",
            b"18446744073709551616",
        ];
        let (mut refused, mut shown) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(2) {
                let at = random.below(bytes.len() as u64) as usize;
                let to = (at + random.below(24) as usize).min(bytes.len());
                match random.below(4) {
                    0 => bytes[at] = random.number() as u8,
                    1 => bytes.truncate(at),
                    2 => drop(bytes.splice(at..to, random.pick(&parts).iter().copied())),
                    // In place of a value: from behind a colon to the next end of one.
                    _ => {
                        let colon = bytes[at..].iter().position(|byte| *byte == b':');
                        let from = colon.map_or(at, |colon| at + colon + 1);
                        let end = bytes[from..].iter().position(|byte| b",}]".contains(byte));
                        let to = end.map_or(bytes.len(), |end| from + end);
                        bytes.splice(from..to, random.pick(&parts).iter().copied());
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let Ok(mut record) = Record::parse(&bytes) else {
                refused += 1;
                continue;
            };
            shown += 1;
            show(&record);
            record.push(run(9, &["bert"]));
            show(&record);
            assert!(Record::parse(serde_json::json!(record).to_string().as_bytes()).is_ok());
        }
        assert!(refused > 1000 && shown > 1000, "{refused} refused, {shown} shown");
    }

    fn show(record: &Record) {
        use super::super::report;
        for now in [0, 1 << 60, i64::MAX, i64::MIN].map(Timestamp) {
            report::state_of(record, Some(1), now);
            record.dated_ahead(now);
            record.has_begun(now, None, now);
            let earlier = record.undelivered_before("anna");
            for run in &record.runs {
                let notice = report::notice("default", run, strongroom_notice::Verdict::Good);
                report::with_earlier(notice, "default", &earlier, now);
            }
        }
        let metrics = report::metrics("a\"b", record);
        assert!(
            metrics.lines().all(|line| line.starts_with('#') || line.starts_with("strongroom_"))
        );
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
