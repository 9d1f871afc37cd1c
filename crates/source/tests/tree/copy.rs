//! The smallest engine: the events of the source are given to the target, with nothing between.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use strongroom_catalog::{Entry, EntryKind, Metadata, Recipe};
use strongroom_source::{
    DirectoryId, EntryHandle, LeafKind, SourceOptions, Target, TargetOptions, TreeSource, WalkEvent,
};

/// The result of a copy.
#[derive(Debug, Default)]
pub struct Outcome {
    /// All problems, as text.
    pub problems: Vec<String>,
    /// Entries of the given tree that were not right before; those above it may change meanwhile.
    pub written: usize,
}

/// Copies the tree below `from` to below `to`, whose path then ends in that of `from`.
pub fn copy(from: &Path, to: &Path) -> Outcome {
    let mut source = TreeSource::open(&[from.to_owned()], &SourceOptions::default()).unwrap();
    copy_from(&mut source, to, TargetOptions::default())
}

/// Where [`copy`] puts the tree at `from`.
pub fn copied(from: &Path, to: &Path) -> PathBuf {
    to.join(from.strip_prefix("/").unwrap())
}

/// Copies all that a source yields, `/` to `to`. What is right already is left alone.
pub fn copy_from(source: &mut TreeSource, to: &Path, options: TargetOptions) -> Outcome {
    let target = Target::open(to, options).unwrap();
    let mut copier = Copier {
        target: &target,
        directories: Vec::new(),
        names: Vec::new(),
        delete: options.delete,
        links: HashMap::new(),
        outcome: Outcome::default(),
    };
    while let Some(event) = source.next() {
        copier.take(source, event);
    }
    target.sync().unwrap();
    copier.outcome
}

struct Copier<'a> {
    target: &'a Target,
    directories: Vec<(DirectoryId, Entry)>,
    /// The names that belong in each of them.
    names: Vec<BTreeSet<Vec<u8>>>,
    delete: bool,
    /// The first name of each inode that has several.
    links: HashMap<(u64, u64), (DirectoryId, Vec<u8>)>,
    outcome: Outcome,
}

impl Copier<'_> {
    fn take(&mut self, source: &TreeSource, event: WalkEvent) {
        match event {
            WalkEvent::EnterDirectory { entry, .. } => {
                let (name, mut metadata) = (entry.name().to_vec(), entry.metadata());
                if let Some(names) = self.names.last_mut() {
                    assert!(names.last().is_none_or(|last| *last < name), "names come in order");
                    names.insert(name.clone());
                }
                self.names.push(BTreeSet::new());
                metadata.xattrs = self.xattrs(&entry);
                let id = match self.directories.last() {
                    None => DirectoryId::ROOT,
                    Some((parent, _)) => self.target.create_directory(*parent, &name).unwrap(),
                };
                let kind = EntryKind::Directory { tree: Recipe::default(), partial: false };
                self.directories.push((id, Entry { name, kind, metadata }));
            }
            WalkEvent::LeaveDirectory => {
                let (id, entry) = self.directories.pop().unwrap();
                let names = self.names.pop().unwrap();
                for listed in self.target.list(id).unwrap().iter().filter(|_| self.delete) {
                    if !names.contains(listed) {
                        self.target.remove(id, listed).unwrap();
                    }
                }
                if let Some((parent, _)) = self.directories.last()
                    && self.target.differences(*parent, &entry).unwrap().none()
                {
                    return;
                }
                self.count(source);
                let problems = self.target.apply_directory_metadata(id, &entry.metadata).unwrap();
                self.note(problems);
            }
            WalkEvent::Leaf { entry, kind } => self.leaf(source, &entry, kind),
            WalkEvent::Excluded { .. } => {}
            WalkEvent::Problem { error, .. } => self.outcome.problems.push(error.to_string()),
        }
    }

    fn leaf(&mut self, source: &TreeSource, handle: &EntryHandle, kind: LeafKind) {
        let (name, mut metadata) = (handle.name().to_vec(), handle.metadata());
        metadata.xattrs = self.xattrs(handle);
        let directory = self.directories.last().unwrap().0;
        let names = self.names.last_mut().unwrap();
        assert!(names.last().is_none_or(|last| *last < name), "names come in order");
        names.insert(name.clone());
        if metadata.links > 1 {
            let inode = (metadata.device, metadata.inode);
            if let Some((first, first_name)) = self.links.get(&inode) {
                self.target.hard_link((*first, first_name), (directory, &name)).unwrap();
                return;
            }
            self.links.insert(inode, (directory, name.clone()));
        }
        let kind = match kind {
            LeafKind::File => EntryKind::File { content: Recipe::default() },
            LeafKind::Symlink { target } => EntryKind::Symlink { target },
            LeafKind::Fifo => EntryKind::Fifo,
            LeafKind::Socket => EntryKind::Socket,
            LeafKind::CharDevice(number) => EntryKind::CharDevice(number),
            LeafKind::BlockDevice(number) => EntryKind::BlockDevice(number),
        };
        let entry = Entry { name, kind, metadata };
        if self.target.differences(directory, &entry).unwrap().none() {
            return;
        }
        self.count(source);
        let Entry { name, kind, metadata } = entry;
        match &kind {
            EntryKind::File { .. } => self.file(handle, directory, &name, &metadata),
            EntryKind::Symlink { target } => {
                let made = self.target.create_symlink(directory, &name, target, &metadata);
                self.note(made.unwrap());
            }
            _ => {
                let made = self.target.create_special(directory, &name, &kind, &metadata);
                self.note(made.unwrap());
            }
        }
    }

    fn file(&mut self, entry: &EntryHandle, id: DirectoryId, name: &[u8], metadata: &Metadata) {
        let from = match entry.open_file() {
            Ok(file) => file,
            Err(error) => return self.outcome.problems.push(error.to_string()),
        };
        let to = self.target.open_file_for_write(id, name, from.size()).unwrap();
        let mut buffer = vec![0; 100_000];
        let mut stored_to = 0;
        for extent in from.extents() {
            let extent = extent.unwrap();
            to.punch_hole(stored_to, extent.offset - stored_to).unwrap();
            stored_to = extent.offset + extent.bytes;
            let mut offset = extent.offset;
            while offset < stored_to {
                let step = (stored_to - offset).min(buffer.len() as u64) as usize;
                let read = from.read_at(offset, &mut buffer[..step]).unwrap();
                assert_eq!(read, step);
                to.write_at(offset, &buffer[..read]).unwrap();
                offset += read as u64;
            }
        }
        to.punch_hole(stored_to, from.size() - stored_to).unwrap();
        assert_eq!(from.change().unwrap(), None);
        let problems = self.target.finish_file(to, metadata);
        self.note(problems);
    }

    fn xattrs(&mut self, entry: &EntryHandle) -> Vec<strongroom_catalog::Xattr> {
        let read = entry.xattrs();
        self.outcome.problems.extend(read.problem.map(|error| error.to_string()));
        read.xattrs
    }

    fn count(&mut self, source: &TreeSource) {
        self.outcome.written += usize::from(source.path().starts_with(&source.roots()[0]));
    }

    fn note(&mut self, problems: Vec<strongroom_source::TargetError>) {
        self.outcome.problems.extend(problems.iter().map(ToString::to_string));
    }
}
