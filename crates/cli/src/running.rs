//! What a backup that runs says of itself: a small file beside the caches, replaced whole about
//! once a second and removed at the end. `tui` reads it; nothing depends on it.
//!
//! A process that died leaves its file. It is recognised by its number and by when it was started,
//! as the system has it, and the next backup removes it.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use strongroom_base::{Clock, Monitor, Problem, Progress, SystemClock, Timestamp};

use crate::dates;

/// The folder of the caches in which the files are.
const FOLDER: &str = "running";
/// How often the file is replaced, at most.
const EVERY: Duration = Duration::from_secs(1);
/// A longer file is none of ours.
const BYTES_MAX: u64 = 1 << 20;

/// A backup that runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// When the backup began.
    pub started: Timestamp,
    /// The command, such as `backup`.
    pub command: String,
    /// The place of the repository.
    pub repository: String,
    /// What is backed up.
    pub paths: Vec<String>,
    /// How far it has come.
    pub progress: Progress,
    /// The file that it has reached.
    pub file: String,
}

/// The file of this process, while it is at work.
pub struct RunningRecord {
    file: PathBuf,
    running: Running,
    // A plain mutex: held to note a path, and once a second to write.
    state: Mutex<State>,
}

struct State {
    written: Option<Instant>,
    what: Vec<u8>,
}

impl RunningRecord {
    /// Begins to record; none if there is no cache, or if the file cannot be written.
    pub fn begin(
        cache: Option<PathBuf>,
        command: &str,
        repository: &str,
        paths: &[PathBuf],
    ) -> Option<Self> {
        let folder = cache?.join(FOLDER);
        fs::create_dir_all(&folder).ok()?;
        for (file, running) in files_of(&folder) {
            if running.is_none() {
                let _ = fs::remove_file(file);
            }
        }
        let pid = std::process::id();
        let running = Running {
            pid,
            started: SystemClock.now(),
            command: command.to_owned(),
            repository: repository.to_owned(),
            paths: paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            progress: Progress::default(),
            file: String::new(),
        };
        let state = Mutex::new(State { written: None, what: Vec::new() });
        let record = Self { file: folder.join(format!("{pid}.json")), running, state };
        record.write(&Progress::default(), b"").ok()?;
        Some(record)
    }

    /// Replaces the file.
    fn write(&self, progress: &Progress, what: &[u8]) -> std::io::Result<()> {
        let Running { pid, started, command, repository, paths, .. } = &self.running;
        let value = json!({
            "pid": pid,
            "process_started": process_started(*pid),
            "started": dates::rfc3339(*started),
            "command": command,
            "repository": repository,
            "paths": paths,
            "files": progress.files,
            "bytes": progress.bytes,
            "bytes_new": progress.bytes_new,
            "files_total": progress.files_total,
            "bytes_total": progress.bytes_total,
            "file": String::from_utf8_lossy(what),
        });
        let new = self.file.with_extension("new");
        let mut options = fs::File::options();
        // Paths are of no concern to other users.
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(format!("{value}\n").as_bytes())?;
        drop(file);
        fs::rename(&new, &self.file)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for RunningRecord {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        let _ = fs::remove_file(self.file.with_extension("new"));
    }
}

/// Passes all on to another monitor, and records the progress.
pub struct RecordedMonitor<'m> {
    /// The one that shows it.
    pub shown: &'m dyn Monitor,
    /// The record, if there is one.
    pub record: Option<RunningRecord>,
}

impl Monitor for RecordedMonitor<'_> {
    fn progress(&self, progress: &Progress) {
        self.shown.progress(progress);
        let Some(record) = &self.record else { return };
        let mut state = record.lock();
        if state.written.is_none_or(|written| written.elapsed() >= EVERY) {
            state.written = Some(Instant::now());
            // A full disk is no reason to stop a backup.
            let _ = record.write(progress, &state.what);
        }
    }

    fn working_on(&self, what: &Path) {
        self.shown.working_on(what);
        if let Some(record) = &self.record {
            let mut state = record.lock();
            state.what.clear();
            state.what.extend_from_slice(what.as_os_str().as_bytes());
        }
    }

    fn problem(&self, problem: Problem<'_>) {
        self.shown.problem(problem);
    }

    fn detail(&self, line: &str) {
        self.shown.detail(line);
    }
}

/// What runs on this machine with this cache, the oldest first.
pub fn running(cache: Option<PathBuf>) -> Vec<Running> {
    let Some(cache) = cache else { return Vec::new() };
    let files = files_of(&cache.join(FOLDER)).into_iter();
    let mut running: Vec<Running> = files.filter_map(|(_, running)| running).collect();
    running.sort_by_key(|running| (running.started, running.pid));
    running
}

/// All files, and what is in those whose process is alive.
fn files_of(folder: &Path) -> Vec<(PathBuf, Option<Running>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let files = files.filter(|file| file.extension().is_some_and(|name| name == "json"));
    files.map(|file| (file.clone(), read(&file))).collect()
}

fn read(file: &Path) -> Option<Running> {
    // A pipe of this name would be waited for.
    let about = fs::symlink_metadata(file).ok()?;
    if !about.is_file() || about.len() > BYTES_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let number = |name: &str| value[name].as_u64();
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let pid = u32::try_from(number("pid")?).ok()?;
    if !is_alive(pid, number("process_started")) {
        return None;
    }
    let started: jiff::Timestamp = value["started"].as_str()?.parse().ok()?;
    let paths = value["paths"].as_array().into_iter().flatten();
    Some(Running {
        pid,
        started: Timestamp(i64::try_from(started.as_nanosecond()).ok()?),
        command: text("command"),
        repository: text("repository"),
        paths: paths.filter_map(|path| Some(path.as_str()?.to_owned())).collect(),
        progress: Progress {
            files: number("files").unwrap_or(0),
            bytes: number("bytes").unwrap_or(0),
            bytes_new: number("bytes_new").unwrap_or(0),
            bytes_stored: 0,
            files_total: number("files_total"),
            bytes_total: number("bytes_total"),
        },
        file: text("file"),
    })
}

/// Whether the process is the one that wrote this. A number of a process is used again.
fn is_alive(pid: u32, started: Option<u64>) -> bool {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let exists = match test_kill_process(process) {
        Ok(()) | Err(rustix::io::Errno::PERM) => true,
        Err(_) => false,
    };
    exists && process_started(pid) == started
}

/// When a process was started, in the system's units since it was booted.
fn process_started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use strongroom_base::Silent;

    use super::*;

    #[test]
    fn a_backup_is_seen_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let cache = || Some(folder.path().to_owned());
        let record = RunningRecord::begin(cache(), "backup", "/a\x1bb", &["/home".into()]);
        let monitor = RecordedMonitor { shown: &Silent, record };
        monitor.working_on(Path::new("/home/me/x"));
        monitor.progress(&Progress { files: 3, bytes_total: Some(9), ..Progress::default() });
        // Less than a second later.
        monitor.progress(&Progress { files: 4, ..Progress::default() });
        let seen = running(cache());
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].pid, seen[0].command.as_str()), (std::process::id(), "backup"));
        assert_eq!((seen[0].progress.files, seen[0].progress.bytes_total), (3, Some(9)));
        assert_eq!(seen[0].file, "/home/me/x");
        drop(monitor);
        assert_eq!(running(cache()), []);
        assert!(fs::read_dir(folder.path().join(FOLDER)).unwrap().next().is_none());
    }

    #[test]
    fn what_a_dead_process_left_is_not_seen_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = || Some(folder.path().to_owned());
        let files = folder.path().join(FOLDER);
        fs::create_dir(&files).unwrap();
        let started = "2026-11-20T08:15:00Z";
        // The number of this process, which was started at another time.
        let reused = json!({ "pid": std::process::id(), "process_started": 1, "started": started });
        let dead = json!({ "pid": 999_999_999, "process_started": 1, "started": started });
        let wrong = json!({ "pid": "x" });
        for (name, value) in [("a", &reused), ("b", &dead), ("c", &wrong)] {
            fs::write(files.join(format!("{name}.json")), value.to_string()).unwrap();
        }
        fs::write(files.join("d.json"), "half of {").unwrap();
        assert_eq!(running(cache()), []);
        let record = RunningRecord::begin(cache(), "backup", "/r", &[]).unwrap();
        assert_eq!(fs::read_dir(&files).unwrap().count(), 1);
        drop(record);
        assert!(RunningRecord::begin(None, "backup", "/r", &[]).is_none());
    }
}
