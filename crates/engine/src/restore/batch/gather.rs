//! What a batch gathers: files, the chunks and holes that they need, names, and directories.
//!
//! A batch is bounded ([`SizeLimits`]), and any snapshot is restored in batches: a file that needs more than it has room for is
//! added in parts, batch after batch.

use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{Fingerprint, Location, SizeLimits};
use strongroom_catalog::recipe::check_length;
use strongroom_catalog::{ChunkRef, Entry, Metadata};
use strongroom_repository::ChunkReader;
use strongroom_source::{BegunFile, DirectoryId};

use crate::error::EngineError;
use crate::parts::{Part, Parts};
use crate::restore::behind::FlushedTarget;

/// A name in a directory of the target.
pub type NameIn = (DirectoryId, Vec<u8>);

/// How a file comes to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// Nothing has the name: the file is written under it. Until it is finished, it is its
    /// owner's alone and has no time.
    Fresh,
    /// Something has the name. The file is written under a temporary name, and renamed when it is
    /// whole.
    Beside,
    /// The file that exists is rewritten where it is.
    Patch,
}

/// A file that is to be written, and how far its recipe was read.
pub struct PendingFile<'r> {
    directory: DirectoryId,
    name: Vec<u8>,
    metadata: Metadata,
    making: Making,
    parts: Parts<'r>,
    /// Why nothing of the recipe may be used.
    invalid: Option<String>,
}

/// A file of the batch, or the part of one that the batch has room for.
pub struct BatchFile {
    pub(super) directory: DirectoryId,
    pub(super) name: Vec<u8>,
    pub(super) metadata: Metadata,
    pub(super) making: Making,
    /// Nothing of it comes with a later batch.
    pub(super) is_last: bool,
    /// Why a part of it is lost, or all.
    pub(super) lost: Option<String>,
    /// What the place said that withholds a part of its recipe: it is left out.
    pub(super) withheld: Option<String>,
    pub(super) holes: Vec<(u64, u64)>,
    pub(super) first_want: usize,
    pub(super) wants: usize,
}

/// What is known of a file of which a part is written, and the rest comes with the next batch.
#[derive(Default)]
pub struct Unfinished {
    pub(super) directory: Option<DirectoryId>,
    pub(super) temporary: Option<Vec<u8>>,
    pub(super) damaged: Option<String>,
    pub(super) withheld: Option<String>,
    pub(super) opened: Option<BegunFile>,
    pub(super) failed: bool,
}

/// A chunk that a file needs.
#[derive(Clone, Copy)]
pub struct Want {
    pub(super) location: Location,
    pub(super) fingerprint: Fingerprint,
    pub(super) file: u32,
    pub(super) bytes: u32,
    pub(super) offset: u64,
}

impl Want {
    /// As its recipe names it.
    pub(super) fn chunk(&self) -> ChunkRef {
        let Self { location, fingerprint, bytes, .. } = *self;
        ChunkRef { fingerprint, location, stream_bytes: u64::from(bytes) }
    }
}

/// A further name of a file, which is linked when the file is written.
pub struct FurtherName {
    /// The first.
    pub first: NameIn,
    /// Where this one belongs.
    pub directory: DirectoryId,
    /// What the snapshot has under it.
    pub entry: Entry,
    /// Whether something may have this name.
    pub exists: bool,
}

/// What is gathered between two flushes.
#[derive(Default)]
pub struct Batch {
    pub(super) files: Vec<BatchFile>,
    pub(super) wants: Vec<Want>,
    /// Holes, and parts that are lost.
    gaps: usize,
    /// The first file began in the batch before.
    pub begun: Option<Unfinished>,
    /// Further names of files.
    pub links: Vec<FurtherName>,
    /// Directories that nothing more comes into, deepest first, and what is put back of them.
    pub closed: Vec<(DirectoryId, Option<Metadata>)>,
    /// Directories that were held for the first name of a file, of which there is no other.
    pub released: Vec<DirectoryId>,
}

impl<'r> PendingFile<'r> {
    /// A file of which nothing was read yet.
    pub fn new(
        directory: DirectoryId,
        entry: Entry,
        making: Making,
        reader: &'r ChunkReader,
    ) -> Self {
        let content = entry.content().expect("the caller adds files");
        let invalid = check_length(&entry).err().map(|error| error.to_string());
        let parts = Parts::new(content, reader);
        let (name, metadata) = (entry.name, entry.metadata);
        Self { directory, name, metadata, making, parts, invalid }
    }
}

impl Batch {
    /// Adds a file and what it needs, or as much of it as there is room for. Returns false if there
    /// is more: then the batch has to be written, and the rest to be added to the next.
    pub fn add(
        &mut self,
        file: &mut PendingFile<'_>,
        limits: &SizeLimits,
    ) -> Result<bool, EngineError> {
        // A batch is bounded.
        let number = self.files.len() as u32;
        let first_want = self.wants.len();
        let mut holes = Vec::new();
        let mut lost = file.invalid.clone();
        let mut is_last = lost.is_some();
        let mut withheld = None;
        while !is_last && self.wants.len() + self.gaps < limits.batch_wants_max {
            match file.parts.next() {
                Err(error) if error.is_withheld() => {
                    withheld = Some(error.to_string());
                    is_last = true;
                    // Nothing is fetched for a file that is left out.
                    self.wants.truncate(first_want);
                    holes.clear();
                }
                Err(error) => return Err(error.into()),
                Ok(None) => is_last = true,
                Ok(Some(Part::Chunk(offset, hole))) if hole.is_hole() => {
                    holes.push((offset, hole.stream_bytes));
                    self.gaps += 1;
                }
                Ok(Some(Part::Chunk(offset, chunk))) => {
                    self.wants.push(want(number, offset, &chunk));
                }
                Ok(Some(Part::Lost(part))) => {
                    lost.get_or_insert_with(|| part.why.to_string());
                    self.gaps += 1;
                }
            }
        }
        self.files.push(BatchFile {
            directory: file.directory,
            name: file.name.clone(),
            metadata: file.metadata.clone(),
            making: file.making,
            is_last,
            lost,
            withheld,
            holes,
            first_want,
            wants: self.wants.len() - first_want,
        });
        reached_if(!is_last, Regime::FileInParts);
        Ok(is_last)
    }

    /// True if some of its files take the place of others.
    pub fn replaces_files(&self) -> bool {
        self.files.iter().any(|file| file.making == Making::Beside)
    }

    #[cfg(test)]
    pub fn first_loss(&self) -> Option<&String> {
        self.files.iter().find_map(|file| file.lost.as_ref())
    }

    /// True if it is time to write.
    pub fn is_full(&self, limits: &SizeLimits) -> bool {
        let entries = self.files.len() + self.links.len() + self.closed.len();
        let is_full = self.wants.len() + self.gaps >= limits.batch_wants_max
            || entries >= limits.batch_entries_max;
        reached_if(is_full, Regime::BatchFull);
        is_full
    }
}

impl Unfinished {
    /// Removes what was written, as nothing more will be.
    pub fn discard(self, target: &FlushedTarget<'_>) {
        if let (Some(directory), Some(name)) = (self.directory, self.temporary) {
            // What ended the restore is reported; this file is left over if it cannot be removed.
            let _ = target.remove(directory, &name);
        }
    }
}

fn want(file: u32, offset: u64, chunk: &ChunkRef) -> Want {
    let bytes = u32::try_from(chunk.stream_bytes).unwrap_or(u32::MAX);
    let (location, fingerprint) = (chunk.location, chunk.fingerprint);
    Want { location, fingerprint, file, bytes, offset }
}
