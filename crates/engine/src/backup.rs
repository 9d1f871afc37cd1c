//! `backup`: what stands below some paths becomes a snapshot.
//!
//! The walk is merged with the parent snapshot's trees, both sorted by name: a file that the
//! parent knows with the same size, times and inode is taken over without being opened. What is
//! new is cut into chunks, and chunks that the repository does not hold are packed.

mod links;
mod parent;
mod totals;

use std::io::Read;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity, SnapshotId, Timestamp};
use strongroom_catalog::tree::find_entry;
use strongroom_catalog::{
    Entry, EntryKind, Metadata, Recipe, Snapshot, SnapshotStats, TreeWriteError, TreeWriter,
};
use strongroom_source::{
    ExcludeReason, InodeId, LeafKind, SourceError, SourceOptions, TreeSource, WalkEvent,
};

use crate::basis::StreamBasis;
use crate::chunk_reader::ChunkReader;
use crate::chunk_writer::{ChunkWriter, WriteStats};
use crate::error::EngineError;
use crate::packer::PackOptions;
use crate::repository::Repository;
use crate::session::Session;
use crate::stream::StreamCutter;
use links::LinkedFiles;
use parent::{ParentDirectory, find_parent};
use totals::Totals;

/// What is to be backed up, and how.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// What of them is left out.
    pub source: SourceOptions,
    /// The machine's name, as the snapshot will bear it.
    pub host: String,
    /// Who runs the backup.
    pub user: String,
    /// That user's number and group, for content that comes from a reader.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// What the user writes on the snapshot.
    pub labels: Vec<String>,
    /// Read every file, whatever the parent knows.
    pub force: bool,
    /// Store nothing; tell what would be stored.
    pub dry_run: bool,
    /// Take unchanged files over from this snapshot instead of the newest of the same paths.
    pub parent: Option<SnapshotId>,
    /// Count files and bytes beforehand, so that the monitor can tell how long it will take.
    pub count_first: bool,
    /// How chunks are packed.
    pub pack: PackOptions,
    /// Name and version of the program.
    pub program: String,
}

/// What a backup did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOutcome {
    /// The snapshot; its stats tell the amounts.
    pub snapshot: Snapshot,
    /// False for a dry run.
    pub committed: bool,
    /// Files taken over from the parent without being opened.
    pub files_unchanged: u64,
    /// Files that the parent did not have.
    pub files_new: u64,
    /// Files that the parent had otherwise.
    pub files_changed: u64,
    /// What was left out because it was asked for.
    pub excluded: u64,
    /// What was written, chunk by chunk and request by request.
    pub written: WriteStats,
}

/// Makes a snapshot of file trees.
pub fn backup(
    repository: &Repository,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let started = repository.surroundings.clock.now();
    let source = TreeSource::open(&options.paths, &source_options(repository, options))?;
    let paths: Vec<Vec<u8>> = source.roots().iter().map(|root| path_bytes(root)).collect();
    let session = options.session(repository)?;
    let reader = ChunkReader::for_parents(repository, CacheLimits::default());
    let mut writer =
        ChunkWriter::open(repository, &reader, options.pack, options.dry_run, monitor, cancel)?;
    let parent = find_parent(repository, options, &paths)?;
    let totals = Totals::start(
        &options.paths,
        source_options(repository, options),
        parent.as_ref(),
        options.count_first,
    );
    let mut run = Run {
        reader: &reader,
        monitor,
        options,
        cancel,
        cutter: StreamCutter::new(repository.chunker()),
        links: LinkedFiles::default(),
        stats: SnapshotStats::default(),
        progress: Progress::default(),
        totals,
        outcome: Counts::default(),
    };
    let walked = run.walk(source, parent.as_ref(), &mut writer)?;
    let written = writer.finish(monitor)?;
    run.stats.bytes_new = written.data_bytes;
    run.stats.bytes_stored = written.stored_bytes;
    let mut snapshot = options.snapshot(session.id, started, repository.surroundings.clock.now());
    snapshot.parent = parent.as_ref().map(|parent| parent.id);
    (snapshot.paths, snapshot.root) = (paths, walked.root);
    (snapshot.stats, snapshot.partial) = (run.stats, walked.stopped);
    let counts = run.outcome;
    if !options.dry_run {
        session.commit(&snapshot)?;
    }
    Ok(BackupOutcome {
        snapshot,
        committed: !options.dry_run,
        files_unchanged: counts.unchanged,
        files_new: counts.new,
        files_changed: counts.changed,
        excluded: counts.excluded,
        written,
    })
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
        return Err(EngineError::Argument(message));
    }
    let started = repository.surroundings.clock.now();
    let session = options.session(repository)?;
    let reader = ChunkReader::for_parents(repository, CacheLimits::default());
    let mut writer =
        ChunkWriter::open(repository, &reader, options.pack, options.dry_run, monitor, cancel)?;
    let paths = vec![[b"/", name].concat()];
    let parent = find_parent(repository, options, &paths)?;
    let before = parent.as_ref().and_then(|parent| find_entry(&parent.root, name, &reader).ok()?);
    let basis = before.as_ref().and_then(Entry::content);
    let basis = basis.map(|content| StreamBasis::new(&reader, content));
    let mut progress = Progress::default();
    let mut tell = |bytes: u64, writer: &ChunkWriter<'_>| {
        progress.bytes += bytes;
        progress.bytes_new = writer.stats().data_bytes;
        progress.bytes_stored = writer.stats().stored_bytes;
        monitor.progress(&progress);
    };
    let mut cutter = StreamCutter::new(repository.chunker());
    let mut input = StopAtCancel { input, cancel };
    let content = cutter.store_reader(&mut input, &mut writer, basis, &mut tell)?;
    let stopped = cancel.is_cancelled();
    let bytes = content.stream_bytes();
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
    let mut tree = TreeWriter::new();
    tree.push(&entry, &mut writer.metadata(None))?;
    let root = tree.finish(&mut writer.metadata(None))?;
    let written = writer.finish(monitor)?;
    let stats = SnapshotStats {
        files: 1,
        bytes,
        bytes_new: written.data_bytes,
        bytes_stored: written.stored_bytes,
        ..SnapshotStats::default()
    };
    let mut snapshot = options.snapshot(session.id, started, repository.surroundings.clock.now());
    snapshot.parent = parent.map(|parent| parent.id);
    (snapshot.paths, snapshot.root) = (paths, root);
    (snapshot.stats, snapshot.partial) = (stats, stopped);
    if !options.dry_run {
        session.commit(&snapshot)?;
    }
    let outcome = BackupOutcome {
        snapshot,
        committed: !options.dry_run,
        files_unchanged: 0,
        files_new: 1,
        files_changed: 0,
        excluded: 0,
        written,
    };
    Ok(outcome)
}

/// A reader that ends when somebody asks to stop, so that what came is kept.
struct StopAtCancel<'i> {
    input: &'i mut dyn Read,
    cancel: &'i Cancel,
}

impl Read for StopAtCancel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.cancel.is_cancelled() { Ok(0) } else { self.input.read(buffer) }
    }
}

impl BackupOptions {
    fn session<'r>(&self, repository: &'r Repository) -> Result<Session<'r>, EngineError> {
        match self.dry_run {
            true => Ok(Session::pretend(repository)),
            false => Session::begin(repository),
        }
    }

    /// A snapshot that bears what the options say, of nothing yet.
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

/// The caller's wishes, and that neither the repository nor its cache backs itself up.
fn source_options(repository: &Repository, options: &BackupOptions) -> SourceOptions {
    let mut source = options.source.clone();
    let own = [Some(PathBuf::from(repository.backend().describe())), repository.cache_folder()];
    source
        .skip_inodes
        .extend(own.into_iter().flatten().filter_map(|path| InodeId::of_path(&path).ok()));
    source
}

fn path_bytes(path: &Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}

#[derive(Default)]
struct Counts {
    unchanged: u64,
    new: u64,
    changed: u64,
    excluded: u64,
}

/// What the walk made.
struct Walked {
    root: Recipe,
    stopped: bool,
}

/// One directory on the way, with its counterpart in the parent snapshot.
struct Frame<'r> {
    name: Vec<u8>,
    metadata: Metadata,
    tree: TreeWriter,
    parent: ParentDirectory<'r>,
    basis: Option<StreamBasis<'r>>,
}

/// Everything that lasts as long as the backup.
struct Run<'r> {
    reader: &'r ChunkReader,
    monitor: &'r dyn Monitor,
    options: &'r BackupOptions,
    cancel: &'r Cancel,
    cutter: StreamCutter,
    links: LinkedFiles,
    stats: SnapshotStats,
    progress: Progress,
    totals: Totals,
    outcome: Counts,
}

impl<'r> Run<'r> {
    fn walk(
        &mut self,
        mut source: TreeSource,
        parent: Option<&Snapshot>,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<Walked, EngineError> {
        let mut frames: Vec<Frame<'r>> = Vec::new();
        let mut stopped = false;
        let root_tree = parent.map(|parent| &parent.root);
        while let Some(event) = source.next() {
            if self.cancel.is_cancelled() {
                stopped = true;
                break;
            }
            match event {
                WalkEvent::EnterDirectory { name, metadata } => {
                    let frame = self.enter(&source, name, metadata, frames.last_mut(), root_tree);
                    frames.push(frame);
                }
                WalkEvent::LeaveDirectory => {
                    if let Some(root) = self.leave(&mut frames, writer)? {
                        return Ok(Walked { root, stopped });
                    }
                }
                WalkEvent::Leaf { name, kind, metadata } => {
                    let frame = frames.last_mut().expect("a leaf stands in a directory");
                    self.leaf(&source, frame, name, kind, metadata, writer)?;
                }
                WalkEvent::Excluded { path, why } => self.excluded(&path, &why),
                WalkEvent::Problem { path, error } => self.problem(&path, &error.to_string()),
            }
            self.tell(&source);
        }
        // Stopped on the way: what was read so far is kept, as a partial snapshot.
        while !frames.is_empty() {
            if let Some(root) = self.leave(&mut frames, writer)? {
                return Ok(Walked { root, stopped });
            }
        }
        Ok(Walked { root: Recipe::default(), stopped })
    }

    fn enter(
        &mut self,
        source: &TreeSource,
        name: Vec<u8>,
        mut metadata: Metadata,
        above: Option<&mut Frame<'r>>,
        root_tree: Option<&Recipe>,
    ) -> Frame<'r> {
        let before = above.and_then(|frame| frame.parent.find(&name, self.monitor));
        let tree = match &before {
            Some(entry) => entry.tree(),
            None if name.is_empty() => root_tree,
            None => None,
        };
        let parent = ParentDirectory::new(tree, self.reader);
        let basis = tree.map(|tree| StreamBasis::new(self.reader, tree));
        metadata.xattrs = match before.filter(|before| before.metadata.same_version_as(&metadata)) {
            Some(before) => before.metadata.xattrs,
            None => self.xattrs(source, source.xattrs()),
        };
        Frame { name, metadata, tree: TreeWriter::new(), parent, basis }
    }

    /// Ends the deepest directory; gives the root's tree when that was it.
    fn leave(
        &mut self,
        frames: &mut Vec<Frame<'r>>,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<Option<Recipe>, EngineError> {
        let mut frame = frames.pop().expect("a directory is left after it was entered");
        let tree = frame.tree.finish(&mut writer.metadata(frame.basis.as_mut()))?;
        let Some(above) = frames.last_mut() else { return Ok(Some(tree)) };
        self.stats.directories += 1;
        let kind = EntryKind::Directory { tree };
        let entry = Entry { name: frame.name, kind, metadata: frame.metadata };
        self.push(above, entry, writer)?;
        Ok(None)
    }

    fn leaf(
        &mut self,
        source: &TreeSource,
        frame: &mut Frame<'r>,
        name: Vec<u8>,
        kind: LeafKind,
        mut metadata: Metadata,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<(), EngineError> {
        self.monitor.working_on(source.path());
        let before = frame.parent.find(&name, self.monitor);
        let same = before
            .as_ref()
            .filter(|before| !self.options.force && before.metadata.same_version_as(&metadata));
        if let Some(before) = same {
            metadata.xattrs.clone_from(&before.metadata.xattrs);
        }
        let is_same = same.is_some();
        let kind = match kind {
            LeafKind::File => {
                if let Some(content) = same.and_then(|before| before.content())
                    && self.is_present(content, writer)?
                {
                    self.outcome.unchanged += 1;
                    self.progress.files += 1;
                    self.progress.bytes += content.stream_bytes();
                    EntryKind::File { content: content.clone() }
                } else {
                    let is_new = before.as_ref().is_none_or(|before| before.content().is_none());
                    let before = before.as_ref().and_then(Entry::content);
                    let stored = self.store_file(source, &mut metadata, before, writer)?;
                    let Some(content) = stored else { return Ok(()) };
                    *(if is_new { &mut self.outcome.new } else { &mut self.outcome.changed }) += 1;
                    EntryKind::File { content }
                }
            }
            other => {
                if !is_same {
                    metadata.xattrs = self.xattrs(source, source.xattrs());
                }
                self.progress.files += 1;
                special(other)
            }
        };
        if let EntryKind::File { content } = &kind {
            self.stats.bytes += content.stream_bytes();
        }
        self.stats.files += 1;
        self.push(frame, Entry { name, kind, metadata }, writer)
    }

    /// Puts an entry into its directory; without its attributes where they are too large.
    fn push(
        &mut self,
        frame: &mut Frame<'r>,
        mut entry: Entry,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<(), EngineError> {
        let mut lane = writer.metadata(frame.basis.as_mut());
        match frame.tree.push(&entry, &mut lane) {
            Err(TreeWriteError::EntryTooLarge { .. }) => {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let message = "its extended attributes are too large and are left out";
                self.problem(Path::new(&name), message);
                entry.metadata.xattrs.clear();
                Ok(frame.tree.push(&entry, &mut lane)?)
            }
            other => Ok(other?),
        }
    }

    /// True where every chunk that a recipe needs is still there.
    fn is_present(
        &mut self,
        content: &Recipe,
        writer: &ChunkWriter<'_>,
    ) -> Result<bool, EngineError> {
        let mut present = true;
        let mut failed = None;
        let visited =
            strongroom_catalog::recipe::for_each_chunk(content, self.reader, &mut |chunk, _| {
                if present && failed.is_none() {
                    match writer.is_present(chunk) {
                        Ok(is_present) => present = is_present,
                        Err(error) => failed = Some(error),
                    }
                }
            });
        match (failed, visited.map_err(EngineError::from)) {
            (Some(error), _) => Err(error),
            (None, Err(error)) if error.is_damage() => Ok(false),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Ok(present),
        }
    }

    /// Stores a file's content. None where it cannot be read: it is told and left out.
    fn store_file(
        &mut self,
        source: &TreeSource,
        metadata: &mut Metadata,
        before: Option<&Recipe>,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<Option<Recipe>, EngineError> {
        if let Some(content) = self.links.take(metadata) {
            metadata.xattrs = self.xattrs(source, source.xattrs());
            self.progress.files += 1;
            self.progress.bytes += content.stream_bytes();
            return Ok(Some(content));
        }
        let file = match source.open_file() {
            Ok(file) => file,
            Err(error) => {
                self.problem(source.path(), &error.to_string());
                return Ok(None);
            }
        };
        *metadata = file.metadata().clone();
        metadata.xattrs = self.xattrs(source, source.xattrs());
        let bytes_before = self.progress.bytes;
        let progress = &mut self.progress;
        let (monitor, totals) = (self.monitor, &self.totals);
        let basis = before.map(|content| StreamBasis::new(self.reader, content));
        let mut tell = |bytes: u64, writer: &ChunkWriter<'_>| {
            progress.bytes += bytes;
            progress.bytes_new = writer.stats().data_bytes;
            progress.bytes_stored = writer.stats().stored_bytes;
            totals.apply(progress);
            monitor.progress(progress);
        };
        let content = match self.cutter.store_file(&file, writer, basis, &mut tell, self.cancel) {
            Ok(content) => content,
            // The walk sees it too, and ends.
            Err(EngineError::Cancelled(_)) => return Ok(None),
            Err(EngineError::Source(error)) => {
                self.problem(source.path(), &error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.progress.files += 1;
        // Holes too.
        self.progress.bytes = bytes_before + content.stream_bytes();
        match file.change() {
            Ok(None) => {}
            Ok(Some(_)) => self.problem(source.path(), "it changed while it was read"),
            Err(error) => self.problem(source.path(), &error.to_string()),
        }
        metadata.size = content.stream_bytes();
        self.links.put(metadata, &content);
        Ok(Some(content))
    }

    fn xattrs(
        &mut self,
        source: &TreeSource,
        xattrs: Result<Vec<strongroom_catalog::Xattr>, SourceError>,
    ) -> Vec<strongroom_catalog::Xattr> {
        xattrs.unwrap_or_else(|error| {
            self.problem(source.path(), &error.to_string());
            Vec::new()
        })
    }

    fn problem(&mut self, path: &Path, message: &str) {
        self.stats.problems += 1;
        let path = Some(path);
        self.monitor.problem(Problem { severity: Severity::Warning, path, message });
    }

    fn excluded(&mut self, path: &Path, why: &ExcludeReason) {
        self.outcome.excluded += 1;
        if let ExcludeReason::TooBig { .. } = why {
            let message = "it is larger than the limit and is left out";
            let path = Some(path);
            self.monitor.problem(Problem { severity: Severity::Note, path, message });
        } else {
            self.monitor.detail(&format!("excluded {}", path.display()));
        }
    }

    fn tell(&mut self, _source: &TreeSource) {
        self.totals.apply(&mut self.progress);
        self.monitor.progress(&self.progress);
    }
}

fn special(kind: LeafKind) -> EntryKind {
    match kind {
        LeafKind::File => unreachable!("files are stored by their content"),
        LeafKind::Symlink { target } => EntryKind::Symlink { target },
        LeafKind::Fifo => EntryKind::Fifo,
        LeafKind::Socket => EntryKind::Socket,
        LeafKind::CharDevice(device) => EntryKind::CharDevice(device),
        LeafKind::BlockDevice(device) => EntryKind::BlockDevice(device),
    }
}
