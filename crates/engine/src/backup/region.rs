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
mod scan;
pub mod tree;

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Stopwatch};
use strongroom_catalog::{ChunkRef, Guarantee, Recipe, RecipeBuilder, RecipeReader};
use strongroom_repository::{
    ChunkReader, ChunkWriter, Found as FoundPath, PackOptions, Repository, RepositoryError,
    StreamBasis, StreamCutter, find_path,
};
use strongroom_source::memory::Memory;
use strongroom_source::memory::mark::{Mark, Marker, PAGE_BYTES};

use super::begun::{Begun, Made};
use super::profile::Profile;
use super::tally::Tally;
use super::totals::Totals;
use super::{BackupOptions, BackupOutcome, in_sessions};
use crate::error::EngineError;
use crate::stored_regions::{MARKS_FOLDER, marks_path};
use draft::{Draft, Record};
use map::{MarksHead, MarksReader, write_marks};
use scan::{Found, Part, Scan};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Pages of a chunk.
const PAGES: usize = CHUNK_BYTES / PAGE_BYTES;
/// One kept chunk of this many is compared with its fingerprint, another each time.
const ROTATION: u64 = 64;
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
fn check_regions(regions: &[Region]) -> Result<(), EngineError> {
    let wrong = |message: String| Err(RepositoryError::Argument(message).into());
    if regions.is_empty() {
        return wrong("there is no region to store".to_owned());
    }
    for (number, Region { path, .. }) in regions.iter().enumerate() {
        let shown = path.display();
        let mut parts = path.components();
        let is_plain = parts.next() == Some(Component::RootDir)
            && parts.clone().next().is_some()
            && parts.all(|part| matches!(part, Component::Normal(_)));
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

/// One region while it is stored.
struct Storing<'r> {
    region: &'r Region,
    draft: Draft,
    marker: Marker,
    /// What it was in the parent.
    before: Option<Recipe>,
    in_place: Option<StreamBasis<'r>>,
    /// What its marks were in the parent.
    marks_before: Option<Recipe>,
    pages_changed: u64,
    healed: u64,
}

/// What all regions share.
struct Shared<'s, 'r> {
    repository: &'r Repository,
    reader: &'r ChunkReader,
    cutter: StreamCutter,
    /// Which kept chunks are compared with their fingerprints.
    turn: u64,
    options: &'s BackupOptions,
    cancel: &'s Cancel,
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
    let guaranteed = parent.and_then(|parent| parent.guarantee);
    let turn = (guaranteed.map_or(0, |before| before.turn % ROTATION) + 1) % ROTATION;
    let reader = ChunkReader::for_parents(repository, &begun.own, CacheLimits::default());
    let block_bytes = options.pack.block_bytes.min(BLOCK_BYTES);
    let (pack, dry_run) = (PackOptions { block_bytes, ..options.pack }, options.dry_run);
    let mut writer =
        ChunkWriter::open(repository, &reader, &begun.session, pack, dry_run, monitor, cancel)?;
    let watch = Stopwatch::start();
    let times = writer.times().clone();
    let bytes = regions.iter().map(|region| region.memory.bytes()).sum();
    let mut tally = Tally::new(monitor, Totals::of(regions.len() as u64, bytes));
    let shared = Shared {
        repository,
        reader: &reader,
        cutter: StreamCutter::of_memory(repository)?,
        turn,
        options,
        cancel,
    };
    // What of the parent cannot be read counts as missing.
    let find = |path: &Path| match find_path(parent?, bytes_of(path), &reader).ok()? {
        FoundPath::Entry { entry, .. } => entry.content().cloned(),
        FoundPath::Root { .. } => None,
    };
    let mut storing: Vec<Storing<'_>> = Vec::new();
    for region in regions {
        let (before, marks) = (find(&region.path), find(&marks_path(&region.path)));
        storing.push(Storing::begin(&shared, region, before, marks)?);
    }
    for one in &mut storing {
        one.compare_with_parent(&shared, &mut writer, &mut tally)?;
    }
    let is_as_before = storing.iter().all(Storing::is_as_before);
    let guaranteed_before =
        guaranteed.filter(|before| is_as_before && before.promise >= Guarantee::BYTES);
    let settled = match (what.stillness, guaranteed_before) {
        (Some(stillness), _) => {
            let held = stillness.begin().map_err(EngineError::Still)?;
            settle(&mut storing, &shared, &mut writer)?;
            held.end().map_err(EngineError::Still)?;
            Settled { guarantee: stillness.guarantee(), passes: 2 }
        }
        // What equals the parent everywhere was read as it was at the parent's instant.
        (None, Some(guarantee)) => Settled { guarantee, passes: 1 },
        (None, None) => wait_until_still(&mut storing, what, &shared, &mut writer)?,
    };
    for one in &storing {
        let Region { path, memory, .. } = one.region;
        memory.check().map_err(|error| EngineError::Region { path: path.clone(), error })?;
    }
    let (mut files, mut marks_bytes) = (Vec::new(), 0);
    let (mut healed, mut changed, mut pages) = (0, 0, 0);
    for one in storing {
        healed += one.healed;
        changed += one.pages_changed;
        pages += one.region.memory.bytes().div_ceil(PAGE_BYTES as u64);
        tally.done(0);
        *match one.before {
            None => &mut tally.counted.new,
            Some(_) if one.is_as_before() => &mut tally.counted.unchanged,
            Some(_) => &mut tally.counted.changed,
        } += 1;
        let (path, metadata) = (one.region.path.clone(), one.region.memory.metadata());
        let (content, marks) = one.finish(&shared, &mut writer)?;
        marks_bytes += marks.stream_bytes();
        files.push((marks_path(&path), marks, metadata.clone()));
        files.push((path, content, metadata));
    }
    let root = tree::write(files, started, &reader, &mut writer, &mut tally, cancel)?;
    // Only regions were asked for.
    tally.counted.stats.files -= regions.len() as u64;
    tally.counted.stats.bytes -= marks_bytes;
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
    let passes = settled.passes;
    Ok(RegionOutcome { backup, passes, pages_changed: changed, pages, healed })
}

/// What can be promised, and after how many readings.
struct Settled {
    guarantee: Guarantee,
    passes: u32,
}

/// Reads all regions again until nothing differs from what was read before.
fn wait_until_still<'r>(
    storing: &mut [Storing<'r>],
    what: RegionOptions<'_>,
    shared: &Shared<'_, 'r>,
    writer: &mut ChunkWriter<'r>,
) -> Result<Settled, EngineError> {
    if storing.iter().all(|one| one.region.is_held) {
        let guarantee = Guarantee::new(Guarantee::BYTES, Guarantee::HELD);
        return Ok(Settled { guarantee, passes: 1 });
    }
    let method = Guarantee::READ_TWICE;
    let (mut passes, mut chunks) = (1, 0);
    while passes < what.passes_max.max(2) {
        passes += 1;
        chunks = settle(storing, shared, writer)?;
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

/// Reads all regions once more, and stores what differs from what was read before; returns how many
/// chunks did.
fn settle<'r>(
    storing: &mut [Storing<'r>],
    shared: &Shared<'_, 'r>,
    writer: &mut ChunkWriter<'r>,
) -> Result<u64, EngineError> {
    let mut chunks = 0;
    for one in storing.iter_mut().filter(|one| !one.region.is_held) {
        chunks += one.compare_with_draft(shared, writer)?;
    }
    Ok(chunks)
}

impl<'r> Storing<'r> {
    fn begin(
        shared: &Shared<'_, 'r>,
        region: &'r Region,
        before: Option<Recipe>,
        marks: Option<Recipe>,
    ) -> Result<Self, EngineError> {
        let known = marks.as_ref().and_then(|marks| MarksReader::open(marks, shared.reader));
        let seed = match known {
            Some(marks) => marks.head.seed,
            None => {
                let mut seed = [0; 8];
                shared.repository.surroundings.entropy.fill(&mut seed);
                u64::from_le_bytes(seed)
            }
        };
        let folder = shared.repository.cache_folder();
        Ok(Self {
            region,
            draft: Draft::begin(folder.as_deref()).map_err(EngineError::Whereabouts)?,
            marker: Marker { seed },
            in_place: before.as_ref().map(|before| StreamBasis::new(shared.reader, before)),
            before,
            marks_before: marks,
            pages_changed: 0,
            healed: 0,
        })
    }

    /// Nothing differs from the parent.
    fn is_as_before(&self) -> bool {
        let bytes = self.before.as_ref().map(Recipe::stream_bytes);
        bytes == Some(self.region.memory.bytes()) && self.pages_changed == 0 && self.healed == 0
    }

    /// The first reading: what equals the parent is named again, the rest is stored.
    fn compare_with_parent(
        &mut self,
        shared: &Shared<'_, 'r>,
        writer: &mut ChunkWriter<'r>,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let (before, marks) = (self.before.clone(), self.marks_before.clone());
        let mut chunks = before.as_ref().map(|before| ParentChunks {
            recipe: RecipeReader::new(before, shared.reader),
            next: None,
        });
        let mut marks = marks.as_ref().and_then(|marks| MarksReader::open(marks, shared.reader));
        let scan = self.scan(shared);
        let mut job = |start: u64, lengths: &[usize]| {
            let mut at = start;
            let records = lengths.iter().map(|length| {
                let chunk = chunks.as_mut().and_then(|chunks| chunks.at(at, *length));
                let marks = marks.as_mut().and_then(|marks| marks.next(*length));
                at += *length as u64;
                Some(Record { chunk: chunk?, marks: marks? })
            });
            Ok(records.collect())
        };
        let draft = &self.draft;
        let (in_place, changed, healed) =
            (&mut self.in_place, &mut self.pages_changed, &mut self.healed);
        scan.run(&mut job, &mut |start, parts| {
            let mut records = Vec::with_capacity(parts.len());
            let mut at = start;
            for mut part in parts {
                // It may have been removed since.
                if let (Found::Same, Some(before)) = (&part.found, &part.before)
                    && !before.chunk.is_hole()
                    && !writer.is_present(&before.chunk)?
                {
                    part.found = scan.read_again(at, part.length)?;
                }
                *healed += u64::from(matches!(part.found, Found::Data { is_mended: true, .. }));
                let (length, before) = (part.length, part.before.map(|before| before.marks));
                let record = keep(part, at, in_place, writer)?;
                *changed += pages_that_differ(before, &record, length);
                records.push(record);
                at += length as u64;
                tally.bytes(length as u64, writer.stats());
            }
            draft.write(start, &records).map_err(EngineError::Whereabouts)
        })
    }

    /// A later reading: what differs from the reading before is stored. Returns how many chunks do.
    fn compare_with_draft(
        &mut self,
        shared: &Shared<'_, 'r>,
        writer: &mut ChunkWriter<'r>,
    ) -> Result<u64, EngineError> {
        let scan = Scan { turn: None, ..self.scan(shared) };
        let (draft, in_place) = (&self.draft, &mut self.in_place);
        let mut job = |start: u64, lengths: &[usize]| {
            let records = draft.read(start, lengths).map_err(EngineError::Whereabouts)?;
            Ok(records.into_iter().map(Some).collect())
        };
        let mut chunks = 0;
        scan.run(&mut job, &mut |start, parts| {
            if parts.iter().all(|part| matches!(part.found, Found::Same)) {
                return Ok(());
            }
            let mut records = Vec::with_capacity(parts.len());
            let mut at = start;
            for part in parts {
                let (length, before) = (part.length, part.before);
                let record = keep(part, at, in_place, writer)?;
                chunks += u64::from(Some(record) != before);
                records.push(record);
                at += length as u64;
            }
            draft.write(start, &records).map_err(EngineError::Whereabouts)
        })?;
        Ok(chunks)
    }

    fn scan<'s>(&self, shared: &'s Shared<'_, 'r>) -> Scan<'s>
    where
        'r: 's,
    {
        Scan {
            path: &self.region.path,
            memory: &*self.region.memory,
            marker: self.marker,
            cutter: &shared.cutter,
            reader: shared.reader,
            turn: Some(shared.turn),
            threads: shared.options.readers.clamp(1, 8),
            cancel: shared.cancel,
        }
    }

    /// Its recipe, and that of its marks.
    fn finish(
        mut self,
        shared: &Shared<'_, 'r>,
        writer: &mut ChunkWriter<'r>,
    ) -> Result<(Recipe, Recipe), EngineError> {
        let bytes = self.region.memory.bytes();
        let mut recipe = RecipeBuilder::new();
        let mut hole = 0;
        self.draft.each(bytes, &mut |record| {
            if record.chunk.is_hole() {
                hole += record.chunk.stream_bytes;
                return Ok(());
            }
            let mut lane = writer.metadata(self.in_place.as_mut());
            if hole > 0 {
                recipe.push(ChunkRef::hole(std::mem::take(&mut hole)), &mut lane)?;
            }
            Ok(recipe.push(record.chunk, &mut lane)?)
        })?;
        let mut lane = writer.metadata(self.in_place.as_mut());
        if hole > 0 {
            recipe.push(ChunkRef::hole(hole), &mut lane)?;
        }
        let content = recipe.finish(&mut lane)?;
        let head = MarksHead { seed: self.marker.seed, region_bytes: bytes };
        let before = self.marks_before.as_ref();
        let marks = write_marks(head, &self.draft, before, shared, writer)?;
        Ok((content, marks))
    }
}

/// What a chunk is from now on: what it was, zeros, or bytes, which are stored.
fn keep(
    part: Part,
    at: u64,
    in_place: &mut Option<StreamBasis<'_>>,
    writer: &mut ChunkWriter<'_>,
) -> Result<Record, EngineError> {
    Ok(match part.found {
        Found::Same => part.before.expect("it was compared with what it was"),
        Found::Zeros => Record::zeros(part.length),
        Found::Data { bytes, marks, fingerprint, .. } => {
            let chunk = writer.put_data(&bytes, fingerprint, at, in_place.as_mut())?;
            Record { chunk, marks }
        }
    })
}

/// How many pages of a chunk have another mark than before; all, if nothing was known of them.
fn pages_that_differ(before: Option<[Mark; PAGES]>, now: &Record, length: usize) -> u64 {
    let pages = length.div_ceil(PAGE_BYTES);
    let differs = |page: &usize| before.is_none_or(|before| before[*page] != now.marks[*page]);
    (0..pages).filter(differs).count() as u64
}

/// The chunks of the parent's region, in order.
struct ParentChunks<'r> {
    recipe: RecipeReader<'r, ChunkReader>,
    next: Option<(u64, ChunkRef)>,
}

impl ParentChunks<'_> {
    /// The chunk that is exactly this part of the region, or zeros, if they are all of it. What
    /// cannot be read is as if there was none.
    fn at(&mut self, start: u64, length: usize) -> Option<ChunkRef> {
        let ends_by = |next: Option<(u64, ChunkRef)>| {
            next.is_none_or(|(offset, chunk)| offset + chunk.stream_bytes <= start)
        };
        if ends_by(self.next) {
            self.recipe.seek_forward(start).ok()?;
            self.next = self.recipe.next_chunk().ok().flatten();
        }
        let (offset, chunk) = self.next?;
        let length = length as u64;
        if chunk.is_hole() && offset + chunk.stream_bytes >= start + length {
            return Some(ChunkRef::hole(length));
        }
        (offset == start && chunk.stream_bytes == length).then_some(chunk)
    }
}

/// A path as it is in trees.
pub fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
