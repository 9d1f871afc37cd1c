//! The tree of a machine: its disks as files, the files of its volumes as trees beside them, and what
//! describes it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use strongroom_base::{Cancel, Timestamp};
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Metadata, Recipe, RecipeBuilder, TreeReader};
use strongroom_disk::{DiskError, FileSystem, Node, NodeKind, Piece as FilePiece, Source, Volume};
use strongroom_repository::{
    ChunkReader, ChunkWriter, Piece, Repository, StreamBasis, StreamCutter,
};

use super::earlier::{Earlier, folder_of};
use super::gather::entries_of;
use super::map::{FileOnVolume, place, shown};
use super::store::Stored;
use super::walk::{Entries, Found, Walk};
use super::{DESCRIPTION, Disk, MEMORY, Mapped, raw_name};
use crate::backup::parent_directory::ParentDirectory;
use crate::backup::region::RegionFile;
use crate::backup::region::tree::push;
use crate::backup::tally::Tally;
use crate::backup::trees::{Before, RootTree, Trees};
use crate::error::EngineError;
use crate::stored_regions::MARKS_FOLDER;

/// Writes the tree.
pub struct MachineTree<'t, 'r> {
    /// The repository.
    pub repository: &'t Repository,
    /// The disks.
    pub disks: &'t [Disk],
    /// The volumes on them.
    pub mapped: &'t [Mapped<'t>],
    /// The machine's name.
    pub name: &'t str,
    /// What describes it.
    pub description: &'t [(String, Vec<u8>)],
    /// Files of its memory and of its marks, by their paths in the snapshot.
    pub memory: &'t [RegionFile],
    /// The disks as they were stored.
    pub stored: &'t [Stored],
    /// Files of which a part is left out.
    pub swapped: &'t HashMap<FileOnVolume, Range<u64>>,
    /// Volumes whose file system was known before the disks were read.
    pub listed: &'t HashSet<usize>,
    /// The parent.
    pub before: &'t Earlier,
    /// Reads it.
    pub reader: &'r ChunkReader,
    /// When the backup began.
    pub started: Timestamp,
    /// The request to stop.
    pub cancel: &'r Cancel,
}

/// Fills a buffer from its start; returns how many bytes it got, and whether they were the last.
type Fill<'f> = dyn FnMut(&mut [u8]) -> Result<(usize, bool), EngineError> + 'f;

/// What is in the machine's folder.
enum Top<'t> {
    /// A disk, by its number.
    Image(usize),
    /// Volumes, by their names.
    Volumes(BTreeMap<&'t str, usize>),
    /// What describes the machine.
    Description,
    /// Its memory.
    Memory,
}

impl<'t, 'r> MachineTree<'t, 'r> {
    /// Writes it, and gives the tree of `/`.
    pub fn write(
        &self,
        writer: &mut ChunkWriter<'r>,
        tally: &mut Tally<'_>,
    ) -> Result<RootTree, EngineError> {
        let mut trees = Trees::new(self.reader, writer, self.cancel);
        let mut entries = entries_of(self.disks);
        let before = |tree: &Option<Recipe>| {
            let tree = tree.clone()?;
            Some(Before { tree, partial: false, stored: None })
        };
        trees.enter(Vec::new(), self.folder(), before(&self.before.root));
        // Folders are sorted by their names.
        let are_marks_first = MARKS_FOLDER < self.name;
        if are_marks_first {
            self.regions(&mut trees, Path::new("/"), Path::new("/").join(MARKS_FOLDER), tally)?;
        }
        let name = self.name.as_bytes().to_vec();
        trees.enter(name, self.folder(), before(&self.before.folder));
        for (name, top) in self.tops() {
            match top {
                Top::Image(disk) => {
                    if self.stored[disk].has_lost {
                        trees.left_out();
                    }
                    let content = self.stored[disk].recipe.clone();
                    trees.push(self.file(name, content), tally)?;
                    tally.done(0);
                    continue;
                }
                Top::Volumes(volumes) => {
                    self.enter(&mut trees, name);
                    for (_, volume) in volumes {
                        self.volume(&mut trees, volume, &mut entries, tally)?;
                    }
                }
                Top::Memory => {
                    let machine = Path::new("/").join(self.name);
                    self.regions(&mut trees, &machine, machine.join(name), tally)?;
                    continue;
                }
                Top::Description => {
                    self.enter(&mut trees, name);
                    for (name, bytes) in self.description {
                        let content = self.content_of(&mut trees, name, bytes)?;
                        trees.push(self.file(name.clone(), content), tally)?;
                    }
                }
            }
            trees.leave(tally)?;
        }
        trees.leave(tally)?;
        if !are_marks_first {
            self.regions(&mut trees, Path::new("/"), Path::new("/").join(MARKS_FOLDER), tally)?;
        }
        trees.leave(tally)?;
        trees.finish(tally)
    }

    /// Writes what is of the memory in a folder, of which `open` is being written.
    fn regions(
        &self,
        trees: &mut Trees<'r, '_>,
        open: &Path,
        folder: PathBuf,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let within = self.memory.iter().filter(|(path, ..)| path.starts_with(&folder));
        let files = within.map(|(path, content, metadata)| {
            let path = path.strip_prefix(open).unwrap_or(path);
            (path.to_owned(), content.clone(), metadata.clone())
        });
        push(trees, files.collect(), self.started, tally)
    }

    /// What is in the machine's folder, sorted.
    fn tops(&self) -> BTreeMap<String, Top<'t>> {
        let mut tops = BTreeMap::new();
        for (number, disk) in self.disks.iter().enumerate() {
            tops.insert(raw_name(&disk.name), Top::Image(number));
        }
        for (number, mapped) in self.mapped.iter().enumerate() {
            let folder = folder_of(self.disks, mapped.volume).to_owned();
            let top = tops.entry(folder).or_insert_with(|| Top::Volumes(BTreeMap::new()));
            if let Top::Volumes(volumes) = top {
                volumes.insert(&mapped.volume.name, number);
            }
        }
        if !self.description.is_empty() {
            tops.insert(DESCRIPTION.to_owned(), Top::Description);
        }
        if !self.memory.is_empty() {
            tops.insert(MEMORY.to_owned(), Top::Memory);
        }
        tops
    }

    /// Metadata of a folder that only the snapshot has.
    fn folder(&self) -> Box<Metadata> {
        let (mode, mtime) = (0o755, self.started);
        Box::new(Metadata { mode, mtime, ctime: mtime, links: 1, ..Metadata::default() })
    }

    fn enter(&self, trees: &mut Trees<'r, '_>, name: String) {
        let tree = self.before.known.get(name.as_bytes()).and_then(Entry::tree).cloned();
        let before = tree.map(|tree| Before { tree, partial: false, stored: None });
        trees.enter(name.into_bytes(), self.folder(), before);
    }

    fn file(&self, name: String, content: Recipe) -> Entry {
        let metadata = Metadata { mode: 0o600, size: content.stream_bytes(), ..*self.folder() };
        Entry { name: name.into_bytes(), kind: EntryKind::File { content }, metadata }
    }

    /// Stores a few bytes, as what differs from the same file of the parent.
    fn content_of(
        &self,
        trees: &mut Trees<'r, '_>,
        name: &str,
        bytes: &[u8],
    ) -> Result<Recipe, EngineError> {
        let path = format!("{DESCRIPTION}/{name}");
        let before = self.before.known.get(path.as_bytes()).and_then(Entry::content);
        let mut basis = before.map(|content| StreamBasis::new(self.reader, content));
        let mut rest = bytes;
        let mut read = |buffer: &mut [u8]| {
            let count = buffer.len().min(rest.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            Ok((count, rest.is_empty()))
        };
        let mut recipe = RecipeBuilder::new();
        self.read_in(trees, bytes.len() as u64, &mut recipe, basis.as_mut(), &mut read)?;
        Ok(recipe.finish(&mut trees.writer_mut().metadata(basis.as_mut()))?)
    }

    /// Cuts what is read as a file, and stores it as what follows in the recipe.
    fn read_in(
        &self,
        trees: &mut Trees<'r, '_>,
        bytes: u64,
        recipe: &mut RecipeBuilder,
        mut basis: Option<&mut StreamBasis<'_>>,
        read: &mut Fill<'_>,
    ) -> Result<(), EngineError> {
        let cutter = StreamCutter::of_files(self.repository)?;
        let writer = trees.writer_mut();
        let mut read = |buffer: &mut [u8]| {
            self.cancel.check()?;
            read(buffer)
        };
        cutter.cut(bytes, &mut read, &mut |piece: Piece| {
            for (chunk, fingerprint) in piece.chunks() {
                let offset = recipe.stream_bytes();
                let chunk = writer.put_data(chunk, fingerprint, offset, basis.as_deref_mut())?;
                recipe.push(chunk, &mut writer.metadata(basis.as_deref_mut()))?;
            }
            Ok(())
        })
    }

    /// Writes the tree of a volume, if its file system is known.
    fn volume(
        &self,
        trees: &mut Trees<'r, '_>,
        number: usize,
        entries: &mut Entries,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let Mapped { volume, reader } = &self.mapped[number];
        let (lost, is_unreadable) = match strongroom_disk::open(reader) {
            Ok(Some(files)) => return self.files(trees, number, &*files, (entries, tally)),
            Ok(None) => ("its file system is not found again".to_owned(), false),
            Err(error) => (error.to_string(), matches!(error, DiskError::Io(_))),
        };
        // If it had none that is known when the extents of files were to be found, that was noted.
        if is_unreadable || self.listed.contains(&number) {
            let why = format!("its files are not listed: {lost}");
            tally.problem(Path::new(&volume.name), &why);
            trees.left_out();
        }
        Ok(())
    }

    /// Writes the tree of a volume's files.
    fn files(
        &self,
        trees: &mut Trees<'r, '_>,
        number: usize,
        files: &dyn FileSystem,
        (entries, tally): (&mut Entries, &mut Tally<'_>),
    ) -> Result<(), EngineError> {
        let volume = self.mapped[number].volume;
        let earlier = self.before.volume(self.disks, volume);
        let mut at = Place { number, parents: Vec::new(), names: vec![volume.name.clone().into()] };
        for found in Walk::new(files, volume, entries) {
            self.cancel.check()?;
            match found {
                Found::Enter { name, node } => {
                    self.enter_directory(trees, &mut at, name, *node, earlier, tally);
                }
                Found::Leave => {
                    at.parents.pop();
                    at.names.pop();
                    trees.leave(tally)?;
                }
                Found::Lost { name, why } => {
                    tally.problem(&shown(&at.names, &name), &why);
                    trees.left_out();
                }
                Found::Leaf { name, inode, node } => {
                    self.leaf(trees, &mut at, files, (name, inode, *node), tally)?;
                }
            }
        }
        Ok(())
    }

    fn enter_directory(
        &self,
        trees: &mut Trees<'r, '_>,
        at: &mut Place<'r>,
        name: Vec<u8>,
        node: Node,
        earlier: Option<&Entry>,
        tally: &Tally<'_>,
    ) {
        let metadata = Box::new(at.metadata(node.metadata));
        let is_root = at.parents.is_empty();
        let found = at.parents.last_mut().and_then(|above| above.find(&name, tally.monitor));
        let entry = if is_root { earlier } else { found.map(TreeReader::entry) };
        let stored = found.filter(|found| found.entry().metadata == *metadata);
        let stored = stored.and_then(TreeReader::stored);
        let before = match entry.map(|entry| &entry.kind) {
            Some(EntryKind::Directory { tree, partial }) => {
                Some(Before { tree: tree.clone(), partial: *partial, stored })
            }
            _ => None,
        };
        let tree = before.as_ref().map(|before| before.tree.clone());
        at.parents.push(ParentDirectory::new(tree.as_ref(), self.reader));
        let name = if is_root { at.names[0].clone() } else { name };
        if !is_root {
            at.names.push(name.clone());
        }
        trees.enter(name, metadata, before);
    }

    fn leaf(
        &self,
        trees: &mut Trees<'r, '_>,
        at: &mut Place<'r>,
        files: &dyn FileSystem,
        (name, inode, node): (Vec<u8>, u64, Node),
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let mut metadata = at.metadata(node.metadata);
        let directory = at.parents.last_mut().expect("a leaf is in a directory");
        let found = directory.find(&name, tally.monitor);
        let kind = match node.kind {
            NodeKind::File => {
                let before = found.and_then(|found| found.entry().content()).cloned();
                let size = metadata.size;
                match self.content(trees, files, at.number, inode, size, before.as_ref())? {
                    Ok(content) => EntryKind::File { content },
                    Err(why) => {
                        tally.problem(&shown(&at.names, &name), &why);
                        trees.left_out();
                        return Ok(());
                    }
                }
            }
            NodeKind::Directory => unreachable!("directories are entered"),
            NodeKind::Symlink { target } => EntryKind::Symlink { target },
            NodeKind::Fifo => EntryKind::Fifo,
            NodeKind::Socket => EntryKind::Socket,
            NodeKind::CharDevice(device) => EntryKind::CharDevice(device),
            NodeKind::BlockDevice(device) => EntryKind::BlockDevice(device),
        };
        if let EntryKind::File { content } = &kind {
            metadata.size = content.stream_bytes();
        }
        let entry = Entry { name, kind, metadata };
        let same = found.filter(|found| *found.entry() == entry).and_then(TreeReader::stored);
        *match (&same, found) {
            (Some(_), _) => &mut tally.counted.unchanged,
            (None, Some(_)) => &mut tally.counted.changed,
            (None, None) => &mut tally.counted.new,
        } += 1;
        tally.done(0);
        match same {
            Some(stored) => {
                tally.counted.stats.files += 1;
                tally.counted.stats.bytes += entry.content().map_or(0, Recipe::stream_bytes);
                trees.keep(&entry.name, &stored)
            }
            None => trees.push(entry, tally),
        }
    }

    /// The content of a file: the chunks of the disk that it is, or else what the file system reads.
    /// The inner error is that file's alone.
    fn content(
        &self,
        trees: &mut Trees<'r, '_>,
        files: &dyn FileSystem,
        number: usize,
        inode: u64,
        size: u64,
        before: Option<&Recipe>,
    ) -> Result<Result<Recipe, String>, EngineError> {
        let volume = u32::try_from(number).unwrap_or(u32::MAX);
        let out = self.swapped.get(&(volume, inode)).cloned().unwrap_or_default();
        if out.is_empty()
            && let Some(content) = self.chunks_of_disk(trees, files, number, inode, size)?
        {
            return Ok(Ok(content));
        }
        let out = out.start.min(size)..out.end.min(size);
        // A volume that lies could keep its reader busy for ever.
        let room = self.mapped[number].volume.bytes;
        if size > room {
            return Ok(Err(format!("it claims {size} bytes, and its volume has {room}")));
        }
        let (mut at, mut failed) = (0, None);
        let mut recipe = RecipeBuilder::new();
        let mut basis = before.map(|content| StreamBasis::new(self.reader, content));
        // What is left out of the middle is a hole.
        for end in [out.start, size] {
            let left = end - at;
            let mut read = |buffer: &mut [u8]| {
                let room = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                match files.read(inode, at, &mut buffer[..room]) {
                    Ok(count) => {
                        at += count as u64;
                        Ok((count, count < room || at >= end))
                    }
                    Err(error) => {
                        failed = Some(error.to_string());
                        Ok((0, true))
                    }
                }
            };
            if left > 0 {
                self.read_in(trees, left, &mut recipe, basis.as_mut(), &mut read)?;
            }
            if at == out.start && !out.is_empty() && failed.is_none() {
                let hole = ChunkRef::hole(out.end - out.start);
                recipe.push(hole, &mut trees.writer_mut().metadata(basis.as_mut()))?;
                at = out.end;
            }
        }
        let content = recipe.finish(&mut trees.writer_mut().metadata(basis.as_mut()))?;
        Ok(match failed {
            None => Ok(content),
            Some(why) => Err(format!("it cannot be read: {why}")),
        })
    }

    /// The chunks of the disks that make a file; none if it has to be read.
    fn chunks_of_disk(
        &self,
        trees: &mut Trees<'r, '_>,
        files: &dyn FileSystem,
        number: usize,
        inode: u64,
        size: u64,
    ) -> Result<Option<Recipe>, EngineError> {
        let volume = self.mapped[number].volume;
        let mut recipe = RecipeBuilder::new();
        let (mut is_whole, mut failed) = (true, None);
        let mut at = 0;
        let mut take = |piece: FilePiece| {
            let done = self.piece(trees, volume, &piece, &mut at, &mut recipe);
            is_whole &= *done.as_ref().unwrap_or(&false);
            failed = done.err();
            if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mapped = files.pieces(inode, 0..size, &mut take);
        failed.map_or(Ok(()), Err)?;
        if mapped.is_err() || !is_whole || at > size {
            return Ok(None);
        }
        let mut lane = trees.writer_mut().metadata(None);
        if at < size {
            recipe.push(ChunkRef::hole(size - at), &mut lane)?;
        }
        Ok(Some(recipe.finish(&mut lane)?))
    }

    /// Adds a piece of a file to its recipe. Returns false if it is not chunks of the disk.
    fn piece(
        &self,
        trees: &mut Trees<'r, '_>,
        volume: &Volume,
        piece: &FilePiece,
        at: &mut u64,
        recipe: &mut RecipeBuilder,
    ) -> Result<bool, EngineError> {
        let mut lane = trees.writer_mut().metadata(None);
        let hole = piece.offset.saturating_sub(*at);
        if hole > 0 {
            recipe.push(ChunkRef::hole(hole), &mut lane)?;
        }
        *at = piece.offset.saturating_add(piece.bytes);
        let start = match piece.source {
            Source::Volume(start) => start,
            Source::Unwritten(_) => {
                recipe.push(ChunkRef::hole(piece.bytes), &mut lane)?;
                return Ok(true);
            }
            Source::Inside => return Ok(false),
        };
        let (mut is_whole, mut chunks) = (true, Vec::new());
        place(volume, start..start.saturating_add(piece.bytes), &mut |disk, range| {
            let found = self.stored[disk].whereabouts.each(range, &mut |chunk| {
                chunks.push(chunk);
                Ok(())
            });
            // A spool that cannot be read costs that the file is read again.
            is_whole &= found.unwrap_or(false);
        });
        for chunk in chunks {
            recipe.push(chunk, &mut lane)?;
        }
        Ok(is_whole)
    }
}

/// Where a walk through a volume is.
struct Place<'r> {
    /// The volume.
    number: usize,
    /// The parent's directories beside those that are open.
    parents: Vec<ParentDirectory<'r>>,
    /// Their names, the volume's first.
    names: Vec<Vec<u8>>,
}

impl Place<'_> {
    /// Metadata as it is stored: inodes of different volumes are not the same.
    fn metadata(&self, metadata: Metadata) -> Metadata {
        Metadata { device: self.number as u64 + 1, ..metadata }
    }
}
