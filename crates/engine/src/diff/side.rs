//! One side of a comparison, directory by directory.
//!
//! Both kinds have the same interface. [`Side::next`] yields the entries of the directory the side
//! is in, sorted by name, and then `None`; from then on the side is in the parent directory.
//! [`Side::enter`] enters the directory that was yielded last.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_base::Cancel;
use strongroom_catalog::{Entry, EntryKind, Metadata, Recipe};
use strongroom_repository::{
    ChunkReader, EnteredDirectory, SnapshotEvent, SnapshotWalk, find_path,
};
use strongroom_source::{
    EntryHandle, LeafKind, SourceError, SourceFile, SourceOptions, TreeSource, WalkEvent,
};

use super::{DiffSide, Node, NodeKind};
use crate::error::EngineError;

/// An entry of a side.
pub struct Named {
    pub name: Vec<u8>,
    pub node: Node,
    /// The content of a snapshot's file.
    pub content: Option<Recipe>,
    /// The tree of a snapshot's directory.
    pub tree: Option<Recipe>,
    /// The top of a whole snapshot, of which only the tree is known.
    pub is_root: bool,
}

impl Named {
    /// True if both are directories of snapshots with the same content.
    pub fn has_same_tree(&self, other: &Named) -> bool {
        match (&self.tree, &other.tree) {
            (Some(tree), Some(other)) => tree.same_stream(other),
            _ => false,
        }
    }
}

/// The next item of a side.
pub enum Item {
    /// An entry.
    Entry(Box<Named>),
    /// This name exists, but its entry cannot be read.
    Unreadable { name: Vec<u8>, path: PathBuf, why: String },
    /// The directory the side is in cannot be read completely.
    Incomplete { path: PathBuf, why: String },
}

impl Item {
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Entry(entry) => &entry.name,
            Self::Unreadable { name, .. } => name,
            Self::Incomplete { .. } => b"",
        }
    }
}

pub enum Side<'r> {
    Snapshot(SnapshotSide<'r>),
    Directory(Box<DirectorySide>),
}

pub struct SnapshotSide<'r> {
    walk: SnapshotWalk<'r>,
    /// The top comes next, under the empty name.
    is_at_top: bool,
    /// The last entry is skipped unless it is entered.
    passes: bool,
}

pub struct DirectorySide {
    source: TreeSource,
    /// The entry at the path; `None` once it was yielded.
    top: Option<Item>,
    /// The entry that was yielded last.
    last: Option<EntryHandle>,
    /// The directory the walk is in.
    directory: PathBuf,
    /// How deep below the top that directory is; zero before the top was entered.
    depth: usize,
}

impl<'r> Side<'r> {
    /// A side that first yields only its top, under the empty name.
    pub fn open(
        side: DiffSide<'_>,
        reader: &'r ChunkReader,
        cancel: &Cancel,
    ) -> Result<Self, EngineError> {
        match side {
            DiffSide::Snapshot { snapshot, path } => {
                let found = find_path(snapshot, path, reader)?;
                let walk = SnapshotWalk::new(&found, reader, cancel);
                Ok(Self::Snapshot(SnapshotSide { walk, is_at_top: true, passes: false }))
            }
            DiffSide::Directory(path) => Ok(Self::Directory(Box::new(DirectorySide::open(path)?))),
        }
    }

    /// The next entry of the directory the side is in; `None` at its end.
    pub fn next(&mut self) -> Result<Option<Item>, EngineError> {
        match self {
            Self::Snapshot(side) => side.next(),
            Self::Directory(side) => Ok(side.next()),
        }
    }

    /// Enters the directory that was yielded last.
    pub fn enter(&mut self) {
        match self {
            Self::Snapshot(side) => side.passes = false,
            Self::Directory(side) => {
                side.depth += 1;
                side.directory = side.source.path().to_owned();
            }
        }
    }

    /// Skips the content of the entry that was yielded last.
    pub fn pass(&mut self, entry: &Named) {
        match self {
            Self::Directory(side) if entry.node.kind == NodeKind::Directory => {
                side.pass_directory();
            }
            // A tree that is not entered is not read.
            Self::Directory(_) | Self::Snapshot(_) => {}
        }
    }

    /// The entry of the machine that was yielded last.
    pub fn live(&self) -> Option<&EntryHandle> {
        match self {
            Self::Snapshot(_) => None,
            Self::Directory(side) => Some(side.last()),
        }
    }

    /// Opens the file that was yielded last.
    pub fn open_file(&self, cancel: &Cancel) -> Result<SourceFile, EngineError> {
        match self {
            Self::Snapshot(_) => unreachable!("files of snapshots are read by their recipes"),
            Self::Directory(side) => Ok(side.last().open_file_when_free(cancel)?),
        }
    }

    /// Reads the extended attributes of the entry that was yielded last, if they are not known.
    pub fn read_xattrs(&self, entry: &mut Named) -> Result<(), String> {
        if let Self::Directory(side) = self {
            let read = side.last().xattrs();
            entry.node.metadata.xattrs = read.xattrs;
            read.problem.map_or(Ok(()), |error| Err(error.to_string()))?;
        }
        Ok(())
    }
}

impl SnapshotSide<'_> {
    fn next(&mut self) -> Result<Option<Item>, EngineError> {
        if std::mem::take(&mut self.passes) {
            self.walk.skip();
        }
        let event = self.walk.next()?;
        self.passes = matches!(event, Some(SnapshotEvent::Enter(_)));
        let mut entry = match event {
            Some(SnapshotEvent::Enter(directory)) => entered(&directory),
            Some(SnapshotEvent::Leaf { entry, .. }) => named(entry.clone()),
            Some(SnapshotEvent::Lost { error, .. }) => return Err(error.into()),
            Some(SnapshotEvent::Leave { .. }) | None => return Ok(None),
        };
        if std::mem::take(&mut self.is_at_top) {
            entry.name.clear();
        }
        Ok(Some(Item::Entry(Box::new(entry))))
    }
}

fn entered(directory: &EnteredDirectory<'_>) -> Named {
    match directory.entry {
        Some(entry) => named(entry.clone()),
        None => Named {
            name: Vec::new(),
            node: Node { kind: NodeKind::Directory, metadata: Metadata::default() },
            content: None,
            tree: Some(directory.tree.clone()),
            is_root: true,
        },
    }
}

fn named(entry: Entry) -> Named {
    let (mut content, mut tree) = (None, None);
    let kind = match entry.kind {
        EntryKind::File { content: recipe } => {
            content = Some(recipe);
            NodeKind::File
        }
        EntryKind::Directory { tree: recipe, .. } => {
            tree = Some(recipe);
            NodeKind::Directory
        }
        EntryKind::Symlink { target } => NodeKind::Symlink { target },
        EntryKind::Fifo => NodeKind::Fifo,
        EntryKind::Socket => NodeKind::Socket,
        EntryKind::CharDevice(device) => NodeKind::CharDevice(device),
        EntryKind::BlockDevice(device) => NodeKind::BlockDevice(device),
    };
    let node = Node { kind, metadata: entry.metadata };
    Named { name: entry.name, node, content, tree, is_root: false }
}

impl DirectorySide {
    /// Walks down to the path. A link there is followed if it leads to a directory.
    fn open(path: &Path) -> Result<Self, EngineError> {
        let given = if path.is_dir() { path.join("") } else { path.to_owned() };
        let mut source = TreeSource::open(&[given], &SourceOptions::default())?;
        let root = source.roots().pop().expect("a source of one path has one root");
        while let Some(event) = source.next() {
            if let WalkEvent::Problem { error, .. } = event {
                return Err(error.into());
            }
            if source.path() != root {
                continue;
            }
            let (top, last) = entry(event).unzip();
            let top = top.map(|top| Item::Entry(Box::new(Named { name: Vec::new(), ..top })));
            return Ok(Self { source, top, last, directory: root, depth: 0 });
        }
        Err(SourceError::Vanished { path: root }.into())
    }

    fn next(&mut self) -> Option<Item> {
        if self.depth == 0 {
            return self.top.take();
        }
        loop {
            match self.source.next() {
                Some(WalkEvent::Problem { path, error }) => {
                    return Some(self.problem(path, &error));
                }
                Some(WalkEvent::Excluded { .. }) => {}
                Some(event @ (WalkEvent::EnterDirectory { .. } | WalkEvent::Leaf { .. })) => {
                    let (entry, last) = entry(event)?;
                    self.last = Some(last);
                    return Some(Item::Entry(Box::new(entry)));
                }
                Some(WalkEvent::LeaveDirectory) | None => {
                    self.depth -= 1;
                    self.directory.pop();
                    return None;
                }
            }
        }
    }

    /// A problem with one name of the directory costs that name; any other problem costs the
    /// directory.
    fn problem(&self, path: PathBuf, error: &SourceError) -> Item {
        let why = error.to_string();
        match path.file_name().filter(|_| path.parent() == Some(&self.directory)) {
            Some(name) => Item::Unreadable { name: name.as_bytes().to_vec(), path, why },
            None => Item::Incomplete { path, why },
        }
    }

    /// The entry that was yielded last, for calls about it.
    fn last(&self) -> &EntryHandle {
        self.last.as_ref().expect("only an entry that was yielded is asked about")
    }

    /// Moves the walk to the end of the directory that was yielded last.
    fn pass_directory(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.source.next() {
                Some(WalkEvent::EnterDirectory { .. }) => depth += 1,
                Some(WalkEvent::LeaveDirectory) => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }
}

/// The entry of an event, and its handle.
fn entry(event: WalkEvent) -> Option<(Named, EntryHandle)> {
    let (entry, kind) = match event {
        WalkEvent::EnterDirectory { entry, .. } => (entry, NodeKind::Directory),
        WalkEvent::Leaf { entry, kind } => {
            let kind = match kind {
                LeafKind::File => NodeKind::File,
                LeafKind::Symlink { target } => NodeKind::Symlink { target },
                LeafKind::Fifo => NodeKind::Fifo,
                LeafKind::Socket => NodeKind::Socket,
                LeafKind::CharDevice(device) => NodeKind::CharDevice(device),
                LeafKind::BlockDevice(device) => NodeKind::BlockDevice(device),
            };
            (entry, kind)
        }
        WalkEvent::Problem { .. } | WalkEvent::LeaveDirectory | WalkEvent::Excluded { .. } => {
            return None;
        }
    };
    let (name, node) = (entry.name().to_vec(), Node { kind, metadata: entry.metadata() });
    Some((Named { name, node, content: None, tree: None, is_root: false }, entry))
}
