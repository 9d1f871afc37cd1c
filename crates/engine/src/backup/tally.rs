//! What a backup counts and reports.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_base::{Monitor, Problem, Progress, Severity};
use strongroom_catalog::SnapshotStats;
use strongroom_repository::WriteStats;
use strongroom_source::{ExcludeReason, SourceError};

use super::sources::{EMPTIED, Sources};
use super::totals::Totals;

/// Counts and reports.
pub struct Tally<'r> {
    /// Receives the reports.
    pub monitor: &'r dyn Monitor,
    /// What was counted.
    pub counted: Counted,
    /// The given paths.
    pub sources: Sources,
    progress: Progress,
    totals: Totals,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// The numbers for the snapshot.
    pub stats: SnapshotStats,
    /// Files taken over from the parent.
    pub unchanged: u64,
    /// Files that the parent did not have.
    pub new: u64,
    /// Files that differ in the parent.
    pub changed: u64,
    /// What was left out on request.
    pub excluded: u64,
}

impl<'r> Tally<'r> {
    /// Nothing yet.
    pub fn new(monitor: &'r dyn Monitor, totals: Totals) -> Self {
        let (counted, sources) = (Counted::default(), Sources::default());
        Self { monitor, counted, sources, progress: Progress::default(), totals }
    }

    /// This is what there is to do.
    pub fn expect(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// Something that is not a directory is finished, all of it or the `rest` of its bytes.
    pub fn done(&mut self, rest: u64) {
        self.progress.files += 1;
        self.progress.bytes += rest;
    }

    /// Bytes of a file are finished.
    pub fn bytes(&mut self, bytes: u64, written: &WriteStats) {
        self.progress.bytes += bytes;
        self.progress.bytes_new = written.data_bytes;
        self.progress.bytes_stored = written.stored_bytes;
        self.report();
    }

    /// Reports the progress.
    pub fn report(&mut self) {
        self.totals.apply(&mut self.progress);
        self.monitor.progress(&self.progress);
    }

    /// Something could not be read.
    pub fn problem(&mut self, path: &Path, message: &str) {
        self.counted.stats.problems += 1;
        let path = Some(path);
        self.monitor.problem(Problem { severity: Severity::Warning, path, message });
    }

    /// Something is not stored.
    pub fn lost(&mut self, path: &Path, message: &str) {
        self.sources.lost(path.as_os_str().as_bytes());
        self.problem(path, message);
    }

    /// The same of something that exists and could not be read. It is missing if the parent had it.
    pub fn unread(&mut self, path: &Path, error: &SourceError, was_there: impl FnOnce() -> bool) {
        self.lost(path, &error.to_string());
        // What was removed meanwhile is not expected any more.
        if !matches!(error, SourceError::Vanished { .. }) {
            self.sources.unread(path.as_os_str().as_bytes(), was_there);
        }
        if error.lacks_key() {
            self.sources.locked(path.as_os_str().as_bytes());
        }
    }

    /// A file was read whose length was not known before. If it was given, it is expected to have some.
    pub fn was_read(&mut self, path: &Path, bytes: u64, had_bytes: bool) {
        if self.sources.leaf(path.as_os_str().as_bytes(), bytes == 0, !had_bytes) {
            self.problem(path, EMPTIED);
        }
    }

    /// Something is odd, and keeps nothing from being stored.
    pub fn note(&self, path: &Path, message: &str) {
        let path = Some(path);
        self.monitor.problem(Problem { severity: Severity::Note, path, message });
    }

    /// Something is odd that is of no single file, and keeps nothing from being stored.
    pub fn note_all(&self, message: &str) {
        self.monitor.problem(Problem { severity: Severity::Note, path: None, message });
    }

    /// Something is left out.
    pub fn left_out(&mut self, path: &Path, why: &ExcludeReason) {
        self.counted.excluded += 1;
        if let ExcludeReason::TooBig { .. } = why {
            let message = "it is larger than the limit and was excluded";
            let path = Some(path);
            self.monitor.problem(Problem { severity: Severity::Note, path, message });
        } else {
            self.monitor.detail(&format!("excluded {}", path.display()));
        }
    }
}
