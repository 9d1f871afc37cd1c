//! What is wrong with a sample, and how bad that is.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use strongroom_base::units::bytes_text;
use strongroom_base::{Monitor, Problem, Progress, Severity};
use strongroom_repository::DrillVerdict;
use strongroom_source::Differences;

use super::as_path;
use super::scratch::path_in_snapshot;

/// Something that a drill found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrillFinding {
    /// The path in the snapshot; empty if it is about all of it.
    pub path: Vec<u8>,
    /// What.
    pub kind: FindingKind,
}

/// What a drill found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingKind {
    /// Something of it is lost in the repository.
    Damaged {
        /// What the restore said.
        why: String,
    },
    /// A part of a directory's list of names is lost in the repository.
    NamesLost {
        /// Why.
        why: String,
    },
    /// It was not restored, and the restore said nothing of it.
    Missing,
    /// What was restored has another kind, or other metadata.
    Metadata {
        /// In what it differs.
        differences: Differences,
    },
    /// What was restored has another content.
    Content {
        /// Where the first chunk begins that differs.
        offset: u64,
    },
    /// It was restored as a file of its own, and is another name of a file in the snapshot.
    NotLinked,
    /// It was restored, and the snapshot does not have it.
    Surplus,
    /// An earlier drill restored the same sample, and it was not the same.
    NotAsBefore,
    /// It cannot be restored here: for lack of a right, or of a feature of the scratch folder.
    NotHere {
        /// Why.
        why: String,
    },
    /// It was restored and cannot be read back.
    Unreadable {
        /// Why.
        why: String,
    },
    /// There is no room for it in the scratch folder.
    NoRoom {
        /// Bytes that it takes.
        bytes: u64,
    },
    /// The file of this machine has another content, although size, times and inode are the same.
    SourceDiffers {
        /// Where the first chunk begins that differs.
        offset: u64,
        /// The BLAKE3 hash of the file of this machine.
        source: String,
        /// That of what was restored.
        restored: String,
    },
    /// The file of this machine has not changed and cannot be read.
    SourceUnreadable {
        /// Why.
        why: String,
    },
}

impl DrillFinding {
    pub(super) fn new(path: &[u8], kind: FindingKind) -> Self {
        Self { path: path.to_vec(), kind }
    }

    /// The verdict about a sample of which only this is wrong.
    pub fn verdict(&self) -> DrillVerdict {
        match &self.kind {
            FindingKind::Damaged { .. }
            | FindingKind::NamesLost { .. }
            | FindingKind::Missing
            | FindingKind::Metadata { .. }
            | FindingKind::Content { .. }
            | FindingKind::NotLinked
            | FindingKind::Surplus
            | FindingKind::NotAsBefore => DrillVerdict::Failed,
            FindingKind::NotHere { .. }
            | FindingKind::Unreadable { .. }
            | FindingKind::NoRoom { .. }
            | FindingKind::SourceDiffers { .. } => DrillVerdict::Incomplete,
            FindingKind::SourceUnreadable { .. } => DrillVerdict::Proved,
        }
    }

    pub(super) fn report(&self, monitor: &dyn Monitor) {
        let severity = match (self.verdict(), &self.kind) {
            (DrillVerdict::Failed, _) | (_, FindingKind::SourceDiffers { .. }) => Severity::Damage,
            _ => Severity::Warning,
        };
        let path = as_path(&self.path);
        let path = Some(path.as_path()).filter(|_| !self.path.is_empty());
        monitor.problem(Problem { severity, path, message: &self.kind.to_string() });
    }
}

impl std::fmt::Display for FindingKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged { why } | Self::NotHere { why } => f.write_str(why),
            Self::NamesLost { why } => {
                write!(f, "some entries of this directory are lost: {why}")
            }
            Self::Missing => f.write_str("it was not restored"),
            Self::Metadata { differences } => {
                write!(f, "restored with another {}", names_of(differences))
            }
            Self::Content { offset } => {
                write!(
                    f,
                    "what was read back from the scratch folder differs from byte {offset} on"
                )
            }
            Self::NotLinked => f.write_str(
                "it was restored as a file of its own, although it is another name of a file",
            ),
            Self::Surplus => f.write_str("it was restored, and the snapshot does not have it"),
            Self::NotAsBefore => f.write_str(
                "an earlier drill restored the same sample, and read back something else",
            ),
            Self::Unreadable { why } => {
                write!(f, "it was restored and cannot be read back: {why}")
            }
            Self::NoRoom { bytes } => write!(
                f,
                "it was not drilled: it needs {}, and the scratch folder has less room",
                bytes_text(*bytes)
            ),
            Self::SourceDiffers { offset, source, restored } => write!(
                f,
                "the file here and its backup differ from byte {offset} on, although size and times \
                 are the same: one of them has rotted. BLAKE3 here: {source}; in the backup: {restored}"
            ),
            Self::SourceUnreadable { why } => {
                write!(f, "the file here could not be compared: {why}")
            }
        }
    }
}

fn names_of(differences: &Differences) -> String {
    let names = [
        (differences.kind, "kind"),
        (differences.content, "size or target"),
        (differences.mtime, "time"),
        (differences.mode, "mode"),
        (differences.owner, "owner"),
        (differences.xattrs, "set of extended attributes"),
    ];
    let names: Vec<&str> = names.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    names.join(", ")
}

/// The verdict about all that was found.
pub fn verdict_of(findings: &[DrillFinding], is_judged: bool) -> DrillVerdict {
    let is_any = |verdict| findings.iter().any(|finding| finding.verdict() == verdict);
    if is_judged || is_any(DrillVerdict::Failed) {
        DrillVerdict::Failed
    } else if is_any(DrillVerdict::Incomplete) {
        DrillVerdict::Incomplete
    } else {
        DrillVerdict::Proved
    }
}

/// Takes what the restore of a sample says, with the paths of the snapshot in place of those of the
/// scratch folder.
pub struct Listener<'l> {
    monitor: &'l dyn Monitor,
    scratch: &'l Path,
    /// Files of the sample, and bytes of their content.
    total: (u64, u64),
    said: Mutex<Said>,
}

/// What a restore said.
#[derive(Debug, Default)]
pub struct Said {
    damage: Vec<(Vec<u8>, String)>,
    warnings: Vec<String>,
}

impl<'l> Listener<'l> {
    pub fn new(monitor: &'l dyn Monitor, scratch: &'l Path, total: (u64, u64)) -> Self {
        Self { monitor, scratch, total, said: Mutex::default() }
    }

    pub fn said(self) -> Said {
        self.said.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn original(&self, path: &Path) -> PathBuf {
        as_path(&path_in_snapshot(self.scratch, path))
    }
}

impl Monitor for Listener<'_> {
    fn progress(&self, progress: &Progress) {
        self.monitor.progress(&Progress {
            files_total: Some(self.total.0),
            bytes_total: Some(self.total.1),
            ..progress.clone()
        });
    }

    fn working_on(&self, what: &Path) {
        self.monitor.working_on(&self.original(what));
    }

    fn problem(&self, problem: Problem<'_>) {
        // Messages quote the path as Rust does.
        let quoted = format!("{:?}", self.scratch);
        let message = problem.message.replace(quoted.trim_end_matches('"'), "\"");
        let message = message.replace(&*self.scratch.to_string_lossy(), "");
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match problem.severity {
            Severity::Note => {
                drop(said);
                self.monitor.problem(Problem { message: &message, ..problem });
            }
            Severity::Warning => said.warnings.push(message),
            Severity::Damage => {
                let path = problem.path.unwrap_or(self.scratch);
                // The recovered parts go with the scratch folder.
                let why = message.split("; the recovered parts").next().unwrap_or_default();
                said.damage.push((path_in_snapshot(self.scratch, path), why.to_owned()));
            }
        }
    }

    fn detail(&self, line: &str) {
        self.monitor.detail(line);
    }
}

impl Said {
    /// Adds what the restore said, and what was found after it that this does not explain.
    pub fn add_findings(mut self, findings: &mut Vec<DrillFinding>, compared: Vec<DrillFinding>) {
        for finding in compared {
            let is_explained = self.damage.iter().any(|(path, _)| {
                finding.path == *path
                    || (finding.kind == FindingKind::Surplus && finding.path.starts_with(path))
            });
            if is_explained {
                continue;
            }
            let is_excusable =
                matches!(finding.kind, FindingKind::Missing | FindingKind::Metadata { .. });
            match is_excusable.then(|| self.warning_about(&finding.path)).flatten() {
                Some(why) => {
                    findings.push(DrillFinding { kind: FindingKind::NotHere { why }, ..finding });
                }
                None => findings.push(finding),
            }
        }
        for (path, why) in self.damage {
            let is_known = findings.iter().any(|finding| finding.path == path);
            if !is_known {
                findings.push(DrillFinding { path, kind: FindingKind::Damaged { why } });
            }
        }
        for why in self.warnings {
            findings.push(DrillFinding::new(b"", FindingKind::NotHere { why }));
        }
    }

    /// The warning about this path, which is then dealt with.
    fn warning_about(&mut self, path: &[u8]) -> Option<String> {
        let quoted = format!("{:?}", as_path(path));
        let at = self.warnings.iter().position(|warning| warning.contains(&quoted))?;
        Some(self.warnings.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::Silent;

    use super::*;

    #[test]
    fn what_the_restore_said_explains_what_is_found_after_it() {
        let listener = Listener::new(&Silent, Path::new("/tmp/scratch"), (0, 0));
        let say = |severity, path: Option<&str>, message: &str| {
            listener.problem(Problem { severity, path: path.map(Path::new), message });
        };
        say(Severity::Warning, None, "cannot create \"/tmp/scratch/dev/a\": no");
        say(Severity::Damage, Some("/tmp/scratch/b"), "lost; the recovered parts are beside it");
        let at = |path: &[u8], kind| DrillFinding::new(path, kind);
        let compared = vec![
            at(b"/dev/a", FindingKind::Missing),
            at(b"/dev", FindingKind::Missing),
            at(b"/b", FindingKind::Missing),
            at(b"/b.damaged", FindingKind::Surplus),
        ];
        let mut findings = Vec::new();
        listener.said().add_findings(&mut findings, compared);
        let why = "cannot create \"/dev/a\": no".to_owned();
        let expected = [
            at(b"/dev/a", FindingKind::NotHere { why }),
            at(b"/dev", FindingKind::Missing),
            at(b"/b", FindingKind::Damaged { why: "lost".to_owned() }),
        ];
        assert_eq!(findings, expected);
        assert_eq!(verdict_of(&findings, false), DrillVerdict::Failed);
        assert_eq!(verdict_of(&findings[..1], false), DrillVerdict::Incomplete);
        assert_eq!(verdict_of(&[], true), DrillVerdict::Failed);
        assert_eq!(verdict_of(&[], false), DrillVerdict::Proved);
    }
}
