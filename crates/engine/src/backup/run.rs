//! The events of the walk, merged with the parent snapshot: unchanged entries are taken over, new
//! files are given to the readers, and all of it is put into trees in the order of the walk.
//!
//! ```text
//! walker ─▶ unchanged? ─ yes ───────────────▶ queue ─▶ trees ─▶ packer
//!                      └ no ─▶ readers ─────▶   (in the order of the walk)
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{Cancel, Monitor};
use strongroom_catalog::tree::find_entry;
use strongroom_catalog::{Entry, EntryKind, Metadata, Recipe, Snapshot, TreeReader};
use strongroom_repository::ChunkReader;
use strongroom_source::{
    EntryHandle, InodeId, LeafKind, Patterns, WalkEvent, ZeroSize, is_automount,
};

use super::as_made::AsMade;
use super::links::Joined;
use super::parent_directory::{Gone, ParentDirectory};
use super::present::is_whole;
use super::racy::RacyTimes;
use super::readers::{AHEAD_FILES, Readers};
use super::sources::{Left, UNMOUNTED, why_nothing};
use super::tally::Tally;
use super::trees::{Before, NewFile, RootTree, Step, Trees};
use super::unread::{self, Version, as_stored};
use super::walker::Walker;
use crate::error::EngineError;

/// At most this many steps that are known already wait behind files that are being read.
const STEPS_MAX: usize = 4096;

/// What lasts as long as the walk.
pub struct Run<'r, 'w> {
    /// What was found and is not yet in the trees. It is dropped before the readers, which wait
    /// until their files are dropped.
    pub queue: Queue,
    /// Reads the parent.
    pub reader: &'r ChunkReader,
    /// Reads files ahead.
    pub readers: Readers,
    /// Takes what was found.
    pub trees: Trees<'r, 'w>,
    /// Counts and reports.
    pub tally: Tally<'r>,
    /// The path of the current leaf.
    pub path: PathBuf,
    /// The patterns of what is left out.
    pub excludes: &'r Patterns,
    /// Other file systems are left out.
    pub one_file_system: bool,
    /// Read every file, even if the parent has it.
    pub force: bool,
    /// What another program says of the tree, if it is taken over from one.
    pub as_made: Option<&'r AsMade>,
    /// Times of change for which the parent is no proof.
    pub racy: Option<RacyTimes>,
    /// The attributes of root that the parent did not see are listed now.
    pub asks_attributes: bool,
    /// Devices of which it was reported that files that say 0 bytes are stored as empty ones.
    pub made_up: BTreeSet<u64>,
    /// The request to stop.
    pub cancel: &'r Cancel,
}

/// What was found and is not yet in the trees, in order.
pub struct Queue {
    steps: VecDeque<Step>,
    files: usize,
    bytes: usize,
    /// Bytes of files that are being read, at most.
    ahead_bytes_max: usize,
}

/// What the walk made.
pub struct Walked<'r> {
    /// The tree of `/`.
    pub root: RootTree,
    /// It was stopped before its end: what was read so far is kept.
    pub stopped: bool,
    /// What was counted.
    pub tally: Tally<'r>,
}

impl<'r> Run<'r, '_> {
    /// Runs the walk to its end, or until it is stopped.
    pub fn walk(
        mut self,
        mut walker: Walker,
        parent: Option<&Snapshot>,
    ) -> Result<Walked<'r>, EngineError> {
        let mut parents: Vec<ParentDirectory<'r>> = Vec::new();
        let mut stopped = false;
        for event in walker.by_ref() {
            if self.cancel.is_cancelled() {
                stopped = true;
                break;
            }
            match event {
                WalkEvent::EnterDirectory { entry, is_listed } => {
                    let root = parent.map(|parent| &parent.root);
                    let step = self.enter(&entry, is_listed, &mut parents, root);
                    self.queue.push(step);
                }
                WalkEvent::LeaveDirectory => {
                    self.leave(&mut parents);
                    self.queue.push(Step::Leave);
                }
                WalkEvent::Leaf { entry, kind } => {
                    let depth = parents.len();
                    let directory = parents.last_mut().expect("a leaf is in a directory");
                    let step = self.leaf(directory, depth, entry, kind)?;
                    self.queue.push(step);
                }
                WalkEvent::Excluded { path, why } => {
                    self.note_name(&mut parents, &path);
                    self.tally.sources.something();
                    self.tally.left_out(&path, &why);
                    self.queue.push(Step::LeftOut);
                }
                WalkEvent::Problem { path, error } => {
                    self.note_name(&mut parents, &path);
                    let monitor = self.tally.monitor;
                    self.tally.unread(&path, &error, || was_there(&mut parents, &path, monitor));
                    self.queue.push(Step::LeftOut);
                }
            }
            while let Some(step) = self.queue.pop_due() {
                self.trees.take(step, &self.readers, &mut self.tally)?;
            }
            self.tally.report();
        }
        // If it was stopped, the walk need not continue meanwhile.
        drop(walker);
        while let Some(step) = self.queue.pop() {
            self.trees.take(step, &self.readers, &mut self.tally)?;
        }
        self.tally.report();
        let root = self.trees.finish(&mut self.tally)?;
        // A stop may have been requested while the last files were taken in.
        stopped |= self.cancel.is_cancelled();
        Ok(Walked { root, stopped, tally: self.tally })
    }

    fn enter(
        &mut self,
        entry: &EntryHandle,
        is_listed: bool,
        parents: &mut Vec<ParentDirectory<'r>>,
        root: Option<&Recipe>,
    ) -> Step {
        entry.write_path(&mut self.path);
        let path = self.path.as_os_str().as_bytes();
        let is_below = self.tally.sources.is_inside();
        if is_below {
            self.tally.sources.enter_below(path, parents.len());
        } else {
            self.tally.sources.enter(path, parents.len());
        }
        let (name, mut metadata) = (entry.name().to_vec(), entry.metadata());
        self.tally.sources.name(parents.len(), &name);
        let above_devices = parents.last().and_then(|above| above.devices);
        let above = parents.last_mut();
        let found = above.and_then(|above| above.find(&name, self.tally.monitor));
        let devices = found.map(|found| [found.entry().metadata.device, metadata.device]);
        let same = found
            .and_then(|found| Some((found, Version::of(&found.entry().metadata, &metadata)?)))
            // Another program's tree has no times that prove anything.
            .filter(|_| self.as_made.is_none() && !self.force && !self.is_racy(entry, &metadata));
        match same {
            Some((same, Version::Same)) if !self.asks_attributes => {
                metadata.xattrs.clone_from(&same.entry().metadata.xattrs);
            }
            _ => {
                if self.read_xattrs(entry, &mut metadata) {
                    unread::mark(&mut metadata);
                }
            }
        }
        let before = match found.map(|found| &found.entry().kind) {
            Some(EntryKind::Directory { tree, partial }) => Some((tree, *partial)),
            Some(_) => None,
            // Only the root's tree is stored.
            None if name.is_empty() => root.map(|root| (root, false)),
            None => None,
        };
        let stored = same.filter(|(same, _)| same.entry().metadata == metadata);
        let stored = stored.and_then(|(same, _)| same.stored());
        let before = before.map(|(tree, partial)| Before { tree: tree.clone(), partial, stored });
        let tree = before.as_ref().map(|before| &before.tree);
        // A mount that is gone, or in place of a given directory another one.
        let is_unmounted = matches!((above_devices, devices), (Some([above, above_now]), Some([was, is]))
            if was != above && is == above_now);
        let is_another = found.is_some_and(|it| it.entry().metadata.inode != metadata.inode);
        if let Some(tree) = tree
            && self.as_made.is_none()
            && (is_unmounted || (!is_below && is_another))
        {
            let names = first_names(tree, self.reader);
            let path = self.path.as_os_str().as_bytes();
            self.tally.sources.doubt(path, parents.len(), names);
        }
        if let (Some(above), Some(devices)) = (parents.last_mut(), devices) {
            above.learn_device(devices);
        }
        let path = self.path.as_os_str().as_bytes().to_vec();
        let devices = devices.or_else(|| root.map(|_| [metadata.device; 2]));
        let missing = self.tally.sources.unmounted_in(&path);
        let mut directory = ParentDirectory::new(tree, self.reader).here(path, devices);
        (directory.is_listed, directory.missing) = (is_listed, missing);
        parents.push(directory);
        Step::Enter { name, metadata: Box::new(metadata), before }
    }

    /// There is something at a path in the deepest directory, or it is that directory's own.
    fn note_name(&mut self, parents: &mut [ParentDirectory<'_>], path: &Path) {
        let names = path.components().filter(|part| matches!(part, Component::Normal(_))).count();
        let depth = parents.len();
        let Some(directory) = parents.last_mut() else { return };
        match path.file_name().filter(|_| names == depth) {
            Some(name) => {
                directory.find(name.as_bytes(), self.tally.monitor);
                self.tally.sources.name(depth, name.as_bytes());
            }
            None => directory.is_listed = false,
        }
    }

    /// The deepest directory ends, of which `parents` has the parent's counterpart.
    fn leave(&mut self, parents: &mut Vec<ParentDirectory<'r>>) {
        let Some(mut before) = parents.pop() else { return };
        let monitor = self.tally.monitor;
        match self.tally.sources.leave(parents.len(), || !before.has_entries(monitor)) {
            Some(Left::Emptied(path, why)) => {
                self.tally.problem(Path::new(OsStr::from_bytes(&path)), why);
            }
            Some(Left::Empty(path)) => {
                self.tally.note(Path::new(OsStr::from_bytes(&path)), "it is empty");
            }
            None => {}
        }
        let path = std::mem::take(&mut before.path);
        if self.as_made.is_none() && self.tally.sources.has_given(&path) {
            self.note_gone(&path, before.into_gone(monitor));
        }
    }

    /// Notes what was in a directory and is not there any more.
    fn note_gone(&mut self, directory: &[u8], gone: Gone) {
        let sources = &mut self.tally.sources;
        if gone.is_most {
            sources.turned(directory);
        }
        for (name, had_entries) in gone.mounts {
            let above = directory.strip_suffix(b"/").unwrap_or(directory);
            let path = [above, b"/", &name].concat();
            let is_missed = had_entries || self.tally.sources.was_missing(&path);
            if is_missed && self.would_be_stored(&path) && self.tally.sources.unmounted(&path) {
                self.tally.problem(Path::new(OsStr::from_bytes(&path)), UNMOUNTED);
            }
        }
    }

    /// Whether a mount that is gone would be stored.
    fn would_be_stored(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let by_automount = || path.parent().is_some_and(is_automount);
        !self.one_file_system && !self.excludes.exclude(path, true) && !by_automount()
    }

    /// Notes a given path that is no directory. Reports one that is empty and was not before, and one
    /// that cannot have content: most likely something else was meant. A file without a size is noted
    /// when it was read.
    fn note_source(&mut self, kind: &LeafKind, size: Option<u64>, before: Option<&Entry>) {
        if self.tally.sources.is_inside() {
            return self.tally.sources.something();
        }
        let Some(size) = size else { return };
        let had_bytes =
            before.and_then(Entry::content).is_some_and(|content| content.stream_bytes() > 0);
        // A list of paths may have a link beside what it leads to.
        let leads_to_given = matches!(kind, LeafKind::Symlink { .. })
            && self
                .path
                .canonicalize()
                .is_ok_and(|to| self.tally.sources.has_given(to.as_os_str().as_bytes()));
        let has_nothing = match kind {
            LeafKind::File => size == 0,
            _ => !leads_to_given,
        };
        let had_nothing = match kind {
            LeafKind::File => !had_bytes,
            _ => before.is_some_and(|before| before.content().is_none() && !before.is_directory()),
        };
        let path = self.path.as_os_str().as_bytes();
        if self.tally.sources.leaf(path, has_nothing, had_nothing) {
            self.tally.problem(&self.path, why_nothing(kind, &self.path));
        }
    }

    fn leaf(
        &mut self,
        directory: &mut ParentDirectory<'r>,
        depth: usize,
        entry: EntryHandle,
        kind: LeafKind,
    ) -> Result<Step, EngineError> {
        entry.write_path(&mut self.path);
        self.tally.monitor.working_on(&self.path);
        let (name, mut metadata) = (entry.name().to_vec(), entry.metadata());
        let before = directory.find(&name, self.tally.monitor);
        self.tally.sources.name(depth, &name);
        let has_unknown_size = entry.has_unknown_size();
        let size = (!has_unknown_size).then_some(metadata.size);
        self.note_source(&kind, size, before.map(TreeReader::entry));
        if let Some(made) = self.as_made {
            return self.leaf_as_made(made, before.map(TreeReader::entry).cloned(), entry, kind);
        }
        self.note_made_up(&entry, &kind, &metadata);
        let version_of = |before: &Metadata| match has_unknown_size {
            true => Version::of(before, &Metadata { size: before.size, ..metadata.clone() }),
            false => Version::of(before, &metadata),
        };
        let same_version = before
            .filter(|_| !self.force)
            .and_then(|before| Some((before, version_of(&before.entry().metadata)?)));
        let same = same_version.filter(|_| !has_unknown_size && !self.is_racy(&entry, &metadata));
        let racy = same_version.is_some() && same.is_none();
        let mut is_unread = match same {
            Some((same, Version::Same)) if !self.asks_attributes => {
                metadata.xattrs.clone_from(&same.entry().metadata.xattrs);
                false
            }
            Some(_) => self.read_xattrs(&entry, &mut metadata),
            // Those of a file are read when it is open.
            None => kind != LeafKind::File && self.read_xattrs(&entry, &mut metadata),
        };
        let same = same.map(|(same, _)| same);
        let is_stored =
            |same: &&TreeReader<'_, _>| same.entry().metadata == *as_stored(&metadata, is_unread);
        let mut stored = same.filter(is_stored).and_then(TreeReader::stored);
        if kind != LeafKind::File {
            self.tally.done(0);
            let kind = special(kind);
            if let Some(entry) =
                stored.filter(|_| same.is_some_and(|same| same.entry().kind == kind))
            {
                return Ok(Step::Kept { name, content_bytes: 0, entry });
            }
            return Ok(entry_of(name, kind, metadata, is_unread));
        }
        if let Some(content) = same.and_then(|same| same.entry().content())
            && content.stream_bytes() == metadata.size
            && self.is_present(content)?
        {
            let content = match self.trees.links().join(&metadata, is_unread, content) {
                Joined::AsBefore => content.clone(),
                Joined::As(linked) => {
                    stored = None;
                    (metadata.xattrs, is_unread) = (linked.xattrs, linked.is_unread);
                    linked.content
                }
                Joined::ToCome => {
                    let (path, before) = (self.path.clone(), Some(content.clone()));
                    let metadata = Box::new(metadata);
                    let (is_same, has_unknown_size) = (true, false);
                    let file = NewFile {
                        name,
                        path,
                        metadata,
                        is_unread,
                        before,
                        racy,
                        has_unknown_size,
                        is_same,
                    };
                    return Ok(Step::Link(file, entry));
                }
            };
            let content_bytes = content.stream_bytes();
            self.tally.counted.unchanged += 1;
            self.tally.done(content_bytes);
            if let Some(entry) = stored {
                return Ok(Step::Kept { name, content_bytes, entry });
            }
            return Ok(entry_of(name, EntryKind::File { content }, metadata, is_unread));
        }
        let before = before.and_then(|before| before.entry().content()).cloned();
        let path = self.path.clone();
        let metadata = Box::new(metadata);
        let is_same = false;
        let file =
            NewFile { name, path, metadata, is_unread, before, racy, has_unknown_size, is_same };
        Ok(self.read(entry, file))
    }

    /// A leaf that another program shows. That program says whether its content changed; all else is
    /// read, because its times prove nothing.
    fn leaf_as_made(
        &mut self,
        made: &AsMade,
        before: Option<Entry>,
        entry: EntryHandle,
        kind: LeafKind,
    ) -> Result<Step, EngineError> {
        let (name, mut metadata) = (entry.name().to_vec(), entry.metadata());
        if kind != LeafKind::File {
            let is_unread = self.read_xattrs(&entry, &mut metadata);
            self.tally.done(0);
            return Ok(entry_of(name, special(kind), metadata, is_unread));
        }
        let is_same = !self.force
            && before
                .as_ref()
                .is_some_and(|before| made.is_same_content(&self.path, &metadata, &before.kind));
        let before = before.as_ref().and_then(Entry::content).cloned();
        if let Some(content) = before.as_ref().filter(|_| is_same)
            && self.is_present(content)?
        {
            let mut is_unread = self.read_xattrs(&entry, &mut metadata);
            let content = match self.trees.links().join(&metadata, is_unread, content) {
                Joined::AsBefore => content.clone(),
                Joined::As(linked) => {
                    (metadata.xattrs, is_unread) = (linked.xattrs, linked.is_unread);
                    linked.content
                }
                Joined::ToCome => {
                    let (path, metadata) = (self.path.clone(), Box::new(metadata));
                    let (racy, has_unknown_size, is_same) = (false, false, true);
                    let file = NewFile {
                        name,
                        path,
                        metadata,
                        is_unread,
                        before,
                        racy,
                        has_unknown_size,
                        is_same,
                    };
                    return Ok(Step::Link(file, entry));
                }
            };
            self.tally.counted.unchanged += 1;
            self.tally.done(content.stream_bytes());
            return Ok(entry_of(name, EntryKind::File { content }, metadata, is_unread));
        }
        let (path, metadata) = (self.path.clone(), Box::new(metadata));
        let (racy, has_unknown_size, is_same) = (false, entry.has_unknown_size(), false);
        let is_unread = false;
        let file =
            NewFile { name, path, metadata, is_unread, before, racy, has_unknown_size, is_same };
        Ok(self.read(entry, file))
    }

    /// A file that is to be read, unless another name of it is being read already.
    fn read(&mut self, entry: EntryHandle, file: NewFile) -> Step {
        let bytes = if file.has_unknown_size { u64::MAX } else { file.metadata.size };
        match self.trees.links().is_begun(&file.metadata) {
            true => Step::Link(file, entry),
            false => Step::File(file, self.readers.begin(entry, bytes)),
        }
    }

    /// True if times do not prove that an entry is unchanged: those of its file system, or those of
    /// the parent.
    fn is_racy(&self, entry: &EntryHandle, metadata: &Metadata) -> bool {
        let is_racy = |racy: RacyTimes| racy.may_hide_a_change(metadata);
        !entry.file_system().times_prove || self.racy.is_some_and(is_racy)
    }

    /// Reports, once for each mount, that a file may have content and is stored without.
    fn note_made_up(&mut self, entry: &EntryHandle, kind: &LeafKind, metadata: &Metadata) {
        let ZeroSize::MadeUp { name, .. } = entry.file_system().zero_size else { return };
        let is_it = *kind == LeafKind::File && metadata.size == 0;
        if is_it && self.made_up.insert(metadata.device) {
            let message = format!(
                "files of {name} are made up when they are read, and are stored as empty files: \
                 exclude them, or store one with `strongroom backup --stdin`"
            );
            self.tally.problem(&mount_of(&self.path, metadata.device), &message);
        }
    }

    /// Whether every chunk that a recipe needs still exists.
    fn is_present(&self, content: &Recipe) -> Result<bool, EngineError> {
        let writer = self.trees.writer();
        is_whole(content, self.reader, &|chunk| writer.is_present(chunk))
    }

    /// Reads the extended attributes of an entry; returns whether some cannot be read, which is reported.
    fn read_xattrs(&mut self, entry: &EntryHandle, metadata: &mut Metadata) -> bool {
        let read = entry.xattrs();
        metadata.xattrs = read.xattrs;
        let problem =
            read.problem.map(|error| self.tally.problem(&entry.path(), &error.to_string()));
        problem.is_some()
    }
}

impl Queue {
    /// Nothing was found yet.
    pub fn new(ahead_bytes_max: usize) -> Self {
        Self { steps: VecDeque::new(), files: 0, bytes: 0, ahead_bytes_max }
    }

    fn push(&mut self, step: Step) {
        let (files, bytes) = weight(&step);
        self.files += files;
        self.bytes += bytes;
        self.steps.push_back(step);
    }

    fn pop(&mut self) -> Option<Step> {
        let step = self.steps.pop_front()?;
        let (files, bytes) = weight(&step);
        self.files -= files;
        self.bytes -= bytes;
        Some(step)
    }

    /// The next step if it need not wait for a reader, or if too much is under way.
    fn pop_due(&mut self) -> Option<Step> {
        let waits = matches!(self.steps.front()?, Step::File(..) | Step::Link(..));
        let has_room = self.files < AHEAD_FILES
            && self.bytes < self.ahead_bytes_max
            && self.steps.len() < STEPS_MAX;
        reached_if(waits && !has_room, Regime::AheadFull);
        if waits && has_room { None } else { self.pop() }
    }
}

/// The first names in a tree; none if it cannot be read.
fn first_names(tree: &Recipe, reader: &ChunkReader) -> Vec<Vec<u8>> {
    const NAMES_MAX: usize = 8;
    let mut entries = TreeReader::new(tree, reader);
    let next = || entries.next_entry().ok().flatten();
    std::iter::from_fn(next).take(NAMES_MAX).map(|entry| entry.name).collect()
}

/// Some names that a directory has in a snapshot; none if it is no directory there.
pub fn some_names(snapshot: &Snapshot, path: &[u8], reader: &ChunkReader) -> Vec<Vec<u8>> {
    let mut tree = snapshot.root.clone();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        match find_entry(&tree, name, reader) {
            Ok(Some(Entry { kind: EntryKind::Directory { tree: below, .. }, .. })) => tree = below,
            _ => return Vec::new(),
        }
    }
    first_names(&tree, reader)
}

/// Whether the parent has something at the path of a problem: in the directory that the walk is in, or
/// under a name of it.
fn was_there(parents: &mut [ParentDirectory<'_>], path: &Path, monitor: &dyn Monitor) -> bool {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let depth = parents.len();
    let Some(directory) = parents.last_mut() else { return false };
    if names < depth {
        return names + 1 == depth && directory.has_entries(monitor);
    }
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let found = directory.find(name, monitor).filter(|_| names == depth);
    found.is_some_and(|found| match &found.entry().kind {
        EntryKind::Directory { tree, .. } => tree.stream_bytes() > 0,
        EntryKind::File { content } => content.stream_bytes() > 0,
        _ => true,
    })
}

/// The highest directory above a path on the same device, or the path.
fn mount_of(path: &Path, device: u64) -> PathBuf {
    let is_on_it = |path: &&Path| InodeId::of_path(path).is_ok_and(|id| id.device == device);
    let above = path.ancestors().skip(1).take_while(is_on_it).last();
    above.unwrap_or(path).to_owned()
}

/// What a step holds: files under way, and bytes of them.
fn weight(step: &Step) -> (usize, usize) {
    match step {
        Step::File(_, ahead) => (1, ahead.bytes),
        Step::Link(..) => (1, 0),
        Step::Enter { .. } | Step::Leave | Step::LeftOut | Step::Entry(_) | Step::Kept { .. } => {
            (0, 0)
        }
    }
}

/// An entry of which everything is known, or all but its attributes.
fn entry_of(name: Vec<u8>, kind: EntryKind, mut metadata: Metadata, is_unread: bool) -> Step {
    if is_unread {
        unread::mark(&mut metadata);
    }
    Step::Entry(Box::new(Entry { name, kind, metadata }))
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
