//! What a restore says of files and directories that could not be put back as they were, and the
//! advice at its end.

use std::path::Path;

use strongroom_base::{Problem, Severity};
use strongroom_repository::RepositoryError;
use strongroom_source::{DirectoryId, TargetError};

use super::Run;
use super::batch::{Damaged, Making};

impl Run<'_> {
    pub(super) fn problem(&mut self, error: &TargetError) {
        self.outcome.problems += 1;
        let message = error.to_string();
        let path = None;
        self.monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
    }

    /// The problem of a file that has not come back.
    pub(super) fn not_made(&mut self, error: &TargetError) {
        self.outcome.files_failed += 1;
        self.problem(error);
    }

    /// A file that was left out, because the place withholds a part of it.
    pub(super) fn left_out(&self, path: &Path, why: &str) {
        let message = format!("not restored: {why}");
        let problem = Problem { severity: Severity::Warning, path: Some(path), message: &message };
        self.monitor.problem(problem);
    }

    pub(super) fn damage(&self, damaged: &Damaged) {
        let Damaged { path, why, salvage, making } = damaged;
        let salvage = salvage.as_ref().and_then(|path| path.file_name());
        let recovered = salvage.map_or("the recovered parts were not kept".to_owned(), |name| {
            format!("the recovered parts are beside it, in {}", name.display())
        });
        let message = match making {
            Making::Fresh => format!("{why}; {recovered}"),
            Making::Beside => format!("{why}; what exists here is left as it is, and {recovered}"),
            Making::Patch => format!("{why}; in these parts the file is still what it was"),
        };
        let path = Some(path.as_path());
        self.monitor.problem(Problem { severity: Severity::Damage, path, message: &message });
    }

    /// A directory whose list of names cannot be read.
    pub(super) fn lost_directory(&mut self, directory: DirectoryId, error: &RepositoryError) {
        let path = self.target.path_of(directory, b"");
        let message = format!("some entries of this directory are lost: {error}");
        let problem = Problem { severity: Severity::Damage, path: Some(&path), message: &message };
        self.monitor.problem(problem);
        self.outcome.damaged.push(path);
    }

    /// A directory of whose list of names the place withholds a part.
    pub(super) fn withheld_directory(&mut self, directory: DirectoryId, error: &RepositoryError) {
        let path = self.target.path_of(directory, b"");
        let message = format!("some entries of this directory are not restored: {error}");
        let problem = Problem { severity: Severity::Warning, path: Some(&path), message: &message };
        self.monitor.problem(problem);
        self.outcome.withheld.push((path, error.to_string()));
    }

    pub(super) fn advise(&self) {
        let note = |message: &str| {
            self.monitor.problem(Problem { severity: Severity::Note, path: None, message });
        };
        if self.uncleared > 0 {
            let directories = self.uncleared;
            note(&format!(
                "nothing was removed from {directories} directories that hold more than the \
                 snapshot does, as the backup had left something of them out"
            ));
        }
        if self.replaced > 0 {
            note(&format!(
                "files that changed while the backup read their hard links: {}; each state is \
                 restored as a file of its own (-v names them)",
                self.replaced
            ));
        }
        if self.unjoined > 0 {
            note(&format!(
                "{} files have more names than could be remembered: each of these names is \
                 restored as a file of its own",
                self.unjoined
            ));
        }
        if self.unlinked > 0 {
            note(&format!(
                "further names of files where the target has no hard links: {}; each is restored as a \
                 file of its own (-v names them)",
                self.unlinked
            ));
        }
        if self.lacks_room {
            note(
                "the target has no room for a second copy of each file that is replaced: make \
                 room, or rewrite files in place with `--patch`",
            );
        }
        let heals = self.reader.store().heals();
        if heals > 0 {
            note(
                "parts of the repository are damaged and were computed again from parity: run \
                 `strongroom repair`",
            );
        }
    }
}
