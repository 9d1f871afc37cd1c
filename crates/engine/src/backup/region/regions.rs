//! All regions of a snapshot while they are stored, in a snapshot of their own or beside disks.

use std::path::{Path, PathBuf};

use strongroom_base::Cancel;
use strongroom_catalog::{Guarantee, Metadata, Recipe, Snapshot};
use strongroom_repository::{
    ChunkReader, ChunkWriter, Found as FoundPath, Repository, StreamCutter, find_path,
};
use strongroom_source::memory::mark::PAGE_BYTES;

use super::shared::Shared;
use super::storing::Storing;
use super::{ROTATION, Region, bytes_of};
use crate::backup::BackupOptions;
use crate::backup::tally::Tally;
use crate::error::EngineError;
use crate::stored_regions::marks_path;

/// Regions while they are stored.
pub struct Regions<'s, 'r> {
    shared: Shared<'s, 'r>,
    storing: Vec<Storing<'r>>,
    /// What the parent promises of its regions.
    guaranteed: Option<Guarantee>,
}

/// A file of a region or of its marks: its path, content and metadata.
pub type RegionFile = (PathBuf, Recipe, Metadata);

/// Regions that are stored.
pub struct StoredRegions {
    /// Their files and those of their marks: paths, contents, metadata.
    pub files: Vec<RegionFile>,
    /// Bytes of all marks.
    pub marks_bytes: u64,
    /// What was found of them.
    pub counts: RegionCounts,
}

/// What was found of regions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// All pages.
    pub pages: u64,
    /// Pages that differ from the parent's.
    pub pages_changed: u64,
    /// Chunks whose marks are what they were and whose bytes are not, and that were stored again.
    pub healed: u64,
}

impl<'s, 'r> Regions<'s, 'r> {
    /// Finds them in the parent. What of it cannot be read counts as missing.
    pub fn begin(
        (repository, reader): (&'r Repository, &'r ChunkReader),
        regions: &'r [Region],
        parent: Option<&Snapshot>,
        options: &'s BackupOptions,
        cancel: &'s Cancel,
    ) -> Result<Self, EngineError> {
        let guaranteed = parent.and_then(|parent| parent.guarantee);
        let turn = (guaranteed.map_or(0, |before| before.turn % ROTATION) + 1) % ROTATION;
        let cutter = StreamCutter::of_memory(repository)?;
        let shared = Shared { repository, reader, cutter, turn, options, cancel };
        let find = |path: &Path| match find_path(parent?, bytes_of(path), reader).ok()? {
            FoundPath::Entry { entry, .. } => entry.content().cloned(),
            FoundPath::Root { .. } => None,
        };
        let mut storing = Vec::new();
        for region in regions {
            let (before, marks) = (find(&region.path), find(&marks_path(&region.path)));
            storing.push(Storing::begin(&shared, region, before, marks)?);
        }
        Ok(Self { shared, storing, guaranteed })
    }

    /// Which kept chunks are compared with their fingerprints.
    pub fn turn(&self) -> u64 {
        self.shared.turn
    }

    /// Each is of one instant by itself.
    pub fn are_all_held(&self) -> bool {
        self.storing.iter().all(|one| one.region.is_held)
    }

    /// The first reading.
    pub fn compare_with_parent(
        &mut self,
        writer: &mut ChunkWriter<'r>,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let shared = &self.shared;
        self.storing.iter_mut().try_for_each(|one| one.compare_with_parent(shared, writer, tally))
    }

    /// What the parent promises, if the first reading found that nothing differs from it.
    pub fn guaranteed_before(&self) -> Option<Guarantee> {
        let is_as_before = self.storing.iter().all(Storing::is_as_before);
        self.guaranteed.filter(|before| is_as_before && before.promise >= Guarantee::BYTES)
    }

    /// Reads all regions once more, and stores what differs from what was read before; returns how
    /// many chunks did.
    pub fn settle(&mut self, writer: &mut ChunkWriter<'r>) -> Result<u64, EngineError> {
        let mut chunks = 0;
        for one in self.storing.iter_mut().filter(|one| !one.region.is_held) {
            chunks += one.compare_with_draft(&self.shared, writer)?;
        }
        Ok(chunks)
    }

    /// The files that they are. Each region must still be what it was.
    pub fn finish(
        self,
        writer: &mut ChunkWriter<'r>,
        tally: &mut Tally<'_>,
    ) -> Result<StoredRegions, EngineError> {
        let Self { shared, storing, .. } = self;
        for one in &storing {
            let Region { path, memory, .. } = one.region;
            memory.check().map_err(|error| EngineError::Region { path: path.clone(), error })?;
        }
        let (mut files, mut marks_bytes) = (Vec::new(), 0);
        let mut counts = RegionCounts::default();
        for one in storing {
            counts.healed += one.healed;
            counts.pages_changed += one.pages_changed;
            counts.pages += one.region.memory.bytes().div_ceil(PAGE_BYTES as u64);
            tally.done(0);
            *match one.before {
                None => &mut tally.counted.new,
                Some(_) if one.is_as_before() => &mut tally.counted.unchanged,
                Some(_) => &mut tally.counted.changed,
            } += 1;
            let (path, metadata) = (one.region.path.clone(), one.region.memory.metadata());
            let (content, marks) = one.finish(&shared, writer)?;
            marks_bytes += marks.stream_bytes();
            files.push((marks_path(&path), marks, metadata.clone()));
            files.push((path, content, metadata));
        }
        Ok(StoredRegions { files, marks_bytes, counts })
    }
}
