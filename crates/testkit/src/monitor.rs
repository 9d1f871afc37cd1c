//! A monitor that remembers.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_base::{Monitor, Problem, Progress, Severity};

/// A problem that was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// How bad.
    pub severity: Severity,
    /// The file it is about, if it is about one.
    pub path: Option<PathBuf>,
    /// What happened.
    pub message: String,
}

/// Remembers what a verb reports.
#[derive(Default)]
pub struct Listener {
    // A plain mutex: held while a line is noted.
    heard: Mutex<State>,
    /// Called with the path of each thing that is worked on.
    on_work: Option<Box<OnWork>>,
}

type OnWork = dyn Fn(&std::path::Path) + Send + Sync;

#[derive(Default)]
struct State {
    problems: Vec<Heard>,
    details: Vec<String>,
    worked_on: Vec<PathBuf>,
    progress: Progress,
}

impl Listener {
    /// Nothing heard yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A listener that does something whenever the work turns to a file.
    pub fn on_work(act: impl Fn(&std::path::Path) + Send + Sync + 'static) -> Self {
        Self { on_work: Some(Box::new(act)), ..Self::default() }
    }

    /// The problems so far.
    pub fn problems(&self) -> Vec<Heard> {
        self.state().problems.clone()
    }

    /// The details so far.
    pub fn details(&self) -> Vec<String> {
        self.state().details.clone()
    }

    /// What was worked on so far.
    pub fn worked_on(&self) -> Vec<PathBuf> {
        self.state().worked_on.clone()
    }

    /// The last progress that was reported.
    pub fn last_progress(&self) -> Progress {
        self.state().progress.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Monitor for Listener {
    fn progress(&self, progress: &Progress) {
        let mut state = self.state();
        let grew = |before: u64, now: u64| assert!(before <= now, "progress only grows");
        grew(state.progress.files, progress.files);
        grew(state.progress.bytes, progress.bytes);
        grew(state.progress.bytes_new, progress.bytes_new);
        grew(state.progress.bytes_stored, progress.bytes_stored);
        state.progress = progress.clone();
    }

    fn working_on(&self, what: &std::path::Path) {
        self.state().worked_on.push(what.to_owned());
        if let Some(act) = &self.on_work {
            act(what);
        }
    }

    fn problem(&self, problem: Problem<'_>) {
        let heard = Heard {
            severity: problem.severity,
            path: problem.path.map(PathBuf::from),
            message: problem.message.to_owned(),
        };
        self.state().problems.push(heard);
    }

    fn detail(&self, line: &str) {
        self.state().details.push(line.to_owned());
    }
}
