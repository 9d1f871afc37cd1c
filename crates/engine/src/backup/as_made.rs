//! A snapshot of another program, taken over as it was made: its files are shown by that program,
//! and everything else of it was recorded by others than us.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_base::Timestamp;
use strongroom_catalog::{EntryKind, Metadata, Origin, Snapshot, SnapshotStats};
use strongroom_source::{InodeId, SourceError};

/// What another program recorded of a snapshot. Host, user and labels are in the options.
#[derive(Debug, Clone)]
pub struct AsMade {
    /// The machine that takes it over, which its session names as the writer.
    pub importer: String,
    /// When its backup began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What was backed up.
    pub paths: Vec<Vec<u8>>,
    /// Which snapshot it is.
    pub origin: Origin,
    /// The files whose content differs from that of the parent; none if that is unknown, and all
    /// are read.
    pub changed: Option<ChangedFiles>,
    /// How many entries it has that are not directories.
    pub files: u64,
}

/// The files whose content is another one than in the parent, or of which that is unknown.
///
/// Other programs do not always give the bytes of a name that is no UTF-8. So all such bytes in a
/// name count as one and the same: a file that did not change may be in here, and never the other
/// way round.
#[derive(Debug, Clone, Default)]
pub struct ChangedFiles(HashSet<String>);

impl ChangedFiles {
    /// Adds a file by its path.
    pub fn insert(&mut self, path: &[u8]) {
        self.0.insert(comparable(path));
    }

    /// Whether a file, or a directory that it is in, is one of them.
    pub fn contains(&self, path: &Path) -> bool {
        let given = |path: &Path| self.0.contains(&comparable(path.as_os_str().as_bytes()));
        path.ancestors().any(given)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// A path as text, without a slash at its ends, in which a run of bytes that are no UTF-8 is one
/// character.
fn comparable(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for character in String::from_utf8_lossy(path).trim_matches('/').chars() {
        if character != char::REPLACEMENT_CHARACTER || !text.ends_with(character) {
            text.push(character);
        }
    }
    text
}

impl AsMade {
    /// Whether the parent's content of a file is its content here.
    pub(super) fn is_same_content(
        &self,
        path: &Path,
        metadata: &Metadata,
        before: &EntryKind,
    ) -> bool {
        let same_size = |size: u64| size == metadata.size;
        matches!(before, EntryKind::File { content } if same_size(content.stream_bytes()))
            && self.changed.as_ref().is_some_and(|changed| !changed.contains(path))
    }

    /// Compares what was shown with what there is: a mount may leave out what it does not
    /// understand, without a word. Returns what is to be said.
    pub(super) fn compare(&self, stats: &SnapshotStats) -> Result<Option<String>, SourceError> {
        let (files, shown) = (self.files, stats.files);
        match shown.saturating_add(stats.problems) {
            accounted if accounted >= files => Ok(None),
            _ if shown == 0 => Err(SourceError::NothingShown { files }),
            _ => Ok(Some(format!(
                "of the {files} files that the other program says are in it, {shown} were shown"
            ))),
        }
    }

    /// Writes what was recorded into our snapshot.
    pub(super) fn describe(&self, snapshot: &mut Snapshot) {
        snapshot.started = self.started;
        snapshot.ended = self.ended;
        snapshot.paths.clone_from(&self.paths);
        snapshot.origin = Some(self.origin.clone());
    }
}

/// The directory in which another program shows a snapshot.
#[derive(Debug)]
pub struct ShownRoot {
    path: std::path::PathBuf,
    id: InodeId,
}

impl ShownRoot {
    /// Notes which directory it is.
    pub fn find(path: &Path) -> Result<Self, SourceError> {
        let id = seen(path)?;
        Ok(Self { path: path.to_owned(), id })
    }

    /// Fails if it is not shown any more: what was found below it since is no whole snapshot.
    pub fn check(&self) -> Result<(), SourceError> {
        match seen(&self.path)? == self.id {
            true => Ok(()),
            false => Err(SourceError::Moved { path: self.path.clone() }),
        }
    }
}

/// The directory at a path. It is opened and listed, because the kernel may answer other questions
/// from memory when the program behind it is gone.
fn seen(path: &Path) -> Result<InodeId, SourceError> {
    let failed = |error| SourceError::Io { operation: "list", path: path.to_owned(), error };
    std::fs::read_dir(path)
        .and_then(|mut names| names.next().transpose())
        .and_then(|_| InodeId::of_path(path))
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_utf_8_counts_as_changed_however_it_was_written() {
        let mut changed = ChangedFiles::default();
        changed.insert("/d/a\u{fffd}\u{fffd}b".as_bytes());
        changed.insert(b"/whole/");
        for (path, is_changed) in [
            (&b"/d/a\xff\xfeb"[..], true),
            (b"/d/a\xffb", true),
            (b"/d/ab", false),
            (b"d/a\xf0\x9fb", true),
            (b"/whole/of/it", true),
            (b"/wholes", false),
        ] {
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            assert_eq!(changed.contains(path), is_changed, "{path:?}");
        }
    }
}
