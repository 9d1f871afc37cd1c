//! Regions of memory, stored while they are in use.
//!
//! A region is one stream, cut at multiples of 64 KiB. What a chunk was when it was stored last is
//! known by the marks of its pages ([`Marker`]), a few bytes each that are stored beside the region:
//! a chunk whose marks are what they were is named again, and only read. So it takes no help from the
//! kernel or from the owner to find what changed, and no copy (SDDS-2002, §2.2). One kept chunk of 64
//! is compared with its fingerprint all the same, another each time: this mends a mark that missed a
//! change, and finds memory that does not keep what it holds.
//!
//! All regions are read again until nothing differs from what was read before: then all of it was so
//! at one instant, between the two readings. What always changes is refused, unless that is
//! accepted; what is held still by others ([`Stillness`]) is read once more meanwhile.
//!
//! ```text
//! parent: recipe, marks ─▶ scan (threads) ─▶ draft ─▶ scan ─▶ … ─▶ recipe, marks, trees
//!                              └─▶ packer ◀─────────────┘
//! ```

mod draft;
mod map;
mod regions;
mod scan;
mod shared;
mod storing;
pub mod tree;

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Stopwatch};
use strongroom_catalog::Guarantee;
use strongroom_catalog::entry::is_valid_name;
use strongroom_repository::{ChunkReader, ChunkWriter, PackOptions, Repository, RepositoryError};
use strongroom_source::memory::Memory;
use strongroom_source::memory::mark::PAGE_BYTES;

use super::begun::{Begun, Made};
use super::profile::Profile;
use super::tally::Tally;
use super::totals::Totals;
use super::{BackupOptions, BackupOutcome, in_sessions};
use crate::error::EngineError;
use crate::stored_regions::MARKS_FOLDER;
pub use regions::{RegionCounts, RegionFile, Regions};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Pages of a chunk.
const PAGES: usize = CHUNK_BYTES / PAGE_BYTES;
/// One kept chunk of this many is compared with its fingerprint, another each time.
const ROTATION: u64 = 64;
/// Why what was read while programs were stopped is not stored.
const STILL_CHANGES: &str =
    "the regions change while they are stopped, so others write to them, too";
/// A block is closed at this many bytes: chunks of a region are read from anywhere.
const BLOCK_BYTES: usize = 256 << 10;

/// A region of memory, and where it is in the snapshot.
pub struct Region {
    /// Its path, absolute.
    pub path: PathBuf,
    /// Its bytes.
    pub memory: Box<dyn Memory>,
    /// It is of one instant by itself: it is read once.
    pub is_held: bool,
}

/// Holds those still who write to the regions.
pub trait Stillness {
    /// Stops them. They go on when what is returned is dropped.
    ///
    /// # Errors
    ///
    /// They cannot be stopped; then they go on.
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String>;

    /// What is promised of what is read meanwhile.
    fn guarantee(&self) -> Guarantee;

    /// Whether there may be others who write, and are not stopped. Then the regions are read once more
    /// meanwhile, and nothing is stored if anything differs.
    fn may_miss_writers(&self) -> bool {
        false
    }
}

/// Those who write to the regions are stopped, until this is dropped.
pub trait StillnessGuard {
    /// Lets them go on.
    ///
    /// # Errors
    ///
    /// They were not stopped all the time, or do not go on.
    fn end(self: Box<Self>) -> Result<(), String>;
}

/// How regions are stored.
#[derive(Clone, Copy)]
pub struct RegionOptions<'o> {
    /// How often they are read at most until nothing in them changes.
    pub passes_max: u32,
    /// Store what always changes, too.
    pub accepts_fuzzy: bool,
    /// Holds those still who write to them.
    pub stillness: Option<&'o dyn Stillness>,
}

/// What storing regions did.
#[derive(Debug, Clone)]
pub struct RegionOutcome {
    /// The snapshot.
    pub backup: BackupOutcome,
    /// How often the regions were read.
    pub passes: u32,
    /// Pages that differ from the parent's.
    pub pages_changed: u64,
    /// All pages.
    pub pages: u64,
    /// Chunks whose marks are what they were and whose bytes are not, and that were stored again.
    pub healed: u64,
}

/// Makes a snapshot of regions. Its paths are those of the options: folders, if it is what is in them
/// that is stored.
///
/// # Errors
///
/// A region is no more what it was, or [always changes](EngineError::Fuzzy); or the repository
/// fails. There is no snapshot then.
pub fn backup_regions(
    repository: &Repository,
    regions: &[Region],
    what: RegionOptions<'_>,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RegionOutcome, EngineError> {
    check_regions(regions)?;
    let mut outcome = None;
    let backup = in_sessions(monitor, &mut || {
        let done = store(repository, regions, what, options, monitor, cancel)?;
        let backup = done.backup.clone();
        outcome = Some(done);
        Ok(backup)
    });
    backup.map(|_| outcome.expect("it is set where a backup ends well"))
}

/// Checks where regions are to be in the snapshot.
pub fn check_regions(regions: &[Region]) -> Result<(), EngineError> {
    let wrong = |message: String| Err(RepositoryError::Argument(message).into());
    if regions.is_empty() {
        return wrong("there is no region to store".to_owned());
    }
    for (number, Region { path, .. }) in regions.iter().enumerate() {
        let shown = path.display();
        let mut parts = path.components();
        let is_plain = parts.next() == Some(Component::RootDir)
            && parts.clone().next().is_some()
            && parts.all(|part| {
                matches!(part, Component::Normal(name) if is_valid_name(name.as_encoded_bytes()))
            });
        if !is_plain || path.starts_with(Path::new("/").join(MARKS_FOLDER)) {
            return wrong(format!("\"{shown}\" cannot be the path of a region in a snapshot"));
        }
        let meets = |other: &Region| other.path.starts_with(path) || path.starts_with(&other.path);
        if let Some(other) = regions[..number].iter().find(|other| meets(other)) {
            let other = other.path.display();
            return wrong(format!("the regions {other} and {shown} cannot both be stored"));
        }
    }
    Ok(())
}

fn store(
    repository: &Repository,
    regions: &[Region],
    what: RegionOptions<'_>,
    options: &BackupOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<RegionOutcome, EngineError> {
    let started = repository.surroundings.clock.now();
    let paths: Vec<_> = options.paths.iter().map(|path| bytes_of(path).to_vec()).collect();
    let begun = Begun::begin(repository, options, &paths, started, monitor)?;
    let parent = begun.parent.as_ref();
    let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
    let block_bytes = options.pack.block_bytes.min(BLOCK_BYTES);
    let (pack, dry_run) = (PackOptions { block_bytes, ..options.pack }, options.dry_run);
    let mut writer =
        ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)?;
    let watch = Stopwatch::start();
    let times = writer.times().clone();
    let bytes = regions.iter().map(|region| region.memory.bytes()).sum();
    let mut tally = Tally::new(monitor, Totals::of(regions.len() as u64, bytes));
    let mut storing = Regions::begin((repository, &reader), regions, parent, options, cancel)?;
    storing.compare_with_parent(&mut writer, &mut tally)?;
    let settled = match (what.stillness, storing.guaranteed_before()) {
        (Some(stillness), _) => {
            let held = stillness.begin().map_err(EngineError::Still)?;
            storing.settle(&mut writer)?;
            let mut passes = 2;
            if stillness.may_miss_writers() {
                passes += 1;
                if storing.settle(&mut writer)? > 0 {
                    return Err(EngineError::Still(STILL_CHANGES.to_owned()));
                }
            }
            held.end().map_err(EngineError::Still)?;
            Settled { guarantee: stillness.guarantee(), passes }
        }
        // What equals the parent everywhere was read as it was at the parent's instant.
        (None, Some(guarantee)) => Settled { guarantee, passes: 1 },
        (None, None) => wait_until_still(&mut storing, what, &mut writer)?,
    };
    let (turn, stored) = (storing.turn(), storing.finish(&mut writer, &mut tally)?);
    let root = tree::write(stored.files, started, &reader, &mut writer, &mut tally, cancel)?;
    // Only regions were asked for.
    tally.counted.stats.files -= regions.len() as u64;
    tally.counted.stats.bytes -= stored.marks_bytes;
    cancel.check()?;
    let needs = writer.needs();
    let written = writer.finish(monitor)?;
    let profile = Profile::new(watch.elapsed(), &times, options.readers, options.pack.workers);
    let made = Made {
        started,
        paths,
        root,
        counted: tally.counted,
        stopped: false,
        is_part_worth: false,
        needs,
        written,
        profile,
        guarantee: Some(Guarantee { turn, ..settled.guarantee }),
    };
    let backup = begun.end(made, repository, options, monitor)?;
    let (passes, RegionCounts { pages, pages_changed, healed }) = (settled.passes, stored.counts);
    Ok(RegionOutcome { backup, passes, pages_changed, pages, healed })
}

/// What can be promised, and after how many readings.
struct Settled {
    guarantee: Guarantee,
    passes: u32,
}

/// Reads all regions again until nothing differs from what was read before.
fn wait_until_still<'r>(
    storing: &mut Regions<'_, 'r>,
    what: RegionOptions<'_>,
    writer: &mut ChunkWriter<'r>,
) -> Result<Settled, EngineError> {
    if storing.are_all_held() {
        let guarantee = Guarantee::new(Guarantee::BYTES, Guarantee::HELD);
        return Ok(Settled { guarantee, passes: 1 });
    }
    // What is held beside what is read twice makes that no better.
    let method = Guarantee::READ_TWICE;
    let (mut passes, mut chunks) = (1, 0);
    while passes < what.passes_max.max(2) {
        passes += 1;
        chunks = storing.settle(writer)?;
        if chunks == 0 {
            let guarantee = Guarantee::new(Guarantee::BYTES, method);
            return Ok(Settled { guarantee, passes });
        }
    }
    if !what.accepts_fuzzy {
        return Err(EngineError::Fuzzy { chunks });
    }
    let guarantee = Guarantee::new(Guarantee::FUZZY, method);
    Ok(Settled { guarantee, passes })
}

/// A path as it is in trees.
pub fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
