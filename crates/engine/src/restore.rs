//! `restore`: a snapshot, or a part of it, is put back.
//!
//! The trees are walked once, in order. What files need is gathered in batches, sorted by arena
//! and slot, so that each needed run of blocks is read once, in the order in which it lies
//! (Foundation §5's sorted reads taken to their end: a target is random-access, so nothing has to
//! be kept). What stands at the target already and is right is left alone, file by file and chunk
//! by chunk; that is also how an interrupted restore goes on.

mod batch;
mod behind;

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity};
use strongroom_catalog::{Entry, EntryKind, Metadata, Recipe, Snapshot, TreeReader};
use strongroom_source::{DirectoryId, Target, TargetError, TargetOptions};

use crate::chunk_reader::ChunkReader;
use crate::error::EngineError;
use crate::lookup::{Found, find_path};
use crate::repository::Repository;
use batch::{Batch, NameIn};
use behind::FlushedTarget;

/// Where a snapshot is put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestorePlace {
    /// Below this directory.
    Into(PathBuf),
    /// Where it came from.
    InPlace,
}

/// What is put back, and how.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The part of the snapshot; empty or `/` for all of it.
    pub path: Vec<u8>,
    /// Where.
    pub place: RestorePlace,
    /// How entries are put back.
    pub target: TargetOptions,
    /// Remove what stands at the target and is not in the snapshot.
    pub delete: bool,
    /// Write nothing; tell what would be done.
    pub dry_run: bool,
    /// Read every file again when it is written.
    pub verify: bool,
    /// Threads that read, decode and write.
    pub workers: usize,
}

/// What a restore did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Files (of any type but directories) of the snapshot's part.
    pub files: u64,
    /// Its directories.
    pub directories: u64,
    /// Bytes of its content.
    pub bytes: u64,
    /// Files that were right already.
    pub files_right: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Chunks that had to be read.
    pub chunks_read: u64,
    /// Requests to the backend that they were read by: blocks save the rest (Yuru §5.1.2).
    pub reads: u64,
    /// What was removed because the snapshot does not have it.
    pub deleted: u64,
    /// Entries, or attributes of them, that could not be put back.
    pub problems: u64,
    /// Files of which something is lost in the repository; each stands under its name with
    /// `.damaged` behind it.
    pub damaged: Vec<PathBuf>,
}

/// Puts a snapshot, or a part of it, back.
pub fn restore(
    repository: &Repository,
    snapshot: &Snapshot,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RestoreOutcome, EngineError> {
    let reader = ChunkReader::new(repository, CacheLimits::default())?;
    let found = find_path(snapshot, &options.path, &reader)?;
    let total = (options.path.is_empty()).then_some(snapshot.stats);
    let progress = Progress {
        files_total: total.map(|stats| stats.files),
        bytes_total: total.map(|stats| stats.bytes),
        ..Progress::default()
    };
    let base = match (&options.place, &found) {
        (RestorePlace::Into(path), _) => path.clone(),
        (RestorePlace::InPlace, Found::Root { .. }) => PathBuf::from("/"),
        (RestorePlace::InPlace, Found::Entry { entry, path }) => {
            let mut base = Path::new("/").join(std::ffi::OsStr::from_bytes(path));
            if !entry.is_directory() {
                base.pop();
            }
            base
        }
    };
    if options.dry_run {
        return crate::dry_restore::dry_restore(&reader, &found, &base, options, monitor, cancel);
    }
    let target = Target::open(&base, options.target).map_err(target_error)?;
    FlushedTarget::flush(&target, |target| {
        let mut run = Run {
            reader: &reader,
            target,
            options,
            monitor,
            cancel,
            roots: roots_of(snapshot, options),
            batch: Batch::default(),
            linked: HashMap::new(),
            lost_linked: HashSet::new(),
            progress,
            outcome: RestoreOutcome::default(),
        };
        run.restore(found)?;
        run.advise_repair();
        Ok(run.outcome)
    })
}

fn target_error(error: TargetError) -> EngineError {
    EngineError::Target(error)
}

/// Where a restore in place finds whole directories of the snapshot; what stands above them was
/// only passed through by the backup, and is neither cleared nor changed.
fn roots_of(snapshot: &Snapshot, options: &RestoreOptions) -> Option<Vec<Vec<u8>>> {
    let whole = options.path.iter().all(|byte| *byte == b'/');
    (whole && options.place == RestorePlace::InPlace).then(|| snapshot.paths.clone())
}

/// A directory whose metadata is put back when all below it is there.
struct OpenDirectory {
    id: DirectoryId,
    metadata: Option<Metadata>,
}

struct Run<'r> {
    reader: &'r ChunkReader,
    target: &'r FlushedTarget<'r>,
    options: &'r RestoreOptions,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
    roots: Option<Vec<Vec<u8>>>,
    batch: Batch,
    /// The first name of each inode that has several.
    linked: HashMap<(u64, u64), NameIn>,
    /// Those of them of which something is lost.
    lost_linked: HashSet<NameIn>,
    progress: Progress,
    outcome: RestoreOutcome,
}

impl Run<'_> {
    fn restore(&mut self, found: Found) -> Result<(), EngineError> {
        match found {
            Found::Root { tree } => self.directory(&tree, DirectoryId::ROOT, &mut Vec::new())?,
            Found::Entry { entry, .. } => match &entry.kind {
                EntryKind::Directory { tree } => {
                    self.directory(tree, DirectoryId::ROOT, &mut Vec::new())?;
                    self.close_directory(OpenDirectory {
                        id: DirectoryId::ROOT,
                        metadata: Some(entry.metadata.clone()),
                    });
                }
                _ => self.entry(DirectoryId::ROOT, *entry, true)?,
            },
        }
        self.flush()
    }

    /// Puts back what a tree holds. An explicit stack: trees are deeper than stacks.
    fn directory(
        &mut self,
        tree: &Recipe,
        root: DirectoryId,
        path: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        struct Level<'r> {
            entries: TreeReader<'r, ChunkReader>,
            directory: OpenDirectory,
            standing: HashSet<Vec<u8>>,
            path_bytes: usize,
        }
        let mut standing = self.clear(root, tree, path)?;
        let mut levels = vec![Level {
            entries: TreeReader::new(tree, self.reader),
            directory: OpenDirectory { id: root, metadata: None },
            standing: std::mem::take(&mut standing),
            path_bytes: path.len(),
        }];
        while let Some(level) = levels.last_mut() {
            self.cancel.check()?;
            path.truncate(level.path_bytes);
            let entry = match level.entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    let level = levels.pop().expect("just looked at");
                    if levels.is_empty() {
                        return Ok(());
                    }
                    self.close_directory(level.directory);
                    continue;
                }
                Err(error) => {
                    let error = EngineError::from(error);
                    if !error.is_damage() {
                        return Err(error);
                    }
                    self.lost_directory(level.directory.id, &error)?;
                    let level = levels.pop().expect("just looked at");
                    if levels.is_empty() {
                        return Ok(());
                    }
                    self.close_directory(level.directory);
                    continue;
                }
            };
            let parent = level.directory.id;
            let stands = level.standing.contains(&entry.name);
            let EntryKind::Directory { tree } = &entry.kind else {
                self.entry(parent, entry, stands)?;
                continue;
            };
            path.push(b'/');
            path.extend_from_slice(&entry.name);
            self.outcome.directories += 1;
            let id = match self.target.create_directory(parent, &entry.name) {
                Ok(id) => id,
                Err(error) => {
                    self.problem(&error);
                    continue;
                }
            };
            let standing = self.clear(id, tree, path)?;
            let above_roots = !self.is_within_roots(path);
            let metadata = (!(above_roots && stands)).then(|| entry.metadata.clone());
            levels.push(Level {
                entries: TreeReader::new(tree, self.reader),
                directory: OpenDirectory { id, metadata },
                standing,
                path_bytes: path.len(),
            });
        }
        Ok(())
    }

    fn is_within_roots(&self, path: &[u8]) -> bool {
        let Some(roots) = &self.roots else { return true };
        roots.iter().any(|root| {
            let root = root.strip_suffix(b"/").unwrap_or(root);
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    }

    /// The names that stand in a directory of the target; with `delete`, those alone that the
    /// snapshot has too.
    fn clear(
        &mut self,
        directory: DirectoryId,
        tree: &Recipe,
        path: &[u8],
    ) -> Result<HashSet<Vec<u8>>, EngineError> {
        let listed = match self.target.list(directory) {
            Ok(listed) => listed,
            Err(error) => {
                self.problem(&error);
                return Ok(HashSet::new());
            }
        };
        let mut standing: HashSet<Vec<u8>> = listed.into_iter().map(|listed| listed.name).collect();
        if !self.options.delete || standing.is_empty() || !self.is_within_roots(path) {
            return Ok(standing);
        }
        let mut surplus = standing.clone();
        let mut entries = TreeReader::new(tree, self.reader);
        loop {
            match entries.next_entry() {
                Ok(Some(entry)) => drop(surplus.remove(&entry.name)),
                Ok(None) => break,
                // What is lost in the repository is no reason to remove what stands here.
                Err(_) => return Ok(standing),
            }
        }
        for name in surplus {
            match self.target.remove(directory, &name) {
                Ok(()) => self.outcome.deleted += 1,
                Err(error) => self.problem(&error),
            }
            standing.remove(&name);
        }
        Ok(standing)
    }

    fn entry(
        &mut self,
        parent: DirectoryId,
        entry: Entry,
        stands: bool,
    ) -> Result<(), EngineError> {
        self.outcome.files += 1;
        self.outcome.bytes += entry.content().map_or(0, Recipe::stream_bytes);
        if entry.metadata.links > 1 {
            let inode = (entry.metadata.device, entry.metadata.inode);
            if let Some(first) = self.linked.get(&inode) {
                self.batch.links.push((first.clone(), (parent, entry.name)));
                self.progress.files += 1;
                return Ok(());
            }
            self.linked.insert(inode, (parent, entry.name.clone()));
        }
        let made = match &entry.kind {
            EntryKind::File { .. } => {
                self.batch.add_file(parent, entry, stands, self.reader)?;
                if self.batch.is_full() {
                    self.flush()?;
                }
                return Ok(());
            }
            EntryKind::Directory { .. } => unreachable!("directories are descended into"),
            EntryKind::Symlink { target } => {
                self.target.create_symlink(parent, &entry.name, target, &entry.metadata)
            }
            special => self.target.create_special(parent, &entry.name, special, &entry.metadata),
        };
        self.progress.files += 1;
        match made {
            Ok(problems) => problems.iter().for_each(|error| self.problem(error)),
            Err(error) => self.problem(&error),
        }
        Ok(())
    }

    fn close_directory(&mut self, directory: OpenDirectory) {
        if let Some(metadata) = directory.metadata {
            self.batch.closed.push((directory.id, metadata));
        }
    }

    /// Writes what was gathered, then links, then the metadata of directories that are complete.
    fn flush(&mut self) -> Result<(), EngineError> {
        let batch = std::mem::take(&mut self.batch);
        let written = batch::write_files(
            &batch,
            self.reader,
            self.target,
            self.options,
            self.monitor,
            self.cancel,
            &mut self.progress,
        )?;
        self.outcome.files_right += written.files_right;
        self.outcome.bytes_written += written.bytes_written;
        self.outcome.chunks_read += written.chunks_needed;
        self.outcome.reads += written.reads;
        for (path, error) in &written.damaged {
            self.damage(path, error);
        }
        self.outcome.damaged.extend(written.damaged.into_iter().map(|(path, _)| path));
        written.problems.iter().for_each(|error| self.problem(error));
        self.lost_linked.extend(written.damaged_linked);
        for (existing, new) in &batch.links {
            if self.lost_linked.contains(existing) {
                self.link_damaged(existing, new);
                continue;
            }
            let linked = self.target.hard_link((existing.0, &existing.1), (new.0, &new.1));
            linked.unwrap_or_else(|error| self.problem(&error));
        }
        // Deepest first: each was closed after all below it.
        for (directory, metadata) in &batch.closed {
            match self.target.apply_directory_metadata(*directory, metadata) {
                Ok(problems) => problems.iter().for_each(|error| self.problem(error)),
                Err(error) => self.problem(&error),
            }
        }
        Ok(())
    }

    /// Gives what could be had of a file another of its names, marked as the first is.
    fn link_damaged(&mut self, existing: &NameIn, new: &NameIn) {
        let (from, to) = (batch::damaged_name(&existing.1), batch::damaged_name(&new.1));
        if let Err(error) = self.target.hard_link((existing.0, &from), (new.0, &to)) {
            self.problem(&error);
        }
        let path = self.target.path_of(new.0, &new.1);
        let first = self.target.path_of(existing.0, &existing.1);
        self.damage(&path, &format!("it is another name of {}", first.display()));
        self.outcome.damaged.push(path);
    }

    fn problem(&mut self, error: &TargetError) {
        self.outcome.problems += 1;
        let message = error.to_string();
        let path = None;
        self.monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
    }

    fn damage(&self, path: &Path, error: &str) {
        let message = format!("{error}; what could be had of it has \".damaged\" behind its name");
        let path = Some(path);
        self.monitor.problem(Problem { severity: Severity::Damage, path, message: &message });
    }

    /// A directory whose list of names cannot be read.
    fn lost_directory(
        &mut self,
        directory: DirectoryId,
        error: &EngineError,
    ) -> Result<(), EngineError> {
        let path = self.target.path_of(directory, b"");
        let message = format!("the rest of this directory is lost: {error}");
        let problem = Problem { severity: Severity::Damage, path: Some(&path), message: &message };
        self.monitor.problem(problem);
        self.outcome.damaged.push(path);
        Ok(())
    }

    fn advise_repair(&self) {
        let heals = self.reader.store().heals();
        if heals > 0 {
            let message = "parts of the repository are damaged and were computed anew from parity: run `strongroom repair`";
            let problem = Problem { severity: Severity::Note, path: None, message };
            self.monitor.problem(problem);
        }
    }
}
