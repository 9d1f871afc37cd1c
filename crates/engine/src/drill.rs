//! `drill`: a sample of a snapshot is restored into a scratch folder, read back from the disk, and
//! compared with what was stored and with what is still on this machine.
//!
//! The restore is the one that `restore` does. What it wrote is then compared by code of its own:
//! the snapshot is read again, metadata is compared with each entry, and content with its
//! fingerprints. The result is kept in the repository, where every machine sees it
//! (`docs/design/0026-drills.md`).

mod compare;
mod links;
mod live;
mod sample;
mod scratch;
mod verdict;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_arena::CacheLimits;

use strongroom_base::entropy::random_array;
use strongroom_base::{Cancel, Monitor, Problem, Severity};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    ChunkReader, Collections, Drill, DrillVerdict, Repository, RepositoryError, SnapshotList,
    change_remark, list_snapshots,
};
use strongroom_source::{PathFilter, Scratch, TargetOptions, sweep_scratch};

use crate::error::EngineError;
use crate::restore::{RestoreOptions, RestoreOutcome, RestorePlace, restore};
use compare::{Compared, Comparison, compare};
use sample::{Sample, Wanted, take_sample};
use scratch::{free_bytes, owner};
pub use verdict::{DrillFinding, FindingKind};
use verdict::{Listener, Said, verdict_of};

/// How large a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrillAmount {
    /// At most this many bytes, or one file; each entry counts as 4 KiB more than its content.
    Bytes(u64),
    /// This many entries.
    Files(u64),
    /// This share of the entries, from 1 to 100.
    Percent(u8),
}

/// How a snapshot is drilled.
#[derive(Debug, Clone)]
pub struct DrillOptions {
    /// The part of the snapshot; empty or `/` for all of it.
    pub path: Vec<u8>,
    /// How much of it.
    pub amount: DrillAmount,
    /// Where the sample begins on the circle of all paths; else where the last drill of the same
    /// paths ended, or anywhere.
    pub seed: Option<u64>,
    /// The folder in which the scratch folder is made. It must exist.
    pub scratch: PathBuf,
    /// The name of this machine. What a drill of the same repository on it left there when it was
    /// killed is removed.
    pub host: String,
    /// Leave the scratch folder.
    pub keep: bool,
    /// Read the files of this machine too, if they have not changed since.
    pub source: bool,
    /// Keep the result in the repository.
    pub record: bool,
    /// Threads that read, decode and write.
    pub workers: usize,
}

/// How many files of this machine were compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Unchanged, with the same content.
    pub same: u64,
    /// Changed since, so not read.
    pub changed: u64,
    /// No longer there.
    pub gone: u64,
    /// Unchanged by their metadata, with another content.
    pub different: u64,
    /// Unchanged by their metadata, and not readable.
    pub unreadable: u64,
}

/// What a drill found.
#[derive(Debug)]
pub struct DrillOutcome {
    /// Whether the sample was proved restorable.
    pub verdict: DrillVerdict,
    /// Where the sample began on the circle of all paths: with it the drill can be repeated.
    pub seed: u64,
    /// Where the next one begins.
    pub next: u64,
    /// Files (of any type but directories) that were restored.
    pub files: u64,
    /// Directories that were restored, those on the way to files included.
    pub directories: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes of it that were written: all but holes.
    pub bytes_written: u64,
    /// Entries in the sample, and in all of what it was taken from.
    pub entries: (u64, u64),
    /// How long the restore took.
    pub restore_time: Duration,
    /// About how long a restore of all of it would take; none if the sample is too small to say.
    pub full_restore_time: Option<Duration>,
    /// What is wrong.
    pub findings: Vec<DrillFinding>,
    /// The files of this machine.
    pub source: SourceCounts,
    /// An earlier drill restored the same sample, and the result was the same.
    pub same_as_before: Option<bool>,
    /// What the judge said against it.
    pub judged: Option<String>,
    /// The scratch folder, if it was left.
    pub kept: Option<PathBuf>,
    /// Whether the result is in the repository.
    pub recorded: bool,
    /// Why it is not, if it was to be.
    pub not_recorded: Option<RepositoryError>,
}

/// Restores a sample of a snapshot and compares it. The `judge` gets the scratch folder and says
/// what is wrong with it, if anything is.
///
/// # Errors
///
/// Returns an error if the drill could not be done at all. What is wrong with the sample is in the
/// outcome. In either case the scratch folder is removed.
pub fn drill(
    repository: &Repository,
    snapshot: &Snapshot,
    options: &DrillOptions,
    judge: &dyn Fn(&Path) -> Option<String>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DrillOutcome, EngineError> {
    let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
    let list = list_snapshots(repository)?;
    let entropy = &*repository.surroundings.entropy;
    let drawn = || u64::from_le_bytes(random_array(entropy));
    let start = options.seed.or_else(|| end_of_last(&list, snapshot)).unwrap_or_else(drawn);
    let owner = owner(&repository.config.id, &options.host);
    sweep_scratch(&options.scratch, &owner, monitor);
    let free = free_bytes(&options.scratch)?;
    let wanted = Wanted { path: &options.path, amount: options.amount, start, free };
    let sample = take_sample(repository, snapshot, &wanted, &reader, cancel)?;
    check_room(&sample, &options.scratch, free)?;
    let scratch = Scratch::create(&options.scratch, &owner, entropy)
        .map_err(|error| EngineError::Scratch { folder: options.scratch.clone(), error })?;
    let sampled = Sampled { repository, snapshot, sample: &sample, folder: scratch.path() };
    let tried = sampled.try_out(options, judge, monitor, cancel)?;
    let kept = match options.keep {
        true => Some(scratch.keep()),
        false => {
            remove(scratch, monitor);
            None
        }
    };
    let before = list.wishes.remarks().about(snapshot.id).drill;
    let digest = tried.compared.digest;
    let mut outcome = outcome_of(tried, sample, start, options);
    outcome.kept = kept;
    if options.path.is_empty() {
        compare_with_last(&mut outcome, before.as_ref(), &digest);
    }
    if outcome.verdict == DrillVerdict::Failed
        && list.wishes.let_go(&Collections::read(repository)?, snapshot.id)
    {
        let name = snapshot.id.to_string();
        return Err(RepositoryError::NoSuchSnapshot { name }.into());
    }
    for finding in &outcome.findings {
        finding.report(monitor);
    }
    if options.record {
        // Of a part of the snapshot it says nothing that the drill of another part can be
        // compared with.
        let digest = if options.path.is_empty() { digest } else { [0; 32] };
        outcome.not_recorded = record(repository, snapshot, &outcome, digest).err();
        outcome.recorded = outcome.not_recorded.is_none();
    }
    Ok(outcome)
}

/// Where the last drill of any snapshot of the same paths ended: of this machine or another.
fn end_of_last(list: &SnapshotList, snapshot: &Snapshot) -> Option<u64> {
    let is_same = |other: &&Snapshot| {
        other.host == snapshot.host
            && other.paths == snapshot.paths
            && other.domain == snapshot.domain
    };
    let readable = list.readable();
    let drills = readable.iter().filter(is_same);
    let drills = drills.filter_map(|other| list.wishes.remarks().about(other.id).drill);
    drills.max_by_key(|drill| drill.time).map(|drill| drill.end)
}

/// Refuses a sample that does not fit.
fn check_room(sample: &Sample, folder: &Path, free: u64) -> Result<(), EngineError> {
    let too_large = sample.findings.iter().filter_map(|finding| match finding.kind {
        FindingKind::NoRoom { bytes } => Some(bytes),
        _ => None,
    });
    let needed = match sample.chosen.len() {
        // Nothing of it fits.
        0 => too_large.max().unwrap_or(0),
        _ => sample.disk_bytes,
    };
    match needed > free {
        true => Err(EngineError::NoRoom { folder: folder.to_owned(), needed, free }),
        false => Ok(()),
    }
}

fn remove(scratch: Scratch, monitor: &dyn Monitor) {
    let path = scratch.path().to_owned();
    if let Err(error) = scratch.remove() {
        let message = format!("the scratch folder of the drill is left over: {error}");
        let problem = Problem { severity: Severity::Warning, path: Some(&path), message: &message };
        monitor.problem(problem);
    }
}

/// A sample of a snapshot, and the scratch folder for it.
struct Sampled<'s> {
    repository: &'s Repository,
    snapshot: &'s Snapshot,
    sample: &'s Sample,
    folder: &'s Path,
}

/// What came of a sample.
struct Tried {
    restored: RestoreOutcome,
    restore_time: Duration,
    /// What the restore said of what it could not do, by path.
    said: Said,
    compared: Compared,
    judged: Option<String>,
}

impl Sampled<'_> {
    /// Restores it, reads it back, and asks the judge.
    fn try_out(
        &self,
        options: &DrillOptions,
        judge: &dyn Fn(&Path) -> Option<String>,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Tried, EngineError> {
        let target = TargetOptions::default();
        let filter = PathFilter::exactly(self.sample.chosen.iter().cloned());
        let restore_options = RestoreOptions {
            path: Vec::new(),
            filter: Some(filter.clone()),
            place: RestorePlace::Into(self.folder.to_owned()),
            target,
            kept: Vec::new(),
            dry_run: false,
            verify: false,
            workers: options.workers,
        };
        let clock = &self.repository.surroundings.clock;
        let began = clock.now();
        let total = (self.sample.chosen_files, self.sample.chosen_bytes);
        let listener = Listener::new(monitor, self.folder, total);
        let restored =
            restore(self.repository, self.snapshot, &restore_options, &listener, cancel)?;
        if let Some((path, why)) = restored.withheld.first() {
            let (path, why) = (path.clone(), why.clone());
            return Err(EngineError::Withheld { path, why });
        }
        let nanos = clock.now().0.saturating_sub(began.0);
        let comparison = Comparison {
            repository: self.repository,
            snapshot: self.snapshot,
            filter: &filter,
            entries: self.sample.chosen.len() as u64,
            scratch: self.folder,
            target,
            source: options.source,
        };
        let compared = compare(&comparison, monitor, cancel)?;
        let judged = judge(self.folder);
        cancel.check()?;
        Ok(Tried {
            restored,
            restore_time: Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)),
            said: listener.said(),
            compared,
            judged,
        })
    }
}

fn outcome_of(tried: Tried, sample: Sample, start: u64, options: &DrillOptions) -> DrillOutcome {
    let entries = (sample.chosen.len() as u64, sample.entries);
    let mut findings = sample.findings;
    tried.said.add_findings(&mut findings, tried.compared.findings);
    let verdict = verdict_of(&findings, tried.judged.is_some());
    let part = cost(tried.restored.bytes, entries.0);
    let full_restore_time = full_time(tried.restore_time, part, cost(sample.bytes, entries.1));
    DrillOutcome {
        verdict,
        seed: start,
        next: if options.path.is_empty() { sample.end } else { start },
        files: tried.restored.files,
        directories: tried.restored.directories,
        bytes: tried.restored.bytes,
        bytes_written: tried.restored.bytes_written,
        entries,
        restore_time: tried.restore_time,
        full_restore_time,
        findings,
        source: tried.compared.source,
        same_as_before: None,
        judged: tried.judged,
        kept: None,
        recorded: false,
        not_recorded: None,
    }
}

/// What a restore takes, in bytes: to make an entry takes about as long as to write 64 KiB.
fn cost(bytes: u64, entries: u64) -> f64 {
    bytes as f64 + entries as f64 * f64::from(64 << 10)
}

/// About how long a restore of all takes; none if the part was too small to say.
fn full_time(time: Duration, part: f64, all: f64) -> Option<Duration> {
    let is_enough = time >= Duration::from_secs(1) || part * 10.0 >= all;
    let seconds = time.as_secs_f64() * (all / part);
    Duration::try_from_secs_f64(seconds).ok().filter(|_| is_enough)
}

/// The same sample of the same snapshot gives the same, whenever it is restored.
fn compare_with_last(outcome: &mut DrillOutcome, before: Option<&Drill>, digest: &[u8; 32]) {
    let is_same = |before: &&Drill| {
        before.verdict == DrillVerdict::Proved
            && (before.start, before.end) == (outcome.seed, outcome.next)
            && before.digest != [0; 32]
    };
    let Some(before) = before.filter(is_same) else { return };
    if outcome.verdict != DrillVerdict::Proved {
        return;
    }
    outcome.same_as_before = Some(before.digest == *digest);
    if before.digest != *digest {
        outcome.findings.push(DrillFinding::new(b"", FindingKind::NotAsBefore));
        outcome.verdict = DrillVerdict::Failed;
    }
}

/// Keeps the result in the repository.
fn record(
    repository: &Repository,
    snapshot: &Snapshot,
    outcome: &DrillOutcome,
    digest: [u8; 32],
) -> Result<(), RepositoryError> {
    let time = repository.surroundings.clock.now();
    change_remark(repository, snapshot.id, |remark| {
        let last = remark.drill.take();
        if last.as_ref().is_some_and(|last| last.time > time) {
            // Another drill ended later.
            remark.drill = last;
            return;
        }
        let milliseconds = u64::try_from(outcome.restore_time.as_millis()).unwrap_or(u64::MAX);
        let mut drill = Drill::new(time, outcome.verdict);
        (drill.files, drill.bytes, drill.milliseconds) =
            (outcome.files, outcome.bytes, milliseconds);
        (drill.start, drill.end, drill.digest) = (outcome.seed, outcome.next, digest);
        drill.proved = match outcome.verdict {
            DrillVerdict::Proved => Some(time),
            _ => last.and_then(|last| last.proved),
        };
        remark.drill = Some(drill);
    })?;
    Ok(())
}

/// A path of a snapshot as one of this machine.
fn as_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}
