//! What a restore would do, without doing it: by kind, size and time of what exists.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use strongroom_base::{Cancel, Monitor, Problem, Severity};
use strongroom_catalog::{Entry, EntryKind, Recipe};
use strongroom_repository::SnapshotEvent;
use strongroom_source::TargetError;

use crate::error::EngineError;
use crate::restore::{RestoreOutcome, Scope};
use crate::wanted::{WantedEvent, WantedWalk};

/// Counts what would be written and deleted, and reports each as a detail.
pub(crate) fn dry_restore(
    mut walk: WantedWalk<'_>,
    base: &Path,
    scope: &Scope,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RestoreOutcome, EngineError> {
    let mut outcome = RestoreOutcome::default();
    let mut open: Vec<Directory> = Vec::new();
    while let Some(WantedEvent { event, .. }) = walk.next()? {
        match event {
            SnapshotEvent::Enter(directory) => {
                let place = match (open.last_mut(), directory.entry) {
                    (Some(above), Some(entry)) => {
                        outcome.directories += 1;
                        above.names.insert(entry.name.clone());
                        above.place.join(name_of(entry))
                    }
                    _ => base.to_owned(),
                };
                if directory.entry.is_some() && scope.leads_on(directory.path) && place.is_symlink()
                {
                    warn(monitor, &TargetError::LinkInTheWay { path: place });
                    walk.skip();
                    continue;
                }
                let device = directory.entry.map(|entry| entry.metadata.device);
                let may_clear = scope.clears(directory.path);
                let other_fs = open.last().is_some_and(|above| {
                    let was_mounted = above.device.is_none() || above.device != device;
                    let is_new = may_clear && scope.is_below_root(directory.path) && !was_mounted;
                    above.other_fs || (is_new && is_mounted(&place))
                });
                let is_cleared = may_clear && !directory.partial && !other_fs;
                let (path, names) = (directory.path.to_vec(), HashSet::new());
                open.push(Directory { place, path, device, other_fs, names, is_cleared });
            }
            SnapshotEvent::Leaf { entry, .. } => match open.last_mut() {
                Some(above) => {
                    above.names.insert(entry.name.clone());
                    count(entry, &above.place, monitor, &mut outcome);
                }
                None => count(entry, base, monitor, &mut outcome),
            },
            SnapshotEvent::Leave { .. } => {
                let directory = open.pop().expect("what is left was entered");
                if directory.is_cleared {
                    outcome.deleted += directory.count_surplus(scope, monitor, cancel)?;
                }
            }
            SnapshotEvent::Lost { error, .. } => {
                let directory = open.last_mut().expect("entries are lost of what was entered");
                // What is lost in the repository is no reason to remove what exists here.
                directory.is_cleared = false;
                if error.is_withheld() {
                    let message =
                        format!("some entries of this directory are not restored: {error}");
                    let (severity, path) = (Severity::Warning, Some(directory.place.as_path()));
                    monitor.problem(Problem { severity, path, message: &message });
                    outcome.withheld.push((directory.place.clone(), error.to_string()));
                    continue;
                }
                let message = format!("some entries of this directory are lost: {error}");
                let (severity, path) = (Severity::Damage, Some(directory.place.as_path()));
                monitor.problem(Problem { severity, path, message: &message });
                outcome.damaged.push(directory.place.clone());
            }
        }
    }
    Ok(outcome)
}

/// A directory of the target.
struct Directory {
    place: PathBuf,
    /// Its path in the snapshot.
    path: Vec<u8>,
    /// On which it was, by what the snapshot says.
    device: Option<u64>,
    /// Whether it is on a file system that was not there when the backup was made.
    other_fs: bool,
    /// What the snapshot has in it.
    names: HashSet<Vec<u8>>,
    /// What the snapshot does not have in it is removed.
    is_cleared: bool,
}

impl Directory {
    /// How much would be removed.
    fn count_surplus(
        &self,
        scope: &Scope,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<u64, EngineError> {
        let mut count = 0;
        for existing in std::fs::read_dir(&self.place).into_iter().flatten().flatten() {
            let name = existing.file_name();
            if self.names.contains(name.as_bytes()) {
                continue;
            }
            if scope.is_missing(&self.path) {
                warn(monitor, &TargetError::MissingNotCleared { path: self.place.clone() });
                return Ok(0);
            }
            if scope.leads_to_missing(&self.path, name.as_bytes()) {
                warn(monitor, &TargetError::MissingNotCleared { path: existing.path() });
                continue;
            }
            count += 1 + count_below(&existing.path(), cancel)?;
            monitor.detail(&format!("would delete {}", existing.path().display()));
        }
        Ok(count)
    }
}

/// How many names are below a directory, in its file system; zero if it is not a directory.
fn count_below(path: &Path, cancel: &Cancel) -> Result<u64, EngineError> {
    let mut count = 0;
    let device = |path: &Path| path.symlink_metadata().map(|stat| (stat.is_dir(), stat.dev())).ok();
    let Some(top @ (true, _)) = device(path) else { return Ok(0) };
    let mut rest = vec![path.to_owned()];
    while let Some(directory) = rest.pop() {
        cancel.check()?;
        for name in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            count += 1;
            let path = name.path();
            if device(&path) == Some(top) {
                rest.push(path);
            }
        }
    }
    Ok(count)
}

/// Whether another file system is mounted at a path.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| path.symlink_metadata().map(|stat| stat.dev()).ok();
    path.parent().is_some_and(|above| device(path) != device(above))
}

fn warn(monitor: &dyn Monitor, error: &TargetError) {
    let (severity, path) = (Severity::Warning, Some(error.path()));
    monitor.problem(Problem { severity, path, message: &error.to_string() });
}

fn name_of(entry: &Entry) -> &std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(&entry.name)
}

fn count(entry: &Entry, directory: &Path, monitor: &dyn Monitor, outcome: &mut RestoreOutcome) {
    let path = directory.join(name_of(entry));
    let bytes = entry.content().map_or(0, Recipe::stream_bytes);
    outcome.files += 1;
    outcome.bytes = outcome.bytes.saturating_add(bytes);
    if stands_right(entry, &path) {
        outcome.files_right += 1;
    } else {
        outcome.bytes_written = outcome.bytes_written.saturating_add(bytes);
        monitor.detail(&format!("would write {}", path.display()));
    }
}

fn stands_right(entry: &Entry, path: &Path) -> bool {
    let Ok(stat) = path.symlink_metadata() else { return false };
    let mtime = stat.mtime().saturating_mul(1_000_000_000).saturating_add(stat.mtime_nsec());
    match &entry.kind {
        EntryKind::File { .. } => {
            stat.is_file() && stat.len() == entry.metadata.size && mtime == entry.metadata.mtime.0
        }
        EntryKind::Symlink { target } => {
            std::fs::read_link(path).is_ok_and(|link| link.as_os_str().as_bytes() == target)
        }
        _ => !stat.is_file() && !stat.is_dir() && !stat.is_symlink(),
    }
}
