//! `backup`: makes a snapshot of everything below some paths.
//!
//! The walk is merged with the parent snapshot's trees, both sorted by name: a file that the parent
//! knows with the same size, times and inode is taken over without being opened. New content is cut
//! into chunks, and chunks that the repository does not hold are packed.

mod as_made;
mod begun;
pub mod combined;
mod expected;
pub mod image;
mod links;
mod parent;
mod parent_directory;
mod paths;
mod present;
pub mod profile;
mod racy;
mod readers;
pub mod region;
mod run;
mod scratch;
mod sources;
mod tally;
mod totals;
mod trees;
pub mod unread;
mod walker;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{
    Cancel, Monitor, Problem, Progress, Severity, SnapshotId, Stopwatch, Timestamp,
};
use strongroom_catalog::tree::find_entry;
use strongroom_catalog::{
    Entry, EntryKind, Metadata, Recipe, RecipeBuilder, Snapshot, SnapshotStats, TreeWriter,
};
use strongroom_repository::{
    ChunkReader, ChunkWriter, PackOptions, Repository, RepositoryError, Session, StreamBasis,
    StreamCutter, Surroundings, WriteStats,
};
use strongroom_source::{Patterns, SourceOptions, TreeSource};

use crate::error::EngineError;
use crate::own::own_directories;
use as_made::ShownRoot;
pub use as_made::{AsMade, ChangedFiles};
use begun::{Begun, Made};
use paths::{LeftOut, Paths};
use profile::Profile;
use racy::RacyTimes;
use readers::Readers;
use run::{Queue, Run, Walked, some_names};
use sources::{Sources, WITHOUT_KEY};
use tally::{Counted, Tally};
use totals::Totals;
use trees::{RootTree, Trees};
use unread::Trusted;
use walker::EarlyWalker;

/// What is to be backed up, and how.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// What of them is left out.
    pub source: SourceOptions,
    /// The machine's name for the snapshot.
    pub host: String,
    /// Who runs the backup.
    pub user: String,
    /// That user's number and group, for content that comes from a reader.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Labels that the user gives the snapshot.
    pub labels: Vec<String>,
    /// Read every file, even if the parent has it.
    pub force: bool,
    /// Store nothing; report what would be stored.
    pub dry_run: bool,
    /// Take unchanged files over from this snapshot instead of the newest of the same paths.
    pub parent: Option<SnapshotId>,
    /// Count files and bytes first, so that the monitor can estimate how long it will take.
    pub count_first: bool,
    /// How chunks are packed.
    pub pack: PackOptions,
    /// Threads that read files.
    pub readers: usize,
    /// Name and version of the program.
    pub program: String,
    /// What another program recorded of a snapshot of its own, if one is taken over.
    pub as_made: Option<AsMade>,
}

/// What a backup did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOutcome {
    /// The snapshot; its stats are the numbers.
    pub snapshot: Snapshot,
    /// Whether there is a snapshot now: not after a dry run, nor if the backup was stopped before
    /// it had stored a file.
    pub committed: bool,
    /// Whether a path could not be reached, or far less was found than the snapshots before it
    /// have: what is old may be needed yet.
    pub is_doubtful: bool,
    /// An earlier snapshot and its time, if that is later than this machine's clock: one of the two
    /// clocks is wrong.
    pub from_the_future: Option<(SnapshotId, Timestamp)>,
    /// The snapshot that this machine made last, and its sequence, if it is missing and no collection
    /// removed it: an older copy of the repository may be in its place.
    pub rolled_back: Option<(SnapshotId, u64)>,
    /// Files that equal the parent's. They were not opened, unless their times prove nothing: by their
    /// file system, or because they had changed shortly before the parent was made.
    pub files_unchanged: u64,
    /// Files that the parent did not have.
    pub files_new: u64,
    /// Files that differ from the parent's.
    pub files_changed: u64,
    /// What was left out on request.
    pub excluded: u64,
    /// What was written, chunk by chunk and request by request.
    pub written: WriteStats,
    /// How long each stage took.
    pub profile: Profile,
}

/// How often a backup begins a new session because a collector has ended the one before.
const SESSIONS: u32 = 3;

/// A snapshot, of 4 MiB at most, names its paths.
const PATHS_BYTES_MAX: usize = 3 << 20;

/// A walk that has begun, before the repository is open: far away, that takes a while.
pub struct BegunWalk {
    started: Timestamp,
    paths: Paths,
    /// The caller's options, extended so that neither the repository nor its caches are backed up.
    source: SourceOptions,
    roots: Vec<Vec<u8>>,
    excludes: Patterns,
    walker: EarlyWalker,
    /// The directory in which another program shows the tree.
    shown: Option<ShownRoot>,
}

impl BegunWalk {
    /// Begins to walk through these paths.
    ///
    /// # Errors
    ///
    /// None of the paths can be backed up, or a pattern is invalid.
    pub fn begin(
        surroundings: &Surroundings,
        paths: &[PathBuf],
        source: &SourceOptions,
    ) -> Result<Self, EngineError> {
        let started = surroundings.clock.now();
        let own = own_directories(surroundings);
        let paths = Paths::find(paths, &own)?;
        let mut source = source.clone();
        source.skip_inodes.extend(own);
        let shown = source.root.as_ref().map(|root| ShownRoot::find(&root.path)).transpose()?;
        let trees = TreeSource::open(&paths.found, &source)?;
        let roots: Vec<Vec<u8>> = trees.roots().iter().map(|root| path_bytes(root)).collect();
        if roots.iter().map(Vec::len).sum::<usize>() > PATHS_BYTES_MAX {
            let message = "the paths are too many for a snapshot: name directories instead of what \
                           is in them, or make several snapshots";
            return Err(RepositoryError::Argument(message.to_owned()).into());
        }
        let excludes = trees.patterns().clone();
        let walker = EarlyWalker::start(trees);
        Ok(Self { started, paths, source, roots, excludes, walker, shown })
    }
}

/// Makes a snapshot of file trees.
pub fn backup(
    repository: &Repository,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let walk = BegunWalk::begin(&repository.surroundings, &options.paths, &options.source)?;
    backup_walk(repository, walk, options, monitor, cancel)
}

/// The same, of a walk that has begun through the paths of the options. If it begins again, it reads
/// the files again.
pub fn backup_walk(
    repository: &Repository,
    walk: BegunWalk,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let mut begun = Some(walk);
    in_sessions(monitor, &mut || {
        let walk = match begun.take() {
            Some(walk) => walk,
            None => BegunWalk::begin(&repository.surroundings, &options.paths, &options.source)?,
        };
        backup_in_session(repository, walk, options, monitor, cancel)
    })
}

/// Makes a backup. If a collector loses its patience with the session and ends it, another one
/// begins, and finds what the first has stored.
fn in_sessions(
    monitor: &dyn Monitor,
    attempt: &mut dyn FnMut() -> Result<BackupOutcome, EngineError>,
) -> Result<BackupOutcome, EngineError> {
    let mut sessions = 1;
    loop {
        match attempt() {
            Err(EngineError::Repository(RepositoryError::Fenced { session }))
                if sessions < SESSIONS =>
            {
                sessions += 1;
                let session = session.short();
                monitor.detail(&format!(
                    "a prune has ended this backup ({session}), which began too long ago: it \
                     begins again, and finds what is stored"
                ));
            }
            other => return other,
        }
    }
}

fn backup_in_session(
    repository: &Repository,
    walk: BegunWalk,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let BegunWalk { started, paths, source, roots, excludes, walker, shown } = walk;
    let Paths { found, left_out } = paths;
    let (paths, given) = match &options.as_made {
        None => (roots.clone(), roots),
        // What is shown of another program's snapshot is compared with what that program says.
        Some(made) => (made.paths.clone(), Vec::new()),
    };
    let mut begun = Begun::begin(repository, options, &paths, started, monitor)?;
    let parent = begun.parent.as_ref();
    let trusted = Trusted::of(parent);
    let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
    let (pack, dry_run) = (options.pack, options.dry_run);
    let mut writer =
        ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)?;
    let totals = Totals::start(&found, source, parent, options.count_first);
    let watch = Stopwatch::start();
    let times = writer.times().clone();
    let cutter = StreamCutter::of_files(repository)?;
    let mut tally = Tally::new(monitor, totals);
    tally.sources = Sources::new(&given, begun.expected.were_missing.clone());
    if begun.expected.knows_accepted {
        tally.sources.remember_unmounted();
    }
    for LeftOut { path, why, .. } in &left_out {
        tally.problem(path, why);
    }
    let run = Run {
        reader: &reader,
        readers: Readers::start(options.readers, &cutter, cancel, &times),
        trees: Trees::new(&reader, &mut writer, cancel),
        tally,
        path: PathBuf::new(),
        excludes: &excludes,
        one_file_system: options.source.one_file_system,
        force: options.force,
        as_made: options.as_made.as_ref(),
        racy: parent.map(RacyTimes::of),
        asks_attributes: trusted.are_new,
        made_up: BTreeSet::new(),
        cancel,
        queue: Queue::new(repository.limits.ahead_bytes_max),
    };
    let Walked { root, stopped, mut tally } = run.walk(walker.begin(&times), parent)?;
    let compared = shown.as_ref().map_or(Ok(()), ShownRoot::check).and_then(|()| {
        let made = options.as_made.as_ref().filter(|_| !stopped);
        made.map_or(Ok(None), |made| made.compare(&tally.counted.stats))
    });
    if let Some(message) = compared.inspect_err(|_| begun.session.give_up())? {
        tally.problem(Path::new("/"), &message);
    }
    // What another program shows is what it has stored of them.
    begun.lists_trusted = trusted.are_listed && options.as_made.is_none();
    if !stopped {
        if let Some(path) = tally.sources.none_reached() {
            let why = "it could not be read, as was reported";
            return Err(paths::nothing_of(Path::new(OsStr::from_bytes(path)), why));
        }
        for path in tally.sources.without_key() {
            tally.problem(Path::new(OsStr::from_bytes(&path)), WITHOUT_KEY);
        }
        let names_of = |path: &[u8]| parent.map_or(Vec::new(), |it| some_names(it, path, &reader));
        begun.missing = tally.sources.missing(names_of);
    }
    let needs = writer.needs();
    let written = writer.finish(monitor)?;
    let profile = Profile::new(watch.elapsed(), &times, options.readers, options.pack.workers);
    let counted = tally.counted;
    // Of another program's snapshot, a part is of no use: that program still has the whole.
    let is_part_worth = counted.stats.files > 0 && options.as_made.is_none();
    let made = Made {
        started,
        paths,
        root,
        counted,
        stopped,
        is_part_worth,
        needs,
        written,
        profile,
        guarantee: None,
    };
    let mut outcome = begun.end(made, repository, options, monitor)?;
    outcome.is_doubtful |= left_out.iter().any(|left_out| left_out.is_missing);
    Ok(outcome)
}

/// Makes a snapshot of one file, whose content comes from a reader.
pub fn backup_reader(
    repository: &Repository,
    name: &[u8],
    input: &mut dyn Read,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    if !strongroom_catalog::entry::is_valid_name(name) {
        let name = String::from_utf8_lossy(name);
        let message = format!("\"{name}\" cannot name a file: give a name without slashes");
        return Err(RepositoryError::Argument(message).into());
    }
    let started = repository.surroundings.clock.now();
    let paths = vec![[b"/", name].concat()];
    let mut begun = Begun::begin(repository, options, &paths, started, monitor)?;
    let parent = begun.parent.as_ref();
    let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
    let (pack, dry_run) = (options.pack, options.dry_run);
    let mut writer =
        ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)?;
    let before = parent.and_then(|parent| find_entry(&parent.root, name, &reader).ok()?);
    let before = before.as_ref().and_then(Entry::content);
    let watch = Stopwatch::start();
    let content = store_reader(repository, &reader, before, input, &mut writer, monitor, cancel)?;
    let stopped = cancel.is_cancelled();
    let bytes = content.stream_bytes();
    let had_bytes = before.is_some_and(|content| content.stream_bytes() > 0);
    let was_missing = begun.expected.were_missing.contains_key(&paths[0]);
    if bytes == 0 && !stopped && (before.is_none() || had_bytes || was_missing) {
        begun.missing.insert(paths[0].clone(), Vec::new());
        let path = Some(Path::new(OsStr::from_bytes(&paths[0])));
        let message = if had_bytes { sources::EMPTIED } else { sources::EMPTY_STREAM };
        monitor.problem(Problem { severity: Severity::Warning, path, message });
    }
    let metadata = Metadata {
        mode: 0o600,
        uid: options.uid,
        gid: options.gid,
        mtime: started,
        ctime: started,
        links: 1,
        size: bytes,
        ..Metadata::default()
    };
    let entry = Entry { name: name.to_vec(), kind: EntryKind::File { content }, metadata };
    // A stream that was stopped before its first byte is not worth a snapshot, so there is no tree either
    // that could be taken for that of one.
    let is_part_worth = bytes > 0;
    let root = match is_part_worth || !stopped {
        true => {
            let mut tree = TreeWriter::new();
            tree.push(&entry, &mut writer.metadata(None))?;
            tree.finish_root(&mut writer.metadata(None))?
        }
        false => Recipe::default(),
    };
    let times = writer.times().clone();
    let needs = writer.needs();
    let written = writer.finish(monitor)?;
    let profile = Profile::new(watch.elapsed(), &times, 1, options.pack.workers);
    let files = u64::from(is_part_worth || !stopped);
    let problems = begun.missing.len() as u64;
    let stats = SnapshotStats { files, bytes, problems, ..SnapshotStats::default() };
    let made = Made {
        started,
        paths,
        root: RootTree { recipe: root, partial: false },
        counted: Counted { stats, new: 1, ..Counted::default() },
        stopped,
        is_part_worth,
        needs,
        written,
        profile,
        guarantee: None,
    };
    begun.end(made, repository, options, monitor)
}

/// Stores the content from a reader, to its end or until it is stopped.
fn store_reader(
    repository: &Repository,
    reader: &ChunkReader,
    before: Option<&Recipe>,
    input: &mut dyn Read,
    writer: &mut ChunkWriter<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Recipe, EngineError> {
    let cutter = StreamCutter::of_files(repository)?;
    let mut basis = before.map(|content| StreamBasis::new(reader, content));
    let mut recipe = RecipeBuilder::new();
    let mut progress = Progress::default();
    // What came before a stop is kept.
    let mut read = |buffer: &mut [u8]| loop {
        if cancel.is_cancelled() {
            return Ok((0, true));
        }
        match input.read(buffer) {
            Ok(count) => return Ok((count, count == 0)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(EngineError::Input(error)),
        }
    };
    cutter.cut(u64::MAX, &mut read, &mut |piece| {
        for (chunk, fingerprint) in piece.chunks() {
            let offset = recipe.stream_bytes();
            let chunk = writer.put_data(chunk, fingerprint, offset, basis.as_mut())?;
            recipe.push(chunk, &mut writer.metadata(basis.as_mut()))?;
            progress.bytes += chunk.stream_bytes;
            progress.bytes_new = writer.stats().data_bytes;
            progress.bytes_stored = writer.stats().stored_bytes;
            monitor.progress(&progress);
        }
        Ok(())
    })?;
    Ok(recipe.finish(&mut writer.metadata(basis.as_mut()))?)
}

impl BackupOptions {
    fn session<'r>(&self, repository: &'r Repository) -> Result<Session<'r>, EngineError> {
        match self.dry_run {
            true => Ok(Session::pretend(repository)),
            false => {
                let writer = self.as_made.as_ref().map_or(&self.host, |made| &made.importer);
                Ok(Session::create(repository, writer)?)
            }
        }
    }

    /// An empty snapshot with the data of the options.
    fn snapshot(&self, id: SnapshotId, started: Timestamp, ended: Timestamp) -> Snapshot {
        Snapshot {
            started,
            ended,
            host: self.host.clone(),
            user: self.user.clone(),
            labels: self.labels.clone(),
            program: self.program.clone(),
            ..Snapshot::empty(id)
        }
    }
}

fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}
