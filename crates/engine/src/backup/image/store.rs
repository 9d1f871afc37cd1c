//! Storing the disks: each is one stream.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use strongroom_base::Cancel;
use strongroom_catalog::{ChunkRef, Part, Recipe, RecipeBuilder};
use strongroom_repository::{
    ChunkReader, ChunkWriter, Piece, Repository, StreamBasis, StreamCutter,
};

use super::cut::{Cut, Cutting, cut_disk};
use super::earlier::Earlier;
use super::gather::Gathered;
use super::map::FileOnVolume;
use super::plan::{Content, Plan, Segment};
use super::unchanged::{Patched, Unchanged};
use super::whereabouts::{Whereabouts, WhereaboutsWriter};
use super::{Disk, raw_name};
use crate::backup::BackupOptions;
use crate::backup::tally::Tally;
use crate::error::EngineError;

/// A disk that is stored.
pub struct Stored {
    /// Its bytes.
    pub recipe: Recipe,
    /// Where its chunks went.
    pub whereabouts: Whereabouts,
    /// Whether zeros are in place of what could not be read.
    pub has_lost: bool,
}

/// What is needed while the disks are stored.
pub struct Storing<'s, 'r> {
    /// The repository.
    pub repository: &'s Repository,
    /// Reads the parent.
    pub reader: &'r ChunkReader,
    /// What was stored in the parent.
    pub before: &'s Earlier,
    /// Threads, and how chunks are packed.
    pub options: &'s BackupOptions,
    /// The request to stop.
    pub cancel: &'r Cancel,
}

/// One disk while it is stored.
struct Stream<'t, 'r, 'w, 'm> {
    writer: &'t mut ChunkWriter<'w>,
    tally: &'t mut Tally<'m>,
    disk: &'t str,
    path: PathBuf,
    recipe: RecipeBuilder,
    places: WhereaboutsWriter,
    /// What the disk was in the parent.
    in_place: Option<StreamBasis<'r>>,
    files: FileBases<'r>,
    /// Zeros that are not in the recipe yet.
    hole: u64,
    /// Bytes of the disk so far.
    at: u64,
    /// Whether zeros are in place of what could not be read.
    has_lost: bool,
}

/// What changed files were in the parent.
struct FileBases<'r> {
    reader: &'r ChunkReader,
    changed: HashMap<FileOnVolume, Recipe>,
    open: Option<(FileOnVolume, StreamBasis<'r>)>,
}

impl<'r> Storing<'_, 'r> {
    /// Stores all disks.
    pub fn store(
        &self,
        disks: &[Disk],
        patched: &[Patched<'_>],
        gathered: Gathered,
        unchanged: Vec<Option<Unchanged<'r>>>,
        writer: &mut ChunkWriter<'r>,
        tally: &mut Tally<'_>,
    ) -> Result<Vec<Stored>, EngineError> {
        let Gathered { maps, mut changed, .. } = gathered;
        let folder = self.repository.cache_folder();
        let mut stored = Vec::new();
        for (number, (map, unchanged)) in maps.into_iter().zip(unchanged).enumerate() {
            let disk = &disks[number];
            let cutting = Cutting {
                disk: &patched[number],
                files: StreamCutter::of_files(self.repository)?,
                others: StreamCutter::of_images(self.repository)?,
                reader: self.reader,
                cancel: self.cancel,
                times: writer.times().clone(),
                lost: Arc::default(),
            };
            let before = self.before.image(&disk.name);
            let mut stream = Stream {
                tally,
                disk: &disk.name,
                path: PathBuf::from(raw_name(&disk.name)),
                recipe: RecipeBuilder::new(),
                places: WhereaboutsWriter::begin(folder.as_deref())
                    .map_err(EngineError::Whereabouts)?,
                in_place: before.map(|before| StreamBasis::new(self.reader, before)),
                files: FileBases { reader: self.reader, changed, open: None },
                hole: 0,
                at: 0,
                has_lost: false,
                writer,
            };
            let plan = Plan::new(&map, disk.image.size());
            let threads = self.options.readers.max(1);
            let mut take = |cut| stream.take(cut);
            match &unchanged {
                Some(unchanged) => cut_disk(&cutting, unchanged.keep(plan), threads, &mut take)?,
                None => cut_disk(&cutting, plan, threads, &mut take)?,
            }
            let (disk, files) = stream.finish()?;
            stored.push(disk);
            changed = files;
        }
        Ok(stored)
    }
}

impl Stream<'_, '_, '_, '_> {
    fn take(&mut self, cut: Cut) -> Result<(), EngineError> {
        match cut {
            Cut::Zeros { bytes } => {
                self.places.push(&ChunkRef::hole(bytes)).map_err(EngineError::Whereabouts)?;
                self.hole += bytes;
                self.at += bytes;
                self.tally.bytes(bytes, self.writer.stats());
                Ok(())
            }
            Cut::Data { start, segment, piece } => self.data(start, segment, &piece),
            Cut::Kept(chunk) => self.kept(chunk),
            Cut::Denied { range } => {
                let (disk, offset) = (self.disk.to_owned(), range.start);
                Err(EngineError::DiskDenied { disk, offset })
            }
            Cut::Broken { why } => Err(EngineError::DiskBroken { disk: self.disk.to_owned(), why }),
            Cut::Unreadable { range, why } => {
                self.has_lost = true;
                let bytes = range.end - range.start;
                let message = format!(
                    "{bytes} bytes from byte {} on cannot be read, and were stored as zeros: {why}",
                    range.start
                );
                self.tally.problem(&self.path, &message);
                Ok(())
            }
            Cut::Unsampled { range, why } => {
                let bytes = range.end - range.start;
                let message = format!(
                    "{bytes} bytes from byte {} on cannot be read any more, and were stored as in the \
                     snapshot before: {why}",
                    range.start
                );
                self.tally.problem(&self.path, &message);
                Ok(())
            }
        }
    }

    /// Names a chunk of the parent again.
    fn kept(&mut self, chunk: ChunkRef) -> Result<(), EngineError> {
        self.end_hole()?;
        self.places.push(&chunk).map_err(EngineError::Whereabouts)?;
        self.recipe.push(chunk, &mut self.writer.metadata(self.in_place.as_mut()))?;
        self.at += chunk.stream_bytes;
        self.tally.bytes(chunk.stream_bytes, self.writer.stats());
        Ok(())
    }

    fn data(&mut self, start: u64, segment: Segment, piece: &Piece) -> Result<(), EngineError> {
        debug_assert_eq!(start, self.at);
        self.end_hole()?;
        for (bytes, fingerprint) in piece.chunks() {
            let part = Part { level: 0, offset: self.at };
            let in_place = self.in_place.as_mut();
            let is_unchanged =
                in_place.is_some_and(|disk| disk.in_place(part, &fingerprint).is_some());
            // What a file was in the parent is the better basis, wherever it was on the disk.
            let file = match segment.content {
                Content::File(file, from) if !is_unchanged => {
                    self.files.basis(file).map(|basis| (basis, from + (self.at - segment.start)))
                }
                _ => None,
            };
            let chunk = match file {
                Some((basis, offset)) => {
                    self.writer.put_data(bytes, fingerprint, offset, Some(basis))?
                }
                None => {
                    self.writer.put_data(bytes, fingerprint, self.at, self.in_place.as_mut())?
                }
            };
            self.places.push(&chunk).map_err(EngineError::Whereabouts)?;
            self.recipe.push(chunk, &mut self.writer.metadata(self.in_place.as_mut()))?;
            self.at += chunk.stream_bytes;
            self.tally.bytes(chunk.stream_bytes, self.writer.stats());
        }
        Ok(())
    }

    fn end_hole(&mut self) -> Result<(), EngineError> {
        if self.hole > 0 {
            let hole = ChunkRef::hole(std::mem::take(&mut self.hole));
            self.recipe.push(hole, &mut self.writer.metadata(self.in_place.as_mut()))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Stored, HashMap<FileOnVolume, Recipe>), EngineError> {
        self.end_hole()?;
        let recipe = self.recipe.finish(&mut self.writer.metadata(self.in_place.as_mut()))?;
        let whereabouts = self.places.finish().map_err(EngineError::Whereabouts)?;
        Ok((Stored { recipe, whereabouts, has_lost: self.has_lost }, self.files.changed))
    }
}

impl<'r> FileBases<'r> {
    /// What a file was in the parent, if it has changed since.
    fn basis(&mut self, file: FileOnVolume) -> Option<&mut StreamBasis<'r>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            let before = self.changed.get(&file)?;
            self.open = Some((file, StreamBasis::new(self.reader, before)));
        }
        self.open.as_mut().map(|(_, basis)| basis)
    }
}
