//! Makes the trees of a snapshot from what the walk found, in its order.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_base::Cancel;
use strongroom_catalog::entry::is_valid_name;
use strongroom_catalog::{
    ChunkRef, Entry, EntryKind, Metadata, Recipe, RecipeBuilder, StoredEntry, TreeWriteError,
    TreeWriter,
};
use strongroom_repository::{ChunkReader, ChunkWriter, StreamBasis};
use strongroom_source::EntryHandle;

use super::links::LinkedFiles;
use super::readers::{FileAhead, Readers, Reading};
use super::tally::Tally;
use super::unread;
use crate::error::EngineError;

/// What is to be put into the trees next.
pub enum Step {
    /// A directory begins.
    Enter {
        /// Its name.
        name: Vec<u8>,
        /// Its metadata.
        metadata: Box<Metadata>,
        /// What it was in the parent.
        before: Option<Before>,
    },
    /// The deepest directory ends.
    Leave,
    /// Something in the deepest directory is not stored.
    LeftOut,
    /// An entry of which everything is known.
    Entry(Box<Entry>),
    /// An entry that is not a directory and did not change at all.
    Kept {
        /// Its name.
        name: Vec<u8>,
        /// The length of its content.
        content_bytes: u64,
        /// Its entry in the parent's tree.
        entry: StoredEntry,
    },
    /// A file that is being read.
    File(NewFile, FileAhead),
    /// A further name of a file that was begun before.
    Link(NewFile, EntryHandle),
}

/// A directory in the parent.
pub struct Before {
    /// Its tree.
    pub tree: Recipe,
    /// Part of its content was not in its tree.
    pub partial: bool,
    /// Its entry, if its metadata did not change: it is unchanged if its tree is, too.
    pub stored: Option<StoredEntry>,
}

/// A file whose content the parent does not have.
pub struct NewFile {
    /// Its name.
    pub name: Vec<u8>,
    /// Its path, for messages.
    pub path: PathBuf,
    /// Its metadata from the walk.
    pub metadata: Box<Metadata>,
    /// Whether its extended attributes could not be read.
    pub is_unread: bool,
    /// Its content in the parent.
    pub before: Option<Recipe>,
    /// It is read only because its times, or its size, are no proof that it did not change.
    pub racy: bool,
    /// Whether it is empty is known only when it was read.
    pub has_unknown_size: bool,
    /// It did not change: it is stored as another name of it, which is being read.
    pub is_same: bool,
}

impl NewFile {
    /// Whether the parent has content of it.
    fn had_content(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.stream_bytes() > 0)
    }
}

/// A directory that is being walked.
struct Frame<'r> {
    name: Vec<u8>,
    metadata: Box<Metadata>,
    tree: TreeWriter,
    /// Part of its content does not go into its tree.
    partial: bool,
    before: Option<Before>,
    basis: Option<StreamBasis<'r>>,
}

/// Makes trees of its input.
pub struct Trees<'r, 'w> {
    reader: &'r ChunkReader,
    writer: &'w mut ChunkWriter<'r>,
    cancel: &'r Cancel,
    links: LinkedFiles,
    frames: Vec<Frame<'r>>,
    root: RootTree,
}

/// The tree of `/`.
#[derive(Default)]
pub struct RootTree {
    /// Where it is.
    pub recipe: Recipe,
    /// Part of the content of `/` is not in it.
    pub partial: bool,
}

impl<'r, 'w> Trees<'r, 'w> {
    /// Without entries.
    pub fn new(
        reader: &'r ChunkReader,
        writer: &'w mut ChunkWriter<'r>,
        cancel: &'r Cancel,
    ) -> Self {
        let links = LinkedFiles::new(reader.limits().linked_max);
        let root = RootTree::default();
        Self { reader, writer, cancel, links, frames: Vec::new(), root }
    }

    /// The writer that stores new chunks.
    pub fn writer(&self) -> &ChunkWriter<'r> {
        self.writer
    }

    /// Files with several names.
    pub fn links(&mut self) -> &mut LinkedFiles {
        &mut self.links
    }

    /// Takes the next step.
    pub fn take(
        &mut self,
        step: Step,
        readers: &Readers,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        match step {
            Step::Enter { name, metadata, before } => {
                self.enter(name, metadata, before);
                Ok(())
            }
            Step::Leave => self.leave(tally),
            Step::LeftOut => {
                self.left_out();
                Ok(())
            }
            Step::Entry(entry) => self.push(*entry, tally),
            Step::Kept { name, content_bytes, entry } => {
                tally.counted.stats.files += 1;
                tally.counted.stats.bytes += content_bytes;
                self.keep(&name, &entry)
            }
            Step::File(file, ahead) => self.file(file, &ahead, tally),
            Step::Link(file, handle) => self.link(file, handle, readers, tally),
        }
    }

    /// The writer, to store what entries need.
    pub fn writer_mut(&mut self) -> &mut ChunkWriter<'r> {
        self.writer
    }

    /// A directory begins.
    pub fn enter(&mut self, name: Vec<u8>, metadata: Box<Metadata>, before: Option<Before>) {
        let basis = |before: &Before| StreamBasis::new(self.reader, &before.tree);
        let (basis, tree) = (before.as_ref().map(basis), TreeWriter::new());
        self.frames.push(Frame { name, metadata, tree, partial: false, before, basis });
    }

    /// Something of the deepest directory is not stored.
    pub fn left_out(&mut self) {
        // A given path that does not exist is in no directory.
        if let Some(frame) = self.frames.last_mut() {
            frame.partial = true;
        }
    }

    /// The root's tree, after every directory was left; those that were not are left now.
    pub fn finish(mut self, tally: &mut Tally<'_>) -> Result<RootTree, EngineError> {
        while !self.frames.is_empty() {
            self.left_out();
            self.leave(tally)?;
        }
        if self.links.is_full() {
            tally.note_all(&format!(
                "more than {} files had names of which others were still to come: of the rest, each \
                 name was read by itself, and a restore may make separate files of them",
                self.reader.limits().linked_max
            ));
        }
        Ok(self.root)
    }

    /// The deepest directory ends.
    pub fn leave(&mut self, tally: &mut Tally<'_>) -> Result<(), EngineError> {
        let mut frame = self.frames.pop().expect("a directory is left after it was entered");
        let partial = frame.partial;
        let mut lane = self.writer.metadata(frame.basis.as_mut());
        if self.frames.is_empty() {
            self.root = RootTree { recipe: frame.tree.finish_root(&mut lane)?, partial };
            return Ok(());
        }
        let tree = frame.tree.finish(&mut lane)?;
        tally.counted.stats.directories += 1;
        if let Some(Before { tree: before, partial: was_partial, stored: Some(entry) }) =
            &frame.before
            && (before, was_partial) == (&tree, &partial)
        {
            return self.keep(&frame.name, entry);
        }
        let kind = EntryKind::Directory { tree, partial };
        self.push(Entry { name: frame.name, kind, metadata: *frame.metadata }, tally)
    }

    /// Puts an entry of the parent's tree into its directory, unchanged.
    pub fn keep(&mut self, name: &[u8], entry: &StoredEntry) -> Result<(), EngineError> {
        let frame = self.frames.last_mut().expect("an entry is in a directory");
        let mut lane = self.writer.metadata(frame.basis.as_mut());
        Ok(frame.tree.push_stored(name, entry, &mut lane)?)
    }

    /// Puts an entry into its directory; without its attributes if they are too large, and not at all
    /// if no entry can have its name.
    pub fn push(&mut self, mut entry: Entry, tally: &mut Tally<'_>) -> Result<(), EngineError> {
        if !is_valid_name(&entry.name) {
            let message = "no entry of a snapshot can have its name: it was not stored";
            tally.problem(&self.path_of(&entry.name), message);
            self.left_out();
            return Ok(());
        }
        match &entry.kind {
            EntryKind::Directory { .. } => {}
            EntryKind::File { content } => {
                tally.counted.stats.files += 1;
                tally.counted.stats.bytes += content.stream_bytes();
            }
            _ => tally.counted.stats.files += 1,
        }
        let frame = self.frames.last_mut().expect("an entry is in a directory");
        let mut lane = self.writer.metadata(frame.basis.as_mut());
        match frame.tree.push(&entry, &mut lane) {
            Err(TreeWriteError::EntryTooLarge { .. }) => {
                entry.metadata.xattrs.clear();
                unread::mark(&mut entry.metadata);
                frame.tree.push(&entry, &mut lane)?;
                let message = "its extended attributes are too large and were not stored";
                tally.problem(&self.path_of(&entry.name), message);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// The path of a name in the deepest directory.
    fn path_of(&self, name: &[u8]) -> PathBuf {
        let names = self.frames.iter().skip(1).map(|frame| frame.name.as_slice()).chain([name]);
        std::iter::once(OsStr::new("/")).chain(names.map(OsStr::from_bytes)).collect()
    }

    fn link(
        &mut self,
        mut file: NewFile,
        handle: EntryHandle,
        readers: &Readers,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let Some(linked) = self.links.take(&file.metadata) else {
            // It could not be read under its other name, or has changed since.
            return readers.read_at_once(handle, |ahead| self.file(file, ahead, tally));
        };
        (file.metadata.xattrs, file.is_unread) = (linked.xattrs, linked.is_unread);
        file.metadata.size = linked.content.stream_bytes();
        tally.done(linked.content.stream_bytes());
        self.push_file(file, linked.content, tally)
    }

    fn push_file(
        &mut self,
        file: NewFile,
        content: Recipe,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        if file.has_unknown_size {
            tally.was_read(&file.path, content.stream_bytes(), file.had_content());
        }
        *match &file.before {
            None => &mut tally.counted.new,
            Some(before) if file.is_same || file.racy && *before == content => {
                &mut tally.counted.unchanged
            }
            Some(_) => &mut tally.counted.changed,
        } += 1;
        let kind = EntryKind::File { content };
        let mut metadata = *file.metadata;
        if file.is_unread {
            unread::mark(&mut metadata);
        }
        self.push(Entry { name: file.name, kind, metadata }, tally)
    }

    /// Stores a file as it is read. One that cannot be read is reported and left out; one whose
    /// reading was stopped is left out without a report.
    fn file(
        &mut self,
        mut file: NewFile,
        ahead: &FileAhead,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let mut basis = file.before.as_ref().map(|content| StreamBasis::new(self.reader, content));
        let mut recipe = RecipeBuilder::new();
        for reading in self.readings(ahead) {
            match reading {
                Reading::Opened { metadata, problem } => {
                    file.metadata = metadata;
                    file.is_unread = problem.is_some();
                    if let Some(error) = problem {
                        tally.problem(&file.path, &error.to_string());
                    }
                }
                Reading::Data(piece) => {
                    for (chunk, fingerprint) in piece.chunks() {
                        let offset = recipe.stream_bytes();
                        let put = self.writer.put_data(chunk, fingerprint, offset, basis.as_mut());
                        recipe.push(put?, &mut self.writer.metadata(basis.as_mut()))?;
                        tally.bytes(chunk.len() as u64, self.writer.stats());
                    }
                }
                Reading::Hole(bytes) => {
                    let mut lane = self.writer.metadata(basis.as_mut());
                    recipe.push(ChunkRef::hole(bytes), &mut lane)?;
                    tally.bytes(bytes, self.writer.stats());
                }
                Reading::Failed(error) => {
                    tally.unread(&file.path, &error, || file.had_content());
                    self.left_out();
                    return Ok(());
                }
                Reading::End { change, is_short } => {
                    match change {
                        Ok(None) if is_short => {
                            tally.problem(&file.path, "it ended before the size that it has");
                        }
                        Ok(None) => {}
                        Ok(Some(_)) => tally.problem(&file.path, "it changed while it was read"),
                        Err(error) => tally.problem(&file.path, &error.to_string()),
                    }
                    let content = recipe.finish(&mut self.writer.metadata(basis.as_mut()))?;
                    tally.done(0);
                    file.metadata.size = content.stream_bytes();
                    self.links.put(&file.metadata, file.is_unread, &content);
                    return self.push_file(file, content, tally);
                }
            }
        }
        if !self.cancel.is_cancelled() {
            tally.lost(&file.path, "it could not be read to its end");
            tally.sources.unread(file.path.as_os_str().as_bytes(), || file.had_content());
        }
        self.left_out();
        Ok(())
    }

    /// The readings of a file; waits for them.
    fn readings<'f>(&self, ahead: &'f FileAhead) -> impl Iterator<Item = Reading> + use<'f> {
        let times = self.writer.times().clone();
        std::iter::from_fn(move || times.receive(&ahead.readings).ok()).flatten()
    }
}
