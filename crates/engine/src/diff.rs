//! `diff`: in what two snapshots, or a snapshot and a directory of this machine, differ.
//!
//! Both sides yield their entries sorted by name and are merged, directory by directory. Two
//! subtrees of snapshots with the same recipe are the same and are not read. A file of the machine
//! is read only if its size is that of the snapshot's, and its times or its file system leave a doubt.

mod content;
mod side;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity};
use strongroom_catalog::{DeviceNumber, Metadata, Snapshot};
use strongroom_repository::{ChunkReader, Repository, RepositoryError};
use strongroom_source::{EntryHandle, ZeroSize};

use crate::error::EngineError;
use side::{Item, Named, Side};

/// One of the two things that are compared.
#[derive(Debug, Clone, Copy)]
pub enum DiffSide<'d> {
    /// A snapshot, or what is in `path` of it; empty or `/` for all of it.
    Snapshot {
        /// The snapshot.
        snapshot: &'d Snapshot,
        /// The part of it.
        path: &'d [u8],
    },
    /// A path of this machine.
    Directory(&'d Path),
}

/// How closely the sides are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffOptions {
    /// Files of the machine are read even if size and times are those of the snapshot.
    pub content: bool,
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points: any bytes.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// An entry of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// What every kind has. Extended attributes of this machine are read only if both sides have
    /// the entry.
    pub metadata: Metadata,
}

impl Node {
    /// Bytes of content; zero for all but files.
    pub fn bytes(&self) -> u64 {
        if self.kind == NodeKind::File { self.metadata.size } else { 0 }
    }
}

/// In what two entries of the same kind differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modified {
    /// The bytes of a file, where a link points, which device it is.
    pub content: bool,
    /// The permission bits.
    pub mode: bool,
    /// Owner or group, by number.
    pub owner: bool,
    /// The time of the last change of the content.
    pub mtime: bool,
    /// The extended attributes.
    pub xattrs: bool,
}

impl Modified {
    /// True if nothing differs.
    pub fn none(&self) -> bool {
        *self == Self::default()
    }
}

/// How an entry changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second side has it.
    Added,
    /// Only the first side has it.
    Removed,
    /// It is of another kind. The content of a directory that was, or is, there is reported
    /// separately.
    Type,
    /// It is of the same kind, and differs.
    Modified(Modified),
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the two tops, without a leading slash; empty for the tops themselves.
    pub path: Vec<u8>,
    /// How it changed.
    pub kind: ChangeKind,
    /// The first side's entry.
    pub before: Option<Node>,
    /// The second side's entry.
    pub after: Option<Node>,
}

impl Change {
    /// How many bytes longer the second side's content is.
    pub fn bytes_delta(&self) -> i64 {
        let bytes = |node: &Option<Node>| node.as_ref().map_or(0, Node::bytes);
        bytes(&self.after).cast_signed().wrapping_sub(bytes(&self.before).cast_signed())
    }
}

/// The numbers of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiffOutcome {
    /// Entries that only the second side has.
    pub added: u64,
    /// Entries that only the first side has.
    pub removed: u64,
    /// Entries whose content differs, or whose kind does.
    pub changed: u64,
    /// Entries of which only the metadata differs.
    pub metadata: u64,
    /// Bytes of files added or changed, as they are on the second side.
    pub bytes_added: u64,
    /// Bytes of files removed or changed, as they are on the first side.
    pub bytes_removed: u64,
    /// Entries of the machine that could not be read, and so were not compared.
    pub problems: u64,
    /// Trees and files of snapshots that could not be read, and so were not compared.
    pub damaged: u64,
}

impl DiffOutcome {
    /// True if the two sides are the same, as far as they could be compared.
    pub fn is_same(&self) -> bool {
        self.added + self.removed + self.changed + self.metadata == 0
    }
}

/// Compares two sides, at least one of which is a snapshot, and reports each difference, sorted by
/// path, a directory before its content.
pub fn diff(
    repository: &Repository,
    before: DiffSide<'_>,
    after: DiffSide<'_>,
    options: DiffOptions,
    visit: &mut dyn FnMut(&Change) -> Result<(), EngineError>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DiffOutcome, EngineError> {
    if let (DiffSide::Directory(_), DiffSide::Directory(_)) = (&before, &after) {
        let message = "two directories have no snapshot between them: name one".to_owned();
        return Err(RepositoryError::Argument(message).into());
    }
    // What one side's domain may name, the other's may not.
    let reader_of = |side| {
        let domain = match side {
            DiffSide::Snapshot { snapshot, .. } => &snapshot.domain,
            DiffSide::Directory(_) => "",
        };
        ChunkReader::of_domain(repository, domain, CacheLimits::default())
    };
    let readers = [reader_of(before)?, reader_of(after)?];
    let sides = [Side::open(before, &readers[0], cancel)?, Side::open(after, &readers[1], cancel)?];
    let mut differ = Differ {
        readers: readers.each_ref(),
        sides,
        levels: vec![Level::default()],
        path: Vec::new(),
        options,
        visit,
        monitor,
        cancel,
        progress: Progress::default(),
        outcome: DiffOutcome::default(),
        made_up: BTreeSet::new(),
    };
    differ.run()?;
    Ok(differ.outcome)
}

/// A directory that both sides, or one of them, is in.
struct Level {
    /// Which sides are in it.
    has: [bool; 2],
    /// The next item of each side.
    next: [Option<Item>; 2],
    /// A side that does not yield a name may have it nevertheless.
    incomplete: [bool; 2],
    path_bytes: usize,
}

impl Default for Level {
    fn default() -> Self {
        Self { has: [true; 2], next: [None, None], incomplete: [false; 2], path_bytes: 0 }
    }
}

struct Differ<'d, 'r> {
    readers: [&'r ChunkReader; 2],
    sides: [Side<'r>; 2],
    levels: Vec<Level>,
    path: Vec<u8>,
    options: DiffOptions,
    visit: &'d mut dyn FnMut(&Change) -> Result<(), EngineError>,
    monitor: &'d dyn Monitor,
    cancel: &'d Cancel,
    progress: Progress,
    outcome: DiffOutcome,
    /// Devices of which it was reported that files that say 0 bytes are not compared.
    made_up: BTreeSet<u64>,
}

impl Differ<'_, '_> {
    /// Merges the two sides. An explicit stack: trees are deeper than stacks.
    fn run(&mut self) -> Result<(), EngineError> {
        while let Some(level) = self.levels.last() {
            self.cancel.check()?;
            self.path.truncate(level.path_bytes);
            for place in 0..2 {
                self.fill(place)?;
            }
            let level = self.levels.last_mut().expect("just looked at");
            let [before, after] = &level.next;
            let order = match (before, after) {
                (None, None) => {
                    self.levels.pop();
                    continue;
                }
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(before), Some(after)) => before.name().cmp(after.name()),
            };
            let before = level.next[0].take_if(|_| order.is_le());
            let after = level.next[1].take_if(|_| order.is_ge());
            let name = before.as_ref().or(after.as_ref()).map_or(&b""[..], Item::name);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            match (before, after) {
                (Some(Item::Entry(before)), Some(Item::Entry(after))) => {
                    self.both(*before, *after)?;
                }
                (Some(Item::Entry(before)), None) => self.one(0, *before)?,
                (None, Some(Item::Entry(after))) => self.one(1, *after)?,
                // If a side cannot say what is there, that is not reported as a change; what the
                // other side has below it is skipped.
                (Some(Item::Entry(entry)), _) => self.sides[0].pass(&entry),
                (_, Some(Item::Entry(entry))) => self.sides[1].pass(&entry),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ensures that the next item of a side is available.
    fn fill(&mut self, place: usize) -> Result<(), EngineError> {
        let level = self.levels.last_mut().expect("called with a level at hand");
        while level.has[place] && level.next[place].is_none() {
            match self.sides[place].next() {
                Ok(None) => level.has[place] = false,
                Ok(Some(Item::Incomplete { path, why })) => {
                    level.incomplete[place] = true;
                    self.outcome.problems += 1;
                    report(self.monitor, Severity::Warning, &path, &why);
                }
                Ok(Some(item)) => {
                    if let Item::Unreadable { path, why, .. } = &item {
                        self.outcome.problems += 1;
                        report(self.monitor, Severity::Warning, path, why);
                    }
                    level.next[place] = Some(item);
                }
                Err(error) if error.is_damage() => {
                    level.incomplete[place] = true;
                    self.outcome.damaged += 1;
                    let path = PathBuf::from(OsStr::from_bytes(&self.path));
                    let message = format!("some entries of this directory are lost: {error}");
                    report(self.monitor, Severity::Damage, &path, &message);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// An entry that only one side has.
    fn one(&mut self, place: usize, entry: Named) -> Result<(), EngineError> {
        let level = self.levels.last().expect("an entry is in a level");
        if level.incomplete[1 - place] {
            self.sides[place].pass(&entry);
            return Ok(());
        }
        self.count(&entry);
        let is_directory = entry.node.kind == NodeKind::Directory;
        if is_directory {
            let mut has = [false; 2];
            has[place] = true;
            self.sides[place].enter();
            self.push(has);
        }
        let bytes = entry.node.bytes();
        let path = self.path.clone();
        let change = if place == 0 {
            self.outcome.removed += 1;
            add_bytes(&mut self.outcome.bytes_removed, bytes);
            Change { path, kind: ChangeKind::Removed, before: Some(entry.node), after: None }
        } else {
            self.outcome.added += 1;
            add_bytes(&mut self.outcome.bytes_added, bytes);
            Change { path, kind: ChangeKind::Added, before: None, after: Some(entry.node) }
        };
        (self.visit)(&change)
    }

    fn both(&mut self, mut before: Named, mut after: Named) -> Result<(), EngineError> {
        self.count(&after);
        let same_kind =
            std::mem::discriminant(&before.node.kind) == std::mem::discriminant(&after.node.kind);
        let kind = if same_kind {
            let modified = self.compare(&mut before, &mut after)?;
            (!modified.none()).then_some(ChangeKind::Modified(modified))
        } else {
            Some(ChangeKind::Type)
        };
        let is_directory = |entry: &Named| entry.node.kind == NodeKind::Directory;
        let has = [is_directory(&before), is_directory(&after)];
        if has != [false; 2] && !before.has_same_tree(&after) {
            for place in (0..2).filter(|place| has[*place]) {
                self.sides[place].enter();
            }
            self.push(has);
        }
        let Some(kind) = kind else { return Ok(()) };
        match kind {
            ChangeKind::Modified(Modified { content: false, .. }) => self.outcome.metadata += 1,
            _ => {
                self.outcome.changed += 1;
                add_bytes(&mut self.outcome.bytes_removed, before.node.bytes());
                add_bytes(&mut self.outcome.bytes_added, after.node.bytes());
            }
        }
        let path = self.path.clone();
        (self.visit)(&Change { path, kind, before: Some(before.node), after: Some(after.node) })
    }

    fn push(&mut self, has: [bool; 2]) {
        let path_bytes = self.path.len();
        self.levels.push(Level { has, path_bytes, ..Level::default() });
    }

    fn compare(&mut self, before: &mut Named, after: &mut Named) -> Result<Modified, EngineError> {
        if before.is_root || after.is_root {
            return Ok(Modified::default());
        }
        for (side, entry) in self.sides.iter().zip([&mut *before, &mut *after]) {
            if let Err(why) = side.read_xattrs(entry) {
                self.outcome.problems += 1;
                report(self.monitor, Severity::Warning, &self.full_path(), &why);
            }
        }
        let content = self.content_differs(before, after)?;
        let (old, new) = (&before.node.metadata, &after.node.metadata);
        let is_symlink = matches!(before.node.kind, NodeKind::Symlink { .. });
        Ok(Modified {
            content,
            mode: !is_symlink && old.mode != new.mode,
            owner: (old.uid, old.gid) != (new.uid, new.gid),
            mtime: old.mtime != new.mtime,
            xattrs: old.xattrs != new.xattrs,
        })
    }

    fn content_differs(&mut self, before: &Named, after: &Named) -> Result<bool, EngineError> {
        if before.node.kind != NodeKind::File {
            return Ok(before.node.kind != after.node.kind);
        }
        let (old, new) = (&before.node.metadata, &after.node.metadata);
        let live = usize::from(after.content.is_none());
        let live = self.sides[live].live();
        if let Some(live) = live
            && let ZeroSize::MadeUp { name, .. } = live.file_system().zero_size
            && live.size() == 0
        {
            self.note_made_up(live.metadata().device, name);
            return Ok(false);
        }
        let has_unknown_size = live.is_some_and(EntryHandle::has_unknown_size);
        if old.size != new.size && !has_unknown_size {
            return Ok(true);
        }
        let is_proof = live.is_none_or(|live| live.file_system().times_prove) && !has_unknown_size;
        let same = match (&before.content, &after.content) {
            (Some(before), Some(after)) => content::same_recipes([before, after], self.readers),
            (Some(recipe), None) | (None, Some(recipe)) => {
                if is_proof && have_same_times(old, new) && !self.options.content {
                    return Ok(false);
                }
                let place = usize::from(after.content.is_none());
                self.monitor.working_on(&self.full_path());
                match self.sides[place].open_file(self.cancel) {
                    Ok(file) => {
                        let reader = self.readers[1 - place];
                        content::same_as_file(recipe, &file, reader, self.cancel)
                    }
                    Err(error) => Err(error),
                }
            }
            (None, None) => unreachable!("one of the two sides is a snapshot"),
        };
        match same {
            Ok(same) => Ok(!same),
            Err(EngineError::Source(error)) => {
                self.outcome.problems += 1;
                report(self.monitor, Severity::Warning, &self.full_path(), &error.to_string());
                Ok(false)
            }
            Err(error) if error.is_damage() => {
                self.outcome.damaged += 1;
                report(self.monitor, Severity::Damage, &self.full_path(), &error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports, once for each file system, that files of it are not compared.
    fn note_made_up(&mut self, device: u64, name: &str) {
        if self.made_up.insert(device) {
            self.outcome.problems += 1;
            let message = format!("files of {name} say that they are empty, and were not compared");
            report(self.monitor, Severity::Warning, &self.full_path(), &message);
        }
    }

    fn count(&mut self, entry: &Named) {
        if entry.node.kind != NodeKind::Directory {
            self.progress.files += 1;
            add_bytes(&mut self.progress.bytes, entry.node.bytes());
            self.monitor.progress(&self.progress);
        }
    }

    fn full_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.path))
    }
}

/// Whether nothing of a file has changed by its times. If anything of it changed and its inode is the
/// same, it has another `ctime`; a copy has its own `ctime` in any case. The number of a device proves
/// no copy: that of a Btrfs, of ZFS and of NFS is another after a mount.
fn have_same_times(old: &Metadata, new: &Metadata) -> bool {
    old.mtime == new.mtime && (old.inode != new.inode || old.ctime == new.ctime)
}

/// A hostile snapshot may have files of any length.
fn add_bytes(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

fn report(monitor: &dyn Monitor, severity: Severity, path: &Path, message: &str) {
    monitor.problem(Problem { severity, path: Some(path), message });
}
