//! `verify`: checks that everything that was stored still exists and fits together.
//!
//! There are three depths. *Structure* checks the ends of every object and, with a key, every tree
//! and whether the chunks that it names are where it says. *Sample* and *data* also read arenas
//! whole, check every shard and, with a key, open every block and compare every fingerprint.
//! Without a key, everything is checked that needs none: envelopes, signatures, hashes of
//! ciphertext.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::bounded;
use strongroom_arena::{ARENAS_FOLDER, ArenaName, CacheLimits, ListedArenas};
use strongroom_backend::{Backend, ObjectInfo, ObjectName, Withheld};
use strongroom_base::{ArenaId, Cancel, Monitor, Problem, Progress, Severity, SnapshotId};
use strongroom_repository::objects::{
    COLLECTIONS_FOLDER, FORGOTTEN_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER, ending_name,
    is_missed, list_shown, list_strangers, twin,
};
use strongroom_repository::{
    Arrivals, ChunkIndex, ChunkReader, Collections, OwnRecord, Repository, RepositoryError,
    Selection, Wishes, arena_bytes_of, find_useless, forged_configs, list_snapshots, read_vouchers,
    snapshot_object,
};

use crate::forget::find_lost_endings;
use crate::health::audit::{Affected, audit_beside_others};
use crate::health::bad::{BadPlaces, say_not_withdrawn};
use crate::health::census::{
    Census, OpenSession, Unclaimed, date_sessions, exists, find_spoilt, missing_sequences,
    own_snapshot_gone,
};
use crate::health::ended::{Ended, PATIENCE};
use crate::health::fault::Fault;
use crate::health::look::{Depth, Looked, Vouchable, look_at};
use crate::health::lost::{Known, LostSnapshot, Unrecognised, find_lost, proven_sequence};
use crate::reader::reader_of_everything;

/// The most threads that check objects: each holds one object, and blocks of it and of others that
/// its deltas are made from, up to 50 MiB; all together must stay within 150.
const LOOKERS_MAX: usize = 2;

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyDepth {
    /// Ends of objects, trees, summaries.
    Structure,
    /// Also this share of the arenas, read whole: chosen by name, another share each `turn`.
    Sample {
        /// Percent of the arenas.
        percent: u8,
        /// Draws another sample.
        turn: u64,
    },
    /// Everything.
    Data,
}

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyOutcome {
    /// Objects checked.
    pub objects: u64,
    /// Those read whole.
    pub objects_read: u64,
    /// Bytes read of them.
    pub bytes_read: u64,
    /// Chunks whose bytes were compared with their fingerprints.
    pub chunks_read: u64,
    /// Snapshots whose trees were walked.
    pub snapshots: u64,
    /// Chunks that snapshots name.
    pub chunks_named: u64,
    /// What is wrong with which object.
    pub faults: Vec<(ObjectName, Fault)>,
    /// Objects that could not be checked, because they wait in an archive or this key may not read
    /// them, and what the place said. Nothing is known to be wrong with them.
    pub withheld: Vec<(ObjectName, Withheld, String)>,
    /// Files and lists of names that need such an object, each counted once: what else they need
    /// was checked.
    pub withheld_entries: u64,
    /// Objects that single stores of a place of several lack. Nothing is lost, so it is a warning alone.
    pub lacking: u64,
    /// Which files of which snapshots depend on what is lost.
    pub affected: Vec<Affected>,
    /// What is in the repository's folders and is none of its objects.
    pub strangers: Vec<ObjectName>,
    /// Sessions that have not ended.
    pub open_sessions: Vec<OpenSession>,
    /// Sessions that stored something, without a snapshot.
    pub unclaimed: Vec<Unclaimed>,
    /// Snapshots that a repair can commit, again if they were removed.
    pub lost_snapshots: Vec<LostSnapshot>,
    /// Snapshots that were removed, and cannot be made again from what is left of them yet.
    pub unrecognised: Vec<Unrecognised>,
    /// Sequences of the owner's domain that no snapshot has.
    pub missing_sequences: Vec<RangeInclusive<u64>>,
    /// Snapshots that do not count, because their domain has ended without them. Nothing is wrong with
    /// them; the owner says what becomes of them.
    pub late: Vec<SnapshotId>,
    /// The last snapshot that this machine made, if the repository no longer has it.
    pub rolled_back: Option<SnapshotId>,
    /// Arenas that exist in several generations of their domain: a rewriting was interrupted, or
    /// copies of the repository were both used and then brought together.
    pub several_generations: Vec<ArenaId>,
    /// Arenas of other domains in which every chunk was compared with its fingerprint and was
    /// right.
    pub vouchable: Vec<Vouchable>,
}

impl VerifyOutcome {
    /// Whether everything that was to be checked could be read.
    pub fn is_complete(&self) -> bool {
        self.withheld.is_empty() && self.withheld_entries == 0
    }

    /// Whether one of these folders is withheld.
    fn is_withheld_folder(&self, folders: &[&str]) -> bool {
        self.withheld.iter().any(|(name, ..)| folders.contains(&name.as_str()))
    }

    /// Whether nothing is wrong, as far as it could be read. What a newer program made is not wrong, and
    /// neither is what an interrupted writer left. A sequence that no snapshot has stays missing for ever,
    /// so it is a warning alone.
    pub fn is_sound(&self) -> bool {
        self.faults.iter().all(|(_, fault)| *fault == Fault::Unknown)
            && self.affected.is_empty()
            && self.rolled_back.is_none()
            && self.lost_snapshots.iter().all(|lost| !lost.was_committed)
    }

    /// Whether snapshots existed that are not there, and that no wish gave up.
    pub fn misses_snapshots(&self) -> bool {
        !self.missing_sequences.is_empty()
            || self.unrecognised.iter().any(|left| left.was_committed)
    }

    /// What is wrong with what a snapshot needs, or with what is condemned: as long as there is any,
    /// nothing is removed (nor as long as anything is withheld, [`Self::is_complete`]), because what is
    /// condemned may be needed to mend it. Everything that a snapshot needs was asked for, so an arena of
    /// which nothing can be read is needed only if files are not whole; and rubbish under the name of a
    /// key slot or a list of vouchers is needed by none. What a removed snapshot needs is not condemned
    /// as long as it is not forgotten.
    pub fn forbids_removal(&self, condemned: &Selection) -> bool {
        let goes = |name: &ObjectName| {
            let id = name.file().parse::<SnapshotId>();
            id.is_ok_and(|id| condemned.snapshots.iter().any(|goes| goes.id == id))
        };
        let matters = |(name, fault): &(ObjectName, Fault)| match (name.folder(), fault) {
            (_, Fault::Unknown) => false,
            (ARENAS_FOLDER, Fault::Beyond { .. } | Fault::Swapped { .. } | Fault::Planted) => {
                ArenaName::of(name).is_some_and(|arena| condemned.slots.0.contains_key(&arena.id))
            }
            // The owner wants it to go, and nothing of it is asked for any more.
            (SNAPSHOTS_FOLDER, _) if goes(name) => false,
            // Copied there, or moved: what is missing for it in its own place is judged there.
            (COLLECTIONS_FOLDER, Fault::Swapped { .. } | Fault::Planted) => false,
            ("" | ARENAS_FOLDER | SNAPSHOTS_FOLDER | COLLECTIONS_FOLDER, _) => true,
            _ => false,
        };
        let rest = Self { faults: Vec::new(), lost_snapshots: Vec::new(), ..self.clone() };
        self.faults.iter().any(matters) || !rest.is_sound()
    }
}

/// Verifies what needs no key.
pub fn verify_objects(
    backend: &dyn Backend,
    depth: VerifyDepth,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<VerifyOutcome, RepositoryError> {
    let mut verifier = Verifier::new(backend, monitor, cancel);
    verifier.objects(depth, None)?;
    Ok(verifier.outcome)
}

/// Verifies the whole repository.
pub fn verify(
    repository: &Repository,
    depth: VerifyDepth,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<VerifyOutcome, RepositoryError> {
    verify_within(repository, depth, CacheLimits::default(), monitor, cancel)
}

/// The same with caches of other sizes.
pub fn verify_within(
    repository: &Repository,
    depth: VerifyDepth,
    limits: CacheLimits,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<VerifyOutcome, RepositoryError> {
    let reader = reader_of_everything(repository, limits)?;
    reader.store().trust(read_vouchers(repository)?);
    let mut verifier = Verifier::new(repository.backend(), monitor, cancel);
    verifier.forgotten = Wishes::read(repository)?.forgotten().collect();
    verifier.objects(depth, Some(&reader))?;
    verifier.generations(&reader)?;
    // Before anything is looked up in the index: this reader would be its writer then.
    let bad = std::mem::take(&mut verifier.bad);
    withdraw(repository, &reader, &bad, monitor, cancel)?;
    for name in forged_configs(repository)? {
        verifier.note(&name, Fault::Forged);
    }
    for useless in find_useless(repository)? {
        let is_known = verifier.outcome.faults.iter().any(|(name, _)| *name == useless.name);
        if useless.is_planted && !is_known {
            verifier.note(&useless.name, Fault::Planted);
        }
    }
    date_sessions(repository, &mut verifier.outcome.open_sessions);
    let list = list_snapshots(repository)?;
    // What the place withholds is among the objects that could not be checked.
    let unreadable = list.unreadable.iter().filter(|(_, error)| !error.is_withheld());
    for (id, error) in unreadable.filter(|(id, _)| !list.wishes.forget(*id)) {
        let path = format!("snapshot {}", id.short());
        verifier.tell(Severity::Damage, &path, &error.to_string());
        // Its envelope may be whole all the same.
        let name = snapshot_object(*id);
        if !verifier.outcome.faults.iter().any(|(faulty, _)| *faulty == name) {
            verifier.outcome.faults.push((name, Fault::Beyond { why: error.to_string() }));
        }
    }
    // An envelope of a known kind, and in it something that only a newer program knows.
    for (id, _) in &list.newer {
        let name = snapshot_object(*id);
        if !verifier.outcome.faults.iter().any(|(faulty, _)| *faulty == name) {
            verifier.note(&name, Fault::Unknown);
        }
    }
    verifier.outcome.late = list.late.iter().map(|late| late.id).collect();
    if repository.keys.can_read() {
        for (domain, number) in find_lost_endings(repository, &list, &Arrivals::read(repository)?)?
        {
            verifier.note(&ending_name(domain, number), Fault::EndingLost);
        }
    }
    let own = OwnRecord::read(repository, monitor);
    let collections = Collections::read(repository)?;
    let spoilt = find_spoilt(repository, &list)?;
    let ended = Ended::find(repository, &verifier.census, &list, &own, PATIENCE)?;
    verifier.outcome.unclaimed =
        verifier.census.unclaimed(repository.backend(), &spoilt, &|id| ended.contains(id));
    let is_lost = |session: &Unclaimed| !list.wishes.is_no_loss(&collections, session.id);
    verifier.outcome.unclaimed.retain(is_lost);
    // What is withheld may say that a session is at work, or that its snapshot was forgotten.
    if verifier.outcome.is_withheld_folder(&[COLLECTIONS_FOLDER, FORGOTTEN_FOLDER, SESSIONS_FOLDER])
    {
        verifier.outcome.unclaimed.clear();
    }
    let proven = proven_sequence(repository, &reader, &verifier.outcome.unclaimed)?;
    verifier.outcome.missing_sequences =
        missing_sequences(repository, &list, &own, &collections, proven)?;
    verifier.outcome.rolled_back = own_snapshot_gone(repository, &own)?;
    let unclaimed = &verifier.outcome.unclaimed;
    let missing = &verifier.outcome.missing_sequences;
    let arrivals = match repository.keys.can_read() {
        true => Arrivals::read(repository)?,
        false => Arrivals::default(),
    };
    let snapshots = list.readable();
    let (own_newest, wishes, arrivals) = (own.newest, &list.wishes, &arrivals);
    let known = Known { snapshots: &snapshots, own_newest, missing, wishes, arrivals };
    let lost = find_lost(repository, &reader, unclaimed, &known, cancel)?;
    (verifier.outcome.lost_snapshots, verifier.outcome.unrecognised) =
        (lost.snapshots, lost.unrecognised);
    let progress = Some(&mut verifier.progress);
    let (affected, audited) =
        audit_beside_others(repository, &reader, &snapshots, &bad, progress, monitor, cancel)?;
    verifier.outcome.affected = affected;
    verifier.outcome.withheld_entries = audited.withheld;
    verifier.outcome.snapshots = audited.snapshots;
    verifier.outcome.chunks_named = audited.chunks;
    Ok(verifier.outcome)
}

/// Removes unreadable slots from the index in the cache, and their arenas from what is kept near, so
/// that the next backup stores those chunks again.
fn withdraw(
    repository: &Repository,
    reader: &ChunkReader,
    bad: &BadPlaces,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    let lost = bad.lost_places(reader);
    let Some(cache) = repository.cache_folder().filter(|_| !lost.is_empty()) else {
        return Ok(());
    };
    let mut index = ChunkIndex::open(Some(&cache))?;
    index.refresh(repository.backend(), reader.store(), monitor, cancel)?;
    if !index.withdraw_for_good(&lost, monitor) {
        say_not_withdrawn(&cache, monitor);
    }
    if let Some(near) = repository.near() {
        let of_slots = lost.slots.iter().map(|slot| slot.arena);
        let bad: HashSet<ArenaId> = of_slots.chain(lost.arenas.iter().copied()).collect();
        near.forget(|id| bad.contains(&id));
    }
    Ok(())
}

struct Verifier<'v> {
    backend: &'v dyn Backend,
    monitor: &'v dyn Monitor,
    cancel: &'v Cancel,
    progress: Progress,
    bad: BadPlaces,
    census: Census,
    /// Snapshots that the owner wants to go: if nothing can be read of one any more, that is no damage.
    forgotten: BTreeSet<SnapshotId>,
    outcome: VerifyOutcome,
}

impl<'v> Verifier<'v> {
    fn new(backend: &'v dyn Backend, monitor: &'v dyn Monitor, cancel: &'v Cancel) -> Self {
        Self {
            backend,
            monitor,
            cancel,
            progress: Progress::default(),
            bad: BadPlaces::default(),
            census: Census::default(),
            forgotten: BTreeSet::new(),
            outcome: VerifyOutcome::default(),
        }
    }

    /// Checks every object, several at the same time.
    fn objects(
        &mut self,
        depth: VerifyDepth,
        reader: Option<&ChunkReader>,
    ) -> Result<(), RepositoryError> {
        let (objects, withheld) = list_shown(self.backend)?;
        for folder in withheld {
            let name = folder.name();
            self.tell(Severity::Warning, name.as_str(), &format!("not checked: {folder}"));
            self.outcome.withheld.push((name, folder.why(), folder.to_string()));
        }
        self.census = Census::of_listing(&objects);
        let every_byte = |info: &ObjectInfo| {
            info.name.folder() != ARENAS_FOLDER || is_in_sample(depth, &info.name)
        };
        self.progress.files_total = Some(objects.len() as u64);
        let whole: u64 =
            objects.iter().filter(|info| every_byte(info)).map(|info| info.bytes).sum();
        self.progress.bytes_total = Some(whole);
        let arena_bytes = arena_bytes_of(self.backend);
        let (backend, cancel, next) = (self.backend, self.cancel, AtomicUsize::new(0));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(LOOKERS_MAX);
        std::thread::scope(|scope| {
            let (send, receive) = bounded(threads);
            for _ in 0..threads {
                let (send, next, objects) = (send.clone(), &next, &objects);
                scope.spawn(move || {
                    while !cancel.is_cancelled() {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(info) = objects.get(place) else { return };
                        let depth = Depth { every_byte: every_byte(info), arena_bytes };
                        let looked = look_at(backend, info, depth, reader);
                        if send.send((place, looked)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            // They are reported in the order of the listing, in any order of completion.
            let (mut early, mut due) = (BTreeMap::new(), 0);
            for (place, looked) in receive {
                early.insert(place, looked);
                while let Some(looked) = early.remove(&due) {
                    self.take(&objects[due], looked?, every_byte(&objects[due]));
                    due += 1;
                }
            }
            Ok::<_, RepositoryError>(cancel.check()?)
        })?;
        self.missing_twins(&objects);
        self.outcome.strangers = list_strangers(self.backend)?;
        for name in &self.outcome.strangers {
            self.tell(Severity::Warning, name.as_str(), "not an object of the repository: ignored");
        }
        self.outcome.lacking = self.backend.lacking(depth == VerifyDepth::Data)?;
        self.outcome.open_sessions = self.census.open_sessions(self.backend);
        self.outcome.unclaimed = self.census.unclaimed(self.backend, &BTreeSet::new(), &|_| false);
        Ok(())
    }

    /// Records what was found in an object.
    fn take(&mut self, info: &ObjectInfo, looked: Looked, every_byte: bool) {
        self.monitor.working_on(info.name.as_str().as_ref());
        self.outcome.objects += 1;
        self.outcome.objects_read += u64::from(looked.whole_bytes.is_some());
        self.outcome.bytes_read += looked.whole_bytes.unwrap_or(0);
        self.outcome.chunks_read += looked.chunks_read;
        self.outcome.vouchable.extend(looked.vouchable);
        if let Some((why, answer)) = looked.withheld {
            self.monitor.detail(&format!("{}: {why}: {answer}", info.name));
            self.outcome.withheld.push((info.name.clone(), why, answer));
        }
        self.bad.extend(looked.survivors, looked.wrong_slots);
        if let Some(origin) = looked.origin {
            self.census.note(&info.name, origin);
        }
        if let Some(fault) = looked.fault {
            self.note(&info.name, fault);
        }
        self.progress.files += 1;
        self.progress.bytes += if every_byte { info.bytes } else { 0 };
        self.monitor.progress(&self.progress);
    }

    /// Arenas in several generations, and generations of them that others planted.
    fn generations(&mut self, reader: &ChunkReader) -> Result<(), RepositoryError> {
        let listed = ListedArenas::list(self.backend)?;
        for newest in listed.newest() {
            self.cancel.check()?;
            let id = newest.name.id;
            let generations = listed.generations(id);
            if generations.len() < 2 {
                continue;
            }
            let sorted = match reader.store().sort_generations(generations) {
                // It is named with what is withheld.
                Err(error) if error.withheld().is_some() => continue,
                other => other?,
            };
            if sorted.genuine.len() > 1 {
                let message = format!(
                    "there are {} generations of it: it is read in all of them, and a prune that \
                     removes something of it makes one of them",
                    sorted.genuine.len(),
                );
                self.tell(Severity::Warning, &format!("arenas/{id}"), &message);
                self.outcome.several_generations.push(id);
            }
            for listed in &sorted.unmarked {
                let message = "it has no mark of the owner: a repair has made it, or a program of before \
                               there were marks, or a thief with the machine's key. What it alone has is \
                               read, and nothing of its arena is removed; `repair` takes it \
                               away once nothing needs that";
                self.tell(Severity::Warning, listed.name.object().as_str(), message);
            }
            let planted = sorted.planted.into_iter().map(|listed| (listed, Fault::Planted));
            let disputed = sorted.undecided.into_iter().map(|listed| (listed, Fault::Disputed));
            for (listed, fault) in planted.chain(disputed) {
                let name = listed.name.object();
                if !self.outcome.faults.iter().any(|(faulty, _)| *faulty == name) {
                    self.note(&name, fault);
                }
            }
        }
        Ok(())
    }

    /// Copies that are missing although the other exists.
    fn missing_twins(&mut self, objects: &[ObjectInfo]) {
        let names: HashSet<&ObjectName> = objects.iter().map(|info| &info.name).collect();
        for info in objects {
            let missed = twin(&info.name).filter(|twin| is_missed(twin) && !names.contains(twin));
            // One of the two may have been listed alone: before the other was made, or as it went.
            let is_missing =
                |twin: &ObjectName| !exists(self.backend, twin) && exists(self.backend, &info.name);
            if let Some(twin) = missed.filter(is_missing) {
                self.note(&twin, Fault::Missing);
            }
        }
    }

    fn note(&mut self, name: &ObjectName, fault: Fault) {
        let id = name.file().parse().ok().filter(|_| name.folder() == SNAPSHOTS_FOLDER);
        let is_beyond = fault != Fault::Unknown && !fault.is_repairable();
        if is_beyond && id.is_some_and(|id| self.forgotten.contains(&id)) {
            let message = format!("{fault}; it is forgotten, and the next prune removes it");
            self.tell(Severity::Warning, name.as_str(), &message);
            return;
        }
        let severity = match fault {
            Fault::Unknown => Severity::Warning,
            _ => Severity::Damage,
        };
        self.tell(severity, name.as_str(), &fault.to_string());
        self.outcome.faults.push((name.clone(), fault));
    }

    fn tell(&self, severity: Severity, what: &str, message: &str) {
        let path = Some(what.as_ref());
        self.monitor.problem(Problem { severity, path, message });
    }
}

/// Arenas are named at random, so a share of names is a share of arenas.
pub fn is_in_sample(depth: VerifyDepth, name: &ObjectName) -> bool {
    match depth {
        VerifyDepth::Structure => false,
        VerifyDepth::Data => true,
        VerifyDepth::Sample { percent, turn } => {
            let Some(arena) = ArenaName::of(name) else { return true };
            let [.., a, b] = arena.id.0;
            let place = (u64::from(u16::from_le_bytes([a, b])) * 100) >> 16;
            (place + turn * u64::from(percent)) % 100 < u64::from(percent)
        }
    }
}
