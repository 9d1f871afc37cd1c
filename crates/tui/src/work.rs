//! What takes long, done on another thread than the one that draws.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use globset::{GlobBuilder, GlobMatcher};
use strongroom_arena::CacheLimits;
use strongroom_base::units::counted;
use strongroom_base::{Cancel, Cancelled, Monitor, Printable, Problem, Progress};
use strongroom_catalog::{Entry, EntryKind, Snapshot, Xattr};
use strongroom_engine::{
    Change, ChangeKind, DiffOptions, DiffOutcome, DiffSide, EngineError, FindPattern, Modified,
    RestoreOptions, RestoreOutcome, RestorePlace, Sighting, cat, diff, find, restore,
};
use strongroom_repository::{
    ChunkReader, Repository, RepositoryError, SnapshotEvent, SnapshotWalk, find_path,
    list_sessions, list_snapshots,
};
use strongroom_source::TargetOptions;

use crate::message::{
    ChangeRow, Failure, FileRow, FoundRow, Kind, Report, Request, SessionRow, SnapshotRow,
};

/// At most this many differences, or versions that were found, are listed.
const ROWS_MAX: usize = 100_000;
/// At most this much of a file is shown.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// At most this many problems are listed.
const PROBLEMS_MAX: usize = 10_000;

/// Does what is asked for, and reports how far it has come. The result is the last report.
pub fn perform(
    repository: &Repository,
    request: &Request,
    report: &(dyn Fn(Report) + Send + Sync),
    cancel: &Cancel,
) -> Report {
    let monitor = Reporter::new(report);
    let done = match request {
        Request::Snapshots => snapshots(repository),
        Request::Directory { snapshot, path } => directory(repository, snapshot, path, cancel),
        Request::Compare { before, after } => {
            compare(repository, [before, after], &monitor, cancel)
        }
        Request::Find { pattern } => search(repository, pattern, &monitor, cancel),
        Request::Text { snapshot, path } => text(repository, snapshot, path, cancel),
        Request::Existing(places) => Ok(existing(places)),
        Request::Restore { snapshot, parts } => {
            put_back(repository, snapshot, parts, &monitor, cancel)
        }
        Request::Sessions => sessions(repository),
    };
    match done {
        Ok(done) => done,
        Err(_) if cancel.is_cancelled() => Report::Cancelled,
        Err(error) => Report::Failed(Failure { message: error.to_string() }),
    }
}

/// Passes progress on, and keeps problems.
struct Reporter<'r> {
    report: &'r (dyn Fn(Report) + Send + Sync),
    // A plain mutex: problems are few.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    what: Vec<u8>,
    problems: Vec<String>,
    further: u64,
}

impl<'r> Reporter<'r> {
    fn new(report: &'r (dyn Fn(Report) + Send + Sync)) -> Self {
        Self { report, kept: Mutex::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn problems(&self) -> Vec<String> {
        let mut kept = self.kept();
        let mut problems = std::mem::take(&mut kept.problems);
        if kept.further > 0 {
            problems.push(format!("and {} more", kept.further));
        }
        problems
    }
}

impl Monitor for Reporter<'_> {
    fn progress(&self, progress: &Progress) {
        let what = self.kept().what.clone();
        (self.report)(Report::Progress { progress: progress.clone(), what });
    }

    fn working_on(&self, what: &Path) {
        let mut kept = self.kept();
        kept.what.clear();
        kept.what.extend_from_slice(what.as_os_str().as_bytes());
    }

    fn problem(&self, problem: Problem<'_>) {
        let message = strongroom_base::printable::printable_line(problem.message).into_owned();
        let text = match problem.path {
            Some(path) if !problem.message.contains(&*path.to_string_lossy()) => {
                format!("{}: {message}", Printable::path(path))
            }
            _ => message,
        };
        let mut kept = self.kept();
        match kept.problems.len() < PROBLEMS_MAX {
            true => kept.problems.push(text),
            false => kept.further += 1,
        }
    }
}

fn snapshots(repository: &Repository) -> Result<Report, EngineError> {
    let list = list_snapshots(repository)?;
    let mut notes = Vec::new();
    if !list.unreadable.is_empty() {
        let count = list.unreadable.len() as u64;
        let count = counted(count, "snapshot is", "snapshots are");
        notes.push(format!("{count} not readable: `strongroom snapshots` says why"));
    }
    if !list.newer.is_empty() {
        let count = list.newer.len() as u64;
        let count = counted(count, "snapshot is", "snapshots are");
        notes.push(format!("{count} of a newer program"));
    }
    let wishes = &list.wishes;
    let rows = list.snapshots.iter().rev().map(|snapshot| SnapshotRow {
        held: wishes.hold(snapshot.id).map(|hold| hold.reason),
        description: wishes.remarks().about(snapshot.id).description,
        snapshot: Arc::new(snapshot.clone()),
    });
    Ok(Report::Snapshots { rows: rows.collect(), notes })
}

fn directory(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
    cancel: &Cancel,
) -> Result<Report, EngineError> {
    let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
    let found = find_path(snapshot, path, &reader)?;
    let mut walk = SnapshotWalk::new(&found, &reader, cancel);
    let (mut rows, mut lost) = (Vec::new(), None);
    let mut is_top = true;
    while let Some(event) = walk.next()? {
        match event {
            SnapshotEvent::Enter(_) if is_top => {}
            SnapshotEvent::Enter(directory) => {
                rows.extend(directory.entry.map(row_of));
                walk.skip();
            }
            SnapshotEvent::Leaf { entry, .. } => rows.push(row_of(entry)),
            SnapshotEvent::Leave { .. } => {}
            SnapshotEvent::Lost { error, .. } => lost = Some(error.to_string()),
        }
        is_top = false;
    }
    // Directories first, as in other programs that browse files.
    rows.sort_by_key(|row| !matches!(row.kind, Kind::Directory(_)));
    Ok(Report::Directory { rows, lost })
}

fn row_of(entry: &Entry) -> FileRow {
    let kind = match &entry.kind {
        EntryKind::File { .. } => Kind::File,
        EntryKind::Directory { partial, .. } => Kind::Directory(*partial),
        EntryKind::Symlink { target } => Kind::Symlink(target.clone()),
        EntryKind::Fifo => Kind::Special('p'),
        EntryKind::Socket => Kind::Special('s'),
        EntryKind::CharDevice(_) => Kind::Special('c'),
        EntryKind::BlockDevice(_) => Kind::Special('b'),
    };
    let mut metadata = entry.metadata.clone();
    let names = metadata.xattrs.into_iter();
    metadata.xattrs = names.map(|xattr| Xattr { value: Vec::new(), ..xattr }).collect();
    FileRow { name: entry.name.clone(), kind, metadata }
}

fn compare(
    repository: &Repository,
    [before, after]: [&Snapshot; 2],
    monitor: &Reporter<'_>,
    cancel: &Cancel,
) -> Result<Report, EngineError> {
    let (mut rows, mut only_times) = (Vec::new(), 0);
    let mut visit = |change: &Change| {
        let time = Modified { mtime: true, ..Modified::default() };
        if change.kind == ChangeKind::Modified(time) {
            only_times += 1;
        } else if rows.len() < ROWS_MAX {
            rows.push(change_row(change));
        }
        Ok(())
    };
    let side = |snapshot| DiffSide::Snapshot { snapshot, path: b"" };
    let options = DiffOptions { content: false };
    let outcome: DiffOutcome =
        diff(repository, side(before), side(after), options, &mut visit, monitor, cancel)?;
    Ok(Report::Changes { rows, outcome, only_times })
}

fn change_row(change: &Change) -> ChangeRow {
    let (sign, what) = match change.kind {
        ChangeKind::Added => ('+', String::new()),
        ChangeKind::Removed => ('-', String::new()),
        ChangeKind::Type => ('T', "another kind".to_owned()),
        ChangeKind::Modified(Modified { content, mode, owner, mtime, xattrs }) => {
            let parts = [
                (content, "content"),
                (mode, "mode"),
                (owner, "owner"),
                (mtime && !content, "time"),
                (xattrs, "xattrs"),
            ];
            let parts = parts.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name);
            ('M', parts.collect::<Vec<_>>().join(", "))
        }
    };
    ChangeRow { sign, path: change.path.clone(), what, growth: change.bytes_delta() }
}

fn search(
    repository: &Repository,
    pattern: &str,
    monitor: &Reporter<'_>,
    cancel: &Cancel,
) -> Result<Report, EngineError> {
    let wanted = Wanted::of(pattern).map_err(RepositoryError::Argument)?;
    let fits = |name: &[u8], _: &Entry| wanted.fits(name);
    let pattern = match wanted.is_path() {
        true => FindPattern::Path(&fits),
        false => FindPattern::Name(&fits),
    };
    let list = list_snapshots(repository)?;
    let unread = (list.unreadable.len() + list.newer.len()) as u64;
    let snapshots: Vec<Snapshot> = list.snapshots;
    let known: HashMap<_, Arc<Snapshot>> =
        snapshots.iter().map(|snapshot| (snapshot.id, Arc::new(snapshot.clone()))).collect();
    let mut rows: Vec<FoundRow> = Vec::new();
    let mut newest: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut further = 0_u64;
    let mut visit = |sighting: &Sighting<'_>| {
        let path = sighting.path.strip_prefix(b"/").unwrap_or(sighting.path);
        let file = row_of(sighting.entry);
        let Some(snapshot) = known.get(&sighting.snapshot.id) else { return Ok(()) };
        if let Some(row) = newest.get(path).map(|place| &mut rows[*place])
            && row.file.kind == file.kind
            && row.file.metadata.same_version_as(&file.metadata)
        {
            row.last = snapshot.clone();
            row.snapshots += 1;
        } else if rows.len() < ROWS_MAX {
            newest.insert(path.to_vec(), rows.len());
            let (path, first, last) = (path.to_vec(), snapshot.id, snapshot.clone());
            rows.push(FoundRow { path, file, first, last, snapshots: 1 });
        } else {
            further += 1;
        }
        Ok(())
    };
    let outcome = find(repository, &snapshots, pattern, &mut visit, monitor, cancel)?;
    // The newest version of each is the first.
    rows.reverse();
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    let note = match (further, outcome.damaged) {
        (0, 0) if unread > 0 => Some(format!(
            "{} not searched, because they cannot be read",
            counted(unread, "snapshot was", "snapshots were")
        )),
        (0, 0) => None,
        (0, damaged) => Some(format!(
            "{} damaged: something may be missing",
            counted(damaged, "directory is", "directories are")
        )),
        (further, _) => Some(format!("and {further} more: give more of the name")),
    };
    Ok(Report::Found { rows, note })
}

/// What a name is compared with.
enum Wanted {
    /// A part of it, in lower case.
    Part(String),
    /// A pattern.
    Pattern(GlobMatcher, bool),
}

impl Wanted {
    fn of(pattern: &str) -> Result<Self, String> {
        if !pattern.contains(['*', '?', '[', '/']) {
            return Ok(Self::Part(pattern.to_lowercase()));
        }
        let is_path = pattern.contains('/');
        let glob = GlobBuilder::new(pattern).literal_separator(is_path).build();
        let glob = glob.map_err(|error| format!("invalid pattern: {error}"))?;
        Ok(Self::Pattern(glob.compile_matcher(), is_path))
    }

    fn is_path(&self) -> bool {
        matches!(self, Self::Pattern(_, true))
    }

    fn fits(&self, name: &[u8]) -> bool {
        match self {
            Self::Part(part) => String::from_utf8_lossy(name).to_lowercase().contains(part),
            Self::Pattern(matcher, _) => matcher.is_match(Path::new(OsStr::from_bytes(name))),
        }
    }
}

fn text(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
    cancel: &Cancel,
) -> Result<Report, EngineError> {
    let mut beginning = Beginning { bytes: Vec::new(), is_cut: false, cancel };
    match cat(repository, snapshot, path, &mut beginning) {
        Err(_) if beginning.is_cut => {}
        other => {
            other?;
        }
    }
    Ok(Report::Text { bytes: beginning.bytes, is_cut: beginning.is_cut })
}

/// Takes the first bytes, and refuses the rest.
struct Beginning<'c> {
    bytes: Vec<u8>,
    is_cut: bool,
    cancel: &'c Cancel,
}

impl Write for Beginning<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.cancel.check().map_err(std::io::Error::other)?;
        let room = TEXT_BYTES_MAX - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            self.is_cut = true;
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A place that ends with `*` means all that is in a folder.
fn existing(places: &[PathBuf]) -> Report {
    let mut found = Vec::new();
    for place in places {
        match place.parent().filter(|_| place.file_name() == Some(OsStr::new("*"))) {
            Some(folder) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten();
                found.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
            }
            None if place.symlink_metadata().is_ok() => found.push(place.clone()),
            None => {}
        }
    }
    found.sort();
    Report::Existing(found)
}

fn put_back(
    repository: &Repository,
    snapshot: &Snapshot,
    parts: &[(Vec<u8>, PathBuf)],
    monitor: &Reporter<'_>,
    cancel: &Cancel,
) -> Result<Report, EngineError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut total = RestoreOutcome::default();
    for (path, place) in parts {
        cancel.check().map_err(|Cancelled| RepositoryError::from(Cancelled))?;
        let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
        let is_directory = match find_path(snapshot, path, &reader)? {
            strongroom_repository::Found::Root { .. } => true,
            strongroom_repository::Found::Entry { entry, .. } => entry.is_directory(),
        };
        drop(reader);
        // What is in a directory goes into the place, and a file into the folder of its place.
        let folder = match place.parent() {
            Some(parent) if !is_directory => parent,
            _ => place,
        };
        let options = RestoreOptions {
            filter: None,
            path: path.clone(),
            place: RestorePlace::Into(folder.to_owned()),
            target: TargetOptions::default(),
            kept: Vec::new(),
            dry_run: false,
            verify: false,
            workers: cores + 2,
        };
        let outcome = restore(repository, snapshot, &options, monitor, cancel)?;
        add(&mut total, outcome);
    }
    Ok(Report::Restored { outcome: total, problems: monitor.problems() })
}

fn add(total: &mut RestoreOutcome, outcome: RestoreOutcome) {
    total.files += outcome.files;
    total.directories += outcome.directories;
    total.bytes += outcome.bytes;
    total.files_failed += outcome.files_failed;
    total.files_right += outcome.files_right;
    total.bytes_written += outcome.bytes_written;
    total.problems += outcome.problems;
    total.damaged.extend(outcome.damaged);
    total.withheld.extend(outcome.withheld);
}

fn sessions(repository: &Repository) -> Result<Report, EngineError> {
    let sessions = list_sessions(repository)?.into_iter().map(|session| SessionRow {
        id: session.id,
        writer: match session.head {
            Ok(head) => Ok((head.host, head.started)),
            Err(error) => Err(error.to_string()),
        },
    });
    Ok(Report::Sessions(sessions.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_a_part_or_a_pattern() {
        for (pattern, name, fits) in [
            ("thesis", "My Thesis.odt", true),
            ("*.odt", "My Thesis.odt", true),
            ("*.odt", "odt", false),
            ("/home/*/x", "/home/me/x", true),
            ("/home/*/x", "/home/me/a/x", false),
        ] {
            assert_eq!(Wanted::of(pattern).unwrap().fits(name.as_bytes()), fits, "{pattern}");
        }
        assert!(Wanted::of("[").is_err());
    }

    #[test]
    fn what_exists_is_asked_about() {
        let Report::Existing(found) = existing(&["/".into(), "/no-such-thing".into(), "/*".into()])
        else {
            panic!("another report");
        };
        assert!(found.contains(&PathBuf::from("/")) && !found.contains(&"/no-such-thing".into()));
        assert!(found.contains(&PathBuf::from("/etc")));
    }
}
