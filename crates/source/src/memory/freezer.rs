//! A control group whose programs are stopped for a moment (cgroup v2, `cgroup.freeze`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;

/// A control group, by its folder.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
}

/// The programs of a control group are stopped, until this is dropped; also if this process is
/// killed.
#[derive(Debug)]
pub struct Frozen<'c> {
    group: &'c ControlGroup,
    watchman: Child,
}

impl ControlGroup {
    /// A control group of programs other than this one.
    ///
    /// # Errors
    ///
    /// The folder is of none that can be frozen, or this process is in it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let folder = fs::canonicalize(folder)?;
        if !folder.join("cgroup.freeze").exists() {
            return Err(io::Error::other("it is no control group that can be frozen (cgroup v2)"));
        }
        if holds(&folder, &std::process::id().to_string()) {
            return Err(io::Error::other("this process is in it, and would stop too"));
        }
        Ok(Self { folder })
    }

    /// Stops its programs.
    ///
    /// # Errors
    ///
    /// They do not all stop within this time: then all go on.
    pub fn freeze(&self, within: Duration) -> io::Result<Frozen<'_>> {
        // It lives on if this process is killed, and then lets the others go on.
        let watchman = Command::new("/bin/sh")
            .args(["-c", "read -r _; echo 0 > \"$0\""])
            .arg(self.folder.join("cgroup.freeze"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let frozen = Frozen { group: self, watchman };
        self.write("1")?;
        let waited = Stopwatch::start();
        while !self.is_frozen()? {
            if waited.elapsed() > within {
                let message = format!("its programs did not stop within {} s", within.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(frozen)
    }

    fn is_frozen(&self) -> io::Result<bool> {
        let events = fs::read_to_string(self.folder.join("cgroup.events"))?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    fn write(&self, state: &str) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.freeze"), state)
    }
}

/// Whether a process is in a control group or in one below it: all of them are frozen together.
fn holds(folder: &Path, process: &str) -> bool {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let below = || fs::read_dir(folder).into_iter().flatten().flatten();
    processes.lines().any(|line| line == process)
        || below().any(|entry| entry.path().is_dir() && holds(&entry.path(), process))
}

impl Frozen<'_> {
    /// Lets the programs go on.
    ///
    /// # Errors
    ///
    /// Others had let them go on before, or they cannot be let go on.
    pub fn thaw(self) -> io::Result<()> {
        let was_frozen = self.group.is_frozen()?;
        let write = self.group.write("0");
        write.map_err(|error| {
            io::Error::new(error.kind(), format!("its programs cannot be let go on: {error}"))
        })?;
        if !was_frozen {
            return Err(io::Error::other("its programs did not stay stopped"));
        }
        Ok(())
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // The watchman does the same, so it is done even if this fails.
        let _ = self.group.write("0");
        drop(self.watchman.stdin.take());
        let _ = self.watchman.wait();
    }
}
