//! How a verb reports progress and problems while it works.
//!
//! The engine never prints. It reports to a [`Monitor`], and the command line decides what a person
//! or a program sees of it.

use std::path::Path;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; the result is complete.
    Note,
    /// The result lacks something or differs from what was asked; the rest was done.
    Warning,
    /// Something stored is damaged or lost.
    Damage,
}

/// Something that did not stop the work.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// How bad.
    pub severity: Severity,
    /// The file it is about, if it is about one.
    pub path: Option<&'a Path>,
    /// What happened, and what was done about it.
    pub message: &'a str,
}

/// How far the work has come. Counts only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files (of any type but directories) dealt with.
    pub files: u64,
    /// Bytes of content dealt with.
    pub bytes: u64,
    /// Bytes of content that were not yet known and had to be stored, or that had to be written.
    pub bytes_new: u64,
    /// Bytes given to or taken from the backend.
    pub bytes_stored: u64,
    /// How many files there will be, once that is known.
    pub files_total: Option<u64>,
    /// How many bytes there will be, once that is known.
    pub bytes_total: Option<u64>,
}

/// Receives progress and problems. It is called often, so an implementation must be quick.
pub trait Monitor: Send + Sync {
    /// The work has come this far.
    fn progress(&self, _progress: &Progress) {}

    /// The work has reached this file, or this step.
    fn working_on(&self, _what: &Path) {}

    /// Something is wrong with one thing; the work goes on.
    fn problem(&self, _problem: Problem<'_>) {}

    /// A line of detail, for `-v`.
    fn detail(&self, _line: &str) {}
}

/// Ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Monitor for Silent {}
