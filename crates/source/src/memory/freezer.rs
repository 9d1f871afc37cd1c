//! A control group whose programs are stopped for a moment (cgroup v2, `cgroup.freeze`).

use std::collections::BTreeSet;
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
/// killed. A group that was frozen before stays so.
#[derive(Debug)]
pub struct Frozen<'c> {
    group: &'c ControlGroup,
    /// Lets it go on if this process does not; none for a group that stays as it is.
    watchman: Option<Child>,
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
        let group = Self { folder };
        let processes = group.processes();
        if processes.contains(&std::process::id()) {
            return Err(io::Error::other("this process is in it, and would stop too"));
        }
        if processes.is_empty() {
            return Err(io::Error::other("no program is in it, so nothing would be stopped"));
        }
        Ok(group)
    }

    /// The programs in it and in those below it: all of them are frozen together.
    pub fn processes(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        list(&self.folder, &mut found);
        found
    }

    /// Stops its programs.
    ///
    /// # Errors
    ///
    /// They do not all stop within this time: then all go on.
    pub fn freeze(&self, within: Duration) -> io::Result<Frozen<'_>> {
        let before = fs::read_to_string(self.folder.join("cgroup.freeze"))?;
        if before.trim_end() == "1" {
            let frozen = Frozen { group: self, watchman: None };
            self.await_frozen(within)?;
            return Ok(frozen);
        }
        // It lives on if this process is killed, and then lets the others go on.
        let watchman = Command::new("/bin/sh")
            .args(["-c", "read -r _; echo 0 > \"$0\""])
            .arg(self.folder.join("cgroup.freeze"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let frozen = Frozen { group: self, watchman: Some(watchman) };
        self.write("1")?;
        self.await_frozen(within)?;
        Ok(frozen)
    }

    fn await_frozen(&self, within: Duration) -> io::Result<()> {
        let waited = Stopwatch::start();
        while !self.is_frozen()? {
            if waited.elapsed() > within {
                let message = format!("its programs did not stop within {} s", within.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn is_frozen(&self) -> io::Result<bool> {
        let events = fs::read_to_string(self.folder.join("cgroup.events"))?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    fn write(&self, state: &str) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.freeze"), state)
    }
}

/// The programs of a control group and of those below it.
fn list(folder: &Path, found: &mut BTreeSet<u32>) {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    found.extend(processes.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path(), found);
        }
    }
}

impl Frozen<'_> {
    /// Lets the programs go on.
    ///
    /// # Errors
    ///
    /// Others had let them go on before, or they cannot be let go on.
    pub fn thaw(self) -> io::Result<()> {
        let was_frozen = self.group.is_frozen()?;
        if self.watchman.is_some() {
            self.group.write("0").map_err(|error| {
                io::Error::new(error.kind(), format!("its programs cannot be let go on: {error}"))
            })?;
        }
        if !was_frozen {
            return Err(io::Error::other("its programs did not stay stopped"));
        }
        Ok(())
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let Some(watchman) = &mut self.watchman else { return };
        // The watchman does the same, so it is done even if this fails.
        let _ = self.group.write("0");
        drop(watchman.stdin.take());
        let _ = watchman.wait();
    }
}
