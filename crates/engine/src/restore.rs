//! `restore`: a snapshot, or a part of it, is put back.
//!
//! The trees are walked once, in order. What files need is gathered in batches, sorted by arena
//! and slot, so that each needed run of blocks is read once, in the order in which it lies
//! (Foundation §5's sorted reads taken to their end: a target is random-access, so nothing has to
//! be kept). What is right at the target already is left alone, file by file, and of a file that
//! differs each chunk that is right is used; that is also how an interrupted restore goes on.

mod batch;
mod behind;
mod disk;
mod dry;
mod further_names;
mod names;
mod region;
mod report;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use batch::{Batch, FurtherName, Making, NameIn, NotBack, PendingFile, is_right};
use behind::FlushedTarget;
pub use disk::{DiskOutcome, disks_of, read_disk, restore_disk};
use names::Names;
pub use region::load_region;
pub(crate) use scope::Scope;
use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Progress};
use strongroom_catalog::{
    Entry, EntryKind, LinkKey, LinkTable, Metadata, Recipe, Snapshot, TreeReader,
};
use strongroom_repository::{
    ChunkReader, EnteredDirectory, Found, Repository, RepositoryError, SnapshotEvent, find_path,
};
use strongroom_source::{
    DirectoryId, Existing, ExistingFile, InodeId, PathFilter, Target, TargetError, TargetOptions,
};

use crate::error::EngineError;
use crate::own::own_directories;
use crate::wanted::{WantedEvent, WantedWalk};

/// At most this many files with further names to come are remembered, some 100 bytes each.
const LINKED_MAX: usize = 300_000;

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
    /// Of that, only what this wants. Not together with `delete`.
    pub filter: Option<PathFilter>,
    /// Where.
    pub place: RestorePlace,
    /// How entries are put back. With `delete`, what the snapshot lacks is removed from the
    /// directories below the paths that were backed up, unless the backup left something out of
    /// them.
    pub target: TargetOptions,
    /// Folders and files that are neither removed nor restored into, beside those of the repository: other
    /// places, such as replicas.
    pub kept: Vec<PathBuf>,
    /// Write nothing; report what would be done.
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
    /// Those of the files that have not come back.
    pub files_failed: u64,
    /// Files that were right already.
    pub files_right: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Chunks that had to be read.
    pub chunks_read: u64,
    /// Requests to the backend that they were read by: blocks save the rest (Yuru §5.1.2).
    pub reads: u64,
    /// What was removed because the snapshot does not have it, with all that was below it.
    pub deleted: u64,
    /// Entries, or attributes of them, that could not be put back.
    pub problems: u64,
    /// Files of which something is lost in the repository, and directories of whose names some are
    /// lost. The recovered parts of a file are beside it, with `.damaged` behind its name.
    pub damaged: Vec<PathBuf>,
    /// Files of which the place withholds something, and directories of whose names it withholds some,
    /// and what it said: they were left out, and what existed is as it was.
    pub withheld: Vec<(PathBuf, String)>,
}

/// Puts a snapshot, or a part of it, back.
pub fn restore(
    repository: &Repository,
    snapshot: &Snapshot,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RestoreOutcome, EngineError> {
    let reader = ChunkReader::for_restore(repository, &snapshot.domain, CacheLimits::default())?;
    let found = find_path(snapshot, &options.path, &reader)?;
    let is_whole = matches!(found, Found::Root { .. }) && options.filter.is_none();
    let progress = Progress {
        files_total: is_whole.then_some(snapshot.stats.files),
        bytes_total: is_whole.then_some(snapshot.stats.bytes),
        ..Progress::default()
    };
    let base = match (&options.place, &found) {
        (RestorePlace::Into(path), _) => path.clone(),
        (RestorePlace::InPlace, Found::Root { .. }) => PathBuf::from("/"),
        (RestorePlace::InPlace, Found::Entry { entry, path }) => {
            let mut base = Path::new("/").join(OsStr::from_bytes(path));
            if !entry.is_directory() {
                base.pop();
            }
            base
        }
    };
    refuse_to_empty_what_is_above(options)?;
    refuse_to_delete_what_is_unwanted(options)?;
    let scope = Scope::new(snapshot, options);
    if options.dry_run {
        let walk = WantedWalk::new(&found, options.filter.as_ref(), &reader, cancel);
        let walk = walk.passing_withheld();
        return dry::dry_restore(walk, &base, &scope, monitor, cancel);
    }
    let existed = base.exists();
    let target = Target::open(&base, options.target).map_err(target_error)?;
    let target = if snapshot.lists_trusted { target } else { target.keeping_trusted() };
    let kept = options.kept.iter().filter_map(|path| InodeId::of_path(path).ok());
    let target =
        target.keeping(own_directories(&repository.surroundings).into_iter().chain(kept).collect());
    FlushedTarget::flush(&target, |target| {
        let mut run = Run {
            reader: &reader,
            target,
            options,
            monitor,
            cancel,
            scope,
            batch: Batch::default(),
            linked: LinkTable::new(LINKED_MAX),
            replaced: 0,
            lacks_room: false,
            unjoined: 0,
            unlinked: 0,
            not_back: HashMap::new(),
            uncleared: 0,
            progress,
            outcome: RestoreOutcome::default(),
        };
        let done = run.restore(&found, existed);
        if let Some(unfinished) = run.batch.begun.take() {
            unfinished.discard(target);
        }
        done?;
        run.advise();
        Ok(run.outcome)
    })
}

/// `/` is no place to be made equal to a part of a snapshot, nor is a folder above what is restored: who names
/// it means that the part is put back below.
fn refuse_to_empty_what_is_above(options: &RestoreOptions) -> Result<(), EngineError> {
    let RestorePlace::Into(target) = &options.place else { return Ok(()) };
    let source = Path::new("/").join(OsStr::from_bytes(&options.path));
    // As they are called, and where links lead now.
    let names = |path: &Path| [std::path::absolute(path).ok(), path.canonicalize().ok()];
    let [targets, sources] = [names(target), names(&source)];
    let is_above = |target: &&PathBuf| {
        let is_below = |source: &PathBuf| source != *target && source.starts_with(target);
        **target == Path::new("/") || sources.iter().flatten().any(is_below)
    };
    let is_there = options.target.delete && target.exists();
    let above = targets.iter().flatten().find(is_above).filter(|_| is_there);
    let Some(target) = above else { return Ok(()) };
    let what = match target == Path::new("/") {
        true => "/".to_owned(),
        false => format!("{}, which is above {}", target.display(), source.display()),
    };
    Err(RepositoryError::Argument(format!(
        "nothing is deleted from {what}: to bring the paths that were backed up into the state of the \
         snapshot, restore in place; else choose another target"
    ))
    .into())
}

/// What a filter leaves out is not surplus.
fn refuse_to_delete_what_is_unwanted(options: &RestoreOptions) -> Result<(), EngineError> {
    if options.target.delete && options.filter.is_some() {
        let message = "nothing is deleted if only a part is restored that patterns choose";
        return Err(RepositoryError::Argument(message.to_owned()).into());
    }
    Ok(())
}

fn is_full(error: &TargetError) -> bool {
    matches!(error, TargetError::Io { error, .. } if error.kind() == ErrorKind::StorageFull)
}

fn target_error(error: TargetError) -> EngineError {
    EngineError::Target(error)
}

/// A directory whose metadata is put back when all below it is there.
struct OpenDirectory {
    id: DirectoryId,
    /// On which it was, by what the snapshot says.
    device: Option<u64>,
    /// Whether it is on a file system that was not there when the backup was made.
    other_fs: bool,
    /// None if the directory keeps what it has.
    metadata: Option<Metadata>,
    names: Names,
}

struct Run<'r> {
    reader: &'r ChunkReader,
    target: &'r FlushedTarget<'r>,
    options: &'r RestoreOptions,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
    scope: Scope,
    batch: Batch,
    /// The first name of each file that has further ones to come.
    linked: LinkTable<LinkKey, NameIn>,
    /// Files with several names that another file, or the same one in another state, was taken
    /// for by its inode number.
    replaced: u64,
    /// The target was full when a file was to be replaced by a whole one.
    lacks_room: bool,
    /// Files with several names for which there was no room in the table.
    unjoined: u64,
    /// The first names of those of them that have not come back: further names are not linked.
    not_back: HashMap<NameIn, NotBack>,
    /// Further names that are files of their own, as the target has no hard links there.
    unlinked: u64,
    /// Directories from which nothing was removed, as the snapshot does not hold all of them.
    uncleared: u64,
    progress: Progress,
    outcome: RestoreOutcome,
}

impl Run<'_> {
    /// Puts back what was found; the target's own directory may have existed before.
    fn restore(&mut self, found: &Found, existed: bool) -> Result<(), EngineError> {
        let filter = self.options.filter.as_ref();
        let walk = WantedWalk::new(found, filter, self.reader, self.cancel);
        let mut walk = walk.passing_withheld();
        let mut open: Vec<OpenDirectory> = Vec::new();
        while let Some(WantedEvent { event, on_the_way }) = walk.next()? {
            match event {
                SnapshotEvent::Enter(directory) => {
                    match self.enter(open.last(), &directory, existed, on_the_way)? {
                        Some(directory) => open.push(directory),
                        None => walk.skip(),
                    }
                }
                SnapshotEvent::Leaf { entry, .. } => {
                    let above = open.last();
                    let parent = above.map_or(DirectoryId::ROOT, |above| above.id);
                    let exists = above.is_none_or(|above| above.names.may_hold(&entry.name));
                    self.entry(parent, entry.clone(), exists)?;
                }
                SnapshotEvent::Leave { .. } => {
                    let directory = open.pop().expect("what is left was entered");
                    self.batch.closed.push((directory.id, directory.metadata));
                }
                SnapshotEvent::Lost { error, .. } => {
                    let directory = open.last().expect("entries are lost of what was entered");
                    match error.is_withheld() {
                        true => self.withheld_directory(directory.id, &error),
                        false => self.lost_directory(directory.id, &error),
                    }
                }
            }
            if self.batch.is_full(self.reader.limits()) {
                self.flush()?;
            }
        }
        self.flush()?;
        let held = self.target.directories_held();
        debug_assert!(held == 0 || !self.linked.is_empty(), "{held} directories are still held");
        Ok(())
    }

    /// Makes a directory of the target ready for what it is to hold: the target's own, or one in
    /// the directory `above`. None if it cannot be made.
    fn enter(
        &mut self,
        above: Option<&OpenDirectory>,
        directory: &EnteredDirectory<'_>,
        existed: bool,
        on_the_way: bool,
    ) -> Result<Option<OpenDirectory>, EngineError> {
        let (id, exists) = match (above, directory.entry) {
            (Some(above), Some(entry)) => {
                self.outcome.directories += 1;
                let exists = above.names.may_hold(&entry.name);
                let free = match self.scope.leads_on(directory.path) {
                    true => self.target.refuse_link(above.id, &entry.name),
                    false => self.refuse_another(above.id, &entry.name, exists),
                };
                match free.and_then(|()| self.target.create_directory(above.id, &entry.name)) {
                    Ok(id) => (id, exists),
                    // The backup left out what is in it.
                    Err(TargetError::Kept { .. }) if directory.tree.refs.is_empty() => {
                        return Ok(None);
                    }
                    Err(error) => {
                        self.problem(&error);
                        return Ok(None);
                    }
                }
            }
            _ => (DirectoryId::ROOT, existed),
        };
        let device = directory.entry.map(|entry| entry.metadata.device);
        let other_fs = above.is_some_and(|above| above.other_fs)
            || self.is_other_fs(id, device, above.and_then(|above| above.device), directory);
        let names = self.clear(id, directory, other_fs)?;
        // Nothing if it exists and the backup, or this restore, only passes through it.
        let is_passed = on_the_way && exists;
        let is_set = !is_passed && self.scope.sets_metadata(directory.path, exists);
        let entry = directory.entry.filter(|_| is_set);
        let metadata = entry.map(|entry| entry.metadata.clone());
        Ok(Some(OpenDirectory { id, device, other_fs, metadata, names }))
    }

    /// Whether a directory from which surplus may be removed is the root of a file system that was not
    /// mounted there when the backup was made: nothing of what is on it is surplus.
    fn is_other_fs(
        &self,
        id: DirectoryId,
        device: Option<u64>,
        above: Option<u64>,
        directory: &EnteredDirectory<'_>,
    ) -> bool {
        // On two devices, or on one that is not known, it may have been mounted then.
        let was_mounted = above.is_none() || above != device;
        let may_clear =
            self.scope.clears(directory.path) && self.scope.is_below_root(directory.path);
        may_clear && !was_mounted && self.target.is_mounted(id).unwrap_or(true)
    }

    /// Lists a directory of the target. With `--delete`, first removes what the snapshot lacks, if
    /// the directory is one that it holds as a whole, and not on another file system than then.
    fn clear(
        &mut self,
        id: DirectoryId,
        directory: &EnteredDirectory<'_>,
        other_fs: bool,
    ) -> Result<Names, EngineError> {
        let mut names: HashSet<Vec<u8>> = match self.target.list(id) {
            Ok(names) => names.into_iter().collect(),
            // It may only be searched: what is put below it needs no more.
            Err(error) if error.is_denied() && !self.scope.clears(directory.path) => {
                return Ok(Names::Unknown);
            }
            Err(error) => {
                self.problem(&error);
                return Ok(Names::Unknown);
            }
        };
        if names.is_empty() || !self.scope.clears(directory.path) {
            return Ok(Names::Known(names));
        }
        let mut surplus: BTreeSet<Vec<u8>> = names.iter().cloned().collect();
        let mut entries = TreeReader::new(directory.tree, self.reader);
        loop {
            match entries.next_entry() {
                Ok(Some(entry)) => drop(surplus.remove(&entry.name)),
                Ok(None) => break,
                // What is lost in the repository is no reason to remove what exists here.
                Err(_) => return Ok(Names::Known(names)),
            }
        }
        if directory.partial {
            self.uncleared += u64::from(!surplus.is_empty());
            return Ok(Names::Known(names));
        }
        if other_fs {
            if !surplus.is_empty() {
                self.problem(&TargetError::MountNotCleared { path: self.target.path_of(id, b"") });
            }
            return Ok(Names::Known(names));
        }
        if self.scope.is_missing(directory.path) {
            if !surplus.is_empty() {
                let path = self.target.path_of(id, b"");
                self.problem(&TargetError::MissingNotCleared { path });
            }
            return Ok(Names::Known(names));
        }
        for name in surplus {
            if self.scope.leads_to_missing(directory.path, &name) {
                let path = self.target.path_of(id, &name);
                self.problem(&TargetError::MissingNotCleared { path });
                continue;
            }
            match self.target.remove(id, &name) {
                Ok(removed) => self.outcome.deleted += removed,
                Err(error) => self.problem(&error),
            }
            names.remove(&name);
        }
        Ok(Names::Known(names))
    }

    fn entry(
        &mut self,
        parent: DirectoryId,
        entry: Entry,
        exists: bool,
    ) -> Result<(), EngineError> {
        self.outcome.files += 1;
        let bytes = entry.content().map_or(0, Recipe::stream_bytes);
        self.outcome.bytes = self.outcome.bytes.saturating_add(bytes);
        if let Some(key) = LinkKey::of(&entry) {
            if let Some(first) = self.linked.take(&key) {
                if !self.linked.holds(&key) {
                    self.batch.released.push(first.0);
                }
                let further = FurtherName { first, directory: parent, entry, exists };
                self.batch.links.push(further);
                return Ok(());
            }
            self.note_first_name(key, parent, &entry);
        }
        self.make(parent, entry, exists)
    }

    /// Makes what is no further name of anything.
    fn make(&mut self, parent: DirectoryId, entry: Entry, exists: bool) -> Result<(), EngineError> {
        if matches!(entry.kind, EntryKind::File { .. }) {
            return self.file(parent, entry, exists);
        }
        let free = self.refuse_another(parent, &entry.name, exists);
        let made = free.and_then(|()| match &entry.kind {
            EntryKind::Symlink { target } => {
                self.target.create_symlink(parent, &entry.name, target, &entry.metadata)
            }
            special => self.target.create_special(parent, &entry.name, special, &entry.metadata),
        });
        self.progress.files += 1;
        match made {
            Ok(problems) => problems.iter().for_each(|error| self.problem(error)),
            Err(error) => self.cannot_make(parent, &entry, &error),
        }
        Ok(())
    }

    /// Adds a file to the batch, or as many batches as it needs, unless it is right already.
    fn file(&mut self, parent: DirectoryId, entry: Entry, exists: bool) -> Result<(), EngineError> {
        let making = match exists {
            true => self.making(parent, &entry)?,
            false => Some(Making::Fresh),
        };
        let Some(making) = making else {
            self.progress.files += 1;
            return Ok(());
        };
        let mut file = PendingFile::new(parent, entry, making, self.reader);
        loop {
            let is_whole = self.batch.add(&mut file, self.reader.limits())?;
            if is_whole {
                return Ok(());
            }
            self.flush()?;
        }
    }

    /// How a file is to be made whose name is taken; none if it is right, or cannot be made.
    fn making(
        &mut self,
        parent: DirectoryId,
        entry: &Entry,
    ) -> Result<Option<Making>, EngineError> {
        let existing = match self.target.existing(parent, &entry.name) {
            Ok(Existing::Nothing) => return Ok(Some(Making::Fresh)),
            Ok(Existing::Other) => return Ok(Some(Making::Beside)),
            Ok(Existing::File(existing)) => existing,
            Err(error) => {
                self.cannot_make(parent, entry, &error);
                return Ok(None);
            }
        };
        let may_keep = existing.is_changeable() || self.is_linked_right(parent, entry, &existing);
        if may_keep && is_right(&existing, entry, self.reader, self.cancel)? {
            self.keep(parent, entry, &existing);
            return Ok(None);
        }
        Ok(Some(match existing.is_changeable() && self.options.target.patch {
            true => Making::Patch,
            false => Making::Beside,
        }))
    }

    /// True for a file with several names whose metadata is right. To change it would change what
    /// its other names are.
    fn is_linked_right(&self, parent: DirectoryId, entry: &Entry, existing: &ExistingFile) -> bool {
        // A file with more names than it should have belongs to another tree, too.
        (2..=entry.metadata.links).contains(&existing.names())
            && self.target.differences(parent, entry).is_ok_and(|found| found.none())
    }

    /// Leaves the content of a file as it is.
    fn keep(&mut self, parent: DirectoryId, entry: &Entry, existing: &ExistingFile) {
        self.outcome.files_right += 1;
        self.progress.bytes += entry.content().map_or(0, Recipe::stream_bytes);
        if existing.is_changeable() {
            match self.target.apply_file_metadata(parent, &entry.name, &entry.metadata) {
                Ok(problems) => problems.iter().for_each(|error| self.problem(error)),
                Err(error) => self.problem(&error),
            }
        }
    }

    /// Remembers a file that has further names to come.
    fn note_first_name(&mut self, key: LinkKey, parent: DirectoryId, entry: &Entry) {
        if self.linked.holds_another(&key) {
            self.replaced += 1;
            let path = self.target.path_of(parent, &entry.name);
            self.monitor.detail(&format!(
                "{} is restored as a file of its own: it changed, or took the place of another \
                 file, while the backup read it",
                path.display()
            ));
        }
        let name = (parent, entry.name.clone());
        if self.linked.insert(key, entry.metadata.links, name) {
            self.target.hold(parent);
        } else {
            self.unjoined += 1;
        }
    }

    /// Writes what was gathered, then links, then the metadata of directories that are complete.
    fn flush(&mut self) -> Result<(), EngineError> {
        let mut batch = std::mem::take(&mut self.batch);
        let written = batch::write_files(
            &batch,
            self.reader,
            self.target,
            self.options,
            self.monitor,
            self.cancel,
            &mut self.progress,
        )?;
        self.outcome.bytes_written += written.bytes_written;
        self.outcome.chunks_read += written.chunks_needed;
        self.outcome.reads += written.reads;
        self.outcome.files_failed += written.failed;
        self.batch.begun = written.unfinished;
        for (path, why) in &written.withheld {
            self.left_out(path, why);
        }
        self.outcome.withheld.extend(written.withheld);
        for damaged in written.damaged {
            self.damage(&damaged);
            self.outcome.damaged.push(damaged.path);
        }
        self.lacks_room |= batch.replaces_files() && written.problems.iter().any(is_full);
        written.problems.iter().for_each(|error| self.problem(error));
        self.not_back.extend(written.not_back);
        self.link(std::mem::take(&mut batch.links))?;
        // Deepest first: each was closed after all below it.
        for (directory, metadata) in &batch.closed {
            let applied = match metadata {
                Some(metadata) => self.target.apply_directory_metadata(*directory, metadata),
                None => self.target.leave_directory(*directory).map(|()| Vec::new()),
            };
            match applied {
                Ok(problems) => problems.iter().for_each(|error| self.problem(error)),
                Err(error) => self.problem(&error),
            }
        }
        let closed = batch.closed.iter().map(|(directory, _)| *directory);
        closed.chain(batch.released).for_each(|directory| self.target.release(directory));
        Ok(())
    }
}
