//! What a restore would do, without doing it: by kind, size and time of what exists.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use strongroom_base::{Cancel, Monitor};
use strongroom_catalog::{Entry, EntryKind, Recipe, TreeReader};
use strongroom_repository::{ChunkReader, Found};

use crate::error::EngineError;
use crate::restore::{RestoreOutcome, Scope};

/// Counts what would be written and deleted, and reports each as a detail.
pub(crate) fn dry_restore(
    reader: &ChunkReader,
    found: &Found,
    base: &Path,
    scope: &Scope,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RestoreOutcome, EngineError> {
    let mut outcome = RestoreOutcome::default();
    let mut rest: Vec<Directory> = Vec::new();
    let (place, path) = (base.to_owned(), Scope::start(found));
    match found {
        Found::Root { tree, partial } => {
            rest.push(Directory { place, path, tree: tree.clone(), partial: *partial });
        }
        Found::Entry { entry, .. } => match entry.tree() {
            Some(tree) => {
                let partial = entry.is_partial();
                rest.push(Directory { place, path, tree: tree.clone(), partial });
            }
            None => count(entry, base, monitor, &mut outcome),
        },
    }
    while let Some(directory) = rest.pop() {
        cancel.check()?;
        let mut entries = TreeReader::new(&directory.tree, reader);
        let mut kept = std::collections::HashSet::new();
        while let Some(entry) = entries.next_entry()? {
            kept.insert(entry.name.clone());
            if let Some(tree) = entry.tree() {
                outcome.directories += 1;
                rest.push(Directory {
                    place: directory.place.join(name_of(&entry)),
                    path: [&directory.path, b"/".as_slice(), &entry.name].concat(),
                    tree: tree.clone(),
                    partial: entry.is_partial(),
                });
            } else {
                count(&entry, &directory.place, monitor, &mut outcome);
            }
        }
        if scope.clears(&directory.path) && !directory.partial {
            for existing in std::fs::read_dir(&directory.place).into_iter().flatten().flatten() {
                if !kept.contains(existing.file_name().as_bytes()) {
                    outcome.deleted += 1 + count_below(&existing.path(), cancel)?;
                    monitor.detail(&format!("would delete {}", existing.path().display()));
                }
            }
        }
    }
    Ok(outcome)
}

/// A directory of the snapshot, and of the target.
struct Directory {
    place: PathBuf,
    /// As the scope names it.
    path: Vec<u8>,
    tree: Recipe,
    partial: bool,
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

fn name_of(entry: &Entry) -> &std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(&entry.name)
}

fn count(entry: &Entry, directory: &Path, monitor: &dyn Monitor, outcome: &mut RestoreOutcome) {
    let path = directory.join(name_of(entry));
    let bytes = entry.content().map_or(0, Recipe::stream_bytes);
    outcome.files += 1;
    outcome.bytes += bytes;
    if stands_right(entry, &path) {
        outcome.files_right += 1;
    } else {
        outcome.bytes_written += bytes;
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
