//! A snapshot of regions that other snapshots have: buckets of many nodes, stored at one instant, of
//! which each node has committed its own. No byte of them is stored again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Stopwatch};
use strongroom_catalog::{Guarantee, Snapshot};
use strongroom_repository::{ChunkReader, ChunkWriter, Repository, RepositoryError};

use super::begun::{Begun, Made};
use super::present::is_whole;
use super::profile::Profile;
use super::region::{bytes_of, tree};
use super::tally::Tally;
use super::totals::Totals;
use super::{BackupOptions, BackupOutcome, in_sessions};
use crate::error::EngineError;
use crate::stored_regions::{MARKS_FOLDER, StoredRegion, marks_path, regions_of};

/// What is taken from another snapshot: the files at a path and below it, with their marks.
#[derive(Debug, Clone)]
pub struct CombinedPart {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The path in it, and in the new one; absolute.
    pub path: PathBuf,
}

/// Makes a snapshot of parts of others. Its paths are those of the options.
///
/// # Errors
///
/// A part does not exist, or [not all of it](EngineError::PartGone); or the repository fails. There
/// is no snapshot then.
pub fn combine(
    repository: &Repository,
    parts: &[CombinedPart],
    guarantee: Guarantee,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let mut files = Vec::new();
    for CombinedPart { snapshot, path } in parts {
        files.extend(regions_of(repository, snapshot, bytes_of(path), cancel)?);
        // Without marks, the next store reads all of it.
        match regions_of(repository, snapshot, bytes_of(&marks_path(path)), cancel) {
            Err(EngineError::Repository(RepositoryError::NoSuchPath { .. })) => {}
            marks => files.extend(marks?),
        }
    }
    in_sessions(monitor, &mut || {
        combine_in_session(repository, &files, guarantee, options, monitor, cancel)
    })
}

fn combine_in_session(
    repository: &Repository,
    files: &[StoredRegion],
    guarantee: Guarantee,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<BackupOutcome, EngineError> {
    let started = repository.surroundings.clock.now();
    let paths: Vec<_> = options.paths.iter().map(|path| bytes_of(path).to_vec()).collect();
    let begun = Begun::begin(repository, options, &paths, started, monitor)?;
    let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
    let (pack, dry_run) = (options.pack, options.dry_run);
    let mut writer =
        ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)?;
    let watch = Stopwatch::start();
    let times = writer.times().clone();
    let marks_folder = Path::new("/").join(MARKS_FOLDER);
    let is_marks = |file: &StoredRegion| file.path.starts_with(&marks_folder);
    let regions = files.iter().filter(|file| !is_marks(file));
    let bytes = regions.clone().map(|region| region.content.stream_bytes()).sum();
    let mut tally = Tally::new(monitor, Totals::of(regions.count() as u64, bytes));
    // The new snapshot is the owner's, who reads everything: what a node names in it is looked for where the
    // node's own snapshot could name it, and nowhere else.
    let mut by_domain: BTreeMap<&str, Vec<&StoredRegion>> = BTreeMap::new();
    for file in files {
        by_domain.entry(&file.domain).or_default().push(file);
    }
    for (domain, files) in by_domain {
        // One at a time, as each keeps blocks.
        let own = ChunkReader::of_domain(repository, domain, CacheLimits::default())?;
        for StoredRegion { path, content, .. } in files {
            if !is_whole(content, &own, &|chunk| writer.is_there(chunk, &own))? {
                return Err(EngineError::PartGone { path: path.clone() });
            }
        }
    }
    let entries =
        files.iter().map(|file| (file.path.clone(), file.content.clone(), file.metadata.clone()));
    let root = tree::write(entries.collect(), started, &reader, &mut writer, &mut tally, cancel)?;
    // Only regions were asked for.
    for marks in files.iter().filter(|file| is_marks(file)) {
        tally.counted.stats.files -= 1;
        tally.counted.stats.bytes -= marks.content.stream_bytes();
    }
    tally.counted.unchanged = tally.counted.stats.files;
    cancel.check()?;
    let needs = writer.needs();
    let written = writer.finish(monitor)?;
    let made = Made {
        started,
        paths,
        root,
        counted: tally.counted,
        stopped: false,
        is_part_worth: false,
        needs,
        written,
        profile: Profile::new(watch.elapsed(), &times, options.readers, options.pack.workers),
        guarantee: Some(guarantee),
    };
    begun.end(made, repository, options, monitor)
}
